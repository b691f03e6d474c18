//! A plugin configured for one Provider object.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use proxy_operator_core::capability::Capabilities;
use proxy_operator_core::error::{Error, ErrorCode, Result};
use proxy_operator_core::provider::{
    Check, Context, Deletion, Fault, Instance, InstanceRef, InstanceSpec, Page, Provider,
};
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::bounds::{input, result};
use crate::call::Call;
use crate::guest_log::LogRate;
use crate::limits;
use crate::plugin::Plugin;
use crate::redact::Redactor;
use crate::store::{Grants, Reach};
use crate::watch::Watch;

/// What a Provider object says of the calls that are made for it.
#[derive(Clone, Debug)]
pub struct ContextParts {
    /// The name of the Provider object.
    pub provider: String,
    /// Identifies the operator's installation: `[a-z0-9]{1,20}`.
    pub cluster_id: String,
    /// What every name of an instance of this Provider begins with.
    pub name_prefix: String,
    /// `Provider.spec.config`.
    pub config: serde_json::Value,
    /// The time each call may take. `None`: [`limits::CALL_TIMEOUT`].
    pub call_timeout: Option<Duration>,
    /// Calls at once. `None`: [`limits::CONCURRENT_CALLS`].
    pub concurrent_calls: Option<usize>,
}

/// A plugin, the config of one Provider, and what it was granted.
pub struct LoadedProvider {
    plugin: Arc<Plugin>,
    context: Context,
    grants: Grants,
    concurrent_calls: usize,
    turns: Semaphore,
    log_rate: Arc<LogRate>,
}

// === impl LoadedProvider ===

impl LoadedProvider {
    /// Puts the parts together. Asks nobody; `validate` does.
    pub fn new(plugin: Arc<Plugin>, parts: ContextParts, capabilities: Capabilities) -> Result<Self> {
        let ContextParts { provider, cluster_id, name_prefix, config, call_timeout, concurrent_calls } = parts;
        let config = config.to_string();
        input(ErrorCode::InvalidConfig, "spec.config", config.len(), limits::CONFIG)?;
        let timeout = call_timeout.unwrap_or(limits::CALL_TIMEOUT);
        let concurrent_calls = concurrent_calls.unwrap_or(limits::CONCURRENT_CALLS).clamp(1, limits::GUESTS as usize);
        Ok(Self {
            plugin,
            context: Context { provider, cluster_id, name_prefix, config, timeout },
            grants: Grants::new(capabilities),
            concurrent_calls,
            turns: Semaphore::new(concurrent_calls),
            log_rate: Arc::new(LogRate::new()),
        })
    }

    /// The build that serves it.
    pub fn plugin(&self) -> &Arc<Plugin> {
        &self.plugin
    }

    /// The name of the Provider object.
    pub fn name(&self) -> &str {
        &self.context.provider
    }

    /// Asks the plugin what is wrong with the config beyond its schema. The outer error: it could not say.
    pub async fn validate(&self) -> Result<std::result::Result<(), Vec<Fault>>> {
        let _turn = self.turn("validate").await?;
        let mut call = self.call("validate", "", Redactor::default());
        call.timeout = self.context.timeout.min(limits::BARE_CALL_TIMEOUT);
        call.reach = Reach::Names(self.grants.clone());
        let faults =
            call.run(|mut store, guest| async move { guest.validate(&mut store, &self.context).await }).await?;
        Ok(if faults.is_empty() { Ok(()) } else { Err(faults) })
    }

    /// Replaces what was granted. It applies at once, to calls in flight too.
    pub fn set_capabilities(&self, capabilities: Capabilities) {
        self.grants.set(capabilities);
    }

    pub(crate) fn grants(&self) -> &Grants {
        &self.grants
    }

    /// Waits for one of the Provider's turns, for as long as a call may take.
    async fn turn(&self, method: &str) -> Result<SemaphorePermit<'_>> {
        let timeout = self.context.timeout;
        match tokio::time::timeout(timeout, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            Ok(Err(_)) | Err(_) => {
                let (provider, most) = (&self.context.provider, self.concurrent_calls);
                let message =
                    format!("{method} of Provider {provider} waited {timeout:?} for one of its {most} calls at once");
                Err(Error::deadline_exceeded("CallsQueued", message))
            }
        }
    }

    fn call<'a>(&'a self, method: &'static str, proxy: &'a str, redactor: Redactor) -> Call<'a> {
        Call {
            engine: self.plugin.engine(),
            linked: self.plugin.linked(),
            identity: self.plugin.identity_of_call(),
            provider: &self.context.provider,
            method,
            proxy,
            timeout: self.context.timeout,
            reach: Reach::Granted(self.grants.clone()),
            watch: Watch::new(redactor, Arc::clone(&self.log_rate)),
        }
    }

    async fn page(&self, owner: Option<&str>, cursor: Option<&str>) -> Result<Page> {
        let _turn = self.turn("list").await?;
        let call = self.call("list", owner.unwrap_or_default(), Redactor::default());
        call.run(|mut store, guest| async move { guest.list(&mut store, &self.context, owner, cursor).await }).await
    }
}

