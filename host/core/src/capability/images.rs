//! Base images: the host downloads, verifies and uploads them; no byte of one passes through a guest.

use async_trait::async_trait;

use super::libvirt::VolumeFormat;
use crate::error::Result;

/// An image to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Its key in the Provider's config; `None` for a Proxy that gives a URL.
    pub key: Option<String>,
    /// From where: `https://`, `http://` or `file://`, with a prefix that is granted.
    pub url: String,
    /// `sha256:` or `sha512:` and hexadecimal digits. `None`: what arrives is taken, if it is whole.
    pub digest: Option<String>,
}

/// A base image that is whole, verified and in the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseImage {
    /// The name of its volume: `base-<key>-<12 digits of its digest>.<format>`.
    pub volume: String,
    /// Its format.
    pub format: VolumeFormat,
    /// Its virtual size in bytes.
    pub capacity: u64,
}

/// How far a transfer is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// What is done now: `ImageQueued`, `ImageDownloading`, `ImageVerifying`, `ImageUploading`.
    pub reason: String,
    /// The same for people: `uploading image debian-12 to hv1/default, 42 %`.
    pub message: String,
    /// 0 to 100, where the size is known.
    pub percent: Option<u8>,
}

/// Whether an image can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// Now.
    Ready(BaseImage),
    /// Not yet. Ask again in a later call.
    Pending(Transfer),
}

/// Base images in the pools of granted hypervisors.
#[async_trait]
pub trait Images: Send + Sync {
    /// Asks for an image in a pool of a libvirt host; starts its transfer when nobody has, and returns at once.
    async fn ensure(&self, host: &str, pool: &str, source: &Source) -> Result<Status>;
}
