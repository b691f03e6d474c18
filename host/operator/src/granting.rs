//! Grants become capabilities: the connections of this process, seen through one Provider's policy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use proxy_operator_api::Grants;
use proxy_operator_capabilities::libvirt::granted::GrantedLibvirt;
use proxy_operator_capabilities::libvirt::hypervisors::Hypervisors;
use proxy_operator_capabilities::libvirt::policy;
use proxy_operator_core::capability::Capabilities;

use crate::controller::grants::{Granting, Identity};

/// What the host can offer.
pub struct Offers {
    hypervisors: Hypervisors,
    /// What was made for each Provider last: withdrawn when something takes its place.
    made: Mutex<HashMap<String, Made>>,
}

#[derive(Default)]
struct Made {
    libvirt: Option<Arc<GrantedLibvirt>>,
}

// === impl Offers ===

impl Offers {
    /// Offers libvirt on these connections.
    pub fn new(hypervisors: Hypervisors) -> Self {
        Self { hypervisors, made: Mutex::default() }
    }
}

impl Granting for Offers {
    fn grant(&self, identity: &Identity, grants: &Grants) -> Capabilities {
        let Grants { libvirt, images: _, endpoints: _ } = grants;
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
        let made = Made { libvirt: libvirt.clone() };
        let old = self.made.lock().unwrap_or_else(PoisonError::into_inner).insert(identity.provider.clone(), made);
        // After the new one is there: connections that both use stay open.
        old.unwrap_or_default().withdraw();
        Capabilities { libvirt: libvirt.map(|libvirt| libvirt as _), images: None }
    }

    fn withdraw(&self, provider: &str) {
        let old = self.made.lock().unwrap_or_else(PoisonError::into_inner).remove(provider);
        old.unwrap_or_default().withdraw();
    }
}

// === impl Made ===

impl Made {
    fn withdraw(self) {
        let Self { libvirt } = self;
        if let Some(libvirt) = libvirt {
            libvirt.revoke();
        }
    }
}