#[async_trait]
impl Provider for LoadedProvider {
    async fn place(&self, spec: &InstanceSpec, avoid: &[String]) -> Result<String> {
        check_spec(spec)?;
        input(ErrorCode::InvalidProxy, "the list of places to avoid", avoid.len(), limits::PLACES)?;
        let _turn = self.turn("place").await?;
        let call = self.call("place", &spec.display_name, Redactor::new(spec));
        call.run(|mut store, guest| async move { guest.place(&mut store, &self.context, spec, avoid).await }).await
    }

    async fn create(&self, instance: &InstanceRef, spec: &InstanceSpec) -> Result<Instance> {
        check_spec(spec)?;
        check_ref(instance)?;
        let _turn = self.turn("create").await?;
        let call = self.call("create", &spec.display_name, Redactor::new(spec));
        let created = call
            .run(|mut store, guest| async move { guest.create(&mut store, &self.context, instance, spec).await })
            .await?;
        same("create", instance, created)
    }

    async fn get(&self, instance: &InstanceRef) -> Result<Instance> {
        check_ref(instance)?;
        let _turn = self.turn("get").await?;
        let call = self.call("get", &instance.owner, Redactor::default());
        let got =
            call.run(|mut store, guest| async move { guest.get(&mut store, &self.context, instance).await }).await?;
        same("get", instance, got)
    }

    async fn list(&self, owner: Option<&str>) -> Result<Page> {
        let mut whole = Page::default();
        let (mut cursor, mut seen) = (None::<String>, HashSet::new());
        loop {
            let Page { instances, next, gaps } = self.page(owner, cursor.as_deref()).await?;
            whole.instances.extend(instances);
            whole.gaps.extend(gaps);
            result("a listing", whole.instances.len(), limits::LISTING)?;
            result("the gaps of a listing", whole.gaps.len(), limits::GAPS)?;
            let Some(next) = next else { return Ok(whole) };
            if !seen.insert(next.clone()) || seen.len() >= limits::PAGES {
                let message =
                    format!("list of Provider {} does not end: page {} leads to another", self.name(), seen.len() + 1);
                return Err(Error::internal("ResultTooLarge", message));
            }
            cursor = Some(next);
        }
    }

    async fn delete(&self, instance: &InstanceRef) -> Result<Deletion> {
        check_ref(instance)?;
        let _turn = self.turn("delete").await?;
        let call = self.call("delete", &instance.owner, Redactor::default());
        match call
            .run(|mut store, guest| async move { guest.delete(&mut store, &self.context, instance).await })
            .await?
        {
            Deletion::Pending(pending) => Ok(Deletion::Pending(Box::new(same("delete", instance, *pending)?))),
            ended @ (Deletion::Done | Deletion::Abandoned(_)) => Ok(ended),
        }
    }

    async fn health(&self) -> Result<Vec<Check>> {
        let _turn = self.turn("health").await?;
        let call = self.call("health", "", Redactor::default());
        call.run(|mut store, guest| async move { guest.health(&mut store, &self.context).await }).await
    }
}

impl std::fmt::Debug for LoadedProvider {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LoadedProvider({}, {:?})", self.context.provider, self.plugin)
    }
}

/// An answer for one instance is of that instance: the operator records what it says.
fn same(method: &str, asked: &InstanceRef, answer: Instance) -> Result<Instance> {
    if answer.id == asked.id && answer.owner == asked.owner {
        return Ok(answer);
    }
    let message = format!(
        "{method} was asked for {} of owner {}, the plugin answered for {} of owner {}",
        asked.id, asked.owner, answer.id, answer.owner
    );
    Err(Error::internal("ResultInvalid", message))
}

fn check_ref(instance: &InstanceRef) -> Result<()> {
    let InstanceRef { id, owner, private_state } = instance;
    let check = |item, size, most| input(ErrorCode::Internal, item, size, most);
    check("the instance's id", id.len(), limits::ID)?;
    check("the owner", owner.len(), limits::NAME)?;
    check("the private state", private_state.as_ref().map_or(0, String::len), limits::PRIVATE_STATE)
}

fn check_spec(spec: &InstanceSpec) -> Result<()> {
    let InstanceSpec {
        owner: _,
        name: _,
        display_name: _,
        machine_type,
        image,
        placement,
        software,
        cloud_init,
        parameters,
    } = spec;
    let check = |item, size, most| input(ErrorCode::InvalidProxy, item, size, most);
    let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    check("spec.machineType", length(machine_type), limits::NAME)?;
    check("spec.image", length(image), limits::URL)?;
    check("spec.placement", placement.len(), limits::PLACES)?;
    check("the credentials of the proxy", software.access.credentials.len(), limits::ACCESS_ITEMS)?;
    check("spec.access.allowFrom", software.access.allow_from.len(), limits::ACCESS_ITEMS)?;
    check("spec.access.allowPrivateDestinations", software.access.private_destinations.len(), limits::ACCESS_ITEMS)?;
    check("the user-data", cloud_init.user_data.expose().len(), limits::CLOUD_INIT)?;
    check(
        "the vendor-data",
        cloud_init.vendor_data.as_ref().map_or(0, |data| data.expose().len()),
        limits::CLOUD_INIT,
    )?;
    check("spec.parameters", parameters.len(), limits::PARAMETERS)
}
