//! Ends a connection from any thread, at any stage of its life: whoever blocks on it returns within milliseconds.

use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The sockets of one connection. Each is registered as soon as it exists.
#[derive(Debug, Default)]
pub struct Cutter {
    cut: AtomicBool,
    sockets: Mutex<Vec<Socket>>,
    stage: Mutex<Stage>,
}

/// How far a dial is: it says who does not answer when its time runs out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stage {
    /// Name resolution and TCP.
    #[default]
    Reaching,
    /// Handshake, authentication, channel.
    Ssh,
    /// libvirt's own handshake and first answer.
    Libvirt,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Cutter {
    /// Adds a TCP connection; ends it at once when everything was ended already.
    pub fn add_tcp(&self, stream: &TcpStream) -> std::io::Result<()> {
        self.add(Socket::Tcp(stream.try_clone()?));
        Ok(())
    }

    /// Adds a connection through a unix socket.
    pub fn add_unix(&self, stream: &UnixStream) -> std::io::Result<()> {
        self.add(Socket::Unix(stream.try_clone()?));
        Ok(())
    }

    /// Ends everything, now and in future.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.drain(..).for_each(Socket::end);
    }

    /// Whether it was ended.
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// Says how far the dial is.
    pub fn enter(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
    }

    /// How far the dial is.
    pub fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, socket: Socket) {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_cut() {
            socket.end();
        } else {
            sockets.push(socket);
        }
    }
}

impl Socket {
    fn end(self) {
        // An error means that the other side was faster.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Self::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        self.cut();
    }
}
