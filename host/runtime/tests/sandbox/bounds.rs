use std::time::Duration;

use proxy_operator_core::error::ErrorCode;
use proxy_operator_core::provider::{Deletion, Phase, Provider};
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_runtime::{LoadedProvider, limits};
use serde_json::json;

use crate::support::{Hypervisor, Mood, capabilities, instance, parts, plugin, provider, spec};

#[tokio::test]
async fn an_argument_of_a_capability_over_its_bound_is_the_proxy_s_fault() {
    for (wish, item, most) in [
        ("long-host", "libvirt.info: host", "256"),
        ("large-volume", "libvirt.write-volume: content", "8388608"),
        ("many-disks", "libvirt.define-domain: spec.disks", "8"),
    ] {
        let error = provider(wish).await.get(&instance()).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidProxy, "TooLarge"), "{wish}: {error}");
        assert!(
            error.message.contains(item) && error.message.contains(&format!("at most {most}")),
            "{}",
            error.message
        );
    }
}

#[tokio::test]
async fn a_result_over_its_bound_is_the_plugin_s_fault() {
    for (wish, item) in [
        ("long-id", "instance.id"),
        ("long-state", "instance.private-state"),
        ("many-addresses", "instance.addresses"),
        ("bomb", "more data than 32 MiB"),
    ] {
        let error = provider(wish).await.get(&instance()).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "ResultTooLarge"), "{wish}: {error}");
        assert!(error.message.contains(item), "{}", error.message);
    }
    let error = provider("huge-volume").await.get(&instance()).await.unwrap_err();
    assert_eq!(error.reason, "ResultTooLarge", "{error}");
    assert_eq!(provider("many-checks").await.health().await.unwrap_err().reason, "ResultTooLarge");
    assert_eq!(provider("long-id").await.place(&spec(), &[]).await.unwrap_err().reason, "ResultTooLarge");
}

#[tokio::test]
async fn an_answer_for_another_instance_is_refused() {
    for wish in ["other-id", "other-owner"] {
        let error = provider(wish).await.get(&instance()).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "ResultInvalid"), "{wish}");
    }
    assert_eq!(provider("other-id").await.delete(&instance()).await.unwrap_err().reason, "ResultInvalid");
    assert_eq!(provider("strange-id").await.get(&instance()).await.unwrap_err().reason, "ResultInvalid");
}

#[tokio::test]
async fn texts_are_cut_and_reasons_are_words() {
    let long = provider("long-message").await.get(&instance()).await.unwrap();
    assert!(long.message.len() <= 2048 && long.message.ends_with("ä…"), "{}", long.message.len());
    assert_eq!(provider("strange-reason").await.get(&instance()).await.unwrap().reason, "Other");
    assert_eq!(provider("percent").await.get(&instance()).await.unwrap().percent, Some(100));

    let error = provider("strange-error").await.get(&instance()).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Exhausted, "Other"));
    assert!(error.message.starts_with("tab\\there mmm") && error.message.len() <= 2048);
    assert_eq!(error.backend.unwrap().code.len(), 128);
    assert_eq!(error.retry_after, Some(Duration::from_secs(24 * 60 * 60)));
}

#[tokio::test]
async fn a_plugin_s_error_is_passed_on() {
    let error = provider("plain-error").await.create(&instance(), &spec()).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Exhausted, "QuotaExhausted"));
    assert_eq!(error.to_string(), "no CPUs left (QUOTA, 403)");
    assert_eq!(error.retry_after, Some(Duration::from_secs(90)));
}

#[tokio::test]
async fn an_error_belongs_to_what_failed_and_to_nothing_else() {
    let failed = provider("failed").await.get(&instance()).await.unwrap();
    assert_eq!((failed.phase, failed.error.unwrap().code), (Phase::Failed, ErrorCode::Internal));
    let running = provider("error-while-running").await.get(&instance()).await.unwrap();
    assert_eq!((running.phase, running.error), (Phase::Running, None));
}

#[tokio::test]
async fn pages_are_joined_and_have_an_end() {
    let listed = provider("three-pages").await.list(None).await.unwrap();
    let ids: Vec<&str> = listed.instances.iter().map(|i| i.id.rsplit('/').next().unwrap()).collect();
    assert_eq!(ids, ["p0-0", "p0-1", "p1-0", "p1-1", "p2-0", "p2-1"]);
    let gaps: Vec<&str> = listed.gaps.iter().map(|g| g.id_prefix.as_str()).collect();
    assert_eq!((gaps, listed.next), (vec!["hosts/hv0/", "hosts/hv1/", "hosts/hv2/"], None));
    for wish in ["endless-pages", "circling-pages", "many-instances", "full-pages"] {
        let error = provider(wish).await.list(None).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "ResultTooLarge"), "{wish}: {error}");
    }
}

#[tokio::test]
async fn deletions_are_told_apart() {
    assert_eq!(provider("ok").await.delete(&instance()).await.unwrap(), Deletion::Done);
    assert!(matches!(provider("deleting").await.delete(&instance()).await.unwrap(), Deletion::Pending(_)));
    let abandoned = provider("abandon").await.delete(&instance()).await.unwrap();
    assert_eq!(abandoned, Deletion::Abandoned("left\\nbehind".to_owned()));
}

#[tokio::test]
async fn what_a_guest_is_given_is_bounded_too() {
    let provider = provider("ok").await;
    let mut large = spec();
    large.cloud_init.user_data = Sensitive::new(vec![b'x'; limits::CLOUD_INIT + 1]);
    let error = provider.create(&instance(), &large).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidProxy, "TooLarge"));
    assert!(error.message.contains("the user-data has 1048577 bytes"), "{}", error.message);
    large.cloud_init.user_data = Sensitive::new(vec![b'x'; limits::CLOUD_INIT]);
    provider.create(&instance(), &large).await.unwrap();

    let config = json!({"do": "x".repeat(limits::CONFIG)});
    let error =
        LoadedProvider::new(plugin().await, parts(config), capabilities(&Hypervisor::new(Mood::Well))).unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidConfig, "TooLarge"));
}

#[tokio::test]
async fn faults_beyond_what_can_be_shown_are_left_out() {
    let parts = parts(json!({"validate": "many-faults"}));
    let provider = LoadedProvider::new(plugin().await, parts, capabilities(&Hypervisor::new(Mood::Well))).unwrap();
    assert_eq!(provider.validate().await.unwrap().unwrap_err().len(), limits::FAULTS);
}
