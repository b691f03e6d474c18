//! The images capability of one Provider: what it may ask for, until its grant ends.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use proxy_operator_api::grants::{ImagesGrant, LibvirtGrant, LibvirtHost};
use proxy_operator_core::capability::images::{Images, Source, Status};
use proxy_operator_core::error::{Error, Result};

use super::limits::ImageLimits;
use super::pool::Pools;
use super::prefix::Prefixes;
use super::service::ImageService;
use super::source::Request;
use super::transfer::{Key, Policy};

/// What one Provider was granted.
pub struct Grant {
    policy: Arc<Policy>,
    hosts: BTreeMap<String, LibvirtHost>,
    revoked: AtomicBool,
}

/// Base images for one Provider.
pub struct GrantedImages {
    service: ImageService,
    grant: Arc<Grant>,
}

// === impl Grant ===

impl Grant {
    /// The grants of a Provider.
    pub fn new(provider: &str, images: &ImagesGrant, libvirt: &LibvirtGrant, limits: &ImageLimits) -> Self {
        let ImagesGrant { url_prefixes, max_gib } = images;
        let LibvirtGrant { hosts } = libvirt;
        let policy = Policy {
            provider: provider.to_owned(),
            prefixes: Prefixes::new(url_prefixes),
            max_bytes: max_gib.unwrap_or(limits.default_max_gib).saturating_mul(1 << 30),
        };
        Self { policy: Arc::new(policy), hosts: hosts.clone(), revoked: AtomicBool::new(false) }
    }

    /// Whether it allows a transfer, now.
    pub fn allows(&self, key: &Key, pools: &dyn Pools) -> bool {
        let Key { hypervisor, pool, request: _, policy } = key;
        let is_it = |(name, host): (&String, &LibvirtHost)| {
            host.pools.contains(pool) && pools.pool(name, host, pool).is_ok_and(|pool| pool.hypervisor() == *hypervisor)
        };
        !self.is_revoked() && *policy == self.policy && self.hosts.iter().any(is_it)
    }

    fn is_revoked(&self) -> bool {
        self.revoked.load(Ordering::SeqCst)
    }

    fn check(&self) -> Result<()> {
        if self.is_revoked() {
            return Err(
                self.denied("the grant has changed or ended while the call was under way; call again".to_owned())
            );
        }
        Ok(())
    }

    fn host(&self, name: &str, pool: &str) -> Result<&LibvirtHost> {
        let host = self.hosts.get(name).ok_or_else(|| {
            self.denied(format!("the host {name:?} is not granted; to allow it, add it to spec.grants.libvirt.hosts"))
        })?;
        if !host.pools.iter().any(|granted| granted == pool) {
            return Err(self.denied(format!(
                "the pool {pool:?} is not granted; to allow it, add {pool:?} to spec.grants.libvirt.hosts.{name}.pools"
            )));
        }
        Ok(host)
    }

    fn denied(&self, what: String) -> Error {
        Error::permission_denied("GrantMissing", format!("Provider {}: {what}", self.policy.provider))
    }
}

// === impl GrantedImages ===

impl GrantedImages {
    pub(super) fn new(service: ImageService, grant: Arc<Grant>) -> Self {
        Self { service, grant }
    }

    /// Ends it: calls fail from now on, and its transfers stop unless an equal grant of this Provider is there.
    pub fn revoke(&self) {
        if !self.grant.revoked.swap(true, Ordering::SeqCst) {
            self.service.reap();
        }
    }
}

impl Drop for GrantedImages {
    fn drop(&mut self) {
        self.revoke();
    }
}

#[async_trait]
impl Images for GrantedImages {
    async fn ensure(&self, host: &str, pool: &str, source: &Source) -> Result<Status> {
        let Self { service, grant } = self;
        grant.check()?;
        let granted = grant.host(host, pool)?;
        let request = Request::read(source)?;
        grant.policy.prefixes.check(&grant.policy.provider, &request.url)?;
        let place = format!("{host}/{pool}");
        let pool = service.pools().pool(host, granted, pool)?;
        let key = Key { hypervisor: pool.hypervisor(), pool: pool.name(), request, policy: Arc::clone(&grant.policy) };
        let status = service.ensure(pool, &place, key).await?;
        // What ends meanwhile, ends.
        grant.check()?;
        Ok(status)
    }
}
