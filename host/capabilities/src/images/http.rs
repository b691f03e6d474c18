//! Asks image servers: redirects policed one by one, addresses looked at before they are connected to.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proxy_operator_core::error::{Error, Result};
use reqwest::header::{ACCEPT_ENCODING, CONTENT_ENCODING, LOCATION, RETRY_AFTER};
use reqwest::{Client, Response, StatusCode};
use url::Url;

use super::address::{self, Standing};
use super::limits::{ImageLimits, REDIRECTS_MAX};
use super::prefix::{Prefixes, literal_address, shown};

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of a host.
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The resolver of the system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

/// Asks servers on behalf of one Provider.
pub struct Fetcher {
    /// The Provider.
    pub provider: String,
    /// Its grant.
    pub prefixes: Prefixes,
    /// Finds addresses.
    pub resolver: Arc<dyn Resolver>,
    /// How long each step may take.
    pub limits: Arc<ImageLimits>,
}

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        // An IPv6 address stands in brackets in a URL, a name never does.
        tokio::net::lookup_host((host, port)).await.map(Iterator::collect)
    }
}

// === impl Fetcher ===

impl Fetcher {
    /// Asks for a URL that is granted, and follows where it may: the answer is 200 and its body is what was asked for.
    pub async fn get(&self, url: &Url, pinned: bool) -> Result<Response> {
        self.prefixes.check(&self.provider, url)?;
        let (mut at, mut standing) = (url.clone(), Standing::Granted);
        for _ in 0..=REDIRECTS_MAX {
            let response = self.ask(&at, standing).await?;
            if !response.status().is_redirection() {
                return check(&at, response);
            }
            let location = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let next = location.and_then(|location| at.join(location).ok());
            let Some(mut next) = next else {
                return Err(unavailable(&at, &format!("answered {} without saying where to", response.status())));
            };
            // What a server says behind a # is meant for a reader.
            next.set_fragment(None);
            standing = self.prefixes.check_redirect(&self.provider, &at, &next, pinned)?;
            tracing::debug!(target: "images", from = shown(&at), to = shown(&next), "redirected");
            at = next;
        }
        Err(unavailable(url, &format!("redirected more than {REDIRECTS_MAX} times")))
    }

    async fn ask(&self, url: &Url, standing: Standing) -> Result<Response> {
        let addresses = self.addresses(url, standing).await?;
        let client = self.client(url, &addresses)?;
        let request = client.get(url.clone()).header(ACCEPT_ENCODING, "identity");
        request.send().await.map_err(|error| failed(url, error))
    }

    /// A client for one request: it knows one name, and the addresses that were looked at.
    fn client(&self, url: &Url, addresses: &[SocketAddr]) -> Result<Client> {
        // Ours or another's: the process has one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would resolve the name once more, elsewhere.
            .no_proxy()
            .referer(false)
            .user_agent(concat!("proxy-operator/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(self.limits.connect)
            .read_timeout(self.limits.read)
            .timeout(self.limits.download);
        if let Some(host) = url.host_str() {
            client = client.resolve_to_addrs(host, addresses);
        }
        if url.scheme() != "https" {
            // Without TLS no certificates are needed, nor read.
            client = client.tls_certs_only(std::iter::empty());
        }
        client.build().map_err(|error| {
            Error::unavailable("ImageServerUnavailable", format!("the operator cannot speak TLS: {}", chain(&error)))
        })
    }

    /// Where a host is, as far as it may be asked there.
    async fn addresses(&self, url: &Url, standing: Standing) -> Result<Vec<SocketAddr>> {
        let port = url.port_or_known_default().unwrap_or_default();
        let literal = literal_address(url);
        let found = match literal {
            Some(address) => vec![SocketAddr::new(address, port)],
            None => {
                let host = url.host_str().unwrap_or_default();
                let asked = tokio::time::timeout(self.limits.connect, self.resolver.resolve(host, port)).await;
                let asked = asked.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
                asked.map_err(|error| unavailable(url, &format!("cannot be found: {error}")))?
            }
        };
        let allowed: Vec<SocketAddr> = found
            .iter()
            .copied()
            .filter(|found| address::is_allowed(found.ip(), standing, literal.is_some()))
            .collect();
        if !allowed.is_empty() {
            return Ok(allowed);
        }
        if found.is_empty() {
            return Err(unavailable(url, "has no address"));
        }
        let found: BTreeSet<String> = found.iter().map(|found| found.ip().to_string()).collect();
        let found = found.into_iter().collect::<Vec<_>>().join(", ");
        let why = match standing {
            Standing::Granted => "to which no name may lead; to allow it, grant a URL prefix with the address itself",
            Standing::Redirected => "which is not public; a redirect may lead there only when its URL is granted",
        };
        Err(Error::permission_denied(
            "GrantMissing",
            format!("Provider {}: {} is at {found}, {why}", self.provider, shown(url)),
        ))
    }
}

/// What an answer means.
fn check(url: &Url, response: Response) -> Result<Response> {
    let status = response.status();
    if status == StatusCode::OK {
        let encoding = response.headers().get(CONTENT_ENCODING).and_then(|value| value.to_str().ok());
        return match encoding.filter(|encoding| !encoding.eq_ignore_ascii_case("identity")) {
            None => Ok(response),
            Some(encoding) => Err(Error::invalid_config(
                "ImageUnusable",
                format!(
                    "{} is served with the content encoding {encoding}, which was not asked for; make the server send it as it is",
                    shown(url)
                ),
            )),
        };
    }
    let transient = status.is_server_error() || matches!(status.as_u16(), 408 | 425 | 429) || !status.is_client_error();
    if transient {
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let mut error = unavailable(url, &format!("answered {status}"));
        error.retry_after = after
            .and_then(|seconds| seconds.trim().parse().ok())
            .map(|seconds: u64| Duration::from_secs(seconds.min(3600)));
        return Err(error);
    }
    let hint = match status.as_u16() {
        401 | 403 => "the server wants credentials or forbids it; images are downloaded without any",
        _ => "look at the URL: newer builds often replace older ones under another name",
    };
    Err(Error::invalid_config("ImageNotFound", format!("{} answered {status}; {hint}", shown(url))))
}

/// An error of the transport.
pub fn failed(url: &Url, error: reqwest::Error) -> Error {
    unavailable(url, &chain(&error.without_url()))
}

fn unavailable(url: &Url, what: &str) -> Error {
    Error::unavailable("ImageServerUnavailable", format!("{}: {what}", shown(url)))
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
