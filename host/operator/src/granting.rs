//! Grants become capabilities: the connections of this process, seen through one Provider's policy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use proxy_operator_api::Grants;
use proxy_operator_capabilities::images::{GrantedImages, ImageService};
use proxy_operator_capabilities::libvirt::granted::GrantedLibvirt;
use proxy_operator_capabilities::libvirt::hypervisors::Hypervisors;
use proxy_operator_capabilities::libvirt::policy;
use proxy_operator_core::capability::Capabilities;

use crate::controller::grants::{Granting, Identity};

/// What the host can offer.
pub struct Offers {
    hypervisors: Hypervisors,
    images: ImageService,
    /// What was made for each Provider last: withdrawn when something takes its place.
    made: Mutex<HashMap<String, Made>>,
}

#[derive(Default)]
struct Made {
    libvirt: Option<Arc<GrantedLibvirt>>,
    images: Option<Arc<GrantedImages>>,
}

// === impl Offers ===

impl Offers {
    /// Offers libvirt on these connections, and base images in the pools they reach.
    pub fn new(hypervisors: Hypervisors, images: ImageService) -> Self {
        Self { hypervisors, images, made: Mutex::default() }
    }
}

impl Granting for Offers {
    fn grant(&self, identity: &Identity, grants: &Grants) -> Capabilities {
        // Where endpoints may lie is held by the controllers.
        let Grants { libvirt, images, endpoints: _ } = grants;
        // Images go into the pools of granted hypervisors: without these there is nowhere to bring one.
        let images = images.as_ref().zip(libvirt.as_ref());
        let images = images.map(|(images, libvirt)| self.images.granted(&identity.provider, images, libvirt));
        let libvirt = libvirt.as_ref().map(|grant| {
            for fault in self.hypervisors.check_secrets(grant) {
                tracing::warn!(host = fault.host, reason = fault.error.reason, "{}", fault.error);
            }
            let identity = policy::Identity {
                cluster_id: identity.cluster_id.clone(),
                provider: identity.provider.clone(),
                name_prefix: identity.name_prefix.clone(),
            };
            self.hypervisors.granted(identity, grant)
        });
        let made = Made { libvirt: libvirt.clone(), images: images.clone() };
        let old = self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.provider.clone(), made);
        // After the new one is there: connections that both use stay open.
        old.unwrap_or_default().withdraw();
        Capabilities { libvirt: libvirt.map(|libvirt| libvirt as _), images: images.map(|images| images as _) }
    }

    fn withdraw(&self, provider: &str) {
        let old = self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(provider);
        old.unwrap_or_default().withdraw();
    }
}

// === impl Made ===

impl Made {
    fn withdraw(self) {
        let Self { libvirt, images } = self;
        if let Some(images) = images {
            images.revoke();
        }
        if let Some(libvirt) = libvirt {
            libvirt.revoke();
        }
    }
}
