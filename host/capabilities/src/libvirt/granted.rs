//! libvirt for one Provider: every call is held against its grant, then made on the shared connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use proxy_operator_core::capability::libvirt::{Domain, DomainSpec, HostGrant, HostInfo, Libvirt, Volume, VolumeSpec};
use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::provider::Address;
use proxy_operator_core::sensitive::Sensitive;

use super::connection::{Call, Hypervisor, Line, Session};
use super::error::Failure;
use super::policy::{Identity, Scope};
use super::{domains, info, volumes};
use crate::limits::{Limits, WRITE_VOLUME_MAX_BYTES};

/// libvirt as one Provider may use it.
pub struct GrantedLibvirt {
    identity: Arc<Identity>,
    hosts: BTreeMap<String, GrantedHost>,
    limits: Arc<Limits>,
    revoked: Arc<AtomicBool>,
}

/// One host of a grant.
#[derive(Clone)]
pub struct GrantedHost {
    /// What may be touched there.
    pub scope: Scope,
    /// The connections, or what is wrong with the grant.
    pub hypervisor: Result<Arc<Hypervisor>>,
    /// The host's name, for the log.
    pub label: Arc<str>,
}

impl GrantedLibvirt {
    /// libvirt for a Provider on these hosts.
    pub fn new(identity: Arc<Identity>, hosts: BTreeMap<String, GrantedHost>, limits: Arc<Limits>) -> Self {
        Self { identity, hosts, limits, revoked: Arc::default() }
    }

    /// Ends the grant: calls fail from now on, and those under way make no further call of libvirt.
    pub fn revoke(&self) {
        self.revoked.store(true, Ordering::SeqCst);
    }

    /// A host, when it is granted: for other capabilities that work on the same hypervisors.
    pub fn host(&self, host: &str) -> Result<(&GrantedHost, &Arc<Hypervisor>)> {
        if self.revoked.load(Ordering::SeqCst) {
            return Err(Error::permission_denied(
                "GrantMissing",
                format!("{host}: the grant has changed or ended; call again"),
            ));
        }
        let granted = self.hosts.get(host).ok_or_else(|| {
            Error::permission_denied(
                "GrantMissing",
                format!(
                    "Provider {}: the host {host:?} is not granted; to allow it, add it to spec.grants.libvirt.hosts",
                    self.identity.provider
                ),
            )
        })?;
        let hypervisor = granted.hypervisor.as_ref().map_err(Clone::clone)?;
        Ok((granted, hypervisor))
    }

    /// How calls to a host are made that take at most so long.
    pub fn terms(&self, host: &GrantedHost, time: Duration) -> Call {
        Call { host: Arc::clone(&host.label), time, revoked: Arc::clone(&self.revoked) }
    }

    async fn on<T, J>(&self, host: &str, kind: Kind, job: J) -> Result<T>
    where
        T: Send + 'static,
        J: Fn(&Scope, &Session<'_>, &Hypervisor) -> std::result::Result<T, Failure> + Send + Sync + 'static,
    {
        let (granted, hypervisor) = self.host(host)?;
        let (line, time): (&Arc<Line>, _) = match kind {
            Kind::Read => (&hypervisor.calls, self.limits.read_call),
            Kind::Change => (&hypervisor.calls, self.limits.change_call),
            Kind::Upload => (&hypervisor.uploads, self.limits.change_call),
        };
        let (scope, shared) = (granted.scope.clone(), Arc::clone(hypervisor));
        let outcome = line.call(&self.terms(granted, time), move |session| job(&scope, session, &shared)).await;
        outcome.map_err(|failure| failure.into_error(host))
    }
}

impl Drop for GrantedLibvirt {
    fn drop(&mut self) {
        self.revoke();
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Change,
    Upload,
}

#[async_trait]
impl Libvirt for GrantedLibvirt {
    fn hosts(&self) -> Vec<HostGrant> {
        self.hosts.values().map(|host| HostGrant::clone(&host.scope.grant)).collect()
    }

    async fn info(&self, host: &str) -> Result<HostInfo> {
        self.on(host, Kind::Read, |scope, session, _| info::info(scope, session)).await
    }

    async fn list_domains(&self, host: &str) -> Result<Vec<Domain>> {
        self.on(host, Kind::Read, |scope, session, shared| domains::list(scope, session, &shared.created)).await
    }

