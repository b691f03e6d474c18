//! Opens connections to one hypervisor: SSH, tunnel, libvirt.

use std::sync::Arc;

use proxy_operator_core::error::{Error, Result};
use tokio::sync::watch;
use uuid::Uuid;

use super::facts::HostFacts;
use super::seam::Seam;
use super::virt::Virt;
use crate::limits::Limits;
use crate::secrets::{ContentDigest, SecretStore};
use crate::ssh::address::Address;
use crate::ssh::cutter::Cutter;
use crate::ssh::key::Credentials;
use crate::ssh::tunnel::Tunnel;

/// An open connection, and what ends with it.
pub struct Dialled {
    /// libvirt's calls.
    pub seam: Box<dyn Seam>,
    /// What the hypervisor says of itself.
    pub facts: HostFacts,
    /// The uuids of its storage pools.
    pub pools: Vec<Uuid>,
    /// Of the Secret it was opened with.
    pub digest: Option<ContentDigest>,
    /// Why the tunnel ended; `None` where there is none.
    pub ended: Option<watch::Receiver<Option<String>>>,
}

/// Opens connections to one hypervisor.
pub trait Dial: Send + Sync {
    /// Where it is, for people.
    fn address(&self) -> String;
    /// Of the Secret as it is now.
    fn digest(&self) -> Option<ContentDigest>;
    /// Opens a connection. Blocks; `cutter` ends it at every stage.
    fn dial(&self, cutter: &Arc<Cutter>) -> Result<Dialled>;
}

/// Opens connections through a tunnel.
pub struct TunnelDial {
    /// Where the hypervisor is.
    pub address: Address,
    /// The Secret with key and known hosts.
    pub secret: Option<String>,
    /// libvirt's socket there.
    pub socket: String,
    /// Where the Secret is read.
    pub secrets: SecretStore,
    /// How long each step may take.
    pub limits: Arc<Limits>,
}

/// Opens connections by a URI of libvirt, without a tunnel: for drivers within this process, `test:///default`.
pub struct UriDial {
    /// The URI.
    pub uri: String,
}

impl Dial for TunnelDial {
    fn address(&self) -> String {
        self.address.to_string()
    }

    fn digest(&self) -> Option<ContentDigest> {
        self.secret.as_ref().map(|secret| Credentials::digest(&self.secrets, secret))
    }

    fn dial(&self, cutter: &Arc<Cutter>) -> Result<Dialled> {
        let credentials = self.secret.as_ref().map(|secret| Credentials::read(&self.secrets, secret)).transpose()?;
        let digest = credentials.as_ref().map(|credentials| credentials.digest);
        let tunnel = Tunnel::open(&self.address, &self.socket, credentials.as_ref(), &self.limits, cutter)?;
        let uri = format!("qemu+unix:///system?socket={}", escaped(&tunnel.socket().to_string_lossy()));
        let address = self.address();
        let opened = open(&uri, &address);
        match opened {
            Ok((seam, facts, pools)) => {
                Ok(Dialled { seam: Box::new(seam), facts, pools, digest, ended: Some(tunnel.ended()) })
            }
            // What the other side said of its end explains more than "end of file".
            Err(error) => Err(match epitaph(&tunnel) {
                Some(why) => Error { message: format!("{address}: libvirt cannot be reached: {why}"), ..error },
                None => error,
            }),
        }
    }
}

impl Dial for UriDial {
    fn address(&self) -> String {
        self.uri.clone()
    }

    fn digest(&self) -> Option<ContentDigest> {
        None
    }

    fn dial(&self, _cutter: &Arc<Cutter>) -> Result<Dialled> {
        let (seam, facts, pools) = open(&self.uri, &self.uri)?;
        Ok(Dialled { seam: Box::new(seam), facts, pools, digest: None, ended: None })
    }
}

/// Opens libvirt, and asks it who it is: a hypervisor that has become another must not answer as if nothing were.
fn open(uri: &str, address: &str) -> Result<(Virt, HostFacts, Vec<Uuid>)> {
    let seam = Virt::open(uri).map_err(|failure| failure.into_error(address))?;
    let capabilities = seam.capabilities().map_err(|failure| failure.into_error(address))?;
    let facts = HostFacts::read(&capabilities).ok_or_else(|| {
        Error::unavailable("LibvirtFailed", format!("{address}: libvirt's capabilities cannot be read"))
    })?;
    let pools = seam.pool_uuids().map_err(|failure| failure.into_error(address))?;
    Ok((seam, facts, pools))
}

/// Why a tunnel has ended, given the moment that its thread needs to say so.
fn epitaph(tunnel: &Tunnel) -> Option<String> {
    let ended = tunnel.ended();
    for _ in 0..20 {
        if let Some(why) = ended.borrow().clone() {
            return Some(why);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    None
}

/// A path as the value of a parameter in a URI.
fn escaped(path: &str) -> String {
    percent_encoding::utf8_percent_encode(path, percent_encoding::NON_ALPHANUMERIC).to_string()
}
