use std::sync::Arc;
use std::time::Duration;

use proxy_operator_core::capability::Capabilities;
use proxy_operator_core::error::ErrorCode;
use proxy_operator_core::provider::Provider;
use proxy_operator_runtime::{LoadedProvider, Plugin};
use serde_json::json;

use crate::support::{
    Hypervisor, Mood, capabilities, engine, hostile_that, instance, parts, plugin, provider, provider_on,
};

#[tokio::test]
async fn what_is_not_granted_is_denied_by_name() {
    for (wish, function, grant) in
        [("info", "libvirt.info", "spec.grants.libvirt"), ("ensure", "images.ensure", "spec.grants.images")]
    {
        let provider =
            LoadedProvider::new(plugin().await, parts(json!({"do": wish})), Capabilities::default()).unwrap();
        let error = provider.get(&instance()).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::PermissionDenied, "GrantMissing"));
        assert!(error.message.contains(function) && error.message.contains(grant), "{}", error.message);
    }
}

#[tokio::test]
async fn hosts_tells_what_is_granted() {
    let error = provider("hosts").await.get(&instance()).await.unwrap_err();
    assert_eq!(error.message, "hosts: hv1,hv2");
    let bare = LoadedProvider::new(plugin().await, parts(json!({"do": "hosts"})), Capabilities::default()).unwrap();
    assert_eq!(bare.get(&instance()).await.unwrap_err().message, "hosts: ");
}

#[tokio::test]
async fn a_capability_s_error_passes_through_a_guest_unchanged() {
    let down = Hypervisor::new(Mood::Down);
    let provider = provider_on(plugin().await, "info", &down, Duration::from_secs(20)).await;
    let error = provider.get(&instance()).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Unavailable, "HostUnreachable"));
    assert_eq!(error.to_string(), "host hv1: no route (VIR_ERR_SYSTEM_ERROR, 38)");
}

#[tokio::test]
async fn describe_reaches_nothing_but_its_log() {
    for (wish, function) in [("hosts", "libvirt.hosts"), ("info", "libvirt.info"), ("ensure", "images.ensure")] {
        let error = Plugin::load(&engine(), "hostile", hostile_that(wish, "0.1.0")).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTrapped"));
        assert!(error.message.contains(&format!("it called {function} in describe")), "{}", error.message);
    }
    Plugin::load(&engine(), "hostile", hostile_that("strange-lines", "0.1.0")).await.unwrap();
}

#[tokio::test]
async fn validate_may_ask_for_names_and_for_nothing_else() {
    let well = Hypervisor::new(Mood::Well);
    let validating = async |wish: &str| {
        let parts = parts(json!({"validate": wish}));
        LoadedProvider::new(plugin().await, parts, capabilities(&well)).unwrap().validate().await
    };
    let faults = validating("hosts").await.unwrap().unwrap_err();
    assert_eq!(faults[0].message, "hosts: hv1,hv2");
    for (wish, function) in [("info", "libvirt.info"), ("ensure", "images.ensure")] {
        let error = validating(wish).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTrapped"));
        assert!(error.message.contains(&format!("it called {function} in validate")), "{}", error.message);
    }
}

#[tokio::test]
async fn a_grant_that_is_taken_away_is_gone_for_calls_in_flight() {
    let well = Hypervisor::new(Mood::Well);
    let provider = Arc::new(provider_on(plugin().await, "info-twice", &well, Duration::from_secs(20)).await);
    let taken = Arc::clone(&provider);
    *well.on_info.lock().unwrap() = Some(Box::new(move || taken.set_capabilities(Capabilities::default())));
    let error = provider.get(&instance()).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::PermissionDenied, "GrantMissing"));
    assert_eq!(well.calls.load(std::sync::atomic::Ordering::SeqCst), 1);
}
