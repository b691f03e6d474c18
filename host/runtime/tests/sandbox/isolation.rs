use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proxy_operator_core::error::{Error, ErrorCode};
use proxy_operator_core::provider::Provider;
use proxy_operator_runtime::{ContextParts, LoadedProvider, Plugin};
use serde_json::json;

use crate::support::{
    Hypervisor, Mood, PASSWORD_HASH, capabilities, engine_on_demand, hostile, instance, parts, plugin, provider,
    provider_on, spec,
};

const LONG: Duration = Duration::from_secs(20);

async fn error_of(wish: &str) -> Error {
    let error = provider(wish).await.get(&instance()).await.unwrap_err();
    // Whatever it was, the next call is served.
    provider("ok").await.get(&instance()).await.unwrap();
    error
}

#[tokio::test]
async fn a_panic_tells_plugin_version_digest_message_and_log() {
    let error = error_of("panic").await;
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTrapped"));
    let digest = plugin().await.digest().to_owned();
    assert!(digest.starts_with("sha256:") && digest.len() == 7 + 64, "{digest}");
    for part in
        ["hostile 0.1.0", &digest[..19], "in get", "hostile panics\\non two lines", "step=\"three of four\"", "lib.rs"]
    {
        assert!(error.message.contains(part), "{part} is not in: {}", error.message);
    }
}

#[tokio::test]
async fn a_trap_tells_which() {
    let error = error_of("trap").await;
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTrapped"));
    assert!(error.message.contains("unreachable"), "{}", error.message);
}

#[tokio::test]
async fn too_much_memory_is_told_apart_from_a_panic() {
    let error = error_of("allocate").await;
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "MemoryExceeded"));
    assert!(error.message.contains("at most 128 are allowed"), "{}", error.message);
}

#[tokio::test]
async fn endless_recursion_ends_at_once() {
    for (wish, why) in [("recurse", "its stack overflowed"), ("recurse-with-large-frames", "it left its memory")] {
        let begun = Instant::now();
        let error = error_of(wish).await;
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTrapped"));
        assert!(error.message.contains(why) && error.message.contains("endless recursion"), "{}", error.message);
        assert!(begun.elapsed() < LONG);
    }
}

#[tokio::test]
async fn handles_and_randomness_are_bounded() {
    for wish in ["timers", "randomness"] {
        let error = error_of(wish).await;
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTrapped"), "{wish}: {error}");
    }
}

