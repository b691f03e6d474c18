//! How often the life of a Proxy is looked at.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Between two looks at an instance that is being made: progress is seen, and a call costs a few RPCs.
pub(super) const PROVISIONING_POLL: Duration = Duration::from_secs(3);
/// Between two looks at an instance that is being deleted.
pub(super) const DELETING_POLL: Duration = Duration::from_secs(2);
/// Between two looks at an instance of which the backend knows nothing.
pub(super) const UNKNOWN_POLL: Duration = Duration::from_secs(15);
/// Between two looks at a spec whose Secret is missing or wrong.
pub(super) const INPUTS_RECHECK: Duration = Duration::from_secs(5);
/// How old the last sight of an instance may be before it is looked at by itself. The listing of its Provider (once a
/// minute) is younger unless it fails or has a gap.
pub(super) const SIGHT_MAX_AGE: Duration = Duration::from_secs(150);
/// How long an instance may take to get an address before its Proxy is shown as failed. It is looked at further.
/// A first boot without acceleration takes minutes; a large image over a slow line takes its own time before.
pub(super) const PROVISIONING_DEADLINE: Duration = Duration::from_secs(20 * 60);

/// A time after another one; the far future when it cannot be written.
pub(super) fn after(time: Timestamp, wait: Duration) -> Timestamp {
    SignedDuration::try_from(wait).ok().and_then(|wait| time.checked_add(wait).ok()).unwrap_or(Timestamp::MAX)
}
