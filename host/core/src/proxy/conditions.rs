//! The conditions and the phase of a Proxy.

use jiff::Timestamp;
use proxy_operator_api::ProxyStatus;
use proxy_operator_api::condition::{self, Condition, ConditionStatus};
use proxy_operator_api::proxy::Phase;

/// The instance runs and has an endpoint.
pub const PROVISIONED: &str = "Provisioned";
/// A request through the proxy gets its answer, and one without credentials is refused.
pub const HEALTHY: &str = "Healthy";
/// Both.
pub const READY: &str = "Ready";

/// Sets a condition.
pub(super) fn set(
    status: &mut ProxyStatus,
    now: Timestamp,
    type_: &str,
    holds: ConditionStatus,
    reason: &str,
    message: &str,
) {
    let condition = Condition {
        type_: type_.to_owned(),
        status: holds,
        // The API wants a reason that is not empty.
        reason: if reason.is_empty() { "Unknown".to_owned() } else { reason.to_owned() },
        message: message.to_owned(),
        last_transition_time: seconds(now),
        observed_generation: status.observed_generation,
    };
    condition::set(&mut status.conditions, condition);
}

/// Whether a condition holds.
pub(super) fn status_of(status: &ProxyStatus, type_: &str) -> Option<ConditionStatus> {
    condition::find(&status.conditions, type_).map(|condition| condition.status)
}

/// Derives `Ready` from the other two, and the phase from all; `stuck`: nothing goes on until somebody changes
/// something.
pub(super) fn derive(status: &mut ProxyStatus, now: Timestamp, stuck: bool) {
    let provisioned = condition::find(&status.conditions, PROVISIONED).cloned();
    let healthy = condition::find(&status.conditions, HEALTHY).cloned();
    let was_ready = status.phase == Phase::Ready || status.phase == Phase::Unhealthy;
    let is_provisioned = provisioned.as_ref().is_some_and(|condition| condition.status == ConditionStatus::True);
    let is_healthy = healthy.as_ref().is_some_and(|condition| condition.status == ConditionStatus::True);
    let cause = if is_provisioned { healthy } else { provisioned };
    let (reason, message) = cause.map(|cause| (cause.reason, cause.message)).unwrap_or_default();
    set(status, now, READY, ConditionStatus::from(is_provisioned && is_healthy), &reason, &message);
    status.phase = match (is_provisioned, is_healthy) {
        (true, true) => Phase::Ready,
        (true, false) if was_ready => Phase::Unhealthy,
        (false, _) if stuck => Phase::Failed,
        (false, _) if status.provider_id.is_none() => Phase::Pending,
        _ => Phase::Provisioning,
    };
}

/// A time without fractions, as the API writes it.
fn seconds(time: Timestamp) -> String {
    Timestamp::from_second(time.as_second()).unwrap_or(time).to_string()
}
