//! Probes through a real squid.
//!
//! - a proxy that serves, with its egress address and a tunnel
//! - wrong credentials, a refusing target, a refused destination, a dead proxy, a silent one, and an endpoint out of
//!   reach are told apart
//! - a proxy that serves without credentials is open, unless the operator's own source is allowed to
//! - the exact status counts, and the time is bounded

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::time::{Duration, Instant};

use proxy_operator::probe::{Target, probe};
use proxy_operator_api::proxy::Probe;
use proxy_operator_core::probe::Finding;
use proxy_operator_core::provider::{Access, Credential, Software};
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_core::squid;
use proxy_operator_harness::{Origin, Squid, free_port};
use sha_crypt::{PasswordHasher as _, ShaCrypt};

fn start(change: impl FnOnce(&mut Access)) -> Squid {
    let hash = ShaCrypt::SHA256.hash_password_with_salt(b"s3cr3t", b"saltsaltsalt").expect("hashes");
    let mut access = Access {
        credentials: vec![Credential { username: "crawler".into(), password_hash: Sensitive::new(hash.to_string()) }],
        private_destinations: vec!["127.0.0.0/8".into()],
        ..Access::default()
    };
    change(&mut access);
    let software = Software { name: "squid".into(), port: free_port().expect("a port"), access };
    let (configuration, passwords) = (squid::configuration(&software), squid::password_file(&software.access));
    Squid::start(&configuration, software.port, squid::PASSWORD_FILE, &passwords).expect("squid starts")
}

fn target(endpoint: &str, url: &str) -> Target {
    Target {
        endpoint: endpoint.to_owned(),
        credentials: Some(("crawler".into(), Sensitive::new("s3cr3t".into()))),
        allow_from: vec![],
        probe: Probe { url: Some(url.to_owned()), timeout_seconds: Some(20), ..Probe::default() },
    }
}

#[tokio::test]
async fn a_proxy_that_serves_answers() {
    let (origin, squid) = (Origin::start().expect("starts"), start(|_| {}));
    let mut target = target(&squid.endpoint(), &origin.url());
    target.probe.egress_url = Some(format!("{}echo", origin.url()));
    let report = probe(&target).await;
    assert_eq!((report.finding, report.egress.as_deref()), (Finding::Answers, Some("127.0.0.1")));
    assert!(report.latency > Duration::ZERO);
}

#[tokio::test]
async fn a_tunnel_is_tried_where_one_is_configured() {
    let (origin, squid) = (Origin::start().expect("starts"), start(|_| {}));
    let mut target = target(&squid.endpoint(), &origin.url());
    target.probe.connect = Some(format!("127.0.0.1:{}", origin.port()));
    assert_eq!(probe(&target).await.finding, Finding::Answers);
    target.probe.connect = Some(format!("127.0.0.1:{}", free_port().expect("a port")));
    let finding = probe(&target).await.finding;
    assert!(matches!(&finding, Finding::TargetFailed(words) if words.contains("ERR_CONNECT_FAIL")), "{finding:?}");
}

#[tokio::test]
async fn wrong_credentials_are_not_a_dead_proxy() {
    let (origin, squid) = (Origin::start().expect("starts"), start(|_| {}));
    let mut target = target(&squid.endpoint(), &origin.url());
    target.credentials = Some(("crawler".into(), Sensitive::new("wrong".into())));
    assert_eq!(probe(&target).await.finding, Finding::CredentialsRefused(407));
    assert_eq!(origin.requests(), 0);
}

#[tokio::test]
async fn a_target_that_refuses_is_not_the_proxys_fault() {
    let squid = start(|_| {});
    let url = format!("http://127.0.0.1:{}/", free_port().expect("a port"));
    let finding = probe(&target(&squid.endpoint(), &url)).await.finding;
    assert_eq!(finding, Finding::TargetFailed("ERR_CONNECT_FAIL, status 503".into()));
}

#[tokio::test]
async fn a_destination_that_the_proxy_refuses_is_told_in_its_words() {
    let (origin, squid) = (Origin::start().expect("starts"), start(|access| access.private_destinations.clear()));
    let finding = probe(&target(&squid.endpoint(), &origin.url())).await.finding;
    assert_eq!(finding, Finding::TargetFailed("ERR_ACCESS_DENIED, status 403".into()));
}

#[tokio::test]
async fn the_exact_status_counts() {
    let (origin, squid) = (Origin::start().expect("starts"), start(|_| {}));
    let finding = probe(&target(&squid.endpoint(), &format!("{}teapot", origin.url()))).await.finding;
    assert_eq!(finding, Finding::UnexpectedStatus { got: 418, expected: 204 });
}

#[tokio::test]
async fn a_proxy_that_serves_strangers_is_open() {
    let (origin, squid) = (Origin::start().expect("starts"), start(|access| access.open = true));
    let mut target = target(&squid.endpoint(), &origin.url());
    assert_eq!(probe(&target).await.finding, Finding::Open);
    target.credentials = None;
    assert_eq!(probe(&target).await.finding, Finding::Answers, "one that is meant to be open is well");
}

#[tokio::test]
async fn a_source_that_is_allowed_is_no_stranger() {
    let (origin, squid) =
        (Origin::start().expect("starts"), start(|access| access.allow_from = vec!["127.0.0.0/8".into()]));
    let mut target = target(&squid.endpoint(), &origin.url());
    assert_eq!(probe(&target).await.finding, Finding::Open);
    target.allow_from = vec!["127.0.0.0/8".parse().expect("a net")];
    assert_eq!(probe(&target).await.finding, Finding::Answers);
}

#[tokio::test]
async fn a_dead_proxy_is_not_an_endpoint_out_of_reach() {
    let nobody = format!("127.0.0.1:{}", free_port().expect("a port"));
    assert!(matches!(probe(&target(&nobody, "http://127.0.0.1/")).await.finding, Finding::Refused(_)));
    // No connection can be made to a group of hosts: the kernel says "network is unreachable", and nothing is sent.
    let finding = probe(&target("224.0.0.1:3128", "http://127.0.0.1/")).await.finding;
    assert!(matches!(finding, Finding::Unreachable(_)), "{finding:?}");
}

#[tokio::test]
async fn a_silent_proxy_costs_no_more_than_the_timeout() {
    // Accepts, since the kernel does, and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let endpoint = listener.local_addr().expect("has an address").to_string();
    let mut target = target(&endpoint, "http://127.0.0.1/");
    target.probe.timeout_seconds = Some(1);
    let begun = Instant::now();
    let finding = probe(&target).await.finding;
    assert!(matches!(finding, Finding::Silent(_)), "{finding:?}");
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn what_is_no_proxy_is_said_to_be_silent() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let endpoint = listener.local_addr().expect("has an address").to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let _ = std::io::Write::write_all(&mut &stream, b"SSH-2.0-OpenSSH_9.2\r\n");
        }
    });
    let finding = probe(&target(&endpoint, "http://127.0.0.1/")).await.finding;
    assert!(matches!(finding, Finding::Silent(_)), "{finding:?}");
}
