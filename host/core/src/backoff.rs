//! How long to wait before the same thing is tried again.

use std::time::Duration;

use crate::error::{Error, ErrorCode};

/// A first delay that doubles with each failure up to a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// After the first failure.
    pub first: Duration,
    /// The most.
    pub most: Duration,
}

/// Transient faults: a hypervisor that restarts is back in seconds.
pub const TRANSIENT: Backoff = Backoff { first: Duration::from_secs(2), most: Duration::from_secs(60) };

/// Capacity: stockouts last for hours or days, and asking costs quota.
pub const EXHAUSTED: Backoff = Backoff { first: Duration::from_secs(30), most: Duration::from_secs(15 * 60) };

/// Faults of a plugin or the host: repeating one quickly helps nobody.
pub const INTERNAL: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_secs(5 * 60) };

/// What somebody has to change. A change that the operator sees ends the wait at once; the recheck is for what it
/// cannot see (a host key added on a disk, a pool made by hand).
pub const CHANGE_NEEDED: Backoff = Backoff { first: Duration::from_secs(30), most: Duration::from_secs(2 * 60) };

/// A name that a stranger holds: looked at again, in case the stranger leaves.
pub const CONFLICT: Backoff = Backoff { first: Duration::from_secs(60), most: Duration::from_secs(10 * 60) };

// === impl Backoff ===

impl Backoff {
    /// The schedule for an error.
    pub const fn of(code: ErrorCode) -> Self {
        match code {
            ErrorCode::NotFound | ErrorCode::Unavailable | ErrorCode::DeadlineExceeded => TRANSIENT,
            ErrorCode::Exhausted => EXHAUSTED,
            ErrorCode::Internal => INTERNAL,
            ErrorCode::Conflict => CONFLICT,
            ErrorCode::InvalidProxy
            | ErrorCode::Unresolvable
            | ErrorCode::InvalidConfig
            | ErrorCode::Unauthenticated
            | ErrorCode::PermissionDenied => CHANGE_NEEDED,
        }
    }

    /// The delay after a number of failures in a row (1 is the first), with jitter: between three quarters and five
    /// quarters of the nominal delay. `jitter` is drawn by the caller from 0 to 1.
    pub fn delay(self, failures: u32, jitter: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(20);
        let nominal = self.first.saturating_mul(1_u32 << doublings).min(self.most);
        nominal.mul_f64(0.75 + jitter.clamp(0.0, 1.0) / 2.0)
    }
}

/// The delay after an error, at least what the backend asked for.
pub fn delay(error: &Error, failures: u32, jitter: f64) -> Duration {
    let own = Backoff::of(error.code).delay(failures, jitter);
    error.retry_after.map_or(own, |asked| own.max(asked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_bound() {
        let nominal = |failures| TRANSIENT.delay(failures, 0.5).as_secs();
        assert_eq!([1, 2, 3, 6, 60, u32::MAX].map(nominal), [2, 4, 8, 60, 60, 60]);
    }

    #[test]
    fn jitter_spreads_a_fleet() {
        assert_eq!(EXHAUSTED.delay(1, 0.0), Duration::from_millis(22_500));
        assert_eq!(EXHAUSTED.delay(1, 1.0), Duration::from_millis(37_500));
    }

    #[test]
    fn a_backend_that_asks_for_peace_gets_it() {
        let mut error = Error::unavailable("RateLimited", "slow down");
        error.retry_after = Some(Duration::from_secs(120));
        assert_eq!(delay(&error, 1, 0.5), Duration::from_secs(120));
    }
}
