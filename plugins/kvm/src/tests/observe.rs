use proxy_operator_sdk::libvirt::DomainState;
use proxy_operator_sdk::{AddressSource, Error, ErrorCode, Phase};

use super::fake::{Content, Fake, address, unreachable};
use super::{OWNER, at, ctx, name};
use crate::observe::{get, list};

const OTHER: &str = "6f1a2b3c-0000-4000-8000-000000000002";

fn half(fake: &Fake, host: &str, owner: &str) {
    let volume = format!("{}{owner}.disk.qcow2", super::PREFIX);
    fake.on(host, |machine| machine.volumes.insert(("default".to_owned(), volume), Content::Torn));
}

#[test]
fn the_most_trusted_source_gives_the_address() {
    let lease = vec![address("2001:db8::2", AddressSource::Lease), address("192.0.2.2", AddressSource::Lease)];
    let arp = vec![address("192.0.2.3", AddressSource::Arp)];
    let agent = vec![address("2001:db8::1", AddressSource::Agent), address("192.0.2.1", AddressSource::Agent)];
    let cases = [
        (Some(agent.clone()), lease.clone(), "192.0.2.1", "AddressFromAgent", 2),
        (Some(Vec::new()), lease.clone(), "192.0.2.2", "AddressFromLease", 2),
        (None, lease, "192.0.2.2", "AddressFromLease", 2),
        (None, Vec::new(), "192.0.2.3", "AddressFromNeighbour", 1),
    ];
    for (agent, lease, host, reason, count) in cases {
        let fake = Fake::new(&["hv1"]);
        fake.put("hv1", OWNER, DomainState::Running, lease);
        fake.on("hv1", |machine| (machine.agent, machine.neighbours) = (agent, arp.clone()));
        let seen = get(&fake, &ctx(), &at("hv1")).unwrap();
        assert_eq!((seen.phase, seen.reason.as_str()), (Phase::Running, reason));
        assert_eq!(seen.endpoint.as_ref().unwrap().host, host);
        assert_eq!((seen.endpoint.unwrap().port, seen.addresses.len()), (None, count));
        assert_eq!(seen.created_at.as_deref(), Some("2026-12-01T08:30:00Z"));
        assert!(seen.message.starts_with(host), "{}", seen.message);
    }
}

#[test]
fn without_an_address_it_runs_and_is_waited_for() {
    let fake = Fake::new(&["hv1"]);
    fake.put("hv1", OWNER, DomainState::Running, Vec::new());
    let seen = get(&fake, &ctx(), &at("hv1")).unwrap();
    assert_eq!((seen.phase, seen.reason.as_str()), (Phase::Running, "WaitingForAddress"));
    assert!(seen.endpoint.is_none());
}

#[test]
fn states_become_phases() {
    for (state, phase, reason) in [
        (DomainState::Blocked, Phase::Running, "AddressFromLease"),
        (DomainState::ShutOff, Phase::Stopped, "DomainOff"),
        (DomainState::ShuttingDown, Phase::Stopped, "DomainShuttingDown"),
        (DomainState::Paused, Phase::Unknown, "DomainPaused"),
        (DomainState::Suspended, Phase::Unknown, "DomainSuspended"),
        (DomainState::Unknown, Phase::Unknown, "DomainStateUnknown"),
        (DomainState::Crashed, Phase::Failed, ""),
    ] {
        let fake = Fake::new(&["hv1"]);
        fake.put("hv1", OWNER, state, vec![address("192.0.2.2", AddressSource::Lease)]);
        let seen = get(&fake, &ctx(), &at("hv1")).unwrap();
        assert_eq!((seen.phase, seen.reason.as_str()), (phase, reason));
        assert_eq!(seen.error.is_some(), phase == Phase::Failed);
        assert_eq!(seen.endpoint.is_some(), phase == Phase::Running, "only what runs has an endpoint");
        assert_eq!(list(&fake, None, None).unwrap().instances, [seen]);
    }
}

