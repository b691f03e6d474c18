//! The one service of a process that brings base images into pools.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Instant;

use proxy_operator_api::grants::{ImagesGrant, LibvirtGrant, LibvirtHost};
use proxy_operator_core::capability::images::{BaseImage, Status};
use proxy_operator_core::error::{Error, Result};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::cache::{Cache, Cached};
use super::download::{blocking, cancelled};
use super::downloads::Downloads;
use super::format::{self, Fault, Inspected};
use super::granted::{Grant, GrantedImages};
use super::http::{Resolver, SystemResolver};
use super::limits::ImageLimits;
use super::name::BaseName;
use super::pool::{ImagePool, Pools};
use super::progress::{Phase, Progress};
use super::stock;
use super::stored::{self, StoredImage};
use super::transfer::{Failure, Key, Policy, Running, State, Table};
use super::upload::{Tokens, Upload};

/// Downloads, verifies and uploads base images. One a process; cheap to clone.
#[derive(Clone)]
pub struct ImageService(Arc<Inner>);

struct Inner {
    installation: String,
    pools: Arc<dyn Pools>,
    limits: Arc<ImageLimits>,
    downloads: Downloads,
    tokens: Arc<Tokens>,
    table: Table,
    /// Turns to upload, by hypervisor.
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
    grants: Mutex<Vec<Weak<Grant>>>,
}

impl ImageService {
    /// A service that keeps downloads in this folder (of its own: `<state>/images`), for this installation.
    pub fn new(cache: &Path, installation: &str, pools: Arc<dyn Pools>, limits: ImageLimits) -> Self {
        Self::with_resolver(cache, installation, pools, limits, Arc::new(SystemResolver))
    }

    /// The same with names found in another way.
    pub fn with_resolver(
        cache: &Path,
        installation: &str,
        pools: Arc<dyn Pools>,
        limits: ImageLimits,
        resolver: Arc<dyn Resolver>,
    ) -> Self {
        let limits = Arc::new(limits);
        let cache = Arc::new(Cache::new(cache, Arc::clone(&limits)));
        Self(Arc::new(Inner {
            installation: installation.to_owned(),
            pools,
            downloads: Downloads::new(cache, resolver, Arc::clone(&limits)),
            limits,
            tokens: Arc::default(),
            table: Table::default(),
            turns: Mutex::default(),
            grants: Mutex::default(),
        }))
    }

    /// The images capability of one Provider, until it is revoked or dropped.
    pub fn granted(&self, provider: &str, images: &ImagesGrant, libvirt: &LibvirtGrant) -> Arc<GrantedImages> {
        let grant = Arc::new(Grant::new(provider, images, libvirt, &self.0.limits));
        let mut grants = self.0.grants.lock().unwrap_or_else(PoisonError::into_inner);
        grants.retain(|grant| grant.strong_count() > 0);
        grants.push(Arc::downgrade(&grant));
        drop(grants);
        Arc::new(GrantedImages::new(self.clone(), grant))
    }

    /// The base images in a pool: whole ones, and what interrupted uploads left.
    pub async fn list(&self, name: &str, host: &LibvirtHost, pool: &str) -> Result<Vec<StoredImage>> {
        stored::list(&*self.0.pools.pool(name, host, pool)?).await
    }

    /// Deletes the base images of a pool that nobody stands on and that `keep` does not keep; says which.
    pub async fn prune(
        &self,
        name: &str,
        host: &LibvirtHost,
        pool: &str,
        keep: &(dyn Fn(&StoredImage) -> bool + Send + Sync),
    ) -> Result<Vec<StoredImage>> {
        stored::prune(&*self.0.pools.pool(name, host, pool)?, keep, &self.0.limits).await
    }

    /// Where pools come from.
    pub(super) fn pools(&self) -> &dyn Pools {
        &*self.0.pools
    }

