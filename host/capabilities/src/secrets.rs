//! Secrets as folders of files: `<root>/<secret>/<key>`, which is how Kubernetes mounts them.
//!
//! A file is read when a connection is opened, so that one that appears heals without a restart. Paths are resolved
//! beneath the Secret's own folder: no name and no symbolic link leads out of it.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::Dir;
use proxy_operator_core::error::{Error, ErrorCode, Result};
use proxy_operator_core::sensitive::Sensitive;
use sha2::{Digest, Sha256};

use crate::limits::SECRET_FILE_MAX_BYTES;

/// The folder of all Secrets.
#[derive(Clone, Debug)]
pub struct SecretStore {
    root: PathBuf,
}

/// A fingerprint of the content of some files, to see that one has changed. Never shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ContentDigest([u8; 32]);

impl SecretStore {
    /// A store in this folder, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the store is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The content of one file of a Secret.
    pub fn read(&self, secret: &str, key: &str) -> Result<Sensitive<Vec<u8>>> {
        if !is_component(secret) || !is_component(key) {
            return Err(Error::invalid_config(
                "GrantInvalid",
                format!("{secret:?} is not the name of a Secret; use lower-case letters, digits, '-' and '.'"),
            ));
        }
        let missing = |what: String| {
            Error::new(
                ErrorCode::Unauthenticated,
                "CredentialsMissing",
                format!("Secret {secret:?} has no {key} yet: {what} (looked in {})", self.root.join(secret).display()),
            )
        };
        let invalid = |what: String| {
            Error::invalid_config("CredentialsInvalid", format!("Secret {secret:?}, file {key}: {what}"))
        };
        let opened = Dir::open_ambient_dir(&self.root, ambient_authority())
            .and_then(|root| root.open_dir(secret))
            .and_then(|folder| folder.open(key));
        let file = match opened {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(missing("not found".to_owned())),
            Err(error) => return Err(invalid(format!("cannot be opened: {error}"))),
        };
        let mut content = Vec::new();
        match file.take(SECRET_FILE_MAX_BYTES + 1).read_to_end(&mut content) {
            Ok(_) if content.len() as u64 > SECRET_FILE_MAX_BYTES => {
                Err(invalid(format!("has more than {SECRET_FILE_MAX_BYTES} bytes")))
            }
            Ok(_) if content.iter().all(u8::is_ascii_whitespace) => Err(missing("it is empty".to_owned())),
            Ok(_) => Ok(Sensitive::new(content)),
            Err(error) => Err(invalid(format!("cannot be read: {error}"))),
        }
    }

    /// A digest over files of a Secret as they are now; one that cannot be read counts as absent.
    pub fn digest(&self, secret: &str, keys: &[&str]) -> ContentDigest {
        let mut hasher = Sha256::new();
        for key in keys {
            match self.read(secret, key) {
                Ok(content) => {
                    hasher.update(1_u64.to_be_bytes());
                    hasher.update((content.expose().len() as u64).to_be_bytes());
                    hasher.update(content.expose());
                }
                Err(_) => hasher.update(0_u64.to_be_bytes()),
            }
        }
        ContentDigest(hasher.finalize().into())
    }
}

/// Whether a text is one component of a path, and an ordinary one.
fn is_component(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 253
        && !matches!(text, "." | "..")
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

impl std::fmt::Debug for ContentDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ContentDigest")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, SecretStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = SecretStore::new(folder.path().join("secrets"));
        (folder, store)
    }

    #[test]
    fn a_secret_that_appears_is_found() {
        let (_folder, store) = store();
        let error = store.read("kvm-ssh", "ssh-privatekey").unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Unauthenticated, "CredentialsMissing"));
        assert!(error.message.contains("kvm-ssh") && error.message.contains("ssh-privatekey"), "{error}");
        let before = store.digest("kvm-ssh", &["ssh-privatekey"]);
        std::fs::create_dir_all(store.root().join("kvm-ssh")).unwrap();
        std::fs::write(store.root().join("kvm-ssh/ssh-privatekey"), "hunter2").unwrap();
        assert_eq!(store.read("kvm-ssh", "ssh-privatekey").unwrap().expose(), b"hunter2");
        assert_ne!(store.digest("kvm-ssh", &["ssh-privatekey"]), before);
    }

    #[test]
    fn kubernetes_links_are_followed_and_links_out_are_not() {
        let (folder, store) = store();
        let secret = store.root().join("s");
        std::fs::create_dir_all(secret.join("..2026_01")).unwrap();
        std::fs::write(secret.join("..2026_01/key"), "inside").unwrap();
        std::os::unix::fs::symlink("..2026_01", secret.join("..data")).unwrap();
        std::os::unix::fs::symlink("..data/key", secret.join("key")).unwrap();
        assert_eq!(store.read("s", "key").unwrap().expose(), b"inside");
        std::fs::write(folder.path().join("outside"), "outside").unwrap();
        std::os::unix::fs::symlink("../../outside", secret.join("out")).unwrap();
        assert_eq!(store.read("s", "out").unwrap_err().reason, "CredentialsInvalid");
        for name in ["..", ".", "", "a/b", "../s", "/etc"] {
            assert_eq!(store.read(name, "key").unwrap_err().reason, "GrantInvalid", "{name}");
        }
    }
}
