//! `Provider`: a plugin, its configuration, and what it may touch.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::condition::Condition;
use crate::grants::Grants;

/// A kind of infrastructure as one plugin manages it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crawl.example.com",
    version = "v1alpha1",
    kind = "Provider",
    plural = "providers",
    shortname = "pxp",
    category = "crawl",
    status = "ProviderStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderSpec {
    /// Which plugin.
    pub plugin: PluginSource,
    /// The plugin's own configuration, held against the JSON Schema that the plugin describes.
    #[serde(default)]
    #[schemars(schema_with = "crate::any_object")]
    pub config: Map<String, Value>,
    /// What the plugin may touch.
    #[serde(default)]
    pub grants: Grants,
    /// Limits of its calls.
    #[serde(default)]
    pub limits: ProviderLimits,
    /// Stops create and replacement, never deletion.
    #[serde(default)]
    pub paused: bool,
}

/// From where a plugin comes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PluginSource {
    /// The name of a file in the plugins folder, without `.wasm`.
    pub name: String,
}

/// Limits of the calls of one Provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderLimits {
    /// The time a call may take, in seconds. Default: 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_seconds: Option<u32>,
    /// How many calls may run at once. Default: 16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub concurrent_calls: Option<u32>,
}

/// What was found of a Provider.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderStatus {
    /// The generation for which this was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Loaded` and `Healthy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The plugin that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plugin: Option<PluginStatus>,
    /// The health of each part of the infrastructure.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckStatus>,
}

/// The plugin that serves.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PluginStatus {
    /// Its name, as it describes itself.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The digest of its bytes, `sha256:…`.
    pub digest: String,
    /// The version of the provider interface it was built for.
    pub wit: String,
}

/// The health of one part of the infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckStatus {
    /// The part: `hosts/hv1`.
    pub subject: String,
    /// Whether it is healthy.
    pub healthy: bool,
    /// One CamelCase word.
    pub reason: String,
    /// What was seen, or what is wrong and what to do.
    pub message: String,
}
