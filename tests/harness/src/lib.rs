//! Starts real libvirtd, sshd, squid and guests for tests: a typed face of the scripts in `tests/hypervisor` and
//! `tests/guest-image`, whose heads say what each does. Everything here blocks; in async code call it from
//! `tokio::task::spawn_blocking`. It needs root and the packages of `tests/setup/packages.sh`.

mod guest;
mod hypervisor;
mod origin;
mod script;
mod squid;

pub use guest::{FakeGuest, GuestImage, Proxying};
pub use hypervisor::{Daemon, Hypervisor, Keys, Options, Services, shared};
pub use origin::Origin;
pub use squid::{Squid, free_port};
