//! Every call passes here: refused when it may no longer be made, logged when it has returned.
//!
//! At debug one line a call: `rpc`, what it names, a curated result, how long it took; on failure the error, once, with
//! libvirt's name and number of it. At trace also the documents. What is uploaded is never shown.

use std::fmt::Debug;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use proxy_operator_core::capability::libvirt::DomainState;
use proxy_operator_core::error::Error;
use uuid::Uuid;

use super::error::Failure;
use super::seam::{
    AddressAuthority, CardAddresses, DomainRef, Lease, NetworkRef, PoolRef, PoolSpace, Result, Seam, Undefine,
    VolumeRef,
};

/// Whether calls may still be made.
#[derive(Clone, Debug, Default)]
pub struct Fence {
    /// The grant has ended or changed.
    pub revoked: Arc<AtomicBool>,
    /// Whoever waited for the answer has gone.
    pub abandoned: Arc<AtomicBool>,
}

/// Decides whether a call may be made.
pub trait Gate: Send + Sync {
    /// Fails when this function may not be called on this host.
    fn check(&self, rpc: &'static str, host: &str) -> Result<()>;
}

/// A seam behind a gate, with a log line for each call.
pub struct Traced<'a> {
    inner: &'a dyn Seam,
    host: &'a str,
    gate: &'a dyn Gate,
}

/// What a call names.
#[derive(Clone, Copy, Default)]
struct Ids<'a> {
    domain: Option<&'a str>,
    network: Option<&'a str>,
    pool: Option<&'a str>,
    volume: Option<&'a str>,
    detail: Option<&'a str>,
}

impl Gate for Fence {
    fn check(&self, _rpc: &'static str, host: &str) -> Result<()> {
        if self.revoked.load(Ordering::SeqCst) {
            return Err(Error::permission_denied(
                "GrantMissing",
                format!("{host}: the grant has changed or ended while the call was under way; call again"),
            )
            .into());
        }
        if self.abandoned.load(Ordering::SeqCst) {
            return Err(Error::deadline_exceeded(
                "CallAbandoned",
                format!("{host}: nobody waits for the answer any more"),
            )
            .into());
        }
        Ok(())
    }
}

/// To a hundredth: less is noise.
fn milliseconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 100_000.0).round() / 100.0
}

impl<'a> Traced<'a> {
    /// Calls to this host pass the gate and are logged with the host's name.
    pub fn new(inner: &'a dyn Seam, host: &'a str, gate: &'a dyn Gate) -> Self {
        Self { inner, host, gate }
    }

    fn call<T>(
        &self,
        rpc: &'static str,
        ids: Ids<'_>,
        make: impl FnOnce(&dyn Seam) -> Result<T>,
        result: impl FnOnce(&T) -> String,
    ) -> Result<T> {
        self.gate.check(rpc, self.host)?;
        let started = Instant::now();
        let outcome = make(self.inner);
        let duration_ms = milliseconds(started.elapsed());
        let Ids { domain, network, pool, volume, detail } = ids;
        let host = self.host;
        match &outcome {
            Ok(value) => {
                if tracing::enabled!(target: "libvirt", tracing::Level::DEBUG) {
                    let result = Some(result(value)).filter(|result| !result.is_empty());
                    tracing::debug!(target: "libvirt", rpc, host, domain, network, pool, volume, detail, result, duration_ms);
                }
            }
            Err(Failure::Libvirt(error)) => tracing::debug!(
                target: "libvirt", rpc, host, domain, network, pool, volume, detail, duration_ms,
                error = error.message, libvirtError = error.name(), libvirtCode = error.number,
            ),
            Err(Failure::Core(error)) => tracing::debug!(
                target: "libvirt", rpc, host, domain, network, pool, volume, detail, duration_ms, error = %error,
            ),
        }
        outcome
    }

    fn show(&self, rpc: &'static str, document: &str) {
        tracing::trace!(target: "libvirt", rpc, host = self.host, document);
    }
}

fn nothing<T>(_: &T) -> String {
    String::new()
}

fn plain<T: Debug>(value: &T) -> String {
    format!("{value:?}")
}

#[allow(clippy::ptr_arg)] // What calls return.
fn count<T>(values: &Vec<T>) -> String {
    values.len().to_string()
}

fn domain(domain: &DomainRef) -> Ids<'_> {
    Ids { domain: Some(&domain.name), ..Ids::default() }
}

