//! The controllers: one task owns each object, and the rest send it requests.
//!
//! A Provider's task loads its plugin, checks its health and lists its instances. A Proxy's task takes turns: snapshot,
//! decision, step, fold, status. Nothing is decided here; that is `core`'s.

pub mod grants;
pub mod inputs;
mod plugins;
mod provider;
mod providers;
mod proxies;
mod proxy;

pub use plugins::Plugins;
pub use providers::{Providers, Serving};
pub use proxies::Proxies;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::store::Store;

/// Runs all controllers over a store until it is cancelled; returns when their tasks have ended or the grace is over.
pub async fn run(
    store: Arc<dyn Store>,
    plugins: Arc<Plugins>,
    granting: Arc<dyn grants::Granting>,
    cancelled: CancellationToken,
) {
    let tasks = TaskTracker::new();
    let providers = Providers::new(Arc::clone(&store), plugins, granting, tasks.clone(), cancelled.clone());
    let proxies = Proxies::new(Arc::clone(&store), Arc::clone(&providers), tasks.clone(), cancelled.clone());
    providers.set_proxies(&proxies);
    let mut changes = store.changes();
    loop {
        providers.sync();
        proxies.sync();
        tokio::select! {
            () = cancelled.cancelled() => break,
            change = changes.recv() => match change {
                Ok(key) => {
                    providers.changed(&key);
                    proxies.changed(&key);
                }
                // Too many at once: everybody looks again.
                Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {
                    providers.wake_all();
                    proxies.wake_all();
                }
                Err(tokio::sync::broadcast::error::RecvError::Closed) => break,
            },
        }
    }
    tasks.close();
    if tokio::time::timeout(crate::limits::SHUTDOWN_GRACE, tasks.wait()).await.is_err() {
        tracing::warn!("calls are still under way; what they leave half done is taken up at the next start");
    }
}
