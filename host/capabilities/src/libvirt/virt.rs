//! The calls, with the crate `virt`.
//!
//! `virt` panics in three places that this module keeps away from: a text with a NUL (refused here before), an object
//! whose free fails on drop (libvirt fails it for an object that is not one alone; and every call runs on a thread
//! where a panic becomes an error), and a closed connection (closed once, on drop, which `Connect` itself does not do).

use std::io::Read;
use std::sync::Once;
use std::time::Duration;

use proxy_operator_core::capability::libvirt::DomainState;
use uuid::Uuid;
use virt::connect::Connect;
use virt::domain::Domain;
use virt::storage_pool::StoragePool;
use virt::storage_vol::StorageVol;
use virt::stream::Stream;
use virt::{error, event};
use virt_sys as sys;

use super::error::{Failure, VirError};
use super::ffi;
use super::metadata;
use super::seam::{
    AddressAuthority, CardAddresses, DomainRef, Lease, NetworkRef, PoolRef, PoolSpace, Result, Seam, Undefine,
    VolumeRef,
};
use crate::limits::STREAM_CHUNK_BYTES;

/// An open connection.
pub struct Virt {
    connect: Connect,
}

impl Virt {
    /// Opens a connection. Blocks until libvirt answers, or until what it goes through is cut.
    ///
    /// Without libvirt's own keepalive. When that gives a connection up, libvirt's client (before 10.4) leaves the
    /// source of one waiting thread in the event loop of the next, which then writes through a pointer into a stack
    /// that is gone (CVE-2024-4418): with two calls under way, a host that froze took the process down.
    pub fn open(uri: &str) -> Result<Self> {
        start_event_loop()?;
        let connect = call("virConnectOpen", || Connect::open(Some(uri)))?;
        Ok(Self { connect })
    }
}

impl Drop for Virt {
    fn drop(&mut self) {
        // An error means that the other side was faster.
        let _ = self.connect.close();
    }
}

/// Makes libvirt's event loop run, once a process: it notices the end of a connection that nobody calls on, and answers
/// the hypervisor's keepalive. Also keeps libvirt from writing each error to standard error.
fn start_event_loop() -> Result<()> {
    static START: Once = Once::new();
    let mut outcome = Ok(());
    START.call_once(|| {
        error::clear_error_callback();
        outcome = call("virEventRegisterDefaultImpl", event::event_register_default_impl);
        let spawned = std::thread::Builder::new().name("libvirt-events".to_owned()).spawn(|| {
            loop {
                if let Err(error) = event::event_run_default_impl() {
                    tracing::warn!(target: "libvirt", %error, "libvirt's event loop failed; trying again");
                    std::thread::sleep(Duration::from_secs(1));
                }
            }
        });
        if let Err(error) = spawned {
            tracing::error!(target: "libvirt", %error, "libvirt's event loop cannot start: dead connections will not be noticed");
        }
    });
    outcome
}

/// Makes a call of `virt`. Its error is read where libvirt keeps it, with its number.
fn call<T>(rpc: &'static str, make: impl FnOnce() -> std::result::Result<T, error::Error>) -> Result<T> {
    make()
        .map_err(|error| last_error(rpc).unwrap_or_else(|| failure(rpc, sys::VIR_ERR_INTERNAL_ERROR, error.message())))
}

/// Makes a call of this crate's own.
fn own<T>(rpc: &'static str, make: impl FnOnce() -> Option<T>) -> Result<T> {
    make()
        .ok_or_else(|| last_error(rpc).unwrap_or_else(|| failure(rpc, sys::VIR_ERR_INTERNAL_ERROR, "no reason given")))
}

fn last_error(rpc: &'static str) -> Option<Failure> {
    let error = ffi::last_error()?;
    let message = error.message.trim().to_owned();
    Some(Failure::Libvirt(VirError { rpc, number: error.number, domain: error.domain, message }))
}

fn failure(rpc: &'static str, number: u32, message: &str) -> Failure {
    Failure::Libvirt(VirError {
        rpc,
        number: i32::try_from(number).unwrap_or_default(),
        domain: 0,
        message: message.to_owned(),
    })
}

/// A text that C can take.
fn checked<'a>(rpc: &'static str, text: &'a str) -> Result<&'a str> {
    if text.contains('\0') { Err(failure(rpc, sys::VIR_ERR_INVALID_ARG, "a text holds a NUL")) } else { Ok(text) }
}

/// An object of another seam.
fn foreign(rpc: &'static str) -> Failure {
    failure(rpc, sys::VIR_ERR_INVALID_ARG, "not an object of this connection")
}

