//! The `known_hosts` file of OpenSSH: names, patterns, hashed names, `[host]:port`, `@revoked`, `@cert-authority`.
//!
//! libssh2 reads such files too, but knows neither markers nor patterns: it would take a revoked key for a good one.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha1::Sha1;
use sha2::{Digest, Sha256};

use super::address::SshAddress;

/// A file of known hosts.
#[derive(Clone, Debug, Default)]
pub struct KnownHosts {
    entries: Vec<Entry>,
    /// Lines that could not be read, from 1.
    unreadable: Vec<usize>,
}

/// The public key of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostKey {
    /// Its type as the file writes it: `ssh-ed25519`.
    pub kind: String,
    /// Its blob, as it travels.
    pub blob: Vec<u8>,
}

/// What the file says of a key that a server has shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is the host's.
    Known,
    /// It was withdrawn.
    Revoked,
    /// The host has another key of this type.
    Mismatch {
        /// The fingerprints that would have been right.
        expected: Vec<String>,
    },
    /// The host has keys, of other types.
    OtherTypes {
        /// The types that are known.
        kinds: Vec<String>,
    },
    /// Only certificate authorities stand for this host.
    AuthorityOnly,
    /// Nothing is known of the host.
    Unknown,
}

#[derive(Clone, Debug)]
struct Entry {
    marker: Marker,
    hosts: Hosts,
    key: HostKey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Marker {
    None,
    Revoked,
    Authority,
}

#[derive(Clone, Debug)]
enum Hosts {
    Patterns(Vec<String>),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

/// What the algorithms of a handshake are called that prove a key of each type, the strongest first. `ssh-rsa` alone
/// would be a signature with SHA-1.
const ALGORITHMS: &[(&str, &[&str])] = &[
    ("ssh-ed25519", &["ssh-ed25519"]),
    ("ecdsa-sha2-nistp256", &["ecdsa-sha2-nistp256"]),
    ("ecdsa-sha2-nistp384", &["ecdsa-sha2-nistp384"]),
    ("ecdsa-sha2-nistp521", &["ecdsa-sha2-nistp521"]),
    ("ssh-rsa", &["rsa-sha2-512", "rsa-sha2-256"]),
];

// === impl KnownHosts ===

impl KnownHosts {
    /// Reads a file. A line that cannot be read is remembered, and does no harm to the others.
    pub fn parse(text: &str) -> Self {
        let mut known = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Entry::parse(line) {
                Some(entry) => known.entries.push(entry),
                None => known.unreadable.push(index + 1),
            }
        }
        known
    }

    /// Whether no line of it says anything.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The lines that could not be read, from 1.
    pub fn unreadable_lines(&self) -> &[usize] {
        &self.unreadable
    }

    /// The algorithms by which this host can prove a key that is known, the strongest first. To be asked for in the
    /// handshake: otherwise it may settle on a key of a type that the file does not have.
    pub fn algorithms(&self, address: &SshAddress) -> Vec<&'static str> {
        let kinds: Vec<_> = self.of(address, Marker::None).map(|entry| entry.key.kind.as_str()).collect();
        ALGORITHMS
            .iter()
            .filter(|(kind, _)| kinds.contains(kind))
            .flat_map(|(_, algorithms)| algorithms.iter().copied())
            .collect()
    }

    /// What the file says of a key that the server at this address has shown.
    pub fn verify(&self, address: &SshAddress, shown: &HostKey) -> Verdict {
        if self.of(address, Marker::Revoked).any(|entry| entry.key.blob == shown.blob) {
            return Verdict::Revoked;
        }
        let keys: Vec<_> = self.of(address, Marker::None).map(|entry| &entry.key).collect();
        if keys.iter().any(|key| key.blob == shown.blob) {
            return Verdict::Known;
        }
        let expected: Vec<_> = keys.iter().filter(|key| key.kind == shown.kind).map(|key| key.fingerprint()).collect();
        if !expected.is_empty() {
            return Verdict::Mismatch { expected };
        }
        if !keys.is_empty() {
            let mut kinds: Vec<_> = keys.iter().map(|key| key.kind.clone()).collect();
            kinds.dedup();
            return Verdict::OtherTypes { kinds };
        }
        if self.of(address, Marker::Authority).next().is_some() { Verdict::AuthorityOnly } else { Verdict::Unknown }
    }

