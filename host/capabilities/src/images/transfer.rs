//! The state of each transfer, and who may ask for it.
//!
//! ```text
//!              asked                     whole, in the pool
//!   (unknown) ───────▶ running ────────────────────────────▶ ready
//!       ▲                │  ▲                                  │
//!       │      cancelled │  │ asked, its time has come         │ volume or marker has gone
//!       ├────────────────┤  │                                  │
//!       │                └─▶ failed                            │
//!       └──────────────────────────────────────────────────────┘
//! ```
//!
//! A transfer is one image (key, URL, digest) in one pool under one policy. A change of any of them is another
//! transfer, which begins at once; a failed one is left in peace for a time that grows with its failures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use proxy_operator_core::capability::images::{BaseImage, Transfer};
use proxy_operator_core::error::{Error, ErrorCode};
use rand::RngExt;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::limits::{ImageLimits, TRANSFERS_MAX};
use super::prefix::Prefixes;
use super::progress::{Phase, Progress};
use super::source::Request;

/// What a Provider may download.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Policy {
    /// The Provider that a denial names. Two Providers never share a failure.
    pub provider: String,
    /// From where.
    pub prefixes: Prefixes,
    /// The most bytes of a download and of a virtual disk.
    pub max_bytes: u64,
}

/// Which transfer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The hypervisor, as its pools name it.
    pub hypervisor: String,
    /// The pool.
    pub pool: String,
    /// The image.
    pub request: Request,
    /// Under which grant.
    pub policy: Arc<Policy>,
}

/// A transfer that goes on.
pub struct Running {
    /// Where to, as the asker calls it: `hv1/default`.
    pub place: String,
    /// Ends it.
    pub cancelled: CancellationToken,
    progress: Mutex<Arc<Progress>>,
    over: watch::Sender<bool>,
}

/// What is known of a transfer.
#[derive(Clone)]
pub enum State {
    /// It goes on.
    Running(Arc<Running>),
    /// It failed.
    Failed {
        /// Why.
        error: Error,
        /// When it is tried again.
        until: Instant,
        /// How often in a row.
        attempts: u32,
    },
    /// It is over, and well.
    Ready(BaseImage),
}

/// All transfers of a process.
#[derive(Default)]
pub struct Table(Mutex<HashMap<Key, State>>);

// === impl Running ===

impl Running {
    /// A transfer to this place.
    pub fn new(place: String) -> Arc<Self> {
        Arc::new(Self {
            place,
            cancelled: CancellationToken::new(),
            progress: Mutex::default(),
            over: watch::Sender::new(false),
        })
    }

    /// Shows this progress from now on.
    pub fn watch(&self, progress: Arc<Progress>) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner) = progress;
    }

    /// Wakes those who wait for it.
    pub fn end(&self) {
        self.over.send_replace(true);
    }

    /// Waits for its end, not longer than this.
    pub async fn ended_within(&self, time: Duration) -> bool {
        let mut over = self.over.subscribe();
        tokio::time::timeout(time, over.wait_for(|over| *over)).await.is_ok()
    }

    /// How far it is, for those who ask.
    pub fn transfer(&self, request: &Request) -> Transfer {
        let progress = Arc::clone(&*self.progress.lock().unwrap_or_else(PoisonError::into_inner));
        let (phase, percent, place) = (progress.phase(), progress.percent(), &self.place);
        let what = match phase {
            Phase::Queued => format!("image {request} waits for its turn to get to {place}"),
            Phase::Downloading => format!("downloading image {request} for {place}"),
            Phase::Verifying => format!("verifying image {request} for {place}"),
            Phase::Waiting => format!("waiting for another upload of image {request} to {place}"),
            Phase::Uploading => format!("uploading image {request} to {place}"),
        };
        let message = match (percent, progress.done()) {
            (Some(percent), _) => format!("{what}, {percent} %"),
            (None, bytes) if bytes > 0 => format!("{what}, {} MiB", bytes >> 20),
            (None, _) => what,
        };
        Transfer { reason: phase.reason().to_owned(), message, percent }
    }
}

// === impl Table ===

