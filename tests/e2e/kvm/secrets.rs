//! Keys that appear and change while the operator runs, and an sshd that forbids forwarding.

use std::path::{Path, PathBuf};
use std::process::Command;

use proxy_operator_harness::{Hypervisor, Options};

use crate::support::ground::name;
use crate::support::guest::{bring_up, until_on};
use crate::support::manifests::{provider, proxy};
use crate::support::{Folder, Ground, Operator, shaken, steady};

fn is_healthy(folder: &Folder) -> bool {
    folder.provider_condition("p", "Healthy").is_some_and(|condition| condition.reason == "Healthy")
}

#[test]
fn a_missing_secret_is_warned_of_and_one_that_appears_heals() {
    let ground = Ground::new(steady(), "missing");
    let services = ground.services();
    let folder = Folder::new();
    folder.apply("provider", &provider("p", &ground));
    folder.apply("one", &proxy("one", "p", &services));
    let operator = Operator::start(&folder);
    let said = folder.wait("what is missing is said", 60, || {
        folder.provider_condition("p", "Healthy").filter(|condition| condition.reason == "CredentialsMissing")
    });
    assert!(said.message.contains("kvm-ssh") && said.message.contains("ssh-privatekey"), "{}", said.message);
    let log = folder.log();
    let warned = log.lines().find(|line| line.contains("CredentialsMissing") && line.contains("WARN"));
    assert!(warned.is_some_and(|line| line.contains("kvm-ssh")), "no warning in the log:\n{log}");
    assert!(ground.domains(folder.domain("p", "default", "one").as_str()).is_empty());

    folder.usual_secret(ground.hypervisor);
    until_on(&folder, "one");
    folder.until("the Provider is healthy", 60, || is_healthy(&folder));
    folder.remove("one");
    folder.until("it is gone", 60, || folder.proxy("one").is_none());
    operator.stop();
}

/// A new key that a hypervisor lets in.
struct Key {
    folder: tempfile::TempDir,
    authorized: PathBuf,
    line: String,
}

impl Key {
    fn new(hypervisor: &Hypervisor) -> Self {
        let folder = tempfile::Builder::new().prefix("e2e-kvm-key-").tempdir().unwrap();
        let path = folder.path().join("key");
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-C", "rotated", "-f"])
            .arg(&path)
            .status();
        assert!(made.unwrap().success());
        let line = std::fs::read_to_string(folder.path().join("key.pub")).unwrap();
        let authorized = hypervisor.keys.ed25519.with_file_name("authorized_keys");
        let all = std::fs::read_to_string(&authorized).unwrap();
        std::fs::write(&authorized, all + &line).unwrap();
        Self { folder, authorized, line }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("key")
    }

    fn withdraw(&self) {
        let all = std::fs::read_to_string(&self.authorized).unwrap();
        std::fs::write(&self.authorized, all.replace(&self.line, "")).unwrap();
    }
}

#[test]
fn a_rotated_key_takes_effect_and_ends_what_the_old_one_opened() {
    let (hypervisor, _alone) = shaken();
    let ground = Ground::new(hypervisor, "rotated");
    let services = ground.services();
    let folder = Folder::new();
    let (old, new) = (Key::new(hypervisor), Key::new(hypervisor));
    folder.ssh_secret("kvm-ssh", &old.path(), &hypervisor.known_hosts);
    folder.apply("provider", &provider("p", &ground));
    folder.apply("one", &proxy("one", "p", &services));
    let operator = Operator::start(&folder);
    let _guest = bring_up(&folder, &ground, "p", "one");

    old.withdraw();
    folder.ssh_secret("kvm-ssh", &new.path(), &hypervisor.known_hosts);
    folder.until("the old connection is ended", 30, || folder.log().contains("its Secret has changed"));
    folder.apply("two", &proxy("two", "p", &services));
    until_on(&folder, "two");
    assert!(folder.is_ready("one"));
    let log = std::fs::read_to_string(hypervisor.logs.join("sshd.log")).unwrap();
    let used = fingerprint(&new.path());
    assert!(log.lines().any(|line| line.contains("Accepted publickey") && line.contains(&used)), "{used} was not used");

    for name in ["one", "two"] {
        folder.remove(name);
    }
    folder.until("both are gone", 60, || folder.proxy("one").is_none() && folder.proxy("two").is_none());
    operator.stop();
    new.withdraw();
}

/// As sshd logs it.
fn fingerprint(key: &Path) -> String {
    let shown = Command::new("ssh-keygen").arg("-lf").arg(key).output().unwrap();
    String::from_utf8(shown.stdout).unwrap().split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn an_sshd_that_forbids_forwarding_serves_through_a_command() {
    let options = Options { streamlocal: false, ..Options::default() };
    // For the life of this program, as the shared ones.
    let hypervisor: &'static Hypervisor = Box::leak(Box::new(Hypervisor::up(&name(3), &options).unwrap()));
    let ground = Ground::new(hypervisor, "forbidden");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(hypervisor);
    folder.apply("provider", &provider("p", &ground));
    folder.apply("one", &proxy("one", "p", &services));
    let operator = Operator::start(&folder);
    let guest = bring_up(&folder, &ground, "p", "one");
    folder.remove("one");
    folder.until("it is gone", 60, || folder.proxy("one").is_none());
    drop(guest);
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new());
    operator.stop();
}
