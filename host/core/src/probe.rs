//! What a probe found, what it means, and after how many.
//!
//! The sender is the operator's; here stand the meaning and the thresholds. Wrong credentials, a refusing target, a
//! dead proxy and an endpoint that cannot be reached from where the operator runs are four things.

use std::time::Duration;

use jiff::Timestamp;
use proxy_operator_api::condition::ConditionStatus;
use proxy_operator_api::proxy::Probe;

/// What is fetched through a proxy when its spec names nothing.
pub const DEFAULT_URL: &str = "http://www.gstatic.com/generate_204";
/// The status that is expected of it.
pub const DEFAULT_STATUS: u16 = 204;
/// Between two probes of a healthy proxy: often enough for a dashboard, rare enough for a metered target.
pub const DEFAULT_INTERVAL: Duration = Duration::from_secs(60);
/// For a probe in all: the first authenticated request through squid can take over a second.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Failures in a row before a healthy proxy is called unhealthy: one lost packet is no outage.
pub const DEFAULT_FAILURE_THRESHOLD: u32 = 3;
/// Between two probes of a proxy that has not answered yet: it is on its way, and somebody waits for it.
pub const STARTING_INTERVAL: Duration = Duration::from_secs(3);
/// The most that [`STARTING_INTERVAL`] grows to while a proxy keeps silent.
pub const STARTING_INTERVAL_MAX: Duration = Duration::from_secs(15);

/// What one probe found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The expected status came back, and who has no credentials is refused.
    Answers,
    /// There is no way from here: no route, no answer to a connection.
    Unreachable(String),
    /// The host answers and nothing listens on the port.
    Refused(String),
    /// The connection stands and no valid answer comes.
    Silent(String),
    /// Requests without credentials are served though the Proxy is not `open`.
    Open,
    /// The proxy does not take the credentials (407 or 401).
    CredentialsRefused(u16),
    /// The proxy says that the target cannot be reached or refuses: its own words.
    TargetFailed(String),
    /// An answer with another status than the expected one.
    UnexpectedStatus {
        /// What came.
        got: u16,
        /// What was expected.
        expected: u16,
    },
}

/// One probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it found.
    pub finding: Finding,
    /// How long the request for the probe URL took.
    pub latency: Duration,
    /// The address from which the proxy's requests go out, where an echo was asked.
    pub egress: Option<String>,
}

/// What the probes of one proxy have found so far. Kept in memory only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// When the last one ended.
    pub last_at: Option<Timestamp>,
    /// The last one.
    pub last: Option<Report>,
    /// Failures in a row.
    pub failures: u32,
    /// Whether it has ever answered, as far as this process and the recorded condition know.
    pub answered: bool,
}

/// What the condition `Healthy` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether it is healthy.
    pub status: ConditionStatus,
    /// One CamelCase word.
    pub reason: &'static str,
    /// The same for people.
    pub message: String,
}

// === impl Finding ===

impl Finding {
    /// Whether the proxy did what it should.
    pub const fn is_success(&self) -> bool {
        matches!(self, Self::Answers)
    }

    /// Whether it is known to be the proxy's own fault: then `Healthy` is False, and else Unknown.
    const fn is_the_proxys(&self) -> bool {
        match self {
            Self::Answers | Self::Unreachable(_) | Self::TargetFailed(_) => false,
            Self::Refused(_)
            | Self::Silent(_)
            | Self::Open
            | Self::CredentialsRefused(_)
            | Self::UnexpectedStatus { .. } => true,
        }
    }

    /// One CamelCase word for condition and metric.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Answers => "ProxyAnswers",
            Self::Unreachable(_) => "EndpointUnreachable",
            Self::Refused(_) => "ConnectionRefused",
            Self::Silent(_) => "ProxySilent",
            Self::Open => "ProxyOpen",
            Self::CredentialsRefused(_) => "CredentialsRefused",
            Self::TargetFailed(_) => "ProbeTargetFailed",
            Self::UnexpectedStatus { .. } => "UnexpectedStatus",
        }
    }

    /// For people. It does not change from probe to probe while the finding stays the same.
    pub fn message(&self, endpoint: &str) -> String {
        match self {
            Self::Answers => format!("the proxy at {endpoint} answers"),
            Self::Unreachable(why) => format!(
                "{endpoint} cannot be reached from where the operator runs ({why}); the proxy may well serve its clients: give the operator a route to it"
            ),
            Self::Refused(why) => format!("nothing listens at {endpoint} ({why}); is the proxy software running?"),
            Self::Silent(why) => format!("{endpoint} accepts connections and does not answer as a proxy ({why})"),
            Self::Open => format!(
                "{endpoint} serves requests without credentials; close it, or set spec.access.open if that is meant"
            ),
            Self::CredentialsRefused(status) => format!(
                "{endpoint} refuses the credentials of this Proxy ({status}); the machine was set up with others"
            ),
            Self::TargetFailed(words) => format!(
                "the proxy at {endpoint} answers, and says that the probe's target fails ({words}); see spec.probe and spec.access.allowPrivateDestinations"
            ),
            Self::UnexpectedStatus { got, expected } => {
                format!("the probe through {endpoint} gave status {got} instead of {expected}; see spec.probe")
            }
        }
    }
}

