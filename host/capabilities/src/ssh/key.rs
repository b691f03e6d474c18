//! The Secret of a hypervisor: a private key and the known hosts. What is wrong with them is said before they are used.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::sensitive::Sensitive;
use ssh_key::{HashAlg, PrivateKey};

use super::known_hosts::KnownHosts;
use crate::secrets::{ContentDigest, SecretStore};

/// The file with the private key, as in Kubernetes' own type `kubernetes.io/ssh-auth`.
pub const KEY_FILE: &str = "ssh-privatekey";

/// The file with the host keys.
pub const KNOWN_HOSTS_FILE: &str = "known_hosts";

/// What a Secret holds, read and inspected.
#[derive(Clone, Debug)]
pub struct Credentials {
    /// The Secret's name, for messages.
    pub secret: String,
    /// The private key as libssh2 takes it.
    pub key: Sensitive<String>,
    /// What the key is, for messages: its type and, where it can be told, its fingerprint.
    pub key_label: String,
    /// The host keys.
    pub known_hosts: KnownHosts,
    /// Of the content it was read from.
    pub digest: ContentDigest,
}

impl Credentials {
    /// Reads a Secret as it is now.
    pub fn read(secrets: &SecretStore, secret: &str) -> Result<Self> {
        let digest = Self::digest(secrets, secret);
        let text = |file: &str| {
            let content = secrets.read(secret, file)?.into_inner();
            String::from_utf8(content).map_err(|_| invalid(secret, file, "is not text"))
        };
        let (key, key_label) = inspect(&text(KEY_FILE)?).map_err(|fault| invalid(secret, KEY_FILE, fault))?;
        let known_hosts = KnownHosts::parse(&text(KNOWN_HOSTS_FILE)?);
        if known_hosts.is_empty() {
            let fault = match known_hosts.unreadable_lines() {
                [] => "holds no host key; fill it with ssh-keyscan and compare the fingerprints".to_owned(),
                lines => format!("holds no host key that can be read (see line {})", join(lines)),
            };
            return Err(invalid(secret, KNOWN_HOSTS_FILE, &fault));
        }
        Ok(Self { secret: secret.to_owned(), key, key_label, known_hosts, digest })
    }

    /// A digest of the Secret's content as it is now.
    pub fn digest(secrets: &SecretStore, secret: &str) -> ContentDigest {
        secrets.digest(secret, &[KEY_FILE, KNOWN_HOSTS_FILE])
    }
}

/// A fault in a file of a Secret: its content is never part of it.
pub fn invalid(secret: &str, file: &str, fault: &str) -> Error {
    Error::invalid_config("CredentialsInvalid", format!("Secret {secret:?}, file {file}: {fault}"))
}

