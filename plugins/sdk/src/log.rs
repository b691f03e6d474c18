//! Lines in the operator's log. The operator adds time, provider, Proxy and call; never write a secret or user-data.
//!
//! ```
//! use proxy_operator_sdk::log;
//! log::info("domain started", &[("host", &"hv1"), ("vcpus", &2)]);
//! ```

use std::fmt::Display;

pub use crate::bindings::proxy_operator::provider::log::Level;

/// A line at trace level: whole documents, for a developer.
pub fn trace(message: &str, fields: &[(&str, &dyn Display)]) {
    line(Level::Trace, message, fields);
}

/// A line at debug level: each step.
pub fn debug(message: &str, fields: &[(&str, &dyn Display)]) {
    line(Level::Debug, message, fields);
}

/// A line at info level: what an operator of the cluster wants to know when all is well.
pub fn info(message: &str, fields: &[(&str, &dyn Display)]) {
    line(Level::Info, message, fields);
}

/// A line at warn level: something is amiss and was dealt with.
pub fn warn(message: &str, fields: &[(&str, &dyn Display)]) {
    line(Level::Warn, message, fields);
}

/// A line at error level: the call fails for it.
pub fn error(message: &str, fields: &[(&str, &dyn Display)]) {
    line(Level::Error, message, fields);
}

/// Whether a line of this level would be kept.
pub fn enabled(level: Level) -> bool {
    imp::enabled(level)
}

/// Lets a panic's message reach the error of the trap that follows it.
pub fn install_panic_hook() {
    imp::install_panic_hook();
}

fn line(level: Level, message: &str, fields: &[(&str, &dyn Display)]) {
    if enabled(level) {
        let fields: Vec<(String, String)> = fields.iter().map(|(k, v)| ((*k).to_owned(), v.to_string())).collect();
        imp::line(level, message, &fields);
    }
}

#[cfg(target_family = "wasm")]
mod imp {
    use super::Level;
    use crate::bindings::proxy_operator::provider::log;

    pub(super) fn enabled(level: Level) -> bool {
        log::enabled(level)
    }

    pub(super) fn line(level: Level, message: &str, fields: &[(String, String)]) {
        log::log(level, message, fields);
    }

    pub(super) fn install_panic_hook() {
        std::panic::set_hook(Box::new(|panic| log::fatal(&panic.to_string())));
    }
}

/// Under `cargo test` the lines go to standard error, where a test that fails shows them.
#[cfg(not(target_family = "wasm"))]
mod imp {
    use super::Level;

    pub(super) fn enabled(_: Level) -> bool {
        true
    }

    #[allow(clippy::print_stderr)]
    pub(super) fn line(level: Level, message: &str, fields: &[(String, String)]) {
        let fields: String = fields.iter().map(|(k, v)| format!(" {k}={v}")).collect();
        eprintln!("{level:?} {message}{fields}");
    }

    pub(super) fn install_panic_hook() {}
}
