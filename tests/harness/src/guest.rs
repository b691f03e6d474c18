use std::net::Ipv4Addr;
use std::path::PathBuf;

use anyhow::Result;

use crate::hypervisor::Hypervisor;
use crate::script::{Vars, output, script};

/// What the squid of a fake guest does.
#[derive(Clone, Debug, Default)]
pub enum Proxying {
    /// Lets everybody in.
    #[default]
    Open,
    /// Asks for a password of this file, in the form that `basic_ncsa_auth` reads.
    Passwords(PathBuf),
    /// Follows this `squid.conf`.
    Config(PathBuf),
}

/// A running squid with a domain's MAC address and a lease, in place of a booted guest. It has no guest agent. It ends
/// when this is dropped, and with the hypervisor.
#[derive(Debug)]
pub struct FakeGuest {
    /// Its address, by DHCP.
    pub address: Ipv4Addr,
    /// Where squid listens.
    pub port: u16,
    hypervisor: String,
    domain: String,
}

impl FakeGuest {
    /// Stands in for a domain that is defined.
    pub fn up(hypervisor: &Hypervisor, domain: &str, proxying: &Proxying) -> Result<Self> {
        let mut command = script("hypervisor/fake-guest.sh");
        command.args(["up", &hypervisor.name, domain]);
        match proxying {
            Proxying::Open => {}
            Proxying::Passwords(file) => drop(command.env("PASSWD", file)),
            Proxying::Config(file) => drop(command.env("SQUID_CONF", file)),
        }
        let vars = Vars::parse(&output(&mut command)?);
        Ok(Self {
            address: vars.get("ADDRESS")?,
            port: vars.get("PORT")?,
            hypervisor: hypervisor.name.clone(),
            domain: domain.to_owned(),
        })
    }
}

impl Drop for FakeGuest {
    fn drop(&mut self) {
        let _ = output(script("hypervisor/fake-guest.sh").args(["down", &self.hypervisor, &self.domain]));
    }
}

/// The Debian guest that tests boot, from the cache.
#[derive(Clone, Debug)]
pub struct GuestImage {
    /// The disk, qcow2.
    pub disk: PathBuf,
    /// Its SHA-256, hexadecimal.
    pub sha256: String,
    /// Its SHA-512, hexadecimal.
    pub sha512: String,
    /// The packages that its guests install, for [`Hypervisor::services`].
    pub repository: PathBuf,
}

impl GuestImage {
    /// Finds it, or builds it within minutes.
    pub fn ensure() -> Result<Self> {
        let printed = output(&mut script("guest-image/build.sh"))?;
        let folder = PathBuf::from(printed.trim_end());
        let digest = |kind: &str| -> Result<String> {
            let text = std::fs::read_to_string(folder.join(format!("base.qcow2.{kind}")))?;
            Ok(text.split_whitespace().next().unwrap_or_default().to_owned())
        };
        Ok(Self {
            disk: folder.join("base.qcow2"),
            sha256: digest("sha256")?,
            sha512: digest("sha512")?,
            repository: folder.join("repo"),
        })
    }
}