fn raw<'a, T>(rpc: &'static str, object: &'a Option<T>) -> Result<&'a T> {
    object.as_ref().ok_or_else(|| foreign(rpc))
}

fn state_of(number: i32) -> DomainState {
    match u32::try_from(number).unwrap_or(u32::MAX) {
        sys::VIR_DOMAIN_RUNNING => DomainState::Running,
        sys::VIR_DOMAIN_BLOCKED => DomainState::Blocked,
        sys::VIR_DOMAIN_PAUSED => DomainState::Paused,
        sys::VIR_DOMAIN_SHUTDOWN => DomainState::ShuttingDown,
        sys::VIR_DOMAIN_SHUTOFF => DomainState::ShutOff,
        sys::VIR_DOMAIN_CRASHED => DomainState::Crashed,
        sys::VIR_DOMAIN_PMSUSPENDED => DomainState::Suspended,
        _ => DomainState::Unknown,
    }
}

/// A reference with what libvirt knows without an RPC.
fn reference(rpc: &'static str, domain: Domain) -> Result<DomainRef> {
    let name = call(rpc, || domain.get_name())?;
    let uuid = call(rpc, || domain.get_uuid())?;
    Ok(DomainRef { name, uuid, raw: Some(domain) })
}

impl Seam for Virt {
    fn is_alive(&self) -> bool {
        self.connect.is_alive().unwrap_or(false)
    }

    fn capabilities(&self) -> Result<String> {
        call("virConnectGetCapabilities", || self.connect.get_capabilities())
    }

    fn domain_capabilities(&self, arch: &str, machine: Option<&str>, domain_type: &str) -> Result<String> {
        let rpc = "virConnectGetDomainCapabilities";
        let (arch, domain_type) = (checked(rpc, arch)?, checked(rpc, domain_type)?);
        call(rpc, || self.connect.get_domain_capabilities(None, Some(arch), machine, Some(domain_type), 0))
    }

    fn driver(&self) -> Result<String> {
        call("virConnectGetType", || self.connect.get_type())
    }

    fn driver_version(&self) -> Result<u32> {
        call("virConnectGetVersion", || self.connect.get_hyp_version())
    }

    fn libvirt_version(&self) -> Result<u32> {
        call("virConnectGetLibVersion", || self.connect.get_lib_version())
    }

    fn cpus(&self) -> Result<u32> {
        call("virNodeGetInfo", || self.connect.get_node_info()).map(|info| info.cpus)
    }

    fn free_memory(&self) -> Result<u64> {
        own("virNodeGetMemoryStats", || ffi::available_memory(&self.connect))
    }

    fn active_networks(&self) -> Result<Vec<NetworkRef>> {
        let rpc = "virConnectListAllNetworks";
        let networks = call(rpc, || self.connect.list_all_networks(sys::VIR_CONNECT_LIST_NETWORKS_ACTIVE))?;
        let named = networks
            .into_iter()
            .map(|network| Ok(NetworkRef { name: call(rpc, || network.get_name())?, raw: Some(network) }));
        named.collect()
    }

    fn leases(&self, network: &NetworkRef) -> Result<Vec<Lease>> {
        let rpc = "virNetworkGetDHCPLeases";
        let network = raw(rpc, &network.raw)?;
        own(rpc, || ffi::leases(network))
    }

    fn domain_states(&self) -> Result<Vec<(DomainRef, DomainState)>> {
        let rpc = "virConnectGetAllDomainStats";
        let states = own(rpc, || ffi::domain_states(&self.connect))?;
        let named = states
            .into_iter()
            .map(|(domain, state)| Ok((reference(rpc, domain)?, state.map_or(DomainState::Unknown, state_of))));
        named.collect()
    }

    fn domain(&self, name: &str) -> Result<DomainRef> {
        let rpc = "virDomainLookupByName";
        let name = checked(rpc, name)?;
        reference(rpc, call(rpc, || Domain::lookup_by_name(&self.connect, name))?)
    }

    fn domain_state(&self, domain: &DomainRef) -> Result<DomainState> {
        let rpc = "virDomainGetState";
        let domain = raw(rpc, &domain.raw)?;
        let (state, _) = call(rpc, || domain.get_state())?;
        Ok(state_of(i32::try_from(state).unwrap_or(-1)))
    }

