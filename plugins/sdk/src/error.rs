//! One constructor for each code of an error, so that the code is always chosen and never forgotten.

use crate::{BackendError, Error, ErrorCode, Fault};

/// Ends the function with an error: `fail!(InvalidProxy, "ImageUnknown", "spec.image: \"{image}\" is unknown")`.
///
/// The code is a variant of [`ErrorCode`], the reason one CamelCase word, the rest as for `format!`.
#[macro_export]
macro_rules! fail {
    ($code:ident, $reason:expr, $($message:tt)+) => {
        return ::core::result::Result::Err($crate::Error::new($crate::ErrorCode::$code, $reason, ::std::format!($($message)+)))
    };
}

macro_rules! constructors {
    ($($(#[$doc:meta])* $name:ident => $code:ident;)+) => {
        impl Error {
            $($(#[$doc])*
            pub fn $name(reason: impl Into<String>, message: impl Into<String>) -> Self {
                Self::new(ErrorCode::$code, reason, message)
            })+
        }
    };
}

constructors! {
    /// The instance is known to be absent. For `get` alone.
    not_found => NotFound;
    /// The name is taken by what is not ours.
    conflict => Conflict;
    /// This Proxy cannot work here until its spec changes.
    invalid_proxy => InvalidProxy;
    /// The id's place is no longer configured.
    unresolvable => Unresolvable;
    /// The Provider's config, grants or secrets are wrong.
    invalid_config => InvalidConfig;
    /// The backend did not accept the credentials, or there are none yet.
    unauthenticated => Unauthenticated;
    /// The backend or a policy forbids it.
    permission_denied => PermissionDenied;
    /// No capacity here.
    exhausted => Exhausted;
    /// Transient.
    unavailable => Unavailable;
    /// Time ran out.
    deadline_exceeded => DeadlineExceeded;
    /// A fault of the plugin.
    internal => Internal;
}

impl Error {
    /// An error without words of a backend. The message says what failed, where, with which value, and what to do
    /// about it; it never holds a secret or user-data.
    pub fn new(code: ErrorCode, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), backend: None, retry_after_seconds: None }
    }

    /// Adds what the backend itself said.
    #[must_use]
    pub fn with_backend(mut self, code: impl Into<String>, number: Option<i32>) -> Self {
        self.backend = Some(BackendError { code: code.into(), number });
        self
    }

    /// Asks the operator to wait at least this long before it calls again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }
}

impl Fault {
    /// A fault in the config. The path is a JSON Pointer; the message says which value is wrong and what would be
    /// right.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        Self::invalid_config("ConfigInvalid", format!("config{}: {}", fault.path, fault.message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(image: &str) -> crate::Result<()> {
        fail!(InvalidProxy, "ImageUnknown", "spec.image: \"{image}\" is unknown")
    }

    #[test]
    fn fail_formats_and_returns() {
        let error = refuse("x").unwrap_err();
        assert_eq!(error, Error::invalid_proxy("ImageUnknown", "spec.image: \"x\" is unknown"));
    }
}
