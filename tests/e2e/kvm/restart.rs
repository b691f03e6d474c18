//! What is there stays as it is, whatever restarts; what vanished is made again.

use proxy_operator_harness::Daemon;

use crate::support::guest::{bring_up, stand_in, until_on};
use crate::support::manifests::{provider, proxy};
use crate::support::{Folder, Ground, Operator, shaken, steady};

#[test]
fn a_restarted_operator_keeps_what_is_ready() {
    let ground = Ground::new(steady(), "kept-ready");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(ground.hypervisor);
    folder.apply("provider", &provider("p", &ground));
    folder.apply("one", &proxy("one", "p", &services));
    let mut operator = Operator::start(&folder);
    let _guest = bring_up(&folder, &ground, "p", "one");
    let domain = folder.domain("p", "default", "one");
    let machine = || (ground.uuid(&domain), ground.running_id(&domain), ground.domains(&domain));
    let (before, events) = (machine(), folder.events("one"));

    for is_killed in [false, true] {
        if is_killed {
            operator.kill()
        } else {
            operator.stop()
        }
        let lines = folder.log().lines().count();
        operator = Operator::start(&folder);
        folder.until("it was looked at again", 60, || {
            folder.log().lines().skip(lines).any(|line| line.contains("virDomain") && line.contains(&domain))
        });
        folder.until("it is Ready", 30, || folder.is_ready("one"));
        assert_eq!(machine(), before);
        assert_eq!(folder.events("one"), events, "nothing has happened to it");
    }
    folder.remove("one");
    folder.until("it is gone", 60, || folder.proxy("one").is_none());
    operator.stop();
}

#[test]
fn a_machine_that_was_switched_off_is_started_and_one_that_was_forgotten_is_made_again() {
    let ground = Ground::new(steady(), "vanished");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(ground.hypervisor);
    folder.apply("provider", &provider("p", &ground));
    folder.apply("off", &proxy("off", "p", &services));
    folder.apply("forgotten", &proxy("forgotten", "p", &services));
    let operator = Operator::start(&folder);
    let first = [bring_up(&folder, &ground, "p", "off"), bring_up(&folder, &ground, "p", "forgotten")];
    let (off, forgotten) = (folder.domain("p", "default", "off"), folder.domain("p", "default", "forgotten"));
    let before = ground.running_id(&off);

    let virsh = |arguments: &[&str]| ground.hypervisor.virsh(arguments).unwrap();
    virsh(&["destroy", &off]);
    virsh(&["destroy", &forgotten]);
    virsh(&["undefine", &forgotten]);
    assert_eq!(ground.volumes_of_proxies().len(), 4);
    // A listing sees it within a minute; a start looks at once.
    operator.stop();
    let operator = Operator::start(&folder);
    folder.until("the one is told to be off", 60, || folder.has_event("off", "InstanceStopped"));
    folder.until("the other is told to be gone", 60, || folder.has_event("forgotten", "DomainMissing"));
    drop(first);
    until_on(&folder, "off");
    until_on(&folder, "forgotten");
    assert_ne!(ground.running_id(&off), before);
    let _guests = [stand_in(&folder, &ground, "p", "off"), stand_in(&folder, &ground, "p", "forgotten")];
    folder.until("both are Ready again", 90, || folder.is_ready("off") && folder.is_ready("forgotten"));
    for name in ["off", "forgotten"] {
        folder.remove(name);
    }
    folder.until("both are gone", 90, || folder.proxy("off").is_none() && folder.proxy("forgotten").is_none());
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new());
    operator.stop();
}

#[test]
fn daemons_that_are_killed_and_come_back_cost_nothing() {
    let (hypervisor, _alone) = shaken();
    let ground = Ground::new(hypervisor, "daemons");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(hypervisor);
    folder.apply("provider", &provider("p", &ground));
    folder.apply("one", &proxy("one", "p", &services));
    let operator = Operator::start(&folder);
    let _guest = bring_up(&folder, &ground, "p", "one");
    let domain = folder.domain("p", "default", "one");
    let before = ground.running_id(&domain);

    for (daemon, next) in [(Daemon::Sshd, "two"), (Daemon::Libvirtd, "three")] {
        hypervisor.kill(daemon).unwrap();
        folder.apply(next, &proxy(next, "p", &services));
        folder.until(&format!("{next} waits for {daemon}"), 60, || {
            folder.is_provisioned_as(next, &["HostUnreachable", "LibvirtUnavailable"])
        });
        assert!(folder.is_ready("one"), "it serves its clients all the same");
        hypervisor.start(daemon).unwrap();
        until_on(&folder, next);
    }
    assert_eq!(ground.running_id(&domain), before);
    assert!(folder.is_ready("one"));
    assert!(!folder.has_event("one", "InstanceVanished"));
    for name in ["one", "two", "three"] {
        folder.remove(name);
    }
    folder.until("all are gone", 90, || ["one", "two", "three"].iter().all(|name| folder.proxy(name).is_none()));
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new());
    operator.stop();
}