    fn domain_metadata(&self, domain: &DomainRef) -> Result<String> {
        let rpc = "virDomainGetMetadata";
        let domain = raw(rpc, &domain.raw)?;
        call(rpc, || {
            domain.get_metadata(
                i32::try_from(sys::VIR_DOMAIN_METADATA_ELEMENT).unwrap_or_default(),
                Some(metadata::NAMESPACE),
                sys::VIR_DOMAIN_AFFECT_CURRENT,
            )
        })
    }

    fn domain_xml(&self, domain: &DomainRef, inactive: bool) -> Result<String> {
        let rpc = "virDomainGetXMLDesc";
        let domain = raw(rpc, &domain.raw)?;
        let flags = if inactive { sys::VIR_DOMAIN_XML_INACTIVE } else { 0 };
        call(rpc, || domain.get_xml_desc(flags))
    }

    fn domain_define(&self, xml: &str) -> Result<DomainRef> {
        let rpc = "virDomainDefineXML";
        let xml = checked(rpc, xml)?;
        reference(rpc, call(rpc, || Domain::define_xml(&self.connect, xml))?)
    }

    fn domain_set_autostart(&self, domain: &DomainRef, autostart: bool) -> Result<()> {
        let rpc = "virDomainSetAutostart";
        let domain = raw(rpc, &domain.raw)?;
        call(rpc, || domain.set_autostart(autostart)).map(drop)
    }

    fn domain_start(&self, domain: &DomainRef) -> Result<()> {
        let rpc = "virDomainCreate";
        let domain = raw(rpc, &domain.raw)?;
        call(rpc, || domain.create()).map(drop)
    }

    fn domain_destroy(&self, domain: &DomainRef) -> Result<()> {
        let rpc = "virDomainDestroy";
        let domain = raw(rpc, &domain.raw)?;
        call(rpc, || domain.destroy())
    }

    fn domain_undefine(&self, domain: &DomainRef, what: Undefine) -> Result<()> {
        let rpc = "virDomainUndefineFlags";
        let domain = raw(rpc, &domain.raw)?;
        let base = sys::VIR_DOMAIN_UNDEFINE_NVRAM
            | sys::VIR_DOMAIN_UNDEFINE_MANAGED_SAVE
            | sys::VIR_DOMAIN_UNDEFINE_SNAPSHOTS_METADATA;
        let flags = match what {
            Undefine::Everything => base | sys::VIR_DOMAIN_UNDEFINE_CHECKPOINTS_METADATA,
            Undefine::WithoutCheckpoints => base,
            Undefine::Plain => 0,
        };
        call(rpc, || domain.undefine_flags(flags))
    }

    fn domain_agent_timeout(&self, domain: &DomainRef, seconds: u32) -> Result<()> {
        let rpc = "virDomainAgentSetResponseTimeout";
        let domain = raw(rpc, &domain.raw)?;
        own(rpc, || ffi::agent_timeout(domain, seconds))
    }

    fn domain_addresses(&self, domain: &DomainRef, authority: AddressAuthority) -> Result<Vec<CardAddresses>> {
        let rpc = "virDomainInterfaceAddresses";
        let domain = raw(rpc, &domain.raw)?;
        let source = match authority {
            AddressAuthority::Agent => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_AGENT,
            AddressAuthority::Neighbours => sys::VIR_DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
        };
        own(rpc, || ffi::addresses(domain, source))
    }

    fn pool_uuids(&self) -> Result<Vec<Uuid>> {
        let rpc = "virConnectListAllStoragePools";
        let pools = call(rpc, || self.connect.list_all_storage_pools(0))?;
        pools.iter().map(|pool| call(rpc, || pool.get_uuid())).collect()
    }

    fn pool(&self, name: &str) -> Result<PoolRef> {
        let rpc = "virStoragePoolLookupByName";
        let name = checked(rpc, name)?;
        let pool = call(rpc, || StoragePool::lookup_by_name(&self.connect, name))?;
        Ok(PoolRef { name: name.to_owned(), raw: Some(pool) })
    }

    fn pool_space(&self, pool: &PoolRef) -> Result<PoolSpace> {
        let rpc = "virStoragePoolGetInfo";
        let pool = raw(rpc, &pool.raw)?;
        let info = call(rpc, || pool.get_info())?;
        let active = matches!(info.state, sys::VIR_STORAGE_POOL_RUNNING | sys::VIR_STORAGE_POOL_DEGRADED);
        Ok(PoolSpace { active, available: info.available })
    }

    fn pool_refresh(&self, pool: &PoolRef) -> Result<()> {
        let rpc = "virStoragePoolRefresh";
        let pool = raw(rpc, &pool.raw)?;
        call(rpc, || pool.refresh(0)).map(drop)
    }

