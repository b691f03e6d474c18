//! What the outcome of a step means for status and memory.

use std::net::IpAddr;

use jiff::Timestamp;
use proxy_operator_api::ProxyStatus;
use proxy_operator_api::condition::{self, ConditionStatus};
use proxy_operator_api::proxy::Phase;

use super::conditions::{self, HEALTHY, PROVISIONED};
use super::intervals::{PROVISIONING_DEADLINE, after};
use super::{Attempts, DeleteReason, Discard, Event, Failure, Memory, Outcome, ProviderView, Snapshot, Turn, Wait};
use crate::backoff;
use crate::error::{Error, ErrorCode, Result};
use crate::probe::{self, Report};
use crate::provider::{self, AddressSource, Deletion, Instance};

/// Works out status, memory and events from what became of a step.
///
/// `jitter` is drawn by the caller from 0 to 1; it spreads the retries of a fleet.
pub fn fold(snapshot: &Snapshot<'_>, outcome: Outcome, jitter: f64) -> Turn {
    let mut folding = Folding {
        snapshot,
        status: snapshot.proxy.status.clone().unwrap_or_default(),
        memory: snapshot.memory.clone(),
        events: vec![],
        check_provider: false,
        stuck: false,
        jitter,
    };
    folding.status.observed_generation = snapshot.proxy.metadata.generation;
    match outcome {
        Outcome::Placed(result) => folding.placed(result),
        Outcome::Created(result) => folding.created(result),
        Outcome::Got(result) => folding.got(result),
        Outcome::Deleted(reason, result) => folding.deleted(reason, result),
        Outcome::Probed(endpoint, report) => folding.probed(&endpoint, report),
        Outcome::Waited(waiting) => folding.waited(&waiting),
    }
    folding.finish()
}

/// A fold under way.
struct Folding<'a> {
    snapshot: &'a Snapshot<'a>,
    status: ProxyStatus,
    memory: Memory,
    events: Vec<Event>,
    check_provider: bool,
    stuck: bool,
    jitter: f64,
}

// === impl Folding ===

