//! One Proxy: its turns.

use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use proxy_operator_api::Proxy;
use proxy_operator_core::error::{Error, ErrorCode, Result};
use proxy_operator_core::provider::Provider as _;
use proxy_operator_core::proxy::{Event, Memory, Outcome, Snapshot, Step, Turn, Wait, decide, fold};
use proxy_operator_runtime::LoadedProvider;
use rand::RngExt as _;
use tokio::sync::{Notify, mpsc};
use tracing::Instrument as _;

use super::inputs::{self, Inputs};
use super::providers::Serving;
use super::proxies::{Proxies, Sighting};
use crate::limits::{INPUTS_MAX_AGE, RESYNC, STORE_RETRY};
use crate::probe;
use crate::store::{Connection, Key, Next, StoreError};

/// The task of one Proxy: nobody else changes its status or makes calls for it.
pub(super) struct ProxyTask {
    key: Key,
    proxies: Arc<Proxies>,
    wake: Arc<Notify>,
    sightings: mpsc::Receiver<Sighting>,
    memory: Memory,
    /// When the last call for the instance ended: a listing that began before is older news.
    acted_at: Instant,
    noted: Next,
    connected: Option<String>,
    gathered: Option<Gathered>,
}

/// Inputs, kept for a while: a turn in which nothing is made does not read Secrets and hash passwords anew.
struct Gathered {
    inputs: Inputs,
    generation: Option<i64>,
    at: Instant,
}

/// How a task goes on after a step.
enum After {
    /// With the next turn.
    Go,
    /// When something happens, or this time has passed.
    Rest(Duration),
    /// Not at all: the object is released.
    End,
}

// === impl ProxyTask ===

impl ProxyTask {
    pub(super) fn new(key: Key, proxies: Arc<Proxies>, wake: Arc<Notify>, sightings: mpsc::Receiver<Sighting>) -> Self {
        Self {
            key,
            proxies,
            wake,
            sightings,
            memory: Memory::default(),
            acted_at: Instant::now(),
            noted: Next::default(),
            connected: None,
            gathered: None,
        }
    }

    /// Runs until the Proxy is gone or the program ends.
    pub(super) async fn run(mut self) {
        let name = format!("{}/{}", self.key.namespace, self.key.name);
        let span = tracing::info_span!("proxy", proxy = name, provider = tracing::field::Empty);
        let proxies = Arc::clone(&self.proxies);
        let key = self.key.clone();
        async move {
            while !self.proxies.cancelled.is_cancelled() {
                let Some(proxy) = self.proxies.store.proxy(&self.key) else { break };
                tracing::Span::current().record("provider", &proxy.spec.provider);
                match self.turn(&proxy).await {
                    After::Go => {}
                    After::Rest(wait) => self.rest(wait).await,
                    After::End => break,
                }
            }
        }
        .instrument(span)
        .await;
        if !proxies.cancelled.is_cancelled() {
            proxies.forget(&key);
        }
    }

    /// Waits for an event or the time. A listing's news is taken in here.
    async fn rest(&mut self, wait: Duration) {
        let sighting = tokio::select! {
            () = self.proxies.cancelled.cancelled() => return,
            () = self.wake.notified() => return,
            () = tokio::time::sleep(wait) => return,
            Some(sighting) = self.sightings.recv() => sighting,
        };
        let Some(proxy) = self.proxies.store.proxy(&self.key) else { return };
        let recorded = proxy.status.as_ref().and_then(|status| status.provider_id.as_deref());
        let is_kept = self.memory.seen.is_some() && self.memory.discard.is_none();
        if recorded == Some(sighting.id.as_str()) && sighting.begun > self.acted_at && is_kept {
            match sighting.instance {
                Some(instance) => {
                    let serving = self.proxies.providers.serving(&proxy.spec.provider);
                    self.conclude(&serving, &Ok(()), Outcome::Got(Ok(instance))).await;
                }
                // No proof of an absence: a listing does not show either what is on a host that is no longer granted.
                // The next turn looks for itself.
                None => (self.memory.seen, self.memory.seen_at) = (None, None),
            }
        }
    }