fn pool(pool: &PoolRef) -> Ids<'_> {
    Ids { pool: Some(&pool.name), ..Ids::default() }
}

fn volume(volume: &VolumeRef) -> Ids<'_> {
    Ids { volume: Some(&volume.name), ..Ids::default() }
}

impl Seam for Traced<'_> {
    fn is_alive(&self) -> bool {
        self.inner.is_alive()
    }

    fn capabilities(&self) -> Result<String> {
        let rpc = "virConnectGetCapabilities";
        let xml = self.call(rpc, Ids::default(), |seam| seam.capabilities(), nothing)?;
        self.show(rpc, &xml);
        Ok(xml)
    }

    fn domain_capabilities(&self, arch: &str, machine: Option<&str>, domain_type: &str) -> Result<String> {
        let rpc = "virConnectGetDomainCapabilities";
        let ids = Ids { detail: Some(domain_type), ..Ids::default() };
        let xml = self.call(rpc, ids, |seam| seam.domain_capabilities(arch, machine, domain_type), nothing)?;
        self.show(rpc, &xml);
        Ok(xml)
    }

    fn driver(&self) -> Result<String> {
        self.call("virConnectGetType", Ids::default(), |seam| seam.driver(), Clone::clone)
    }

    fn driver_version(&self) -> Result<u32> {
        self.call("virConnectGetVersion", Ids::default(), |seam| seam.driver_version(), plain)
    }

    fn libvirt_version(&self) -> Result<u32> {
        self.call("virConnectGetLibVersion", Ids::default(), |seam| seam.libvirt_version(), plain)
    }

    fn cpus(&self) -> Result<u32> {
        self.call("virNodeGetInfo", Ids::default(), |seam| seam.cpus(), plain)
    }

    fn free_memory(&self) -> Result<u64> {
        self.call("virNodeGetMemoryStats", Ids::default(), |seam| seam.free_memory(), plain)
    }

    fn active_networks(&self) -> Result<Vec<NetworkRef>> {
        self.call("virConnectListAllNetworks", Ids::default(), |seam| seam.active_networks(), count)
    }

    fn leases(&self, network: &NetworkRef) -> Result<Vec<Lease>> {
        let ids = Ids { network: Some(&network.name), ..Ids::default() };
        self.call("virNetworkGetDHCPLeases", ids, |seam| seam.leases(network), count)
    }

    fn domain_states(&self) -> Result<Vec<(DomainRef, DomainState)>> {
        self.call("virConnectGetAllDomainStats", Ids::default(), |seam| seam.domain_states(), count)
    }

    fn domain(&self, name: &str) -> Result<DomainRef> {
        let ids = Ids { domain: Some(name), ..Ids::default() };
        self.call("virDomainLookupByName", ids, |seam| seam.domain(name), |found| found.uuid.to_string())
    }

    fn domain_state(&self, of: &DomainRef) -> Result<DomainState> {
        self.call("virDomainGetState", domain(of), |seam| seam.domain_state(of), plain)
    }

    fn domain_metadata(&self, of: &DomainRef) -> Result<String> {
        let rpc = "virDomainGetMetadata";
        let xml = self.call(rpc, domain(of), |seam| seam.domain_metadata(of), nothing)?;
        self.show(rpc, &xml);
        Ok(xml)
    }

    fn domain_xml(&self, of: &DomainRef, inactive: bool) -> Result<String> {
        let rpc = "virDomainGetXMLDesc";
        let xml = self.call(rpc, domain(of), |seam| seam.domain_xml(of, inactive), nothing)?;
        self.show(rpc, &xml);
        Ok(xml)
    }

    fn domain_define(&self, xml: &str) -> Result<DomainRef> {
        let rpc = "virDomainDefineXML";
        self.show(rpc, xml);
        self.call(rpc, Ids::default(), |seam| seam.domain_define(xml), |defined| defined.name.clone())
    }

    fn domain_set_autostart(&self, of: &DomainRef, autostart: bool) -> Result<()> {
        self.call(
            "virDomainSetAutostart",
            domain(of),
            |seam| seam.domain_set_autostart(of, autostart),
            |()| autostart.to_string(),
        )
    }

    fn domain_start(&self, of: &DomainRef) -> Result<()> {
        self.call("virDomainCreate", domain(of), |seam| seam.domain_start(of), nothing)
    }

    fn domain_destroy(&self, of: &DomainRef) -> Result<()> {
        self.call("virDomainDestroy", domain(of), |seam| seam.domain_destroy(of), nothing)
    }

    fn domain_undefine(&self, of: &DomainRef, what: Undefine) -> Result<()> {
        self.call("virDomainUndefineFlags", domain(of), |seam| seam.domain_undefine(of, what), |()| plain(&what))
    }

    fn domain_agent_timeout(&self, of: &DomainRef, seconds: u32) -> Result<()> {
        self.call(
            "virDomainAgentSetResponseTimeout",
            domain(of),
            |seam| seam.domain_agent_timeout(of, seconds),
            nothing,
        )
    }

    fn domain_addresses(&self, of: &DomainRef, authority: AddressAuthority) -> Result<Vec<CardAddresses>> {
        let detail = match authority {
            AddressAuthority::Agent => "agent",
            AddressAuthority::Neighbours => "arp",
        };
        let ids = Ids { detail: Some(detail), ..domain(of) };
        self.call("virDomainInterfaceAddresses", ids, |seam| seam.domain_addresses(of, authority), plain)
    }

    fn pool_uuids(&self) -> Result<Vec<Uuid>> {
        self.call("virConnectListAllStoragePools", Ids::default(), |seam| seam.pool_uuids(), count)
    }

    fn pool(&self, name: &str) -> Result<PoolRef> {
        let ids = Ids { pool: Some(name), ..Ids::default() };
        self.call("virStoragePoolLookupByName", ids, |seam| seam.pool(name), nothing)
    }

    fn pool_space(&self, of: &PoolRef) -> Result<PoolSpace> {
        self.call("virStoragePoolGetInfo", pool(of), |seam| seam.pool_space(of), plain)
    }

    fn pool_refresh(&self, of: &PoolRef) -> Result<()> {
        self.call("virStoragePoolRefresh", pool(of), |seam| seam.pool_refresh(of), nothing)
    }

    fn volumes(&self, of: &PoolRef) -> Result<Vec<VolumeRef>> {
        self.call("virStoragePoolListAllVolumes", pool(of), |seam| seam.volumes(of), count)
    }

    fn volume(&self, of: &PoolRef, name: &str) -> Result<VolumeRef> {
        let ids = Ids { volume: Some(name), ..pool(of) };
        self.call("virStorageVolLookupByName", ids, |seam| seam.volume(of, name), nothing)
    }

    fn volume_xml(&self, of: &VolumeRef) -> Result<String> {
        let rpc = "virStorageVolGetXMLDesc";
        let xml = self.call(rpc, volume(of), |seam| seam.volume_xml(of), nothing)?;
        self.show(rpc, &xml);
        Ok(xml)
    }

    fn volume_create(&self, of: &PoolRef, xml: &str) -> Result<VolumeRef> {
        let rpc = "virStorageVolCreateXML";
        self.show(rpc, xml);
        self.call(rpc, pool(of), |seam| seam.volume_create(of, xml), |created| created.name.clone())
    }

    fn volume_delete(&self, of: &VolumeRef) -> Result<()> {
        self.call("virStorageVolDelete", volume(of), |seam| seam.volume_delete(of), nothing)
    }

    fn volume_upload(&self, of: &VolumeRef, length: u64, content: &mut dyn Read) -> Result<()> {
        let rpc = "virStorageVolUpload";
        let mut content = Gated { content, rpc, host: self.host, gate: self.gate };
        let sent = self.call(
            rpc,
            volume(of),
            |seam| seam.volume_upload(of, length, &mut content),
            |()| format!("{length} bytes"),
        );
        // What ended it says more than that its content ended.
        sent.or_else(|failure| self.gate.check(rpc, self.host).and(Err(failure)))
    }

    fn volume_download(&self, of: &VolumeRef, length: u64) -> Result<Vec<u8>> {
        self.call(
            "virStorageVolDownload",
            volume(of),
            |seam| seam.volume_download(of, length),
            |bytes| format!("{} bytes", bytes.len()),
        )
    }
}

/// A content that ends with the right to send it.
struct Gated<'a> {
    content: &'a mut dyn Read,
    rpc: &'static str,
    host: &'a str,
    gate: &'a dyn Gate,
}

impl Read for Gated<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.gate.check(self.rpc, self.host).map_err(std::io::Error::other)?;
        self.content.read(buffer)
    }
}
