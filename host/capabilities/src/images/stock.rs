//! What a pool holds of a base image: nothing, a whole one, a part of one.

use proxy_operator_core::capability::images::BaseImage;
use proxy_operator_core::error::{Error, ErrorCode, Result};

use super::digest::{Digest, sha256_hex};
use super::limits::MARKER_BYTES;
use super::marker::{Claim, Marker};
use super::name::{BaseName, FORMATS, Kind};
use super::pool::{ImagePool, VolumeInfo};

/// What is found of one base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stock {
    /// No volume; perhaps a marker without one.
    Absent,
    /// The volume, and a marker that speaks of it.
    Whole(Marker),
    /// A volume that no marker vouches for, and why.
    Partial(String),
    /// A claim is on it. `None`: one that says nothing (yet).
    Claimed(Option<Claim>),
}

/// Looks at one base image.
pub async fn look(pool: &dyn ImagePool, name: &BaseName) -> Result<Stock> {
    let volume = pool.look(&name.to_string()).await?;
    let marker = pool.read(&name.marker(), MARKER_BYTES as u64).await?;
    // Asked last: who removes a claim has made the rest true before.
    let claim = pool.read(&name.claim(), MARKER_BYTES as u64).await?;
    Ok(judge(name, volume.as_ref(), marker.as_deref(), claim.as_deref()))
}

/// Looks at one base image for who holds the claim on it.
pub async fn look_under_claim(pool: &dyn ImagePool, name: &BaseName) -> Result<Stock> {
    let volume = pool.look(&name.to_string()).await?;
    let marker = pool.read(&name.marker(), MARKER_BYTES as u64).await?;
    Ok(judge_unclaimed(name, volume.as_ref(), marker.as_deref()))
}

/// Decides. An image is whole when its marker speaks of what is there, and nobody else is at work on it.
fn judge(name: &BaseName, volume: Option<&VolumeInfo>, marker: Option<&[u8]>, claim: Option<&[u8]>) -> Stock {
    let stock = judge_unclaimed(name, volume, marker);
    match (claim.map(Claim::decode), stock) {
        (None, stock) => stock,
        // The uploader's own claim outlives its marker by one call, or by a crash.
        (Some(Some(claim)), Stock::Whole(marker)) if claim.token == marker.token => Stock::Whole(marker),
        (Some(claim), _) => Stock::Claimed(claim),
    }
}

fn judge_unclaimed(name: &BaseName, volume: Option<&VolumeInfo>, marker: Option<&[u8]>) -> Stock {
    let Some(volume) = volume else { return Stock::Absent };
    match marker.map(Marker::decode) {
        None => Stock::Partial("it has no marker: its upload was cut off, or goes on elsewhere".to_owned()),
        Some(None) => Stock::Partial("its marker cannot be read".to_owned()),
        Some(Some(marker)) => match marker.contradiction(name, volume) {
            Some(why) => Stock::Partial(why),
            None => Stock::Whole(marker),
        },
    }
}

/// The whole image with this digest, whatever its format.
pub async fn find_pinned(pool: &dyn ImagePool, key: &str, digest: &Digest) -> Result<Option<BaseImage>> {
    for format in FORMATS {
        let name = BaseName::new(key, digest, format);
        if let Stock::Whole(marker) = look(pool, &name).await? {
            drop_left_claim(pool, &name, &marker).await?;
            return base_image(&name, &marker, digest).map(Some);
        }
    }
    Ok(None)
}

/// The newest whole image of this key that came from this URL.
pub async fn find_unpinned(pool: &dyn ImagePool, key: &str, url: &str) -> Result<Option<BaseImage>> {
    let source = sha256_hex(url);
    let mut newest: Option<(BaseName, Marker)> = None;
    for volume in pool.volumes().await? {
        let Some((name, Kind::Marker)) = BaseName::parse(&volume) else { continue };
        if name.key != key {
            continue;
        }
        let Stock::Whole(marker) = look(pool, &name).await? else { continue };
        let newer = newest.as_ref().is_none_or(|(_, known)| known.completed_at < marker.completed_at);
        if marker.source == source && newer {
            newest = Some((name, marker));
        }
    }
    if let Some((name, marker)) = &newest {
        drop_left_claim(pool, name, marker).await?;
    }
    let image = newest.map(|(name, marker)| BaseImage {
        volume: name.to_string(),
        format: name.format,
        capacity: marker.capacity,
    });
    Ok(image)
}