    /// One turn: snapshot, decision, step, fold, status.
    async fn turn(&mut self, proxy: &Arc<Proxy>) -> After {
        let serving = self.proxies.providers.serving(&proxy.spec.provider);
        let (gathered, checked) = self.gather(proxy, &serving).await;
        let snapshot =
            Snapshot { proxy, inputs: &checked, provider: &serving.view, memory: &self.memory, now: Timestamp::now() };
        let step = decide(&snapshot);
        let (Some(provider), Some(gathered)) = (&serving.provider, &gathered) else {
            return self.step_without_provider(proxy, &serving, &checked, step).await;
        };
        let outcome = match step {
            Step::Place { avoid } => Outcome::Placed(self.call("place", provider.place(&gathered.spec, &avoid)).await),
            Step::Create(instance) => {
                Outcome::Created(self.call("create", provider.create(&instance, &gathered.spec)).await)
            }
            Step::Get(instance) => Outcome::Got(self.call("get", provider.get(&instance)).await),
            Step::Probe(endpoint) => match self.probe(proxy, gathered, endpoint).await {
                Some(outcome) => outcome,
                None => return After::Go,
            },
            other => return self.step_without_provider(proxy, &serving, &checked, other).await,
        };
        self.conclude(&serving, &checked, outcome).await
    }

    /// What the machine is made from. A Proxy that is being deleted needs nothing of it.
    async fn gather(&mut self, proxy: &Proxy, serving: &Serving) -> (Option<Inputs>, Result<()>) {
        let Some(provider) = &serving.provider else { return (None, Ok(())) };
        if proxy.metadata.deletion_timestamp.is_some() {
            return (None, Ok(()));
        }
        let kept = self
            .gathered
            .as_ref()
            .filter(|kept| kept.generation == proxy.metadata.generation && kept.at.elapsed() < INPUTS_MAX_AGE);
        let inputs = match kept {
            Some(kept) => kept.inputs.clone(),
            None => match inputs::gather(&self.proxies.store, proxy, &serving.name_prefix).await {
                Ok(inputs) => inputs,
                Err(error) => return (None, Err(error)),
            },
        };
        if kept.is_none() {
            let (generation, at) = (proxy.metadata.generation, Instant::now());
            self.gathered = Some(Gathered { inputs: inputs.clone(), generation, at });
        }
        match check_parameters(provider, proxy) {
            Ok(()) => (Some(inputs), Ok(())),
            Err(error) => (None, Err(error)),
        }
    }

    /// The steps that need no inputs.
    async fn step_without_provider(
        &mut self,
        proxy: &Arc<Proxy>,
        serving: &Serving,
        checked: &Result<()>,
        step: Step,
    ) -> After {
        let store = Arc::clone(&self.proxies.store);
        match step {
            Step::AddFinalizer => self.stored(store.add_finalizer(proxy).await.map(drop)),
            Step::RemoveFinalizer { abandoned } => {
                if let Some(what) = abandoned {
                    self.tell(&Event { warning: true, reason: "InstanceAbandoned".into(), message: what }).await;
                }
                match store.remove_finalizer(proxy).await {
                    Ok(()) => {
                        tracing::info!("deleted");
                        After::Go
                    }
                    Err(error) => self.stored(Err(error)),
                }
            }
            Step::Delete(instance, reason) => {
                let Some(provider) = &serving.provider else { return After::Rest(RESYNC) };
                let result = self.call("delete", provider.delete(&instance)).await;
                self.conclude(serving, checked, Outcome::Deleted(reason, result)).await
            }
            Step::Wait(waiting) => self.wait(serving, checked, waiting).await,
            // Released; another finalizer holds the object, or the store is about to forget it.
            Step::Nothing => After::Rest(RESYNC),
            Step::Place { .. } | Step::Create(_) | Step::Get(_) | Step::Probe(_) => After::Rest(STORE_RETRY),
        }
    }

    async fn wait(&mut self, serving: &Serving, checked: &Result<()>, waiting: Wait) -> After {
        let left =
            waiting.until.map(|until| Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default());
        let next = Next {
            message: waiting.message.clone(),
            until: waiting.until,
            probe: self.memory.probes.last.as_ref().map(describe_probe),
        };
        self.note(next).await;
        if waiting.phase.is_some()
            && matches!(self.conclude(serving, checked, Outcome::Waited(waiting)).await, After::End)
        {
            return After::End;
        }
        After::Rest(left.unwrap_or(RESYNC).min(RESYNC).max(Duration::from_millis(10)))
    }

    /// Makes a call for the instance.
    async fn call<T>(&mut self, call: &'static str, running: impl Future<Output = Result<T>>) -> Result<T> {
        let begun = Instant::now();
        let span = tracing::info_span!("call", call);
        let result = running.instrument(span).await;
        self.acted_at = Instant::now();
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        match &result {
            Ok(_) => tracing::debug!(call, ms, "done"),
            // The event that a failure makes is told once, at its own level.
            Err(error) => tracing::debug!(call, ms, code = %error.code, reason = error.reason, "{error}"),
        }
        result
    }

