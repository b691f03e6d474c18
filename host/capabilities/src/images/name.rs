//! What the volumes of a base image are called.
//!
//! | volume | what it is |
//! | --- | --- |
//! | `base-debian-12-0123456789ab.qcow2` | the image: key, 12 digits of its digest, format |
//! | `base-debian-12-0123456789ab.qcow2.complete` | the marker that it is whole |
//! | `base-debian-12-0123456789ab.qcow2.upload` | the claim of who uploads it now |

use std::fmt;

use proxy_operator_core::capability::libvirt::VolumeFormat;
use proxy_operator_core::names::is_identifier;

use super::digest::{Digest, sha256_hex};

/// The name of a base image's volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BaseName {
    /// The image's key.
    pub key: String,
    /// 12 digits of the image's digest.
    pub digits: String,
    /// Its format.
    pub format: VolumeFormat,
}

/// What a volume of a pool is to base images.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The image itself.
    Image,
    /// Its marker.
    Marker,
    /// A claim on it.
    Claim,
}

const MARKER_SUFFIX: &str = ".complete";
const CLAIM_SUFFIX: &str = ".upload";
const DIGITS: usize = 12;

/// The formats that a base image can have.
pub const FORMATS: [VolumeFormat; 2] = [VolumeFormat::Qcow2, VolumeFormat::Raw];

/// The key of an image that a Proxy gives by its URL alone.
pub fn url_key(url: &str) -> String {
    format!("url-{}", sha256_hex(url).get(..10).unwrap_or_default())
}

/// A format as names and libvirt write it.
pub const fn format_word(format: VolumeFormat) -> &'static str {
    match format {
        VolumeFormat::Raw => "raw",
        VolumeFormat::Qcow2 => "qcow2",
    }
}

impl BaseName {
    /// The name of the image with this key and digest.
    pub fn new(key: &str, digest: &Digest, format: VolumeFormat) -> Self {
        Self { key: key.to_owned(), digits: digest.short().to_owned(), format }
    }

    /// Reads the name of any volume of a base image; `None` when it is not one of them.
    pub fn parse(volume: &str) -> Option<(Self, Kind)> {
        let (name, kind) = if let Some(name) = volume.strip_suffix(MARKER_SUFFIX) {
            (name, Kind::Marker)
        } else if let Some(name) = volume.strip_suffix(CLAIM_SUFFIX) {
            (name, Kind::Claim)
        } else {
            (volume, Kind::Image)
        };
        let (stem, word) = name.strip_prefix("base-")?.rsplit_once('.')?;
        let format = FORMATS.into_iter().find(|format| format_word(*format) == word)?;
        let (key, digits) = stem.rsplit_once('-')?;
        let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let valid = is_identifier(key) && digits.len() == DIGITS && digits.bytes().all(digit);
        valid.then(|| (Self { key: key.to_owned(), digits: digits.to_owned(), format }, kind))
    }

    /// The volume of its marker.
    pub fn marker(&self) -> String {
        format!("{self}{MARKER_SUFFIX}")
    }

    /// The volume of the claim on it.
    pub fn claim(&self) -> String {
        format!("{self}{CLAIM_SUFFIX}")
    }
}

impl fmt::Display for BaseName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, digits, format } = self;
        write!(f, "base-{key}-{digits}.{}", format_word(*format))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_back_from_what_they_are_written_as() {
        let digest = Digest::parse(&format!("sha256:{}", "0123456789abcdef".repeat(4))).unwrap();
        for key in ["debian-12", "a", "url-0123456789", "a-0123456789ab"] {
            for format in FORMATS {
                let name = BaseName::new(key, &digest, format);
                assert_eq!(BaseName::parse(&name.to_string()), Some((name.clone(), Kind::Image)));
                assert_eq!(BaseName::parse(&name.marker()), Some((name.clone(), Kind::Marker)));
                assert_eq!(BaseName::parse(&name.claim()), Some((name.clone(), Kind::Claim)));
            }
        }
        let longest = BaseName::new(&"k".repeat(40), &digest, VolumeFormat::Qcow2);
        assert!(longest.marker().len() <= 80, "{}", longest.marker().len());
    }

    #[test]
    fn other_volumes_are_not_taken_for_ours() {
        for other in [
            "base-debian-12.qcow2",
            "base-debian-12-0123456789AB.qcow2",
            "base-debian-12-0123456789ab.vmdk",
            "base-debian-12-0123456789ab",
            "base--0123456789ab.qcow2",
            "base-0123456789ab.qcow2",
            "base-a/b-0123456789ab.qcow2",
            "xbase-a-0123456789ab.qcow2",
            "base-a-0123456789ab.qcow2.complete.complete",
            "base-a-0123456789ab.qcow2.bak",
            "",
        ] {
            assert_eq!(BaseName::parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_key_from_a_url_is_a_key() {
        let key = url_key("https://images.example/x.qcow2");
        assert!(is_identifier(&key) && key.len() == 14, "{key}");
        assert_ne!(key, url_key("https://images.example/y.qcow2"));
    }
}