/// Line numbers for people.
pub fn join(lines: &[usize]) -> String {
    lines.iter().take(5).map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Looks at a private key: normalised for libssh2 and labelled, or what is wrong with it.
fn inspect(text: &str) -> std::result::Result<(Sensitive<String>, String), &'static str> {
    const ENCRYPTED: &str = "the private key is protected by a passphrase, which nobody can type here; store one without (ssh-keygen -p -N '')";
    // A Secret made on Windows or without a final newline: libssh2 takes neither.
    let mut lines: Vec<&str> = text.trim().lines().map(str::trim_end).collect();
    lines.push("");
    let normalised = Sensitive::new(lines.join("\n"));
    let text = normalised.expose().as_str();
    let Some(label) =
        text.strip_prefix("-----BEGIN ").and_then(|rest| rest.split_once("-----")).map(|(label, _)| label)
    else {
        return Err(if text.starts_with("ssh-") || text.starts_with("ecdsa-") {
            "is a public key; the private one is needed"
        } else if text.starts_with("PuTTY") {
            "is a key of PuTTY; export it in the form of OpenSSH"
        } else {
            "is not a private key; one begins with -----BEGIN"
        });
    };
    if !text.trim_end().ends_with(&format!("-----END {label}-----")) {
        return Err("the private key is cut off: its last line, -----END …, is missing");
    }
    let label = match label {
        "OPENSSH PRIVATE KEY" => {
            let key = PrivateKey::from_openssh(text).map_err(|_| "the private key cannot be read: it is damaged, or of a type that is not supported (use ed25519, ECDSA or RSA)")?;
            if key.is_encrypted() {
                return Err(ENCRYPTED);
            }
            match key.algorithm() {
                ssh_key::Algorithm::Ed25519 | ssh_key::Algorithm::Ecdsa { .. } | ssh_key::Algorithm::Rsa { .. } => {}
                _ => return Err("is a key of a type that is not supported; use ed25519, ECDSA or RSA"),
            }
            format!("{}, {}", key.algorithm(), key.fingerprint(HashAlg::Sha256))
        }
        "ENCRYPTED PRIVATE KEY" => return Err(ENCRYPTED),
        "RSA PRIVATE KEY" | "EC PRIVATE KEY" | "PRIVATE KEY" => {
            let body: Vec<_> = text.lines().skip(1).take_while(|line| !line.starts_with("-----")).collect();
            if body.iter().any(|line| line.starts_with("Proc-Type:") && line.contains("ENCRYPTED")) {
                return Err(ENCRYPTED);
            }
            match STANDARD.decode(body.concat()) {
                // Every one is a SEQUENCE of ASN.1.
                Ok(der) if der.first() == Some(&0x30) => {}
                _ => return Err("the private key is damaged: its body is not base64 of a key"),
            }
            label.to_owned()
        }
        "DSA PRIVATE KEY" => return Err("is a DSA key, which servers no longer take; use ed25519, ECDSA or RSA"),
        _ => return Err("is not a private key"),
    };
    Ok((normalised, label))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn generated(arguments: &[&str], passphrase: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mut command = Command::new("ssh-keygen");
        command.args(["-q", "-C", "c", "-N", passphrase, "-f"]).arg(&path).args(arguments);
        assert!(command.status().unwrap().success());
        std::fs::read_to_string(path).unwrap()
    }

    #[test]
    fn keys_of_every_kind_and_form_are_taken() {
        for arguments in [
            &["-t", "ed25519"][..],
            &["-t", "ecdsa"],
            &["-t", "ecdsa", "-b", "521"],
            &["-t", "rsa", "-b", "2048"],
            &["-t", "rsa", "-b", "2048", "-m", "PEM"],
            &["-t", "ecdsa", "-m", "PEM"],
            &["-t", "rsa", "-b", "2048", "-m", "PKCS8"],
        ] {
            let text = generated(arguments, "");
            let (key, label) = inspect(&text).unwrap();
            assert_eq!(key.expose(), &text, "{arguments:?} is {label}");
            for changed in [text.trim_end().to_owned(), text.replace('\n', "\r\n"), format!("\n{text}\n\n")] {
                assert_eq!(inspect(&changed).unwrap().0.expose(), &text, "{arguments:?}");
            }
        }
    }

    #[test]
    fn faults_are_named() {
        let text = generated(&["-t", "ed25519"], "");
        for (text, words) in [
            (generated(&["-t", "ed25519"], "correct-horse"), "passphrase"),
            (generated(&["-t", "rsa", "-b", "2048", "-m", "PEM"], "correct-horse"), "passphrase"),
            (generated(&["-t", "rsa", "-b", "2048", "-m", "PKCS8"], "correct-horse"), "passphrase"),
            (text.replace("-----END OPENSSH PRIVATE KEY-----", ""), "cut off"),
            (text.replacen("b3BlbnNzaC1rZXk", "b3BlbnNzaC1xxxk", 1), "cannot be read"),
            ("ssh-ed25519 AAAA me".to_owned(), "public key"),
            ("hunter2".to_owned(), "not a private key"),
            ("-----BEGIN RSA PRIVATE KEY-----\nhunter2\n-----END RSA PRIVATE KEY-----".to_owned(), "damaged"),
        ] {
            let fault = inspect(&text).unwrap_err();
            assert!(fault.contains(words) && !fault.contains("hunter2"), "{fault}");
        }
    }

    #[test]
    fn a_secret_is_read_whole_or_its_fault_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let secrets = SecretStore::new(folder.path());
        let secret = folder.path().join("kvm-ssh");
        std::fs::create_dir(&secret).unwrap();
        assert_eq!(Credentials::read(&secrets, "kvm-ssh").unwrap_err().reason, "CredentialsMissing");
        std::fs::write(secret.join(KEY_FILE), generated(&["-t", "ed25519"], "")).unwrap();
        let error = Credentials::read(&secrets, "kvm-ssh").unwrap_err();
        assert!(error.reason == "CredentialsMissing" && error.message.contains(KNOWN_HOSTS_FILE), "{error}");
        std::fs::write(secret.join(KNOWN_HOSTS_FILE), "# nothing\nhv1 rubbish\n").unwrap();
        let error = Credentials::read(&secrets, "kvm-ssh").unwrap_err();
        assert!(error.reason == "CredentialsInvalid" && error.message.contains("line 2"), "{error}");
    }
}
