//! The life of a Proxy: one decision a turn, and what its outcome means.
//!
//! ```text
//!             no finalizer         no id             id recorded
//!  (applied) ───────────▶ AddFinalizer ──▶ Place ───────────────▶ Create ◀──────────────┐
//!                                           ▲                       │  provisioning: poll │
//!                          place is full or │                       │  stopped, vanished  │
//!                          instance failed  │                       ▼                     │
//!                                 Delete ◀──┴── exhausted, failed ── running, has an endpoint
//!                                                                   │                     │
//!                                                                   ▼                     │
//!                                               Probe ◀──────▶ Wait(until) ◀──────▶ Get ──┘
//!
//!  (deletion asked for, at any point)
//!    no id recorded ─────────────────────────────────▶ RemoveFinalizer
//!    skip-cleanup ────▶ event: what is left where ───▶ RemoveFinalizer
//!    else Delete ──▶ pending: poll · error: backoff · done or abandoned ──▶ RemoveFinalizer
//! ```
//!
//! [`decide`] looks at a [`Snapshot`] and names one [`Step`]. The operator runs it and hands the [`Outcome`] to
//! [`fold`], which gives the new status and the new [`Memory`]. A step that makes or removes something is decided only
//! from what is recorded: the finalizer before the id, the id before the instance, its absence before the finalizer
//! falls. Hence a crash between any two steps costs a repetition and never an instance.

mod conditions;
mod decide;
mod fold;
mod intervals;
#[cfg(test)]
mod tests;

use ipnet::IpNet;
use jiff::Timestamp;
use proxy_operator_api::Proxy;
use proxy_operator_api::proxy::Phase;

use crate::error::{Error, Result};
use crate::probe;
use crate::provider::{Deletion, Instance, InstanceRef};

pub use conditions::{HEALTHY, PROVISIONED, READY};
pub use decide::decide;
pub use fold::fold;

/// All that a decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Snapshot<'a> {
    /// The object as the store has it.
    pub proxy: &'a Proxy,
    /// What is wrong with its spec, or with a Secret that the spec names.
    pub inputs: &'a Result<()>,
    /// Its Provider.
    pub provider: &'a ProviderView,
    /// What this process knows beside the store.
    pub memory: &'a Memory,
    /// The time.
    pub now: Timestamp,
}

/// What a Proxy has to know of its Provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProviderView {
    /// There is no Provider of that name.
    Absent,
    /// It is there and no plugin serves it.
    NotServing {
        /// Why: the reason of its condition `Loaded`.
        reason: String,
        /// The same for people.
        message: String,
    },
    /// A plugin serves.
    Serving {
        /// Grows with every change of plugin, config, grants or secrets.
        epoch: u64,
        /// Nothing is made or replaced.
        paused: bool,
        /// Where endpoints may lie; empty: anywhere but loopback and link-local.
        endpoints: Vec<IpNet>,
    },
}

/// What one process knows of a Proxy beside the store. Losing it costs calls, never correctness.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The instance as it was last seen.
    pub seen: Option<Instance>,
    /// When.
    pub seen_at: Option<Timestamp>,
    /// Failures of place and create.
    pub making: Attempts,
    /// Failures of get.
    pub looking: Attempts,
    /// Failures of delete.
    pub removing: Attempts,
    /// The instance is to go, and another to come.
    pub discard: Option<Discard>,
    /// The instance is known to be absent: the finalizer may fall.
    pub gone: bool,
    /// What the probes found.
    pub probes: probe::History,
}

/// Failures of one kind of call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    /// In a row.
    pub failures: u32,
    /// The last one, while it stands in the way.
    pub last: Option<Failure>,
}

/// A failure that stands in the way of the next attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Why.
    pub error: Error,
    /// When it was.
    pub at: Timestamp,
    /// When the next attempt is due.
    pub retry_at: Timestamp,
    /// The generation of the Proxy that failed.
    pub generation: Option<i64>,
    /// The epoch of the Provider that failed.
    pub epoch: Option<u64>,
}

/// Why an instance is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Discard {
    /// Its place turned out to be full.
    Full,
    /// It will not work any more.
    Failed,
}

/// Why an instance is deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// Its Proxy is being deleted.
    Removed,
    /// It is being replaced.
    Replaced(Discard),
}

/// The one thing that a Proxy needs next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Add the finalizer.
    AddFinalizer,
    /// Ask the provider for a place, and record the id.
    Place {
        /// Ids that were tried and were full.
        avoid: Vec<String>,
    },
    /// Make the instance, or go on making it.
    Create(InstanceRef),
    /// Look at the instance.
    Get(InstanceRef),
    /// Send a request through the proxy at this endpoint (`host:port`).
    Probe(String),
    /// Delete the instance, or go on deleting it.
    Delete(InstanceRef, DeleteReason),
    /// Let the object go.
    RemoveFinalizer {
        /// What may be left on the infrastructure, and where.
        abandoned: Option<String>,
    },
    /// Nothing, until a time or an event.
    Wait(Wait),
    /// Nothing more: the object is released.
    Nothing,
}

/// Why nothing is done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// One CamelCase word.
    pub reason: String,
    /// What is waited for, for people.
    pub message: String,
    /// When to look again at the latest; `None`: when something changes.
    pub until: Option<Timestamp>,
    /// What the status has to say of it; `None`: it says what is so already.
    pub phase: Option<Phase>,
}

/// What became of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Of [`Step::Place`].
    Placed(Result<String>),
    /// Of [`Step::Create`].
    Created(Result<Instance>),
    /// Of [`Step::Get`], or of a listing that saw everything where the instance would be.
    Got(Result<Instance>),
    /// Of [`Step::Delete`].
    Deleted(DeleteReason, Result<Deletion>),
    /// Of [`Step::Probe`]: the endpoint and what was found.
    Probed(String, probe::Report),
    /// Of [`Step::Wait`].
    Waited(Wait),
}

/// Something that a user wants to know when it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Whether something is amiss.
    pub warning: bool,
    /// One CamelCase word.
    pub reason: String,
    /// The same for people.
    pub message: String,
}

/// What an outcome means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The new status; equal to the old one when nothing changed in meaning.
    pub status: proxy_operator_api::ProxyStatus,
    /// The new memory.
    pub memory: Memory,
    /// What to tell.
    pub events: Vec<Event>,
    /// Whether the Provider's health should be looked at now.
    pub check_provider: bool,
}

// === impl Event ===

impl Event {
    fn normal(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: false, reason: reason.to_owned(), message: message.into() }
    }

    fn warning(reason: &str, message: impl Into<String>) -> Self {
        Self { warning: true, reason: reason.to_owned(), message: message.into() }
    }
}

// === impl ProviderView ===

impl ProviderView {
    const fn epoch(&self) -> Option<u64> {
        match self {
            Self::Serving { epoch, .. } => Some(*epoch),
            Self::Absent | Self::NotServing { .. } => None,
        }
    }
}

// === impl Snapshot ===

impl Snapshot<'_> {
    /// The recorded identity of the instance.
    fn instance(&self) -> Option<InstanceRef> {
        let status = self.proxy.status.as_ref()?;
        Some(InstanceRef {
            id: status.provider_id.clone()?,
            owner: self.proxy.metadata.uid.clone()?,
            private_state: status.provider_state.clone(),
        })
    }
}
