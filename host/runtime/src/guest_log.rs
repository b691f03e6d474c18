//! A guest's log lines on their way to the host's log: bounded, escaped, limited in rate.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use tracing::Level;

use crate::limits;
use crate::watch::Watch;

/// The lines that the guests of one Provider may still write: a bucket that fills with time.
pub(crate) struct LogRate(Mutex<Bucket>);

struct Bucket {
    lines: f64,
    filled: Instant,
}

/// Whether a line of this level would be kept.
pub(crate) fn enabled(level: Level) -> bool {
    // The level is part of a callsite, hence one for each.
    match level {
        Level::TRACE => tracing::enabled!(target: "plugin", Level::TRACE),
        Level::DEBUG => tracing::enabled!(target: "plugin", Level::DEBUG),
        Level::INFO => tracing::enabled!(target: "plugin", Level::INFO),
        Level::WARN => tracing::enabled!(target: "plugin", Level::WARN),
        Level::ERROR => tracing::enabled!(target: "plugin", Level::ERROR),
    }
}

/// Writes one line. The span of the call adds provider, plugin, call and Proxy.
pub(crate) fn write(watch: &Watch, level: Level, message: &str, fields: &[(String, String)]) {
    let mut line = watch.text(message, limits::LOG_MESSAGE);
    for (key, value) in fields.iter().take(limits::LOG_FIELDS) {
        let (key, value) = (watch.text(key, limits::LOG_KEY), watch.text(value, limits::LOG_VALUE));
        let _ = match value.contains([' ', '"', '=']) || value.is_empty() {
            true => write!(line, " {key}={value:?}"),
            false => write!(line, " {key}={value}"),
        };
    }
    watch.logged(&line);
    if !enabled(level) {
        return;
    }
    if !watch.rate.take() {
        watch.dropped_line();
        return;
    }
    match level {
        Level::TRACE => tracing::trace!(target: "plugin", "{line}"),
        Level::DEBUG => tracing::debug!(target: "plugin", "{line}"),
        Level::INFO => tracing::info!(target: "plugin", "{line}"),
        Level::WARN => tracing::warn!(target: "plugin", "{line}"),
        Level::ERROR => tracing::error!(target: "plugin", "{line}"),
    }
}

/// Says how many lines a call lost to the rate.
pub(crate) fn say_dropped(watch: &Watch) {
    let dropped = watch.dropped_lines();
    if dropped > 0 {
        tracing::warn!(target: "plugin", dropped, "log lines over the rate of {} a second were dropped", limits::LOG_RATE);
    }
}

// === impl LogRate ===

impl LogRate {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Bucket { lines: limits::LOG_BURST, filled: Instant::now() }))
    }

    /// Takes one line, if one is left.
    fn take(&self) -> bool {
        let mut bucket = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let filled = now.duration_since(bucket.filled).as_secs_f64() * limits::LOG_RATE;
        bucket.lines = (bucket.lines + filled).min(limits::LOG_BURST);
        bucket.filled = now;
        let left = bucket.lines >= 1.0;
        if left {
            bucket.lines -= 1.0;
        }
        left
    }
}