/// On one thread: the neighbour's calls run between the slices of the loop.
#[tokio::test]
async fn a_loop_ends_at_its_deadline_and_the_neighbour_runs_on() {
    let well = Hypervisor::new(Mood::Well);
    let looping = provider_on(plugin().await, "loop", &well, Duration::from_millis(400)).await;
    let neighbour = provider("ok").await;
    let begun = Instant::now();
    let looped = async {
        let error = looping.get(&instance()).await.unwrap_err();
        (error, begun.elapsed())
    };
    let served = async {
        let (mut calls, mut slowest) = (0, Duration::ZERO);
        while begun.elapsed() < Duration::from_millis(300) {
            let call = Instant::now();
            neighbour.get(&instance()).await.unwrap();
            slowest = slowest.max(call.elapsed());
            calls += 1;
            tokio::task::yield_now().await;
        }
        (calls, slowest)
    };
    let ((error, ended), (calls, slowest)) = tokio::join!(looped, served);
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTimedOut"));
    assert!(error.message.contains("did not end get within 0.4 s"), "{}", error.message);
    assert!(ended >= Duration::from_millis(400) && ended < Duration::from_secs(3), "{ended:?}");
    assert!(calls >= 5, "the neighbour was served {calls} times, the slowest in {slowest:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_loop_ends_when_it_has_computed_enough() {
    let patient = provider_on(plugin().await, "loop", &Hypervisor::new(Mood::Well), Duration::from_secs(60)).await;
    let begun = Instant::now();
    let error = patient.get(&instance()).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTimedOut"));
    assert!(error.message.contains("it computed for 10 s"), "{}", error.message);
    assert!(begun.elapsed() < Duration::from_secs(40), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_guest_that_sleeps_ends_at_its_deadline() {
    let sleeping = provider_on(plugin().await, "sleep", &Hypervisor::new(Mood::Well), Duration::from_millis(200)).await;
    let error = sleeping.get(&instance()).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "PluginTimedOut"));
    assert!(error.message.contains("of which it computed 0.0 s"), "{}", error.message);
}

#[tokio::test]
async fn a_blocked_host_call_is_dropped_at_the_deadline_each_time() {
    let hanging = Hypervisor::new(Mood::Hanging);
    let blocked = provider_on(plugin().await, "info", &hanging, Duration::from_millis(200)).await;
    for call in 1..=2 {
        let begun = Instant::now();
        let error = blocked.get(&instance()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::DeadlineExceeded);
        assert!(error.message.contains("busy with libvirt.info of hv1 for 0.2 s"), "{}", error.message);
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
        assert_eq!(hanging.dropped.load(Ordering::SeqCst), call);
    }
}

#[tokio::test]
async fn the_deadline_holds_in_the_second_host_call_too() {
    let hanging = Hypervisor::new(Mood::HangingFromTheSecond);
    let blocked = provider_on(plugin().await, "info-twice", &hanging, Duration::from_millis(200)).await;
    let error = blocked.get(&instance()).await.unwrap_err();
    assert_eq!(error.code, ErrorCode::DeadlineExceeded);
    assert_eq!((hanging.calls.load(Ordering::SeqCst), hanging.dropped.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test]
async fn a_call_that_is_given_up_is_dropped() {
    let hanging = Hypervisor::new(Mood::Hanging);
    let blocked = provider_on(plugin().await, "info", &hanging, LONG).await;
    let asked = instance();
    let given_up = tokio::time::timeout(Duration::from_millis(100), blocked.get(&asked)).await;
    assert!(given_up.is_err());
    assert_eq!(hanging.dropped.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_panic_of_the_host_ends_one_call() {
    let broken = Hypervisor::new(Mood::Panicking);
    let provider = provider_on(plugin().await, "info", &broken, LONG).await;
    for _ in 0..2 {
        let error = provider.get(&instance()).await.unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "HostFault"));
    }
}

#[tokio::test]
async fn each_call_has_a_guest_of_its_own() {
    let provider = provider("ok").await;
    for _ in 0..3 {
        assert_eq!(provider.get(&instance()).await.unwrap().message, "runs since 1 calls");
    }
}

#[tokio::test]
async fn a_provider_has_no_more_calls_at_once_than_it_may() {
    let slow = Hypervisor::new(Mood::Slow(Duration::from_millis(50)));
    let parts = ContextParts { concurrent_calls: Some(2), ..parts(json!({"do": "info"})) };
    let provider = Arc::new(LoadedProvider::new(plugin().await, parts, capabilities(&slow)).unwrap());
    let asked = instance();
    let answers = futures::future::join_all((0..8).map(|_| provider.get(&asked))).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(slow.most.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn waiting_for_a_turn_has_an_end() {
    let hanging = Hypervisor::new(Mood::Hanging);
    let parts = ContextParts {
        concurrent_calls: Some(1),
        call_timeout: Some(Duration::from_millis(200)),
        ..parts(json!({"do": "info"}))
    };
    let provider = LoadedProvider::new(plugin().await, parts, capabilities(&hanging)).unwrap();
    let asked = instance();
    let (first, second) = tokio::join!(provider.get(&asked), provider.get(&asked));
    let reasons = [first.unwrap_err().reason, second.unwrap_err().reason];
    assert!(reasons.contains(&"CallTimedOut".to_owned()), "{reasons:?}");
}

#[tokio::test]
async fn an_error_never_tells_user_data() {
    for wish in ["panic-with-user-data", "tell-user-data"] {
        let provider = provider(wish).await;
        let placed = provider.place(&spec(), &[]).await.unwrap_err();
        let created = provider.create(&instance(), &spec()).await.unwrap_err();
        for error in [placed, created] {
            let told = format!("{error:?}");
            assert!(!told.contains("top-secret") && !told.contains(PASSWORD_HASH), "{told}");
            // `top-secret-token` as the numbers of its bytes.
            assert!(!told.contains("116, 111, 112, 45"), "{told}");
            assert!(told.contains("[redacted]"), "{told}");
        }
    }
}

#[tokio::test]
async fn without_a_pool_the_same_holds() {
    let engine = engine_on_demand();
    assert!(!engine.is_pooled());
    let plugin = Plugin::load(&engine, "hostile", hostile()).await.unwrap();
    let well = Hypervisor::new(Mood::Well);
    let short = Duration::from_millis(300);
    for (wish, timeout, reason) in [
        ("panic", LONG, "PluginTrapped"),
        ("allocate", LONG, "MemoryExceeded"),
        ("recurse", LONG, "PluginTrapped"),
        ("loop", short, "PluginTimedOut"),
        ("sleep", short, "PluginTimedOut"),
    ] {
        let provider = provider_on(Arc::clone(&plugin), wish, &well, timeout).await;
        assert_eq!(provider.get(&instance()).await.unwrap_err().reason, reason, "{wish}");
    }
    let provider = provider_on(plugin, "ok", &well, LONG).await;
    provider.get(&instance()).await.unwrap();
}

/// More at once than the pool holds, and all are served.
#[tokio::test]
async fn guests_beyond_the_pool_wait_for_room() {
    let slow = Hypervisor::new(Mood::Slow(Duration::from_millis(100)));
    let plugin = plugin().await;
    let providers: Vec<LoadedProvider> = (0..3)
        .map(|_| {
            let parts = ContextParts { concurrent_calls: Some(100), ..parts(json!({"do": "info"})) };
            LoadedProvider::new(Arc::clone(&plugin), parts, capabilities(&slow)).unwrap()
        })
        .collect();
    let asked = instance();
    let calls = providers.iter().flat_map(|provider| (0..100).map(|_| provider.get(&asked)));
    let answers = futures::future::join_all(calls).await;
    assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|a| a.is_err()));
    assert!(slow.most.load(Ordering::SeqCst) <= 128);
}
