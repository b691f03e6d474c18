//! libvirt on granted hypervisors, as typed records. The documents that libvirt reads are composed by the host.
//!
//! Ours is a domain called `<name-prefix><owner's uid>` that carries the metadata which the host wrote when it was
//! defined, and a volume called `<domain>.<suffix>`. Everything else on a hypervisor is invisible here.

use async_trait::async_trait;

use crate::error::Result;
use crate::provider::Address;
use crate::sensitive::Sensitive;

/// What the grant says of one host. No limit: `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostGrant {
    /// The name to call it by.
    pub name: String,
    /// The storage pools that may be used, the preferred one first.
    pub pools: Vec<String>,
    /// The networks that a domain may be attached to, the preferred one first.
    pub networks: Vec<String>,
    /// The most virtual CPUs a domain may have.
    pub max_vcpus: Option<u32>,
    /// The most memory a domain may have, in MiB.
    pub max_memory_mib: Option<u32>,
    /// The largest volume, in bytes.
    pub max_volume_size: Option<u64>,
}

/// How a machine starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Firmware {
    /// SeaBIOS.
    Bios,
    /// UEFI, secure boot off.
    Uefi,
}

/// A granted pool as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolInfo {
    /// Its name.
    pub name: String,
    /// Whether it is there and active.
    pub active: bool,
    /// Bytes that are free in it.
    pub available: u64,
}

/// What a hypervisor is and can do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostInfo {
    /// libvirt and hypervisor with their versions, for people.
    pub version: String,
    /// The architecture as libvirt calls it: `x86_64`.
    pub arch: String,
    /// Values for `<domain type=…>`, the fastest first: `kvm`, `qemu`.
    pub domain_types: Vec<String>,
    /// What `<os firmware=…>` can be asked for.
    pub firmwares: Vec<Firmware>,
    /// The machine's own uuid.
    pub uuid: String,
    /// The granted pools.
    pub pools: Vec<PoolInfo>,
    /// Granted networks that are missing or inactive.
    pub missing_networks: Vec<String>,
    /// CPUs of the host.
    pub cpus: u32,
    /// Memory that is free now, in MiB.
    pub free_memory_mib: u32,
}

/// What a domain does, as libvirt says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainState {
    /// It runs.
    Running,
    /// It runs, and waits for something.
    Blocked,
    /// Its CPUs are halted by someone.
    Paused,
    /// Its system is on its way down.
    ShuttingDown,
    /// It is off.
    ShutOff,
    /// It crashed.
    Crashed,
    /// Its system sleeps.
    Suspended,
    /// libvirt says nothing of it, or something new.
    Unknown,
}

/// A domain of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    /// Its name, `<name-prefix><owner's uid>`.
    pub name: String,
    /// The uid of the Proxy that owns it.
    pub owner: String,
    /// What it does now.
    pub state: DomainState,
    /// Addresses from unexpired DHCP leases of its network cards, the newest first.
    pub addresses: Vec<Address>,
    /// When it was defined, RFC 3339.
    pub created_at: Option<String>,
}

/// The format of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VolumeFormat {
    /// The bytes of the disk.
    Raw,
    /// QEMU's own, which can stand on a backing volume.
    Qcow2,
}

/// A disk of a domain, on the virtio bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The pool of its volume.
    pub pool: String,
    /// The name of its volume.
    pub volume: String,
    /// The format of its volume.
    pub format: VolumeFormat,
    /// Whether the guest may not write to it.
    pub read_only: bool,
}

/// A domain to be defined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DomainSpec {
    /// Its name, `<name-prefix><owner's uid>`.
    pub name: String,
    /// For people, at most 128 bytes: the Proxy's namespace and name.
    pub title: String,
    /// A value of [`HostInfo::domain_types`]; `None`: the first of them.
    pub domain_type: Option<String>,
    /// Virtual CPUs.
    pub vcpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// How it starts.
    pub firmware: Firmware,
    /// Its disks in order; it boots from the first. At most 8.
    pub disks: Vec<Disk>,
    /// The networks it is attached to, one virtio card each. At most 4.
    pub networks: Vec<String>,
    /// Whether it starts with its hypervisor.
    pub autostart: bool,
}

/// A volume to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// Its format.
    pub format: VolumeFormat,
    /// Virtual size in bytes.
    pub capacity: u64,
    /// The volume of the same pool whose content it starts with (copy on write).
    pub backing: Option<String>,
}

/// A volume of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Its pool.
    pub pool: String,
    /// Its name, `<domain>.<suffix>`.
    pub name: String,
    /// The name of the domain it belongs to, which may be absent.
    pub domain: String,
    /// The uid of the Proxy that owns it.
    pub owner: String,
}

/// libvirt as a plugin may use it. The contract of each function stands in `wit/libvirt.wit`.
#[async_trait]
pub trait Libvirt: Send + Sync {
    /// The hosts that are granted, in the order of the grant. Asks nobody.
    fn hosts(&self) -> Vec<HostGrant>;
    /// Asks the hypervisor what it is.
    async fn info(&self, host: &str) -> Result<HostInfo>;
    /// All domains of ours on a host.
    async fn list_domains(&self, host: &str) -> Result<Vec<Domain>>;
    /// One domain of ours; `None` when there is none of that name.
    async fn lookup_domain(&self, host: &str, name: &str) -> Result<Option<Domain>>;
    /// What the guest agent of a running domain says; `None` when no agent answers.
    async fn agent_addresses(&self, host: &str, name: &str) -> Result<Option<Vec<Address>>>;
    /// What the hypervisor's neighbour table says of a domain's network cards; empty when nothing.
    async fn neighbour_addresses(&self, host: &str, name: &str) -> Result<Vec<Address>>;
    /// Defines a domain, or says that it is there already.
    async fn define_domain(&self, host: &str, spec: &DomainSpec) -> Result<Domain>;
    /// Starts a domain; one that runs is left alone.
    async fn start_domain(&self, host: &str, name: &str) -> Result<()>;
    /// Switches a domain off at once.
    async fn destroy_domain(&self, host: &str, name: &str) -> Result<()>;
    /// Forgets a domain that is off, its NVRAM too.
    async fn undefine_domain(&self, host: &str, name: &str) -> Result<()>;
    /// The volumes of ours in all granted pools of a host, or those of one domain.
    async fn list_volumes(&self, host: &str, domain: Option<&str>) -> Result<Vec<Volume>>;
    /// Makes a volume, or leaves alone the one that is as the spec says.
    async fn create_volume(&self, host: &str, pool: &str, name: &str, spec: &VolumeSpec) -> Result<()>;
    /// Makes a raw volume with this content, or overwrites it.
    async fn write_volume(&self, host: &str, pool: &str, name: &str, content: Sensitive<Vec<u8>>) -> Result<()>;
    /// Deletes a volume; absent is `Ok`.
    async fn delete_volume(&self, host: &str, pool: &str, name: &str) -> Result<()>;
}