    /// Probes; `None`: something happened meanwhile that the next turn has to look at first.
    async fn probe(&mut self, proxy: &Proxy, inputs: &Inputs, endpoint: String) -> Option<Outcome> {
        let target = probe::Target {
            endpoint: endpoint.clone(),
            credentials: inputs.credentials.clone().map(|known| (known.username, known.password)),
            allow_from: proxy.spec.access.allow_from.clone(),
            probe: proxy.spec.probe.clone(),
        };
        tokio::select! {
            () = self.proxies.cancelled.cancelled() => None,
            () = self.wake.notified() => None,
            report = probe::probe(&target) => {
                let ms = u64::try_from(report.latency.as_millis()).unwrap_or(u64::MAX);
                tracing::debug!(endpoint, ms, reason = report.finding.reason(), "probed");
                Some(Outcome::Probed(endpoint, report))
            }
        }
    }

    /// Folds an outcome into the object as it is now, and writes what is new.
    async fn conclude(&mut self, serving: &Serving, checked: &Result<()>, outcome: Outcome) -> After {
        loop {
            let Some(proxy) = self.proxies.store.proxy(&self.key) else { return After::End };
            let snapshot = Snapshot {
                proxy: &proxy,
                inputs: checked,
                provider: &serving.view,
                memory: &self.memory,
                now: Timestamp::now(),
            };
            let jitter = rand::rng().random::<f64>();
            let Turn { status, memory, events, check_provider } = fold(&snapshot, outcome.clone(), jitter);
            let written = self.proxies.store.update_proxy_status(&proxy, status).await;
            let proxy = match written {
                Ok(proxy) => proxy,
                // Somebody else changed it: the outcome is folded into what it is now.
                Err(StoreError::Conflict(_)) => continue,
                Err(error) => return self.stored(Err(error)),
            };
            self.memory = memory;
            for event in &events {
                self.tell(event).await;
            }
            if check_provider {
                self.proxies.providers.request_check(&proxy.spec.provider);
            }
            self.connect(&proxy).await;
            return After::Go;
        }
    }

    /// Writes the endpoint beside the credentials when it is new.
    async fn connect(&mut self, proxy: &Proxy) {
        let endpoint = proxy.status.as_ref().and_then(|status| status.endpoint.clone());
        if endpoint.is_none() || endpoint == self.connected || proxy.metadata.deletion_timestamp.is_some() {
            return;
        }
        let store = &self.proxies.store;
        let result = async {
            let known = store.connection(&self.key).await?.unwrap_or_default();
            if known.endpoint != endpoint {
                store.put_connection(&self.key, &Connection { endpoint: endpoint.clone(), ..known }).await?;
            }
            Ok::<(), StoreError>(())
        };
        match result.await {
            Ok(()) => self.connected = endpoint,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the connection cannot be written");
            }
        }
    }

    async fn tell(&self, event: &Event) {
        if event.warning {
            tracing::warn!(reason = event.reason, "{}", event.message);
        } else {
            tracing::info!(reason = event.reason, "{}", event.message);
        }
        self.proxies.store.record_event(&self.key, event).await;
    }

    async fn note(&mut self, next: Next) {
        if self.noted != next {
            self.proxies.store.note_next(&self.key, &next).await;
            self.noted = next;
        }
    }

    /// How to go on after a write.
    fn stored(&self, result: std::result::Result<(), StoreError>) -> After {
        match result {
            Ok(()) | Err(StoreError::Conflict(_)) => After::Go,
            Err(StoreError::NotFound(_)) => After::End,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the object cannot be written");
                After::Rest(STORE_RETRY)
            }
        }
    }
}

fn check_parameters(provider: &LoadedProvider, proxy: &Proxy) -> Result<()> {
    let parameters = serde_json::Value::Object(proxy.spec.parameters.clone());
    provider.plugin().check_parameters(&parameters).map_err(|faults| {
        let told: Vec<String> =
            faults.iter().map(|fault| format!("spec.parameters{}: {}", fault.path, fault.message)).collect();
        Error::new(ErrorCode::InvalidProxy, "ParametersInvalid", told.join("; "))
    })
}

/// The last probe, for people.
fn describe_probe(report: &proxy_operator_core::probe::Report) -> String {
    format!("{} in {} ms", report.finding.reason(), report.latency.as_millis())
}
