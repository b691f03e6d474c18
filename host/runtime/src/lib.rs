//! The component engine: load, limit, call and swap provider plugins.
//!
//! ```text
//! bytes ─▶ version ─▶ compile or cache ─▶ link ─▶ describe ─▶ Plugin          (one for each build)
//! Plugin + Context + Capabilities ─▶ schema ─▶ validate ─▶ LoadedProvider     (one for each Provider object)
//! LoadedProvider.get(…) ─▶ fresh instance ─▶ call ─▶ bounds ─▶ plain types    (one for each call)
//! ```
//!
//! What a plugin may touch is [`proxy_operator_core::capability`]; what it is to the rest of the host is
//! [`proxy_operator_core::provider`]. A published version of the WIT package is one module of `wit`, which translates
//! between the two. Nothing that a guest does ends more than its own call: it computes in slices, its memory is
//! limited, all that crosses is bounded, and a store that hit a limit is dropped.

mod bounds;
mod cache;
mod call;
mod engine;
mod guest_log;
pub mod limits;
mod plugin;
mod provider;
mod redact;
mod registry;
mod schema;
mod stderr;
mod store;
mod trap;
mod version;
mod watch;
mod wit;

pub use engine::{Engine, EngineSettings};
pub use plugin::Plugin;
pub use provider::{ContextParts, LoadedProvider};
pub use registry::Registry;
pub use version::ApiVersion;