#[test]
fn absent_half_made_and_unknown_are_told_apart() {
    let fake = Fake::new(&["hv1"]);
    assert_eq!(get(&fake, &ctx(), &at("hv1")).unwrap_err().code, ErrorCode::NotFound);

    half(&fake, "hv1", OWNER);
    let mut reference = at("hv1");
    reference.private_state = Some("pool=spare".to_owned());
    let seen = get(&fake, &ctx(), &reference).unwrap();
    assert_eq!((seen.phase, seen.reason.as_str()), (Phase::Provisioning, "DomainMissing"));
    assert_eq!(seen.private_state, reference.private_state);

    assert_eq!(get(&fake, &ctx(), &at("hv2")).unwrap_err().code, ErrorCode::Unresolvable);
    reference.id = "zones/a/instances/b".to_owned();
    assert_eq!(get(&fake, &ctx(), &reference).unwrap_err().code, ErrorCode::Unresolvable);

    fake.on("hv1", |machine| machine.down = Some(unreachable()));
    assert_eq!(get(&fake, &ctx(), &at("hv1")).unwrap_err(), unreachable());
}

#[test]
fn a_domain_of_another_owner_is_a_conflict() {
    let fake = Fake::new(&["hv1"]);
    fake.put("hv1", OWNER, DomainState::Running, Vec::new());
    fake.on("hv1", |machine| machine.domains.get_mut(&name()).unwrap().domain.owner = OTHER.to_owned());
    assert_eq!(get(&fake, &ctx(), &at("hv1")).unwrap_err().code, ErrorCode::Conflict);
}

#[test]
fn a_listing_has_all_and_a_gap_for_what_it_cannot_see() {
    let fake = Fake::new(&["hv1", "hv2", "hv3"]);
    fake.put("hv1", OWNER, DomainState::Running, Vec::new());
    half(&fake, "hv1", OWNER);
    half(&fake, "hv3", OTHER);
    fake.on("hv2", |machine| machine.down = Some(unreachable()));
    let page = list(&fake, None, None).unwrap();
    let seen: Vec<_> = page.instances.iter().map(|i| (i.id.as_str(), i.phase, i.reason.as_str())).collect();
    let other = at("hv3").id.replace(OWNER, OTHER);
    // One that runs without a lease is running: it may have an address that only its agent tells.
    assert_eq!(
        seen,
        [(at("hv1").id.as_str(), Phase::Running, "WaitingForAddress"), (&other, Phase::Provisioning, "DomainMissing")]
    );
    assert_eq!(page.gaps.len(), 1);
    assert_eq!((page.gaps[0].id_prefix.as_str(), &page.gaps[0].error), ("hosts/hv2/", &unreachable()));
    assert_eq!(page.next, None);

    let page = list(&fake, Some(OTHER), None).unwrap();
    assert_eq!(page.instances.iter().map(|i| i.id.as_str()).collect::<Vec<_>>(), [other]);
    assert_eq!(page.gaps.len(), 1);
}

#[test]
fn volumes_that_cannot_be_seen_are_a_gap() {
    let fake = Fake::new(&["hv1"]);
    fake.put("hv1", OWNER, DomainState::Running, Vec::new());
    fake.on("hv1", |machine| machine.refuse.insert("list-volumes", Error::unavailable("PoolBusy", "busy")));
    let page = list(&fake, None, None).unwrap();
    assert_eq!((page.instances.len(), page.gaps.len()), (0, 1));
}

#[test]
fn the_cost_does_not_grow_and_pages_break_between_hosts() {
    let fake = Fake::new(&["hv1", "hv2", "hv3"]);
    for host in ["hv1", "hv2", "hv3"] {
        for n in 0..900 {
            fake.put(host, &format!("6f1a2b3c-0000-4000-8000-{n:012}"), DomainState::Running, Vec::new());
        }
    }
    let first = list(&fake, None, None).unwrap();
    assert_eq!((first.instances.len(), first.next.as_deref()), (1_800, Some("hv3")));
    fake.with(|state| assert_eq!(state.calls.len(), 6));
    let second = list(&fake, None, Some("hv3")).unwrap();
    assert_eq!((second.instances.len(), second.next), (900, None));
    assert_eq!(list(&fake, None, Some("hv9")).unwrap_err().code, ErrorCode::Unavailable);
}

#[test]
fn a_host_with_too_many_is_a_gap_and_no_absence() {
    let fake = Fake::new(&["hv1"]);
    for n in 0..2_001 {
        half(&fake, "hv1", &format!("6f1a2b3c-0000-4000-8000-{n:012}"));
    }
    let page = list(&fake, None, None).unwrap();
    assert_eq!((page.instances.len(), page.gaps.len()), (0, 1));
}
