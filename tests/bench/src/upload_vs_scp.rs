//! `upload_vs_scp`: the rate at which the images capability uploads an image into a pool, through SSH and libvirt,
//! against `scp` of the same file to the same machine with the same key through the same sshd onto the same disk.
//!
//! The upload's time is its own, from the first byte to libvirt's word that it is written, as the log line says it: what
//! comes before (fetching, hashing, the claim) scp does not do.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use proxy_operator_api::grants::ImagesGrant;
use proxy_operator_capabilities::images::{GrantedImages, ImageLimits, ImageService, LibvirtPools};
use proxy_operator_capabilities::limits::Limits;
use proxy_operator_core::capability::images::{Images as _, Source, Status};
use sha2::{Digest as _, Sha256};

use crate::hypervisor::Granted;
use crate::kvm::{CLUSTER, HOST, PROVIDER};
use crate::recorder;
use crate::report::Report;
use crate::sample::{median, runtime};

/// The image: random bytes, which nothing on the way makes fewer.
const MIB: u64 = 256;
/// Uploads and copies, in turn; one more of each before warms up.
const ROUNDS: usize = 5;
/// How long one may take.
const PATIENCE: Duration = Duration::from_secs(300);

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let granted = Granted::new()?;
    let files = tempfile::tempdir()?;
    let file = files.path().join("image.raw");
    let digest = random(&file)?;
    let (mut uploads, mut copies, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    runtime()?.block_on(async {
        let prefix = format!("file://{}/", files.path().display());
        let pools = LibvirtPools::new(granted.hypervisors.clone(), Limits::default(), &ImageLimits::default());
        let cache = granted.folder.path().join("images");
        let service = ImageService::new(&cache, CLUSTER, Arc::new(pools), ImageLimits::default());
        let grant = ImagesGrant { url_prefixes: vec![prefix.clone()], max_gib: Some(4) };
        let images = service.granted(PROVIDER, &grant, &granted.grant);
        for round in 0..=ROUNDS {
            let key = format!("bench-{round}");
            let source = Source { key: Some(key), url: format!("{prefix}image.raw"), digest: Some(digest.clone()) };
            let (volume, upload, ensured) = upload(&images, &granted, &source).await?;
            // Room, and a pool of one size.
            granted.hypervisor.virsh(&["vol-delete", "--pool", &granted.hypervisor.pool, &volume])?;
            let copy = copy(&granted, &file)?;
            if round > 0 {
                uploads.push(rate(upload));
                copies.push(rate(copy));
                whole.push(ensured.as_secs_f64());
            }
        }
        anyhow::Ok(())
    })?;
    let (upload, copy) = (median(uploads)?, median(copies)?);
    report.put("upload_vs_scp", upload / copy);
    report.put("upload_mib_per_s", upload);
    report.put("scp_mib_per_s", copy);
    report.put("image_ensure_256_mib_s", median(whole)?);
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // A few hundred.
fn rate(time: Duration) -> f64 {
    MIB as f64 / time.as_secs_f64()
}

/// Writes the image; its digest.
fn random(file: &Path) -> Result<String> {
    let mut content = Vec::new();
    std::fs::File::open("/dev/urandom")?.take(MIB << 20).read_to_end(&mut content)?;
    std::fs::write(file, &content)?;
    Ok(format!("sha256:{}", hex::encode(Sha256::digest(&content))))
}

/// Has the image brought into the pool: the name of its volume, the time of the upload, the time of all.
async fn upload(images: &GrantedImages, granted: &Granted, source: &Source) -> Result<(String, Duration, Duration)> {
    recorder::take();
    let begun = Instant::now();
    let volume = loop {
        match images.ensure(HOST, &granted.hypervisor.pool, source).await? {
            Status::Ready(image) => break image.volume,
            Status::Pending(transfer) => ensure!(begun.elapsed() < PATIENCE, "{}", transfer.message),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let ensured = begun.elapsed();
    let ended =
        recorder::take().into_iter().find(|line| line.get("message").is_some_and(|said| said == "upload ended"));
    let time = ended.and_then(|line| line.get("duration_ms")?.parse::<f64>().ok()).context("no line of the upload")?;
    Ok((volume, Duration::from_secs_f64(time / 1_000.0), ensured))
}

/// Copies the file with scp, and removes the copy.
fn copy(granted: &Granted, file: &Path) -> Result<Duration> {
    let hypervisor = granted.hypervisor;
    let home = hypervisor.run(&["sh", "-c", "echo ~operator"])?;
    let target = format!("{}/bench.raw", home.trim_end());
    let begun = Instant::now();
    let mut scp = Command::new("scp");
    // The old protocol, since this sshd has no sftp. Nothing of the user's own configuration.
    scp.args(["-O", "-q", "-F", "/dev/null", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"]);
    scp.arg("-o").arg(format!("UserKnownHostsFile={}", hypervisor.known_hosts.display()));
    scp.arg("-i").arg(&hypervisor.keys.ed25519).args(["-P", &hypervisor.ssh_port.to_string()]).arg(file);
    scp.arg(format!("{}@127.0.0.1:{target}", hypervisor.ssh_user)).stdin(Stdio::null());
    let copied = scp.output().context("needs scp: apt-get install openssh-client")?;
    let time = begun.elapsed();
    if !copied.status.success() {
        bail!("{scp:?}: {}", String::from_utf8_lossy(&copied.stderr));
    }
    hypervisor.run(&["rm", "-f", &target])?;
    Ok(time)
}
