//! What a Proxy needs next.

use jiff::Timestamp;
use proxy_operator_api::condition::{self, ConditionStatus};
use proxy_operator_api::proxy::Phase;
use proxy_operator_api::{FINALIZER, SKIP_CLEANUP};

use super::conditions::PROVISIONED;
use super::intervals::{DELETING_POLL, INPUTS_RECHECK, PROVISIONING_POLL, SIGHT_MAX_AGE, UNKNOWN_POLL, after};
use super::{Attempts, DeleteReason, ProviderView, Snapshot, Step, Wait};
use crate::error::ErrorCode;
use crate::provider::{self, InstanceRef};

/// Names the one step that a Proxy needs next.
pub fn decide(snapshot: &Snapshot<'_>) -> Step {
    let finalizers = snapshot.proxy.metadata.finalizers.as_deref().unwrap_or_default();
    let is_held = finalizers.iter().any(|finalizer| finalizer == FINALIZER);
    if snapshot.proxy.metadata.deletion_timestamp.is_some() {
        return if is_held { remove(snapshot) } else { Step::Nothing };
    }
    let ProviderView::Serving { paused, .. } = snapshot.provider else {
        return no_provider(snapshot);
    };
    if let Err(error) = snapshot.inputs {
        // A Secret that appears is seen by looking.
        let until = after(snapshot.now, INPUTS_RECHECK);
        return wait(&error.reason, &error.to_string(), Some(until), Some(Phase::Failed));
    }
    if !is_held {
        return Step::AddFinalizer;
    }
    let paused = *paused || snapshot.proxy.spec.paused;
    let Some(instance) = snapshot.instance() else {
        return make(snapshot, paused, Step::Place { avoid: full_places(snapshot) });
    };
    if let Some(discard) = snapshot.memory.discard {
        return unless_blocked(snapshot, &snapshot.memory.removing, || {
            Step::Delete(instance, DeleteReason::Replaced(discard))
        });
    }
    if is_provisioned(snapshot) { keep(snapshot, paused, instance) } else { bring_up(snapshot, paused, instance) }
}

/// The steps of a Proxy that is being deleted.
fn remove(snapshot: &Snapshot<'_>) -> Step {
    let annotations = snapshot.proxy.metadata.annotations.as_ref();
    let is_skipped = annotations.and_then(|all| all.get(SKIP_CLEANUP)).is_some_and(|value| value == "true");
    let Some(instance) = snapshot.instance() else {
        return Step::RemoveFinalizer { abandoned: None };
    };
    if is_skipped {
        let provider = &snapshot.proxy.spec.provider;
        return Step::RemoveFinalizer {
            abandoned: Some(format!("{} of Provider {provider} is left as it is, as {SKIP_CLEANUP} asks", instance.id)),
        };
    }
    if snapshot.memory.gone {
        return Step::RemoveFinalizer { abandoned: None };
    }
    if !matches!(snapshot.provider, ProviderView::Serving { .. }) {
        let Step::Wait(mut waiting) = no_provider(snapshot) else { return Step::Nothing };
        waiting.phase = Some(Phase::Deleting);
        waiting.message = format!(
            "{}; {} cannot be deleted without it (the annotation {SKIP_CLEANUP}: \"true\" leaves it behind)",
            waiting.message, instance.id
        );
        return Step::Wait(waiting);
    }
    let pending = snapshot.memory.seen.as_ref().zip(snapshot.memory.seen_at);
    if let Some((seen, seen_at)) = pending
        && seen.phase == provider::Phase::Deleting
        && snapshot.now < after(seen_at, DELETING_POLL)
    {
        let until = after(seen_at, DELETING_POLL);
        return wait(&seen.reason, &seen.message, Some(until), None);
    }
    unless_blocked(snapshot, &snapshot.memory.removing, || Step::Delete(instance, DeleteReason::Removed))
}

/// The wait for a Provider that is absent or does not serve.
fn no_provider(snapshot: &Snapshot<'_>) -> Step {
    let name = &snapshot.proxy.spec.provider;
    // What serves its clients goes on doing so: the phase of a proxy that is there stays.
    let phase = (!is_provisioned(snapshot)).then_some(Phase::Pending);
    match snapshot.provider {
        ProviderView::NotServing { reason, message } => {
            wait(reason, &format!("Provider {name} does not serve: {message}"), None, phase)
        }
        ProviderView::Absent | ProviderView::Serving { .. } => wait(
            "ProviderNotFound",
            &format!("there is no Provider {name}; apply it, or name another in spec.provider"),
            None,
            phase,
        ),
    }
}

