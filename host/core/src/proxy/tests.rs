//! The life of a Proxy, turn by turn: no clock, no store, no provider but what a test says.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proxy_operator_api::condition::{self, ConditionStatus};
use proxy_operator_api::proxy::{Phase, ProxySpec};
use proxy_operator_api::{FINALIZER, Proxy, SKIP_CLEANUP};

use super::intervals::after;
use super::*;
use crate::error::ErrorCode;
use crate::probe::{Finding, Report};
use crate::provider::{self, Address, AddressSource, Endpoint};

const ID: &str = "hosts/hv1/domains/px-1";

struct Life {
    proxy: Proxy,
    provider: ProviderView,
    inputs: Result<()>,
    memory: Memory,
    now: Timestamp,
    events: Vec<Event>,
    health_checks: u32,
}

fn life() -> Life {
    let mut proxy = Proxy::new("crawl-1", ProxySpec { provider: "kvm-home".into(), ..ProxySpec::default() });
    proxy.metadata.namespace = Some("default".into());
    proxy.metadata.uid = Some("u1".into());
    proxy.metadata.generation = Some(1);
    Life {
        proxy,
        provider: ProviderView::Serving { epoch: 1, paused: false, endpoints: vec![] },
        inputs: Ok(()),
        memory: Memory::default(),
        now: Timestamp::UNIX_EPOCH,
        events: vec![],
        health_checks: 0,
    }
}

fn instance(phase: provider::Phase, address: Option<&str>) -> Instance {
    Instance {
        id: ID.into(),
        owner: "u1".into(),
        phase,
        reason: String::new(),
        message: String::new(),
        error: None,
        percent: None,
        endpoint: address.map(|host| Endpoint { host: host.into(), port: None }),
        egress_address: None,
        addresses: address
            .map(|host| Address { host: host.into(), source: AddressSource::Lease })
            .into_iter()
            .collect(),
        created_at: None,
        private_state: None,
    }
}

fn running() -> Instance {
    instance(provider::Phase::Running, Some("192.0.2.7"))
}

fn error(code: ErrorCode) -> Error {
    Error::new(code, "Because", "it is so")
}

fn report(finding: Finding) -> Report {
    Report { finding, latency: Duration::ZERO, egress: None }
}

impl Life {
    fn step(&self) -> Step {
        decide(&self.snapshot())
    }

    fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            proxy: &self.proxy,
            inputs: &self.inputs,
            provider: &self.provider,
            memory: &self.memory,
            now: self.now,
        }
    }

    fn fold(&mut self, outcome: Outcome) -> &mut Self {
        let turn = fold(&self.snapshot(), outcome, 0.5);
        self.proxy.status = Some(turn.status);
        self.memory = turn.memory;
        self.events.extend(turn.events);
        self.health_checks += u32::from(turn.check_provider);
        self
    }

    fn pass(&mut self, seconds: u64) -> &mut Self {
        self.now = after(self.now, Duration::from_secs(seconds));
        self
    }

    fn hold(&mut self) -> &mut Self {
        self.proxy.metadata.finalizers = Some(vec![FINALIZER.into()]);
        self
    }

    fn delete(&mut self) -> &mut Self {
        self.proxy.metadata.deletion_timestamp = Some(Time(self.now));
        self
    }

    /// Held, placed.
    fn placed() -> Self {
        let mut life = life();
        life.hold().fold(Outcome::Placed(Ok(ID.into())));
        life
    }

    /// Held, placed, made, answering.
    fn ready() -> Self {
        let mut life = Self::placed();
        life.fold(Outcome::Created(Ok(running())));
        let endpoint = life.endpoint();
        life.fold(Outcome::Probed(endpoint, report(Finding::Answers)));
        assert_eq!(life.phase(), Phase::Ready);
        life
    }

    fn restart(&mut self) -> &mut Self {
        self.memory = Memory::default();
        self
    }

    fn status(&self) -> &proxy_operator_api::ProxyStatus {
        self.proxy.status.as_ref().expect("has a status")
    }

    fn phase(&self) -> Phase {
        self.status().phase
    }

    fn endpoint(&self) -> String {
        self.status().endpoint.clone().expect("has an endpoint")
    }

    fn condition(&self, type_: &str) -> (ConditionStatus, &str) {
        let condition = condition::find(&self.status().conditions, type_).expect("has the condition");
        (condition.status, condition.reason.as_str())
    }

    fn wait_reason(&self) -> String {
        match self.step() {
            Step::Wait(waiting) => waiting.reason,
            other => panic!("does not wait: {other:?}"),
        }
    }
}

