//! The one vocabulary of errors, from a capability through a plugin to the condition on an object.
//!
//! It mirrors `types.error` of the WIT package; every version of the interface is lifted to it.

use std::fmt;
use std::time::Duration;

/// What an error means for the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ErrorCode {
    /// The instance is absent. Next: make it again, or finish the deletion.
    NotFound,
    /// The name is taken by something that is not ours. Next: stop and show.
    Conflict,
    /// This Proxy cannot work here. Next: wait for its spec to change.
    InvalidProxy,
    /// Its place is no longer configured. Next: wait for the Provider to change; deletion is tried all the same.
    Unresolvable,
    /// The Provider is configured wrongly. Next: a health check at once; wait for config, grants or secrets to change.
    InvalidConfig,
    /// The backend did not accept our credentials, or there are none. Next: a health check at once; look again slowly.
    Unauthenticated,
    /// The backend or the host's policy forbids it. Next: as [`ErrorCode::Unauthenticated`].
    PermissionDenied,
    /// No capacity. Next: another place, then slow exponential retry.
    Exhausted,
    /// Transient. Next: exponential retry with jitter.
    Unavailable,
    /// Time ran out. Next: as [`ErrorCode::Unavailable`].
    DeadlineExceeded,
    /// A fault of the plugin or of the host. Next: retry with backoff; repeated ones open the breaker.
    Internal,
}

/// What a backend itself said, unchanged: for people, never for decisions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    /// The error's name: `VIR_ERR_NO_DOMAIN`, `AlreadyExists`.
    pub code: String,
    /// Its number, where it has one.
    pub number: Option<i32>,
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Decides what happens next.
    pub code: ErrorCode,
    /// One CamelCase word for a condition or a metric, at most 64 bytes.
    pub reason: String,
    /// What failed, where, with which value, and what to do about it. Never a secret, never user-data.
    pub message: String,
    /// The backend's own words, where a backend was asked.
    pub backend: Option<BackendError>,
    /// The backend asked for this much peace.
    pub retry_after: Option<Duration>,
}

/// The result of a capability or a provider.
pub type Result<T> = std::result::Result<T, Error>;

// === impl ErrorCode ===

impl ErrorCode {
    /// The code as the documents and the metrics write it: `invalid-config`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Conflict => "conflict",
            Self::InvalidProxy => "invalid-proxy",
            Self::Unresolvable => "unresolvable",
            Self::InvalidConfig => "invalid-config",
            Self::Unauthenticated => "unauthenticated",
            Self::PermissionDenied => "permission-denied",
            Self::Exhausted => "exhausted",
            Self::Unavailable => "unavailable",
            Self::DeadlineExceeded => "deadline-exceeded",
            Self::Internal => "internal",
        }
    }

    /// Whether the same call may succeed later though nobody changes anything.
    pub const fn is_transient(self) -> bool {
        matches!(self, Self::Unavailable | Self::DeadlineExceeded | Self::Exhausted | Self::Internal)
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// === impl Error ===

impl Error {
    /// An error without words of a backend.
    pub fn new(code: ErrorCode, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), message: message.into(), backend: None, retry_after: None }
    }

    /// Adds what the backend said.
    #[must_use]
    pub fn with_backend(mut self, code: impl Into<String>, number: Option<i32>) -> Self {
        self.backend = Some(BackendError { code: code.into(), number });
        self
    }

    /// A fault of the plugin or of the host.
    pub fn internal(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, reason, message)
    }

    /// Something transient.
    pub fn unavailable(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unavailable, reason, message)
    }

    /// A fault in the Provider's config, grants or secrets.
    pub fn invalid_config(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidConfig, reason, message)
    }

    /// A refusal by policy or backend.
    pub fn permission_denied(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::PermissionDenied, reason, message)
    }

    /// A deadline that passed.
    pub fn deadline_exceeded(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorCode::DeadlineExceeded, reason, message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.backend {
            Some(BackendError { code, number: Some(number) }) => write!(f, " ({code}, {number})"),
            Some(BackendError { code, number: None }) => write!(f, " ({code})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
