use proxy_operator_sdk::libvirt::DomainState;
use proxy_operator_sdk::{Deletion, Error, ErrorCode, InstanceRef, Phase};

use super::fake::{Content, Cut, Fake, unreachable};
use super::{OWNER, at, config, ctx, name, spec};
use crate::create::create;
use crate::delete::delete;

fn made() -> Fake {
    let fake = Fake::new(&["hv1"]);
    create(&fake, &ctx(), &config(), &at("hv1"), &spec()).unwrap();
    fake.with(|state| state.calls.clear());
    fake
}

fn assert_empty(fake: &Fake) {
    fake.on("hv1", |machine| assert!(machine.domains.is_empty() && machine.volumes.is_empty()));
}

#[test]
fn all_of_an_instance_goes() {
    let fake = made();
    let spare = ("spare".to_owned(), format!("{}.seed.img", name()));
    fake.on("hv1", |machine| machine.volumes.insert(spare, Content::Torn));
    assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done);
    assert_empty(&fake);
    assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done, "what is absent is deleted");
}

#[test]
fn a_deletion_goes_on_after_every_interruption() {
    let whole = made();
    delete(&whole, &ctx(), &at("hv1")).unwrap();
    let calls = whole.with(|state| state.calls.len());
    for cut in [Cut::Before, Cut::After] {
        for call in 0..calls {
            let fake = made();
            fake.cut(call, cut);
            delete(&fake, &ctx(), &at("hv1")).unwrap_err();
            fake.with(|state| state.fuse = None);
            assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done);
            assert_empty(&fake);
        }
    }
}

#[test]
fn what_is_in_use_is_pending() {
    for (function, reason) in [("undefine-domain", "DomainRunning"), ("delete-volume", "VolumeInUse")] {
        let fake = made();
        fake.on("hv1", |machine| machine.refuse.insert(function, Error::unavailable(reason, "in use")));
        let Deletion::Pending(instance) = delete(&fake, &ctx(), &at("hv1")).unwrap() else { panic!("{function}") };
        assert_eq!((instance.phase, instance.reason.as_str()), (Phase::Deleting, reason));
        fake.on("hv1", |machine| machine.refuse.clear());
        assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done);
    }
}

#[test]
fn done_is_only_what_is_seen_to_be_absent() {
    let fake = made();
    fake.on("hv1", |machine| machine.down = Some(unreachable()));
    assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap_err(), unreachable());
}

#[test]
fn a_host_that_is_not_granted_is_abandoned_and_a_foreign_id_is_done() {
    let fake = made();
    let Deletion::Abandoned(sentence) = delete(&fake, &ctx(), &at("hv2")).unwrap() else { panic!("not abandoned") };
    assert!(sentence.contains("hv2") && sentence.contains(&name()), "{sentence}");
    for id in ["", "zones/a/instances/b", "hosts/hv1/domains/router"] {
        let foreign = InstanceRef { id: id.to_owned(), ..at("hv1") };
        assert_eq!(delete(&fake, &ctx(), &foreign).unwrap(), Deletion::Done);
    }
    fake.with(|state| assert!(state.calls.is_empty()));
}

#[test]
fn the_instance_of_another_owner_is_not_touched() {
    let fake = made();
    let owner = "6f1a2b3c-0000-4000-8000-000000000002".to_owned();
    let error = delete(&fake, &ctx(), &InstanceRef { owner, ..at("hv1") }).unwrap_err();
    assert_eq!(error.code, ErrorCode::Conflict);
    fake.with(|state| assert!(state.calls.is_empty()));
}

#[test]
fn a_stranger_that_took_the_name_does_not_keep_the_object() {
    let fake = Fake::new(&["hv1"]);
    fake.on("hv1", |machine| machine.refuse.insert("lookup-domain", Error::conflict("NameTaken", "a stranger")));
    assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done);
}

#[test]
fn volumes_without_a_domain_go_too() {
    let fake = made();
    fake.on("hv1", |machine| machine.domains.clear());
    assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done);
    assert_empty(&fake);
    fake.put("hv1", OWNER, DomainState::Paused, Vec::new());
    assert_eq!(delete(&fake, &ctx(), &at("hv1")).unwrap(), Deletion::Done);
}
