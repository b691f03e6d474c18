//! The calls of libvirt that this crate makes, one function each, blocking, with plain records.
//!
//! Everything above stands on this trait: the decorator that logs, the operations, and tests that play a hypervisor
//! which fails. Objects are what libvirt's own are: a name and an id that name something on the other side.

use std::io::Read;

use proxy_operator_core::capability::libvirt::DomainState;
use uuid::Uuid;

use super::error::Failure;

/// What a call returns.
pub type Result<T> = std::result::Result<T, Failure>;

/// Names a domain.
#[derive(Clone, Debug)]
pub struct DomainRef {
    /// Its name.
    pub name: String,
    /// Its uuid.
    pub uuid: Uuid,
    /// libvirt's object; absent in tests.
    pub(super) raw: Option<virt::domain::Domain>,
}

/// Names a network.
#[derive(Clone, Debug)]
pub struct NetworkRef {
    /// Its name.
    pub name: String,
    /// libvirt's object; absent in tests.
    pub(super) raw: Option<virt::network::Network>,
}

/// Names a storage pool.
#[derive(Clone, Debug)]
pub struct PoolRef {
    /// Its name.
    pub name: String,
    /// libvirt's object; absent in tests.
    pub(super) raw: Option<virt::storage_pool::StoragePool>,
}

/// Names a volume.
#[derive(Clone, Debug)]
pub struct VolumeRef {
    /// Its name.
    pub name: String,
    /// libvirt's object; absent in tests.
    pub(super) raw: Option<virt::storage_vol::StorageVol>,
}

/// A pool's state and room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolSpace {
    /// Whether it is started.
    pub active: bool,
    /// Bytes that are free.
    pub available: u64,
}

/// A DHCP lease that has not expired, by the hypervisor's own clock: libvirt leaves the others out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Of the network card.
    pub mac: String,
    /// The address.
    pub address: String,
    /// Seconds since 1970 by the hypervisor's clock; the largest number when it never ends.
    pub expires: i64,
}

/// Addresses of one network card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardAddresses {
    /// Of the network card; not every source knows it.
    pub mac: Option<String>,
    /// Its addresses.
    pub addresses: Vec<String>,
}

/// Whom to ask for a domain's addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressAuthority {
    /// The agent in the guest.
    Agent,
    /// The hypervisor's neighbour table.
    Neighbours,
}

/// What is forgotten together with a domain's definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undefine {
    /// NVRAM, a saved state, the metadata of snapshots and checkpoints.
    Everything,
    /// The same without checkpoints, which older drivers do not know.
    WithoutCheckpoints,
    /// The definition alone.
    Plain,
}

/// libvirt's calls. Each is one RPC, unless it says otherwise.
pub trait Seam: Send + Sync {
    /// Whether the connection stands as far as this side knows. No RPC.
    fn is_alive(&self) -> bool;
    /// `virConnectGetCapabilities`
    fn capabilities(&self) -> Result<String>;
    /// `virConnectGetDomainCapabilities`
    fn domain_capabilities(&self, arch: &str, machine: Option<&str>, domain_type: &str) -> Result<String>;
    /// `virConnectGetType`, which libvirt asks once a connection: `QEMU`
    fn driver(&self) -> Result<String>;
    /// `virConnectGetVersion`, of the hypervisor
    fn driver_version(&self) -> Result<u32>;
    /// `virConnectGetLibVersion`, of libvirt on the hypervisor
    fn libvirt_version(&self) -> Result<u32>;
    /// `virNodeGetInfo`: the number of CPUs
    fn cpus(&self) -> Result<u32>;
    /// `virNodeGetMemoryStats`: bytes that a new process can have
    fn free_memory(&self) -> Result<u64>;

    /// `virConnectListAllNetworks`: those that are active
    fn active_networks(&self) -> Result<Vec<NetworkRef>>;
    /// `virNetworkGetDHCPLeases`
    fn leases(&self, network: &NetworkRef) -> Result<Vec<Lease>>;

    /// `virConnectGetAllDomainStats`: all domains, on and off, with their states
    fn domain_states(&self) -> Result<Vec<(DomainRef, DomainState)>>;
    /// `virDomainLookupByName`
    fn domain(&self, name: &str) -> Result<DomainRef>;
    /// `virDomainGetState`
    fn domain_state(&self, domain: &DomainRef) -> Result<DomainState>;
    /// `virDomainGetMetadata`: our element
    fn domain_metadata(&self, domain: &DomainRef) -> Result<String>;
    /// `virDomainGetXMLDesc`, of what is running or of what is defined
    fn domain_xml(&self, domain: &DomainRef, inactive: bool) -> Result<String>;
    /// `virDomainDefineXML`
    fn domain_define(&self, xml: &str) -> Result<DomainRef>;
    /// `virDomainSetAutostart`
    fn domain_set_autostart(&self, domain: &DomainRef, autostart: bool) -> Result<()>;
    /// `virDomainCreate`
    fn domain_start(&self, domain: &DomainRef) -> Result<()>;
    /// `virDomainDestroy`
    fn domain_destroy(&self, domain: &DomainRef) -> Result<()>;
    /// `virDomainUndefineFlags`
    fn domain_undefine(&self, domain: &DomainRef, what: Undefine) -> Result<()>;
    /// `virDomainAgentSetResponseTimeout`, in seconds
    fn domain_agent_timeout(&self, domain: &DomainRef, seconds: u32) -> Result<()>;
    /// `virDomainInterfaceAddresses`
    fn domain_addresses(&self, domain: &DomainRef, authority: AddressAuthority) -> Result<Vec<CardAddresses>>;

    /// `virConnectListAllStoragePools`: the uuids of all pools, which are kept on the hypervisor's disk
    fn pool_uuids(&self) -> Result<Vec<Uuid>>;
    /// `virStoragePoolLookupByName`
    fn pool(&self, name: &str) -> Result<PoolRef>;
    /// `virStoragePoolGetInfo`
    fn pool_space(&self, pool: &PoolRef) -> Result<PoolSpace>;
    /// `virStoragePoolRefresh`
    fn pool_refresh(&self, pool: &PoolRef) -> Result<()>;
    /// `virStoragePoolListAllVolumes`
    fn volumes(&self, pool: &PoolRef) -> Result<Vec<VolumeRef>>;
    /// `virStorageVolLookupByName`
    fn volume(&self, pool: &PoolRef, name: &str) -> Result<VolumeRef>;
    /// `virStorageVolGetXMLDesc`
    fn volume_xml(&self, volume: &VolumeRef) -> Result<String>;
    /// `virStorageVolCreateXML`
    fn volume_create(&self, pool: &PoolRef, xml: &str) -> Result<VolumeRef>;
    /// `virStorageVolDelete`
    fn volume_delete(&self, volume: &VolumeRef) -> Result<()>;
    /// `virStorageVolUpload` and the messages of its stream: overwrites this many bytes from the start. An error of
    /// the reader ends it.
    fn volume_upload(&self, volume: &VolumeRef, length: u64, content: &mut dyn Read) -> Result<()>;
    /// `virStorageVolDownload` and the messages of its stream: at most this many bytes from the start.
    fn volume_download(&self, volume: &VolumeRef, length: u64) -> Result<Vec<u8>>;
}
