//! Compiled code by content, so that a start loads in a millisecond what took seconds to compile.
//!
//! A file is called `<digest of the component>-<digest of compiler and settings>.code` and holds a digest of its code,
//! then the code. Only a folder is used that nobody but this user (or root: an image's folder) can write. Whatever is
//! wrong with a file, the component is compiled, and the file written anew.

mod code;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{Hash, Hasher};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use proxy_operator_core::error::{Error, Result};
use sha2::{Digest, Sha256};
use wasmtime::component::Component;

use crate::limits;

/// Says what the file is; its number changes with the form of the file.
const MAGIC: &[u8; 8] = b"POPCODE1";

/// Bytes of a SHA-256.
const DIGEST: usize = 32;

/// Compiled code on disk.
pub(crate) struct Cache {
    /// The folder that is read and written.
    own: Option<PathBuf>,
    /// Folders that are only read.
    prebuilt: Vec<PathBuf>,
    /// The digest of compiler version and settings, in hexadecimal.
    settings: String,
}

/// Feeds a SHA-256, for what knows only `Hash`.
struct DigestHasher(Sha256);

// === impl Cache ===

impl Cache {
    /// A cache in a folder, which is made when it is missing and refused when others can write to it.
    pub(crate) fn new(engine: &wasmtime::Engine, own: Option<PathBuf>, prebuilt: Vec<PathBuf>) -> Result<Self> {
        if let Some(folder) = &own {
            prepare(folder).map_err(|error| Error::invalid_config("CacheUnusable", error))?;
        }
        let mut hasher = DigestHasher(Sha256::new());
        engine.precompile_compatibility_hash().hash(&mut hasher);
        let digest = hex::encode(hasher.0.finalize());
        Ok(Self { own, prebuilt, settings: digest.get(..16).unwrap_or_default().to_owned() })
    }

    /// The component with this digest, if its code is here and whole.
    pub(crate) fn load(&self, engine: &wasmtime::Engine, digest: &str) -> Option<Component> {
        let folders = self.own.iter().chain(&self.prebuilt);
        folders.filter_map(|folder| self.load_from(engine, folder, digest)).next()
    }

    /// Keeps the code of a component. A cache that cannot be written is slow, not broken.
    pub(crate) fn store(&self, digest: &str, component: &Component) {
        let Some(folder) = &self.own else { return };
        if let Err(error) = self.store_in(folder, digest, component) {
            tracing::warn!(folder = %folder.display(), %error, "compiled code could not be kept, the next start compiles again");
        }
    }

    fn load_from(&self, engine: &wasmtime::Engine, folder: &Path, digest: &str) -> Option<Component> {
        let path = folder.join(self.name(digest));
        let loaded = match read(folder, &path) {
            Ok(Some(code)) => code::trust(engine, &code).map_err(|error| format!("{error:#}")),
            Ok(None) => return None,
            Err(error) => Err(error),
        };
        loaded.inspect_err(|error| tracing::warn!(file = %path.display(), error, "compiled code is not used")).ok()
    }

    fn store_in(&self, folder: &Path, digest: &str, component: &Component) -> std::result::Result<(), String> {
        prepare(folder)?;
        let code = component.serialize().map_err(|error| format!("{error:#}"))?;
        let write = || -> io::Result<()> {
            // A name of its own, readable and writable by this user alone, then one rename: never half a file.
            let mut file = tempfile::Builder::new().prefix(".code-").tempfile_in(folder)?;
            file.write_all(MAGIC)?;
            file.write_all(&Sha256::digest(&code))?;
            file.write_all(&code)?;
            file.as_file().sync_all()?;
            file.persist(folder.join(self.name(digest)))?;
            prune(folder)
        };
        write().map_err(|error| error.to_string())
    }

    fn name(&self, digest: &str) -> String {
        format!("{digest}-{}.code", self.settings)
    }
}

/// Makes a folder that is missing, and checks that nobody else can write to it.
fn prepare(folder: &Path) -> std::result::Result<(), String> {
    let shown = folder.display();
    if let Err(error) = DirBuilder::new().recursive(true).mode(0o700).create(folder) {
        return Err(format!("the folder {shown} for compiled code cannot be made: {error}"));
    }
    let metadata =
        fs::symlink_metadata(folder).map_err(|error| format!("the folder {shown} for compiled code: {error}"))?;
    if !metadata.is_dir() {
        return Err(format!("{shown} is not a folder"));
    }
    safe(&metadata).map_err(|why| {
        format!("the folder {shown} for compiled code {why}: what it holds is run; make it this user's with mode 0700")
    })
}

/// Whether nobody but this user and root can write it.
fn safe(metadata: &fs::Metadata) -> std::result::Result<(), String> {
    let user = rustix::process::geteuid().as_raw();
    if metadata.uid() != user && metadata.uid() != 0 {
        return Err(format!("belongs to user {}, not to user {user}", metadata.uid()));
    }
    if metadata.mode() & 0o022 != 0 {
        return Err(format!("can be written by others (mode {:04o})", metadata.mode() & 0o7777));
    }
    Ok(())
}

/// The code in a file; `None` when there is no file.
fn read(folder: &Path, path: &Path) -> std::result::Result<Option<Vec<u8>>, String> {
    // No link is followed, and what is checked is what was opened.
    let nofollow = rustix::fs::OFlags::NOFOLLOW.bits();
    let flags = i32::try_from(nofollow).map_err(|error| error.to_string())?;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    let folder = fs::symlink_metadata(folder).map_err(|error| error.to_string())?;
    safe(&folder).map_err(|why| format!("its folder {why}"))?;
    safe(&file.metadata().map_err(|error| error.to_string())?).map_err(|why| format!("it {why}"))?;
    whole(file).map(Some)
}

/// The code in an open file, if the file is whole.
fn whole(mut file: File) -> std::result::Result<Vec<u8>, String> {
    let mut content = Vec::new();
    file.read_to_end(&mut content).map_err(|error| error.to_string())?;
    let Some(rest) = content.strip_prefix(MAGIC.as_slice()) else {
        return Err("it is not a file of this cache".to_owned());
    };
    match rest.split_at_checked(DIGEST) {
        Some((digest, code)) if Sha256::digest(code).as_slice() == digest => Ok(code.to_vec()),
        _ => Err("it is damaged".to_owned()),
    }
}

/// Removes the oldest files beyond the limit.
fn prune(folder: &Path) -> io::Result<()> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "code") {
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    files.sort();
    let surplus = files.len().saturating_sub(limits::CACHE_FILES);
    for (_, path) in files.iter().take(surplus) {
        fs::remove_file(path)?;
    }
    Ok(())
}

// === impl DigestHasher ===

impl Hasher for DigestHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        digest.iter().take(8).fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}
