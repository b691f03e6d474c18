//! A Provider of the tests' own on a hypervisor, and a count of its calls.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use proxy_operator_api::grants::{LibvirtGrant, LibvirtHost, LibvirtLimits};
use proxy_operator_capabilities::libvirt::granted::GrantedLibvirt;
use proxy_operator_capabilities::libvirt::hypervisors::Hypervisors;
use proxy_operator_capabilities::libvirt::policy::Identity;
use proxy_operator_capabilities::limits::Limits;
use proxy_operator_capabilities::secrets::SecretStore;
use proxy_operator_core::capability::libvirt::{Disk, DomainSpec, Firmware, VolumeFormat};
use proxy_operator_harness::Hypervisor;
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// A Provider with Secrets of its own.
pub(crate) struct Bench {
    pub(crate) hypervisors: Hypervisors,
    pub(crate) identity: Identity,
    pub(crate) grant: LibvirtGrant,
    pub(crate) libvirt: Arc<GrantedLibvirt>,
    pub(crate) secrets: tempfile::TempDir,
}

/// What the host is called in the grant.
pub(crate) const HOST: &str = "hv1";

/// Limits that do not make a test wait.
pub(crate) fn quick() -> Limits {
    Limits {
        keepalive_interval: Duration::from_secs(1),
        keepalive_count: 2,
        dial: Duration::from_secs(20),
        backoff_first: Duration::from_millis(50),
        backoff_most: Duration::from_millis(400),
        secret_check: Duration::from_millis(100),
        ..Limits::default()
    }
}

impl Bench {
    /// A Provider that may use pool and network of a hypervisor.
    pub(crate) fn new(hypervisor: &Hypervisor, provider: &str) -> Self {
        Self::with(hypervisor, provider, quick())
    }

    pub(crate) fn with(hypervisor: &Hypervisor, provider: &str, limits: Limits) -> Self {
        calls();
        let secrets = tempfile::tempdir().unwrap();
        let key = std::fs::read(&hypervisor.keys.ed25519).unwrap();
        let known = std::fs::read(&hypervisor.known_hosts).unwrap();
        put(secrets.path(), &key, &known);
        let host = LibvirtHost {
            address: hypervisor.ssh_address.clone(),
            secret: Some("kvm-ssh".to_owned()),
            socket: None,
            pools: vec![hypervisor.pool.clone()],
            networks: vec![hypervisor.network.clone()],
            limits: Some(LibvirtLimits { vcpus: Some(2), memory_mib: Some(512), volume_gib: Some(4) }),
        };
        let grant = LibvirtGrant { hosts: BTreeMap::from([(HOST.to_owned(), host)]) };
        let hypervisors = Hypervisors::new(SecretStore::new(secrets.path()), limits);
        // An installation of its own: owners of different tests are called the same.
        let identity = Identity::new(provider.replace('-', ""), provider);
        let libvirt = hypervisors.granted(identity.clone(), &grant);
        Self { hypervisors, identity, grant, libvirt, secrets }
    }

    /// The name of an owner's domain.
    pub(crate) fn name(&self, owner: &str) -> String {
        format!("{}{owner}", self.identity.name_prefix)
    }

    /// A domain of an owner with one disk.
    pub(crate) fn spec(&self, owner: &str) -> DomainSpec {
        let name = self.name(owner);
        let volume = format!("{name}.disk");
        DomainSpec {
            name,
            title: format!("tests/{owner} <&>"),
            domain_type: None,
            vcpus: 1,
            memory_mib: 64,
            firmware: Firmware::Bios,
            disks: vec![Disk { pool: "default".to_owned(), volume, format: VolumeFormat::Qcow2, read_only: false }],
            networks: vec!["lan".to_owned()],
            autostart: false,
        }
    }
}

/// Writes the Secret.
pub(crate) fn put(secrets: &Path, key: &[u8], known_hosts: &[u8]) {
    let folder = secrets.join("kvm-ssh");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("ssh-privatekey"), key).unwrap();
    std::fs::write(folder.join("known_hosts"), known_hosts).unwrap();
}

/// What was logged of calls.
#[derive(Default)]
pub(crate) struct Calls(Mutex<Vec<Line>>);

/// One line of the log.
#[derive(Clone, Debug, Default)]
pub(crate) struct Line(pub(crate) BTreeMap<String, String>);

/// The log of this process.
pub(crate) fn calls() -> &'static Arc<Calls> {
    static CALLS: LazyLock<Arc<Calls>> = LazyLock::new(|| {
        let calls = Arc::new(Calls::default());
        tracing_subscriber::registry().with(Recorder(Arc::clone(&calls))).init();
        calls
    });
    &CALLS
}

impl Calls {
    /// The functions that were called about a host since the log had so many lines.
    pub(crate) fn since(&self, start: usize) -> Vec<Line> {
        self.0.lock().unwrap().iter().skip(start).cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

struct Recorder(Arc<Calls>);

impl<S: tracing::Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target() == "libvirt" && *event.metadata().level() <= tracing::Level::DEBUG {
            let mut line = Line::default();
            event.record(&mut line);
            self.0.0.lock().unwrap().push(line);
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}
