//! Digests of images: `sha256:` or `sha512:` and hexadecimal digits.

use std::fmt;

use proxy_operator_core::error::{Error, Result};
use sha2::{Digest as _, Sha256, Sha512};

/// What a digest is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// SHA-256.
    Sha256,
    /// SHA-512.
    Sha512,
}

/// A digest of the whole content of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest {
    algorithm: Algorithm,
    /// Lower case.
    hex: String,
}

/// A digest in the making.
pub enum Hasher {
    /// SHA-256.
    Sha256(Sha256),
    /// SHA-512.
    Sha512(Sha512),
}

// === impl Algorithm ===

impl Algorithm {
    /// As it stands before the colon.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    /// Hexadecimal digits of a digest.
    pub const fn digits(self) -> usize {
        match self {
            Self::Sha256 => 64,
            Self::Sha512 => 128,
        }
    }

    /// Starts a digest.
    pub fn hasher(self) -> Hasher {
        match self {
            Self::Sha256 => Hasher::Sha256(Sha256::new()),
            Self::Sha512 => Hasher::Sha512(Sha512::new()),
        }
    }
}

// === impl Digest ===

impl Digest {
    /// Reads `sha256:…` or `sha512:…`. Capital digits are as good as small ones.
    pub fn parse(text: &str) -> Result<Self> {
        Self::parse_opt(text).ok_or_else(|| {
            Error::invalid_config(
                "ConfigInvalid",
                format!(
                    "{:?} is not an image's digest; give sha256: and 64 hexadecimal digits, or sha512: and 128",
                    text.chars().take(160).collect::<String>()
                ),
            )
        })
    }

    /// The same, `None` when it is no digest.
    pub fn parse_opt(text: &str) -> Option<Self> {
        let (algorithm, hex) = text.split_once(':')?;
        let algorithm = match algorithm {
            "sha256" => Algorithm::Sha256,
            "sha512" => Algorithm::Sha512,
            _ => return None,
        };
        let valid = hex.len() == algorithm.digits() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self { algorithm, hex: hex.to_ascii_lowercase() })
    }

    /// What it is made with.
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its digits.
    pub fn hex(&self) -> &str {
        &self.hex
    }

    /// Its first 12 digits, which go into a volume's name.
    pub fn short(&self) -> &str {
        self.hex.get(..12).unwrap_or_default()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm.as_str(), self.hex)
    }
}

// === impl Hasher ===

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hasher) => hasher.update(bytes),
            Self::Sha512(hasher) => hasher.update(bytes),
        }
    }

    /// The digest of all that was added.
    pub fn finish(self) -> Digest {
        match self {
            Self::Sha256(hasher) => Digest { algorithm: Algorithm::Sha256, hex: hex::encode(hasher.finalize()) },
            Self::Sha512(hasher) => Digest { algorithm: Algorithm::Sha512, hex: hex::encode(hasher.finalize()) },
        }
    }
}

/// The SHA-256 of a text, in hexadecimal digits.
pub fn sha256_hex(text: &str) -> String {
    hex::encode(Sha256::digest(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const EMPTY: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn both_algorithms_are_read_in_any_case() {
        assert_eq!(Digest::parse(&EMPTY.to_uppercase().replace("SHA", "sha")).unwrap().to_string(), EMPTY);
        let long = format!("sha512:{}", "aB".repeat(64));
        assert_eq!(Digest::parse(&long).unwrap().short(), "abababababab");
    }

    #[test]
    fn what_is_no_digest_is_refused_with_the_form_it_should_have() {
        for bad in [
            "",
            "sha256",
            "sha256:",
            "md5:00",
            "sha256:00",
            "sha512:00",
            &EMPTY.replace('e', "g"),
            &format!("{EMPTY}0"),
            &EMPTY[7..],
            "sha256:é",
        ] {
            let error = Digest::parse(bad).unwrap_err();
            assert_eq!(error.code.as_str(), "invalid-config", "{bad}");
            assert!(error.message.contains("64 hexadecimal digits"), "{error}");
        }
    }

    #[test]
    fn hashing_gives_the_digest_that_others_give() {
        assert_eq!(Algorithm::Sha256.hasher().finish().to_string(), EMPTY);
        let mut hasher = Algorithm::Sha512.hasher();
        hasher.update(b"a");
        hasher.update(b"bc");
        assert!(hasher.finish().to_string().starts_with("sha512:ddaf35a193617abacc417349"));
    }
}
