//! Watching the folder of manifests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use notify::{RecursiveMode, Watcher as _};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::{StandaloneStore, manifests};

/// Between two scans without an announced change: for file systems that announce none.
const SCAN_INTERVAL: Duration = Duration::from_secs(10);

/// How long the folder is left alone after a change, so that a file being written is read once, and whole.
const SETTLE: Duration = Duration::from_millis(100);

/// Scans the folder now, at each change, and at an interval, until it is cancelled.
pub async fn watch(store: Arc<StandaloneStore>, cancelled: CancellationToken) {
    let (sender, mut changes) = mpsc::channel(1);
    let watcher = watcher(&store.manifests, sender);
    if let Err(error) = &watcher {
        tracing::warn!(
            folder = %store.manifests.display(), %error,
            "the folder cannot be watched; it is read every {} s", SCAN_INTERVAL.as_secs()
        );
    }
    loop {
        let wait = scan(&store).await.unwrap_or(SCAN_INTERVAL).min(SCAN_INTERVAL);
        tokio::select! {
            () = cancelled.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
            Some(()) = changes.recv() => {
                tokio::time::sleep(SETTLE).await;
                let _ = changes.try_recv();
            }
        }
    }
}

/// Reads the folder once. Gives the time until the next absence is due, if one is.
async fn scan(store: &StandaloneStore) -> Option<Duration> {
    match tokio::task::block_in_place(|| manifests::scan(&store.manifests)) {
        Ok(scan) => store.apply(scan, Instant::now()).await.unwrap_or_else(|error| {
            tracing::error!(error = &error as &dyn std::error::Error, "the manifests cannot be applied");
            None
        }),
        Err(error) => {
            tracing::error!(
                folder = %store.manifests.display(), %error,
                "the folder of manifests cannot be read; all objects stay as they are"
            );
            // An absence counts only while the folder stays readable.
            store.writer.lock().await.absences.clear();
            None
        }
    }
}

fn watcher(folder: &Path, sender: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        if event.is_ok_and(|event| !event.kind.is_access()) {
            // A full channel has a change waiting already.
            let _ = sender.try_send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