    /// The entries for an address. Where none names the port, those of the bare name count, as in OpenSSH.
    fn of<'a>(&'a self, address: &'a SshAddress, marker: Marker) -> impl Iterator<Item = &'a Entry> {
        let known_as = address.known_as();
        let names = move |entry: &Entry| entry.hosts.matches(&known_as);
        let exact = self.entries.iter().any(|entry| entry.marker == Marker::None && names(entry));
        // A withdrawn key is withdrawn at every port.
        let bare = !exact || marker == Marker::Revoked;
        self.entries.iter().filter(move |entry| {
            entry.marker == marker && (names(entry) || (bare && entry.hosts.matches(&address.host)))
        })
    }
}

// === impl HostKey ===

impl HostKey {
    /// A key from its blob, which begins with its type.
    pub fn from_blob(blob: &[u8]) -> Option<Self> {
        let length = u32::from_be_bytes(blob.get(..4)?.try_into().ok()?) as usize;
        let kind = std::str::from_utf8(blob.get(4..4_usize.checked_add(length)?)?).ok()?;
        (!kind.is_empty()).then(|| Self { kind: kind.to_owned(), blob: blob.to_vec() })
    }

    /// Its fingerprint as `ssh-keygen -l` shows it: `SHA256:…`.
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(Sha256::digest(&self.blob)))
    }

    /// Its type as `ssh-keyscan -t` takes it.
    pub fn scan_type(&self) -> &str {
        match self.kind.as_str() {
            "ssh-ed25519" => "ed25519",
            "ssh-rsa" => "rsa",
            kind if kind.starts_with("ecdsa-") => "ecdsa",
            kind => kind,
        }
    }
}

// === impl Entry ===

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_ascii_whitespace();
        let mut word = words.next()?;
        let marker = match word {
            "@revoked" => Marker::Revoked,
            "@cert-authority" => Marker::Authority,
            other if other.starts_with('@') => return None,
            _ => Marker::None,
        };
        if marker != Marker::None {
            word = words.next()?;
        }
        let hosts = Hosts::parse(word)?;
        let kind = words.next()?;
        let key = HostKey::from_blob(&STANDARD.decode(words.next()?).ok()?)?;
        (key.kind == kind).then_some(Self { marker, hosts, key })
    }
}

// === impl Hosts ===

impl Hosts {
    fn parse(word: &str) -> Option<Self> {
        if let Some(rest) = word.strip_prefix("|1|") {
            let (salt, hash) = rest.split_once('|')?;
            return Some(Self::Hashed { salt: STANDARD.decode(salt).ok()?, hash: STANDARD.decode(hash).ok()? });
        }
        Some(Self::Patterns(word.split(',').map(str::to_ascii_lowercase).collect()))
    }

    /// Whether it names this host: one pattern does, and none that is negated.
    fn matches(&self, host: &str) -> bool {
        match self {
            Self::Hashed { salt, hash } => Hmac::<Sha1>::new_from_slice(salt).is_ok_and(|mut mac| {
                mac.update(host.as_bytes());
                mac.verify_slice(hash).is_ok()
            }),
            Self::Patterns(patterns) => {
                let mut found = false;
                for pattern in patterns {
                    match pattern.strip_prefix('!') {
                        Some(negated) if glob(negated.as_bytes(), host.as_bytes()) => return false,
                        Some(_) => {}
                        None => found |= glob(pattern.as_bytes(), host.as_bytes()),
                    }
                }
                found
            }
        }
    }
}

/// Whether a text matches a pattern of `*`, `?` and plain characters. In time linear in both for each `*`.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while let Some(&byte) = text.get(t) {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
            }
            Some(&wanted) if wanted == b'?' || wanted == byte => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((after, from)) = star else { return false };
                star = Some((after, from + 1));
                p = after;
                t = from + 1;
            }
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|&byte| byte == b'*'))
}

#[cfg(test)]
mod tests;
