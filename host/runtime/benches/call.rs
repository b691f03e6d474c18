//! What a call costs: `cargo bench -p proxy-operator-runtime --bench call`. Prints one flat JSON object.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a program that measures"
)]
#![allow(dead_code, unused_imports, reason = "shares its support with the tests")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use proxy_operator_core::provider::Provider;
use proxy_operator_runtime::{Engine, EngineSettings, LoadedProvider, Plugin};
use serde_json::{Map, Value, json};

#[path = "../tests/sandbox/support/mod.rs"]
mod support;

use support::{Hypervisor, Mood, hostile, instance, provider_on, spec};

const CALLS: usize = 5_000;

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut results = Map::new();
    runtime.block_on(measure(&mut results));
    println!("{}", serde_json::to_string_pretty(&Value::Object(results)).unwrap());
}

async fn measure(results: &mut Map<String, Value>) {
    let folder = tempfile::tempdir().unwrap();
    let settings = EngineSettings { cache_dir: Some(folder.path().to_owned()), ..Default::default() };
    let bytes = hostile();
    let mut engine = Engine::new(settings.clone()).unwrap();
    for name in ["plugin_load_compile_ms", "plugin_load_cached_ms"] {
        engine = Engine::new(settings.clone()).unwrap();
        let begun = Instant::now();
        Plugin::load(&engine, "hostile", bytes.clone()).await.unwrap();
        results.insert(name.to_owned(), json!(begun.elapsed().as_secs_f64() * 1e3));
    }
    let on_demand = Engine::new(EngineSettings { on_demand: true, ..settings }).unwrap();
    for (engine, kind) in [(engine, ""), (on_demand, "on_demand_")] {
        let plugin = Plugin::load(&engine, "hostile", bytes.clone()).await.unwrap();
        for (wish, name) in [("ok", "get"), ("info", "get_with_a_host_call")] {
            let provider =
                provider_on(Arc::clone(&plugin), wish, &Hypervisor::new(Mood::Well), Duration::from_secs(9)).await;
            let asked = instance();
            let mut times = Vec::with_capacity(CALLS);
            for _ in 0..CALLS {
                let begun = Instant::now();
                provider.get(&asked).await.unwrap();
                times.push(begun.elapsed());
            }
            put(results, &format!("call_{kind}{name}"), times);
        }
        let provider = provider_on(plugin, "ok", &Hypervisor::new(Mood::Well), Duration::from_secs(9)).await;
        let (asked, spec) = (instance(), spec());
        let mut times = Vec::with_capacity(CALLS);
        for _ in 0..CALLS {
            let begun = Instant::now();
            provider.create(&asked, &spec).await.unwrap();
            times.push(begun.elapsed());
        }
        put(results, &format!("call_{kind}create"), times);
    }
}

fn put(results: &mut Map<String, Value>, name: &str, mut times: Vec<Duration>) {
    times.sort();
    for (percent, part) in [("p50", times.len() / 2), ("p99", times.len() * 99 / 100)] {
        results.insert(format!("{name}_{percent}_us"), json!(times[part].as_secs_f64() * 1e6));
    }
}
