//! One request to a proxy over a connection of its own, and its answer.

use std::net::IpAddr;

use base64::Engine as _;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, USER_AGENT};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// The most bytes of an answer that are read: an echo of an address is short, and the rest is not looked at.
const BODY_MAX_BYTES: usize = 4 << 10;

/// What is asked of a proxy.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request<'a> {
    /// GET of a URL, in absolute form.
    Get { url: &'a str },
    /// A tunnel to `host:port`.
    Connect { authority: &'a str },
}

/// Name and password.
pub(super) struct Credentials<'a> {
    pub(super) username: &'a str,
    pub(super) password: &'a str,
}

/// What came back.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// What the proxy says when it answers in the target's stead (squid's `X-Squid-Error`).
    pub(super) proxy_error: Option<String>,
    body: Bytes,
}

/// Why no answer came.
#[derive(Debug)]
pub(super) struct Fault(pub(super) String);

/// Sends a request and reads the answer.
pub(super) async fn exchange(
    stream: TcpStream,
    request: Request<'_>,
    credentials: Option<&Credentials<'_>>,
) -> Result<Answer, Fault> {
    let fault = |error: hyper::Error| Fault(error.to_string());
    let request = build(request, credentials).map_err(|error| Fault(error.to_string()))?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(fault)?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(fault)?;
        let status = response.status().as_u16();
        let proxy_error = response.headers().get("x-squid-error").and_then(|value| value.to_str().ok()).map(first_word);
        // A body that is longer, or that breaks off, changes nothing of the status.
        let body = Limited::new(response.into_body(), BODY_MAX_BYTES).collect().await;
        let body = body.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        Ok(Answer { status, proxy_error, body })
    };
    tokio::pin!(exchange);
    let connection = connection.with_upgrades();
    tokio::pin!(connection);
    tokio::select! {
        answer = &mut exchange => answer,
        // The connection may end before the answer has been taken from it.
        _ = &mut connection => exchange.await,
    }
}

fn build(
    request: Request<'_>,
    credentials: Option<&Credentials<'_>>,
) -> Result<hyper::Request<Empty<Bytes>>, hyper::http::Error> {
    let (builder, host) = match request {
        Request::Get { url } => {
            let uri: hyper::Uri = url.parse()?;
            let host = uri.authority().map(ToString::to_string).unwrap_or_default();
            (hyper::Request::get(uri), host)
        }
        Request::Connect { authority } => (hyper::Request::connect(authority), authority.to_owned()),
    };
    let mut builder = builder
        .header(HOST, host)
        .header(USER_AGENT, concat!("proxy-operator/", env!("CARGO_PKG_VERSION")))
        .header("cache-control", "no-cache");
    if let Some(Credentials { username, password }) = credentials {
        let basic = base64::engine::general_purpose::STANDARD.encode(format!("{username}:{password}"));
        let mut value = HeaderValue::from_str(&format!("Basic {basic}"))?;
        value.set_sensitive(true);
        builder = builder.header(PROXY_AUTHORIZATION, value);
    }
    builder.body(Empty::new())
}

/// The name of squid's error (`ERR_CONNECT_FAIL 111`), without what a target could have put behind it.
fn first_word(text: &str) -> String {
    text.chars().take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_').take(64).collect()
}

// === impl Answer ===

impl Answer {
    /// The body as one IP address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        std::str::from_utf8(&self.body).ok()?.trim().parse().ok()
    }
}
