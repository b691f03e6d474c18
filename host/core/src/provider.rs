//! What a provider is to the rest of the host: the newest version of the plugin interface as plain types.
//!
//! The runtime lifts every published version of the WIT package to these; decisions and simulations use nothing else.

use std::time::Duration;

use async_trait::async_trait;

use crate::error::{Error, Result};
use crate::sensitive::Sensitive;

/// What a plugin says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// Its name, `[a-z0-9]([-a-z0-9]*[a-z0-9])?`.
    pub name: String,
    /// Its own version (semantic versioning).
    pub version: String,
    /// A JSON Schema (2020-12) of `Provider.spec.config`.
    pub config_schema: String,
    /// A JSON Schema (2020-12) of `Proxy.spec.parameters`.
    pub parameters_schema: String,
}

/// For whom a call is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The name of the Provider object.
    pub provider: String,
    /// Identifies the operator's installation: `[a-z0-9]{1,20}`.
    pub cluster_id: String,
    /// What every name of an instance of this Provider in this installation begins with, and no other's.
    pub name_prefix: String,
    /// `Provider.spec.config` as JSON, already held against the plugin's schema.
    pub config: String,
    /// The time this call may take.
    pub timeout: Duration,
}

/// Something that is wrong in the config.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Where: a JSON Pointer into the config.
    pub path: String,
    /// What is wrong with which value, and what would be right.
    pub message: String,
}

/// Where an address was learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// The backend's API.
    Api,
    /// The guest agent inside the machine.
    Agent,
    /// A DHCP lease that has not expired.
    Lease,
    /// The hypervisor's neighbour table.
    Arp,
}

/// One address of an instance; never loopback or link-local.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// An IPv4 or IPv6 address without prefix length or zone, or the DNS name of a load balancer.
    pub host: String,
    /// Where it was learned.
    pub source: AddressSource,
}

/// Someone who may use the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The user's name, `[A-Za-z0-9]+`.
    pub username: String,
    /// The password's hash in the form of crypt(3).
    pub password_hash: Sensitive<String>,
}

/// Who may use the proxy, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Those who may, from anywhere, by user and password. Empty only with `open`.
    pub credentials: Vec<Credential>,
    /// Sources that may without a password, as CIDRs.
    pub allow_from: Vec<String>,
    /// The user has asked for a proxy that serves everybody.
    pub open: bool,
    /// Private, link-local or loopback destinations that are allowed, as CIDRs.
    pub private_destinations: Vec<String>,
}

/// The proxy software that the instance has to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Software {
    /// Its name: `squid`.
    pub name: String,
    /// The TCP port it listens on.
    pub port: u16,
    /// Who may use it.
    pub access: Access,
}

/// Who wrote a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Author {
    /// The user, in the Proxy's spec. A provider without cloud-init refuses it.
    User,
    /// The operator, from [`Software`]. A provider without cloud-init sets the software up by other means.
    Operator,
}

/// What cloud-init is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudInit {
    /// The user-data, to be delivered byte for byte. At most 1 MiB.
    pub user_data: Sensitive<Vec<u8>>,
    /// Who wrote the user-data.
    pub author: Author,
    /// The user's vendor-data, never classified. At most 1 MiB.
    pub vendor_data: Option<Sensitive<Vec<u8>>>,
}

/// An instance that was made earlier, or that is to be made at this place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRef {
    /// Its identity.
    pub id: String,
    /// The uid of the Proxy that owns it.
    pub owner: String,
    /// Its last private state.
    pub private_state: Option<String>,
}

