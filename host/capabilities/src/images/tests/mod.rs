//! The service from a request to a whole image, on a web server of the tests' own and a pool in memory.
//!
//! - `fetching`: what servers do: digests, redirects, failures; files; the limits of grants
//! - `keeping`: who shares a transfer, what is remembered, what ends with a grant
//! - `crashing`: an operator that dies at each step, two that share a pool, images in use
//! - `pruning`: what is listed and removed
//! - `tls`: certificates

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use proxy_operator_api::grants::{ImagesGrant, LibvirtGrant, LibvirtHost};
use proxy_operator_core::capability::images::{BaseImage, Images, Source, Status};
use proxy_operator_core::capability::libvirt::VolumeFormat;
use proxy_operator_core::error::{Error, Result};

use self::memory::{Disk, MemoryPool};
use self::server::{Answer, Server};
use super::digest::Algorithm;
use super::granted::GrantedImages;
use super::limits::ImageLimits;
use super::service::ImageService;

mod crashing;
mod fetching;
mod keeping;
mod memory;
mod pruning;
mod server;
mod tls;

/// Limits that do not make a test wait.
fn quick() -> ImageLimits {
    ImageLimits {
        connect: Duration::from_secs(2),
        read: Duration::from_millis(400),
        grace: Duration::ZERO,
        claim_beat: Duration::from_millis(30),
        claim_stale: Duration::from_millis(200),
        claim_settle: Duration::from_millis(15),
        retry_transient: Duration::from_millis(40),
        retry_permanent: Duration::from_secs(20),
        ..ImageLimits::default()
    }
}

/// A server, a pool, and an operator.
struct Bench {
    server: Server,
    disk: Arc<Disk>,
    pool: MemoryPool,
    service: ImageService,
    cache: tempfile::TempDir,
}

impl Bench {
    async fn new() -> Self {
        Self::with(quick()).await
    }

    async fn with(limits: ImageLimits) -> Self {
        let disk = Arc::<Disk>::default();
        let (service, pool, cache) = operator(&disk, "installation", limits);
        Self { server: Server::start().await, disk, pool, service, cache }
    }

    /// A Provider that may download from the server.
    fn granted(&self) -> Arc<GrantedImages> {
        self.granted_to("kvm-home", &[&self.server.url("/")])
    }

    fn granted_to(&self, provider: &str, prefixes: &[&str]) -> Arc<GrantedImages> {
        self.service.granted(provider, &images_grant(prefixes), &libvirt_grant())
    }

    fn source(&self, path: &str, digest: Option<&str>) -> Source {
        Source { key: Some("debian-12".to_owned()), url: self.server.url(path), digest: digest.map(str::to_owned) }
    }
}

/// An operator on a disk, and its view of it.
fn operator(
    disk: &Arc<Disk>,
    installation: &str,
    limits: ImageLimits,
) -> (ImageService, MemoryPool, tempfile::TempDir) {
    let cache = tempfile::tempdir().unwrap();
    let pool = MemoryPool::new(disk);
    (ImageService::new(&cache.path().join("images"), installation, Arc::new(pool.clone()), limits), pool, cache)
}

fn images_grant(prefixes: &[&str]) -> ImagesGrant {
    ImagesGrant { url_prefixes: prefixes.iter().map(|&prefix| prefix.to_owned()).collect(), max_gib: Some(1) }
}

fn libvirt_grant() -> LibvirtGrant {
    let host = LibvirtHost {
        address: "unix:///run/libvirt/libvirt-sock".to_owned(),
        secret: None,
        socket: None,
        pools: vec!["default".to_owned()],
        networks: vec!["lan".to_owned()],
        limits: None,
    };
    LibvirtGrant { hosts: BTreeMap::from([("hv1".to_owned(), host)]) }
}

/// A raw disk image with content of its own.
fn image(seed: u8) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..200_000_usize).map(|index| (index as u8).wrapping_mul(31) ^ seed).collect();
    bytes[0] = seed;
    bytes[1] = 0;
    bytes
}

fn sha256(bytes: &[u8]) -> String {
    let mut hasher = Algorithm::Sha256.hasher();
    hasher.update(bytes);
    hasher.finish().to_string()
}

fn sha512(bytes: &[u8]) -> String {
    let mut hasher = Algorithm::Sha512.hasher();
    hasher.update(bytes);
    hasher.finish().to_string()
}

/// Asks until there is an answer.
async fn settle(images: &dyn Images, source: &Source) -> Result<BaseImage> {
    let started = Instant::now();
    loop {
        match images.ensure("hv1", "default", source).await? {
            Status::Ready(image) => return Ok(image),
            Status::Pending(transfer) => {
                assert!(started.elapsed() < Duration::from_secs(20), "{transfer:?}");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    }
}

/// Waits for something to become true.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
