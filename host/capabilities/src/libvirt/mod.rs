//! libvirt on granted hypervisors.
//!
//! ```text
//! GrantedLibvirt ── one Provider: grants, names, limits; revocable
//!   domains, volumes, info ── what each call of a plugin does, as calls of the seam
//!     Traced ── one log line a call; refuses the calls of who may no longer make them
//!       Virt ── libvirt's client
//!         Hypervisor, Line ── shared connections: threads, deadlines, dialling, retry
//! ```

pub mod compose;
pub mod connection;
pub mod dial;
pub mod domains;
pub mod error;
pub mod facts;
pub mod granted;
pub mod hypervisors;
pub mod info;
pub mod metadata;
pub mod policy;
pub mod qcow2;
pub mod seam;
pub mod trace;
pub mod virt;
pub mod volumes;
pub mod xml;

mod ffi;

#[cfg(test)]
mod tests;
