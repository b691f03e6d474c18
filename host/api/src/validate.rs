//! Rules that a schema alone cannot say. Each fault names the field and what would be right.

use std::fmt;

use crate::grants::{Grants, LibvirtHost};
use crate::provider::ProviderSpec;
use crate::proxy::{Access, CloudInit, Probe, ProxySpec};

/// The most bytes of an inline or referenced user-data or vendor-data document.
pub const CLOUD_INIT_MAX_BYTES: usize = 1 << 20;

/// Something that is wrong in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The field: `spec.access.allowFrom`.
    pub field: String,
    /// What is wrong with which value, and what would be right.
    pub message: String,
}

/// The faults of a Proxy's spec.
pub fn proxy(spec: &ProxySpec) -> Vec<Fault> {
    let mut faults = Faults::default();
    if spec.provider.is_empty() {
        faults.add("spec.provider", "is empty; name the Provider that shall make this proxy");
    }
    if spec.port == Some(0) {
        faults.add("spec.port", "0 is out of range; give a TCP port from 1 to 65535, or leave it out for 3128");
    }
    access(&spec.access, &mut faults);
    if let Some(cloud_init_spec) = &spec.cloud_init {
        cloud_init(cloud_init_spec, &mut faults);
    }
    probe(&spec.probe, &mut faults);
    faults.0
}

/// The faults of a Provider's spec.
pub fn provider(spec: &ProviderSpec) -> Vec<Fault> {
    let mut faults = Faults::default();
    if !is_identifier(&spec.plugin.name) {
        faults.add("spec.plugin.name", format!("{:?} {IDENTIFIER_RULE}", spec.plugin.name));
    }
    for (field, value, most) in [
        ("spec.limits.callSeconds", spec.limits.call_seconds, 3_600),
        ("spec.limits.concurrentCalls", spec.limits.concurrent_calls, 256),
    ] {
        if value.is_some_and(|value| value == 0 || value > most) {
            faults.add(field, format!("{} is out of range; give 1 to {most}", value.unwrap_or_default()));
        }
    }
    grants(&spec.grants, &mut faults);
    faults.0
}

/// The faults of a change: what the machine was made from does not change under it.
pub fn immutable(old: &ProxySpec, new: &ProxySpec) -> Vec<Fault> {
    // Taken apart whole, so that a new field is not forgotten.
    let ProxySpec {
        provider,
        machine_type,
        image,
        placement,
        port: _,
        access,
        cloud_init,
        probe: _,
        parameters,
        paused: _,
    } = old;
    let same = [
        ("spec.provider", *provider == new.provider),
        ("spec.machineType", *machine_type == new.machine_type),
        ("spec.image", *image == new.image),
        ("spec.placement", *placement == new.placement),
        ("spec.port", old.port() == new.port()),
        ("spec.access", *access == new.access),
        ("spec.cloudInit", *cloud_init == new.cloud_init),
        ("spec.parameters", *parameters == new.parameters),
    ];
    let mut faults = Faults::default();
    for (field, _) in same.into_iter().filter(|(_, is_same)| !is_same) {
        faults.add(field, "cannot be changed, since the machine was made from it; delete the Proxy and make it anew");
    }
    faults.0
}

/// What [`is_identifier`] wants, for messages.
const IDENTIFIER_RULE: &str =
    "is not an identifier; use lower-case letters, digits and inner hyphens, at most 40 characters";

/// Whether a text matches `[a-z0-9]([-a-z0-9]*[a-z0-9])?` and has at most 40 bytes: such texts become parts of ids,
/// file names and volume names, and nothing else does.
pub fn is_identifier(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !text.is_empty() && text.len() <= 40 && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

/// Faults as they are found.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, field: impl Into<String>, message: impl Into<String>) {
        self.0.push(Fault { field: field.into(), message: message.into() });
    }
}

fn access(access: &Access, faults: &mut Faults) {
    if access.open && access.secret.is_some() {
        faults.add("spec.access", "open and secret exclude each other; an open proxy asks nobody for a password");
    }
}

fn cloud_init(cloud_init: &CloudInit, faults: &mut Faults) {
    match (&cloud_init.user_data, &cloud_init.user_data_from) {
        (Some(_), Some(_)) => {
            faults.add("spec.cloudInit", "userData and userDataFrom exclude each other; leave one out");
        }
        (None, None) => {
            faults.add("spec.cloudInit", "has neither userData nor userDataFrom; give one, or leave cloudInit out");
        }
        _ => {}
    }
    for (field, document) in [("userData", &cloud_init.user_data), ("vendorData", &cloud_init.vendor_data)] {
        if let Some(document) = document.as_ref().filter(|document| document.len() > CLOUD_INIT_MAX_BYTES) {
            faults.add(
                format!("spec.cloudInit.{field}"),
                format!("has {} bytes; at most {CLOUD_INIT_MAX_BYTES} are delivered", document.len()),
            );
        }
    }
}

