//! Base images on a real libvirtd behind a real sshd.
//!
//! - qcow2 and raw images arrive whole, domains' disks can stand on them, and only the unused ones are pruned
//! - an operator or a libvirtd that dies in the middle of an upload leaves no image that counts as whole
//! - volumes that go by libvirt or behind its back are noticed
//! - two operators that share a pool upload once
//!
//! Needs root and the packages of `tests/setup/packages.sh`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy_operator_api::grants::{ImagesGrant, LibvirtGrant, LibvirtHost};
use proxy_operator_capabilities::images::{Condition, GrantedImages, ImageLimits, ImageService, LibvirtPools};
use proxy_operator_capabilities::libvirt::granted::GrantedLibvirt;
use proxy_operator_capabilities::libvirt::hypervisors::Hypervisors;
use proxy_operator_capabilities::libvirt::policy::Identity;
use proxy_operator_capabilities::limits::Limits;
use proxy_operator_capabilities::secrets::SecretStore;
use proxy_operator_core::capability::images::{BaseImage, Images, Source, Status};
use proxy_operator_core::capability::libvirt::{Libvirt, VolumeFormat, VolumeSpec};
use proxy_operator_core::error::Error;
use proxy_operator_harness::{Daemon, Hypervisor, Options, shared};
use sha2::{Digest, Sha256};

const HOST: &str = "hv1";
const MIB: u64 = 1 << 20;

/// An operator with one Provider.
struct Operator {
    service: ImageService,
    images: Arc<GrantedImages>,
    libvirt: Arc<GrantedLibvirt>,
    host: LibvirtHost,
    prefix: String,
    identity: Identity,
    _folder: tempfile::TempDir,
}

fn connections() -> Limits {
    Limits {
        keepalive_interval: Duration::from_secs(1),
        keepalive_count: 2,
        dial: Duration::from_secs(20),
        backoff_first: Duration::from_millis(50),
        backoff_most: Duration::from_millis(400),
        ..Limits::default()
    }
}

fn transfers() -> ImageLimits {
    ImageLimits {
        claim_beat: Duration::from_millis(300),
        claim_stale: Duration::from_secs(2),
        claim_settle: Duration::from_millis(100),
        retry_transient: Duration::from_millis(200),
        // An upload is caught in its middle: on a fast disk all of it is over within the default's second.
        grace: Duration::from_millis(1),
        ..ImageLimits::default()
    }
}

impl Operator {
    /// One that may use the hypervisor, and download files of this folder.
    fn new(hypervisor: &Hypervisor, installation: &str, files: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secrets/kvm-ssh");
        std::fs::create_dir_all(&secret).unwrap();
        std::fs::copy(&hypervisor.keys.ed25519, secret.join("ssh-privatekey")).unwrap();
        std::fs::copy(&hypervisor.known_hosts, secret.join("known_hosts")).unwrap();
        let hypervisors = Hypervisors::new(SecretStore::new(folder.path().join("secrets")), connections());
        let host = LibvirtHost {
            address: hypervisor.ssh_address.clone(),
            secret: Some("kvm-ssh".to_owned()),
            socket: None,
            pools: vec![hypervisor.pool.clone()],
            networks: vec![hypervisor.network.clone()],
            limits: None,
        };
        let grant = LibvirtGrant { hosts: BTreeMap::from([(HOST.to_owned(), host.clone())]) };
        let pools = Arc::new(LibvirtPools::new(hypervisors.clone(), connections(), &transfers()));
        let service = ImageService::new(&folder.path().join("images"), installation, pools, transfers());
        let prefix = format!("file://{}/", files.display());
        let images =
            service.granted("kvm-home", &ImagesGrant { url_prefixes: vec![prefix.clone()], max_gib: Some(4) }, &grant);
        let identity = Identity::new(installation, "kvm-home");
        let libvirt = hypervisors.granted(identity.clone(), &grant);
        Self { service, images, libvirt, host, prefix, identity, _folder: folder }
    }

    fn source(&self, file: &str, digest: &str) -> Source {
        Source {
            key: Some(file.split('.').next().unwrap().to_owned()),
            url: format!("{}{file}", self.prefix),
            digest: Some(digest.to_owned()),
        }
    }

