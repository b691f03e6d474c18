use std::sync::Arc;
use std::time::Duration;

use proxy_operator_core::error::ErrorCode;
use proxy_operator_core::provider::Provider;
use proxy_operator_runtime::{LoadedProvider, Registry};
use serde_json::json;

use crate::support::{Hypervisor, Mood, capabilities, engine, hostile, hostile_that, instance, parts, plugin};

async fn serving(registry: &Registry) -> String {
    let provider = registry.get("home").unwrap();
    provider.get(&instance()).await.unwrap();
    provider.plugin().description().version.clone()
}

#[tokio::test]
async fn a_new_build_takes_over_and_calls_in_flight_end_on_the_old_one() {
    let (registry, slow) = (Registry::new(), Hypervisor::new(Mood::Slow(Duration::from_millis(300))));
    let load = async |version: &str, wish: &str| {
        let (bytes, parts) = (hostile_that("ok", version), parts(json!({"do": wish})));
        registry.load(&engine(), "hostile", bytes, parts, capabilities(&slow)).await.unwrap()
    };
    let old = load("0.1.0", "info").await;
    let asked = instance();
    let in_flight = old.get(&asked);
    let swap = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        load("0.2.0", "ok").await;
        serving(&registry).await
    };
    let (answer, version) = tokio::join!(in_flight, swap);
    assert_eq!((answer.unwrap().owner, version.as_str()), (asked.owner, "0.2.0"));
    assert_eq!(registry.names(), ["home"]);
}

#[tokio::test]
async fn a_failure_at_any_step_leaves_the_old_one_serving() {
    let (registry, well) = (Registry::new(), Hypervisor::new(Mood::Well));
    let ok = json!({"do": "ok"});
    registry.load(&engine(), "hostile", hostile(), parts(ok.clone()), capabilities(&well)).await.unwrap();
    for (what, bytes, config, code, part) in [
        ("no component", b"\0asm\x01\0\0\0".to_vec(), ok.clone(), ErrorCode::InvalidConfig, "core WebAssembly module"),
        ("describe traps", hostile_that("panic", "0.2.0"), ok.clone(), ErrorCode::Internal, "hostile panics"),
        ("bad schema", hostile_that("endless-schema", "0.2.0"), ok, ErrorCode::InvalidConfig, "refers to itself"),
        ("schema says no", hostile_that("ok", "0.2.0"), json!({"do": 7}), ErrorCode::InvalidConfig, "/do: 7 is not"),
        (
            "plugin says no",
            hostile_that("ok", "0.2.0"),
            json!({"validate": "faults"}),
            ErrorCode::InvalidConfig,
            "/do: \"x\" is not to be done",
        ),
        (
            "validate traps",
            hostile_that("ok", "0.2.0"),
            json!({"validate": "panic"}),
            ErrorCode::Internal,
            "in validate",
        ),
    ] {
        let error = registry.load(&engine(), "hostile", bytes, parts(config), capabilities(&well)).await.unwrap_err();
        assert_eq!(error.code, code, "{what}: {error}");
        assert!(error.message.contains(part), "{what}: {}", error.message);
        assert_eq!(serving(&registry).await, "0.1.0", "{what}");
    }
}

#[tokio::test]
async fn one_that_cannot_load_keeps_no_other_from_serving() {
    let (registry, well) = (Registry::new(), Hypervisor::new(Mood::Well));
    let mut other = parts(json!({}));
    other.provider = "broken".to_owned();
    let engine = engine();
    let broken = registry.load(&engine, "hostile", b"junk".to_vec(), other, capabilities(&well));
    let good = registry.load(&engine, "hostile", hostile(), parts(json!({})), capabilities(&well));
    let (broken, good) = tokio::join!(broken, good);
    assert!(broken.is_err() && good.is_ok());
    assert_eq!(serving(&registry).await, "0.1.0");
    assert!(registry.get("broken").is_none());
}

#[tokio::test]
async fn what_is_swapped_out_has_the_grants_of_its_successor_and_what_is_removed_has_none() {
    let registry = Registry::new();
    let (first, second) = (Hypervisor::new(Mood::Well), Hypervisor::new(Mood::Well));
    let new = async |hypervisor: &Arc<Hypervisor>| {
        let parts = parts(json!({"do": "info"}));
        Arc::new(LoadedProvider::new(plugin().await, parts, capabilities(hypervisor)).unwrap())
    };
    let old = new(&first).await;
    assert!(registry.swap(Arc::clone(&old)).is_none());
    registry.swap(new(&second).await).unwrap();
    old.get(&instance()).await.unwrap();
    let count = |hypervisor: &Hypervisor| hypervisor.calls.load(std::sync::atomic::Ordering::SeqCst);
    assert_eq!((count(&first), count(&second)), (0, 1));
    let removed = registry.remove("home").unwrap();
    assert_eq!(removed.get(&instance()).await.unwrap_err().reason, "GrantMissing");
    assert!(registry.get("home").is_none());
}
