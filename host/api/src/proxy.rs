//! `Proxy`: one forward proxy.

use ipnet::IpNet;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::condition::Condition;

/// The port a proxy listens on by default: squid's own.
pub const DEFAULT_PORT: u16 = 3128;

/// A forward proxy on some infrastructure.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crawl.example.com",
    version = "v1alpha1",
    kind = "Proxy",
    plural = "proxies",
    shortname = "px",
    category = "crawl",
    namespaced,
    status = "ProxyStatus",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProxySpec {
    /// The name of its Provider.
    pub provider: String,
    /// A key of the Provider's machine types. Default: the Provider's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_type: Option<String>,
    /// A key of the Provider's images, or a URL. Default: the Provider's own default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Places where it may be (hosts, zones, namespaces), the preferred one first. Default: wherever the Provider may.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placement: Vec<String>,
    /// The TCP port that the proxy listens on. Default: 3128.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<u16>,
    /// Who may use it, and for what.
    #[serde(default)]
    pub access: Access,
    /// How the machine is set up. Default: the operator renders a complete document for squid.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cloud_init: Option<CloudInit>,
    /// How its health is found.
    #[serde(default)]
    pub probe: Probe,
    /// Parameters of the plugin's own, held against the JSON Schema that the plugin describes.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(schema_with = "crate::any_object")]
    pub parameters: Map<String, Value>,
    /// Stops create and replacement, never deletion.
    #[serde(default)]
    pub paused: bool,
}

/// Who may use the proxy, and for what.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Access {
    /// Serves everybody without a password. Open proxies are abused within hours.
    #[serde(default)]
    pub open: bool,
    /// A Secret with the keys `username` and `password`. Default: credentials are generated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// Sources that are served without a password, as CIDRs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub allow_from: Vec<IpNet>,
    /// Private, link-local or loopback destinations that the proxy may reach, as CIDRs. All others are refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<String>")]
    pub allow_private_destinations: Vec<IpNet>,
}

/// How the machine is set up. The documents are delivered byte for byte.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CloudInit {
    /// The user-data, inline. One of `userData` and `userDataFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// The user-data, from a Secret: for what holds secrets, or is no text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data_from: Option<SecretKey>,
    /// The vendor-data, beside what the provider itself delivers as such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vendor_data: Option<String>,
}

/// One key of a Secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SecretKey {
    /// The Secret, in the Proxy's namespace.
    pub secret: String,
    /// Its key.
    pub key: String,
}

/// How the health of the proxy is found: by a request through it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Probe {
    /// An `http://` URL that is fetched through the proxy. Default: `http://www.gstatic.com/generate_204`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The exact status that is expected. Default: 204.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 100, max = 599))]
    pub status: Option<u16>,
    /// `host:port` of a target for CONNECT. Default: none is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect: Option<String>,
    /// An `http://` URL that answers with the address it was asked from: it gives `status.egressIP`. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_url: Option<String>,
    /// Seconds between two probes of a healthy proxy. Default: 60.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 86400))]
    pub interval_seconds: Option<u32>,
    /// Seconds that a probe may take in all. Default: 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 300))]
    pub timeout_seconds: Option<u32>,
    /// Failures in a row before a healthy proxy is called unhealthy. Default: 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub failure_threshold: Option<u32>,
}

/// Where a Proxy is in its life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Phase {
    /// Nothing was made yet.
    #[default]
    Pending,
    /// It is being made, or has not answered yet.
    Provisioning,
    /// It serves.
    Ready,
    /// It was there and does not serve.
    Unhealthy,
    /// It is being removed.
    Deleting,
    /// It cannot work until somebody changes something.
    Failed,
}

/// What was found of a Proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProxyStatus {
    /// Where it is in its life.
    #[serde(default)]
    pub phase: Phase,
    /// The generation for which this was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The identity of its instance, recorded before it is made.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "providerID")]
    pub provider_id: Option<String>,
    /// What its provider wants back in later calls.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_state: Option<String>,
    /// Places that were tried and were full.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub full_places: Vec<String>,
    /// Where clients reach it, `host:port`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// The address from which its requests go out.
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "egressIP")]
    pub egress_ip: Option<String>,
    /// `Provisioned`, `Healthy` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

// === impl Phase ===

impl Phase {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Provisioning => "Provisioning",
            Self::Ready => "Ready",
            Self::Unhealthy => "Unhealthy",
            Self::Deleting => "Deleting",
            Self::Failed => "Failed",
        }
    }
}

// === impl ProxySpec ===

impl ProxySpec {
    /// The TCP port that the proxy listens on.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(DEFAULT_PORT)
    }
}
