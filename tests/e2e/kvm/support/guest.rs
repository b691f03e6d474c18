//! Machines that are on without having booted, and requests through the proxies in them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use base64::Engine as _;
use proxy_operator_harness::{FakeGuest, Proxying};

use super::folder::Folder;
use super::ground::Ground;

/// A machine runs, and nobody knows its address.
pub(crate) const ON: &[&str] = &["Booting", "WaitingForAddress"];

/// Waits until the machine of a Proxy of the namespace `default` is on.
pub(crate) fn until_on(folder: &Folder, name: &str) {
    folder.until(&format!("{name} is on"), 90, || folder.is_provisioned_as(name, ON));
}

/// Puts a fake guest into the machine of a Proxy, and waits until it is Ready.
pub(crate) fn bring_up(folder: &Folder, ground: &Ground, provider: &str, name: &str) -> FakeGuest {
    until_on(folder, name);
    let guest = stand_in(folder, ground, provider, name);
    folder.until(&format!("{name} is Ready"), 90, || folder.is_ready(name));
    guest
}

/// Puts a fake guest with an open squid into the machine of a Proxy.
pub(crate) fn stand_in(folder: &Folder, ground: &Ground, provider: &str, name: &str) -> FakeGuest {
    FakeGuest::up(ground.hypervisor, &folder.domain(provider, "default", name), &Proxying::Open).unwrap()
}

/// The status of a GET through a proxy: `http://[user:password@]host:port`.
pub(crate) fn status_through(proxy: &str, target: &str) -> u16 {
    let rest = proxy.strip_prefix("http://").unwrap();
    let (credentials, address) = rest.rsplit_once('@').map_or((None, rest), |(user, address)| (Some(user), address));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let authorization = credentials.map_or_else(String::new, |credentials| {
        format!("Proxy-Authorization: Basic {}\r\n", base64::engine::general_purpose::STANDARD.encode(credentials))
    });
    write!(stream, "GET {target} HTTP/1.1\r\nHost: target\r\n{authorization}Connection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status line")
}
