//! The commands around the program, as the documents tell them.
//!
//! - `make kvm-ssh-secret` fills a folder, and refuses a public key, a key with a passphrase, and a missing host key
//! - every `make` target that the documents name exists
//! - `get` and `describe` say what to do where there is no state

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Files for one run of `make kvm-ssh-secret`.
struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder") }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn key(&self, name: &str, passphrase: &str) -> PathBuf {
        let path = self.path(name);
        let status =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(&path).status();
        assert!(status.expect("ssh-keygen runs; install the Debian package openssh-client").success());
        path
    }

    fn make(&self, key: &Path) -> Output {
        let hosts = self.path("known_hosts");
        Command::new("make")
            .args(["--silent", "kvm-ssh-secret"])
            .arg(format!("KVM_SSH_KEY={}", key.display()))
            .arg(format!("KVM_KNOWN_HOSTS={}", hosts.display()))
            .arg(format!("FOLDER={}", self.path("manifests").display()))
            .current_dir(root())
            .output()
            .expect("make runs")
    }

    fn host_keys(&self) {
        std::fs::write(self.path("known_hosts"), "192.0.2.10 ssh-ed25519 AAAA\n").expect("writes");
    }
}

fn error(output: &Output) -> String {
    assert!(!output.status.success(), "it did not fail");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn kvm_ssh_secret_fills_a_folder() {
    use std::os::unix::fs::PermissionsExt as _;
    let ground = Ground::new();
    ground.host_keys();
    let key = ground.key("kvm", "");
    let output = ground.make(&key);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let secret = ground.path("manifests/secrets/kvm-ssh");
    let content = |path: &Path| std::fs::read(path).expect("reads");
    assert_eq!(content(&secret.join("ssh-privatekey")), content(&key));
    assert_eq!(content(&secret.join("known_hosts")), content(&ground.path("known_hosts")));
    let mode = std::fs::metadata(secret.join("ssh-privatekey")).expect("is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn kvm_ssh_secret_refuses_what_cannot_work_and_says_why() {
    let ground = Ground::new();
    ground.host_keys();
    ground.key("kvm", "");
    let public = error(&ground.make(&ground.path("kvm.pub")));
    assert!(public.contains("kvm.pub is a public key"), "{public}");
    let protected = error(&ground.make(&ground.key("protected", "a passphrase")));
    assert!(protected.contains("passphrase"), "{protected}");
    let missing = error(&ground.make(&ground.path("nothing")));
    assert!(missing.contains("ssh-keygen -t ed25519"), "{missing}");
    std::fs::remove_file(ground.path("known_hosts")).expect("removes");
    let unknown = error(&ground.make(&ground.path("kvm")));
    assert!(unknown.contains("ssh-keyscan"), "{unknown}");
    assert!(!ground.path("manifests").exists(), "nothing is made half");
}

#[test]
fn the_targets_that_documents_name_exist() {
    let makefile = std::fs::read_to_string(root().join("Makefile")).expect("reads");
    let targets: Vec<&str> = makefile.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name).collect();
    let mut named = 0;
    for document in ["README.md", "docs/kvm-provider.md", "tests/README.md", "plugins/README.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect("reads");
        for part in text.split("make ").skip(1) {
            let before = text.split(part).next().unwrap_or_default().trim_end_matches("make ");
            let is_command = before.ends_with(['`', '\n']) || before.ends_with("&& ");
            let target: String = part.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-').collect();
            if is_command && !target.is_empty() {
                named += 1;
                assert!(targets.contains(&target.as_str()), "{document} names `make {target}`, which is not there");
            }
        }
    }
    assert!(named >= 4, "only {named} targets were found in the documents");
}

#[test]
fn commands_say_what_to_do_where_there_is_no_state() {
    let empty = tempfile::tempdir().expect("a folder");
    let program = env!("CARGO_BIN_EXE_proxy-operator");
    for command in [&["get"][..], &["describe", "proxy", "a"], &["images", "list"]] {
        let output = Command::new(program).args(command).arg("-C").arg(empty.path()).output().expect("runs");
        let text = error(&output);
        assert!(text.contains("proxy-operator standalone") && text.contains("-C"), "{text}");
    }
    let nowhere = empty.path().join("nowhere");
    let output = Command::new(program).arg("standalone").arg(&nowhere).output().expect("runs");
    let text = error(&output);
    assert!(text.contains(&nowhere.display().to_string()) && text.contains("make it"), "{text}");
}
