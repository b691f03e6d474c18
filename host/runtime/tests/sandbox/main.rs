//! The sandbox as its users see it, with a plugin that misbehaves on request.
//!
//! - `isolation`: a guest that panics, traps, loops, allocates, recurses, sleeps or is blocked ends its own call, in
//!   time and with an error that tells why; its neighbours run on
//! - `grants`: what was not granted is denied by name; `describe` and `validate` reach nothing; a change of grants
//!   applies to calls in flight
//! - `bounds`: what is too large, both ways; texts and reasons; pages
//! - `loading`: what is no plugin, versions, imports, descriptions and schemas
//! - `cache`: compiled code is found again, and not trusted when it could be another's
//! - `swap`: a new build or config takes over, or leaves the old one serving
//! - `log`: a guest's lines have their fields, stay lines, are limited in rate, tell no secrets
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "helpers of tests, which clippy does not take for tests"
)]

mod bounds;
mod cache;
mod grants;
mod isolation;
mod loading;
mod log;
mod support;
mod swap;
