//! One download: from a server or a granted folder into the cache, hashed on the way.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use proxy_operator_core::error::{Error, Result};
use tempfile::TempPath;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::cache::{Cache, Cached};
use super::digest::{Algorithm, Digest};
use super::format::Fault;
use super::http::{self, Fetcher};
use super::limits::CHUNK_BYTES;
use super::prefix::{decode, shown};
use super::progress::{Phase, Progress};

/// What is downloaded, and how.
pub struct Download {
    /// From where.
    pub url: Url,
    /// What must arrive; `None`: whatever does, and its SHA-256 is computed.
    pub digest: Option<Digest>,
    /// The most bytes.
    pub max_bytes: u64,
    /// Asks servers, within the grant.
    pub fetcher: Fetcher,
    /// Where it goes.
    pub cache: Arc<Cache>,
    /// How far it is.
    pub progress: Arc<Progress>,
    /// Ends it.
    pub cancelled: CancellationToken,
}

/// Chunks that wait for the disk.
const QUEUE: usize = 16;

impl Download {
    /// The image, from the cache or from its source.
    pub async fn run(self: Arc<Self>) -> Result<Cached> {
        if let Some(digest) = &self.digest {
            self.progress.enter(Phase::Verifying, None);
            let (cache, digest) = (Arc::clone(&self.cache), digest.clone());
            let found = blocking(move || cache.find(&digest)).await??;
            if let Some(found) = found {
                return Ok(found);
            }
        }
        let started = Instant::now();
        let url = shown(&self.url);
        tracing::info!(target: "images", url, wanted = self.digest.as_ref().map(Digest::to_string), "download starts");
        let outcome = tokio::select! {
            outcome = self.fetch() => outcome,
            () = self.cancelled.cancelled() => Err(cancelled()),
        };
        let duration_ms = started.elapsed().as_secs_f64() * 1_000.0;
        match &outcome {
            Ok(cached) => tracing::info!(
                target: "images", url, digest = %cached.digest, bytes = cached.length, duration_ms, "download ended"
            ),
            Err(error) => tracing::warn!(
                target: "images", url, reason = error.reason, error = %error, bytes = self.progress.done(), duration_ms, "download failed"
            ),
        }
        outcome
    }

    async fn fetch(self: &Arc<Self>) -> Result<Cached> {
        let (file, digest) = if self.url.scheme() == "file" { self.copy().await? } else { self.receive().await? };
        self.progress.enter(Phase::Verifying, None);
        if let Some(wanted) = self.digest.as_ref().filter(|wanted| **wanted != digest) {
            return Err(Error::invalid_config(
                "ImageDigestMismatch",
                format!(
                    "{} has the digest {digest} instead of {wanted}; if that is right (a newer build under the same URL), change the digest",
                    shown(&self.url)
                ),
            ));
        }
        let cache = Arc::clone(&self.cache);
        blocking(move || cache.adopt(file, &digest)).await?
    }

