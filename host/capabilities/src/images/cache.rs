//! The folder of downloaded images: each under the name of its digest, whole or not there.
//!
//! A download is written to a temporary file and renamed when its digest is known. Before a file is used again it is
//! compared with what this process wrote or read (length, time of change, inode); one that this process does not know,
//! or that has changed, is hashed once more, and deleted when it is not what its name says. A restart therefore costs
//! one reading of a file, and nothing that somebody did to the folder reaches a hypervisor under a wrong name.
//!
//! A file stays while a transfer needs it, and a while longer for the next hypervisor, within a bound.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use proxy_operator_core::error::{Error, Result};
use tempfile::{NamedTempFile, TempPath};

use super::digest::{Algorithm, Digest};
use super::limits::{CHUNK_BYTES, ImageLimits};

/// The folder, shared by all transfers of one process.
pub struct Cache {
    folder: PathBuf,
    limits: Arc<ImageLimits>,
    files: Mutex<Option<HashMap<Digest, Entry>>>,
}

/// A whole image in the cache, which stays while this is held.
pub struct Cached {
    /// The digest of its content.
    pub digest: Digest,
    /// Its bytes.
    pub length: u64,
    cache: Arc<Cache>,
}

struct Entry {
    /// What the file looked like when its digest was last computed.
    seen: Option<Stat>,
    length: u64,
    holders: usize,
    idle_since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stat {
    length: u64,
    changed: (i64, i64),
    inode: u64,
}

const TEMPORARY: &str = "download-";

// === impl Cache ===

impl Cache {
    /// A cache in this folder, which is made when it is first needed.
    pub fn new(folder: impl Into<PathBuf>, limits: Arc<ImageLimits>) -> Self {
        Self { folder: folder.into(), limits, files: Mutex::new(None) }
    }

    /// The file with this digest. Blocks, and reads the whole file when this process does not know it.
    pub fn find(self: &Arc<Self>, digest: &Digest) -> Result<Option<Cached>> {
        let path = self.path(digest);
        let Some(stat) = Stat::of(&path) else { return Ok(None) };
        let known = self.with_files(|files| files.get(digest).is_some_and(|entry| entry.seen == Some(stat)))?;
        if !known {
            let found = hash(&path, digest.algorithm()).map_err(|error| self.failed("read", &error))?;
            if found != *digest {
                tracing::warn!(target: "images", file = %path.display(), %found, "deleting a cached image that is not what its name says");
                self.with_files(|files| files.remove(digest))?;
                fs::remove_file(&path).map_err(|error| self.failed("deleted", &error))?;
                return Ok(None);
            }
        }
        // Between the two looks it may have been swept.
        if Stat::of(&path) != Some(stat) {
            return Ok(None);
        }
        self.hold(digest, stat).map(Some)
    }

    /// A file to download to.
    pub fn temporary(&self) -> Result<NamedTempFile> {
        self.with_files(|_| ())?;
        tempfile::Builder::new()
            .prefix(TEMPORARY)
            .tempfile_in(&self.folder)
            .map_err(|error| self.failed("written", &error))
    }

    /// Takes over a download that is whole. Blocks.
    pub fn adopt(self: &Arc<Self>, file: TempPath, digest: &Digest) -> Result<Cached> {
        let path = self.path(digest);
        // Not lost when the machine is: a file under its digest's name is believed after one reading.
        File::open(&file).and_then(|file| file.sync_all()).map_err(|error| self.failed("written", &error))?;
        file.persist(&path).map_err(|error| self.failed("renamed", &error.error))?;
        let stat = Stat::of(&path).ok_or_else(|| self.failed("found again", &io::ErrorKind::NotFound.into()))?;
        self.hold(digest, stat)
    }

    /// An error of this folder's disk.
    pub fn failed(&self, what: &str, error: &io::Error) -> Error {
        let full = error.kind() == io::ErrorKind::StorageFull || error.kind() == io::ErrorKind::QuotaExceeded;
        let (reason, fix) =
            if full { ("ImageCacheFull", "; make room on the operator's disk") } else { ("ImageCacheFailed", "") };
        Error::unavailable(reason, format!("the image cache {} cannot be {what}: {error}{fix}", self.folder.display()))
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.folder.join(file_name(digest))
    }

    fn hold(self: &Arc<Self>, digest: &Digest, stat: Stat) -> Result<Cached> {
        self.with_files(|files| {
            let entry = files.entry(digest.clone()).or_insert_with(|| Entry::idle(stat.length));
            entry.seen = Some(stat);
            entry.length = stat.length;
            entry.holders += 1;
        })?;
        Ok(Cached { digest: digest.clone(), length: stat.length, cache: Arc::clone(self) })
    }

    /// Works on the table of files; the first time, the folder is made, and what an earlier process left is read.
    fn with_files<T>(&self, work: impl FnOnce(&mut HashMap<Digest, Entry>) -> T) -> Result<T> {
        let mut files = self.lock();
        if files.is_none() {
            *files = Some(self.scan().map_err(|error| self.failed("prepared", &error))?);
        }
        Ok(work(files.get_or_insert_default()))
    }

    fn scan(&self) -> io::Result<HashMap<Digest, Entry>> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut files = HashMap::new();
        for file in fs::read_dir(&self.folder)? {
            let file = file?;
            let name = file.file_name().to_string_lossy().into_owned();
            if name.starts_with(TEMPORARY) {
                // A download that was cut off with its process.
                fs::remove_file(file.path())?;
            } else if let Some(digest) = digest_of(&name) {
                files.insert(digest, Entry::idle(file.metadata()?.len()));
            }
        }
        Ok(files)
    }

