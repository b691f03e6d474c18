//! The limits and timeouts of base images, each with its default and its reason.

use std::time::Duration;

/// The limits of one process. [`ImageLimits::default`] is what a cluster runs with; tests make them shorter.
#[derive(Clone, Debug)]
pub struct ImageLimits {
    /// To reach an image server by TCP and TLS: longer than three lost SYNs.
    pub connect: Duration,
    /// Between two pieces of a download: a mirror that says nothing for a minute has forgotten us.
    pub read: Duration,
    /// For a whole download: 64 GiB at 10 MiB/s.
    pub download: Duration,
    /// For a whole upload: 64 GiB at 10 MiB/s.
    pub upload: Duration,
    /// How long an upload may stand still: a hypervisor that writes back its caches pauses, for seconds.
    pub upload_stall: Duration,
    /// Downloads at once in this process: more only share one link.
    pub downloads: usize,
    /// Uploads at once to one hypervisor: one fills a link, and the connection's other thread is left for seeds.
    pub uploads: usize,
    /// How long the first `ensure` of an image waits for what is found in the pool before it says "pending": enough
    /// for the few calls that find a whole image.
    pub grace: Duration,
    /// The size that a download and a virtual disk may have when the grant says nothing, in GiB.
    pub default_max_gib: u64,
    /// How long a downloaded image stays in the cache when no transfer needs it: time for the other hypervisors of a
    /// fleet to ask for it.
    pub cache_idle: Duration,
    /// The most bytes of images in the cache that no transfer needs.
    pub cache_idle_bytes: u64,
    /// How often an uploader renews its claim on a volume.
    pub claim_beat: Duration,
    /// How long a claim of another installation must stand still until it is taken for abandoned: six missed beats.
    pub claim_stale: Duration,
    /// How long a claim that was taken over is left alone before it is trusted: time for another who took it over in
    /// the same moment to be seen.
    pub claim_settle: Duration,
    /// How long a pool may be busy with itself after an upload (libvirt refreshes it then), until that is an error.
    pub pool_busy: Duration,
    /// The peace after a pool could not be asked. It is short and does not grow: nothing was fetched, and dials to a
    /// hypervisor have a peace of their own, which ends at once when a Secret changes.
    pub retry_asking: Duration,
    /// The peace after a first transient failure; it doubles, with jitter.
    pub retry_transient: Duration,
    /// The longest peace after transient failures.
    pub retry_transient_most: Duration,
    /// The peace after a first failure that asks for somebody to act (a wrong digest, 404, a full pool); it doubles.
    pub retry_permanent: Duration,
    /// The longest peace after such failures.
    pub retry_permanent_most: Duration,
}

/// The most redirects that a download follows.
pub const REDIRECTS_MAX: usize = 5;

/// The most bytes of a URL.
pub const URL_MAX_BYTES: usize = 2048;

/// The bytes of a marker and of a claim: a sector or two, which a pool of any kind can hold.
pub const MARKER_BYTES: usize = 1024;

/// The most transfers that are remembered. Beyond, those that are over are forgotten, and looked up again when asked.
pub const TRANSFERS_MAX: usize = 4096;

/// The bytes of a piece of an image on its way.
pub const CHUNK_BYTES: usize = 256 << 10;

impl Default for ImageLimits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            read: Duration::from_secs(60),
            download: Duration::from_secs(2 * 60 * 60),
            upload: Duration::from_secs(2 * 60 * 60),
            upload_stall: Duration::from_secs(5 * 60),
            downloads: 4,
            uploads: 1,
            grace: Duration::from_secs(1),
            default_max_gib: 64,
            cache_idle: Duration::from_secs(15 * 60),
            cache_idle_bytes: 16 << 30,
            claim_beat: Duration::from_secs(15),
            claim_stale: Duration::from_secs(90),
            claim_settle: Duration::from_secs(3),
            pool_busy: Duration::from_secs(60),
            retry_asking: Duration::from_secs(2),
            retry_transient: Duration::from_secs(5),
            retry_transient_most: Duration::from_secs(2 * 60),
            retry_permanent: Duration::from_secs(60),
            retry_permanent_most: Duration::from_secs(30 * 60),
        }
    }
}