#[test]
fn the_finalizer_comes_before_the_place_and_the_id_before_the_instance() {
    let mut life = life();
    assert_eq!(life.step(), Step::AddFinalizer);
    life.hold();
    assert_eq!(life.step(), Step::Place { avoid: vec![] });
    life.fold(Outcome::Placed(Ok(ID.into())));
    assert_eq!(life.status().provider_id.as_deref(), Some(ID));
    assert!(matches!(life.step(), Step::Create(instance) if instance.id == ID && instance.owner == "u1"));
}

#[test]
fn an_instance_on_its_way_is_polled_and_shown() {
    let mut life = Life::placed();
    let mut uploading = instance(provider::Phase::Provisioning, None);
    uploading.reason = "ImageUploading".into();
    uploading.message = "uploading image debian-12, 42 %".into();
    life.fold(Outcome::Created(Ok(uploading)));
    assert_eq!(life.phase(), Phase::Provisioning);
    assert_eq!(life.condition(READY), (ConditionStatus::False, "ImageUploading"));
    assert_eq!(life.wait_reason(), "ImageUploading");
    life.pass(3);
    assert!(matches!(life.step(), Step::Create(_)));
}

#[test]
fn a_running_instance_is_ready_once_it_answers() {
    let mut life = Life::placed();
    life.fold(Outcome::Created(Ok(running())));
    assert_eq!(life.endpoint(), "192.0.2.7:3128");
    assert_eq!(life.phase(), Phase::Provisioning);
    assert_eq!(life.step(), Step::Probe("192.0.2.7:3128".into()));
    life.fold(Outcome::Probed("192.0.2.7:3128".into(), report(Finding::Refused("refused".into()))));
    assert_eq!(life.phase(), Phase::Provisioning, "it may still be booting");
    assert!(life.events.iter().all(|event| event.reason != "ConnectionRefused"), "silence while booting is no news");
    life.pass(3).fold(Outcome::Probed("192.0.2.7:3128".into(), report(Finding::Answers)));
    assert_eq!((life.phase(), life.condition(READY).0), (Phase::Ready, ConditionStatus::True));
}

#[test]
fn after_a_restart_a_ready_proxy_is_looked_at_and_not_made() {
    let mut life = Life::ready();
    life.restart();
    assert!(matches!(life.step(), Step::Get(_)));
    life.fold(Outcome::Got(Ok(running())));
    assert_eq!(life.phase(), Phase::Ready);
}

#[test]
fn after_a_restart_a_proxy_on_its_way_is_made_on() {
    let mut life = Life::placed();
    life.fold(Outcome::Created(Ok(instance(provider::Phase::Provisioning, None))));
    life.restart();
    assert!(matches!(life.step(), Step::Create(_)));
}

#[test]
fn deleted_out_of_band_is_an_event_and_a_fresh_bootstrap() {
    let mut life = Life::ready();
    life.fold(Outcome::Got(Err(error(ErrorCode::NotFound))));
    assert!(life.events.iter().any(|event| event.warning && event.reason == "InstanceVanished"));
    assert!(matches!(life.step(), Step::Create(_)));
    assert_ne!(life.phase(), Phase::Ready);
}

#[test]
fn one_that_served_and_is_on_its_way_again_is_an_event() {
    let mut life = Life::ready();
    let on_its_way = Instance { reason: "DomainMissing".into(), ..instance(provider::Phase::Provisioning, None) };
    life.fold(Outcome::Got(Ok(on_its_way.clone())));
    life.fold(Outcome::Got(Ok(on_its_way)));
    assert_eq!(life.events.iter().filter(|event| event.reason == "DomainMissing").count(), 1, "{:?}", life.events);
    assert!(matches!(life.pass(3).step(), Step::Create(_)));
}

#[test]
fn nothing_is_created_under_a_deletion_timestamp() {
    for mut life in [life(), Life::placed(), Life::ready()] {
        life.delete().restart();
        assert!(!matches!(life.step(), Step::Create(_) | Step::Place { .. } | Step::AddFinalizer));
        life.fold(Outcome::Got(Err(error(ErrorCode::NotFound))));
        assert!(!matches!(life.step(), Step::Create(_) | Step::Place { .. }));
    }
}

