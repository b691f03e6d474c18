//! One SSH session: reached, verified, authenticated. Each refusal says what to do about it.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use proxy_operator_core::error::{Error, ErrorCode, Result};
use ssh2::{ErrorCode as Ssh2Code, MethodType, Session};

use super::address::SshAddress;
use super::cutter::{Cutter, Stage};
use super::key::{self, Credentials, KEY_FILE, KNOWN_HOSTS_FILE};
use super::known_hosts::{HostKey, Verdict};
use crate::limits::Limits;

/// Codes of libssh2 that are told apart.
mod code {
    pub(super) const KEX_FAILURE: i32 = -5;
    pub(super) const KEY_EXCHANGE_FAILURE: i32 = -8;
    pub(super) const FILE: i32 = -16;
    pub(super) const AUTHENTICATION_FAILED: i32 = -18;
    pub(super) const PUBLICKEY_UNVERIFIED: i32 = -19;
    pub(super) const METHOD_NONE: i32 = -17;
    pub(super) const METHOD_NOT_SUPPORTED: i32 = -33;
    pub(super) const ALGO_UNSUPPORTED: i32 = -51;
}

/// A session that has proved the host's identity and ours.
pub struct Verified {
    /// The session, blocking.
    pub session: Session,
    /// The connection beneath it.
    pub tcp: TcpStream,
}

/// Opens a session. The host key is verified before anything of ours is sent, and the one key of the Secret is the
/// only thing that is tried: no agent, no password, no other file.
pub fn open(address: &SshAddress, credentials: &Credentials, limits: &Limits, cutter: &Cutter) -> Result<Verified> {
    let algorithms = credentials.known_hosts.algorithms(address);
    let Verified { mut session, tcp } = connect(address, limits, cutter)?;
    if !algorithms.is_empty() {
        session
            .method_pref(MethodType::HostKey, &algorithms.join(","))
            .map_err(|error| unreachable(address, "cannot ask for the known types of host keys", &error))?;
    }
    if let Err(error) = session.handshake() {
        if !algorithms.is_empty()
            && matches!(error.code(), Ssh2Code::Session(code::KEX_FAILURE | code::KEY_EXCHANGE_FAILURE))
        {
            // The server may have keys of other types alone: look which, to name them.
            return Err(match shown_key(address, limits, cutter) {
                Ok(shown) => refusal(address, credentials, &shown)
                    .unwrap_or_else(|| unreachable(address, "the handshake failed", &error)),
                Err(_) => unreachable(address, "the handshake failed", &error),
            });
        }
        return Err(unreachable(address, "the handshake failed (sshd may limit connections: MaxStartups)", &error));
    }
    let shown = host_key(&session)
        .ok_or_else(|| Error::unavailable("HostUnreachable", format!("{address}: the server showed no host key")))?;
    if let Some(error) = refusal(address, credentials, &shown) {
        return Err(error);
    }
    authenticate(&session, address, credentials)?;
    Ok(Verified { session, tcp })
}

/// A TCP connection and a session on it, before the handshake.
fn connect(address: &SshAddress, limits: &Limits, cutter: &Cutter) -> Result<Verified> {
    cutter.enter(Stage::Reaching);
    let tcp = dial(address, limits.tcp_connect)?;
    let prepared = tcp.set_nodelay(true).and_then(|()| cutter.add_tcp(&tcp)).and_then(|()| tcp.try_clone());
    let clone = prepared.map_err(|error| unreached(address, &error))?;
    cutter.enter(Stage::Ssh);
    let mut session = Session::new().map_err(|error| unreachable(address, "no session", &error))?;
    session.set_tcp_stream(clone);
    session.set_timeout(u32::try_from(limits.ssh_step.as_millis()).unwrap_or(u32::MAX));
    Ok(Verified { session, tcp })
}

