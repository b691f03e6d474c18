//! One Provider: its plugin, its health, its listings.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use proxy_operator_api::condition::{self, Condition, ConditionStatus};
use proxy_operator_api::provider::{CheckStatus, PluginStatus, ProviderSpec};
use proxy_operator_api::{Provider, ProviderStatus, validate};
use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::names;
use proxy_operator_core::provider::{Check, Provider as _};
use proxy_operator_core::proxy::{Event, ProviderView};
use proxy_operator_runtime::{ContextParts, LoadedProvider};
use rand::RngExt as _;
use tracing::Instrument as _;

use super::grants::Identity;
use super::plugins::FileStamp;
use super::providers::{Entry, Providers, Serving};
use crate::limits::{
    HEALTH_INTERVAL, HEALTH_MIN_INTERVAL, INTERVAL_JITTER, LIST_INTERVAL, LOAD_RETRY, PLUGIN_FILE_INTERVAL,
    UNHEALTHY_INTERVAL,
};
use crate::store::{Key, Store, StoreError};

/// The plugin serves.
const LOADED: &str = "Loaded";
/// Every part of the infrastructure is healthy.
const HEALTHY: &str = "Healthy";

/// The task of one Provider.
pub(super) struct ProviderTask {
    name: String,
    providers: Arc<Providers>,
    entry: Arc<Entry>,
    /// What was loaded, or tried, last.
    tried: Option<Wanted>,
    retry_load_at: Option<Instant>,
    epoch: u64,
    was_healthy: Option<bool>,
    checked_at: Option<Instant>,
    health_at: Instant,
    list_at: Instant,
}

/// What decides whether a Provider has to be loaded anew.
#[derive(Clone, PartialEq)]
struct Wanted {
    spec: ProviderSpec,
    file: Option<FileStamp>,
}

// === impl ProviderTask ===

impl ProviderTask {
    pub(super) fn new(name: String, providers: Arc<Providers>, entry: Arc<Entry>) -> Self {
        Self {
            name,
            providers,
            entry,
            tried: None,
            retry_load_at: None,
            epoch: 0,
            was_healthy: None,
            checked_at: None,
            health_at: Instant::now(),
            list_at: Instant::now(),
        }
    }

    /// Runs until the Provider is gone or the program ends.
    pub(super) async fn run(mut self) {
        let span = tracing::info_span!("provider", provider = self.name);
        async move {
            while let Some(object) = self.providers.store.provider(&self.name) {
                self.turn(&object).await;
                tokio::select! {
                    () = self.providers.cancelled.cancelled() => return,
                    () = self.entry.wake.notified() => {}
                    () = tokio::time::sleep(self.wait()) => {}
                }
            }
            self.providers.registry.remove(&self.name);
            self.providers.granting.withdraw(&self.name);
            self.providers.forget(&self.name);
            let name_prefix = names::name_prefix(self.providers.store.cluster_id(), &self.name);
            let gone = Serving { view: ProviderView::Absent, provider: None, name_prefix };
            self.providers.publish(&self.name, &self.entry, gone);
        }
        .instrument(span)
        .await;
    }

    async fn turn(&mut self, object: &Provider) {
        let wanted = Wanted { spec: object.spec.clone(), file: self.providers.plugins.stamp(&object.spec.plugin.name) };
        let is_retry_due = self.retry_load_at.is_some_and(|at| Instant::now() >= at);
        if self.tried.as_ref() != Some(&wanted) || is_retry_due {
            self.load(object, wanted).await;
        }
        let Some(provider) = self.providers.registry.get(&self.name) else { return };
        let changed =
            changed(Arc::clone(&self.providers.store), self.name.clone(), Arc::clone(&self.entry), &object.spec);
        // A host that hangs must not keep a change of grants waiting.
        tokio::select! {
            () = self.look(&provider) => {}
            () = changed => {}
        }
    }

    /// Checks and lists, where that is due.
    async fn look(&mut self, provider: &LoadedProvider) {
        if self.is_check_due() {
            self.check(provider).await;
        }
        if Instant::now() >= self.list_at {
            self.list_at = Instant::now() + jittered(LIST_INTERVAL);
            self.list(provider).await;
        }
    }

    /// Until the next thing that is due by the clock.
    fn wait(&self) -> Duration {
        let now = Instant::now();
        let retry = self.retry_load_at.map(|at| at.saturating_duration_since(now));
        let check = self.health_at.min(self.list_at).saturating_duration_since(now);
        PLUGIN_FILE_INTERVAL.min(check).min(retry.unwrap_or(Duration::MAX)).max(Duration::from_millis(50))
    }