impl Folding<'_> {
    fn placed(&mut self, result: Result<String>) {
        match result {
            Ok(id) => {
                self.provisioned(ConditionStatus::False, "Placed", &format!("its place is {id}"));
                self.status.provider_id = Some(id);
                self.status.provider_state = None;
                self.memory.making.last = None;
                self.memory.seen = None;
            }
            Err(error) => {
                if error.code == ErrorCode::Exhausted {
                    // The next attempt looks at all places again.
                    self.status.full_places.clear();
                }
                self.making_failed(error);
            }
        }
    }

    fn created(&mut self, result: Result<Instance>) {
        match result {
            Ok(instance) => {
                self.memory.making.last = None;
                self.sight(instance);
            }
            Err(error) if error.code == ErrorCode::Exhausted => {
                self.events.push(Event::warning(&error.reason, error.to_string()));
                self.provisioned(ConditionStatus::False, &error.reason, &error.to_string());
                self.memory.discard = Some(Discard::Full);
            }
            Err(error) => self.making_failed(error),
        }
    }

    fn got(&mut self, result: Result<Instance>) {
        match result {
            Ok(instance) => self.sight(instance),
            Err(error) if error.code == ErrorCode::NotFound => {
                self.memory.seen = None;
                self.memory.seen_at = None;
                self.memory.looking = Attempts::default();
                if self.snapshot.proxy.metadata.deletion_timestamp.is_some() {
                    return;
                }
                if conditions::status_of(&self.status, PROVISIONED) == Some(ConditionStatus::True) {
                    let message = format!("{}; it is made again", error.message);
                    self.events.push(Event::warning("InstanceVanished", &message));
                    self.provisioned(ConditionStatus::False, "InstanceVanished", &message);
                    self.status.endpoint = None;
                }
            }
            Err(error) => {
                self.check_provider |= concerns_provider(error.code);
                let code = error.code;
                let words = error.to_string();
                let reason = error.reason.clone();
                let failure = self.failure(error, self.memory.looking.failures);
                self.memory.looking.failures = self.memory.looking.failures.saturating_add(1);
                self.memory.looking.last = Some(failure);
                // What the backend cannot say leaves what is known as it is: the probe tells whether it serves. Only an
                // instance that is not usable yet has nothing better to show.
                if conditions::status_of(&self.status, PROVISIONED) != Some(ConditionStatus::True)
                    || code == ErrorCode::Unresolvable
                {
                    self.provisioned(ConditionStatus::Unknown, &reason, &words);
                }
            }
        }
    }

    fn deleted(&mut self, why: DeleteReason, result: Result<Deletion>) {
        let result = match result {
            Err(error) if error.code == ErrorCode::NotFound => Ok(Deletion::Done),
            other => other,
        };
        match result {
            Ok(Deletion::Pending(instance)) => {
                self.memory.removing.last = None;
                let message = if instance.message.is_empty() { "it is being deleted" } else { &instance.message };
                self.provisioned(ConditionStatus::False, "Deleting", message);
                self.memory.seen_at = Some(self.snapshot.now);
                self.memory.seen = Some(Instance { phase: provider::Phase::Deleting, ..*instance });
            }
            Ok(done) => {
                if let Deletion::Abandoned(what) = done {
                    self.events.push(Event::warning("InstanceAbandoned", what));
                }
                self.memory.removing = Attempts::default();
                self.memory.seen = None;
                self.memory.seen_at = None;
                match why {
                    DeleteReason::Removed => {
                        self.memory.gone = true;
                        self.provisioned(ConditionStatus::False, "Deleted", "nothing of it is left");
                    }
                    DeleteReason::Replaced(discard) => self.replaced(discard),
                }
            }
            Err(error) => {
                self.check_provider |= concerns_provider(error.code);
                self.events.push(Event::warning("DeletionFailed", error.to_string()));
                self.provisioned(ConditionStatus::Unknown, &error.reason, &error.to_string());
                let failure = self.failure(error, self.memory.removing.failures);
                self.memory.removing.failures = self.memory.removing.failures.saturating_add(1);
                self.memory.removing.last = Some(failure);
            }
        }
    }

    /// The instance is gone, and another is to come.
    fn replaced(&mut self, discard: Discard) {
        self.memory.discard = None;
        self.memory.probes = probe::History::default();
        self.status.endpoint = None;
        self.status.egress_ip = None;
        self.status.provider_state = None;
        self.not_probed();
        if let Some(id) = self.status.provider_id.take()
            && discard == Discard::Full
        {
            self.status.full_places.push(id);
        }
    }

    fn probed(&mut self, endpoint: &str, report: Report) {
        let proxy = self.snapshot.proxy;
        // A probe that ends after its proxy began to be deleted, or has moved, says nothing of it.
        if proxy.metadata.deletion_timestamp.is_some() || self.status.endpoint.as_deref() != Some(endpoint) {
            return;
        }
        if conditions::status_of(&self.status, HEALTHY) == Some(ConditionStatus::True) {
            self.memory.probes.answered = true;
        }
        if report.finding.is_success() {
            self.memory.making = Attempts::default();
            if let Some(egress) = report.egress.clone() {
                self.status.egress_ip = Some(egress);
            }
        }
        self.memory.probes.record(report, self.snapshot.now);
        let Some(verdict) = self.memory.probes.verdict(&proxy.spec.probe, endpoint) else { return };
        let before = condition::find(&self.status.conditions, HEALTHY);
        let is_new = before.is_none_or(|before| before.status != verdict.status || before.reason != verdict.reason);
        // A proxy that has never answered is on its way: its silence is no news.
        if is_new && (verdict.status == ConditionStatus::True || self.memory.probes.answered) {
            let healthy = verdict.status == ConditionStatus::True;
            let reason = if healthy { "Ready" } else { verdict.reason };
            self.events.push(Event { warning: !healthy, reason: reason.to_owned(), message: verdict.message.clone() });
        }
        conditions::set(&mut self.status, self.snapshot.now, HEALTHY, verdict.status, verdict.reason, &verdict.message);
    }

    fn waited(&mut self, waiting: &Wait) {
        let Some(phase) = waiting.phase else { return };
        self.stuck = phase == Phase::Failed;
        if phase == Phase::Deleting || conditions::status_of(&self.status, PROVISIONED) != Some(ConditionStatus::True) {
            self.provisioned(ConditionStatus::False, &waiting.reason, &waiting.message);
        }
    }

    /// The instance was seen.
    fn sight(&mut self, instance: Instance) {
        let now = self.snapshot.now;
        self.memory.looking = Attempts::default();
        self.status.provider_state.clone_from(&instance.private_state);
        let was_provisioned = conditions::status_of(&self.status, PROVISIONED) == Some(ConditionStatus::True);
        match instance.phase {
            provider::Phase::Running => self.running(&instance, was_provisioned),
            provider::Phase::Failed => self.failed(&instance),
            provider::Phase::Unknown if was_provisioned => {}
            provider::Phase::Stopped => {
                if was_provisioned {
                    self.events.push(Event::warning("InstanceStopped", &instance.message));
                }
                self.not_usable(ConditionStatus::False, &instance);
            }
            provider::Phase::Unknown => self.not_usable(ConditionStatus::Unknown, &instance),
            provider::Phase::Provisioning | provider::Phase::Deleting => {
                // It served, and is on its way again: its machine went, or is going.
                if was_provisioned {
                    let reason = if instance.reason.is_empty() { "InstanceNotUsable" } else { &instance.reason };
                    self.events.push(Event::warning(reason, &instance.message));
                }
                self.not_usable(ConditionStatus::False, &instance);
            }
        }
        self.memory.seen = Some(instance);
        self.memory.seen_at = Some(now);
    }

    fn running(&mut self, instance: &Instance, was_provisioned: bool) {
        let port = instance.endpoint.as_ref().and_then(|endpoint| endpoint.port);
        let port = port.unwrap_or_else(|| self.snapshot.proxy.spec.port());
        let known = self.status.endpoint.clone().filter(|_| was_provisioned);
        let is_contradicted = |known: &str| {
            !instance.addresses.is_empty()
                && !instance.addresses.iter().any(|address| join(&address.host, port) == known)
                && instance.endpoint.as_ref().is_none_or(|endpoint| join(&endpoint.host, port) != known)
        };
        // The last known address stands until it is contradicted: leases lapse, and agents restart.
        let endpoint = match known {
            Some(known) if !is_contradicted(&known) => Some(known),
            _ => instance.endpoint.as_ref().map(|endpoint| join(&endpoint.host, port)),
        };
        let Some(endpoint) = endpoint else {
            return self.not_usable(ConditionStatus::False, instance);
        };
        if let Some(denied) = denied_endpoint(&endpoint, self.snapshot.provider) {
            self.status.endpoint = None;
            return self.provisioned(ConditionStatus::False, "EndpointDenied", &denied);
        }
        if !was_provisioned {
            self.events.push(Event::normal("Provisioned", format!("{} runs at {endpoint}", instance.id)));
        }
        if self.status.endpoint.as_ref() != Some(&endpoint) {
            self.memory.probes = probe::History::default();
            self.not_probed();
        }
        let source = instance.addresses.iter().find(|address| join(&address.host, port) == endpoint);
        let message = match source.map(|address| address.source) {
            Some(AddressSource::Agent) => "it runs; the guest agent says its address",
            Some(AddressSource::Lease) => "it runs; a DHCP lease says its address",
            Some(AddressSource::Arp) => "it runs; the hypervisor's neighbour table says its address",
            Some(AddressSource::Api) | None => "it runs",
        };
        self.status.endpoint = Some(endpoint);
        if let Some(egress) = &instance.egress_address {
            self.status.egress_ip = Some(egress.clone());
        }
        self.status.full_places.clear();
        self.provisioned(ConditionStatus::True, "Running", message);
    }

    /// Nothing is known of the proxy at a new endpoint.
    fn not_probed(&mut self) {
        let now = self.snapshot.now;
        conditions::set(&mut self.status, now, HEALTHY, ConditionStatus::Unknown, "NotProbed", "not probed yet");
    }

    fn failed(&mut self, instance: &Instance) {
        let error = instance
            .error
            .clone()
            .unwrap_or_else(|| Error::internal("InstanceFailed", format!("{} failed", instance.id)));
        self.events.push(Event::warning(&error.reason, error.to_string()));
        self.memory.discard = Some(Discard::Failed);
        self.making_failed(error);
    }

    /// The instance is there and cannot be used now.
    fn not_usable(&mut self, holds: ConditionStatus, instance: &Instance) {
        let overdue = condition::find(&self.status.conditions, PROVISIONED)
            .filter(|condition| condition.status != ConditionStatus::True)
            .and_then(|condition| condition.last_transition_time.parse::<Timestamp>().ok())
            .is_some_and(|since| self.snapshot.now > after(since, PROVISIONING_DEADLINE));
        let mut message = instance.message.clone();
        if overdue {
            self.stuck = true;
            let minutes = PROVISIONING_DEADLINE.as_secs() / 60;
            message =
                format!("{message}; this has lasted for more than {minutes} minutes: look at the machine's console");
        }
        self.provisioned(holds, &instance.reason, &message);
    }

    /// Place or create failed, or what it made did.
    fn making_failed(&mut self, error: Error) {
        self.check_provider |= concerns_provider(error.code);
        let words = error.to_string();
        let is_new = condition::find(&self.status.conditions, PROVISIONED)
            .is_none_or(|condition| condition.reason != error.reason || condition.message != words);
        if is_new {
            self.events.push(Event::warning(&error.reason, &words));
        }
        self.stuck = !error.code.is_transient();
        self.provisioned(ConditionStatus::False, &error.reason, &words);
        let failure = self.failure(error, self.memory.making.failures);
        self.memory.making.failures = self.memory.making.failures.saturating_add(1);
        self.memory.making.last = Some(failure);
    }

    fn failure(&self, error: Error, failures_before: u32) -> Failure {
        let now = self.snapshot.now;
        let delay = backoff::delay(&error, failures_before.saturating_add(1), self.jitter);
        Failure {
            error,
            at: now,
            retry_at: after(now, delay),
            generation: self.snapshot.proxy.metadata.generation,
            epoch: self.snapshot.provider.epoch(),
        }
    }

    fn provisioned(&mut self, holds: ConditionStatus, reason: &str, message: &str) {
        conditions::set(&mut self.status, self.snapshot.now, PROVISIONED, holds, reason, message);
    }

    fn finish(mut self) -> Turn {
        let now = self.snapshot.now;
        // A stuck phase lasts while its failure stands in the way.
        let stuck = self.stuck
            || (self.status.phase == Phase::Failed
                && self.memory.making.last.as_ref().is_some_and(|failure| !failure.error.code.is_transient()));
        conditions::derive(&mut self.status, now, stuck);
        if self.snapshot.proxy.metadata.deletion_timestamp.is_some() {
            self.status.phase = Phase::Deleting;
        }
        let Self { status, memory, events, check_provider, .. } = self;
        Turn { status, memory, events, check_provider }
    }
}

/// Whether an error may come from what the Provider is configured with.
const fn concerns_provider(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::InvalidConfig | ErrorCode::Unauthenticated | ErrorCode::PermissionDenied | ErrorCode::Unresolvable
    )
}

/// Host and port as a URL writes them.
fn join(host: &str, port: u16) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

/// Why an endpoint may not lie where it does.
fn denied_endpoint(endpoint: &str, provider: &ProviderView) -> Option<String> {
    let ProviderView::Serving { endpoints, .. } = provider else { return None };
    let host = endpoint.rsplit_once(':').map_or(endpoint, |(host, _)| host);
    let address: IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
    let is_named = endpoints.iter().any(|net| net.contains(&address));
    let is_local = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_link_local() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unicast_link_local() || v6.is_unspecified(),
    };
    let is_denied = if is_local { !is_named } else { !endpoints.is_empty() && !is_named };
    is_denied.then(|| format!("its address {address} may not be an endpoint; spec.grants.endpoints.cidrs of its Provider would have to name it"))
}
