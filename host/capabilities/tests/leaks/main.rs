//! Connections that end leave nothing behind: no file descriptor, no thread, no folder. In a process of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, clippy::print_stdout)]

#[allow(dead_code)]
#[path = "../hypervisor/support.rs"]
mod support;

use std::time::{Duration, Instant};

use proxy_operator_core::capability::libvirt::Libvirt;
use proxy_operator_harness::{Daemon, Hypervisor, Options};

use support::{Bench, HOST};

fn entries(path: &str) -> usize {
    std::fs::read_dir(path).unwrap().count()
}

fn resident_kib() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_end_leave_nothing() {
    let temporary = std::env::temp_dir();
    let folders = || {
        let entries = std::fs::read_dir(&temporary).unwrap().map(|entry| entry.unwrap().file_name());
        entries
            .filter(|name| name.to_string_lossy().starts_with("proxy-operator-"))
            .collect::<std::collections::BTreeSet<_>>()
    };
    let before = folders();
    let hypervisor =
        tokio::task::spawn_blocking(|| Hypervisor::up("hvcap-leak", &Options::default())).await.unwrap().unwrap();
    let bench = Bench::new(&hypervisor, "leaks");
    let open = async || {
        bench.libvirt.info(HOST).await.unwrap();
        let (_, shared) = bench.libvirt.host(HOST).unwrap();
        bench.libvirt.list_volumes(HOST, None).await.unwrap();
        shared
    };
    let close = async || {
        let (_, shared) = bench.libvirt.host(HOST).unwrap();
        let known = std::fs::read(&hypervisor.known_hosts).unwrap();
        let key = std::fs::read(bench.secrets.path().join("kvm-ssh/ssh-privatekey")).unwrap();
        let other = if key == std::fs::read(&hypervisor.keys.rsa).unwrap() {
            &hypervisor.keys.ed25519
        } else {
            &hypervisor.keys.rsa
        };
        support::put(bench.secrets.path(), &std::fs::read(other).unwrap(), &known);
        let end = Instant::now() + Duration::from_secs(20);
        while shared.calls.is_up() {
            assert!(Instant::now() < end);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    for _ in 0..5 {
        open().await;
        close().await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let (files, threads, memory) = (entries("/proc/self/fd"), entries("/proc/self/task"), resident_kib());
    for _ in 0..40 {
        open().await;
        close().await;
    }
    // And with an sshd that has died, which is not said good-bye to.
    for _ in 0..3 {
        open().await;
        hypervisor.kill(Daemon::Sshd).unwrap();
        hypervisor.start(Daemon::Sshd).unwrap();
        close().await;
    }
    let end = Instant::now() + Duration::from_secs(10);
    while entries("/proc/self/fd") > files || entries("/proc/self/task") > threads + 2 {
        assert!(
            Instant::now() < end,
            "files {files} -> {}, threads {threads} -> {}",
            entries("/proc/self/fd"),
            entries("/proc/self/task")
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("resident: {memory} KiB -> {} KiB", resident_kib());
    assert!(resident_kib() < memory + 8_192, "{memory} KiB -> {} KiB", resident_kib());
    bench.libvirt.info(HOST).await.unwrap();
    let left: Vec<_> = folders().difference(&before).cloned().collect();
    assert!(left.is_empty(), "while connected: {left:?}");
    drop(bench);
    tokio::task::spawn_blocking(|| drop(hypervisor)).await.unwrap();
}
