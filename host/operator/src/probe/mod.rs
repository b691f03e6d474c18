//! Sends probes: real requests through a proxy, as a client would.
//!
//! In order: a connection; a request without credentials, which must be refused where the Proxy has credentials; the
//! probe URL, whose exact status counts; CONNECT and an echo of the egress address where they are configured. What the
//! findings mean stands in [`proxy_operator_core::probe`].

mod exchange;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ipnet::IpNet;
use proxy_operator_core::probe::{DEFAULT_STATUS, DEFAULT_TIMEOUT, DEFAULT_URL, Finding, Report};
use proxy_operator_core::sensitive::Sensitive;

use self::exchange::{Answer, Credentials, Fault, Request};

/// What to probe, and how.
#[derive(Clone, Debug)]
pub struct Target {
    /// `host:port` of the proxy.
    pub endpoint: String,
    /// Name and password; `None` for an open proxy.
    pub credentials: Option<(String, Sensitive<String>)>,
    /// Sources that are served without a password.
    pub allow_from: Vec<IpNet>,
    /// How.
    pub probe: proxy_operator_api::proxy::Probe,
}

/// Probes a proxy once. Never fails: what went wrong is the finding.
pub async fn probe(target: &Target) -> Report {
    let seconds = target.probe.timeout_seconds;
    let timeout = seconds.map_or(DEFAULT_TIMEOUT, |seconds| Duration::from_secs(seconds.into()));
    let mut progress = Progress::default();
    let finding = match tokio::time::timeout(timeout, run(target, &mut progress)).await {
        Ok(finding) => finding,
        Err(_) if progress.is_connected => Finding::Silent(format!("no answer within {} s", timeout.as_secs())),
        Err(_) => Finding::Unreachable(format!("no connection within {} s", timeout.as_secs())),
    };
    Report { finding, latency: progress.latency, egress: progress.egress }
}

/// What is known so far when a probe is cut.
#[derive(Default)]
struct Progress {
    is_connected: bool,
    latency: Duration,
    egress: Option<String>,
}

async fn run(target: &Target, progress: &mut Progress) -> Finding {
    let url = target.probe.url.as_deref().unwrap_or(DEFAULT_URL);
    let expected = target.probe.status.unwrap_or(DEFAULT_STATUS);
    let credentials =
        target.credentials.as_ref().map(|(username, password)| Credentials { username, password: password.expose() });

    if credentials.is_some()
        && let Some(finding) = refuses_strangers(target, url, progress).await
    {
        return finding;
    }
    let start = Instant::now();
    let answer = match send(target, Request::Get { url }, credentials.as_ref(), progress).await {
        Ok(answer) => answer,
        Err(finding) => return finding,
    };
    progress.latency = start.elapsed();
    if let Some(finding) = judge(&answer, |status| status == expected, expected) {
        return finding;
    }
    if let Some(authority) = &target.probe.connect {
        match send(target, Request::Connect { authority }, credentials.as_ref(), progress).await {
            Ok(answer) => {
                if let Some(finding) = judge(&answer, |status| (200..300).contains(&status), 200) {
                    return finding;
                }
            }
            Err(finding) => return finding,
        }
    }
    if let Some(url) = &target.probe.egress_url
        // The echo is for information: its failure is no fault of the proxy.
        && let Ok(answer) = send(target, Request::Get { url }, credentials.as_ref(), progress).await
        && answer.status == 200
    {
        progress.egress = answer.address().map(|address| address.to_string());
    }
    Finding::Answers
}

/// The check for an open proxy: a finding when a request without credentials is served, or the proxy is out of reach.
async fn refuses_strangers(target: &Target, url: &str, progress: &mut Progress) -> Option<Finding> {
    let (answer, local) = match connect_and_send(target, Request::Get { url }, None, progress).await {
        Ok(answered) => answered,
        Err(Failed::Connect(finding)) => return Some(finding),
        // Closing the connection is a refusal too.
        Err(Failed::Exchange(_)) => return None,
    };
    let is_refused = matches!(answer.status, 401 | 403 | 407);
    let may_pass = target.allow_from.iter().any(|net| net.contains(&local.ip()));
    (!is_refused && !may_pass).then_some(Finding::Open)
}

/// Why there is no answer.
enum Failed {
    Connect(Finding),
    Exchange(Fault),
}

async fn send(
    target: &Target,
    request: Request<'_>,
    credentials: Option<&Credentials<'_>>,
    progress: &mut Progress,
) -> Result<Answer, Finding> {
    match connect_and_send(target, request, credentials, progress).await {
        Ok((answer, _)) => Ok(answer),
        Err(Failed::Connect(finding)) => Err(finding),
        Err(Failed::Exchange(Fault(what))) => Err(Finding::Silent(what)),
    }
}

async fn connect_and_send(
    target: &Target,
    request: Request<'_>,
    credentials: Option<&Credentials<'_>>,
    progress: &mut Progress,
) -> Result<(Answer, SocketAddr), Failed> {
    let stream = tokio::net::TcpStream::connect(&target.endpoint).await.map_err(|error| {
        Failed::Connect(match error.kind() {
            std::io::ErrorKind::ConnectionRefused => Finding::Refused("connection refused".to_owned()),
            std::io::ErrorKind::ConnectionReset => Finding::Refused("connection reset".to_owned()),
            _ => Finding::Unreachable(error.to_string()),
        })
    })?;
    progress.is_connected = true;
    let local = stream.local_addr().map_err(|error| Failed::Exchange(Fault(error.to_string())))?;
    let answer = exchange::exchange(stream, request, credentials).await.map_err(Failed::Exchange)?;
    Ok((answer, local))
}

/// What an answer means; `None`: it is the expected one.
fn judge(answer: &Answer, is_expected: impl Fn(u16) -> bool, expected: u16) -> Option<Finding> {
    match answer.status {
        407 => Some(Finding::CredentialsRefused(407)),
        // The proxy says itself that it answers in the target's stead.
        status if answer.proxy_error.is_some() => {
            let words = answer.proxy_error.as_deref().unwrap_or_default();
            Some(Finding::TargetFailed(format!("{words}, status {status}")))
        }
        status if is_expected(status) => None,
        401 => Some(Finding::CredentialsRefused(401)),
        status @ (502..=504) => Some(Finding::TargetFailed(format!("status {status}"))),
        got => Some(Finding::UnexpectedStatus { got, expected }),
    }
}
