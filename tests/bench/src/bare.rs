//! The component under wasmtime and nothing else: generated bindings, a pool tuned as the operator's, no limits, no
//! deadline, no log, no policy. Async, since a host whose capabilities wait has no other choice.

use anyhow::{Result, anyhow};
use wasmtime::component::{Component, HasSelf, Linker};
use wasmtime::{Config, Engine, InstanceAllocationStrategy, PoolingAllocationConfig, Store};

use crate::kvm;

/// What the generator makes of `wit/`.
#[allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic, clippy::indexing_slicing)]
mod bindings {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "plugin",
        exports: { default: async },
    });
}

use bindings::Plugin;
use bindings::PluginPre;
use bindings::exports::proxy_operator::provider::provider::{Context, Instance, InstanceRef};
use bindings::proxy_operator::provider::libvirt::{
    self, Domain, DomainSpec, DomainState, HostGrant, HostInfo, Volume, VolumeSpec,
};
use bindings::proxy_operator::provider::log;
use bindings::proxy_operator::provider::types::{self, Address, AddressSource, Error, ErrorCode};

/// The data of a store: none.
struct Instant;

/// A linked component.
pub(crate) struct Bare {
    engine: Engine,
    linked: PluginPre<Instant>,
    context: Context,
}

/// One instance that serves all calls.
pub(crate) struct Reused<'a> {
    store: Store<Instant>,
    guest: Plugin,
    context: &'a Context,
}

/// The instance that is asked for.
pub(crate) fn instance() -> InstanceRef {
    let proxy_operator_core::provider::InstanceRef { id, owner, private_state } = kvm::instance();
    InstanceRef { id, owner, private_state }
}

// === impl Bare ===

impl Bare {
    pub(crate) fn new(component: &[u8]) -> Result<Self> {
        let engine = Engine::new(&config())?;
        let component = Component::new(&engine, component)?;
        let mut linker = Linker::new(&engine);
        types::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut Instant| state)?;
        log::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut Instant| state)?;
        libvirt::add_to_linker::<_, HasSelf<_>>(&mut linker, |state: &mut Instant| state)?;
        linker.define_unknown_imports_as_traps(&component)?;
        let linked = PluginPre::new(linker.instantiate_pre(&component)?)?;
        let context = Context {
            provider: kvm::PROVIDER.to_owned(),
            cluster_id: kvm::CLUSTER.to_owned(),
            name_prefix: kvm::PREFIX.to_owned(),
            config: kvm::config().to_string(),
            timeout_ms: 30_000,
        };
        Ok(Self { engine, linked, context })
    }

    /// `get` in a fresh instance.
    pub(crate) async fn fresh_get(&self, at: &InstanceRef) -> Result<Instance> {
        let mut store = Store::new(&self.engine, Instant);
        let guest = self.linked.instantiate_async(&mut store).await?;
        get(&guest, &mut store, &self.context, at).await
    }

    /// A fresh instance that does nothing.
    pub(crate) async fn fresh_alone(&self) -> Result<()> {
        let mut store = Store::new(&self.engine, Instant);
        self.linked.instantiate_async(&mut store).await?;
        Ok(())
    }

    /// An instance for all calls.
    pub(crate) async fn reused(&self) -> Result<Reused<'_>> {
        let mut store = Store::new(&self.engine, Instant);
        let guest = self.linked.instantiate_async(&mut store).await?;
        Ok(Reused { store, guest, context: &self.context })
    }
}

// === impl Reused ===

impl Reused<'_> {
    /// `get` in this instance.
    pub(crate) async fn get(&mut self, at: &InstanceRef) -> Result<Instance> {
        get(&self.guest, &mut self.store, self.context, at).await
    }
}

async fn get(guest: &Plugin, store: &mut Store<Instant>, context: &Context, at: &InstanceRef) -> Result<Instance> {
    let answer = guest.proxy_operator_provider_provider().call_get(store, context, at).await?;
    answer.map_err(|error| anyhow!("{error:?}"))
}

/// As the operator's, without what bounds a guest.
fn config() -> Config {
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(16)
        .total_stacks(16)
        .total_core_instances(64)
        .total_memories(32)
        .total_tables(64)
        .max_memory_size(128 << 20)
        .linear_memory_keep_resident(128 << 10)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10);
    let mut config = Config::new();
    config
        .concurrency_support(false)
        .memory_init_cow(true)
        .memory_reservation(128 << 20)
        .memory_guard_size(1 << 20)
        .wasm_memory64(false)
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

fn none<T>() -> std::result::Result<T, Error> {
    Err(Error {
        code: ErrorCode::Internal,
        reason: "Unexpected".to_owned(),
        message: "a get does not call this".to_owned(),
        backend: None,
        retry_after_seconds: None,
    })
}

fn address(source: AddressSource) -> Address {
    Address { host: kvm::ADDRESS.to_owned(), source }
}

impl types::Host for Instant {}

impl log::Host for Instant {
    fn enabled(&mut self, _: log::Level) -> bool {
        false
    }
    fn log(&mut self, _: log::Level, _: String, _: Vec<(String, String)>) {}
    fn fatal(&mut self, _: String) {}
}

type Answer<T> = std::result::Result<T, Error>;

impl libvirt::Host for Instant {
    fn hosts(&mut self) -> Vec<HostGrant> {
        vec![HostGrant {
            name: kvm::HOST.to_owned(),
            pools: vec!["default".to_owned()],
            networks: vec!["lan".to_owned()],
            max_vcpus: None,
            max_memory_mib: None,
            max_volume_size: None,
        }]
    }

    fn lookup_domain(&mut self, _: String, name: String) -> Answer<Option<Domain>> {
        Ok(Some(Domain {
            name,
            owner: kvm::OWNER.to_owned(),
            state: DomainState::Running,
            addresses: vec![address(AddressSource::Lease)],
            created_at: Some(kvm::CREATED.to_owned()),
        }))
    }

    fn agent_addresses(&mut self, _: String, _: String) -> Answer<Option<Vec<Address>>> {
        Ok(Some(vec![address(AddressSource::Agent)]))
    }

    fn info(&mut self, _: String) -> Answer<HostInfo> {
        none()
    }
    fn list_domains(&mut self, _: String) -> Answer<Vec<Domain>> {
        none()
    }
    fn neighbour_addresses(&mut self, _: String, _: String) -> Answer<Vec<Address>> {
        none()
    }
    fn define_domain(&mut self, _: String, _: DomainSpec) -> Answer<Domain> {
        none()
    }
    fn start_domain(&mut self, _: String, _: String) -> Answer<()> {
        none()
    }
    fn destroy_domain(&mut self, _: String, _: String) -> Answer<()> {
        none()
    }
    fn undefine_domain(&mut self, _: String, _: String) -> Answer<()> {
        none()
    }
    fn list_volumes(&mut self, _: String, _: Option<String>) -> Answer<Vec<Volume>> {
        none()
    }
    fn create_volume(&mut self, _: String, _: String, _: String, _: VolumeSpec) -> Answer<()> {
        none()
    }
    fn write_volume(&mut self, _: String, _: String, _: String, _: Vec<u8>) -> Answer<()> {
        none()
    }
    fn delete_volume(&mut self, _: String, _: String, _: String) -> Answer<()> {
        none()
    }
}
