//! What the tests share: an engine, a provider that does what it is told, a hypervisor that does too, a log.

mod guest;
mod hypervisor;
mod log;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use proxy_operator_core::capability::Capabilities;
use proxy_operator_core::provider::{Access, Author, CloudInit, Credential, InstanceRef, InstanceSpec, Software};
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_runtime::{ContextParts, Engine, EngineSettings, LoadedProvider, Plugin};
use serde_json::{Value, json};

pub(crate) use guest::{hostile, hostile_that, replaced};
pub(crate) use hypervisor::{Hypervisor, Mood};
pub(crate) use log::Lines;

pub(crate) const OWNER: &str = "0f8b1c1e-2d0c-4a52-9f5e-6c5a0d9b7e11";

/// User-data with a line that must not be found anywhere else.
pub(crate) const USER_DATA: &str = "#cloud-config\nwrite_files:\n- content: \"top-secret-token-4711\"\n";

pub(crate) const PASSWORD_HASH: &str = "$5$saltsalt$kGGlKqcmMCtWc9Zl5KnHU4q4aOJqDQmDyJ9Tt8bq3r5";

/// One engine with a pool and one without, shared by the tests of a process.
pub(crate) fn engine() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(EngineSettings::default()).unwrap()).clone()
}

pub(crate) fn engine_on_demand() -> Engine {
    static ENGINE: OnceLock<Engine> = OnceLock::new();
    ENGINE.get_or_init(|| Engine::new(EngineSettings { on_demand: true, ..Default::default() }).unwrap()).clone()
}

/// The hostile plugin on the engine with a pool, compiled once.
pub(crate) async fn plugin() -> Arc<Plugin> {
    static PLUGIN: tokio::sync::OnceCell<Arc<Plugin>> = tokio::sync::OnceCell::const_new();
    let load = || async { Plugin::load(&engine(), "hostile", hostile()).await.unwrap() };
    Arc::clone(PLUGIN.get_or_init(load).await)
}

pub(crate) fn parts(config: Value) -> ContextParts {
    ContextParts {
        provider: "home".to_owned(),
        cluster_id: "c1".to_owned(),
        name_prefix: "px0123456789-".to_owned(),
        config,
        call_timeout: None,
        concurrent_calls: None,
    }
}

/// A provider whose calls all do one thing, with grants for a hypervisor.
pub(crate) async fn provider_on(
    plugin: Arc<Plugin>,
    wish: &str,
    hypervisor: &Arc<Hypervisor>,
    timeout: Duration,
) -> LoadedProvider {
    let parts = ContextParts { call_timeout: Some(timeout), ..parts(json!({"do": wish})) };
    LoadedProvider::new(plugin, parts, capabilities(hypervisor)).unwrap()
}

pub(crate) async fn provider(wish: &str) -> LoadedProvider {
    provider_on(plugin().await, wish, &Hypervisor::new(Mood::Well), Duration::from_secs(20)).await
}

pub(crate) fn capabilities(hypervisor: &Arc<Hypervisor>) -> Capabilities {
    let (libvirt, images) = (Arc::clone(hypervisor), Arc::clone(hypervisor));
    Capabilities { libvirt: Some(libvirt), images: Some(images) }
}

pub(crate) fn instance() -> InstanceRef {
    let id = format!("hosts/hv1/domains/px0123456789-{OWNER}");
    InstanceRef { id, owner: OWNER.to_owned(), private_state: None }
}

pub(crate) fn spec() -> InstanceSpec {
    let credential = Credential { username: "u".to_owned(), password_hash: Sensitive::new(PASSWORD_HASH.to_owned()) };
    InstanceSpec {
        owner: OWNER.to_owned(),
        name: format!("px0123456789-{OWNER}"),
        display_name: "crawlers/crawl-1".to_owned(),
        machine_type: Some("small".to_owned()),
        image: None,
        placement: Vec::new(),
        software: Software {
            name: "squid".to_owned(),
            port: 3128,
            access: Access { credentials: vec![credential], ..Access::default() },
        },
        cloud_init: CloudInit {
            user_data: Sensitive::new(USER_DATA.as_bytes().to_vec()),
            author: Author::User,
            vendor_data: None,
        },
        parameters: "{}".to_owned(),
    }
}
