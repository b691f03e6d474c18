//! A web server on loopback that behaves and misbehaves as told.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What is answered.
#[derive(Clone)]
pub(super) enum Answer {
    /// This, whole.
    Body(Vec<u8>),
    /// The same without a length: it ends with the connection.
    Unannounced(Vec<u8>),
    /// Announces all, sends so many bytes, closes.
    Cut(Vec<u8>, usize),
    /// So many bytes, then nothing, the connection open.
    Stuck(Vec<u8>, usize),
    /// In pieces with a pause between them.
    Slow(Vec<u8>, Duration),
    /// A status and further headers.
    Status(u16, String),
    /// A redirect.
    Redirect(String),
}

#[derive(Clone)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    routes: Arc<Mutex<HashMap<String, Answer>>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self { address: listener.local_addr().unwrap(), routes: Arc::default(), requests: Arc::default() };
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(stream).await });
            }
        });
        server
    }

    pub(super) fn put(&self, path: &str, answer: Answer) {
        self.routes.lock().unwrap().insert(path.to_owned(), answer);
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    async fn serve(&self, mut stream: TcpStream) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        self.requests.lock().unwrap().push(path.clone());
        let answer = self.routes.lock().unwrap().get(&path).cloned().unwrap_or(Answer::Status(404, String::new()));
        let _ = send(&mut stream, answer).await;
        let _ = stream.shutdown().await;
    }
}

async fn send(stream: &mut TcpStream, answer: Answer) -> std::io::Result<()> {
    let announce = |length: usize| format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    match answer {
        Answer::Body(body) => {
            stream.write_all(announce(body.len()).as_bytes()).await?;
            stream.write_all(&body).await
        }
        Answer::Unannounced(body) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").await?;
            stream.write_all(&body).await
        }
        Answer::Cut(body, length) => {
            stream.write_all(announce(body.len()).as_bytes()).await?;
            stream.write_all(&body[..length]).await
        }
        Answer::Stuck(body, length) => {
            stream.write_all(announce(body.len()).as_bytes()).await?;
            stream.write_all(&body[..length]).await?;
            stream.flush().await?;
            tokio::time::sleep(Duration::from_secs(3600)).await;
            Ok(())
        }
        Answer::Slow(body, pause) => {
            stream.write_all(announce(body.len()).as_bytes()).await?;
            for piece in body.chunks(body.len().div_ceil(4)) {
                stream.write_all(piece).await?;
                stream.flush().await?;
                tokio::time::sleep(pause).await;
            }
            Ok(())
        }
        Answer::Status(status, headers) => {
            let head = format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await
        }
        Answer::Redirect(location) => {
            let head =
                format!("HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(head.as_bytes()).await
        }
    }
}