fn dial(address: &SshAddress, timeout: Duration) -> Result<TcpStream> {
    let found = (address.host.as_str(), address.port).to_socket_addrs().map_err(|error| unreached(address, &error))?;
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for socket in found.take(8) {
        match TcpStream::connect_timeout(&socket, timeout) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(unreached(address, &last))
}

/// The key that the server shows when it is asked for any.
fn shown_key(address: &SshAddress, limits: &Limits, cutter: &Cutter) -> Result<HostKey> {
    let Verified { mut session, .. } = connect(address, limits, cutter)?;
    session.handshake().map_err(|error| unreachable(address, "the handshake failed", &error))?;
    host_key(&session)
        .ok_or_else(|| Error::unavailable("HostUnreachable", format!("{address}: the server showed no host key")))
}

fn host_key(session: &Session) -> Option<HostKey> {
    session.host_key().and_then(|(blob, _)| HostKey::from_blob(blob))
}

/// Why a host key is not taken; `None` when it is.
fn refusal(address: &SshAddress, credentials: &Credentials, shown: &HostKey) -> Option<Error> {
    let Credentials { secret, known_hosts, .. } = credentials;
    let file = format!("file {KNOWN_HOSTS_FILE} of Secret {secret:?}");
    let what =
        format!("{address}: the server at {} shows the {} key {}", address.known_as(), shown.kind, shown.fingerprint());
    let add = format!(
        "if that fingerprint is the machine's own (ssh-keygen -lf /etc/ssh/ssh_host_{}_key.pub, on its console), add the output of: ssh-keyscan -p {} -t {} {}",
        shown.scan_type(),
        address.port,
        shown.scan_type(),
        address.host,
    );
    let unread = match known_hosts.unreadable_lines() {
        [] => String::new(),
        lines => format!(" (its line {} could not be read)", key::join(lines)),
    };
    let unknown = |why: String| Some(Error::invalid_config("HostKeyUnknown", format!("{what}, {why}; {add}")));
    let mismatch = |why: String| Some(Error::invalid_config("HostKeyMismatch", format!("{what}, {why}")));
    match known_hosts.verify(address, shown) {
        Verdict::Known => None,
        Verdict::Unknown => unknown(format!("which {file} does not name for this host{unread}")),
        Verdict::OtherTypes { kinds } => {
            unknown(format!("and {file} has for this host only keys of other types ({}){unread}", kinds.join(", ")))
        }
        Verdict::AuthorityOnly => unknown(format!(
            "and {file} has for this host only an @cert-authority: host certificates are not supported, name the host's own key"
        )),
        Verdict::Mismatch { expected } => mismatch(format!(
            "and {file} expects {}: either the machine was set up anew, or someone stands in between; nothing was sent. When the change is known to be right, replace the line there",
            expected.join(" or ")
        )),
        Verdict::Revoked => mismatch(format!("which {file} marks as @revoked: nothing was sent")),
    }
}

fn authenticate(session: &Session, address: &SshAddress, credentials: &Credentials) -> Result<()> {
    let Credentials { secret, key, key_label, .. } = credentials;
    let refused = |why: &str| {
        Error::new(
            ErrorCode::Unauthenticated,
            "AuthenticationFailed",
            format!(
                "{address}: the server does not take the key in file {KEY_FILE} of Secret {secret:?} ({key_label}) for user {:?}: {why}",
                address.user
            ),
        )
    };
    let result = session.userauth_pubkey_memory(&address.user, None, key.expose(), None);
    let Err(error) = result else {
        return if session.authenticated() {
            Ok(())
        } else {
            Err(refused("it wants more than a key, which is not supported"))
        };
    };
    Err(match error.code() {
        Ssh2Code::Session(code::FILE) => key::invalid(
            secret,
            KEY_FILE,
            "the private key cannot be used: it is damaged, or of a type that is not supported",
        ),
        Ssh2Code::Session(
            code::AUTHENTICATION_FAILED
            | code::PUBLICKEY_UNVERIFIED
            | code::METHOD_NONE
            | code::METHOD_NOT_SUPPORTED
            | code::ALGO_UNSUPPORTED,
        ) => refused(
            "its public half must be in that user's authorized_keys, and sshd must allow the user and public keys",
        ),
        _ => unreachable(address, "the connection broke during authentication", &error),
    })
}

fn unreached(address: &SshAddress, error: &io::Error) -> Error {
    Error::unavailable("HostUnreachable", format!("{address}: cannot be reached: {error}"))
}

fn unreachable(address: &SshAddress, what: &str, error: &ssh2::Error) -> Error {
    let mut converted = Error::unavailable("HostUnreachable", format!("{address}: {what}: {}", error.message()));
    if let Ssh2Code::Session(number) = error.code() {
        converted = converted.with_backend("libssh2", Some(number));
    }
    converted
}
