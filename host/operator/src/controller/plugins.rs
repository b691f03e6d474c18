//! Plugins by name: files of a folder, loaded once for each content.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use proxy_operator_core::error::{Error, ErrorCode, Result};
use proxy_operator_runtime::{Engine, Plugin};
use sha2::{Digest as _, Sha256};

/// The largest file that is read as a plugin: components of scripting languages have about 20 MB.
const PLUGIN_MAX_BYTES: u64 = 128 << 20;

/// What a file looked like, to see that it has changed without reading it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStamp {
    modified: Option<SystemTime>,
    length: u64,
    inode: u64,
}

/// The plugins folder and the engine that loads from it.
pub struct Plugins {
    engine: Engine,
    folder: PathBuf,
    /// By digest of the bytes: Providers of one plugin share its code. One load at a time, since each uses all cores.
    loaded: tokio::sync::Mutex<HashMap<String, std::sync::Weak<Plugin>>>,
    stamps: std::sync::Mutex<HashMap<String, (FileStamp, String)>>,
}

// === impl Plugins ===

impl Plugins {
    /// Plugins of a folder.
    pub fn new(engine: Engine, folder: impl Into<PathBuf>) -> Self {
        Self {
            engine,
            folder: folder.into(),
            loaded: tokio::sync::Mutex::default(),
            stamps: std::sync::Mutex::default(),
        }
    }

    /// What the file of a plugin looks like now; `None`: there is none.
    pub fn stamp(&self, name: &str) -> Option<FileStamp> {
        use std::os::unix::fs::MetadataExt as _;
        let metadata = std::fs::metadata(self.path(name)).ok()?;
        Some(FileStamp { modified: metadata.modified().ok(), length: metadata.len(), inode: metadata.ino() })
    }

    /// Loads the plugin that the file of this name holds now.
    ///
    /// # Errors
    /// `PluginNotFound`, and what loading can say: `PluginIncompatible`, `PluginTrapped`, …
    pub async fn load(&self, name: &str) -> Result<Arc<Plugin>> {
        let path = self.path(name);
        let mut loaded = self.loaded.lock().await;
        let stamp = self.stamp(name);
        if let Some(stamp) = stamp
            && let Some(plugin) = self.known(name, stamp).and_then(|digest| loaded.get(&digest)?.upgrade())
        {
            return Ok(plugin);
        }
        let bytes = tokio::task::block_in_place(|| read(&path)).map_err(|error| unreadable(&path, &error))?;
        let digest = hex::encode(Sha256::digest(&bytes));
        if let Some(stamp) = stamp {
            let mut stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
            stamps.insert(name.to_owned(), (stamp, digest.clone()));
        }
        if let Some(plugin) = loaded.get(&digest).and_then(std::sync::Weak::upgrade) {
            return Ok(plugin);
        }
        let plugin = Plugin::load(&self.engine, name, bytes).await?;
        loaded.retain(|_, plugin| plugin.strong_count() > 0);
        loaded.insert(digest, Arc::downgrade(&plugin));
        Ok(plugin)
    }

    fn known(&self, name: &str, stamp: FileStamp) -> Option<String> {
        let stamps = self.stamps.lock().unwrap_or_else(PoisonError::into_inner);
        stamps.get(name).filter(|(known, _)| *known == stamp).map(|(_, digest)| digest.clone())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.wasm"))
    }
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let length = std::fs::metadata(path)?.len();
    if length > PLUGIN_MAX_BYTES {
        return Err(std::io::Error::other(format!("has {length} bytes; a plugin has at most {PLUGIN_MAX_BYTES}")));
    }
    std::fs::read(path)
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let (reason, advice) = match error.kind() {
        std::io::ErrorKind::NotFound => ("PluginNotFound", "put the file there, or correct spec.plugin.name"),
        _ => ("PluginUnreadable", "let the operator read it"),
    };
    Error::new(ErrorCode::InvalidConfig, reason, format!("plugin file {}: {error}; {advice}", path.display()))
}
