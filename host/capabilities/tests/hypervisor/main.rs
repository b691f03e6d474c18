//! The libvirt capability on a real libvirtd behind a real sshd.
//!
//! - `life`: volumes and domains from nothing to gone, again and again; strangers; leases; numbers of calls
//! - `ssh`: host keys, keys, Secrets that appear and change, servers that forbid forwarding
//! - `faults`: daemons that freeze, die and come back; fleets; grants that end
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod faults;
mod life;
mod ssh;
mod support;