    /// Ends the transfers that no grant allows any more.
    pub(super) fn reap(&self) {
        let grants: Vec<Arc<Grant>> =
            self.0.grants.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).collect();
        self.0.table.retain(|key| grants.iter().any(|grant| grant.allows(key, self.pools())));
    }

    /// Whether an image is in a pool; brings it there when it is not.
    pub(super) async fn ensure(&self, pool: Arc<dyn ImagePool>, place: &str, key: Key) -> Result<Status> {
        if let Some(State::Ready(image)) = self.0.table.get(&key) {
            if self.is_still_there(&*pool, &image).await? {
                return Ok(Status::Ready(image));
            }
            tracing::warn!(target: "images", place, volume = image.volume, "a base image has gone from its pool; bringing it again");
            self.0.table.forget(&key, &image);
        }
        let state = self.0.table.enter(&key, place, |running, attempts| {
            tokio::spawn(self.clone().work(Arc::clone(&pool), key.clone(), running, attempts));
        });
        let State::Running(running) = state else { return answer(&key, state) };
        // What is in the pool already is found in a moment.
        if running.ended_within(self.0.limits.grace).await {
            match self.0.table.get(&key) {
                Some(State::Running(_)) | None => {}
                Some(state) => return answer(&key, state),
            }
        }
        Ok(Status::Pending(running.transfer(&key.request)))
    }

    /// A volume that somebody deleted is noticed; so is one that is being made anew, which has no marker.
    async fn is_still_there(&self, pool: &dyn ImagePool, image: &BaseImage) -> Result<bool> {
        let Some((name, _)) = BaseName::parse(&image.volume) else { return Ok(false) };
        pool.exist(&[name.to_string(), name.marker()]).await
    }

    /// A transfer, to its end, whatever that is.
    async fn work(self, pool: Arc<dyn ImagePool>, key: Key, running: Arc<Running>, attempts: u32) {
        let task = {
            let (service, key, running) = (self.clone(), key.clone(), Arc::clone(&running));
            tokio::spawn(async move { service.transfer(&*pool, &key, &running).await })
        };
        let outcome = task.await.unwrap_or_else(|error| {
            let error = Error::internal("ImageTransferPanicked", format!("a transfer failed in this process: {error}"));
            Err(Failure::Bringing(error))
        });
        let state = match outcome {
            _ if running.cancelled.is_cancelled() => None,
            Ok(image) => Some(State::Ready(image)),
            Err(failure) => {
                let (error, wait, attempts) = failure.into_error(attempts, &self.0.limits);
                tracing::warn!(
                    target: "images", image = %key.request, place = running.place, reason = error.reason, error = %error,
                    next_attempt_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX), "image transfer failed"
                );
                Some(State::Failed { error, until: Instant::now() + wait, attempts })
            }
        };
        self.0.table.end(&key, &running, state);
    }

    async fn transfer(
        &self,
        pool: &dyn ImagePool,
        key: &Key,
        running: &Arc<Running>,
    ) -> std::result::Result<BaseImage, Failure> {
        match self.find(pool, key).await.map_err(Failure::Asking)? {
            Some(found) => Ok(found),
            None => self.bring(pool, key, running).await.map_err(Failure::Bringing),
        }
    }

    /// From its source into the pool.
    async fn bring(&self, pool: &dyn ImagePool, key: &Key, running: &Arc<Running>) -> Result<BaseImage> {
        let Key { hypervisor, pool: _, request, policy } = key;
        let image = self.download(key, running).await?;
        let progress = Arc::new(Progress::default());
        progress.enter(Phase::Verifying, None);
        running.watch(Arc::clone(&progress));
        let inspected = inspect(&image, policy).await?.map_err(|fault| fault.into_error(&request.to_string()))?;
        progress.enter(Phase::Queued, None);
        let _turn = self.turn(hypervisor, running).await?;
        let upload = Upload {
            pool,
            place: &running.place,
            name: BaseName::new(&request.key, &image.digest, inspected.format),
            image: &image,
            inspected,
            url: request.url.as_str(),
            installation: &self.0.installation,
            tokens: &self.0.tokens,
            progress: &progress,
            cancelled: &running.cancelled,
            limits: &self.0.limits,
        };
        upload.run().await
    }

    /// The image, where it is whole in the pool.
    async fn find(&self, pool: &dyn ImagePool, key: &Key) -> Result<Option<BaseImage>> {
        let Key { hypervisor: _, pool: _, request, policy } = key;
        let found = match &request.digest {
            Some(digest) => stock::find_pinned(pool, &request.key, digest).await?,
            None => stock::find_unpinned(pool, &request.key, request.url.as_str()).await?,
        };
        match found {
            Some(image) if image.capacity > policy.max_bytes => {
                Err(Fault::too_large("a virtual size", image.capacity, policy.max_bytes)
                    .into_error(&request.to_string()))
            }
            found => Ok(found),
        }
    }

    async fn download(&self, key: &Key, running: &Arc<Running>) -> Result<Arc<Cached>> {
        let Key { hypervisor: _, pool: _, request, policy } = key;
        let get =
            self.0.downloads.get(&request.url, request.digest.as_ref(), policy, |progress| running.watch(progress));
        tokio::select! {
            outcome = get => outcome,
            () = running.cancelled.cancelled() => Err(cancelled()),
        }
    }

    async fn turn(&self, hypervisor: &str, running: &Running) -> Result<OwnedSemaphorePermit> {
        let turns = {
            let mut all = self.0.turns.lock().unwrap_or_else(PoisonError::into_inner);
            let turns =
                all.entry(hypervisor.to_owned()).or_insert_with(|| Arc::new(Semaphore::new(self.0.limits.uploads)));
            Arc::clone(turns)
        };
        tokio::select! {
            turn = turns.acquire_owned() => turn.map_err(|_| Error::unavailable("ImageServiceEnded", "shutting down")),
            () = running.cancelled.cancelled() => Err(cancelled()),
        }
    }
}

async fn inspect(image: &Arc<Cached>, policy: &Policy) -> Result<std::result::Result<Inspected, Fault>> {
    let (image, max_bytes) = (Arc::clone(image), policy.max_bytes);
    blocking(move || {
        let file = image.open()?;
        Ok(format::inspect(&mut std::io::BufReader::new(file), image.length, max_bytes))
    })
    .await?
}

/// What those who ask are told.
fn answer(key: &Key, state: State) -> Result<Status> {
    match state {
        State::Running(running) => Ok(Status::Pending(running.transfer(&key.request))),
        State::Ready(image) => Ok(Status::Ready(image)),
        State::Failed { mut error, until, attempts: _ } => {
            error.retry_after = Some(until.saturating_duration_since(Instant::now()));
            Err(error)
        }
    }
}