/// The steps of a Proxy whose instance is not there yet, or not usable.
fn bring_up(snapshot: &Snapshot<'_>, paused: bool, instance: InstanceRef) -> Step {
    let memory = snapshot.memory;
    if let Some((seen, seen_at)) = memory.seen.as_ref().zip(memory.seen_at) {
        match seen.phase {
            provider::Phase::Deleting | provider::Phase::Unknown => {
                return look(snapshot, instance, after(seen_at, UNKNOWN_POLL), &seen.reason, &seen.message);
            }
            provider::Phase::Provisioning | provider::Phase::Running if memory.making.last.is_none() => {
                let until = after(seen_at, PROVISIONING_POLL);
                if snapshot.now < until {
                    return wait(&seen.reason, &seen.message, Some(until), None);
                }
            }
            _ => {}
        }
    }
    make(snapshot, paused, Step::Create(instance))
}

/// The steps of a Proxy whose instance runs and has an endpoint.
fn keep(snapshot: &Snapshot<'_>, paused: bool, instance: InstanceRef) -> Step {
    let memory = snapshot.memory;
    let Some((seen, seen_at)) = memory.seen.as_ref().zip(memory.seen_at) else {
        return look(snapshot, instance, snapshot.now, "", "");
    };
    if seen.phase == provider::Phase::Stopped {
        return make(snapshot, paused, Step::Create(instance));
    }
    let poll = if seen.phase == provider::Phase::Running { SIGHT_MAX_AGE } else { UNKNOWN_POLL };
    let look_at = after(seen_at, poll);
    if snapshot.now >= look_at && !is_blocked(snapshot, &memory.looking) {
        return Step::Get(instance);
    }
    let endpoint = snapshot.proxy.status.as_ref().and_then(|status| status.endpoint.clone());
    let Some(endpoint) = endpoint else {
        return wait(&seen.reason, &seen.message, Some(look_at), None);
    };
    let look_at = if snapshot.now < look_at {
        Some(look_at)
    } else {
        memory.looking.last.as_ref().map(|failure| failure.retry_at)
    };
    match memory.probes.next_at(&snapshot.proxy.spec.probe) {
        Some(probe_at) if snapshot.now < probe_at => {
            let until = look_at.map_or(probe_at, |look_at| look_at.min(probe_at));
            wait("NextProbe", "the next probe", Some(until), None)
        }
        _ => Step::Probe(endpoint),
    }
}

/// A step that makes something: not while paused, nor before an earlier failure lets it.
fn make(snapshot: &Snapshot<'_>, paused: bool, step: Step) -> Step {
    if paused {
        let phase = (!is_provisioned(snapshot)).then_some(Phase::Pending);
        return wait("Paused", "spec.paused of the Proxy or its Provider is true", None, phase);
    }
    unless_blocked(snapshot, &snapshot.memory.making, || step)
}

/// A look at the instance, no earlier than a time nor than an earlier failure lets it.
fn look(snapshot: &Snapshot<'_>, instance: InstanceRef, at: Timestamp, reason: &str, message: &str) -> Step {
    if snapshot.now < at {
        return wait(reason, message, Some(at), None);
    }
    unless_blocked(snapshot, &snapshot.memory.looking, || Step::Get(instance))
}

fn unless_blocked(snapshot: &Snapshot<'_>, attempts: &Attempts, step: impl FnOnce() -> Step) -> Step {
    match &attempts.last {
        Some(failure) if is_blocked(snapshot, attempts) => {
            wait(&failure.error.reason, &failure.error.to_string(), Some(failure.retry_at), None)
        }
        _ => step(),
    }
}

/// Whether an earlier failure still stands in the way: its time has not come, and nothing has changed that could mend
/// it.
fn is_blocked(snapshot: &Snapshot<'_>, attempts: &Attempts) -> bool {
    let Some(failure) = &attempts.last else { return false };
    let is_changed =
        failure.generation != snapshot.proxy.metadata.generation || failure.epoch != snapshot.provider.epoch();
    // A change of object or Provider cannot end a stockout or an outage.
    let is_mended = is_changed && !matches!(failure.error.code, ErrorCode::Unavailable | ErrorCode::DeadlineExceeded);
    snapshot.now < failure.retry_at && !is_mended
}

fn full_places(snapshot: &Snapshot<'_>) -> Vec<String> {
    snapshot.proxy.status.as_ref().map(|status| status.full_places.clone()).unwrap_or_default()
}

fn is_provisioned(snapshot: &Snapshot<'_>) -> bool {
    let status = snapshot.proxy.status.as_ref();
    status
        .and_then(|status| condition::find(&status.conditions, PROVISIONED))
        .is_some_and(|condition| condition.status == ConditionStatus::True)
}

fn wait(reason: &str, message: &str, until: Option<Timestamp>, phase: Option<Phase>) -> Step {
    Step::Wait(Wait { reason: reason.to_owned(), message: message.to_owned(), until, phase })
}
