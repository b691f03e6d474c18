use proxy_operator_core::error::{Error, ErrorCode};
use proxy_operator_runtime::Plugin;
use serde_json::json;

use crate::support::{engine, hostile, hostile_that, plugin, replaced};

async fn refused(bytes: Vec<u8>) -> Error {
    let error = Plugin::load(&engine(), "hostile", bytes).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidConfig, "PluginIncompatible"), "{error}");
    error
}

#[tokio::test]
async fn a_plugin_says_what_it_is() {
    let plugin = plugin().await;
    assert_eq!((plugin.description().name.as_str(), plugin.description().version.as_str()), ("hostile", "0.1.0"));
    assert_eq!(plugin.wit_version().to_string(), "0.1");
    let imports = plugin.imports();
    for import in ["proxy-operator:provider/libvirt@0.1.0", "proxy-operator:provider/log@0.1.0"] {
        assert!(imports.contains(&import.to_owned()), "{imports:?}");
    }
    assert!(!imports.iter().any(|import| import.contains("wasi:filesystem")), "{imports:?}");
}

#[tokio::test]
async fn another_version_is_told_before_anything_is_compiled() {
    let error = refused(replaced(&hostile(), "@0.1.0", "@0.3.0")).await;
    assert_eq!(error.message, "plugin hostile was built for provider API 0.3, this host supports 0.1");
}

#[tokio::test]
async fn an_import_that_is_not_offered_is_named() {
    let error = refused(replaced(&hostile(), "proxy-operator:provider/images", "proxy-operator:provider/camera")).await;
    assert!(error.message.contains("imports proxy-operator:provider/camera@0.1.0"), "{}", error.message);
    assert!(error.message.contains("proxy-operator:provider/libvirt"), "{}", error.message);
}

#[tokio::test]
async fn what_is_no_component_is_called_by_its_name() {
    assert!(refused(b"<html>404</html>".to_vec()).await.message.contains("begins with \"<html>404</html>\""));
    let module = b"\0asm\x01\0\0\0".to_vec();
    assert!(refused(module).await.message.contains("core WebAssembly module"));
    let half = hostile()[..50_000].to_vec();
    let message = refused(half).await.message;
    assert!(message.contains("not a valid component"), "{message}");
}

#[tokio::test]
async fn a_description_is_checked() {
    for (wish, version, part) in [
        ("strange-name", "0.1.0", "the name \"Not A Name\""),
        ("ok", "one", "the version \"one\", which is no semantic version"),
        ("remote-schema", "0.1.0", "https://example.com/schema.json"),
        ("endless-schema", "0.1.0", "refers to itself"),
        ("broken-schema", "0.1.0", "its config schema is not JSON"),
    ] {
        let error = refused(hostile_that(wish, version)).await;
        assert!(error.message.contains(part), "{}", error.message);
    }
    let error = Plugin::load(&engine(), "hostile", hostile_that("large-schema", "0.1.0")).await.unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Internal, "ResultTooLarge"));
    assert!(error.message.contains("description.config-schema"), "{}", error.message);
}

#[tokio::test]
async fn a_describe_that_panics_or_never_ends_is_an_error_of_that_plugin() {
    let error = Plugin::load(&engine(), "hostile", hostile_that("panic", "0.1.0")).await.unwrap_err();
    assert!(error.message.contains("in describe") && error.message.contains("hostile panics"), "{}", error.message);
}

#[tokio::test]
async fn config_and_parameters_are_held_against_the_schemas() {
    let plugin = plugin().await;
    assert_eq!(plugin.check_config(&json!({"do": "ok"})), Ok(()));
    let faults = plugin.check_config(&json!({"do": 1})).unwrap_err();
    assert_eq!((faults[0].path.as_str(), faults[0].message.as_str()), ("/do", "1 is not of type \"string\""));
    assert!(plugin.check_config(&json!({"else": 1})).is_err());
    assert_eq!(plugin.check_parameters(&json!({"a": 1})), Ok(()));
    assert!(plugin.check_parameters(&json!({"a": 1, "b": 2})).is_err());
    // A pattern that backtracks for ever elsewhere.
    let begun = std::time::Instant::now();
    assert!(plugin.check_config(&json!({"validate": format!("{}!", "a".repeat(50_000))})).is_err());
    assert!(begun.elapsed().as_secs() < 2);
}