    fn is_check_due(&self) -> bool {
        let is_rested = self.checked_at.is_none_or(|at| at.elapsed() >= HEALTH_MIN_INTERVAL);
        let is_requested = is_rested && self.entry.is_check_requested.swap(false, Ordering::AcqRel);
        is_requested || Instant::now() >= self.health_at
    }

    /// Loads what is wanted. A failure leaves what serves in its place, with the grants of today.
    async fn load(&mut self, object: &Provider, wanted: Wanted) {
        let result = self.configure(object).await;
        self.tried = Some(wanted);
        self.retry_load_at = None;
        self.epoch += 1;
        let store = &self.providers.store;
        let serving = self.providers.registry.get(&self.name);
        let (holds, reason, message) = match &result {
            Ok(provider) => {
                self.health_at = Instant::now();
                self.list_at = Instant::now();
                (true, "Loaded", format!("plugin {} serves", provider.plugin().identity()))
            }
            Err(error) => {
                self.retry_load_at = error.code.is_transient().then(|| Instant::now() + LOAD_RETRY);
                let kept = serving.as_ref().map(|old| format!("; {} serves on", old.plugin().identity()));
                (false, error.reason.as_str(), format!("{error}{}", kept.unwrap_or_default()))
            }
        };
        if let Err(error) = &result {
            tracing::error!(reason = error.reason, code = %error.code, "{message}");
        } else {
            tracing::info!("{message}");
        }
        let plugin = serving.as_ref().map(|provider| plugin_status(provider));
        update_status(&**store, &self.name, |status, object| {
            status.plugin.clone_from(&plugin);
            set(status, object, LOADED, holds.into(), reason, &message);
            if plugin.is_none() {
                set(status, object, HEALTHY, ConditionStatus::Unknown, reason, "no plugin serves");
            }
        })
        .await;
        let view = match (&serving, result) {
            (Some(_), _) => ProviderView::Serving {
                epoch: self.epoch,
                paused: object.spec.paused,
                endpoints: object.spec.grants.endpoints.as_ref().map(|grant| grant.cidrs.clone()).unwrap_or_default(),
            },
            (None, Err(error)) => ProviderView::NotServing { reason: error.reason.clone(), message: error.to_string() },
            (None, Ok(_)) => ProviderView::Absent,
        };
        self.publish(view, serving);
    }

    async fn configure(&self, object: &Provider) -> Result<Arc<LoadedProvider>> {
        let spec = &object.spec;
        let identity = Identity {
            cluster_id: self.providers.store.cluster_id().to_owned(),
            provider: self.name.clone(),
            name_prefix: names::name_prefix(self.providers.store.cluster_id(), &self.name),
        };
        // Grants first: whatever becomes of plugin and config, nothing keeps what was taken away.
        let capabilities = self.providers.granting.grant(&identity, &spec.grants);
        if let Some(old) = self.providers.registry.get(&self.name) {
            old.set_capabilities(capabilities.clone());
        }
        let faults = validate::provider(spec);
        if !faults.is_empty() {
            let message = faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
            return Err(Error::invalid_config("GrantInvalid", message));
        }
        let plugin = self.providers.plugins.load(&spec.plugin.name).await?;
        let parts = ContextParts {
            provider: identity.provider,
            cluster_id: identity.cluster_id,
            name_prefix: identity.name_prefix,
            config: serde_json::Value::Object(spec.config.clone()),
            call_timeout: spec.limits.call_seconds.map(|seconds| Duration::from_secs(seconds.into())),
            concurrent_calls: spec.limits.concurrent_calls.and_then(|calls| usize::try_from(calls).ok()),
        };
        self.providers.registry.configure(plugin, parts, capabilities).await
    }

    async fn check(&mut self, provider: &LoadedProvider) {
        let (checks, holds, reason, message) = match provider.health().await {
            Ok(checks) => summarize(checks),
            Err(error) => (vec![], false, error.reason.clone(), error.to_string()),
        };
        self.checked_at = Some(Instant::now());
        self.health_at = Instant::now() + jittered(if holds { HEALTH_INTERVAL } else { UNHEALTHY_INTERVAL });
        if self.was_healthy != Some(holds) {
            let event = Event { warning: !holds, reason: reason.clone(), message: message.clone() };
            self.providers.store.record_event(&Key::provider(&self.name), &event).await;
            if holds {
                tracing::info!(reason, "{message}");
            } else {
                tracing::warn!(reason, "{message}");
            }
        }
        // What was mended ends the waits of its Proxies at once.
        let is_mended = self.was_healthy == Some(false) && holds;
        self.was_healthy = Some(holds);
        update_status(&*self.providers.store, &self.name, |status, object| {
            status.checks.clone_from(&checks);
            set(status, object, HEALTHY, holds.into(), &reason, &message);
        })
        .await;
        if is_mended {
            self.epoch += 1;
            let serving = self.providers.serving(&self.name);
            let mut view = serving.view.clone();
            if let ProviderView::Serving { epoch, .. } = &mut view {
                *epoch = self.epoch;
            }
            self.publish(view, serving.provider.clone());
        }
    }

