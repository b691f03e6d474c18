//! The far end of a tunnel: libvirt's socket on this machine, or a channel of an SSH session to it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use proxy_operator_core::error::{Error, Result};
use rustix::event::PollFlags;
use ssh2::{BlockDirections, Channel, ErrorCode as Ssh2Code, Session};

use super::address::SshAddress;
use super::session::Verified;
use crate::limits::STDERR_MAX_BYTES;

/// libssh2's word for "the server refused to open this channel".
const CHANNEL_FAILURE: i32 = -21;

/// Where libvirt's socket is unless a grant says otherwise.
pub(crate) const DEFAULT_SOCKET: &str = "/run/libvirt/libvirt-sock";

/// A stream to libvirt, non-blocking once it is opened.
pub(super) enum Remote {
    /// On this machine.
    Local(UnixStream),
    /// On another one.
    Ssh(Box<SshStream>),
}

/// A channel that ends at libvirt's socket.
pub(super) struct SshStream {
    // Declared first: a channel is freed before its session.
    channel: Channel,
    session: Session,
    tcp: TcpStream,
    /// The channel runs a command, whose end and standard error say more than an end of file.
    command: bool,
    stderr: Vec<u8>,
}

impl Remote {
    /// Connects to a socket of this machine.
    pub(super) fn local(path: &Path) -> Result<Self> {
        let opened = UnixStream::connect(path).and_then(|stream| stream.set_nonblocking(true).map(|()| stream));
        opened.map(Self::Local).map_err(|error| {
            Error::unavailable(
                "LibvirtUnavailable",
                format!(
                    "libvirt's socket {} cannot be used: {error}; is libvirtd running, and may this user open it?",
                    path.display()
                ),
            )
        })
    }

    /// Connects to a socket behind an SSH session.
    ///
    /// `direct-streamlocal` needs nothing on the other side but sshd. A server that forbids it (`AllowStreamLocalForwarding
    /// no`) says the same as one on which nobody listens, so that a command is tried next: `virt-ssh-helper`, which comes
    /// with libvirt, finds the socket by itself; `nc` and `socat` are told it. What that command says when it fails is
    /// the best explanation there is.
    pub(super) fn over_ssh(verified: Verified, address: &SshAddress, socket: &str) -> Result<Self> {
        let Verified { session, tcp } = verified;
        let refused = |what: &str, error: &ssh2::Error| {
            let number = if let Ssh2Code::Session(number) = error.code() { Some(number) } else { None };
            Error::unavailable("LibvirtUnavailable", format!("{address}: {what}: {}", error.message()))
                .with_backend("libssh2", number)
        };
        let (channel, command) = match session.channel_direct_streamlocal(socket, None) {
            Ok(channel) => (channel, false),
            Err(error) if error.code() == Ssh2Code::Session(CHANNEL_FAILURE) => {
                let mut channel =
                    session.channel_session().map_err(|error| refused("the server opens no channel", &error))?;
                channel.exec(&bridge_command(socket)).map_err(|error| refused("the server runs no command", &error))?;
                (channel, true)
            }
            Err(error) => return Err(refused("the server opens no channel to libvirt's socket", &error)),
        };
        session.set_blocking(false);
        Ok(Self::Ssh(Box::new(SshStream { channel, session, tcp, command, stderr: Vec::new() })))
    }

    /// What to poll, and for what beside readability.
    pub(super) fn interest(&self, wants_to_write: bool) -> (BorrowedFd<'_>, PollFlags) {
        match self {
            Self::Local(stream) if wants_to_write => (stream.as_fd(), PollFlags::OUT),
            Self::Local(stream) => (stream.as_fd(), PollFlags::empty()),
            Self::Ssh(ssh) => {
                let outbound =
                    matches!(ssh.session.block_directions(), BlockDirections::Outbound | BlockDirections::Both);
                (ssh.tcp.as_fd(), if outbound { PollFlags::OUT } else { PollFlags::empty() })
            }
        }
    }

    /// Why it ended, as far as the other side told.
    pub(super) fn epitaph(&mut self) -> Option<String> {
        let Self::Ssh(ssh) = self else { return None };
        if !ssh.command {
            return None;
        }
        ssh.keep_stderr();
        let said = String::from_utf8_lossy(&ssh.stderr).trim().replace('\n', "; ");
        let status = ssh.channel.exit_status().unwrap_or_default();
        Some(if said.is_empty() {
            format!("the command that bridges to libvirt's socket ended with status {status}")
        } else {
            format!("the command that bridges to libvirt's socket ended with status {status}: {said}")
        })
    }
}

impl SshStream {
    /// Reads the command's standard error, so that it never fills the window, and keeps its beginning.
    fn keep_stderr(&mut self) {
        let mut buffer = [0; 512];
        while let Ok(length @ 1..) = self.channel.stderr().read(&mut buffer) {
            let room = STDERR_MAX_BYTES.saturating_sub(self.stderr.len());
            self.stderr.extend(buffer.iter().take(length.min(room)));
        }
    }
}

impl Read for Remote {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.read(buffer),
            Self::Ssh(ssh) => {
                if ssh.command {
                    ssh.keep_stderr();
                }
                match ssh.channel.read(buffer) {
                    // libssh2 says 0 also when there is nothing yet.
                    Ok(0) if !ssh.channel.eof() => Err(io::ErrorKind::WouldBlock.into()),
                    other => other,
                }
            }
        }
    }
}

impl Write for Remote {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Local(stream) => stream.write(bytes),
            Self::Ssh(ssh) => match ssh.channel.write(bytes) {
                Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
                other => other,
            },
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A command for a POSIX shell that connects its standard streams to libvirt's socket.
fn bridge_command(socket: &str) -> String {
    let quoted = socket.replace('\'', r"'\''");
    let helper = if socket == DEFAULT_SOCKET {
        "if command -v virt-ssh-helper >/dev/null 2>&1; then exec virt-ssh-helper qemu:///system; fi; "
    } else {
        ""
    };
    let script = format!(
        "{helper}s='{quoted}'; \
         if command -v nc >/dev/null 2>&1 && nc -h 2>&1 | grep -q -e '-[a-zA-Z]*U'; then exec nc -U \"$s\"; fi; \
         if command -v socat >/dev/null 2>&1; then exec socat - \"UNIX-CONNECT:$s\"; fi; \
         echo 'sshd forwards no unix sockets (AllowStreamLocalForwarding) and there is no virt-ssh-helper, nc -U or socat' >&2; exit 127"
    );
    // The user's shell may be another one.
    format!("sh -c '{}'", script.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_command_survives_two_shells() {
        let command = bridge_command("/tmp/it's \"$HOME\" here");
        let output = Command::new("sh").args(["-c", &command.replace("exec ", "echo ")]).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.is_empty() || said.contains("/tmp/it's \"$HOME\" here"), "{said}");
        assert!(Command::new("sh").args(["-nc", &command]).status().unwrap().success());
    }
}
