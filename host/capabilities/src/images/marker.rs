//! The contents of the two small volumes beside a base image: its marker and the claim on it.
//!
//! Each is one line of JSON, filled up with spaces to a fixed size, so that a torn or empty one is not read as
//! anything.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::digest::Digest;
use super::limits::MARKER_BYTES;
use super::name::{BaseName, format_word};
use super::pool::VolumeInfo;

/// Says that a base image is whole. Written last, deleted before the image is touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Marker {
    /// The form of this record.
    pub version: u32,
    /// The volume that it speaks of.
    pub volume: String,
    /// The digest of its content.
    pub digest: String,
    /// The bytes of its content.
    pub length: u64,
    /// Its virtual size in bytes.
    pub capacity: u64,
    /// The SHA-256 of the URL that it came from: tells where it is from, and does not show a token in it.
    pub source: String,
    /// The upload that made it.
    pub token: String,
    /// When it was whole, RFC 3339.
    pub completed_at: String,
}

/// Says that somebody uploads a base image now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    /// The form of this record.
    pub version: u32,
    /// The volume that it is on.
    pub volume: String,
    /// The id of the installation that uploads.
    pub installation: String,
    /// The upload.
    pub token: String,
    /// Counts up while the upload goes on.
    pub beat: u64,
}

/// The form of the records that this program writes, and the only one that it believes.
pub const VERSION: u32 = 1;

impl Marker {
    /// As it is written.
    pub fn encode(&self) -> Option<Vec<u8>> {
        encode(self)
    }

    /// Reads what [`Marker::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(|marker: &Self| marker.version == VERSION)
    }

    /// The digest of the image.
    pub fn digest(&self) -> Option<Digest> {
        Digest::parse_opt(&self.digest)
    }

    /// Why it does not speak of this volume as it is now; `None` when it does.
    pub fn contradiction(&self, name: &BaseName, found: &VolumeInfo) -> Option<String> {
        let Self { version: _, volume, digest: _, length, capacity, source: _, token: _, completed_at: _ } = self;
        if *volume != name.to_string() {
            return Some(format!("its marker is that of {volume}"));
        }
        if self.digest().is_none_or(|digest| digest.short() != name.digits) {
            return Some("its marker names another digest".to_owned());
        }
        if found.format != Some(name.format) {
            return Some(format!("libvirt does not see it as {}", format_word(name.format)));
        }
        if found.capacity != *capacity {
            return Some(format!("it has a virtual size of {} bytes instead of {capacity}", found.capacity));
        }
        if let Some(physical) = found.physical.filter(|physical| physical < length) {
            return Some(format!("it has {physical} bytes instead of {length}"));
        }
        found.backing.as_ref().map(|backing| format!("it stands on {backing}"))
    }
}

impl Claim {
    /// As it is written.
    pub fn encode(&self) -> Option<Vec<u8>> {
        encode(self)
    }

    /// Reads what [`Claim::encode`] wrote.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        decode(bytes).filter(|claim: &Self| claim.version == VERSION)
    }
}

fn encode<T: Serialize>(value: &T) -> Option<Vec<u8>> {
    let mut bytes = serde_json::to_vec(value).ok()?;
    if bytes.len() >= MARKER_BYTES {
        return None;
    }
    bytes.resize(MARKER_BYTES - 1, b' ');
    bytes.push(b'\n');
    Some(bytes)
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..MARKER_BYTES)?;
    // The last byte is written last.
    (bytes.last() == Some(&b'\n')).then_some(())?;
    serde_json::from_slice(bytes).ok()
}

#[cfg(test)]
mod tests {
    use proxy_operator_core::capability::libvirt::VolumeFormat;

    use super::*;

    fn marker() -> Marker {
        Marker {
            version: VERSION,
            volume: "base-debian-12-0123456789ab.qcow2".to_owned(),
            digest: format!("sha256:{}", "0123456789abcdef".repeat(4)),
            length: 100,
            capacity: 1 << 30,
            source: "s".to_owned(),
            token: "t".to_owned(),
            completed_at: "2026-01-01T00:00:00Z".to_owned(),
        }
    }

    fn found() -> VolumeInfo {
        VolumeInfo { format: Some(VolumeFormat::Qcow2), capacity: 1 << 30, physical: Some(100), backing: None }
    }

    #[test]
    fn a_marker_comes_back_and_a_torn_one_does_not() {
        let bytes = marker().encode().unwrap();
        assert_eq!(bytes.len(), MARKER_BYTES);
        assert_eq!(Marker::decode(&bytes), Some(marker()));
        let mut longer = bytes.clone();
        longer.extend([0; 512]);
        assert_eq!(Marker::decode(&longer), Some(marker()), "a pool may round a volume up");
        for length in 0..MARKER_BYTES {
            let mut torn = bytes[..length].to_vec();
            assert_eq!(Marker::decode(&torn), None);
            torn.resize(MARKER_BYTES, 0);
            assert_eq!(Marker::decode(&torn), None, "{length} bytes and zeros");
        }
        assert_eq!(Marker::decode(&[0; MARKER_BYTES]), None);
        assert_eq!(Marker::decode(&Marker { version: 2, ..marker() }.encode().unwrap()), None);
    }

    #[test]
    fn a_marker_of_something_else_is_contradicted() {
        let (name, _) = BaseName::parse(&marker().volume).unwrap();
        assert_eq!(marker().contradiction(&name, &found()), None);
        let (other, _) = BaseName::parse("base-debian-13-0123456789ab.qcow2").unwrap();
        let cases = [
            marker().contradiction(&other, &found()),
            Marker { digest: format!("sha256:{}", "1".repeat(64)), ..marker() }.contradiction(&name, &found()),
            Marker { digest: "x".to_owned(), ..marker() }.contradiction(&name, &found()),
            marker().contradiction(&name, &VolumeInfo { format: Some(VolumeFormat::Raw), ..found() }),
            marker().contradiction(&name, &VolumeInfo { capacity: 1, ..found() }),
            marker().contradiction(&name, &VolumeInfo { physical: Some(99), ..found() }),
            marker().contradiction(&name, &VolumeInfo { backing: Some("/x".to_owned()), ..found() }),
        ];
        for (index, case) in cases.iter().enumerate() {
            assert!(case.is_some(), "case {index}");
        }
        assert_eq!(marker().contradiction(&name, &VolumeInfo { physical: None, ..found() }), None);
    }
}