fn probe(probe: &Probe, faults: &mut Faults) {
    for (field, url) in [("spec.probe.url", &probe.url), ("spec.probe.egressUrl", &probe.egress_url)] {
        let Some(url) = url else { continue };
        match url::Url::parse(url) {
            Ok(parsed) if parsed.scheme() == "http" && parsed.has_host() => {}
            Ok(_) => faults.add(
                field,
                format!("{url:?} is not an http:// URL; through a forward proxy only such a one shows its status (for TLS use spec.probe.connect)"),
            ),
            Err(error) => faults.add(field, format!("{url:?} is not a URL: {error}")),
        }
    }
    if let Some(target) = &probe.connect
        && !is_host_and_port(target)
    {
        faults.add("spec.probe.connect", format!("{target:?} is not host:port, as in www.example.com:443"));
    }
    if let Some(status) = probe.status
        && !(100..=599).contains(&status)
    {
        faults.add("spec.probe.status", format!("{status} is out of range; give an HTTP status from 100 to 599"));
    }
    for (field, value, most) in [
        ("spec.probe.intervalSeconds", probe.interval_seconds, 86_400),
        ("spec.probe.timeoutSeconds", probe.timeout_seconds, 300),
        ("spec.probe.failureThreshold", probe.failure_threshold, 100),
    ] {
        if value.is_some_and(|value| value == 0 || value > most) {
            faults.add(field, format!("{} is out of range; give 1 to {most}", value.unwrap_or_default()));
        }
    }
}

fn is_host_and_port(target: &str) -> bool {
    target.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty()
            && !host.contains(|c: char| c.is_whitespace() || c.is_control() || c == '/' || c == '@')
            && port.parse::<u16>().is_ok_and(|port| port != 0)
    })
}

fn grants(grants: &Grants, faults: &mut Faults) {
    if let Some(libvirt) = &grants.libvirt {
        for (name, host) in &libvirt.hosts {
            let field = format!("spec.grants.libvirt.hosts[{name:?}]");
            if !is_identifier(name) {
                faults.add(&field, format!("{name:?} {IDENTIFIER_RULE}"));
            }
            libvirt_host(&field, host, faults);
        }
    }
    if let Some(images) = &grants.images {
        for (index, prefix) in images.url_prefixes.iter().enumerate() {
            let field = format!("spec.grants.images.urlPrefixes[{index}]");
            match url::Url::parse(prefix) {
                Ok(url) if matches!(url.scheme(), "https" | "http" | "file") => {
                    if !url.username().is_empty() || url.password().is_some() {
                        faults.add(field, "holds a user name or a password; leave them out");
                    }
                }
                Ok(url) => {
                    let scheme = url.scheme();
                    faults.add(field, format!("{prefix:?} has the scheme {scheme}; use https, http or file"));
                }
                Err(error) => faults.add(field, format!("{prefix:?} is not a URL: {error}")),
            }
        }
    }
}

fn libvirt_host(field: &str, host: &LibvirtHost, faults: &mut Faults) {
    match url::Url::parse(&host.address) {
        Ok(url) => match url.scheme() {
            "ssh" => ssh_address(field, host, &url, faults),
            "unix" => {
                if host.secret.is_some() || host.socket.is_some() {
                    faults.add(field, "a unix:// address takes neither secret nor socket; leave them out");
                }
                if url.has_host() || url.path().is_empty() {
                    faults.add(
                        format!("{field}.address"),
                        format!("{:?} is not unix:///path/of/the/libvirt-sock", host.address),
                    );
                }
            }
            scheme => faults.add(
                format!("{field}.address"),
                format!(
                    "{:?} has the scheme {scheme}; use ssh://user@host or unix:///run/libvirt/libvirt-sock",
                    host.address
                ),
            ),
        },
        Err(error) => faults.add(
            format!("{field}.address"),
            format!(
                "{:?} is not a URL ({error}); use ssh://user@host or unix:///run/libvirt/libvirt-sock",
                host.address
            ),
        ),
    }
    for (list, name) in [(&host.pools, "pools"), (&host.networks, "networks")] {
        if list.is_empty() {
            faults.add(format!("{field}.{name}"), "is empty; grant at least one");
        }
    }
}

fn ssh_address(field: &str, host: &LibvirtHost, url: &url::Url, faults: &mut Faults) {
    let address = format!("{field}.address");
    if url.username().is_empty() {
        faults.add(&address, format!("{:?} names no user; use ssh://user@host", host.address));
    }
    if !url.has_host() {
        faults.add(&address, format!("{:?} names no host; use ssh://user@host", host.address));
    }
    if url.password().is_some() {
        faults.add(&address, "holds a password, which is not supported; use a key, in a Secret");
    }
    if url.query().is_some() || url.fragment().is_some() || !matches!(url.path(), "" | "/") {
        faults.add(
            &address,
            "has a path or options, which are not supported (host keys are always verified); use ssh://user@host or ssh://user@host:port, and the field socket for the path of libvirt's socket",
        );
    }
    if host.secret.is_none() {
        faults.add(format!("{field}.secret"), "is missing; name the Secret with ssh-privatekey and known_hosts");
    }
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}
