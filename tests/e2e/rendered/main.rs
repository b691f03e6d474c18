//! The document that the operator renders for squid, in a real squid and in cloud-init's own validator.
//!
//! - a password is asked for, and the right one serves
//! - sources of the allow-list are served without one
//! - private destinations are refused unless they are opened, by address and by name
//! - an open proxy serves everybody; one with nobody allowed serves nobody
//! - ports of other services than the web's are refused
//! - the document is valid, and cloud-init has no warning about it

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use proxy_operator_core::provider::{Access, Credential, Software};
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_core::squid;
use proxy_operator_harness::{Origin, Squid, free_port};
use sha_crypt::{PasswordHasher as _, ShaCrypt};

fn software(access: Access) -> Software {
    Software { name: "squid".into(), port: free_port().expect("a port"), access }
}

fn start(software: &Software) -> Squid {
    let configuration = squid::configuration(software);
    Squid::start(&configuration, software.port, squid::PASSWORD_FILE, &squid::password_file(&software.access))
        .expect("squid starts")
}

fn user() -> Vec<Credential> {
    let hash = ShaCrypt::SHA256.hash_password_with_salt(b"s3cr3t", b"saltsaltsalt").expect("hashes");
    vec![Credential { username: "crawler".into(), password_hash: Sensitive::new(hash.to_string()) }]
}

fn loopback() -> Vec<String> {
    vec!["127.0.0.0/8".into()]
}

#[test]
fn a_password_is_asked_for() {
    let origin = Origin::start().expect("starts");
    let access = Access { credentials: user(), private_destinations: loopback(), ..Access::default() };
    let squid = start(&software(access));
    assert_eq!(squid.get(&origin.url(), None).expect("a status"), 407);
    assert_eq!(squid.get(&origin.url(), Some("crawler:wrong")).expect("a status"), 407);
    assert_eq!(origin.requests(), 0, "nobody without the password reaches a target");
    assert_eq!(squid.get(&origin.url(), Some("crawler:s3cr3t")).expect("a status"), 204);
}

#[test]
fn the_allow_list_needs_no_password() {
    let origin = Origin::start().expect("starts");
    let access =
        Access { credentials: user(), allow_from: loopback(), private_destinations: loopback(), ..Access::default() };
    assert_eq!(start(&software(access)).get(&origin.url(), None).expect("a status"), 204);
    let elsewhere = Access {
        credentials: user(),
        allow_from: vec!["192.0.2.0/24".into()],
        private_destinations: loopback(),
        ..Access::default()
    };
    assert_eq!(start(&software(elsewhere)).get(&origin.url(), None).expect("a status"), 407);
}

#[test]
fn private_destinations_are_refused() {
    let origin = Origin::start().expect("starts");
    let squid = start(&software(Access { credentials: user(), ..Access::default() }));
    let port = origin.port();
    let closed = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/"),
        format!("http://[::1]:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        format!("http://0.0.0.0:{port}/"),
        format!("http://2130706433:{port}/"),
        "http://169.254.169.254/latest/meta-data/".into(),
        "http://10.0.0.1/".into(),
        "http://[fe80::1]/".into(),
    ];
    for url in closed {
        let status = squid.get(&url, Some("crawler:s3cr3t")).expect("a status");
        assert!(status == 403 || status == 400, "{url}: {status}");
    }
    assert_eq!(origin.requests(), 0);
}

#[test]
fn an_open_proxy_serves_everybody_and_a_closed_one_nobody() {
    let origin = Origin::start().expect("starts");
    let open = Access { open: true, private_destinations: loopback(), ..Access::default() };
    assert_eq!(start(&software(open)).get(&origin.url(), None).expect("a status"), 204);
    let closed = Access { private_destinations: loopback(), ..Access::default() };
    assert_eq!(start(&software(closed)).get(&origin.url(), None).expect("a status"), 403);
}

#[test]
fn other_services_are_out_of_reach() {
    let access = Access { open: true, private_destinations: loopback(), ..Access::default() };
    let squid = start(&software(access));
    assert_eq!(squid.get("http://127.0.0.1:25/", None).expect("a status"), 403);
    assert_eq!(squid.get("http://127.0.0.1:22/", None).expect("a status"), 403);
}

#[test]
fn the_document_is_valid_for_cloud_init() {
    let access = Access {
        credentials: user(),
        allow_from: loopback(),
        private_destinations: vec!["fd00::/8".into()],
        ..Access::default()
    };
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("user-data");
    std::fs::write(&path, squid::cloud_config(&software(access))).expect("writes");
    let output = std::process::Command::new("cloud-init")
        .args(["schema", "--config-file"])
        .arg(&path)
        .output()
        .expect("cloud-init runs; install the Debian package cloud-init");
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{text}");
    assert!(text.contains("Valid") && !text.to_lowercase().contains("warn"), "{text}");
}
