//! `Provider.spec.config` of this provider. Its JSON Schema, which users read, is derived from these types.

use std::collections::BTreeMap;

use proxy_operator_sdk::{Fault, libvirt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most bytes of an image's key: it becomes part of a file's name.
const KEY_BYTES: usize = 40;

/// Configuration of the provider kvm. Hosts, pools and networks are not repeated here: they are those that
/// `grants.libvirt` names.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Config {
    /// Images that a Proxy can name in `spec.image`, by key: `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, at most 40 bytes.
    /// Default: none; a Proxy can then only give the URL of one, which boots by UEFI.
    #[serde(default)]
    #[schemars(extend("propertyNames" = {"pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "maxLength": 40}))]
    pub images: BTreeMap<String, Image>,
    /// Sizes that a Proxy can name in `spec.machineType`, by key (any text).
    #[schemars(extend("minProperties" = 1))]
    pub machine_types: BTreeMap<String, MachineType>,
    /// The key of the image for a Proxy that names none. Default: none; such a Proxy is refused.
    pub default_image: Option<String>,
    /// The key of the machine type for a Proxy that names none. Default: none; such a Proxy is refused.
    pub default_machine_type: Option<String>,
    /// How machines are run. Default: `auto`.
    #[serde(default)]
    pub domain_type: DomainType,
    /// Whether qemu-guest-agent is installed at the first boot by a script in the vendor-data. Without an agent the
    /// address comes from a DHCP lease or from the hypervisor's neighbour table. Default: true.
    #[serde(default = "yes")]
    pub install_guest_agent: bool,
    /// Vendor-data for every machine, in any form of cloud-init's that is plain text (`#cloud-config`, a script).
    /// It travels unchanged beside the agent's script and the Proxy's own vendor-data; of `#cloud-config` lists, the
    /// user-data's replace it. Beside others, neither a gzip nor a MIME archive is read by cloud-init. Default: none.
    pub vendor_data: Option<String>,
}

/// A cloud image: a disk with cloud-init in it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Image {
    /// Where the operator downloads it: `https://`, `http://` or `file://`, with a prefix that `grants.images`
    /// allows. A qcow2 or a raw disk.
    pub url: String,
    /// What it must be: `sha256:` or `sha512:` and hexadecimal digits. Default: none; what arrives is taken.
    pub digest: Option<String>,
    /// How it boots. Default: `uefi`.
    #[serde(default)]
    pub firmware: Firmware,
}

/// The size of a machine.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct MachineType {
    /// Virtual CPUs, 1 to 512.
    #[schemars(range(min = 1, max = 512))]
    pub vcpus: u32,
    /// Memory in MiB, 64 to 16777216.
    #[serde(rename = "memoryMiB")]
    #[schemars(range(min = 64, max = 16_777_216))]
    pub memory_mib: u32,
    /// Virtual size of the disk in GiB, 1 to 65536. An image that is larger keeps its own size. Only what is written
    /// takes space in the pool.
    #[serde(rename = "diskGiB")]
    #[schemars(range(min = 1, max = 65_536))]
    pub disk_gib: u64,
}

/// How a machine boots.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Firmware {
    /// By UEFI, secure boot off.
    #[default]
    Uefi,
    /// By SeaBIOS.
    Bios,
}

/// How machines are run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DomainType {
    /// The fastest that the hypervisor offers.
    #[default]
    Auto,
    /// By hardware virtualization.
    Kvm,
    /// By emulation: slow, and works everywhere. Needed where hardware virtualization is offered and does not work.
    Qemu,
}

fn yes() -> bool {
    true
}

// === impl Config ===

impl Config {
    /// What the types alone do not say.
    pub(crate) fn faults(&self) -> Vec<Fault> {
        let Self {
            images,
            machine_types,
            default_image,
            default_machine_type,
            domain_type: _,
            install_guest_agent: _,
            vendor_data: _,
        } = self;
        let mut faults = Vec::new();
        for (key, image) in images {
            image.faults(key, &mut faults);
        }
        if machine_types.is_empty() {
            faults.push(Fault::new("/machineTypes", "is empty: a machine has a size, name one at least"));
        }
        for (key, machine) in machine_types {
            machine.faults(key, &mut faults);
        }
        default_fault("/defaultImage", "images", default_image.as_deref(), images, &mut faults);
        default_fault(
            "/defaultMachineType",
            "machineTypes",
            default_machine_type.as_deref(),
            machine_types,
            &mut faults,
        );
        faults
    }
}

// === impl Image ===

