//! The libvirt capability on a real libvirtd behind a real sshd.
//!
//! - `life`: volumes and domains from nothing to gone, again and again; strangers; leases; numbers of calls
//! - `ssh`: host keys, keys, Secrets that appear and change, servers that forbid forwarding
//! - `faults`: daemons that freeze, die and come back; fleets; grants that end

mod faults;
mod life;
mod ssh;
mod support;