/// An instance to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceSpec {
    /// The uid of the Proxy: the identity of the instance.
    pub owner: String,
    /// The name to give it: name prefix and owner.
    pub name: String,
    /// The Proxy's namespace and name, for people.
    pub display_name: String,
    /// A key of the provider's machine types.
    pub machine_type: Option<String>,
    /// A key of the provider's images, or a URL.
    pub image: Option<String>,
    /// Places where it may be, the preferred one first. Empty: wherever the config allows.
    pub placement: Vec<String>,
    /// What it runs.
    pub software: Software,
    /// How it is set up, where there is cloud-init.
    pub cloud_init: CloudInit,
    /// `Proxy.spec.parameters` as JSON; `{}` when there are none.
    pub parameters: String,
}

/// What an instance does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On its way. The operator soon calls `create` again.
    Provisioning,
    /// Started, as far as the backend knows.
    Running,
    /// There, but off. The operator calls `create`, which starts it.
    Stopped,
    /// There, and will not work any more.
    Failed,
    /// On its way out.
    Deleting,
    /// The backend does not know or says something new. Left alone and shown.
    Unknown,
}

/// Where clients reach the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// An address or a DNS name.
    pub host: String,
    /// `None`: the port of the Proxy's spec.
    pub port: Option<u16>,
}

/// What is known of an instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The backend's identity of it, stable for its life, at most 256 bytes.
    pub id: String,
    /// The uid of the Proxy that owns it.
    pub owner: String,
    /// What it does.
    pub phase: Phase,
    /// Why, in one CamelCase word; empty when the phase says all.
    pub reason: String,
    /// The same for people.
    pub message: String,
    /// With [`Phase::Failed`], and only then: why.
    pub error: Option<Error>,
    /// 0 to 100, where it is known.
    pub percent: Option<u8>,
    /// Where clients reach it; `None`: not known yet.
    pub endpoint: Option<Endpoint>,
    /// The address from which its requests go out, where the backend knows it.
    pub egress_address: Option<String>,
    /// All its addresses, the most trusted first.
    pub addresses: Vec<Address>,
    /// When it was made, RFC 3339.
    pub created_at: Option<String>,
    /// What the provider wants back in later calls for this instance. A hint.
    pub private_state: Option<String>,
}

/// A part of the infrastructure that could not be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// What every id in it begins with: `hosts/hv2/`.
    pub id_prefix: String,
    /// Why.
    pub error: Error,
}

/// A part of a listing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// At most 2,000.
    pub instances: Vec<Instance>,
    /// The cursor of the next page; `None` on the last one.
    pub next: Option<String>,
    /// What this page could not see.
    pub gaps: Vec<Gap>,
}

/// How far a deletion is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The instance and all that belongs to it are seen to be absent.
    Done,
    /// Not yet. Call again.
    Pending(Box<Instance>),
    /// It is out of reach for good, and its Proxy is to be released all the same: what may be left, and where.
    Abandoned(String),
}

/// The health of one part of the infrastructure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The part: `hosts/hv1`.
    pub subject: String,
    /// What was seen, for people.
    pub detail: String,
    /// What is wrong; `None` when it is healthy.
    pub error: Option<Error>,
}

/// A provider that is loaded and configured for one Provider object.
///
/// The contract of each function stands in `wit/provider.wit`. The implementation bounds every call in time and size
/// and turns a trap into an [`Error`] with the code `internal`.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Chooses where the instance of an owner will be, and makes nothing.
    async fn place(&self, spec: &InstanceSpec, avoid: &[String]) -> Result<String>;
    /// Makes the instance with this id, or goes on making it, or starts it.
    async fn create(&self, instance: &InstanceRef, spec: &InstanceSpec) -> Result<Instance>;
    /// Looks at one instance.
    async fn get(&self, instance: &InstanceRef) -> Result<Instance>;
    /// Lists the instances of this Provider, all pages together, or those of one owner.
    async fn list(&self, owner: Option<&str>) -> Result<Page>;
    /// Deletes an instance and all that belongs to it, or goes on deleting it.
    async fn delete(&self, instance: &InstanceRef) -> Result<Deletion>;
    /// Checks what the Provider needs to work.
    async fn health(&self) -> Result<Vec<Check>>;
}
