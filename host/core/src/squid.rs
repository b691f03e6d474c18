//! The complete cloud-config that sets up squid, for a Proxy without a document of its own.
//!
//! It is written for Debian and Ubuntu. The whole `squid.conf` is ours, in place before the package is installed
//! (cloud-init installs with `--force-confold`), so that squid never runs with other rules than these.

use std::fmt::Write as _;

use ipnet::IpNet;

use crate::provider::{Access, Software};

/// Destinations that are no part of the public internet: this host, link-local (the clouds' metadata servers),
/// private, shared and reserved ranges (IANA special-purpose registries), and the NAT64 prefix, behind which all of
/// them can be reached again.
const CLOSED_DESTINATIONS: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/127",
    "64:ff9b::/96",
    "64:ff9b:1::/48",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
];

/// Whether an address lies in what the rendered proxy refuses unless it is allowed.
pub fn is_closed_destination(address: std::net::IpAddr) -> bool {
    CLOSED_DESTINATIONS.iter().filter_map(|net| net.parse::<IpNet>().ok()).any(|net| net.contains(&address))
}

/// Renders `squid.conf`.
pub fn configuration(software: &Software) -> String {
    let Software { name: _, port, access } = software;
    let Access { credentials, allow_from, open, private_destinations } = access;
    let mut text = String::from("# Rendered by proxy-operator; changes are lost with the machine.\n");
    let mut line = |args: std::fmt::Arguments<'_>| {
        // Writing to a String cannot fail.
        let _ = text.write_fmt(args);
        text.push('\n');
    };
    line(format_args!("http_port {port}"));
    line(format_args!("acl safe_ports port 80 443 1025-65535"));
    for net in CLOSED_DESTINATIONS {
        line(format_args!("acl closed_destinations dst {net}"));
    }
    for net in private_destinations {
        line(format_args!("acl opened_destinations dst {net}"));
    }
    for net in allow_from {
        line(format_args!("acl allowed_sources src {net}"));
    }
    if !credentials.is_empty() {
        line(format_args!("auth_param basic program /usr/lib/squid/basic_ncsa_auth {PASSWORD_FILE}"));
        line(format_args!("auth_param basic realm proxy"));
        line(format_args!("acl authenticated proxy_auth REQUIRED"));
    }
    line(format_args!("http_access deny manager"));
    // Who asks is settled before a name is resolved for anybody.
    match (*open, allow_from.is_empty(), credentials.is_empty()) {
        (true, ..) => {}
        (false, true, true) => line(format_args!("http_access deny all")),
        (false, false, true) => line(format_args!("http_access deny !allowed_sources")),
        (false, true, false) => line(format_args!("http_access deny !authenticated")),
        (false, false, false) => line(format_args!("http_access deny !allowed_sources !authenticated")),
    }
    line(format_args!("http_access deny !safe_ports"));
    if private_destinations.is_empty() {
        line(format_args!("http_access deny closed_destinations"));
    } else {
        line(format_args!("http_access deny closed_destinations !opened_destinations"));
    }
    line(format_args!("http_access allow all"));
    for directive in [
        "cache deny all",
        "via off",
        "forwarded_for delete",
        "httpd_suppress_version_string on",
        "visible_hostname proxy",
        "pinger_enable off",
        "shutdown_lifetime 1 second",
        "coredump_dir /var/spool/squid",
    ] {
        line(format_args!("{directive}"));
    }
    text
}

/// Where the rendered document keeps the users' password hashes.
pub const PASSWORD_FILE: &str = "/etc/squid/proxy-operator.passwd";

/// Renders the password file: a line a user.
pub fn password_file(access: &Access) -> String {
    access.credentials.iter().fold(String::new(), |mut text, credential| {
        let _ = writeln!(text, "{}:{}", credential.username, credential.password_hash.expose());
        text
    })
}

/// Renders the whole cloud-config.
pub fn cloud_config(software: &Software) -> Vec<u8> {
    let mut text = String::from("#cloud-config\npackage_update: true\npackages: [squid]\nwrite_files:\n");
    write_file(&mut text, "/etc/squid/squid.conf", "root:root", "0644", &configuration(software));
    if !software.access.credentials.is_empty() {
        write_file(&mut text, PASSWORD_FILE, "root:proxy", "0640", &password_file(&software.access));
    }
    text.push_str("runcmd:\n  - [systemctl, restart, squid]\n");
    text.into_bytes()
}

/// Adds an entry of `write_files`, its content as a literal block.
fn write_file(text: &mut String, path: &str, owner: &str, permissions: &str, content: &str) {
    let _ = writeln!(text, "  - path: {path}\n    owner: {owner}\n    permissions: \"{permissions}\"\n    content: |");
    for line in content.lines() {
        let _ = writeln!(text, "      {line}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::Credential;
    use crate::sensitive::Sensitive;

    fn software(access: Access) -> Software {
        Software { name: "squid".into(), port: 3128, access }
    }

    fn user() -> Credential {
        Credential { username: "u".into(), password_hash: Sensitive::new("$5$s$h".into()) }
    }

    #[test]
    fn without_anybody_allowed_everybody_is_refused() {
        let text = configuration(&software(Access::default()));
        let deny = text.find("http_access deny all\n").expect("refuses all");
        assert!(deny < text.find("http_access allow").expect("has an allow rule"));
    }

    #[test]
    fn who_asks_is_settled_before_where_to() {
        let access = Access { credentials: vec![user()], allow_from: vec!["192.0.2.0/24".into()], ..Access::default() };
        let text = configuration(&software(access));
        let who = text.find("http_access deny !allowed_sources !authenticated").expect("asks who");
        let to = text.find("http_access deny closed_destinations\n").expect("closes private destinations");
        assert!(who < to);
    }

    #[test]
    fn the_metadata_server_and_this_host_are_closed() {
        for address in ["169.254.169.254", "127.0.0.1", "::1", "::", "10.1.2.3", "fd00::1", "64:ff9b::a9fe:a9fe"] {
            assert!(is_closed_destination(address.parse().expect("an address")), "{address}");
        }
        for address in ["192.0.2.1", "8.8.8.8", "2001:db8::1"] {
            assert!(!is_closed_destination(address.parse().expect("an address")), "{address}");
        }
    }

    #[test]
    fn the_password_file_is_readable_by_squid_alone() {
        let text = cloud_config(&software(Access { credentials: vec![user()], ..Access::default() }));
        let text = String::from_utf8(text).expect("UTF-8");
        assert!(text.starts_with("#cloud-config\n"));
        assert!(
            text.contains("owner: root:proxy\n    permissions: \"0640\"\n    content: |\n      u:$5$s$h\n"),
            "{text}"
        );
    }
}
