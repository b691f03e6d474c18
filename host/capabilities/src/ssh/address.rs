//! Where a hypervisor is: `ssh://user@host[:port]` or `unix:///path`.

use std::fmt;
use std::path::PathBuf;

use percent_encoding::percent_decode_str;
use proxy_operator_core::error::{Error, Result};
use url::Url;

/// The port of sshd where an address names none.
pub const DEFAULT_PORT: u16 = 22;

/// A hypervisor's address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Another machine.
    Ssh(SshAddress),
    /// libvirt's socket on this machine.
    Local(PathBuf),
}

/// A user on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SshAddress {
    /// Who to be there.
    pub user: String,
    /// A name or an address, without brackets.
    pub host: String,
    /// The port of sshd.
    pub port: u16,
}

impl Address {
    /// Reads an address. What is not supported is an error, never ignored.
    pub fn parse(text: &str) -> Result<Self> {
        let fault = |what: &str| {
            Error::invalid_config(
                "GrantInvalid",
                format!(
                    "address {text:?} {what}; use ssh://user@host, ssh://user@host:port or unix:///path/of/libvirt-sock"
                ),
            )
        };
        let url = Url::parse(text).map_err(|error| fault(&format!("is not a URL ({error})")))?;
        if url.query().is_some() || url.fragment().is_some() {
            return Err(fault("has options, which are not supported (host keys are always verified)"));
        }
        match url.scheme() {
            "ssh" => {
                if url.password().is_some() {
                    // Not repeated: it holds the password.
                    return Err(Error::invalid_config(
                        "GrantInvalid",
                        "the address holds a password, which is not supported; use a key, in a Secret",
                    ));
                }
                if !matches!(url.path(), "" | "/") {
                    return Err(fault("has a path, which is not supported (the field socket names libvirt's socket)"));
                }
                let user = decode(url.username()).ok_or_else(|| fault("has a user that is not text"))?;
                let host = url.host_str().and_then(decode).ok_or_else(|| fault("names no host"))?;
                let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
                if user.is_empty() || user.contains(is_odd) {
                    return Err(fault("names no user, or one with odd characters"));
                }
                if host.is_empty() || host.starts_with('-') || host.contains(is_odd) {
                    return Err(fault("names no host, or one with odd characters"));
                }
                let port = url.port().unwrap_or(DEFAULT_PORT);
                if port == 0 {
                    return Err(fault("has the port 0"));
                }
                Ok(Self::Ssh(SshAddress { user, host, port }))
            }
            "unix" => {
                let path = decode(url.path()).ok_or_else(|| fault("has a path that is not text"))?;
                if url.has_host() && url.host_str() != Some("") || path.len() < 2 {
                    return Err(fault("is not a path"));
                }
                Ok(Self::Local(PathBuf::from(path)))
            }
            scheme => Err(fault(&format!("has the scheme {scheme}"))),
        }
    }
}

impl SshAddress {
    /// The host as known_hosts and ssh-keyscan write it: `host`, or `[host]:port` where the port is not 22.
    pub fn known_as(&self) -> String {
        if self.port == DEFAULT_PORT { self.host.clone() } else { format!("[{}]:{}", self.host, self.port) }
    }
}

fn decode(text: &str) -> Option<String> {
    percent_decode_str(text).decode_utf8().ok().map(|text| text.into_owned())
}

fn is_odd(c: char) -> bool {
    c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | '[' | ']' | '\'' | '"' | '\\')
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(address) => address.fmt(f),
            Self::Local(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

impl fmt::Display for SshAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "ssh://{}@{host}", self.user)?;
        if self.port == DEFAULT_PORT { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, shown, known) in [
            ("ssh://operator@192.0.2.10", "ssh://operator@192.0.2.10", "192.0.2.10"),
            ("ssh://operator@HV1.example:2222/", "ssh://operator@hv1.example:2222", "[hv1.example]:2222"),
            ("ssh://root@[2001:db8::1]", "ssh://root@[2001:db8::1]", "2001:db8::1"),
            ("ssh://a%2bb@h", "ssh://a+b@h", "h"),
        ] {
            let Address::Ssh(address) = Address::parse(text).unwrap() else { panic!("{text}") };
            assert_eq!((address.to_string().as_str(), address.known_as().as_str()), (shown, known));
        }
        assert_eq!(
            Address::parse("unix:///run/libvirt/libvirt-sock").unwrap(),
            Address::Local("/run/libvirt/libvirt-sock".into())
        );
    }

    #[test]
    fn what_is_not_supported_is_refused() {
        for text in [
            "operator@h",
            "ssh://h",
            "ssh://u@",
            "ssh://u@h/system",
            "ssh://u@h?no_verify=1",
            "ssh://u@h:0",
            "unix://",
            "unix:///",
            "unix://host/path",
            "qemu+ssh://u@h/system",
            "ssh://u@-oProxyCommand=x",
            "ssh://u%00@h",
            "",
        ] {
            assert_eq!(Address::parse(text).unwrap_err().reason, "GrantInvalid", "{text}");
        }
        let error = Address::parse("ssh://u:hunter2@h").unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
}
