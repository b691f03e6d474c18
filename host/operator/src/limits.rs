//! Every time limit of the controllers: name, default, reason, in one place. Those of probes stand in
//! [`proxy_operator_core::probe`], those of calls in the runtime, those of connections in the capabilities.

use std::time::Duration;

/// Between two listings of a Provider: one listing serves all its Proxies.
pub const LIST_INTERVAL: Duration = Duration::from_secs(60);
/// Between two health checks of a Provider. A fault asks for one at once.
pub const HEALTH_INTERVAL: Duration = Duration::from_secs(60);
/// Between two health checks that are asked for: a hundred Proxies that fail together ask a hundred times.
pub const HEALTH_MIN_INTERVAL: Duration = Duration::from_secs(2);
/// Between two health checks of a Provider that is unhealthy: what was mended is seen soon.
pub const UNHEALTHY_INTERVAL: Duration = Duration::from_secs(10);
/// How much of an interval is left to chance, so that Providers do not move in step.
pub const INTERVAL_JITTER: f64 = 0.1;
/// Between two looks at a plugin's file.
pub const PLUGIN_FILE_INTERVAL: Duration = Duration::from_secs(2);
/// After a plugin did not load, before it is tried again without a change.
pub const LOAD_RETRY: Duration = Duration::from_secs(30);
/// The most that a Proxy waits without looking at its object again: should an announcement ever be lost, it costs
/// this much.
pub const RESYNC: Duration = Duration::from_secs(60);
/// How long what a machine is made from is kept: a Secret that changes is seen within this time.
pub const INPUTS_MAX_AGE: Duration = Duration::from_secs(15);
/// After the store refused a write for a reason of its own (a full disk), before the next turn.
pub const STORE_RETRY: Duration = Duration::from_secs(5);
/// How long calls in flight may go on when the program ends. What is cut is taken up at the next start.
pub const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);
/// Sightings that a Proxy has not looked at yet; more are dropped, since the next listing brings them again.
pub const SIGHTINGS: usize = 4;
