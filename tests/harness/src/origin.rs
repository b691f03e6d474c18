//! An HTTP server on loopback for whatever goes through a proxy.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;

/// Answers 204; `/echo` with the address it was asked from; `/teapot` with 418. It ends with the process.
pub struct Origin {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Origin {
    /// Starts one.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let requests = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if answer(stream).is_some() {
                    counter.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Ok(Self { port, requests })
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL, with a slash at the end.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// How many requests have reached it.
    pub fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

/// Answers one request; `None`: there was none.
fn answer(mut stream: TcpStream) -> Option<()> {
    let mut bytes = [0; 4096];
    let length = stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
    let request = String::from_utf8_lossy(bytes.get(..length)?);
    let (status, body) = match request.split(' ').nth(1) {
        Some("/echo") => ("200 OK", format!("{}\n", stream.peer_addr().ok()?.ip())),
        Some("/teapot") => ("418 I'm a teapot", String::new()),
        _ => ("204 No Content", String::new()),
    };
    let length = if status.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    let _ = write!(stream, "HTTP/1.1 {status}\r\n{length}Connection: close\r\n\r\n{body}");
    Some(())
}
