//! Carries bytes between libvirt's client on this side and a [`Remote`], in one thread that polls.
//!
//! ```text
//! waiting ─ the client connects ─▶ carrying ─ an end of file, an error or a cut ─▶ ended
//!    └──────────────────────────── a cut ───────────────────────────────────────────▶┘
//! ```

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::cutter::Cutter;
use super::remote::Remote;
use crate::limits::TUNNEL_BUFFER_BYTES;

/// Between two looks at the cutter, where no socket says it.
const TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Serves one client of the socket; returns why it ended.
pub(super) fn run(listener: UnixListener, mut remote: Remote, cutter: &Cutter) -> String {
    let client = match accept(&listener, cutter) {
        Ok(client) => client,
        Err(error) => return error.to_string(),
    };
    // One client, ever.
    drop(listener);
    let reason = match carry(&client, &mut remote, cutter) {
        _ if cutter.is_cut() => "it was cut".to_owned(),
        Ok(Side::Client) => "libvirt's client closed it (no answer to its keepalive, or an end)".to_owned(),
        Ok(Side::Remote) => remote.epitaph().unwrap_or_else(|| "the hypervisor closed it".to_owned()),
        Err(error) => remote.epitaph().unwrap_or_else(|| error.to_string()),
    };
    // Before the session goes: libssh2 says good-bye, and keeps a session's memory where that would have to wait.
    cutter.cut();
    reason
}

enum Side {
    Client,
    Remote,
}

fn accept(listener: &UnixListener, cutter: &Cutter) -> io::Result<UnixStream> {
    listener.set_nonblocking(true)?;
    loop {
        match listener.accept() {
            Ok((client, _)) => {
                cutter.add_unix(&client)?;
                client.set_nonblocking(true)?;
                return Ok(client);
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
        if cutter.is_cut() {
            return Err(io::Error::other("it was cut"));
        }
        wait(&mut [PollFd::new(listener, PollFlags::IN)])?;
    }
}

/// Until one side ends; what it had said before is delivered.
fn carry(client: &UnixStream, remote: &mut Remote, cutter: &Cutter) -> io::Result<Side> {
    let mut client = client;
    let (mut up, mut down) = (Buffer::default(), Buffer::default());
    loop {
        loop {
            let from_client = up.fill(&mut client)?;
            let to_remote = up.drain(remote)?;
            let from_remote = down.fill(remote)?;
            let to_client = down.drain(&mut client)?;
            if matches!(from_client, Filled::End) && up.is_empty() {
                return Ok(Side::Client);
            }
            if matches!(from_remote, Filled::End) && down.is_empty() {
                return Ok(Side::Remote);
            }
            if !(matches!(from_client, Filled::Some) || matches!(from_remote, Filled::Some) || to_remote || to_client) {
                break;
            }
        }
        if cutter.is_cut() {
            return Ok(Side::Client);
        }
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, up.has_room());
        wanted.set(PollFlags::OUT, !down.is_empty());
        let (fd, more) = remote.interest(!up.is_empty());
        let mut remote_wanted = more;
        remote_wanted.set(PollFlags::IN, down.has_room());
        wait(&mut [PollFd::from_borrowed_fd(client.as_fd(), wanted), PollFd::from_borrowed_fd(fd, remote_wanted)])?;
    }
}

fn wait(fds: &mut [PollFd<'_>]) -> io::Result<()> {
    match poll(fds, Some(&TICK)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Bytes on their way in one direction.
#[derive(Default)]
struct Buffer {
    bytes: Vec<u8>,
    sent: usize,
    ended: bool,
}

enum Filled {
    Some,
    Nothing,
    End,
}

impl Buffer {
    fn is_empty(&self) -> bool {
        self.sent >= self.bytes.len()
    }

    fn has_room(&self) -> bool {
        !self.ended && self.bytes.len() - self.sent.min(self.bytes.len()) < TUNNEL_BUFFER_BYTES
    }

    /// Takes what can be had without waiting.
    fn fill(&mut self, source: &mut impl Read) -> io::Result<Filled> {
        if self.ended {
            return Ok(Filled::End);
        }
        let mut chunk = [0; 65_536];
        let mut filled = Filled::Nothing;
        while self.has_room() {
            match source.read(&mut chunk) {
                Ok(0) => {
                    self.ended = true;
                    return Ok(Filled::End);
                }
                Ok(length) => {
                    self.bytes.extend(chunk.get(..length).unwrap_or_default());
                    filled = Filled::Some;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    /// Gives what can be given without waiting; whether that was anything.
    fn drain(&mut self, sink: &mut impl Write) -> io::Result<bool> {
        let before = self.sent;
        while let Some(rest) = self.bytes.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match sink.write(rest) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(length) => self.sent += length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let moved = self.sent > before;
        if self.is_empty() {
            self.bytes.clear();
            self.sent = 0;
        } else if self.sent > TUNNEL_BUFFER_BYTES / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::thread;

    fn relay() -> (UnixStream, UnixStream, Arc<Cutter>, thread::JoinHandle<String>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("sock");
        let listener = UnixListener::bind(&path).unwrap();
        let (near, far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let cutter = Arc::new(Cutter::default());
        let thread = {
            let cutter = Arc::clone(&cutter);
            thread::spawn(move || run(listener, Remote::Local(near), &cutter))
        };
        (UnixStream::connect(path).unwrap(), far, cutter, thread)
    }

    #[test]
    fn megabytes_pass_both_ways_and_an_end_is_told() {
        let (client, far, _cutter, thread) = relay();
        let content: Vec<u8> = (0..5_000_000_u32).map(|n| n.to_le_bytes()[1]).collect();
        let writers: Vec<_> = [client.try_clone().unwrap(), far.try_clone().unwrap()]
            .into_iter()
            .map(|mut stream| {
                let content = content.clone();
                thread::spawn(move || stream.write_all(&content).unwrap())
            })
            .collect();
        let readers: Vec<_> = [client.try_clone().unwrap(), far.try_clone().unwrap()]
            .into_iter()
            .map(|mut stream| {
                thread::spawn(move || {
                    let mut received = vec![0; 5_000_000];
                    stream.read_exact(&mut received).unwrap();
                    received
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        for reader in readers {
            assert!(reader.join().unwrap() == content);
        }
        drop(far);
        assert_eq!(thread.join().unwrap(), "the hypervisor closed it");
    }

    #[test]
    fn a_cut_ends_whoever_reads() {
        let (mut client, _far, cutter, thread) = relay();
        client.write_all(b"hello").unwrap();
        let reader = thread::spawn(move || client.read(&mut [0; 1]).unwrap());
        let mut first = [0; 5];
        (&_far).read_exact(&mut first).unwrap();
        cutter.cut();
        assert_eq!(reader.join().unwrap(), 0);
        assert_eq!(thread.join().unwrap(), "it was cut");
    }

    #[test]
    fn a_cut_ends_one_that_waits_for_its_client() {
        let folder = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let (near, _far) = UnixStream::pair().unwrap();
        let cutter = Cutter::default();
        cutter.cut();
        assert_eq!(run(listener, Remote::Local(near), &cutter), "it was cut");
    }
}