    async fn lookup_domain(&self, host: &str, name: &str) -> Result<Option<Domain>> {
        let name = self.own(host, name)?;
        self.on(host, Kind::Read, move |scope, session, shared| domains::lookup(scope, session, &shared.created, &name))
            .await
    }

    async fn agent_addresses(&self, host: &str, name: &str) -> Result<Option<Vec<Address>>> {
        let name = self.own(host, name)?;
        let wait = u32::try_from(self.limits.agent.as_secs().max(1)).unwrap_or(u32::MAX);
        self.on(host, Kind::Read, move |scope, session, _| domains::agent_addresses(scope, session, &name, wait)).await
    }

    async fn neighbour_addresses(&self, host: &str, name: &str) -> Result<Vec<Address>> {
        let name = self.own(host, name)?;
        self.on(host, Kind::Read, move |scope, session, _| domains::neighbour_addresses(scope, session, &name)).await
    }

    async fn define_domain(&self, host: &str, spec: &DomainSpec) -> Result<Domain> {
        self.host(host)?.0.scope.domain(spec)?;
        let spec = spec.clone();
        self.on(host, Kind::Change, move |scope, session, shared| {
            domains::define(scope, session, &shared.created, &spec)
        })
        .await
    }

    async fn start_domain(&self, host: &str, name: &str) -> Result<()> {
        let name = self.own(host, name)?;
        self.on(host, Kind::Change, move |scope, session, _| domains::start(scope, session, &name)).await
    }

    async fn destroy_domain(&self, host: &str, name: &str) -> Result<()> {
        let name = self.own(host, name)?;
        self.on(host, Kind::Change, move |scope, session, _| domains::destroy(scope, session, &name)).await
    }

    async fn undefine_domain(&self, host: &str, name: &str) -> Result<()> {
        let name = self.own(host, name)?;
        self.on(host, Kind::Change, move |scope, session, _| domains::undefine(scope, session, &name)).await
    }

    async fn list_volumes(&self, host: &str, domain: Option<&str>) -> Result<Vec<Volume>> {
        let domain = domain.map(|name| self.own(host, name)).transpose()?;
        self.on(host, Kind::Read, move |scope, session, _| volumes::list(scope, session, domain.as_deref())).await
    }

    async fn create_volume(&self, host: &str, pool: &str, name: &str, spec: &VolumeSpec) -> Result<()> {
        let (pool, name) = self.own_volume(host, pool, name)?;
        let spec = spec.clone();
        self.on(host, Kind::Change, move |scope, session, _| volumes::create(scope, session, &pool, &name, &spec)).await
    }

    async fn write_volume(&self, host: &str, pool: &str, name: &str, content: Sensitive<Vec<u8>>) -> Result<()> {
        let (pool, name) = self.own_volume(host, pool, name)?;
        let length = content.expose().len();
        if length == 0 || length > WRITE_VOLUME_MAX_BYTES {
            return Err(Error::internal(
                "SpecInvalid",
                format!(
                    "{host}: volume {name} is to hold {length} bytes; 1 to {WRITE_VOLUME_MAX_BYTES} can be written"
                ),
            ));
        }
        self.on(host, Kind::Upload, move |scope, session, _| {
            volumes::write(scope, session, &pool, &name, content.expose())
        })
        .await
    }

    async fn delete_volume(&self, host: &str, pool: &str, name: &str) -> Result<()> {
        let (pool, name) = self.own_volume(host, pool, name)?;
        self.on(host, Kind::Change, move |scope, session, _| volumes::delete(scope, session, &pool, &name)).await
    }
}

impl GrantedLibvirt {
    /// A domain's name, when it is one of ours: refused before a connection is opened.
    fn own(&self, host: &str, name: &str) -> Result<String> {
        self.host(host)?.0.scope.owner(name)?;
        Ok(name.to_owned())
    }

    /// A pool and a volume's name, when they are granted and ours.
    fn own_volume(&self, host: &str, pool: &str, name: &str) -> Result<(String, String)> {
        let scope = &self.host(host)?.0.scope;
        scope.pool(pool)?;
        scope.volume_owner(name)?;
        Ok((pool.to_owned(), name.to_owned()))
    }
}
