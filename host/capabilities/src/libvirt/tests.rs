//! Operations on libvirt's driver for tests (`test:///default`), with calls that fail as a hypervisor's do.
//!
//! That driver has a pool `default-pool` and a network `default`, no uploads and no agents, and shares its state among
//! all connections of a process: each test has an installation of its own.

use std::sync::{Arc, Mutex};

use proxy_operator_core::capability::libvirt::{
    Disk, DomainSpec, DomainState, Firmware, HostGrant, VolumeFormat, VolumeSpec,
};
use proxy_operator_core::error::{Error, ErrorCode};
use virt_sys as sys;

use super::connection::{CreatedCache, Session};
use super::dial::{Dial, Dialled, UriDial};
use super::error::{Failure, VirError};
use super::policy::{Identity, Scope};
use super::seam::Seam;
use super::trace::{Gate, Traced};
use super::{domains, volumes};

/// Fails chosen calls, each once; notes all.
#[derive(Default)]
struct Faults {
    planned: Mutex<Vec<(&'static str, u32, u32, &'static str)>>,
    seen: Mutex<Vec<&'static str>>,
}

impl Faults {
    fn plan(&self, rpc: &'static str, number: u32, domain: u32, message: &'static str) {
        self.planned.lock().unwrap().push((rpc, number, domain, message));
    }

    fn count(&self, rpc: &str) -> usize {
        self.seen.lock().unwrap().iter().filter(|seen| **seen == rpc).count()
    }
}

impl Gate for Faults {
    fn check(&self, rpc: &'static str, _host: &str) -> Result<(), Failure> {
        self.seen.lock().unwrap().push(rpc);
        let mut planned = self.planned.lock().unwrap();
        let Some(index) = planned.iter().position(|(planned, ..)| *planned == rpc) else { return Ok(()) };
        let (_, number, domain, message) = planned.remove(index);
        Err(Failure::Libvirt(VirError {
            rpc,
            number: number as i32,
            domain: domain as i32,
            message: message.to_owned(),
        }))
    }
}

struct Bench {
    dialled: Dialled,
    faults: Faults,
    scope: Scope,
    created: CreatedCache,
}

impl Bench {
    fn new(cluster: &str) -> Self {
        let grant = HostGrant {
            name: "hv1".to_owned(),
            pools: vec!["default-pool".to_owned()],
            networks: vec!["default".to_owned()],
            max_vcpus: None,
            max_memory_mib: None,
            max_volume_size: None,
        };
        let scope = Scope { identity: Arc::new(Identity::new(cluster, "kvm")), grant: Arc::new(grant) };
        let dialled = UriDial { uri: "test:///default".to_owned() }.dial(&Arc::default()).unwrap();
        Self { dialled, faults: Faults::default(), scope, created: CreatedCache::default() }
    }

