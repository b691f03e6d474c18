//! Hypervisors in memory that hold callers to the contract of `wit/libvirt.wit`.

use std::cell::RefCell;
use std::collections::BTreeMap;

use proxy_operator_sdk::images::{BaseImage, Source, Status, Transfer};
use proxy_operator_sdk::libvirt::{
    Domain, DomainSpec, DomainState, Firmware, HostGrant, HostInfo, PoolInfo, Volume, VolumeFormat, VolumeSpec,
};
use proxy_operator_sdk::{Address, AddressSource, Error, Result};

use super::{OWNER, PREFIX, name};
use crate::host::Host;

/// Where a call is cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// Before it did anything.
    Before,
    /// Halfway, where a call has a half; else before.
    Within,
    /// Afterwards: the answer is lost.
    After,
}

/// What a test sees and sets.
pub(super) struct State {
    pub(super) grants: Vec<HostGrant>,
    pub(super) machines: BTreeMap<String, Machine>,
    /// `host function`, in order.
    pub(super) calls: Vec<String>,
    /// The call to cut, counted from 0.
    pub(super) fuse: Option<(usize, Cut)>,
}

/// One hypervisor.
pub(super) struct Machine {
    pub(super) info: HostInfo,
    pub(super) down: Option<Error>,
    pub(super) domains: BTreeMap<String, Dom>,
    pub(super) volumes: BTreeMap<(String, String), Content>,
    /// How often an image is still pending.
    pub(super) pending: u8,
    pub(super) agent: Option<Vec<Address>>,
    pub(super) neighbours: Vec<Address>,
    /// What refuses: function and error.
    pub(super) refuse: BTreeMap<&'static str, Error>,
}

/// One domain.
pub(super) struct Dom {
    pub(super) domain: Domain,
    pub(super) spec: Option<DomainSpec>,
}

/// One volume.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Made(VolumeSpec),
    Written(Vec<u8>),
    Torn,
}

pub(super) struct Fake(RefCell<State>);

pub(super) fn address(host: &str, source: AddressSource) -> Address {
    Address { host: host.to_owned(), source }
}

pub(super) fn grant(host: &str) -> HostGrant {
    HostGrant {
        name: host.to_owned(),
        pools: vec!["default".to_owned(), "spare".to_owned()],
        networks: vec!["lan".to_owned()],
        max_vcpus: None,
        max_memory_mib: None,
        max_volume_size: None,
    }
}

fn machine() -> Machine {
    let pool = |name: &str| PoolInfo { name: name.to_owned(), active: true, available: 30 << 30 };
    Machine {
        info: HostInfo {
            version: "libvirt 9.0.0, QEMU 7.2.0".to_owned(),
            arch: "x86_64".to_owned(),
            domain_types: vec!["kvm".to_owned(), "qemu".to_owned()],
            firmwares: vec![Firmware::Bios, Firmware::Uefi],
            uuid: "00000000-0000-4000-8000-00000000000a".to_owned(),
            pools: vec![pool("default"), pool("spare")],
            missing_networks: Vec::new(),
            cpus: 8,
            free_memory_mib: 8_192,
        },
        down: None,
        domains: BTreeMap::new(),
        volumes: BTreeMap::new(),
        pending: 0,
        agent: None,
        neighbours: Vec::new(),
        refuse: BTreeMap::new(),
    }
}

pub(super) fn unreachable() -> Error {
    Error::unavailable("HostUnreachable", "no route").with_backend("VIR_ERR_SYSTEM_ERROR", Some(38))
}

// === impl Fake ===

impl Fake {
    pub(super) fn new(hosts: &[&str]) -> Self {
        let grants = hosts.iter().map(|host| grant(host)).collect();
        let machines = hosts.iter().map(|host| ((*host).to_owned(), machine())).collect();
        Self(RefCell::new(State { grants, machines, calls: Vec::new(), fuse: None }))
    }

