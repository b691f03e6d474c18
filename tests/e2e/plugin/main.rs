//! The shipped plugins as the runtime sees them.
//!
//! - kvm imports exactly what it uses: nothing of WASI, no network, no files, no clock

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::process::Command;

use proxy_operator_runtime::{Engine, EngineSettings, Plugin};

/// The file of a plugin, built when it is not there.
fn plugin(name: &str) -> PathBuf {
    let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
    let file = plugins.join(format!("target/plugins/{name}.wasm"));
    if !file.exists() {
        let status = Command::new(plugins.join("build.sh")).arg(name).env_remove("CARGO_TARGET_DIR").status();
        assert!(status.expect("plugins/build.sh runs").success(), "plugins/build.sh {name} failed");
    }
    file
}

#[tokio::test]
async fn kvm_imports_exactly_what_it_uses() {
    let engine = Engine::new(EngineSettings::default()).expect("an engine");
    let bytes = std::fs::read(plugin("kvm")).expect("reads the plugin");
    let plugin = Plugin::load(&engine, "kvm", bytes).await.expect("loads");
    let interface = |name: &str| format!("proxy-operator:provider/{name}@0.1.0");
    assert_eq!(plugin.imports(), ["images", "libvirt", "log", "types"].map(interface));
    assert_eq!(plugin.description().name, "kvm");
}