#[test]
fn the_finalizer_falls_only_after_absence_is_confirmed() {
    let mut life = Life::ready();
    life.delete();
    assert!(matches!(life.step(), Step::Delete(_, DeleteReason::Removed)));
    let pending = Deletion::Pending(Box::new(running()));
    life.fold(Outcome::Deleted(DeleteReason::Removed, Ok(pending)));
    assert_eq!(life.phase(), Phase::Deleting);
    assert!(matches!(life.step(), Step::Wait(_)));
    life.pass(2);
    assert!(matches!(life.step(), Step::Delete(..)));
    life.fold(Outcome::Deleted(DeleteReason::Removed, Err(error(ErrorCode::Unavailable))));
    assert!(matches!(life.step(), Step::Wait(_)));
    life.pass(60).fold(Outcome::Deleted(DeleteReason::Removed, Ok(Deletion::Done)));
    assert_eq!(life.step(), Step::RemoveFinalizer { abandoned: None });
}

#[test]
fn what_was_never_made_is_released_whatever_is_wrong() {
    let mut life = life();
    life.hold().delete();
    life.inputs = Err(error(ErrorCode::InvalidProxy));
    life.provider = ProviderView::Absent;
    assert_eq!(life.step(), Step::RemoveFinalizer { abandoned: None });
}

#[test]
fn an_unreadable_spec_does_not_block_deletion() {
    let mut life = Life::ready();
    life.inputs = Err(error(ErrorCode::InvalidProxy));
    life.delete();
    assert!(matches!(life.step(), Step::Delete(..)));
}

#[test]
fn skip_cleanup_frees_a_proxy_whose_provider_is_gone() {
    let mut life = Life::ready();
    life.provider = ProviderView::Absent;
    life.delete();
    assert_eq!(life.wait_reason(), "ProviderNotFound");
    life.proxy.metadata.annotations = Some([(SKIP_CLEANUP.to_owned(), "true".to_owned())].into());
    assert!(matches!(life.step(), Step::RemoveFinalizer { abandoned: Some(what) } if what.contains(ID)));
}

#[test]
fn a_full_place_is_emptied_before_the_next_is_tried() {
    let mut life = Life::placed();
    life.fold(Outcome::Created(Err(error(ErrorCode::Exhausted))));
    assert!(matches!(life.step(), Step::Delete(_, DeleteReason::Replaced(Discard::Full))));
    life.fold(Outcome::Deleted(DeleteReason::Replaced(Discard::Full), Ok(Deletion::Done)));
    assert_eq!(life.step(), Step::Place { avoid: vec![ID.into()] });
    life.fold(Outcome::Placed(Err(error(ErrorCode::Exhausted))));
    assert!(matches!(life.step(), Step::Wait(_)));
    life.pass(30);
    assert_eq!(life.step(), Step::Place { avoid: vec![] }, "all places are looked at again");
}

#[test]
fn an_instance_that_fails_again_and_again_is_no_storm() {
    let mut life = Life::placed();
    let mut waits = vec![];
    for _ in 0..4 {
        let mut failed = instance(provider::Phase::Failed, None);
        failed.error = Some(error(ErrorCode::Unavailable));
        life.fold(Outcome::Created(Ok(failed)));
        assert!(matches!(life.step(), Step::Delete(_, DeleteReason::Replaced(Discard::Failed))));
        life.fold(Outcome::Deleted(DeleteReason::Replaced(Discard::Failed), Ok(Deletion::Done)));
        let Step::Wait(Wait { until: Some(until), .. }) = life.step() else { panic!("tries at once") };
        waits.push(until.as_second() - life.now.as_second());
        life.now = until;
        life.fold(Outcome::Placed(Ok(ID.into())));
    }
    assert_eq!(waits, [2, 4, 8, 16]);
}

#[test]
fn a_fault_of_the_spec_waits_for_a_change_and_not_for_the_clock() {
    let mut life = life();
    life.hold().fold(Outcome::Placed(Err(error(ErrorCode::InvalidProxy))));
    assert_eq!((life.phase(), life.wait_reason().as_str()), (Phase::Failed, "Because"));
    life.proxy.metadata.generation = Some(2);
    assert!(matches!(life.step(), Step::Place { .. }));
}

#[test]
fn a_fault_of_the_provider_asks_for_a_health_check_and_heals_when_it_changes() {
    let mut life = life();
    life.hold().fold(Outcome::Placed(Err(error(ErrorCode::InvalidConfig))));
    assert_eq!(life.health_checks, 1);
    assert!(matches!(life.step(), Step::Wait(_)));
    life.provider = ProviderView::Serving { epoch: 2, paused: false, endpoints: vec![] };
    assert!(matches!(life.step(), Step::Place { .. }));
}

#[test]
fn a_place_that_is_no_longer_configured_is_not_a_missing_instance() {
    let mut life = Life::ready();
    life.restart().fold(Outcome::Got(Err(error(ErrorCode::Unresolvable))));
    assert_eq!(life.condition(PROVISIONED), (ConditionStatus::Unknown, "Because"));
    assert!(!matches!(life.step(), Step::Place { .. }));
    life.delete();
    assert!(matches!(life.step(), Step::Delete(..)), "deletion is tried all the same");
}

