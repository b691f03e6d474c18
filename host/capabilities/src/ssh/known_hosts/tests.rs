//! Every form of a line, against what ssh-keygen itself writes.

use super::*;
use std::process::Command;

fn address(host: &str, port: u16) -> SshAddress {
    SshAddress { user: "operator".to_owned(), host: host.to_owned(), port }
}

/// A fresh public key of a type: `ssh-ed25519 AAAA…`.
fn public_key(kind: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let status = Command::new("ssh-keygen").args(["-q", "-t", kind, "-N", "", "-C", "", "-f"]).arg(&path).status();
    assert!(status.unwrap().success());
    let text = std::fs::read_to_string(path.with_extension("pub")).unwrap();
    text.split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

fn key_of(public: &str) -> HostKey {
    HostKey::from_blob(&STANDARD.decode(public.split_once(' ').unwrap().1).unwrap()).unwrap()
}

#[test]
fn names_ports_patterns_and_hashes() {
    let [key, other] = [public_key("ed25519"), public_key("ed25519")];
    let shown = key_of(&key);
    for (line, host, port, known) in [
        (format!("hv1 {key}"), "hv1", 22, true),
        (format!("HV1 {key} a comment"), "hv1", 22, true),
        (format!("hv1,192.0.2.10 {key}"), "192.0.2.10", 22, true),
        (format!("[hv1]:2222 {key}"), "hv1", 2222, true),
        (format!("[hv1]:2222 {key}"), "hv1", 22, false),
        (format!("[hv1]:22 {key}"), "hv1", 22, false),
        (format!("hv1 {key}"), "hv1", 2222, true),
        (format!("*.example {key}"), "a.b.example", 22, true),
        (format!("hv? {key}"), "hv12", 22, false),
        (format!("*,!hv1 {key}"), "hv1", 22, false),
        (format!("*,!hv1 {key}"), "hv2", 22, true),
        (format!("2001:db8::1 {key}"), "2001:db8::1", 22, true),
        (format!("[2001:db8::1]:2222 {key}"), "2001:db8::1", 2222, true),
        (format!("hv10 {key}"), "hv1", 22, false),
    ] {
        let verdict = KnownHosts::parse(&line).verify(&address(host, port), &shown);
        assert_eq!(verdict == Verdict::Known, known, "{line} for {host}:{port} is {verdict:?}");
    }
    // A key for the port goes before one of the bare name.
    let file = format!("hv1 {key}\n[hv1]:2222 {other}\n");
    let verdict = KnownHosts::parse(&file).verify(&address("hv1", 2222), &shown);
    assert_eq!(verdict, Verdict::Mismatch { expected: vec![key_of(&other).fingerprint()] });
}

#[test]
fn a_file_hashed_by_ssh_keygen_is_read() {
    let key = public_key("ed25519");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("known_hosts");
    std::fs::write(&path, format!("hv1 {key}\n[hv2]:2222 {key}\n")).unwrap();
    assert!(Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&path).output().unwrap().status.success());
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("|1|") && !text.contains("hv1"));
    let known = KnownHosts::parse(&text);
    assert_eq!(known.verify(&address("hv1", 22), &key_of(&key)), Verdict::Known);
    assert_eq!(known.verify(&address("hv2", 2222), &key_of(&key)), Verdict::Known);
    assert_eq!(known.verify(&address("hv2", 22), &key_of(&key)), Verdict::Unknown);
}

#[test]
fn markers_are_honoured() {
    let key = public_key("ed25519");
    let shown = key_of(&key);
    let verify = |text: String| KnownHosts::parse(&text).verify(&address("hv1", 2222), &shown);
    assert_eq!(verify(format!("[hv1]:2222 {key}\n@revoked * {key}\n")), Verdict::Revoked);
    assert_eq!(verify(format!("@revoked hv1 {key}\n[hv1]:2222 {key}\n")), Verdict::Revoked);
    assert_eq!(verify(format!("@cert-authority * {key}\n")), Verdict::AuthorityOnly);
    assert_eq!(verify(format!("@cert-authority * {key}\nhv1 {key}\n")), Verdict::Known);
    assert_eq!(verify(format!("@unknown hv1 {key}\n")), Verdict::Unknown);
}

#[test]
fn types_decide_what_the_handshake_asks_for() {
    let [ed25519, ecdsa, rsa] = ["ed25519", "ecdsa", "rsa"].map(public_key);
    let hv1 = address("hv1", 22);
    let known = KnownHosts::parse(&format!("hv1 {rsa}\nhv1 {ecdsa}\nhv2 {ed25519}\n"));
    assert_eq!(known.algorithms(&hv1), ["ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256"]);
    let verdict = known.verify(&hv1, &key_of(&ed25519));
    assert_eq!(verdict, Verdict::OtherTypes { kinds: vec!["ssh-rsa".to_owned(), "ecdsa-sha2-nistp256".to_owned()] });
    assert!(known.algorithms(&address("hv3", 22)).is_empty());
}

#[test]
fn fingerprints_are_those_of_ssh_keygen() {
    let key = public_key("ed25519");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pub");
    std::fs::write(&path, format!("{key}\n")).unwrap();
    let output = Command::new("ssh-keygen").arg("-lf").arg(&path).output().unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(shown.contains(&key_of(&key).fingerprint()), "{shown}");
}

#[test]
fn lines_that_cannot_be_read_are_counted() {
    let key = public_key("ed25519");
    let known = KnownHosts::parse(&format!(
        "# comment\n\nhv1\nhv1 ssh-rsa {}\nhv1 ssh-ed25519 %%%\nhv1 {key}\n",
        key.split_once(' ').unwrap().1
    ));
    assert_eq!(known.unreadable_lines(), [3, 4, 5]);
    assert_eq!(known.verify(&address("hv1", 22), &key_of(&key)), Verdict::Known);
}

#[test]
fn patterns_end() {
    assert!(glob(b"*a*a*a*", b"aaa") && !glob(b"*a*a*a*a", b"aab") && glob(b"", b"") && !glob(b"", b"a"));
    assert!(!glob(&b"*a".repeat(60), &[b'b'; 4_000]));
}
