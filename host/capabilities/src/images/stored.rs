//! Lists and deletes the base images of a pool, for who runs the hypervisor.
//!
//! | what is found | pruned |
//! | --- | --- |
//! | whole, nobody stands on it, not kept by the caller | yes: marker, then the image |
//! | partial, nobody stands on it | yes, when nobody uploads it |
//! | in use by a volume or a domain | no |
//! | a marker or a claim without an image | yes, when nobody uploads it |

use std::collections::BTreeMap;

use proxy_operator_core::error::Result;

use super::limits::{ImageLimits, MARKER_BYTES};
use super::name::BaseName;
use super::pool::{ImagePool, Users};
use super::stock::{self, Stock};

/// How much of an image is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It is whole: volume and marker.
    Whole,
    /// A part of it, which an interrupted upload left, or which no marker vouches for.
    Partial,
    /// It is being uploaded, or its upload was interrupted not long ago.
    Uploading,
    /// A marker or a claim is there, and no image.
    Leftover,
}

/// A base image in a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredImage {
    /// Its volume.
    pub volume: String,
    /// Its key.
    pub key: String,
    /// How much of it is there.
    pub condition: Condition,
    /// The digest, where its marker tells.
    pub digest: Option<String>,
    /// The bytes of its file, or its virtual size where the pool does not tell them.
    pub bytes: Option<u64>,
    /// When it was whole, RFC 3339, where its marker tells.
    pub completed_at: Option<String>,
    /// Who stands on it: volumes and domains.
    pub users: Vec<String>,
}

/// All base images of a pool, by name.
pub async fn list(pool: &dyn ImagePool) -> Result<Vec<StoredImage>> {
    let mut names: BTreeMap<String, BaseName> = BTreeMap::new();
    for volume in pool.volumes().await? {
        if let Some((name, _)) = BaseName::parse(&volume) {
            names.insert(name.to_string(), name);
        }
    }
    let mut users = if names.is_empty() { Users::new() } else { pool.users().await? };
    let mut images = Vec::new();
    for name in names.into_values() {
        let users = users.remove(&name.to_string()).unwrap_or_default();
        images.push(describe(pool, &name, users).await?);
    }
    Ok(images)
}

async fn describe(pool: &dyn ImagePool, name: &BaseName, users: Vec<String>) -> Result<StoredImage> {
    let volume = name.to_string();
    let stock = stock::look(pool, name).await?;
    let found = pool.look(&volume).await?;
    let condition = match &stock {
        Stock::Whole(_) => Condition::Whole,
        Stock::Partial(_) => Condition::Partial,
        Stock::Claimed(_) => Condition::Uploading,
        Stock::Absent => Condition::Leftover,
    };
    let marker = match stock {
        Stock::Whole(marker) => Some(marker),
        _ => None,
    };
    let bytes = found.map(|found| found.physical.unwrap_or(found.capacity));
    let (digest, completed_at) = marker.map(|marker| (marker.digest, marker.completed_at)).unzip();
    Ok(StoredImage { volume, key: name.key.clone(), condition, digest, bytes, completed_at, users })
}

/// Deletes what is not needed; says what.
pub async fn prune(
    pool: &dyn ImagePool,
    keep: &(dyn Fn(&StoredImage) -> bool + Send + Sync),
    limits: &ImageLimits,
) -> Result<Vec<StoredImage>> {
    let mut doomed: Vec<StoredImage> =
        list(pool).await?.into_iter().filter(|image| image.users.is_empty() && !keep(image)).collect();
    retain_abandoned(pool, &mut doomed, limits).await?;
    // The markers first: from here on nobody is told that these images are there.
    let mut markers = Vec::new();
    for image in &doomed {
        let Some((name, _)) = BaseName::parse(&image.volume) else { continue };
        markers.push((name.marker(), pool.read(&name.marker(), MARKER_BYTES as u64).await?));
        pool.delete(&name.marker()).await?;
    }
    let users = if doomed.is_empty() { Users::new() } else { pool.users().await? };
    let mut pruned = Vec::new();
    for (image, (marker, content)) in doomed.into_iter().zip(markers) {
        if users.contains_key(&image.volume) {
            // Somebody was faster, and the image is as it was.
            if let Some(content) = content {
                pool.create(&marker, MARKER_BYTES as u64).await?;
                pool.write(&marker, content).await?;
            }
            continue;
        }
        let Some((name, _)) = BaseName::parse(&image.volume) else { continue };
        pool.delete(&image.volume).await?;
        pool.delete(&name.claim()).await?;
        tracing::info!(target: "images", pool = pool.name(), volume = image.volume, bytes = image.bytes, "base image removed");
        pruned.push(image);
    }
    Ok(pruned)
}

/// Leaves out what is being uploaded: its claim moves while one looks. Whose claim it is does not matter here, since
/// the operator that uploads is another process than the one that prunes.
async fn retain_abandoned(pool: &dyn ImagePool, doomed: &mut Vec<StoredImage>, limits: &ImageLimits) -> Result<()> {
    let mut before = Vec::new();
    for image in doomed.iter().filter(|image| image.condition == Condition::Uploading) {
        before.push((image.volume.clone(), claim_of(pool, &image.volume).await?));
    }
    if before.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(limits.claim_stale).await;
    for (volume, claim) in before {
        let now = claim_of(pool, &volume).await?;
        // One that has gone was finished meanwhile, or given up; the next time tells.
        if now.is_none() || now != claim {
            doomed.retain(|image| image.volume != volume);
        }
    }
    Ok(())
}

async fn claim_of(pool: &dyn ImagePool, volume: &str) -> Result<Option<Vec<u8>>> {
    match BaseName::parse(volume) {
        Some((name, _)) => pool.read(&name.claim(), MARKER_BYTES as u64).await,
        None => Ok(None),
    }
}