// === impl History ===

impl History {
    /// Adds a report.
    pub fn record(&mut self, report: Report, at: Timestamp) {
        if report.finding.is_success() {
            self.failures = 0;
            self.answered = true;
        } else {
            self.failures = self.failures.saturating_add(1);
        }
        self.last = Some(report);
        self.last_at = Some(at);
    }

    /// What `Healthy` says. `None`: nothing new; what it said stands (a failure below the threshold of a proxy that
    /// was healthy).
    pub fn verdict(&self, probe: &Probe, endpoint: &str) -> Option<Verdict> {
        let Report { finding, .. } = self.last.as_ref()?;
        let threshold = probe.failure_threshold.unwrap_or(DEFAULT_FAILURE_THRESHOLD);
        // An open proxy is abused within hours: it is told at once.
        let tolerated = self.answered && self.failures < threshold && *finding != Finding::Open;
        if !finding.is_success() && tolerated {
            return None;
        }
        let status = if finding.is_success() {
            ConditionStatus::True
        } else if finding.is_the_proxys() {
            ConditionStatus::False
        } else {
            ConditionStatus::Unknown
        };
        Some(Verdict { status, reason: finding.reason(), message: finding.message(endpoint) })
    }

    /// When the next probe is due.
    pub fn next_at(&self, probe: &Probe) -> Option<Timestamp> {
        let last_at = self.last_at?;
        let interval = probe.interval_seconds.map_or(DEFAULT_INTERVAL, |seconds| Duration::from_secs(seconds.into()));
        let starting =
            STARTING_INTERVAL.saturating_mul(self.failures.clamp(1, 60)).min(STARTING_INTERVAL_MAX).min(interval);
        let wait = if self.answered && self.failures == 0 { interval } else { starting };
        last_at.checked_add(jiff::SignedDuration::try_from(wait).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(finding: Finding) -> Report {
        Report { finding, latency: Duration::ZERO, egress: None }
    }

    fn history(findings: &[Finding]) -> History {
        let mut history = History::default();
        for finding in findings {
            history.record(report(finding.clone()), Timestamp::UNIX_EPOCH);
        }
        history
    }

    fn status(findings: &[Finding]) -> Option<ConditionStatus> {
        history(findings).verdict(&Probe::default(), "192.0.2.1:3128").map(|verdict| verdict.status)
    }

    #[test]
    fn one_failure_of_a_healthy_proxy_changes_nothing() {
        use Finding::{Answers, Silent};
        let silent = || Silent("timeout".into());
        assert_eq!(status(&[Answers, silent(), silent()]), None);
        assert_eq!(status(&[Answers, silent(), silent(), silent()]), Some(ConditionStatus::False));
        assert_eq!(status(&[Answers, silent(), silent(), silent(), Answers]), Some(ConditionStatus::True));
    }

    #[test]
    fn an_endpoint_out_of_reach_is_not_a_dead_proxy() {
        assert_eq!(status(&[Finding::Unreachable("no route".into())]), Some(ConditionStatus::Unknown));
        assert_eq!(status(&[Finding::Refused("refused".into())]), Some(ConditionStatus::False));
    }

    #[test]
    fn a_failing_target_is_not_the_proxys_fault() {
        assert_eq!(status(&[Finding::TargetFailed("ERR_CONNECT_FAIL".into())]), Some(ConditionStatus::Unknown));
    }

    #[test]
    fn an_open_proxy_is_told_at_once() {
        assert_eq!(status(&[Finding::Answers, Finding::Open]), Some(ConditionStatus::False));
    }

    #[test]
    fn a_healthy_proxy_is_probed_at_its_interval_and_a_starting_one_soon() {
        let probe = Probe { interval_seconds: Some(600), ..Probe::default() };
        let after = |history: History| history.next_at(&probe).map(Timestamp::as_second);
        assert_eq!(after(history(&[Finding::Answers])), Some(600));
        assert_eq!(after(history(&[Finding::Refused("r".into())])), Some(3));
        assert_eq!(after(history(&vec![Finding::Refused("r".into()); 100])), Some(15));
    }
}