#[test]
fn a_strangers_name_stops_and_shows() {
    let mut life = Life::placed();
    life.fold(Outcome::Created(Err(error(ErrorCode::Conflict))));
    assert_eq!(life.phase(), Phase::Failed);
    let Step::Wait(Wait { until: Some(until), .. }) = life.step() else { panic!("goes on") };
    assert!(until.as_second() >= 60);
}

#[test]
fn a_backend_that_cannot_be_asked_leaves_a_serving_proxy_ready() {
    let mut life = Life::ready();
    life.pass(150).fold(Outcome::Got(Err(error(ErrorCode::Unavailable))));
    assert_eq!(life.phase(), Phase::Ready);
    assert!(matches!(life.step(), Step::Probe(_)));
}

#[test]
fn the_last_known_address_stands_until_it_is_contradicted() {
    let mut life = Life::ready();
    life.fold(Outcome::Got(Ok(instance(provider::Phase::Running, None))));
    assert_eq!((life.endpoint().as_str(), life.phase()), ("192.0.2.7:3128", Phase::Ready));
    life.fold(Outcome::Got(Ok(instance(provider::Phase::Running, Some("192.0.2.8")))));
    assert_eq!((life.endpoint().as_str(), life.phase()), ("192.0.2.8:3128", Phase::Unhealthy));
    assert_eq!(life.condition(HEALTHY), (ConditionStatus::Unknown, "NotProbed"));
}

#[test]
fn a_stopped_instance_is_started() {
    let mut life = Life::ready();
    life.fold(Outcome::Got(Ok(instance(provider::Phase::Stopped, None))));
    assert!(matches!(life.step(), Step::Create(_)));
}

#[test]
fn an_unhealthy_proxy_needs_failures_in_a_row() {
    let mut life = Life::ready();
    for failures in 1..=3 {
        assert_eq!(life.phase(), Phase::Ready, "after {} failures", failures - 1);
        life.fold(Outcome::Probed("192.0.2.7:3128".into(), report(Finding::Silent("timeout".into()))));
    }
    assert_eq!((life.phase(), life.condition(READY)), (Phase::Unhealthy, (ConditionStatus::False, "ProxySilent")));
}

#[test]
fn a_probe_that_ends_after_deletion_began_changes_nothing() {
    let mut life = Life::ready();
    life.delete();
    let before = life.proxy.status.clone();
    let turn = fold(&life.snapshot(), Outcome::Probed("192.0.2.7:3128".into(), report(Finding::Open)), 0.5);
    assert_eq!(turn.memory, life.memory);
    assert_eq!(turn.status.conditions, before.expect("has a status").conditions);
}

#[test]
fn an_answer_that_says_the_same_changes_no_status() {
    let mut life = Life::ready();
    let before = life.status().clone();
    life.pass(60).fold(Outcome::Got(Ok(running())));
    life.pass(60).fold(Outcome::Probed("192.0.2.7:3128".into(), report(Finding::Answers)));
    assert_eq!(*life.status(), before);
}

#[test]
fn paused_stops_making_and_not_deleting() {
    let mut life = Life::placed();
    life.proxy.spec.paused = true;
    assert_eq!(life.wait_reason(), "Paused");
    life.delete();
    assert!(matches!(life.step(), Step::Delete(..)));
}

#[test]
fn an_endpoint_on_loopback_counts_only_when_it_is_named() {
    let mut life = Life::placed();
    let local = instance(provider::Phase::Running, Some("127.0.0.1"));
    life.fold(Outcome::Created(Ok(local.clone())));
    assert_eq!(life.condition(PROVISIONED), (ConditionStatus::False, "EndpointDenied"));
    let endpoints = vec!["127.0.0.0/8".parse().expect("a net")];
    life.provider = ProviderView::Serving { epoch: 2, paused: false, endpoints };
    life.fold(Outcome::Created(Ok(local)));
    assert_eq!(life.condition(PROVISIONED).0, ConditionStatus::True);
}

#[test]
fn a_wait_for_an_address_is_bounded() {
    let mut life = Life::placed();
    life.fold(Outcome::Created(Ok(instance(provider::Phase::Running, None))));
    assert_eq!(life.phase(), Phase::Provisioning);
    life.pass(21 * 60).fold(Outcome::Created(Ok(instance(provider::Phase::Running, None))));
    assert_eq!(life.phase(), Phase::Failed);
    assert!(matches!(life.pass(3).step(), Step::Create(_)), "it is looked at further");
}
