//! Who is let in, and into where.

use std::time::{Duration, Instant};

use proxy_operator_core::capability::libvirt::Libvirt;
use proxy_operator_core::error::{Error, ErrorCode};
use proxy_operator_harness::{Hypervisor, Options, shared};

use super::support::{Bench, HOST, put};

/// The error of a host that is asked with these files.
async fn refused(hypervisor: &Hypervisor, key: &[u8], known_hosts: &str) -> Error {
    let bench = Bench::new(hypervisor, "refused");
    put(bench.secrets.path(), key, known_hosts.as_bytes());
    bench.libvirt.info(HOST).await.unwrap_err()
}

fn known_hosts(hypervisor: &Hypervisor) -> String {
    std::fs::read_to_string(&hypervisor.known_hosts).unwrap()
}

fn says(error: &Error, code: ErrorCode, reason: &str, words: &[&str]) {
    assert_eq!((error.code, error.reason.as_str()), (code, reason), "{error}");
    for words in words {
        assert!(error.message.contains(words), "{words:?} is missing: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn host_keys_are_verified() {
    let hypervisor = shared("hvcap").unwrap();
    let key = std::fs::read(&hypervisor.keys.ed25519).unwrap();
    let known = known_hosts(hypervisor);
    let port = hypervisor.ssh_port.to_string();
    let line = |kind: &str| known.lines().find(|line| line.contains(kind)).unwrap().to_owned();

    let error = refused(hypervisor, &key, &known.replace("127.0.0.1", "192.0.2.1")).await;
    says(
        &error,
        ErrorCode::InvalidConfig,
        "HostKeyUnknown",
        &[
            &format!("[127.0.0.1]:{port}"),
            "ssh-ed25519 key SHA256:",
            &format!("ssh-keyscan -p {port} -t ed25519 127.0.0.1"),
        ],
    );

    // Another machine's key of the same type.
    let strangers = std::fs::read_to_string(hypervisor.keys.stranger.with_extension("pub")).unwrap();
    let strangers = strangers.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
    let wrong = format!("[127.0.0.1]:{port} {strangers}\n");
    says(&refused(hypervisor, &key, &wrong).await, ErrorCode::InvalidConfig, "HostKeyMismatch", &["expects SHA256:"]);

    let revoked = format!("{known}@revoked * {}\n", line("ssh-ed25519").split_once(' ').unwrap().1);
    let only = format!("{}\n@revoked * {}\n", line("ssh-ed25519"), line("ssh-ed25519").split_once(' ').unwrap().1);
    for known in [revoked, only] {
        says(&refused(hypervisor, &key, &known).await, ErrorCode::InvalidConfig, "HostKeyMismatch", &["@revoked"]);
    }
    let authority = format!("@cert-authority * {}\n", strangers);
    says(
        &refused(hypervisor, &key, &authority).await,
        ErrorCode::InvalidConfig,
        "HostKeyUnknown",
        &["@cert-authority"],
    );

    // One type alone is asked for, whichever it is; hashed as ssh-keygen does it.
    for kind in ["ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"] {
        let bench = Bench::new(hypervisor, "types");
        put(bench.secrets.path(), &key, line(kind).as_bytes());
        let path = bench.secrets.path().join("kvm-ssh/known_hosts");
        std::process::Command::new("ssh-keygen").args(["-q", "-H", "-f"]).arg(&path).output().unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with("|1|"));
        bench.libvirt.info(HOST).await.unwrap_or_else(|error| panic!("{kind}: {error}"));
    }
    // A type that the server does not have.
    let absent =
        format!("[127.0.0.1]:{port} ecdsa-sha2-nistp384 {}\n", "AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlzdHAzODQ=");
    let error = refused(hypervisor, &key, &absent).await;
    says(&error, ErrorCode::InvalidConfig, "HostKeyUnknown", &["other types (ecdsa-sha2-nistp384)", "SHA256:"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_of_every_kind_let_in_and_others_do_not() {
    let hypervisor = shared("hvcap").unwrap();
    let keys = &hypervisor.keys;
    let known = known_hosts(hypervisor);
    for path in [&keys.ed25519, &keys.ecdsa, &keys.ecdsa_pem, &keys.rsa, &keys.rsa_pem] {
        for trimmed in [false, true] {
            let bench = Bench::new(hypervisor, "keys");
            let mut key = std::fs::read(path).unwrap();
            if trimmed {
                key = key.trim_ascii_end().to_vec();
            }
            put(bench.secrets.path(), &key, known.as_bytes());
            bench.libvirt.info(HOST).await.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
    let error = refused(hypervisor, &std::fs::read(&keys.stranger).unwrap(), &known).await;
    says(
        &error,
        ErrorCode::Unauthenticated,
        "AuthenticationFailed",
        &["ssh-privatekey", "kvm-ssh", "SHA256:", "\"operator\""],
    );
    let error = refused(hypervisor, &std::fs::read(&keys.encrypted).unwrap(), &known).await;
    says(&error, ErrorCode::InvalidConfig, "CredentialsInvalid", &["ssh-privatekey", "kvm-ssh", "passphrase"]);
    assert!(!error.to_string().contains(&keys.passphrase));
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_appear_and_change() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "secrets");
    let secret = bench.secrets.path().join("kvm-ssh");
    let aside = bench.secrets.path().join("aside");
    std::fs::rename(&secret, &aside).unwrap();
    let missing = bench.libvirt.info(HOST).await.unwrap_err();
    says(&missing, ErrorCode::Unauthenticated, "CredentialsMissing", &["kvm-ssh", "ssh-privatekey"]);
    let faults = bench.hypervisors.check_secrets(&bench.grant);
    assert_eq!((faults[0].host.as_str(), faults[0].error.reason.as_str()), (HOST, "CredentialsMissing"));
    // At once, though a failed dial is remembered.
    std::fs::rename(&aside, &secret).unwrap();
    bench.libvirt.info(HOST).await.unwrap();
    assert_eq!(bench.hypervisors.check_secrets(&bench.grant), []);

    // Another good key: the connection of the old one ends by itself.
    let (_, shared) = bench.libvirt.host(HOST).unwrap();
    assert!(shared.calls.is_up());
    let known = known_hosts(hypervisor);
    put(bench.secrets.path(), &std::fs::read(&hypervisor.keys.rsa).unwrap(), known.as_bytes());
    until("the connection ends", || !shared.calls.is_up()).await;
    bench.libvirt.info(HOST).await.unwrap();
    // A bad one: no call is made on what the good one has opened.
    put(bench.secrets.path(), &std::fs::read(&hypervisor.keys.stranger).unwrap(), known.as_bytes());
    until("the connection ends", || !shared.calls.is_up()).await;
    says(&bench.libvirt.info(HOST).await.unwrap_err(), ErrorCode::Unauthenticated, "AuthenticationFailed", &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_that_nobody_answers() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "nobody");
    let ask = async |address: &str| {
        let mut grant = bench.grant.clone();
        grant.hosts.values_mut().for_each(|host| host.address = address.to_owned());
        bench.hypervisors.granted(bench.identity.clone(), &grant).info(HOST).await.unwrap_err()
    };
    says(&ask("ssh://operator@127.0.0.1:1").await, ErrorCode::Unavailable, "HostUnreachable", &["127.0.0.1:1"]);
    says(&ask("ssh://operator@nowhere.invalid").await, ErrorCode::Unavailable, "HostUnreachable", &["nowhere.invalid"]);
    says(&ask("unix:///nowhere/sock").await, ErrorCode::Unavailable, "LibvirtUnavailable", &["/nowhere/sock"]);
    says(
        &ask("ssh://operator@h?no_verify=1").await,
        ErrorCode::InvalidConfig,
        "GrantInvalid",
        &["hosts.hv1", "no_verify"],
    );
    let other = bench.libvirt.info("hv9").await.unwrap_err();
    says(&other, ErrorCode::PermissionDenied, "GrantMissing", &["hv9", "spec.grants.libvirt.hosts"]);
    // Someone who accepts and says nothing.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let started = Instant::now();
    let mute = Bench::with(
        hypervisor,
        "mute",
        proxy_operator_capabilities::limits::Limits { dial: Duration::from_millis(700), ..super::support::quick() },
    );
    let mut grant = mute.grant.clone();
    let address = format!("ssh://operator@{}", listener.local_addr().unwrap());
    grant.hosts.values_mut().for_each(|host| host.address = address.clone());
    let error = mute.hypervisors.granted(mute.identity.clone(), &grant).info(HOST).await.unwrap_err();
    says(&error, ErrorCode::Unavailable, "HostUnreachable", &["sshd did not answer"]);
    assert!(started.elapsed() < Duration::from_secs(5));
    // And on this machine, without SSH.
    let mut grant = bench.grant.clone();
    let address = format!("unix://{}", hypervisor.libvirt_socket.display());
    grant.hosts.values_mut().for_each(|host| (host.address, host.secret) = (address.clone(), None));
    bench.hypervisors.granted(bench.identity.clone(), &grant).info(HOST).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forwards_no_sockets_runs_a_command() {
    let options = Options { streamlocal: false, ..Options::default() };
    let hypervisor =
        tokio::task::spawn_blocking(move || Hypervisor::up("hvcap-exec", &options)).await.unwrap().unwrap();
    let bench = Bench::new(&hypervisor, "exec");
    bench.libvirt.info(HOST).await.unwrap();
    let volume = format!("{}.seed", bench.name("o-1"));
    let content = proxy_operator_core::sensitive::Sensitive::new(vec![5; 3_000_000]);
    bench.libvirt.write_volume(HOST, "default", &volume, content).await.unwrap();
    bench.libvirt.delete_volume(HOST, "default", &volume).await.unwrap();
    // Nobody listens there: the command's own words say so.
    let mut grant = bench.grant.clone();
    grant.hosts.values_mut().for_each(|host| host.socket = Some("/nowhere/sock".to_owned()));
    let elsewhere = bench.hypervisors.granted(bench.identity.clone(), &grant);
    let error = elsewhere.info(HOST).await.unwrap_err();
    says(&error, ErrorCode::Unavailable, "LibvirtUnavailable", &["the command that bridges", "status"]);
    println!("{error}");
    tokio::task::spawn_blocking(|| drop(hypervisor)).await.unwrap();
}

/// Waits for what has no event.
pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within its time");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
