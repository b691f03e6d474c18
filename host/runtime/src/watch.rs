//! What the host knows of a call from outside of its store: what it waits for, what it said last, what was denied.
//!
//! A call that runs out of time is dropped together with its store; its error is made from this.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::limits;
use crate::redact::Redactor;
use crate::{bounds, guest_log::LogRate};

/// Shared by a call, its store and its host functions.
pub(crate) struct Watch {
    /// Takes the call's secrets out of what the guest says.
    redactor: Redactor,
    /// The rate of log lines, shared by the calls of a Provider.
    pub(crate) rate: Arc<LogRate>,
    /// Ticks in which the guest computed.
    ticks: AtomicU32,
    seen: Mutex<Seen>,
}

/// What was seen of a call.
#[derive(Default)]
struct Seen {
    waiting: Option<Waiting>,
    /// A wait has ended since the last tick: that tick was not the guest's.
    waited: bool,
    last_words: Option<String>,
    stderr: VecDeque<u8>,
    tail: VecDeque<String>,
    denied: Option<String>,
    dropped_lines: u64,
}

/// A host call that has not returned.
#[derive(Clone)]
pub(crate) struct Waiting {
    /// Which: `libvirt.info of hv1`.
    pub(crate) what: String,
    /// Since when.
    pub(crate) since: Instant,
}

/// Ends a [`Waiting`] when it is dropped.
pub(crate) struct WaitGuard(Arc<Watch>);

// === impl Watch ===

impl Watch {
    pub(crate) fn new(redactor: Redactor, rate: Arc<LogRate>) -> Arc<Self> {
        Arc::new(Self { redactor, rate, ticks: AtomicU32::new(0), seen: Mutex::default() })
    }

    /// A host call begins.
    pub(crate) fn wait(self: &Arc<Self>, what: String) -> WaitGuard {
        self.seen().waiting = Some(Waiting { what, since: Instant::now() });
        WaitGuard(Arc::clone(self))
    }

    /// The host call that has not returned.
    pub(crate) fn waiting(&self) -> Option<Waiting> {
        self.seen().waiting.clone()
    }

    /// The guest was met computing; for how long in all.
    pub(crate) fn tick(&self) -> Duration {
        let waited = std::mem::take(&mut self.seen().waited);
        if !waited {
            self.ticks.fetch_add(1, Ordering::Relaxed);
        }
        self.computed()
    }

    /// For how long the guest computed, in ticks.
    pub(crate) fn computed(&self) -> Duration {
        limits::TICK * self.ticks.load(Ordering::Relaxed)
    }

    /// A text of the guest: without secrets, in one line, cut.
    pub(crate) fn text(&self, text: &str, most: usize) -> String {
        // What cannot be kept is not looked at: a text may be as large as the guest's memory.
        let head = bounds::cut(text, most.saturating_mul(2));
        bounds::cut(&bounds::escape(&self.redactor.clean(&head)), most)
    }

    /// A line of the guest's log, already clean.
    pub(crate) fn logged(&self, line: &str) {
        let mut seen = self.seen();
        if seen.tail.len() == limits::TAIL_LINES {
            seen.tail.pop_front();
        }
        seen.tail.push_back(bounds::cut(line, limits::TAIL_LINE));
    }

    /// The last lines of the guest's log.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.seen().tail.iter().cloned().collect()
    }

    /// A line was not written, since its Provider writes too many.
    pub(crate) fn dropped_line(&self) {
        self.seen().dropped_lines += 1;
    }

    /// How many lines were not written.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.seen().dropped_lines
    }

    /// The guest's last words.
    pub(crate) fn fatal(&self, words: &str) {
        let words = self.text(words, limits::LAST_WORDS);
        self.seen().last_words = Some(words);
    }

    /// The guest wrote to its standard error, of which the end is kept.
    pub(crate) fn stderr(&self, bytes: &[u8]) {
        let kept = limits::LAST_WORDS / 2;
        let mut seen = self.seen();
        seen.stderr.extend(bytes.iter().skip(bytes.len().saturating_sub(kept)));
        let surplus = seen.stderr.len().saturating_sub(kept);
        seen.stderr.drain(..surplus);
    }

    /// The guest's last words, if it had any: what it called them, else the end of its standard error.
    pub(crate) fn last_words(&self) -> Option<String> {
        let seen = self.seen();
        if seen.last_words.is_some() {
            return seen.last_words.clone();
        }
        let stderr: Vec<u8> = seen.stderr.iter().copied().collect();
        drop(seen);
        let words = self.text(String::from_utf8_lossy(&stderr).trim(), limits::LAST_WORDS);
        (!words.is_empty()).then_some(words)
    }

    /// A limit refused the guest something.
    pub(crate) fn denied(&self, what: String) {
        self.seen().denied = Some(what);
    }

    /// What a limit refused last.
    pub(crate) fn denial(&self) -> Option<String> {
        self.seen().denied.clone()
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // Nothing that holds it can leave it half changed.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl WaitGuard ===

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut seen = self.0.seen();
        seen.waiting = None;
        seen.waited = true;
    }
}
