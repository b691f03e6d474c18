//! What the error of a call says that did not return: which plugin, what it did, its last words.

use std::fmt;
use std::time::{Duration, Instant};

use proxy_operator_core::error::Error;
use wasmtime::Trap;

use crate::bounds;
use crate::limits;
use crate::watch::Watch;

/// How wasmtime's error begins, whose type is private, when a guest hands over more than the store allows.
const TOO_MUCH: &str = "too much data is being copied between the host and the guest";

/// The host ended a guest.
#[derive(Debug)]
pub(crate) struct Ended {
    reason: &'static str,
    why: String,
}

/// Which plugin it was, for people: `kvm 0.1.0 (sha256:0123456789ab)`.
#[derive(Clone, Debug)]
pub(crate) struct Identity(pub(crate) String);

// === impl Ended ===

impl Ended {
    /// It did what it may not.
    pub(crate) fn trapped(why: String) -> Self {
        Self { reason: "PluginTrapped", why }
    }

    /// It computed for too long.
    pub(crate) fn timed_out(why: String) -> Self {
        Self { reason: "PluginTimedOut", why }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for Ended {}

/// The error of a call whose guest trapped, or was ended by the host.
pub(crate) fn trapped(plugin: &Identity, method: &str, error: &wasmtime::Error, watch: &Watch) -> Error {
    tracing::debug!(target: "plugin", error = %bounds::escape(&format!("{error:?}")), "trap");
    if let Some(full) = error.downcast_ref::<wasmtime::PoolConcurrencyLimitError>() {
        return Error::unavailable("HostOverloaded", format!("no room for another guest: {full}"));
    }
    let ended = error.downcast_ref::<Ended>();
    let trap = error.downcast_ref::<Trap>();
    let (reason, why) = match (ended, trap, watch.denial()) {
        (Some(ended), _, _) => (ended.reason, ended.why.clone()),
        (None, Some(Trap::Interrupt), _) => ("PluginTimedOut", "it was interrupted".to_owned()),
        (None, None, _) if error.root_cause().to_string().contains(TOO_MUCH) => {
            ("ResultTooLarge", format!("it handed over more data than {} MiB", limits::HOSTCALL_BYTES >> 20))
        }
        (None, _, Some(denied)) => ("MemoryExceeded", denied),
        (None, Some(Trap::StackOverflow), None) => {
            ("PluginTrapped", "its stack overflowed (endless recursion?)".to_owned())
        }
        // Compilers put the stack of a guest where its end is the end of its memory.
        (None, Some(Trap::MemoryOutOfBounds), None) => {
            ("PluginTrapped", "it left its memory (endless recursion, or a stray pointer)".to_owned())
        }
        (None, Some(trap), None) => ("PluginTrapped", trap.to_string()),
        (None, None, None) => ("PluginTrapped", watch.text(&error.root_cause().to_string(), limits::LAST_WORDS)),
    };
    Error::internal(reason, report(&format!("plugin {} failed in {method}: {why}", plugin.0), watch))
}

/// The error of a call that ran out of time: the guest's fault when it computed, the backend's when it waited.
pub(crate) fn timed_out(plugin: &Identity, method: &str, timeout: Duration, watch: &Watch) -> Error {
    let seconds = |d: Duration| format!("{:.1} s", d.as_secs_f64());
    let late = format!("plugin {} did not end {method} within {}", plugin.0, seconds(timeout));
    match watch.waiting() {
        Some(waiting) => {
            let waited = seconds(Instant::now().duration_since(waiting.since));
            let message = format!("{late}: the host has been busy with {} for {waited}", waiting.what);
            Error::deadline_exceeded("CallTimedOut", bounds::cut(&message, limits::MESSAGE))
        }
        None => {
            let computed = seconds(watch.computed());
            Error::internal("PluginTimedOut", report(&format!("{late}, of which it computed {computed}"), watch))
        }
    }
}

/// The text, and what the guest said before it ended.
fn report(what: &str, watch: &Watch) -> String {
    let mut report = what.to_owned();
    if let Some(words) = watch.last_words() {
        report.push_str("; last words: ");
        report.push_str(&words);
    }
    let tail = watch.tail();
    if !tail.is_empty() {
        report.push_str("; end of its log: ");
        report.push_str(&tail.join(" | "));
    }
    bounds::cut(&report, limits::MESSAGE)
}