impl Image {
    fn faults(&self, key: &str, faults: &mut Vec<Fault>) {
        let Self { url, digest, firmware: _ } = self;
        let at = pointer("/images", key);
        if !is_identifier(key) {
            let message = format!(
                "\"{key}\" is no key of an image: lower case letters, digits and inner dashes, at most {KEY_BYTES} bytes"
            );
            faults.push(Fault::new(&at, message));
        }
        if let Err(message) = check_url(url) {
            faults.push(Fault::new(format!("{at}/url"), message));
        }
        if let Some(Err(message)) = digest.as_deref().map(check_digest) {
            faults.push(Fault::new(format!("{at}/digest"), message));
        }
    }
}

// === impl MachineType ===

impl MachineType {
    fn faults(&self, key: &str, faults: &mut Vec<Fault>) {
        let Self { vcpus, memory_mib, disk_gib } = self;
        let at = pointer("/machineTypes", key);
        let mut range = |field: &str, value: u64, min: u64, max: u64| {
            if !(min..=max).contains(&value) {
                faults.push(Fault::new(format!("{at}/{field}"), format!("{value} is not between {min} and {max}")));
            }
        };
        range("vcpus", u64::from(*vcpus), 1, 512);
        range("memoryMiB", u64::from(*memory_mib), 64, 16_777_216);
        range("diskGiB", *disk_gib, 1, 65_536);
    }

    /// The size of the disk in bytes.
    pub(crate) fn disk_bytes(&self) -> u64 {
        self.disk_gib.saturating_mul(1 << 30)
    }
}

// === impl Firmware ===

impl From<Firmware> for libvirt::Firmware {
    fn from(firmware: Firmware) -> Self {
        match firmware {
            Firmware::Uefi => Self::Uefi,
            Firmware::Bios => Self::Bios,
        }
    }
}

// === impl DomainType ===

impl DomainType {
    /// The type by libvirt's name; `None`: the first that the host offers.
    pub(crate) fn as_libvirt(self) -> Option<&'static str> {
        match self {
            Self::Auto => None,
            Self::Kvm => Some("kvm"),
            Self::Qemu => Some("qemu"),
        }
    }
}

/// Whether a URL is one that an image can come from; the error says what is wrong with it.
pub(crate) fn check_url(url: &str) -> Result<(), String> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return Err(format!("\"{url}\" is no URL: it begins with https://, http:// or file://"));
    };
    if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err("holds white space: write it percent-encoded".to_owned());
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    match scheme {
        "http" | "https" if authority.contains('@') => {
            // The URL is not repeated: what stands before the @ may be a password.
            Err("holds a user or a password, which everybody would see".to_owned())
        }
        "http" | "https" if authority.is_empty() || authority.starts_with(':') => {
            Err(format!("\"{url}\" names no server"))
        }
        "file" if !authority.is_empty() => Err(format!("\"{url}\" is not of the form file:///path")),
        "file" if rest.len() < 2 => Err(format!("\"{url}\" names no file")),
        "http" | "https" | "file" => Ok(()),
        _ => Err(format!("the scheme {scheme} of \"{url}\" is not one of https, http, file")),
    }
}

fn check_digest(digest: &str) -> Result<(), String> {
    let digits = match digest.split_once(':') {
        Some(("sha256", _)) => 64,
        Some(("sha512", _)) => 128,
        _ => return Err(format!("\"{digest}\" does not begin with sha256: or sha512:")),
    };
    let hex = digest.split_once(':').map_or("", |(_, hex)| hex);
    if hex.len() != digits {
        return Err(format!("has {} characters after the colon instead of {digits}", hex.len()));
    }
    match hex.chars().find(|c| !c.is_ascii_hexdigit()) {
        Some(c) => Err(format!("'{c}' is no hexadecimal digit")),
        None => Ok(()),
    }
}

fn is_identifier(key: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    !key.is_empty() && key.len() <= KEY_BYTES && key.bytes().all(inner) && !key.starts_with('-') && !key.ends_with('-')
}

fn default_fault<T>(at: &str, map: &str, default: Option<&str>, keys: &BTreeMap<String, T>, faults: &mut Vec<Fault>) {
    if let Some(default) = default.filter(|default| !keys.contains_key(*default)) {
        faults.push(Fault::new(at, format!("\"{default}\" is not a key of {map} ({})", known(keys))));
    }
}

/// The keys of a map, for people.
pub(crate) fn known<T>(keys: &BTreeMap<String, T>) -> String {
    if keys.is_empty() {
        return "there are none".to_owned();
    }
    let keys: Vec<&str> = keys.keys().map(String::as_str).collect();
    format!("known: {}", keys.join(", "))
}

fn pointer(parent: &str, key: &str) -> String {
    format!("{parent}/{}", key.replace('~', "~0").replace('/', "~1"))
}