    pub(super) fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.borrow_mut())
    }

    pub(super) fn on<T>(&self, host: &str, look: impl FnOnce(&mut Machine) -> T) -> T {
        self.with(|state| look(state.machines.get_mut(host).unwrap()))
    }

    /// A domain that is there, with nothing known of how it was made.
    pub(super) fn put(&self, host: &str, owner: &str, state: DomainState, addresses: Vec<Address>) {
        let name = format!("{PREFIX}{owner}");
        let created_at = Some("2026-12-01T08:30:00Z".to_owned());
        let domain = Domain { name: name.clone(), owner: owner.to_owned(), state, addresses, created_at };
        self.on(host, |machine| machine.domains.insert(name, Dom { domain, spec: None }));
    }

    pub(super) fn cut(&self, call: usize, cut: Cut) {
        self.with(|state| {
            state.calls.clear();
            state.fuse = Some((call, cut));
        });
    }

    fn call<T>(&self, host: &str, function: &'static str, act: impl FnOnce(&mut Machine) -> Result<T>) -> Result<T> {
        let mut state = self.0.borrow_mut();
        let index = state.calls.len();
        state.calls.push(format!("{host} {function}"));
        let cut = state.fuse.filter(|(at, _)| *at == index).map(|(_, cut)| cut);
        let lost = || Error::unavailable("HostUnreachable", "the call was cut");
        if matches!(cut, Some(Cut::Before | Cut::Within)) {
            return Err(lost());
        }
        if !state.grants.iter().any(|grant| grant.name == host) {
            return Err(Error::permission_denied("GrantMissing", format!("host {host} is not granted")));
        }
        let machine = state.machines.get_mut(host).unwrap();
        if let Some(error) = machine.down.as_ref().or_else(|| machine.refuse.get(function)) {
            return Err(error.clone());
        }
        let answer = act(machine);
        if cut.is_some() { Err(lost()) } else { answer }
    }

    fn cut_within(&self) -> bool {
        self.with(|state| matches!(state.fuse, Some((at, Cut::Within)) if at == state.calls.len()))
    }
}

fn ours(name: &str) -> Result<()> {
    if name.starts_with(PREFIX) {
        return Ok(());
    }
    Err(Error::permission_denied("NameForeign", format!("{name} does not begin with {PREFIX}")))
}

impl Host for Fake {
    fn hosts(&self) -> Vec<HostGrant> {
        self.with(|state| state.grants.clone())
    }

    fn info(&self, host: &str) -> Result<HostInfo> {
        self.call(host, "info", |machine| Ok(machine.info.clone()))
    }

    fn list_domains(&self, host: &str) -> Result<Vec<Domain>> {
        self.call(host, "list-domains", |machine| Ok(machine.domains.values().map(|dom| dom.domain.clone()).collect()))
    }

    fn lookup_domain(&self, host: &str, name: &str) -> Result<Option<Domain>> {
        self.call(host, "lookup-domain", |machine| {
            ours(name)?;
            Ok(machine.domains.get(name).map(|dom| dom.domain.clone()))
        })
    }

    fn agent_addresses(&self, host: &str, _: &str) -> Result<Option<Vec<Address>>> {
        self.call(host, "agent-addresses", |machine| Ok(machine.agent.clone()))
    }

    fn neighbour_addresses(&self, host: &str, _: &str) -> Result<Vec<Address>> {
        self.call(host, "neighbour-addresses", |machine| Ok(machine.neighbours.clone()))
    }

    fn define_domain(&self, host: &str, spec: &DomainSpec) -> Result<Domain> {
        self.call(host, "define-domain", |machine| {
            ours(&spec.name)?;
            for disk in &spec.disks {
                match machine.volumes.get(&(disk.pool.clone(), disk.volume.clone())) {
                    Some(Content::Made(made)) => assert_eq!(made.format, disk.format),
                    Some(Content::Written(_)) => assert_eq!(disk.format, VolumeFormat::Raw),
                    other => panic!("{} is defined with {} as {other:?}", spec.name, disk.volume),
                }
            }
            let domain = Domain {
                name: spec.name.clone(),
                owner: spec.name.strip_prefix(PREFIX).unwrap().to_owned(),
                state: DomainState::ShutOff,
                addresses: Vec::new(),
                created_at: Some("2026-12-01T08:30:00Z".to_owned()),
            };
            let dom = machine.domains.entry(spec.name.clone()).or_insert(Dom { domain, spec: Some(spec.clone()) });
            Ok(dom.domain.clone())
        })
    }