    fn on<T>(&self, work: impl FnOnce(&Scope, &Session<'_>) -> Result<T, Failure>) -> Result<T, Error> {
        let traced = Traced::new(&*self.dialled.seam, "hv1", &self.faults);
        work(&self.scope, &Session { seam: &traced, facts: &self.dialled.facts })
            .map_err(|failure| failure.into_error("hv1"))
    }

    fn spec(&self, owner: &str) -> DomainSpec {
        let name = format!("{}{owner}", self.scope.identity.name_prefix);
        let disk = Disk {
            pool: "default-pool".to_owned(),
            volume: format!("{name}.disk"),
            format: VolumeFormat::Qcow2,
            read_only: false,
        };
        DomainSpec {
            name,
            title: "ns/p \u{1} <&>\n".to_owned(),
            domain_type: None,
            vcpus: 1,
            memory_mib: 64,
            firmware: Firmware::Uefi,
            disks: vec![disk],
            networks: vec!["default".to_owned()],
            autostart: false,
        }
    }

    fn define(&self, spec: &DomainSpec) -> Result<(), Error> {
        self.on(|scope, session| domains::define(scope, session, &self.created, spec)).map(drop)
    }
}

#[test]
fn a_domain_lives_on_the_test_driver() {
    let bench = Bench::new("life");
    let spec = bench.spec("o");
    let name = spec.name.as_str();
    bench.define(&spec).unwrap();
    bench.define(&spec).unwrap();
    assert_eq!(bench.faults.count("virDomainDefineXML"), 1);
    for _ in 0..2 {
        bench.on(|scope, session| domains::start(scope, session, name)).unwrap();
    }
    assert_eq!(bench.faults.count("virDomainCreate"), 1);
    let listed = bench.on(|scope, session| domains::list(scope, session, &bench.created)).unwrap();
    assert_eq!(
        listed.iter().map(|domain| (domain.name.as_str(), domain.state)).collect::<Vec<_>>(),
        [(name, DomainState::Running)]
    );
    assert!(listed[0].created_at.is_some(), "it was seen when it was defined");
    let elsewhere = bench.on(|scope, session| domains::list(scope, session, &CreatedCache::default())).unwrap();
    assert_eq!(elsewhere[0].created_at, None);
    assert_eq!(bench.on(|scope, session| domains::undefine(scope, session, name)).unwrap_err().reason, "DomainRunning");
    for _ in 0..2 {
        bench.on(|scope, session| domains::destroy(scope, session, name)).unwrap();
    }
    // This driver knows no NVRAM: the plain form is used, and what is gone is looked at.
    bench.on(|scope, session| domains::undefine(scope, session, name)).unwrap();
    assert!(bench.faults.count("virDomainUndefineFlags") > 1);
    assert_eq!(bench.on(|scope, session| domains::lookup(scope, session, &bench.created, name)).unwrap(), None);
}

#[test]
fn no_agent_is_an_answer_and_no_connection_is_not() {
    let bench = Bench::new("agent");
    let spec = bench.spec("o");
    bench.define(&spec).unwrap();
    bench.on(|scope, session| domains::start(scope, session, &spec.name)).unwrap();
    let ask = || bench.on(|scope, session| domains::agent_addresses(scope, session, &spec.name, 1));
    let rpc = "virDomainInterfaceAddresses";
    for number in [sys::VIR_ERR_AGENT_UNRESPONSIVE, sys::VIR_ERR_ARGUMENT_UNSUPPORTED, sys::VIR_ERR_OPERATION_INVALID] {
        bench.faults.plan(
            "virDomainAgentSetResponseTimeout",
            number,
            sys::VIR_FROM_QEMU,
            "Guest agent is not responding",
        );
        assert_eq!(ask().unwrap(), None);
    }
    bench.faults.plan(
        "virDomainAgentSetResponseTimeout",
        sys::VIR_ERR_INTERNAL_ERROR,
        sys::VIR_FROM_RPC,
        "client socket is closed",
    );
    assert_eq!(ask().unwrap_err().reason, "LibvirtUnavailable");
    bench.faults.plan(rpc, sys::VIR_ERR_SYSTEM_ERROR, sys::VIR_FROM_QEMU, "cannot read /proc/net/arp");
    let neighbours = bench.on(|scope, session| domains::neighbour_addresses(scope, session, &spec.name));
    assert_eq!(neighbours.unwrap(), []);
    bench.on(|scope, session| domains::destroy(scope, session, &spec.name)).unwrap();
    assert_eq!(ask().unwrap(), None, "one that is off is not asked");
    bench.on(|scope, session| domains::undefine(scope, session, &spec.name)).unwrap();
}

#[test]
fn what_others_do_at_the_same_moment_is_well() {
    let bench = Bench::new("races");
    let spec = bench.spec("o");
    let name = spec.name.as_str();
    bench.define(&spec).unwrap();
    // It goes between lookup and metadata.
    bench.faults.plan("virDomainGetMetadata", sys::VIR_ERR_NO_DOMAIN, sys::VIR_FROM_QEMU, "Domain not found");
    assert_eq!(bench.on(|scope, session| domains::lookup(scope, session, &bench.created, name)).unwrap(), None);
    // It went off by itself.
    bench.faults.plan("virDomainDestroy", sys::VIR_ERR_OPERATION_INVALID, sys::VIR_FROM_QEMU, "domain is not running");
    bench.on(|scope, session| domains::destroy(scope, session, name)).unwrap();
    bench.faults.plan(
        "virDomainCreate",
        sys::VIR_ERR_OPERATION_INVALID,
        sys::VIR_FROM_QEMU,
        "domain is already running",
    );
    let error = bench.on(|scope, session| domains::start(scope, session, name)).unwrap_err();
    assert_eq!(error.code, ErrorCode::Unavailable, "it does not run: {error}");
    bench.faults.plan("virDomainUndefineFlags", sys::VIR_ERR_OPERATION_FAILED, sys::VIR_FROM_QEMU, "disk trouble");
    assert_eq!(bench.on(|scope, session| domains::undefine(scope, session, name)).unwrap_err().reason, "LibvirtFailed");
    bench.on(|scope, session| domains::undefine(scope, session, name)).unwrap();
}

#[test]
fn volumes_on_the_test_driver() {
    let bench = Bench::new("volumes");
    let name = format!("{}.disk", bench.spec("o").name);
    let spec = VolumeSpec { format: VolumeFormat::Raw, capacity: 1 << 20, backing: None };
    let create =
        |spec: &VolumeSpec| bench.on(|scope, session| volumes::create(scope, session, "default-pool", &name, spec));
    bench.faults.plan(
        "virStorageVolCreateXML",
        sys::VIR_ERR_INTERNAL_ERROR,
        sys::VIR_FROM_STORAGE,
        "pool 'default-pool' has asynchronous jobs running.",
    );
    let busy = create(&spec).unwrap_err();
    assert_eq!((busy.code, busy.reason.as_str()), (ErrorCode::Unavailable, "PoolBusy"));
    create(&spec).unwrap();
    create(&spec).unwrap();
    let other = VolumeSpec { capacity: 64 << 20, ..spec.clone() };
    create(&other).unwrap();
    assert_eq!(bench.faults.count("virStorageVolDelete"), 1);
    let listed = bench.on(|scope, session| volumes::list(scope, session, None)).unwrap();
    assert_eq!(listed.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), [name.as_str()]);
    bench.faults.plan(
        "virStorageVolCreateXML",
        sys::VIR_ERR_SYSTEM_ERROR,
        sys::VIR_FROM_STORAGE,
        "cannot fill file: No space left on device",
    );
    let full = bench
        .on(|scope, session| volumes::create(scope, session, "default-pool", &format!("{}2", name), &spec))
        .unwrap_err();
    assert_eq!((full.code, full.reason.as_str()), (ErrorCode::Exhausted, "PoolFull"));
    let delete = || bench.on(|scope, session| volumes::delete(scope, session, "default-pool", &name));
    bench.faults.plan("virStorageVolDelete", sys::VIR_ERR_SYSTEM_ERROR, sys::VIR_FROM_STORAGE, "cannot unlink file");
    assert_eq!(delete().unwrap_err().reason, "LibvirtFailed", "it is still there");
    delete().unwrap();
    delete().unwrap();
}

#[test]
fn names_with_odd_characters_come_back_whole() {
    let bench = Bench::new("odd");
    let seam: &dyn Seam = &*bench.dialled.seam;
    let odd = "a b\t|<&>'\"é -1 running";
    let xml = format!(
        "<domain type='test'><name>{}</name><memory>1024</memory><os><type>hvm</type></os></domain>",
        quick_xml::escape::escape(odd)
    );
    let defined = seam.domain_define(&xml).unwrap();
    assert!(seam.domain_states().unwrap().iter().any(|(domain, _)| domain.name == odd));
    assert_eq!(seam.domain(odd).unwrap().name, odd);
    assert_eq!(seam.domain("a\0b").unwrap_err().into_error("hv1").backend.unwrap().code, "VIR_ERR_INVALID_ARG");
    seam.domain_undefine(&defined, super::seam::Undefine::Plain).unwrap();
}