    /// From a server. A thread hashes and writes while the next bytes arrive.
    async fn receive(self: &Arc<Self>) -> Result<(TempPath, Digest)> {
        self.progress.enter(Phase::Downloading, None);
        let mut response = self.fetcher.get(&self.url, self.digest.is_some()).await?;
        let announced = response.content_length();
        self.check_length(announced.unwrap_or_default())?;
        self.progress.enter(Phase::Downloading, announced);
        let (chunks, queue) = mpsc::channel(QUEUE);
        let download = Arc::clone(self);
        let writing = tokio::task::spawn_blocking(move || download.write(queue));
        let mut received = 0_u64;
        let outcome = loop {
            let chunk = match response.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) => break Ok(()),
                Err(error) => break Err(http::failed(&self.url, error)),
            };
            received = received.saturating_add(chunk.len() as u64);
            if let Err(error) = self.check_length(received) {
                break Err(error);
            }
            // Closed: the disk failed, which the thread says itself.
            if chunks.send(chunk).await.is_err() {
                break Ok(());
            }
        };
        drop(chunks);
        let written = writing.await.map_err(|error| Error::internal("ImageCacheFailed", error.to_string()))?;
        outcome?;
        if let Some(announced) = announced.filter(|announced| *announced != received) {
            return Err(Error::unavailable(
                "ImageServerUnavailable",
                format!("{}: the download was cut off after {received} of {announced} bytes", shown(&self.url)),
            ));
        }
        written
    }

    fn write(&self, mut queue: mpsc::Receiver<Bytes>) -> Result<(TempPath, Digest)> {
        let mut file = self.cache.temporary()?;
        let mut hasher = self.algorithm().hasher();
        while let Some(chunk) = queue.blocking_recv() {
            hasher.update(&chunk);
            file.write_all(&chunk).map_err(|error| self.cache.failed("written", &error))?;
            self.progress.add(chunk.len() as u64);
        }
        Ok((file.into_temp_path(), hasher.finish()))
    }

    /// From a granted folder of this machine. It is copied, so that what is verified is what is uploaded.
    async fn copy(self: &Arc<Self>) -> Result<(TempPath, Digest)> {
        let download = Arc::clone(self);
        blocking(move || {
            let mut source = download.open()?;
            let unreadable = |error: io::Error| {
                Error::unavailable(
                    "ImageServerUnavailable",
                    format!("{} cannot be read: {error}", shown(&download.url)),
                )
            };
            let length = source.metadata().map_err(unreadable)?.len();
            download.check_length(length)?;
            download.progress.enter(Phase::Downloading, Some(length));
            let mut file = download.cache.temporary()?;
            let mut hasher = download.algorithm().hasher();
            let mut chunk = vec![0; CHUNK_BYTES];
            let mut copied = 0_u64;
            loop {
                if download.cancelled.is_cancelled() {
                    return Err(cancelled());
                }
                let read = match source.read(&mut chunk) {
                    Ok(0) => break,
                    Ok(read) => chunk.get(..read).unwrap_or_default(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                    Err(error) => return Err(unreadable(error)),
                };
                hasher.update(read);
                file.write_all(read).map_err(|error| download.cache.failed("written", &error))?;
                copied += read.len() as u64;
                download.check_length(copied)?;
                download.progress.add(read.len() as u64);
            }
            Ok((file.into_temp_path(), hasher.finish()))
        })
        .await?
    }

    /// Opens a file beneath the granted folder: no symbolic link leads out of it.
    fn open(&self) -> Result<File> {
        let prefix = self.fetcher.prefixes.check(&self.fetcher.provider, &self.url)?;
        let (mut folder, mut rest) = (segments(prefix)?, segments(&self.url)?);
        if folder.last().is_some_and(String::is_empty) || folder.len() == rest.len() {
            // `/a/` is the folder; of a prefix that names a file it is the one that holds it.
            folder.pop();
        }
        let rest = rest.split_off(folder.len());
        let folder: PathBuf = std::iter::once("/".to_owned()).chain(folder).collect();
        let rest: PathBuf = rest.into_iter().collect();
        let open = || {
            let folder = Dir::open_ambient_dir(&folder, ambient_authority())?;
            // Not to wait for the other end of a pipe.
            let mut options = OpenOptions::new();
            options.read(true).custom_flags(libc::O_NONBLOCK);
            let file = folder.open_with(&rest, &options)?.into_std();
            if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
        };
        open().map_err(|error| {
            let reason = if error.kind() == io::ErrorKind::NotFound { "ImageNotFound" } else { "ImageUnusable" };
            Error::invalid_config(
                reason,
                format!("{} cannot be opened on the operator's machine: {error}", shown(&self.url)),
            )
        })
    }

    fn algorithm(&self) -> Algorithm {
        self.digest.as_ref().map_or(Algorithm::Sha256, Digest::algorithm)
    }

    fn check_length(&self, bytes: u64) -> Result<()> {
        if bytes <= self.max_bytes {
            return Ok(());
        }
        Err(Fault::too_large("a size", bytes, self.max_bytes).into_error(&shown(&self.url)))
    }
}

/// The segments of the path of a file URL, decoded.
fn segments(url: &Url) -> Result<Vec<String>> {
    let decoded = url.path_segments().into_iter().flatten().map(|segment| String::from_utf8(decode(segment)));
    decoded
        .collect::<std::result::Result<_, _>>()
        .map_err(|_| Error::invalid_config("ConfigInvalid", format!("the path of {} is not UTF-8", shown(url))))
}

/// The end of a transfer that nobody may have any more.
pub fn cancelled() -> Error {
    Error::permission_denied("GrantMissing", "the grant has changed or ended while the image was on its way; ask again")
}

/// Runs what blocks on a thread of its own.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        Error::internal("ImageTransferPanicked", format!("a transfer failed in this process: {error}"))
    })
}
