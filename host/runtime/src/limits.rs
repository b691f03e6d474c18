//! Every limit and every time of the runtime: its unit, its default, its reason.

use std::time::Duration;

// === time ===

/// How often a guest that computes gives its thread to others, and how finely its computing is counted.
pub const TICK: Duration = Duration::from_millis(10);

/// How long a call may compute, whatever its deadline. A provider decides and asks; it has nothing to compute for
/// seconds. An interpreter (Python, JavaScript) stays far below it.
pub const CPU_BUDGET: Duration = Duration::from_secs(10);

/// How long a call may take, waiting included, unless the Provider says otherwise. No call waits for infrastructure
/// (a long thing is asked again), so that only a slow backend comes near.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(30);

/// How long `describe` and `validate` may take: they ask nobody.
pub const BARE_CALL_TIMEOUT: Duration = Duration::from_secs(10);

// === a guest ===

/// The largest component, in bytes. A Python plugin with its interpreter has 18 MB.
pub const PLUGIN_SIZE: usize = 64 << 20;

/// Linear memory of one guest, in bytes. A Rust guest uses 1 to 2 MiB, an interpreter up to 60.
pub const GUEST_MEMORY: usize = 128 << 20;

/// Elements of one table. Python's interpreter needs 20,000.
pub const TABLE_ELEMENTS: usize = 30_000;

/// Core instances of one component. Components of interpreters have up to 40, most of them tiny.
pub const CORE_INSTANCES: u32 = 64;

/// Tables of one component.
pub const TABLES: u32 = 32;

/// Linear memories of one component.
pub const MEMORIES: u32 = 4;

/// Handles of resources (timers, streams) that are open at once.
pub const RESOURCES: usize = 1_000;

/// WebAssembly stack of a guest, in bytes.
pub const WASM_STACK: usize = 512 << 10;

/// Stack of the fiber a guest runs on, in bytes: the WebAssembly stack, and what host functions need.
pub const FIBER_STACK: usize = 1 << 20;

/// Guests at once, all Providers together: bounds memory, and the address space of the pool.
pub const GUESTS: u32 = 128;

/// Calls at once of one Provider, unless it says otherwise.
pub const CONCURRENT_CALLS: usize = 16;

/// Memory of an idle slot of the pool that stays resident, in bytes: more saves page faults and costs memory for
/// good.
pub const KEEP_RESIDENT: usize = 128 << 10;

/// What a guest may hand to the host at once, as arguments of a capability or as its result, in bytes as the engine
/// counts them. Four times the largest legal one, so that what is merely over a bound is told which; what is over this
/// (a thousand strings that are all the guest's whole memory) is not even copied.
pub const HOSTCALL_BYTES: usize = 4 * VOLUME_CONTENT;

/// Bytes of randomness in one call.
pub const RANDOM_BYTES: u64 = 64 << 10;

// === what crosses: bytes of texts, numbers of items. As in the texts of `wit/` ===

/// `error.message`, `instance.message`, `check.detail`, `fault.message`: longer text is cut.
pub const MESSAGE: usize = 2 << 10;
/// `error.reason`, `instance.reason`.
pub const REASON: usize = 64;
/// `backend-error.code`: longer text is cut.
pub const BACKEND_CODE: usize = 128;
/// `error.retry-after-seconds`: more is a day.
pub const RETRY_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// `instance.id`, and what `place` returns.
pub const ID: usize = 256;
/// Names, owners, keys, times, addresses: what has no bound of its own in the interface.
pub const NAME: usize = 256;
/// URLs and image references.
pub const URL: usize = 4 << 10;
/// `instance.private-state`.
pub const PRIVATE_STATE: usize = 4 << 10;
/// `page.next`, the cursor of a listing.
pub const CURSOR: usize = 4 << 10;
/// `instance.addresses`.
pub const ADDRESSES: usize = 32;
/// `page.instances`; also the domains of one host.
pub const PAGE: usize = 2_000;
/// `page.gaps`.
pub const GAPS: usize = 200;
/// Instances of one listing, all pages together.
pub const LISTING: usize = 20_000;
/// Pages of one listing.
pub const PAGES: usize = 100;
/// The checks of one `health`.
pub const CHECKS: usize = 200;
/// The faults of one `validate`, or of one schema; more are dropped.
pub const FAULTS: usize = 32;
/// `fault.path`: longer text is cut.
pub const FAULT_PATH: usize = 512;
/// `context.config`.
pub const CONFIG: usize = 256 << 10;
/// `instance-spec.parameters`.
pub const PARAMETERS: usize = 64 << 10;
/// `cloud-init.user-data`, `cloud-init.vendor-data`, each.
pub const CLOUD_INIT: usize = 1 << 20;
/// `instance-spec.placement`, and `place`'s `avoid`, in items.
pub const PLACES: usize = 200;
/// Credentials and CIDRs of one proxy, each list.
pub const ACCESS_ITEMS: usize = 1_000;
/// `domain-spec.title`.
pub const TITLE: usize = 128;
/// `domain-spec.disks`.
pub const DISKS: usize = 8;
/// `domain-spec.networks`.
pub const NETWORKS: usize = 4;
/// `write-volume`'s content.
pub const VOLUME_CONTENT: usize = 8 << 20;
/// The volumes of one host: each domain has at most a few.
pub const VOLUMES: usize = 4 * PAGE;

// === the log of a guest ===

/// A line's message: longer text is cut.
pub const LOG_MESSAGE: usize = 4 << 10;
/// Fields of a line: more are dropped.
pub const LOG_FIELDS: usize = 16;
/// A field's key: longer text is cut.
pub const LOG_KEY: usize = 64;
/// A field's value: longer text is cut.
pub const LOG_VALUE: usize = 1 << 10;
/// Lines a second that one Provider's guests may write, on average.
pub const LOG_RATE: f64 = 50.0;
/// Lines that one Provider's guests may write at once.
pub const LOG_BURST: f64 = 200.0;
/// Lines that are kept for the error of a trap.
pub const TAIL_LINES: usize = 10;
/// Bytes of each of them.
pub const TAIL_LINE: usize = 160;
/// A guest's last words.
pub const LAST_WORDS: usize = 1 << 10;
/// Bytes that a guest may write to its standard error at once.
pub const STDERR_WRITE: usize = 64 << 10;

// === JSON Schema ===

/// A schema's text.
pub const SCHEMA: usize = 256 << 10;
/// How deep a schema, or a document held against one, may be nested.
pub const SCHEMA_DEPTH: usize = 64;
/// How deep a schema may be once its references are followed.
pub const SCHEMA_UNFOLDED_DEPTH: usize = 256;
/// How many values a schema may have once its references are followed: bounds what one validation costs.
pub const SCHEMA_UNFOLDED: u64 = 20_000;
/// Regular expressions of one schema.
pub const PATTERNS: usize = 100;
/// The compiled form of one regular expression, in bytes.
pub const REGEX: usize = 1 << 20;
/// A fault that a schema finds, with the value it is about: longer text is cut.
pub const FAULT_VALUE: usize = 512;

// === the cache of compiled code ===

/// Files that are kept; the oldest go first.
pub const CACHE_FILES: usize = 64;
