//! Every limit and timeout of this crate, with its default and its reason.

use std::time::Duration;

pub use crate::images::limits::ImageLimits;

/// The limits of one process. [`Limits::default`] is what a cluster runs with; tests make them shorter.
#[derive(Clone, Debug)]
pub struct Limits {
    /// To reach sshd by TCP, each address of a name: longer than three lost SYNs.
    pub tcp_connect: Duration,
    /// For each step of SSH (handshake, authentication, a channel): a loaded sshd takes a second or two.
    pub ssh_step: Duration,
    /// For a whole dial, from the name to libvirt's first answer. libvirtd answers nothing for about ten seconds
    /// when it has just started and probes QEMU.
    pub dial: Duration,
    /// For a call that only looks. Half of what a call of a plugin may take by default, so that one host that hangs is an
    /// answer about that host, and not the end of the whole call.
    pub read_call: Duration,
    /// For a call that changes something. A define takes 95 seconds where libvirtd cannot open `/dev/kvm`.
    pub change_call: Duration,
    /// For an answer of the guest agent: a guest that hangs must not hold a thread for libvirt's five seconds a
    /// step, and one that answers does so in milliseconds.
    pub agent: Duration,
    /// Between two of libvirt's keepalive messages.
    pub keepalive_interval: Duration,
    /// Unanswered keepalive messages that make a connection dead.
    pub keepalive_count: u32,
    /// Calls at once on the shared connection of a hypervisor. libvirtd has 5 to 20 workers; 8 leave some to others.
    pub threads: usize,
    /// Uploads at once to a hypervisor: two fill a link.
    pub uploads: usize,
    /// How long the upload connection stays open unused.
    pub upload_idle: Duration,
    /// The peace after a first failed dial; it doubles, with jitter, so that a fleet does not hammer sshd.
    pub backoff_first: Duration,
    /// The longest peace between two dials.
    pub backoff_most: Duration,
    /// How often the Secret of an open connection is compared with the one it was opened with.
    pub secret_check: Duration,
}

/// The most bytes of a file in a Secret: Kubernetes' own limit.
pub const SECRET_FILE_MAX_BYTES: u64 = 1 << 20;

/// The most bytes of a volume that is written in one call: a seed.
pub const WRITE_VOLUME_MAX_BYTES: usize = 8 << 20;

/// The most domains in one listing.
pub const DOMAINS_MAX: usize = 2_000;

/// The most disks of a domain.
pub const DISKS_MAX: usize = 8;

/// The most network cards of a domain.
pub const NETWORKS_MAX: usize = 4;

/// The most bytes of a domain's title.
pub const TITLE_MAX_BYTES: usize = 128;

/// The most bytes that wait in each direction of a tunnel.
pub const TUNNEL_BUFFER_BYTES: usize = 1 << 20;

/// The most bytes that are kept of what a command on the other side says on its standard error.
pub const STDERR_MAX_BYTES: usize = 1 << 10;

/// What one message of libvirt's stream carries at most.
pub const STREAM_CHUNK_BYTES: usize = 256 * 1000;

/// By how much a pool may round a volume's size up: extents of a volume group.
pub const CAPACITY_ROUNDING_BYTES: u64 = 16 << 20;

impl Default for Limits {
    fn default() -> Self {
        Self {
            tcp_connect: Duration::from_secs(8),
            ssh_step: Duration::from_secs(15),
            dial: Duration::from_secs(60),
            read_call: Duration::from_secs(15),
            change_call: Duration::from_secs(120),
            agent: Duration::from_secs(3),
            keepalive_interval: Duration::from_secs(5),
            keepalive_count: 3,
            threads: 8,
            uploads: 2,
            upload_idle: Duration::from_secs(60),
            backoff_first: Duration::from_secs(1),
            backoff_most: Duration::from_secs(60),
            secret_check: Duration::from_secs(3),
        }
    }
}
