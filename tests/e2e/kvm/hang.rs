//! A hypervisor that stands still, and one beside it that does not.

use proxy_operator_harness::{Daemon, Hypervisor};
use serde_json::json;

use crate::support::guest::{bring_up, until_on};
use crate::support::manifests::{host, provider, proxy, with};
use crate::support::{Folder, Ground, Operator, shaken, steady};

/// A libvirtd that stands still until this is dropped: when the test fails, what clears up after it waits for it.
struct Frozen(&'static Hypervisor);

impl Frozen {
    fn new(hypervisor: &'static Hypervisor) -> Self {
        hypervisor.freeze(Daemon::Libvirtd).unwrap();
        Self(hypervisor)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.0.thaw(Daemon::Libvirtd);
    }
}

#[test]
fn a_frozen_libvirtd_costs_its_own_proxies_alone_and_all_heals_by_itself() {
    let (hypervisor, _alone) = shaken();
    let (good, bad) = (Ground::new(steady(), "hang"), Ground::new(hypervisor, "hang"));
    let services = good.services();
    let folder = Folder::new();
    folder.ssh_secret("good-ssh", &good.hypervisor.keys.ed25519, &good.hypervisor.known_hosts);
    folder.ssh_secret("bad-ssh", &bad.hypervisor.keys.ed25519, &bad.hypervisor.known_hosts);
    let hosts = json!({
        "good": with(host(&good), "/secret", json!("good-ssh")),
        "bad": with(host(&bad), "/secret", json!("bad-ssh")),
    });
    folder.apply("provider", &with(provider("p", &good), "/spec/grants/libvirt/hosts", hosts));
    let placed = |name: &str, place: &str| with(proxy(name, "p", &services), "/spec/placement", json!([place]));
    folder.apply("bad-1", &placed("bad-1", "bad"));
    let operator = Operator::start(&folder);
    until_on(&folder, "bad-1");
    let domain = folder.domain("p", "default", "bad-1");
    let before = bad.running_id(&domain);

    let frozen = Frozen::new(hypervisor);
    folder.apply("bad-2", &placed("bad-2", "bad"));
    folder.apply("good-1", &placed("good-1", "good"));
    let _guest = bring_up(&folder, &good, "p", "good-1");
    let check = |place: &str| {
        let checks = folder.provider("p").and_then(|provider| provider.status).unwrap_or_default().checks;
        checks.into_iter().find(|check| check.subject == format!("hosts/{place}"))
    };
    folder.until("a call to the frozen one ends, and its health says so", 120, || {
        check("bad").is_some_and(|check| {
            !check.healthy && ["LibvirtUnavailable", "HostUnreachable"].contains(&check.reason.as_str())
        })
    });
    assert!(check("good").unwrap().healthy);
    folder.until("a create there ends too", 120, || {
        folder.is_provisioned_as("bad-2", &["LibvirtUnavailable", "HostUnreachable"])
    });
    assert!(folder.is_ready("good-1"));

    drop(frozen);
    folder.until("the other heals", 150, || check("bad").is_some_and(|check| check.healthy));
    until_on(&folder, "bad-2");
    assert_eq!(bad.running_id(&domain), before, "what ran there runs on");
    assert!(!folder.has_event("bad-1", "InstanceVanished"));
    assert!(folder.is_ready("good-1"));

    for name in ["bad-1", "bad-2", "good-1"] {
        folder.remove(name);
    }
    folder.until("all are gone", 120, || ["bad-1", "bad-2", "good-1"].iter().all(|name| folder.proxy(name).is_none()));
    assert_eq!(bad.volumes_of_proxies(), Vec::<String>::new());
    operator.stop();
}