/// Removes the claim under which a whole image was uploaded: a crash after the marker leaves it, and nobody else would
/// ever touch it. An uploader that is just about to remove it does not miss it.
async fn drop_left_claim(pool: &dyn ImagePool, name: &BaseName, marker: &Marker) -> Result<()> {
    let claim = pool.read(&name.claim(), MARKER_BYTES as u64).await?;
    if claim.as_deref().and_then(Claim::decode).is_some_and(|claim| claim.token == marker.token) {
        pool.delete(&name.claim()).await?;
    }
    Ok(())
}

/// The image that a marker vouches for, when it is the one that is wanted: names hold 12 digits, which two digests can
/// have in common when somebody works on it.
pub fn base_image(name: &BaseName, marker: &Marker, digest: &Digest) -> Result<BaseImage> {
    if marker.digest().as_ref() != Some(digest) {
        return Err(Error::new(
            ErrorCode::Conflict,
            "ImageNameTaken",
            format!(
                "volume {name} holds another image ({}), whose digest begins as that of this one ({digest}) does; give one of them another key",
                marker.digest
            ),
        ));
    }
    Ok(BaseImage { volume: name.to_string(), format: name.format, capacity: marker.capacity })
}

#[cfg(test)]
mod tests {
    use proxy_operator_core::capability::libvirt::VolumeFormat;

    use super::super::marker::VERSION;
    use super::*;

    fn name() -> BaseName {
        BaseName::parse("base-a-0123456789ab.raw").unwrap().0
    }

    fn marker(token: &str) -> Marker {
        Marker {
            version: VERSION,
            volume: name().to_string(),
            digest: format!("sha256:{}", "0123456789abcdef".repeat(4)),
            length: 512,
            capacity: 512,
            source: String::new(),
            token: token.to_owned(),
            completed_at: String::new(),
        }
    }

    fn claim(token: &str) -> Vec<u8> {
        let claim = Claim {
            version: VERSION,
            volume: name().to_string(),
            installation: "i".to_owned(),
            token: token.to_owned(),
            beat: 0,
        };
        claim.encode().unwrap()
    }

    #[test]
    fn only_a_marker_of_what_is_there_makes_it_whole() {
        let info = VolumeInfo { format: Some(VolumeFormat::Raw), capacity: 512, physical: Some(512), backing: None };
        let good = marker("t").encode().unwrap();
        let other = Marker { capacity: 1024, ..marker("t") }.encode().unwrap();
        let is = |volume: Option<&VolumeInfo>, marker: Option<&[u8]>, claim: Option<&[u8]>| {
            judge(&name(), volume, marker, claim)
        };
        assert_eq!(is(Some(&info), Some(&good), None), Stock::Whole(marker("t")));
        assert_eq!(is(Some(&info), Some(&good), Some(&claim("t"))), Stock::Whole(marker("t")));
        assert!(matches!(is(Some(&info), Some(&good), Some(&claim("u"))), Stock::Claimed(Some(_))));
        assert_eq!(is(Some(&info), Some(&good), Some(&[0; 1024])), Stock::Claimed(None));
        assert!(matches!(is(Some(&info), None, Some(&claim("t"))), Stock::Claimed(Some(_))));
        assert!(matches!(is(Some(&info), None, None), Stock::Partial(_)));
        assert!(matches!(is(Some(&info), Some(&[0; 1024]), None), Stock::Partial(_)));
        assert!(matches!(is(Some(&info), Some(&other), None), Stock::Partial(_)));
        assert_eq!(is(None, Some(&good), None), Stock::Absent);
        assert!(matches!(is(None, Some(&good), Some(&claim("t"))), Stock::Claimed(Some(_))));
        assert_eq!(is(None, None, None), Stock::Absent);
    }
}
