use std::collections::BTreeSet;

use proxy_operator_sdk::libvirt::{Firmware, HostGrant};
use proxy_operator_sdk::{ErrorCode, InstanceSpec, Result};

use super::fake::{Fake, Machine, unreachable};
use super::{at, config, ctx, spec};
use crate::config::{Config, DomainType};
use crate::place::place;

fn among(fake: &Fake, spec: &InstanceSpec, avoid: &[String]) -> Result<String> {
    place(fake, &ctx(), &config(), spec, avoid)
}

fn placed(hosts: &[&str]) -> InstanceSpec {
    InstanceSpec { placement: hosts.iter().map(|host| (*host).to_owned()).collect(), ..spec() }
}

#[test]
fn the_host_with_the_most_memory_is_taken() {
    let fake = Fake::new(&["hv1", "hv2", "hv3"]);
    fake.on("hv2", |machine| machine.info.free_memory_mib = 16_384);
    assert_eq!(among(&fake, &spec(), &[]).unwrap(), at("hv2").id);
    fake.with(|state| assert!(state.calls.iter().all(|call| call.ends_with(" info")), "{:?}", state.calls));
}

#[test]
fn placement_decides_before_memory_and_asks_no_more_than_it_needs() {
    let fake = Fake::new(&["hv1", "hv2", "hv3"]);
    fake.on("hv2", |machine| machine.info.free_memory_mib = 16_384);
    assert_eq!(among(&fake, &placed(&["hv3", "hv2"]), &[]).unwrap(), at("hv3").id);
    fake.with(|state| assert_eq!(state.calls, ["hv3 info"]));
    assert_eq!(among(&fake, &placed(&["hv3", "hv2"]), &[at("hv3").id]).unwrap(), at("hv2").id);
}

#[test]
fn many_placed_at_once_spread_over_equal_hosts() {
    let fake = Fake::new(&["hv1", "hv2", "hv3"]);
    let ids: BTreeSet<String> = (0..30)
        .map(|n| {
            let owner = format!("6f1a2b3c-0000-4000-8000-0000000000{n:02}");
            let id = among(&fake, &InstanceSpec { owner, ..spec() }, &[]).unwrap();
            id.split('/').nth(1).unwrap().to_owned()
        })
        .collect();
    assert_eq!(ids.len(), 3, "{ids:?}");
}

#[test]
fn a_place_that_is_not_granted_is_said_with_those_that_are() {
    let error = among(&Fake::new(&["hv1", "hv2"]), &placed(&["hv1", "hv9"]), &[]).unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidProxy, "PlacementUnknown"));
    assert!(error.message.contains("\"hv9\"") && error.message.contains("granted: hv1, hv2"), "{}", error.message);
    assert_eq!(among(&Fake::new(&[]), &spec(), &[]).unwrap_err().code, ErrorCode::InvalidConfig);
}

#[test]
fn a_host_that_cannot_be_asked_is_passed_over_unless_none_can() {
    let fake = Fake::new(&["hv1", "hv2"]);
    fake.on("hv1", |machine| machine.down = Some(unreachable()));
    assert_eq!(among(&fake, &spec(), &[]).unwrap(), at("hv2").id);

    fake.on("hv2", |machine| machine.info.free_memory_mib = 100);
    let error = among(&fake, &spec(), &[]).unwrap_err();
    assert_eq!(error.code, ErrorCode::Exhausted);
    assert!(error.message.contains("hv1 cannot be asked (HostUnreachable)"), "{}", error.message);

    fake.on("hv2", |machine| machine.down = Some(unreachable()));
    assert_eq!(among(&fake, &spec(), &[]).unwrap_err(), unreachable());
}

#[test]
fn each_lack_is_named() {
    type Change = fn(&mut Config, &mut HostGrant, &mut Machine);
    let cases: [(Change, &str); 13] = [
        (|_, grant, _| grant.max_vcpus = Some(0), "up to 0 vCPUs, not 1"),
        (|_, grant, _| grant.max_memory_mib = Some(256), "up to 256 MiB of memory, not 512"),
        (|_, grant, _| grant.max_volume_size = Some(4 << 30), "up to 4 GiB, not 8 GiB"),
        (|_, grant, _| grant.networks.clear(), "no granted network"),
        (|_, grant, _| grant.pools.clear(), "no granted pool"),
        (|_, _, m| m.info.missing_networks = vec!["lan".to_owned()], "no active network lan"),
        (
            |c, _, m| {
                c.default_image = Some("debian-13".to_owned());
                m.info.firmwares = vec![Firmware::Bios];
            },
            "no UEFI firmware",
        ),
        (
            |c, _, m| {
                c.domain_type = DomainType::Kvm;
                m.info.domain_types = vec!["qemu".to_owned()];
            },
            "no domain type kvm",
        ),
        (|_, _, m| m.info.pools.iter_mut().for_each(|pool| pool.active = false), "no active pool default or spare"),
        (|_, _, m| m.info.pools.clear(), "no active pool default or spare"),
        (|_, _, m| m.info.pools.iter_mut().for_each(|pool| pool.available = 200 << 20), "200 MiB free in pool"),
        (|_, _, m| m.info.free_memory_mib = 511, "511 MiB of memory free and needs 512"),
        (|_, _, m| m.info.free_memory_mib = 0, "0 MiB of memory free"),
    ];
    for (change, words) in cases {
        let fake = Fake::new(&["hv1"]);
        let mut config = config();
        fake.with(|state| change(&mut config, &mut state.grants[0], state.machines.get_mut("hv1").unwrap()));
        let error = place(&fake, &ctx(), &config, &spec(), &[]).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Exhausted, "NoRoom"), "{words}");
        assert!(error.message.contains(words), "{words}: {}", error.message);
    }
}

#[test]
fn tried_places_are_not_tried_again() {
    let error = among(&Fake::new(&["hv1"]), &spec(), &[at("hv1").id]).unwrap_err();
    assert_eq!(error.code, ErrorCode::Exhausted);
    assert!(error.message.contains("hv1 was tried"), "{}", error.message);
}

#[test]
fn a_firmware_that_is_not_asked_for_may_be_absent() {
    let fake = Fake::new(&["hv1"]);
    fake.on("hv1", |machine| machine.info.firmwares = vec![Firmware::Bios]);
    among(&fake, &spec(), &[]).unwrap();
}