    async fn list(&self, provider: &LoadedProvider) {
        let Some(proxies) = self.providers.proxies() else { return };
        let watched = proxies.placed(&self.name);
        if watched.is_empty() {
            return;
        }
        let begun = Instant::now();
        match provider.list(None).await {
            Ok(page) => proxies.sighted(&watched, &page, begun),
            Err(error) => tracing::debug!(reason = error.reason, "the instances cannot be listed: {error}"),
        }
    }

    fn publish(&self, view: ProviderView, provider: Option<Arc<LoadedProvider>>) {
        let name_prefix = names::name_prefix(self.providers.store.cluster_id(), &self.name);
        self.providers.publish(&self.name, &self.entry, Serving { view, provider, name_prefix });
    }
}

fn plugin_status(provider: &LoadedProvider) -> PluginStatus {
    let plugin = provider.plugin();
    PluginStatus {
        name: plugin.description().name.clone(),
        version: plugin.description().version.clone(),
        digest: plugin.digest().to_owned(),
        wit: plugin.wit_version().to_string(),
    }
}

/// What the checks of all parts say together.
fn summarize(checks: Vec<Check>) -> (Vec<CheckStatus>, bool, String, String) {
    let checks: Vec<CheckStatus> = checks
        .into_iter()
        .map(|Check { subject, detail, error }| match error {
            None => CheckStatus { subject, healthy: true, reason: HEALTHY.to_owned(), message: detail },
            Some(error) => {
                let message = error.to_string();
                CheckStatus { subject, healthy: false, reason: error.reason, message }
            }
        })
        .collect();
    let faults: Vec<&CheckStatus> = checks.iter().filter(|check| !check.healthy).collect();
    let (holds, reason) = faults.first().map_or((true, HEALTHY), |fault| (false, fault.reason.as_str()));
    let told = |check: &CheckStatus| format!("{}: {}", check.subject, check.message);
    let message = if faults.is_empty() {
        checks.iter().map(told).collect::<Vec<_>>().join("; ")
    } else {
        faults.iter().map(|fault| told(fault)).collect::<Vec<_>>().join("; ")
    };
    (checks.clone(), holds, reason.to_owned(), message)
}

fn set(
    status: &mut ProviderStatus,
    object: &Provider,
    type_: &str,
    holds: ConditionStatus,
    reason: &str,
    message: &str,
) {
    let now = Timestamp::now();
    let condition = Condition {
        type_: type_.to_owned(),
        status: holds,
        reason: reason.to_owned(),
        message: message.to_owned(),
        last_transition_time: Timestamp::from_second(now.as_second()).unwrap_or(now).to_string(),
        observed_generation: object.metadata.generation,
    };
    condition::set(&mut status.conditions, condition);
    status.observed_generation = object.metadata.generation;
}

/// Changes the status of a Provider as it is now, again when it moves on meanwhile.
async fn update_status(store: &dyn Store, name: &str, change: impl Fn(&mut ProviderStatus, &Provider)) {
    while let Some(object) = store.provider(name) {
        let mut status = object.status.clone().unwrap_or_default();
        change(&mut status, &object);
        match store.update_provider_status(&object, status).await {
            Ok(_) | Err(StoreError::NotFound(_)) => return,
            Err(StoreError::Conflict(_)) => tokio::task::yield_now().await,
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "the status cannot be written");
                return;
            }
        }
    }
}

/// Waits until the spec is another one, or the Provider is gone.
async fn changed(store: Arc<dyn Store>, name: String, entry: Arc<Entry>, spec: &ProviderSpec) {
    while store.provider(&name).is_some_and(|object| object.spec == *spec) {
        entry.wake.notified().await;
    }
}

fn jittered(interval: Duration) -> Duration {
    interval.mul_f64(1.0 + rand::rng().random_range(-INTERVAL_JITTER..INTERVAL_JITTER))
}
