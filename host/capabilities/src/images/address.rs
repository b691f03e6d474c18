//! Which addresses a download may go to.
//!
//! | the host is | allowed |
//! | --- | --- |
//! | granted as an IP address | that address, whatever it is |
//! | granted by name | wherever the name leads, but not link-local, multicast, unspecified or a cloud's metadata server |
//! | redirected to, and not granted | public addresses alone |
//!
//! An administrator who grants `http://packages.internal/` or `http://192.0.2.1:8080/` means a machine of his own
//! network; a server out there that answers with a redirect must not be able to choose one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why a host may be asked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// A granted URL prefix names it, as an address or by name.
    Granted,
    /// A redirect names it, for an image whose digest is pinned.
    Redirected,
}

/// Whether a host that was found at this address may be asked there. `literal`: its URL holds the address itself.
pub fn is_allowed(address: IpAddr, standing: Standing, literal: bool) -> bool {
    match standing {
        Standing::Granted => literal || !is_never(address),
        Standing::Redirected => is_public(address),
    }
}

/// Addresses that no name may lead to.
fn is_never(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_multicast() || v4.is_unspecified() || v4.is_broadcast(),
        IpAddr::V6(v6) => {
            v6.is_unicast_link_local()
                || v6.is_multicast()
                || v6.is_unspecified()
                || METADATA_V6.contains(&v6)
                || embedded(v6).is_some_and(|v4| is_never(IpAddr::V4(v4)))
        }
    }
}

/// The metadata servers of clouds that have an IPv6 address which is not link-local.
const METADATA_V6: [Ipv6Addr; 2] =
    [Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)];

/// Whether an address is one of the public Internet.
fn is_public(address: IpAddr) -> bool {
    match canonical(address) {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => match embedded(v6) {
            Some(v4) => is_public_v4(v4),
            None => is_public_v6(v6),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let shared = a == 100 && (64..128).contains(&b);
    let benchmark = a == 198 && (18..20).contains(&b);
    let protocols = (a, b, c) == (192, 0, 0);
    let relay = (a, b, c) == (192, 88, 99);
    !(a == 0
        || a >= 224
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || shared
        || benchmark
        || protocols
        || relay)
}

/// Global unicast without what is set apart in it: Teredo and 6to4 lead to other addresses, documentation nowhere.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let set_apart = (a == 0x2001 && (b < 0x200 || b == 0xdb8)) || a == 0x2002 || (a == 0x3fff && b < 0x1000);
    (0x2000..0x4000).contains(&a) && !set_apart
}

/// The IPv4 address that an IPv6 address of a translator (NAT64) leads to.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = address.segments();
    ([a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0]).then(|| {
        let [first, second] = g.to_be_bytes();
        let [third, fourth] = h.to_be_bytes();
        Ipv4Addr::new(first, second, third, fourth)
    })
}

/// An IPv4 address in IPv6 clothes without them.
fn canonical(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) if v6.is_loopback() => address,
        IpAddr::V6(v6) => match (v6.to_ipv4_mapped(), v6.segments()) {
            (Some(v4), _) => IpAddr::V4(v4),
            // The old, "compatible" form.
            (None, [0, 0, 0, 0, 0, 0, _, _]) if !v6.is_unspecified() => v6.to_ipv4().map_or(address, IpAddr::V4),
            _ => address,
        },
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_redirect_leads_to_public_addresses_alone() {
        for public in ["1.1.1.1", "193.0.6.139", "2606:4700::1111", "2a00::1", "64:ff9b::101:101", "::ffff:1.1.1.1"] {
            assert!(is_allowed(ip(public), Standing::Redirected, false), "{public}");
        }
        for private in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "192.168.1.1",
            "192.0.0.1",
            "192.0.2.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "64:ff9b::a00:1",
            "fe80::1",
            "fc00::1",
            "fd00:ec2::254",
            "ff02::1",
            "2001:db8::1",
            "2001::1",
            "2002:a00:1::",
            "3fff::1",
            "100::1",
        ] {
            assert!(!is_allowed(ip(private), Standing::Redirected, false), "{private}");
            assert!(!is_allowed(ip(private), Standing::Redirected, true), "{private}");
        }
    }

    #[test]
    fn a_granted_name_leads_anywhere_but_to_metadata() {
        for allowed in ["127.0.0.1", "::1", "10.0.0.1", "192.168.177.1", "fd00::1", "1.1.1.1"] {
            assert!(is_allowed(ip(allowed), Standing::Granted, false), "{allowed}");
        }
        for never in [
            "169.254.169.254",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "fe80::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "0.0.0.0",
            "::",
            "224.0.0.1",
            "255.255.255.255",
        ] {
            assert!(!is_allowed(ip(never), Standing::Granted, false), "{never}");
            assert!(is_allowed(ip(never), Standing::Granted, true), "{never}: granted as such");
        }
    }
}
