//! The guest of the tests: `plugins/examples/hostile`, built as all plugins are.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// The component. `HOSTILE_WASM` names one that is built already.
pub(crate) fn hostile() -> Vec<u8> {
    static COMPONENT: OnceLock<Vec<u8>> = OnceLock::new();
    COMPONENT.get_or_init(build).clone()
}

/// The component, with what `describe` does and the version it tells.
pub(crate) fn hostile_that(describe: &str, version: &str) -> Vec<u8> {
    let component = overwrite(hostile(), "describe=", describe);
    overwrite(component, "version=", version)
}

/// The component with one text in place of another of the same length, wherever it stands.
pub(crate) fn replaced(component: &[u8], from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let mut component = component.to_vec();
    let found: Vec<usize> =
        (0..component.len() - from.len()).filter(|at| component[*at..].starts_with(from.as_bytes())).collect();
    assert!(!found.is_empty(), "{from} is not in the component");
    for at in found {
        component[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    component
}

/// Writes a value behind a key; both together have 32 bytes, padded with dots.
fn overwrite(mut component: Vec<u8>, key: &str, value: &str) -> Vec<u8> {
    let text = format!("{key}{value:.<width$}", width = 32 - key.len());
    assert_eq!(text.len(), 32, "{text}");
    let is_setting = |window: &[u8]| window.starts_with(key.as_bytes()) && window.ends_with(b"...");
    let at = component.windows(32).position(is_setting).expect("the guest has its settings");
    component[at..at + 32].copy_from_slice(text.as_bytes());
    component
}

fn build() -> Vec<u8> {
    if let Some(path) = std::env::var_os("HOSTILE_WASM") {
        return read(Path::new(&path));
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/build.sh");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let built = Command::new(&script)
        .arg("-o")
        .args([folder.as_os_str(), "hostile".as_ref()])
        .env_remove("RUSTFLAGS")
        .output()
        .unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "the guest of the tests could not be built:\n{said}");
    read(&folder.join("hostile.wasm"))
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
