//! The harness on real parts. Needs root and the packages of `tests/setup/packages.sh`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use proxy_operator_harness::{Daemon, FakeGuest, Hypervisor, Options, Proxying, shared};

/// The head and body of the answer to a GET through a proxy.
fn get(proxy: SocketAddr, url: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect_timeout(&proxy, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {url} HTTP/1.1\r\nHost: target\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

#[test]
fn a_request_leaves_through_a_fake_guest() {
    let hypervisor = shared("harness").unwrap();
    assert!(std::ptr::eq(hypervisor, shared("harness").unwrap()));
    let services = hypervisor.services(None).unwrap();
    hypervisor.start_empty_domain("crawl", "52:54:00:00:00:01").unwrap();

    let guest = FakeGuest::up(hypervisor, "crawl", &Proxying::Open).unwrap();
    let proxy = SocketAddr::from((guest.address, guest.port));
    assert!(get(proxy, &services.target).unwrap().starts_with("HTTP/1.1 204"));
    assert!(get(proxy, &services.echo).unwrap().ends_with(&guest.address.to_string()));
    let leases = hypervisor.virsh(&["domifaddr", "crawl", "--source", "lease"]).unwrap();
    assert!(leases.contains(&guest.address.to_string()), "{leases}");

    drop(guest);
    assert!(TcpStream::connect_timeout(&proxy, Duration::from_secs(1)).is_err());
}

#[test]
fn daemons_end_freeze_and_come_back_and_nothing_is_left() {
    let options = Options { streamlocal: false, ..Options::default() };
    let hypervisor = Hypervisor::up("harness2", &options).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", hypervisor.ssh_port)).is_ok());

    hypervisor.kill(Daemon::Libvirtd).unwrap();
    assert!(hypervisor.virsh(&["list"]).is_err());
    hypervisor.start(Daemon::Libvirtd).unwrap();
    hypervisor.virsh(&["list"]).unwrap();

    hypervisor.stop(Daemon::Sshd).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", hypervisor.ssh_port)).is_err());
    hypervisor.restart(Daemon::Sshd).unwrap();
    assert!(TcpStream::connect(("127.0.0.1", hypervisor.ssh_port)).is_ok());

    // One that hangs goes down all the same.
    hypervisor.freeze(Daemon::Libvirtd).unwrap();
    let (bridge, session) = (hypervisor.bridge.clone(), hypervisor.session_pid());
    let begun = Instant::now();
    drop(hypervisor);
    assert!(begun.elapsed() < Duration::from_secs(20));
    assert!(!std::path::Path::new("/sys/class/net").join(bridge).exists());
    assert!(!std::path::Path::new("/proc").join(session.to_string()).exists());
}