    fn start_domain(&self, host: &str, name: &str) -> Result<()> {
        self.call(host, "start-domain", |machine| match machine.domains.get_mut(name) {
            Some(dom) => {
                dom.domain.state = DomainState::Running;
                Ok(())
            }
            None => Err(Error::unavailable("DomainMissing", format!("no domain {name}"))),
        })
    }

    fn destroy_domain(&self, host: &str, name: &str) -> Result<()> {
        self.call(host, "destroy-domain", |machine| {
            ours(name)?;
            if let Some(dom) = machine.domains.get_mut(name) {
                dom.domain.state = DomainState::ShutOff;
            }
            Ok(())
        })
    }

    fn undefine_domain(&self, host: &str, name: &str) -> Result<()> {
        self.call(host, "undefine-domain", |machine| {
            machine.domains.remove(name);
            Ok(())
        })
    }

    fn list_volumes(&self, host: &str, domain: Option<&str>) -> Result<Vec<Volume>> {
        self.call(host, "list-volumes", |machine| {
            let volumes = machine.volumes.keys().map(|(pool, name)| {
                let of = name.split_once('.').unwrap().0;
                let owner = of.strip_prefix(PREFIX).unwrap().to_owned();
                Volume { pool: pool.clone(), name: name.clone(), domain: of.to_owned(), owner }
            });
            Ok(volumes.filter(|volume| domain.is_none_or(|domain| domain == volume.domain)).collect())
        })
    }

    fn create_volume(&self, host: &str, pool: &str, name: &str, spec: &VolumeSpec) -> Result<()> {
        self.call(host, "create-volume", |machine| {
            ours(name)?;
            let used = machine.domains.contains_key(name.split_once('.').unwrap().0);
            let made = Content::Made(spec.clone());
            let there = machine.volumes.entry((pool.to_owned(), name.to_owned())).or_insert_with(|| made.clone());
            assert!(!used || *there == made, "the disk of a domain is made anew");
            *there = made;
            Ok(())
        })
    }

    fn write_volume(&self, host: &str, pool: &str, name: &str, content: &[u8]) -> Result<()> {
        if self.cut_within() {
            let key = (pool.to_owned(), name.to_owned());
            self.on(host, |machine| machine.volumes.insert(key, Content::Torn));
        }
        self.call(host, "write-volume", |machine| {
            ours(name)?;
            assert!(content.len() <= 8 << 20, "a seed of {} bytes", content.len());
            let domain = name.split_once('.').unwrap().0;
            assert!(!machine.domains.contains_key(domain), "the seed of a domain is written again");
            machine.volumes.insert((pool.to_owned(), name.to_owned()), Content::Written(content.to_vec()));
            Ok(())
        })
    }

    fn delete_volume(&self, host: &str, pool: &str, name: &str) -> Result<()> {
        self.call(host, "delete-volume", |machine| {
            ours(name)?;
            machine.volumes.remove(&(pool.to_owned(), name.to_owned()));
            Ok(())
        })
    }

    fn ensure_image(&self, host: &str, pool: &str, source: &Source) -> Result<Status> {
        self.call(host, "ensure-image", |machine| {
            if machine.pending > 0 {
                machine.pending -= 1;
                return Ok(Status::Pending(Transfer {
                    reason: "ImageUploading".to_owned(),
                    message: format!("uploading to {host}/{pool}, 42 %"),
                    percent: Some(42),
                }));
            }
            let key = source.key.as_deref().unwrap_or("url");
            let volume = format!("base-{key}-0123456789ab.qcow2");
            Ok(Status::Ready(BaseImage { volume, format: VolumeFormat::Qcow2, capacity: 3 << 30 }))
        })
    }
}

/// Holds that a host has the whole instance of [`super::spec`] and nothing else.
pub(super) fn assert_whole(fake: &Fake, host: &str) {
    fake.on(host, |machine| {
        assert_eq!(machine.domains.keys().collect::<Vec<_>>(), [&name()]);
        let dom = &machine.domains[&name()];
        assert_eq!((dom.domain.owner.as_str(), dom.domain.state), (OWNER, DomainState::Running));
        let volumes: Vec<&str> = machine.volumes.keys().map(|(_, volume)| volume.as_str()).collect();
        assert_eq!(volumes, [format!("{}.disk.qcow2", name()), format!("{}.seed.img", name())]);
    });
}
