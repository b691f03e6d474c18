//! What a Provider's plugin may touch. Nothing is granted by default.

use std::collections::BTreeMap;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `Provider.spec.grants`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Grants {
    /// Hypervisors that may be used through libvirt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub libvirt: Option<LibvirtGrant>,
    /// From where the host may download base images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub images: Option<ImagesGrant>,
    /// Where the endpoints of proxies may lie.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<EndpointsGrant>,
}

/// Hypervisors that may be used through libvirt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LibvirtGrant {
    /// The hypervisors by the name that ids, placements and logs use: `[a-z0-9]([-a-z0-9]*[a-z0-9])?`, at most 40
    /// bytes.
    pub hosts: BTreeMap<String, LibvirtHost>,
}

/// One hypervisor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LibvirtHost {
    /// `ssh://user@host`, `ssh://user@host:port`, or `unix:///path/of/the/libvirt-sock` for the machine that the
    /// operator runs on.
    pub address: String,
    /// The Secret with `ssh-privatekey` and `known_hosts`. Needed with an `ssh://` address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
    /// The path of libvirt's socket on the hypervisor. Default: `/run/libvirt/libvirt-sock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub socket: Option<String>,
    /// The storage pools that may be used, the preferred one first.
    pub pools: Vec<String>,
    /// The networks that domains may be attached to, the preferred one first.
    pub networks: Vec<String>,
    /// Limits of what is made there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<LibvirtLimits>,
}

/// Limits of one domain and its volumes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LibvirtLimits {
    /// The most virtual CPUs of a domain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vcpus: Option<u32>,
    /// The most memory of a domain, in MiB.
    #[serde(default, rename = "memoryMiB", skip_serializing_if = "Option::is_none")]
    pub memory_mib: Option<u32>,
    /// The largest volume, in GiB.
    #[serde(default, rename = "volumeGiB", skip_serializing_if = "Option::is_none")]
    pub volume_gib: Option<u64>,
}

/// From where the host may download base images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImagesGrant {
    /// What a URL must begin with: `https://cloud.debian.org/`. Scheme, host and port are compared exactly, the path
    /// by whole segments.
    pub url_prefixes: Vec<String>,
    /// The largest download and the largest virtual size, in GiB. Default: 64.
    #[serde(default, rename = "maxGiB", skip_serializing_if = "Option::is_none")]
    pub max_gib: Option<u64>,
}

/// Where the endpoints of proxies may lie: an endpoint elsewhere is not probed and not shown to users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointsGrant {
    /// CIDRs. Loopback and link-local ones count only when they are named here.
    #[schemars(with = "Vec<String>")]
    pub cidrs: Vec<IpNet>,
}
