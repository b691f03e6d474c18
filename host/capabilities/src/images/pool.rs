//! What base images need of a storage pool, as a trait: libvirt's pools implement it, and pools in memory for tests.
//!
//! Every method may be called twice for one purpose: a call that met a dead connection is made again.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use async_trait::async_trait;
use proxy_operator_api::grants::LibvirtHost;
use proxy_operator_core::capability::libvirt::VolumeFormat;
use proxy_operator_core::error::Result;

use super::progress::Progress;

/// A volume as the pool sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeInfo {
    /// Its format, where it is one that domains of ours can have.
    pub format: Option<VolumeFormat>,
    /// Its virtual size in bytes.
    pub capacity: u64,
    /// The bytes that its file has, where the pool says it.
    pub physical: Option<u64>,
    /// The path of what it stands on.
    pub backing: Option<String>,
}

/// What became of making a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Created {
    /// It was made.
    Made,
    /// There is one of that name.
    Exists,
}

/// What is uploaded.
#[derive(Clone, Debug)]
pub struct Content {
    /// The file, read at offsets of the reader's own.
    pub file: Arc<File>,
    /// Its bytes.
    pub length: u64,
    /// Counts them as they go.
    pub progress: Arc<Progress>,
    /// Ends the upload.
    pub cancelled: tokio_util::sync::CancellationToken,
}

/// Who stands on which volume.
pub type Users = BTreeMap<String, Vec<String>>;

/// A storage pool of a hypervisor.
#[async_trait]
pub trait ImagePool: Send + Sync {
    /// Names the hypervisor, the same for all who mean the same one.
    fn hypervisor(&self) -> String;
    /// The pool's name.
    fn name(&self) -> String;
    /// The names of all volumes.
    async fn volumes(&self) -> Result<Vec<String>>;
    /// Whether all these volumes exist. Cheap: one lookup each.
    async fn exist(&self, volumes: &[String]) -> Result<bool>;
    /// A volume as it is; `None` when it is absent.
    async fn look(&self, volume: &str) -> Result<Option<VolumeInfo>>;
    /// The first bytes of a volume, at most so many; `None` when it is absent.
    async fn read(&self, volume: &str, most: u64) -> Result<Option<Vec<u8>>>;
    /// Makes a raw volume of so many bytes, unless one of that name exists: of two who try at once, one makes it.
    async fn create(&self, volume: &str, capacity: u64) -> Result<Created>;
    /// Overwrites the first bytes of a small volume.
    async fn write(&self, volume: &str, content: Vec<u8>) -> Result<()>;
    /// Fills a volume, on a connection that nobody's calls wait for.
    async fn upload(&self, volume: &str, content: Content) -> Result<()>;
    /// Deletes a volume; absent is well.
    async fn delete(&self, volume: &str) -> Result<()>;
    /// Who stands on volumes of this pool, volumes and domains, by the name of the volume they stand on. Costs a call
    /// for each volume and each domain.
    async fn users(&self) -> Result<Users>;
    /// Bytes that are free, where the pool says it.
    async fn available(&self) -> Result<Option<u64>>;
    /// Makes the pool look at what it holds.
    async fn refresh(&self) -> Result<()>;
}

/// Where pools come from.
pub trait Pools: Send + Sync {
    /// A pool of a hypervisor. Asks nobody.
    fn pool(&self, name: &str, host: &LibvirtHost, pool: &str) -> Result<Arc<dyn ImagePool>>;
}
