//! The shipped kvm plugin, and a hypervisor that answers at once.
//!
//! `get` of a running domain asks three things of the host: what is granted, the domain, and what its guest agent says.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use async_trait::async_trait;
use proxy_operator_core::capability::Capabilities;
use proxy_operator_core::capability::libvirt::{
    Domain, DomainSpec, DomainState, HostGrant, HostInfo, Libvirt, Volume, VolumeSpec,
};
use proxy_operator_core::error::{Error, Result as Answer};
use proxy_operator_core::provider::{Address, AddressSource, InstanceRef};
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_runtime::{ContextParts, Engine, EngineSettings, LoadedProvider, Plugin};
use serde_json::{Value, json};

/// The owner of the instance that is asked for.
pub(crate) const OWNER: &str = "0f8b1c1e-2d0c-4a52-9f5e-6c5a0d9b7e11";
/// The hypervisor's name in the grant.
pub(crate) const HOST: &str = "hv1";
/// What the names of domains begin with.
pub(crate) const PREFIX: &str = "px0123456789-";
/// Where the instance is.
pub(crate) const ADDRESS: &str = "192.0.2.17";
/// When it was made.
pub(crate) const CREATED: &str = "2026-12-01T08:30:00Z";
/// The installation.
pub(crate) const CLUSTER: &str = "c1";
/// The Provider.
pub(crate) const PROVIDER: &str = "kvm-home";

/// The component. `KVM_WASM` names another than the one that `plugins/build.sh` made.
pub(crate) fn component() -> Result<Vec<u8>> {
    let path = component_path();
    std::fs::read(&path).with_context(|| format!("{}: run plugins/build.sh kvm", path.display()))
}

/// Where the component is.
pub(crate) fn component_path() -> PathBuf {
    let built = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/target/plugins/kvm.wasm");
    std::env::var_os("KVM_WASM").map_or_else(built, PathBuf::from)
}

/// A config as users have it.
pub(crate) fn config() -> Value {
    json!({
        "images": {
            "debian-12": {"url": "https://images.example/debian-12.qcow2", "digest": format!("sha256:{}", "0".repeat(64))},
            "debian-13": {"url": "https://images.example/debian-13.qcow2", "digest": format!("sha256:{}", "1".repeat(64))},
        },
        "machineTypes": {
            "small": {"vcpus": 1, "memoryMiB": 512, "diskGiB": 8},
            "large": {"vcpus": 4, "memoryMiB": 4096, "diskGiB": 40},
        },
        "defaultImage": "debian-12",
        "defaultMachineType": "small",
        "domainType": "qemu",
    })
}

/// The name of the domain.
pub(crate) fn domain_name() -> String {
    format!("{PREFIX}{OWNER}")
}

/// The instance that is asked for.
pub(crate) fn instance() -> InstanceRef {
    let id = format!("hosts/{HOST}/domains/{}", domain_name());
    InstanceRef { id, owner: OWNER.to_owned(), private_state: None }
}

/// The plugin on an engine with the operator's settings.
pub(crate) async fn plugin() -> Result<Arc<Plugin>> {
    let engine = Engine::new(EngineSettings::default())?;
    Ok(Plugin::load(&engine, "kvm", component()?).await?)
}

/// The plugin, configured, on a hypervisor that answers at once.
pub(crate) async fn provider() -> Result<LoadedProvider> {
    let parts = ContextParts {
        provider: PROVIDER.to_owned(),
        cluster_id: CLUSTER.to_owned(),
        name_prefix: PREFIX.to_owned(),
        config: config(),
        call_timeout: None,
        concurrent_calls: None,
    };
    let capabilities = Capabilities { libvirt: Some(Arc::new(Instant)), images: None };
    Ok(LoadedProvider::new(plugin().await?, parts, capabilities)?)
}

/// Has one running domain, and answers at once.
struct Instant;

fn none<T>() -> Answer<T> {
    Err(Error::internal("Unexpected", "a get does not call this"))
}

#[async_trait]
impl Libvirt for Instant {
    fn hosts(&self) -> Vec<HostGrant> {
        vec![HostGrant {
            name: HOST.to_owned(),
            pools: vec!["default".to_owned()],
            networks: vec!["lan".to_owned()],
            max_vcpus: None,
            max_memory_mib: None,
            max_volume_size: None,
        }]
    }

    async fn lookup_domain(&self, _host: &str, name: &str) -> Answer<Option<Domain>> {
        Ok(Some(Domain {
            name: name.to_owned(),
            owner: OWNER.to_owned(),
            state: DomainState::Running,
            addresses: vec![Address { host: ADDRESS.to_owned(), source: AddressSource::Lease }],
            created_at: Some(CREATED.to_owned()),
        }))
    }

    async fn agent_addresses(&self, _host: &str, _name: &str) -> Answer<Option<Vec<Address>>> {
        Ok(Some(vec![Address { host: ADDRESS.to_owned(), source: AddressSource::Agent }]))
    }

    async fn info(&self, _host: &str) -> Answer<HostInfo> {
        none()
    }
    async fn list_domains(&self, _host: &str) -> Answer<Vec<Domain>> {
        none()
    }
    async fn neighbour_addresses(&self, _host: &str, _name: &str) -> Answer<Vec<Address>> {
        none()
    }
    async fn define_domain(&self, _host: &str, _spec: &DomainSpec) -> Answer<Domain> {
        none()
    }
    async fn start_domain(&self, _host: &str, _name: &str) -> Answer<()> {
        none()
    }
    async fn destroy_domain(&self, _host: &str, _name: &str) -> Answer<()> {
        none()
    }
    async fn undefine_domain(&self, _host: &str, _name: &str) -> Answer<()> {
        none()
    }
    async fn list_volumes(&self, _host: &str, _domain: Option<&str>) -> Answer<Vec<Volume>> {
        none()
    }
    async fn create_volume(&self, _host: &str, _pool: &str, _name: &str, _spec: &VolumeSpec) -> Answer<()> {
        none()
    }
    async fn write_volume(&self, _host: &str, _pool: &str, _name: &str, _content: Sensitive<Vec<u8>>) -> Answer<()> {
        none()
    }
    async fn delete_volume(&self, _host: &str, _pool: &str, _name: &str) -> Answer<()> {
        none()
    }
}
