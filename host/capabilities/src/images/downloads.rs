//! The downloads of one process: one of a URL and digest at a time, however many transfers wait for it.
//!
//! Who joins a download that another Provider's grant started shares its success, since a pinned image is the same
//! whoever fetched it; its failure counts for those with the same grant alone, and the others try themselves.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use proxy_operator_core::error::{Error, Result};
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};
use url::Url;

use super::cache::{Cache, Cached};
use super::digest::Digest;
use super::download::{Download, cancelled};
use super::format::Fault;
use super::http::{Fetcher, Resolver};
use super::limits::ImageLimits;
use super::prefix::{Prefixes, shown};
use super::progress::Progress;
use super::transfer::Policy;

/// All downloads.
pub struct Downloads {
    cache: Arc<Cache>,
    resolver: Arc<dyn Resolver>,
    limits: Arc<ImageLimits>,
    turns: Arc<Semaphore>,
    running: Mutex<HashMap<Key, Weak<Running>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    url: Url,
    digest: Option<Digest>,
    /// Where what arrives depends on it: prefixes and size.
    scope: Option<(Prefixes, u64)>,
    /// Where nothing else is shared.
    provider: Option<String>,
}

/// A download that goes on while one of its users is there.
struct Running {
    policy: Arc<Policy>,
    progress: Arc<Progress>,
    outcome: Shared<BoxFuture<'static, Result<Arc<Cached>>>>,
    _stop: DropGuard,
}

impl Downloads {
    /// Downloads into this cache.
    pub fn new(cache: Arc<Cache>, resolver: Arc<dyn Resolver>, limits: Arc<ImageLimits>) -> Self {
        let turns = Arc::new(Semaphore::new(limits.downloads));
        Self { cache, resolver, limits, turns, running: Mutex::default() }
    }

    /// An image in the cache. `watch` is told whose progress to show.
    pub async fn get(
        &self,
        url: &Url,
        digest: Option<&Digest>,
        policy: &Arc<Policy>,
        watch: impl Fn(Arc<Progress>),
    ) -> Result<Arc<Cached>> {
        // What arrives when nothing is pinned depends on where redirects may lead.
        let Policy { provider, prefixes, max_bytes } = &**policy;
        let scope = || Some((prefixes.clone(), *max_bytes));
        let shared = if digest.is_some() { None } else { scope() };
        let running =
            self.join(Key { url: url.clone(), digest: digest.cloned(), scope: shared, provider: None }, policy);
        watch(Arc::clone(&running.progress));
        let outcome = running.outcome.clone().await;
        match outcome {
            Ok(cached) if cached.length > *max_bytes => {
                Err(Fault::too_large("a size", cached.length, *max_bytes).into_error(&shown(url)))
            }
            Err(_) if running.policy != *policy => {
                let provider = Some(provider.clone());
                let own = Key { url: url.clone(), digest: digest.cloned(), scope: scope(), provider };
                let running = self.join(own, policy);
                watch(Arc::clone(&running.progress));
                running.outcome.clone().await
            }
            outcome => outcome,
        }
    }

    fn join(&self, key: Key, policy: &Arc<Policy>) -> Arc<Running> {
        let mut all = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, running| running.strong_count() > 0);
        if let Some(running) = all.get(&key).and_then(Weak::upgrade) {
            return running;
        }
        let stop = CancellationToken::new();
        let progress = Arc::new(Progress::default());
        let download = Arc::new(Download {
            url: key.url.clone(),
            digest: key.digest.clone(),
            max_bytes: policy.max_bytes,
            fetcher: Fetcher {
                provider: policy.provider.clone(),
                prefixes: policy.prefixes.clone(),
                resolver: Arc::clone(&self.resolver),
                limits: Arc::clone(&self.limits),
            },
            cache: Arc::clone(&self.cache),
            progress: Arc::clone(&progress),
            cancelled: stop.clone(),
        });
        let turns = Arc::clone(&self.turns);
        let task = tokio::spawn(async move {
            let turn = tokio::select! {
                turn = turns.acquire_owned() => turn.ok(),
                () = download.cancelled.cancelled() => None,
            };
            let Some(_turn) = turn else { return Err(cancelled()) };
            download.run().await.map(Arc::new)
        });
        let outcome = async move {
            task.await.unwrap_or_else(|error| {
                Err(Error::internal("ImageTransferPanicked", format!("a download failed in this process: {error}")))
            })
        };
        let running = Arc::new(Running {
            policy: Arc::clone(policy),
            progress,
            outcome: outcome.boxed().shared(),
            _stop: stop.drop_guard(),
        });
        all.insert(key, Arc::downgrade(&running));
        running
    }
}