    async fn settle(&self, source: &Source) -> Result<BaseImage, Error> {
        let started = Instant::now();
        loop {
            match self.images.ensure(HOST, "default", source).await? {
                Status::Ready(image) => return Ok(image),
                Status::Pending(transfer) => assert!(started.elapsed() < Duration::from_secs(90), "{transfer:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The same through failures that pass.
    async fn settle_at_last(&self, source: &Source) -> BaseImage {
        let started = Instant::now();
        loop {
            match self.settle(source).await {
                Ok(image) => return image,
                Err(error) => {
                    assert!(error.code.is_transient() && started.elapsed() < Duration::from_secs(90), "{error}")
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

/// Bytes that do not compress, and are others for each seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    let mut bytes: Vec<u8> = words.take(length.div_ceil(8)).flatten().collect();
    bytes.truncate(length);
    bytes
}

fn digest(path: &Path) -> String {
    use std::fmt::Write;
    Sha256::digest(std::fs::read(path).unwrap()).iter().fold("sha256:".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

fn qemu_img(folder: &Path, arguments: &[&str]) {
    let status =
        Command::new("qemu-img").args(arguments).current_dir(folder).stdout(std::process::Stdio::null()).status();
    assert!(status.expect("needs qemu-img: apt-get install qemu-utils").success(), "{arguments:?}");
}

/// A raw image of so many MiB.
fn raw(folder: &Path, name: &str, seed: u64, mib: u64) -> String {
    let path = folder.join(name);
    std::fs::write(&path, noise(seed, usize::try_from(mib * MIB).unwrap())).unwrap();
    digest(&path)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn images_arrive_whole_and_disks_stand_on_them() {
    let hypervisor = shared("hvimg").unwrap();
    let files = tempfile::tempdir().unwrap();
    let operator = Operator::new(hypervisor, "life", files.path());
    let pinned = raw(files.path(), "life-raw.raw", 1, 8);
    qemu_img(files.path(), &["convert", "-f", "raw", "-O", "qcow2", "life-raw.raw", "life-qcow.qcow2"]);
    let qcow2 = digest(&files.path().join("life-qcow.qcow2"));
    for (source, format) in [
        (operator.source("life-raw.raw", &pinned), VolumeFormat::Raw),
        (operator.source("life-qcow.qcow2", &qcow2), VolumeFormat::Qcow2),
    ] {
        let image = operator.settle(&source).await.unwrap();
        assert_eq!((image.format, image.capacity), (format, 8 * MIB));
        let uploaded = hypervisor.pool_dir.join(&image.volume);
        assert_eq!(digest(&uploaded), *source.digest.as_ref().unwrap());
        let disk = format!("{}o-1.disk", operator.identity.name_prefix);
        let spec = VolumeSpec { format: VolumeFormat::Qcow2, capacity: 16 * MIB, backing: Some(image.volume.clone()) };
        operator.libvirt.create_volume(HOST, "default", &disk, &spec).await.unwrap();
        let listed = operator.service.list(HOST, &operator.host, "default").await.unwrap();
        let found = listed.iter().find(|listed| listed.volume == image.volume).unwrap();
        assert_eq!((found.condition, &found.users), (Condition::Whole, &vec![disk.clone()]));
        assert_eq!(found.bytes, Some(std::fs::metadata(&uploaded).unwrap().len()));
        let keep = |listed: &proxy_operator_capabilities::images::StoredImage| !listed.key.starts_with("life-");
        let pruned = operator.service.prune(HOST, &operator.host, "default", &keep).await.unwrap();
        assert!(pruned.iter().all(|pruned| pruned.volume != image.volume), "{pruned:?}");
        assert_eq!(operator.settle(&source).await.unwrap(), image);
        operator.libvirt.delete_volume(HOST, "default", &disk).await.unwrap();
        let pruned = operator.service.prune(HOST, &operator.host, "default", &keep).await.unwrap();
        assert!(pruned.iter().any(|pruned| pruned.volume == image.volume), "{pruned:?}");
        assert!(!uploaded.exists());
        assert!(!hypervisor.pool_dir.join(format!("{}.complete", image.volume)).exists());
        // Ready no longer, and brought again.
        assert_eq!(operator.settle(&source).await.unwrap(), image);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_domain_that_uses_an_image_keeps_it() {
    let hypervisor = shared("hvimg").unwrap();
    let files = tempfile::tempdir().unwrap();
    let operator = Operator::new(hypervisor, "used", files.path());
    let pinned = raw(files.path(), "used.raw", 2, 1);
    let image = operator.settle(&operator.source("used.raw", &pinned)).await.unwrap();
    let xml = files.path().join("domain.xml");
    let document = format!(
        "<domain type='qemu'><name>used</name><memory unit='MiB'>32</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>
        <devices><disk type='volume' device='disk'><driver name='qemu' type='raw'/><source pool='default' volume='{}'/>
        <target dev='vda' bus='virtio'/><readonly/></disk></devices></domain>",
        image.volume
    );
    std::fs::write(&xml, document).unwrap();
    hypervisor.virsh(&["define", xml.to_str().unwrap()]).unwrap();
    let keep = |listed: &proxy_operator_capabilities::images::StoredImage| listed.key != "used";
    assert!(operator.service.prune(HOST, &operator.host, "default", &keep).await.unwrap().is_empty());
    hypervisor.virsh(&["undefine", "used"]).unwrap();
    assert_eq!(operator.service.prune(HOST, &operator.host, "default", &keep).await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn volumes_that_go_are_noticed_however_they_go() {
    let hypervisor = shared("hvimg").unwrap();
    let files = tempfile::tempdir().unwrap();
    let operator = Operator::new(hypervisor, "gone", files.path());
    let pinned = raw(files.path(), "gone.raw", 3, 1);
    let source = operator.source("gone.raw", &pinned);
    let image = operator.settle(&source).await.unwrap();
    let file = hypervisor.pool_dir.join(&image.volume);
    hypervisor.virsh(&["vol-delete", "--pool", "default", &image.volume]).unwrap();
    assert_eq!(operator.settle(&source).await.unwrap(), image);
    assert_eq!(digest(&file), pinned);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(operator.settle(&source).await.unwrap(), image);
    assert_eq!(digest(&file), pinned);
    // A part of one that the pool does not know, and a claim of nobody.
    for name in [image.volume.clone(), format!("{}.complete", image.volume)] {
        hypervisor.virsh(&["vol-delete", "--pool", "default", &name]).unwrap();
    }
    std::fs::write(&file, b"part").unwrap();
    std::fs::write(hypervisor.pool_dir.join(format!("{}.upload", image.volume)), [0; 1024]).unwrap();
    assert_eq!(operator.settle(&source).await.unwrap(), image);
    assert_eq!(digest(&file), pinned);
}

/// The operator's process ends with its runtime, in the middle of an upload.
#[test]
fn an_operator_that_dies_leaves_nothing_that_counts_and_the_next_one_ends_it() {
    let hypervisor = shared("hvimg").unwrap();
    let files = tempfile::tempdir().unwrap();
    let pinned = raw(files.path(), "dies.raw", 4, 192);
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let volume = format!("base-dies-{}.raw", &pinned[7..19]);
    for percent in [10, 60] {
        let first = runtime();
        first.block_on(async {
            let operator = Operator::new(hypervisor, "dies", files.path());
            let source = operator.source("dies.raw", &pinned);
            let started = Instant::now();
            loop {
                match operator.images.ensure(HOST, "default", &source).await.unwrap() {
                    Status::Pending(transfer)
                        if transfer.reason == "ImageUploading" && transfer.percent >= Some(percent) =>
                    {
                        break;
                    }
                    Status::Pending(_) => assert!(started.elapsed() < Duration::from_secs(60)),
                    Status::Ready(_) => panic!("too fast to be caught at {percent} %"),
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            // Nothing is cleaned up by a process that dies.
            std::mem::forget(operator);
        });
        first.shutdown_background();
        assert!(!hypervisor.pool_dir.join(format!("{volume}.complete")).exists());
    }
    runtime().block_on(async {
        let operator = Operator::new(hypervisor, "dies", files.path());
        let image = operator.settle_at_last(&operator.source("dies.raw", &pinned)).await;
        assert_eq!(image.volume, volume);
        assert_eq!(digest(&hypervisor.pool_dir.join(&volume)), pinned);
        assert!(!hypervisor.pool_dir.join(format!("{volume}.upload")).exists());
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_libvirtd_or_sshd_that_dies_under_an_upload_is_survived() {
    let hypervisor =
        tokio::task::spawn_blocking(|| Hypervisor::up("hvimg2", &Options::default())).await.unwrap().unwrap();
    let files = tempfile::tempdir().unwrap();
    let operator = Operator::new(&hypervisor, "dies", files.path());
    for (index, daemon) in [Daemon::Libvirtd, Daemon::Sshd].into_iter().enumerate() {
        let name = format!("daemon-{index}.raw");
        let pinned = raw(files.path(), &name, 5 + index as u64, 256);
        let source = operator.source(&name, &pinned);
        let started = Instant::now();
        loop {
            match operator.images.ensure(HOST, "default", &source).await.unwrap() {
                Status::Pending(transfer) if transfer.reason == "ImageUploading" && transfer.percent >= Some(20) => {
                    break;
                }
                Status::Pending(_) => assert!(started.elapsed() < Duration::from_secs(60)),
                Status::Ready(_) => panic!("too fast to be caught"),
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        hypervisor.kill(daemon).unwrap();
        let volume = format!("base-daemon-{index}-{}.raw", &pinned[7..19]);
        tokio::time::sleep(Duration::from_millis(500)).await;
        hypervisor.start(daemon).unwrap();
        let image = operator.settle_at_last(&source).await;
        assert_eq!(image.volume, volume);
        assert_eq!(digest(&hypervisor.pool_dir.join(&volume)), pinned);
    }
    tokio::task::spawn_blocking(|| drop(hypervisor)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_operators_that_share_a_pool_upload_once() {
    let hypervisor = shared("hvimg").unwrap();
    let files = tempfile::tempdir().unwrap();
    let (first, second) =
        (Operator::new(hypervisor, "first", files.path()), Operator::new(hypervisor, "second", files.path()));
    let pinned = raw(files.path(), "both.raw", 7, 64);
    let (source, same) = (first.source("both.raw", &pinned), second.source("both.raw", &pinned));
    let (a, b) = tokio::join!(first.settle_at_last(&source), second.settle_at_last(&same));
    assert_eq!(a, b);
    assert_eq!(digest(&hypervisor.pool_dir.join(&a.volume)), pinned);
    assert!(!hypervisor.pool_dir.join(format!("{}.upload", a.volume)).exists());
}
