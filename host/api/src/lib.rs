//! Objects of `crawl.example.com` and their validation rules; no IO.
//!
//! A [`Provider`] says which plugin manages which infrastructure and what it may touch; a [`Proxy`] is one forward
//! proxy there. Fields that are unknown are refused, so that a misspelt one is not silently without effect.

pub mod condition;
pub mod grants;
pub mod provider;
pub mod proxy;
pub mod validate;

pub use condition::{Condition, ConditionStatus};
pub use grants::Grants;
pub use provider::{Provider, ProviderSpec, ProviderStatus};
pub use proxy::{Proxy, ProxySpec, ProxyStatus};

/// The API group of all objects.
pub const GROUP: &str = "crawl.example.com";
/// The API version of all objects.
pub const VERSION: &str = "v1alpha1";
/// `apiVersion` of all objects.
pub const API_VERSION: &str = "crawl.example.com/v1alpha1";
/// What holds an object until nothing of it is left on its infrastructure.
pub const FINALIZER: &str = "crawl.example.com/instance";
/// Abandons the instance when it is `"true"`: the object is released, whatever its provider says.
pub const SKIP_CLEANUP: &str = "crawl.example.com/skip-cleanup";

/// The schema of a JSON object with fields of the plugin's own.
fn any_object(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}
