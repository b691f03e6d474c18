//! What breaks, and heals by itself.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy_operator_capabilities::limits::Limits;
use proxy_operator_core::capability::libvirt::Libvirt;
use proxy_operator_core::error::ErrorCode;
use proxy_operator_harness::{Daemon, Hypervisor, Options, shared};

use super::ssh::until;
use super::support::{Bench, HOST, calls, quick};

/// A hypervisor that a test may break.
async fn own(name: &'static str) -> Hypervisor {
    tokio::task::spawn_blocking(move || Hypervisor::up(name, &Options::default())).await.unwrap().unwrap()
}

async fn gone(hypervisor: Hypervisor) {
    tokio::task::spawn_blocking(|| drop(hypervisor)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_frozen_libvirtd_harms_nobody_else_and_heals() {
    let (frozen, well) = (own("hvcap-ice").await, shared("hvcap").unwrap());
    let limits = || Limits { read_call: Duration::from_secs(1), threads: 2, dial: Duration::from_secs(2), ..quick() };
    let (ill, well) = (Bench::with(&frozen, "ill", limits()), Bench::with(well, "well", limits()));
    until_ok(&ill).await;
    until_ok(&well).await;
    frozen.freeze(Daemon::Libvirtd).unwrap();
    let started = Instant::now();
    let late = ill.libvirt.list_domains(HOST).await.unwrap_err();
    assert_eq!(late.code, ErrorCode::DeadlineExceeded, "{late}");
    assert!(started.elapsed() < Duration::from_millis(1_500), "{:?}", started.elapsed());
    // More than there are threads: each has its answer in time, and the other hypervisor its own at once.
    let callers: Vec<_> = (0..12)
        .map(|_| {
            let libvirt = Arc::clone(&ill.libvirt);
            tokio::spawn(async move { libvirt.list_domains(HOST).await.unwrap_err() })
        })
        .collect();
    for _ in 0..20 {
        let started = Instant::now();
        well.libvirt.list_domains(HOST).await.unwrap();
        assert!(started.elapsed() < Duration::from_millis(500), "{:?}", started.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for caller in callers {
        let error = caller.await.unwrap();
        assert!(matches!(error.code, ErrorCode::DeadlineExceeded | ErrorCode::Unavailable), "{error}");
    }
    // The connection is given up, by keepalive or because its threads are used up; a dial does not get through.
    let (_, shared) = ill.libvirt.host(HOST).unwrap();
    until("the connection is given up", || !shared.calls.is_up()).await;
    let refused = ill.libvirt.list_domains(HOST).await.unwrap_err();
    assert!(matches!(refused.code, ErrorCode::DeadlineExceeded | ErrorCode::Unavailable), "{refused}");
    frozen.thaw(Daemon::Libvirtd).unwrap();
    let healed = Instant::now();
    while let Err(error) = ill.libvirt.list_domains(HOST).await {
        assert!(healed.elapsed() < Duration::from_secs(15), "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("healed after {:?}", healed.elapsed());
    drop(ill);
    gone(frozen).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keepalive_notices_a_host_that_hangs() {
    let hypervisor = own("hvcap-ka").await;
    let bench = Bench::new(&hypervisor, "ka");
    bench.libvirt.info(HOST).await.unwrap();
    let (_, shared) = bench.libvirt.host(HOST).unwrap();
    hypervisor.freeze(Daemon::Libvirtd).unwrap();
    // Nobody calls: it is noticed all the same.
    until("the connection is given up", || !shared.calls.is_up()).await;
    hypervisor.thaw(Daemon::Libvirtd).unwrap();
    bench.libvirt.info(HOST).await.unwrap();
    gone(hypervisor).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_breaks_is_opened_again_within_the_call() {
    let hypervisor = own("hvcap-cut").await;
    let bench = Bench::new(&hypervisor, "cut");
    let libvirt = &bench.libvirt;
    libvirt.define_domain(HOST, &bench.spec("o-1")).await.unwrap();
    let restarts: [&dyn Fn() -> anyhow::Result<()>; 2] =
        [&|| hypervisor.restart(Daemon::Libvirtd), &|| hypervisor.restart(Daemon::Sshd)];
    for restart in restarts {
        restart().unwrap();
        assert_eq!(libvirt.list_domains(HOST).await.unwrap().len(), 1);
        let started = bench.libvirt.lookup_domain(HOST, &bench.name("o-1")).await.unwrap();
        assert!(started.is_some());
    }
    // In the middle of calls: none fails.
    let callers: Vec<_> = (0..4)
        .map(|_| {
            let (libvirt, name) = (Arc::clone(libvirt), bench.name("o-1"));
            tokio::spawn(async move {
                for _ in 0..60 {
                    libvirt.lookup_domain(HOST, &name).await.unwrap().unwrap();
                }
            })
        })
        .collect();
    hypervisor.restart(Daemon::Sshd).unwrap();
    let mut failed = 0;
    for caller in callers {
        failed += usize::from(caller.await.is_err());
    }
    // While sshd is down a dial is refused, which the call says.
    println!("{failed} of 4 callers met a refused dial");
    hypervisor.kill(Daemon::Libvirtd).unwrap();
    let down = libvirt.list_domains(HOST).await.unwrap_err();
    assert_eq!((down.code, down.reason.as_str()), (ErrorCode::Unavailable, "LibvirtUnavailable"), "{down}");
    println!("{down}");
    hypervisor.start(Daemon::Libvirtd).unwrap();
    until_ok(&bench).await;
    hypervisor.stop(Daemon::Sshd).unwrap();
    let (_, shared) = libvirt.host(HOST).unwrap();
    until("the drop is noticed", || !shared.calls.is_up()).await;
    let down = libvirt.list_domains(HOST).await.unwrap_err();
    assert_eq!((down.code, down.reason.as_str()), (ErrorCode::Unavailable, "HostUnreachable"), "{down}");
    hypervisor.start(Daemon::Sshd).unwrap();
    until_ok(&bench).await;
    libvirt.undefine_domain(HOST, &bench.name("o-1")).await.unwrap();
    gone(hypervisor).await;
}

async fn until_ok(bench: &Bench) {
    let started = Instant::now();
    while let Err(error) = bench.libvirt.list_domains(HOST).await {
        assert!(error.code.is_transient() && started.elapsed() < Duration::from_secs(10), "{error}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_fleet_shares_one_connection_and_one_refusal() {
    let hypervisor = own("hvcap-many").await;
    let bench = Bench::with(
        &hypervisor,
        "many",
        Limits { backoff_first: Duration::from_secs(4), backoff_most: Duration::from_secs(4), ..quick() },
    );
    let logins =
        || std::fs::read_to_string(hypervisor.logs.join("sshd.log")).unwrap().matches("Accepted publickey").count();
    let fleet = async || {
        let callers: Vec<_> = (0..100)
            .map(|_| {
                let libvirt = Arc::clone(&bench.libvirt);
                tokio::spawn(async move { libvirt.list_domains(HOST).await })
            })
            .collect();
        let mut outcomes = Vec::new();
        for caller in callers {
            outcomes.push(caller.await.unwrap());
        }
        outcomes
    };
    assert!(fleet().await.iter().all(Result::is_ok));
    assert_eq!(logins(), 1);
    hypervisor.stop(Daemon::Sshd).unwrap();
    let (_, shared) = bench.libvirt.host(HOST).unwrap();
    until("the drop is noticed", || !shared.calls.is_up()).await;
    let start = calls().count();
    let outcomes = fleet().await;
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(|error| error.reason == "HostUnreachable")));
    assert!(
        outcomes.iter().filter(|outcome| outcome.as_ref().is_err_and(|error| error.retry_after.is_some())).count()
            >= 90
    );
    let address = &hypervisor.ssh_address;
    let dials = calls().since(start).into_iter().filter(|line| {
        line.0.get("message").is_some_and(|message| message.contains("dial failed"))
            && line.0.get("address").is_some_and(|at| at == address)
    });
    assert_eq!(dials.count(), 1);
    hypervisor.start(Daemon::Sshd).unwrap();
    gone(hypervisor).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_that_ends_fails_closed() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "revoked");
    bench.libvirt.info(HOST).await.unwrap();
    // Under way: the first call has been made, the second is not.
    let (host, shared) = bench.libvirt.host(HOST).unwrap();
    let call = bench.libvirt.terms(host, Duration::from_secs(10));
    let (reached, mut wait) = tokio::sync::mpsc::unbounded_channel();
    let (go, resume) = std::sync::mpsc::channel::<()>();
    let resume = std::sync::Mutex::new(resume);
    let line = Arc::clone(&shared.calls);
    let under_way = tokio::spawn(async move {
        line.call(&call, move |session| {
            session.seam.cpus()?;
            reached.send(()).unwrap();
            resume.lock().unwrap().recv().unwrap();
            session.seam.cpus()
        })
        .await
    });
    wait.recv().await.unwrap();
    bench.libvirt.revoke();
    go.send(()).unwrap();
    let stopped = under_way.await.unwrap().unwrap_err().into_error(HOST);
    assert_eq!((stopped.code, stopped.reason.as_str()), (ErrorCode::PermissionDenied, "GrantMissing"), "{stopped}");
    assert_eq!(bench.libvirt.list_domains(HOST).await.unwrap_err().code, ErrorCode::PermissionDenied);
    // A new grant goes on with the same connection.
    let again = bench.hypervisors.granted(bench.identity.clone(), &bench.grant);
    assert!(again.host(HOST).unwrap().1.calls.is_up());
    again.info(HOST).await.unwrap();
    bench.hypervisors.close();
    assert_eq!(again.info(HOST).await.unwrap_err().code, ErrorCode::Unavailable);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_one_line_of_the_log() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "lines");
    let mut grant = bench.grant.clone();
    let host = grant.hosts.remove(HOST).unwrap();
    grant.hosts.insert("logged".to_owned(), host);
    let libvirt = bench.hypervisors.granted(bench.identity.clone(), &grant);
    let start = calls().count();
    let name = bench.name("o-1");
    assert_eq!(libvirt.lookup_domain("logged", &name).await.unwrap(), None);
    let lines: Vec<_> = calls()
        .since(start)
        .into_iter()
        .filter(|line| line.0.get("host").is_some_and(|host| host == "logged"))
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    let line = &lines[0].0;
    for (field, value) in [
        ("rpc", "virDomainLookupByName"),
        ("domain", &name),
        ("libvirtError", "VIR_ERR_NO_DOMAIN"),
        ("libvirtCode", "42"),
    ] {
        assert_eq!(line.get(field).map(String::as_str), Some(value), "{line:?}");
    }
    assert!(line.contains_key("duration_ms") && line.contains_key("error"));
}
