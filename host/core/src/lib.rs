//! Decisions without IO: what a Proxy needs next, names, error classes, backoff.
//!
//! Nothing here reads a clock, a file or a socket; what it decides is a function of its arguments. Hence a decision is
//! a unit test of a few lines, and a whole fleet can be simulated in one thread.

pub mod backoff;
pub mod capability;
pub mod error;
pub mod names;
pub mod probe;
pub mod provider;
pub mod proxy;
pub mod sensitive;
pub mod squid;