impl Table {
    /// What is known, or a new transfer where nothing is or a failed one's time has come; `start` is told of it, with
    /// the number of failures before.
    pub fn enter(&self, key: &Key, place: &str, start: impl FnOnce(Arc<Running>, u32)) -> State {
        let mut all = self.lock();
        let attempts = match all.get(key) {
            Some(State::Failed { until, attempts, .. }) if *until <= Instant::now() => *attempts,
            Some(known) => return known.clone(),
            None => 0,
        };
        if all.len() >= TRANSFERS_MAX {
            all.retain(|_, state| matches!(state, State::Running(_)));
        }
        let running = Running::new(place.to_owned());
        all.insert(key.clone(), State::Running(Arc::clone(&running)));
        // Under the lock: whoever asks next finds it.
        start(Arc::clone(&running), attempts);
        State::Running(running)
    }

    /// What is known.
    pub fn get(&self, key: &Key) -> Option<State> {
        self.lock().get(key).cloned()
    }

    /// A transfer is over. `None`: nothing is known any more.
    pub fn end(&self, key: &Key, running: &Arc<Running>, state: Option<State>) {
        let mut all = self.lock();
        if matches!(all.get(key), Some(State::Running(current)) if Arc::ptr_eq(current, running)) {
            match state {
                Some(state) => drop(all.insert(key.clone(), state)),
                None => drop(all.remove(key)),
            }
        }
        drop(all);
        running.end();
    }

    /// Forgets an image that turned out to be gone.
    pub fn forget(&self, key: &Key, image: &BaseImage) {
        let mut all = self.lock();
        if matches!(all.get(key), Some(State::Ready(known)) if known == image) {
            all.remove(key);
        }
    }

    /// Ends the transfers that nobody may have any more, and forgets their failures.
    pub fn retain(&self, is_granted: impl Fn(&Key) -> bool) {
        self.lock().retain(|key, state| {
            let keep = is_granted(key);
            if let (State::Running(running), false) = (&state, keep) {
                running.cancelled.cancel();
                running.end();
            }
            keep
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, State>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why a transfer failed, and where.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The pool could not be asked what it holds.
    Asking(Error),
    /// What was asked for could not be brought.
    Bringing(Error),
}

impl Failure {
    /// The error, how long the transfer is left in peace after so many failures in a row, and how many they are now.
    pub fn into_error(self, attempts: u32, limits: &ImageLimits) -> (Error, Duration, u32) {
        match self {
            Self::Asking(error) => {
                let asked = error.retry_after.unwrap_or_default();
                (error, limits.retry_asking.max(asked.min(limits.retry_transient)), attempts)
            }
            Self::Bringing(error) => {
                let wait = peace(&error, attempts, limits);
                (error, wait, attempts.saturating_add(1))
            }
        }
    }
}

/// How long a failed transfer is left in peace: twice as long each time, half of it by chance, and at least what the
/// server asked for.
fn peace(error: &Error, attempts: u32, limits: &ImageLimits) -> Duration {
    let (first, most) = match error.code {
        ErrorCode::Unavailable | ErrorCode::DeadlineExceeded | ErrorCode::Internal => {
            (limits.retry_transient, limits.retry_transient_most)
        }
        _ => (limits.retry_permanent, limits.retry_permanent_most),
    };
    let whole = first.saturating_mul(1 << attempts.min(16)).min(most);
    let jittered = whole.mul_f64(rand::rng().random_range(0.5..=1.0));
    error.retry_after.map_or(jittered, |asked| asked.max(jittered))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peace_grows_with_failures_and_differs_by_kind() {
        let limits = ImageLimits::default();
        let transient = Error::unavailable("ImageServerUnavailable", "x");
        let permanent = Error::invalid_config("ImageNotFound", "x");
        for _ in 0..50 {
            let first = peace(&transient, 0, &limits);
            assert!(first >= limits.retry_transient / 2 && first <= limits.retry_transient, "{first:?}");
            assert!(peace(&transient, 3, &limits) >= limits.retry_transient * 4);
            assert!(peace(&transient, u32::MAX, &limits) <= limits.retry_transient_most);
            assert!(peace(&permanent, 0, &limits) >= limits.retry_permanent / 2);
        }
        let asked = Error { retry_after: Some(Duration::from_secs(1000)), ..transient };
        assert_eq!(peace(&asked, 0, &limits), Duration::from_secs(1000));
    }
}
