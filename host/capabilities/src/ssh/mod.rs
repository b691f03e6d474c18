//! SSH to hypervisors: host keys are always verified, keys are the only way in, and nothing is tried after a refusal.

pub mod address;
pub mod cutter;
pub mod key;
pub mod known_hosts;
pub mod session;
pub mod tunnel;

mod relay;
mod remote;

/// libvirt's socket on a hypervisor: what the grant says, or where it usually is.
pub(crate) fn remote_socket(granted: Option<&str>) -> String {
    granted.unwrap_or(remote::DEFAULT_SOCKET).to_owned()
}
