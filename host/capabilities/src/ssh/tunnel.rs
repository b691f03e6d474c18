//! A unix socket on this machine that ends at libvirt's socket on a hypervisor.
//!
//! libvirt's own client can speak SSH, by a process or by a library, but neither verifies host keys from memory, nor
//! can it be ended from outside. So the operator owns the SSH session, and libvirt sees an ordinary local socket. A
//! hypervisor that is this machine goes the same way, so that its connection can be cut as well.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use proxy_operator_core::error::{Error, Result};
use tempfile::TempDir;
use tokio::sync::watch;

use super::address::{Address, SshAddress};
use super::cutter::{Cutter, Stage};
use super::key::Credentials;
use super::relay;
use super::remote::Remote;
use super::session;
use crate::limits::Limits;

/// The longest path that a unix socket can be bound to on Linux, less a terminating zero.
const SOCKET_PATH_MAX_BYTES: usize = 107;

/// An open tunnel. It serves the first client of its socket, and ends with it. The socket is needed until that client
/// has connected: drop this then, and nothing is left on the disk by a process that is killed later.
#[derive(Debug)]
pub struct Tunnel {
    // Private (0700).
    _folder: TempDir,
    socket: PathBuf,
    ended: watch::Receiver<Option<String>>,
}

impl Tunnel {
    /// Opens a tunnel to a socket on the hypervisor at this address. Blocks; `cutter` ends it at every stage.
    pub fn open(
        address: &Address,
        socket: &str,
        credentials: Option<&Credentials>,
        limits: &Limits,
        cutter: &Arc<Cutter>,
    ) -> Result<Self> {
        let remote = match (address, credentials) {
            (Address::Local(path), _) => Remote::local(path)?,
            (Address::Ssh(ssh), Some(credentials)) => Self::remote(ssh, socket, credentials, limits, cutter)?,
            (Address::Ssh(ssh), None) => {
                return Err(Error::invalid_config("GrantInvalid", format!("{ssh}: names no Secret with a key")));
            }
        };
        cutter.enter(Stage::Libvirt);
        Self::serve(remote, cutter).map_err(|error| {
            Error::internal("TunnelFailed", format!("{address}: no socket for a tunnel can be made: {error}"))
        })
    }

    /// The socket of this side.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Why it ended; `None` while it is open.
    pub fn ended(&self) -> watch::Receiver<Option<String>> {
        self.ended.clone()
    }

    fn remote(
        address: &SshAddress,
        socket: &str,
        credentials: &Credentials,
        limits: &Limits,
        cutter: &Arc<Cutter>,
    ) -> Result<Remote> {
        let verified = session::open(address, credentials, limits, cutter)?;
        Remote::over_ssh(verified, address, socket)
    }

    fn serve(remote: Remote, cutter: &Arc<Cutter>) -> std::io::Result<Self> {
        let folder = private_folder()?;
        let socket = folder.path().join("libvirt");
        let listener = UnixListener::bind(&socket)?;
        let (sender, ended) = watch::channel(None);
        let cutter = Arc::clone(cutter);
        std::thread::Builder::new().name("tunnel".to_owned()).spawn(move || {
            let reason = relay::run(listener, remote, &cutter);
            cutter.cut();
            sender.send_replace(Some(reason));
        })?;
        Ok(Self { _folder: folder, socket, ended })
    }
}

/// A folder that nobody else can enter, with a path that is short enough for a socket in it.
fn private_folder() -> std::io::Result<TempDir> {
    let usual = std::env::temp_dir();
    let parent = if usual.as_os_str().len() + 40 > SOCKET_PATH_MAX_BYTES { PathBuf::from("/tmp") } else { usual };
    tempfile::Builder::new()
        .prefix("proxy-operator-")
        .permissions(std::fs::Permissions::from_mode(0o700))
        .tempdir_in(parent)
}
