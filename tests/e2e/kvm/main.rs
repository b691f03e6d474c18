//! The operator as its users run it, `proxy-operator standalone`, over a real libvirtd: through a real sshd, or, where
//! each call has to be seen, through a relay before its socket. Machines have an empty disk; in the place of what would
//! boot, a network namespace with the machine's MAC address runs a real squid.
//!
//! - `life`: two Proxies become Ready and answer 204, one is deleted without the other, then nothing is left
//! - `crash`: SIGKILL on both sides of each call that changes something, in a create and in a delete
//! - `strangers`: names that are taken, by other namespaces, Providers, installations and by people
//! - `hang`: a libvirtd that stands still costs its own Proxies alone, and all heals when it goes on
//! - `faults`: wrong manifests, grants, keys, images: one clear message each, and a good Proxy beside them is Ready
//! - `secrets`: keys that appear and change while the operator runs; an sshd that forbids forwarding
//! - `restart`: of the operator, of machines, of daemons
//! - `grants`: a host that is taken out of its Provider's grants
//!
//! It needs root and the packages of `tests/setup/packages.sh`. `KVM_TEST_LOG_LEVEL=2` makes the operator log each
//! document that it sends to libvirt; the end of its log is shown when a test fails. `KVM_TEST_HYPERVISOR` is what the names
//! of the hypervisors begin with, at most 11 bytes; default `hve`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

mod crash;
mod faults;
mod grants;
mod hang;
mod life;
mod restart;
mod secrets;
mod strangers;
mod support;
