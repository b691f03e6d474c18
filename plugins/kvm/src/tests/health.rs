use proxy_operator_sdk::libvirt::{DomainState, Firmware, HostGrant};

use super::fake::{Fake, Machine, unreachable};
use super::{config, ctx};
use crate::config::{Config, DomainType};
use crate::health::health;

#[test]
fn a_check_a_host_at_a_cost_that_does_not_grow() {
    let fake = Fake::new(&["hv1", "hv2"]);
    for n in 0..50 {
        fake.put("hv1", &format!("6f1a2b3c-0000-4000-8000-{n:012}"), DomainState::Running, Vec::new());
    }
    fake.on("hv2", |machine| machine.down = Some(unreachable()));
    let checks = health(&fake, &ctx(), &config());
    assert_eq!(checks[0].subject, "hosts/hv1");
    assert_eq!(checks[0].error, None);
    assert_eq!(
        checks[0].detail,
        "libvirt 9.0.0, QEMU 7.2.0; pool default 30 GiB free; pool spare 30 GiB free; 8192 MiB of memory free"
    );
    assert_eq!((checks[1].subject.as_str(), checks[1].error.as_ref()), ("hosts/hv2", Some(&unreachable())));
    fake.with(|state| assert_eq!(state.calls, ["hv1 info", "hv2 info"]));
}

#[test]
fn what_is_missing_has_its_reason() {
    type Change = fn(&mut Config, &mut HostGrant, &mut Machine);
    let cases: [(Change, &str, &str); 6] = [
        (|_, _, m| m.info.pools[1].active = false, "PoolMissing", "spare"),
        (|_, _, m| m.info.missing_networks = vec!["lan".to_owned()], "NetworkMissing", "lan"),
        (|_, _, m| m.info.firmwares = vec![Firmware::Bios], "FirmwareMissing", "debian-13"),
        (
            |c, _, m| {
                c.domain_type = DomainType::Kvm;
                m.info.domain_types = vec!["qemu".to_owned()];
            },
            "DomainTypeMissing",
            "kvm",
        ),
        (|_, grant, _| grant.pools.clear(), "GrantInvalid", "hosts.hv1.pools"),
        (|_, grant, _| grant.networks.clear(), "GrantInvalid", "hosts.hv1.networks"),
    ];
    for (change, reason, words) in cases {
        let fake = Fake::new(&["hv1"]);
        let mut config = config();
        fake.with(|state| change(&mut config, &mut state.grants[0], state.machines.get_mut("hv1").unwrap()));
        let error = health(&fake, &ctx(), &config).remove(0).error.unwrap();
        assert_eq!(error.reason, reason);
        assert!(error.message.contains(words), "{}", error.message);
    }
}

#[test]
fn firmware_that_no_image_needs_may_be_missing() {
    let fake = Fake::new(&["hv1"]);
    fake.on("hv1", |machine| machine.info.firmwares = vec![Firmware::Bios]);
    let mut config = config();
    config.images.remove("debian-13");
    assert_eq!(health(&fake, &ctx(), &config)[0].error, None);
}

#[test]
fn no_host_is_a_grant_to_be_mended() {
    let checks = health(&Fake::new(&[]), &ctx(), &config());
    assert_eq!(checks[0].error.as_ref().unwrap().reason, "GrantInvalid");
}