    /// Deletes what nobody needs: what has been idle for long, and the longest idle of what is too much.
    fn sweep(&self) {
        let mut guard = self.lock();
        let Some(files) = guard.as_mut() else { return };
        let mut idle: Vec<(Digest, Instant, u64)> = files
            .iter()
            .filter(|(_, entry)| entry.holders == 0)
            .map(|(digest, entry)| (digest.clone(), entry.idle_since, entry.length))
            .collect();
        idle.sort_by_key(|(_, since, _)| *since);
        let mut bytes: u64 = idle.iter().map(|(_, _, length)| length).sum();
        for (digest, since, length) in idle {
            if since.elapsed() < self.limits.cache_idle && bytes <= self.limits.cache_idle_bytes {
                continue;
            }
            bytes = bytes.saturating_sub(length);
            files.remove(&digest);
            let path = self.path(&digest);
            match fs::remove_file(&path) {
                Ok(()) => tracing::debug!(target: "images", file = %path.display(), "removed from the cache"),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    tracing::warn!(target: "images", file = %path.display(), %error, "cannot be removed from the cache")
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<HashMap<Digest, Entry>>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Cached ===

impl Cached {
    /// Opens the file.
    pub fn open(&self) -> Result<File> {
        File::open(self.cache.path(&self.digest)).map_err(|error| self.cache.failed("read", &error))
    }
}

impl Drop for Cached {
    fn drop(&mut self) {
        if let Some(entry) = self.cache.lock().as_mut().and_then(|files| files.get_mut(&self.digest)) {
            entry.holders = entry.holders.saturating_sub(1);
            entry.idle_since = Instant::now();
        }
        self.cache.sweep();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let cache = Arc::clone(&self.cache);
            runtime.spawn(async move {
                tokio::time::sleep(cache.limits.cache_idle).await;
                cache.sweep();
            });
        }
    }
}

// === impl Entry, Stat ===

impl Entry {
    fn idle(length: u64) -> Self {
        Self { seen: None, length, holders: 0, idle_since: Instant::now() }
    }
}

impl Stat {
    fn of(path: &Path) -> Option<Self> {
        let metadata = fs::symlink_metadata(path).ok().filter(fs::Metadata::is_file)?;
        Some(Self { length: metadata.len(), changed: (metadata.ctime(), metadata.ctime_nsec()), inode: metadata.ino() })
    }
}

fn file_name(digest: &Digest) -> String {
    format!("{}-{}", digest.algorithm().as_str(), digest.hex())
}

fn digest_of(name: &str) -> Option<Digest> {
    Digest::parse_opt(&name.replacen('-', ":", 1))
}

fn hash(path: &Path, algorithm: Algorithm) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = algorithm.hasher();
    let mut chunk = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut chunk) {
            Ok(0) => return Ok(hasher.finish()),
            Ok(read) => hasher.update(chunk.get(..read).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::time::Duration;

    use super::*;

    fn cache(folder: &Path, limits: ImageLimits) -> Arc<Cache> {
        Arc::new(Cache::new(folder, Arc::new(limits)))
    }

    fn put(cache: &Arc<Cache>, content: &[u8]) -> Cached {
        let mut file = cache.temporary().unwrap();
        file.write_all(content).unwrap();
        let mut hasher = Algorithm::Sha256.hasher();
        hasher.update(content);
        cache.adopt(file.into_temp_path(), &hasher.finish()).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_file_is_found_again_also_by_another_process_and_not_when_it_was_changed() {
        let folder = tempfile::tempdir().unwrap();
        let first = cache(folder.path(), ImageLimits::default());
        let digest = put(&first, b"content").digest.clone();
        assert_eq!(first.find(&digest).unwrap().unwrap().length, 7);
        let second = cache(folder.path(), ImageLimits::default());
        assert!(second.find(&digest).unwrap().is_some());
        fs::write(folder.path().join(file_name(&digest)), b"changed").unwrap();
        assert!(first.find(&digest).unwrap().is_none(), "known, and changed");
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn what_a_crash_left_behind_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("download-abc"), b"part").unwrap();
        let digest = Digest::parse(&format!("sha256:{}", "0".repeat(64))).unwrap();
        fs::write(folder.path().join(file_name(&digest)), b"not that").unwrap();
        let cache = cache(folder.path(), ImageLimits::default());
        assert!(cache.find(&digest).unwrap().is_none());
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn a_file_stays_while_it_is_held_and_no_longer_than_allowed() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), ImageLimits { cache_idle: Duration::ZERO, ..ImageLimits::default() });
        let first = put(&cache, b"one");
        let second = cache.find(&first.digest).unwrap().unwrap();
        drop(first);
        assert_eq!(names(folder.path()).len(), 1);
        drop(second);
        assert_eq!(names(folder.path()), [""; 0]);
    }

    #[test]
    fn idle_files_are_bounded_the_longest_idle_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache(folder.path(), ImageLimits { cache_idle_bytes: 5, ..ImageLimits::default() });
        let first = put(&cache, b"one").digest.clone();
        assert_eq!(names(folder.path()).len(), 1);
        let second = put(&cache, b"two").digest.clone();
        assert!(cache.find(&first).unwrap().is_none());
        assert!(cache.find(&second).unwrap().is_some());
    }
}