    fn volumes(&self, pool: &PoolRef) -> Result<Vec<VolumeRef>> {
        let rpc = "virStoragePoolListAllVolumes";
        let pool = raw(rpc, &pool.raw)?;
        let volumes = call(rpc, || pool.list_all_volumes(0))?;
        let named = volumes
            .into_iter()
            .map(|volume| Ok(VolumeRef { name: call(rpc, || volume.get_name())?, raw: Some(volume) }));
        named.collect()
    }

    fn volume(&self, pool: &PoolRef, name: &str) -> Result<VolumeRef> {
        let rpc = "virStorageVolLookupByName";
        let (pool, name) = (raw(rpc, &pool.raw)?, checked(rpc, name)?);
        let volume = call(rpc, || StorageVol::lookup_by_name(pool, name))?;
        Ok(VolumeRef { name: name.to_owned(), raw: Some(volume) })
    }

    fn volume_xml(&self, volume: &VolumeRef) -> Result<String> {
        let rpc = "virStorageVolGetXMLDesc";
        let volume = raw(rpc, &volume.raw)?;
        call(rpc, || volume.get_xml_desc(0))
    }

    fn volume_create(&self, pool: &PoolRef, xml: &str) -> Result<VolumeRef> {
        let rpc = "virStorageVolCreateXML";
        let (pool, xml) = (raw(rpc, &pool.raw)?, checked(rpc, xml)?);
        let volume = call(rpc, || StorageVol::create_xml(pool, xml, 0))?;
        Ok(VolumeRef { name: call(rpc, || volume.get_name())?, raw: Some(volume) })
    }

    fn volume_delete(&self, volume: &VolumeRef) -> Result<()> {
        let rpc = "virStorageVolDelete";
        let volume = raw(rpc, &volume.raw)?;
        call(rpc, || volume.delete(0))
    }

    fn volume_upload(&self, volume: &VolumeRef, length: u64, content: &mut dyn Read) -> Result<()> {
        let rpc = "virStorageVolUpload";
        let volume = raw(rpc, &volume.raw)?;
        let stream = call("virStreamNew", || Stream::new(&self.connect, 0))?;
        call(rpc, || volume.upload(&stream, 0, length, 0))?;
        let sent = send(&stream, length, content);
        match sent {
            // The stream goes with this call, and takes libvirt's memory of the error along.
            Ok(()) => call("virStreamFinish", || stream.clone().finish()),
            Err(failure) => {
                // Also where libvirt broke it off itself, which then says so once more.
                let _ = stream.abort();
                Err(failure)
            }
        }
    }

    fn volume_download(&self, volume: &VolumeRef, length: u64) -> Result<Vec<u8>> {
        let rpc = "virStorageVolDownload";
        let volume = raw(rpc, &volume.raw)?;
        let stream = call("virStreamNew", || Stream::new(&self.connect, 0))?;
        call(rpc, || volume.download(&stream, 0, length, 0))?;
        let received = receive(&stream, length);
        match received {
            Ok(bytes) => call("virStreamFinish", || stream.clone().finish()).map(|()| bytes),
            Err(failure) => {
                let _ = stream.abort();
                Err(failure)
            }
        }
    }
}

fn send(stream: &Stream, length: u64, content: &mut dyn Read) -> Result<()> {
    let mut chunk = vec![0; STREAM_CHUNK_BYTES];
    let mut left = length;
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(chunk.len());
        let buffer = chunk.get_mut(..most).unwrap_or_default();
        let read = match content.read(buffer) {
            Ok(0) => {
                return Err(failure(
                    "virStreamSend",
                    sys::VIR_ERR_READ_FAILED,
                    "the content is shorter than announced",
                ));
            }
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(failure("virStreamSend", sys::VIR_ERR_READ_FAILED, &error.to_string())),
        };
        let mut rest = buffer.get(..read).unwrap_or_default();
        while !rest.is_empty() {
            let sent = call("virStreamSend", || stream.send(rest))?;
            rest = rest.get(sent.max(1)..).unwrap_or_default();
        }
        left -= read as u64;
    }
    Ok(())
}

fn receive(stream: &Stream, length: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut chunk = vec![0; STREAM_CHUNK_BYTES];
    while (bytes.len() as u64) < length {
        match call("virStreamRecv", || stream.recv(&mut chunk))? {
            0 => break,
            received => bytes.extend(chunk.get(..received).unwrap_or_default()),
        }
    }
    Ok(bytes)
}
