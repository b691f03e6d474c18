//! The data of one guest's store: what it may reach, how much it may take.

use std::sync::{Arc, PoisonError, RwLock};

use proxy_operator_core::capability::{Capabilities, images::Images, libvirt::Libvirt};
use proxy_operator_core::error::Error;
use wasmtime::component::ResourceTable;
use wasmtime::{ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};

use crate::limits;
use crate::stderr::Stderr;
use crate::trap::Ended;
use crate::watch::{WaitGuard, Watch};

/// What a capability answers to a guest.
pub(crate) type Answer<T> = Result<T, Denied>;

/// Why a capability did not do what it was asked.
pub(crate) enum Denied {
    /// The guest is told.
    Answer(Error),
    /// The guest is ended.
    End(Ended),
}

/// The grants of one Provider, shared by its calls: a change applies to those in flight too.
#[derive(Clone, Default)]
pub(crate) struct Grants(Arc<RwLock<Capabilities>>);

/// What a call may reach.
#[derive(Clone)]
pub(crate) enum Reach {
    /// What the Provider was granted.
    Granted(Grants),
    /// Nothing but its log.
    Nothing,
    /// Nothing but its log and the names in its grants.
    Names(Grants),
}

/// A guest's memory and tables, and what it was refused of them.
struct Limiter {
    watch: Arc<Watch>,
    memory: usize,
}

/// The data of a store.
pub(crate) struct State {
    wasi: WasiCtx,
    table: ResourceTable,
    limiter: Limiter,
    reach: Reach,
    method: &'static str,
    pub(crate) watch: Arc<Watch>,
}

/// A store for one guest, with all its limits set.
pub(crate) fn store(engine: &wasmtime::Engine, method: &'static str, reach: Reach, watch: &Arc<Watch>) -> Store<State> {
    let mut table = ResourceTable::new();
    table.set_max_capacity(limits::RESOURCES);
    // No arguments, environment, folders, sockets or names; standard input is empty, output goes nowhere.
    let mut wasi = WasiCtx::builder();
    wasi.stderr(Stderr(Arc::clone(watch)));
    wasi.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false).max_random_size(limits::RANDOM_BYTES);
    let limiter = Limiter { watch: Arc::clone(watch), memory: 0 };
    let state = State { wasi: wasi.build(), table, limiter, reach, method, watch: Arc::clone(watch) };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.limiter);
    store.set_hostcall_fuel(limits::HOSTCALL_BYTES);
    store.set_epoch_deadline(1);
    store.epoch_deadline_callback(|context| {
        let computed = context.data().watch.tick();
        if computed > limits::CPU_BUDGET {
            return Err(Ended::timed_out(format!("it computed for {} s", limits::CPU_BUDGET.as_secs())).into());
        }
        Ok(UpdateDeadline::Yield(1))
    });
    store
}

// === impl Denied ===

impl From<Error> for Denied {
    fn from(error: Error) -> Self {
        Self::Answer(error)
    }
}

// === impl Grants ===

impl Grants {
    pub(crate) fn new(capabilities: Capabilities) -> Self {
        Self(Arc::new(RwLock::new(capabilities)))
    }

    pub(crate) fn get(&self) -> Capabilities {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, capabilities: Capabilities) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = capabilities;
    }
}

// === impl State ===

impl State {
    /// libvirt, for a function that touches a hypervisor.
    pub(crate) fn libvirt(&self, function: &str) -> Answer<Arc<dyn Libvirt>> {
        self.granted(function)?.libvirt.ok_or_else(|| missing(function, "libvirt"))
    }

    /// libvirt, for a function that tells what is granted. `None`: nothing is.
    pub(crate) fn libvirt_names(&self, function: &str) -> Answer<Option<Arc<dyn Libvirt>>> {
        match &self.reach {
            Reach::Granted(grants) | Reach::Names(grants) => Ok(grants.get().libvirt),
            Reach::Nothing => Err(self.out_of_reach(function)),
        }
    }

    /// Base images.
    pub(crate) fn images(&self, function: &str) -> Answer<Arc<dyn Images>> {
        self.granted(function)?.images.ok_or_else(|| missing(function, "images"))
    }

    /// The guest waits for the host until the guard is dropped.
    pub(crate) fn wait(&self, function: &str, whom: &str) -> WaitGuard {
        self.watch.wait(format!("{function} of {}", crate::bounds::escape(whom)))
    }

    fn granted(&self, function: &str) -> Answer<Capabilities> {
        match &self.reach {
            Reach::Granted(grants) => Ok(grants.get()),
            Reach::Nothing | Reach::Names(_) => Err(self.out_of_reach(function)),
        }
    }

    fn out_of_reach(&self, function: &str) -> Denied {
        let but = match &self.reach {
            Reach::Names(_) => "but to write to its log and ask for the names in its grants",
            Reach::Granted(_) | Reach::Nothing => "but to write to its log",
        };
        Denied::End(Ended::trapped(format!(
            "it called {function} in {}, where a plugin may do nothing {but}",
            self.method
        )))
    }
}

fn missing(function: &str, grant: &str) -> Denied {
    let message = format!("{function} is not granted; spec.grants.{grant} of the Provider would allow it");
    Denied::Answer(Error::permission_denied("GrantMissing", message))
}

impl WasiView for State {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView { ctx: &mut self.wasi, table: &mut self.table }
    }
}

// === impl Limiter ===

impl ResourceLimiter for Limiter {
    fn memory_growing(&mut self, current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        // All memories of the guest together.
        let total = self.memory.saturating_sub(current).saturating_add(desired);
        if total > limits::GUEST_MEMORY {
            let (wanted, most) = (total >> 20, limits::GUEST_MEMORY >> 20);
            self.watch.denied(format!("it wanted {wanted} MiB of memory, at most {most} are allowed"));
            return Ok(false);
        }
        self.memory = total;
        Ok(true)
    }

    fn memory_grow_failed(&mut self, error: wasmtime::Error) -> wasmtime::Result<()> {
        self.watch.denied(format!("its memory could not grow: {error}"));
        Ok(())
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> wasmtime::Result<bool> {
        if desired > limits::TABLE_ELEMENTS {
            let most = limits::TABLE_ELEMENTS;
            self.watch.denied(format!("it wanted a table of {desired} elements, at most {most} are allowed"));
            return Ok(false);
        }
        Ok(true)
    }

    fn instances(&self) -> usize {
        limits::CORE_INSTANCES as usize
    }

    fn tables(&self) -> usize {
        limits::TABLES as usize
    }

    fn memories(&self) -> usize {
        limits::MEMORIES as usize
    }
}

#[cfg(test)]
mod tests {
    use wasmtime_wasi::cli::WasiCliView;
    use wasmtime_wasi::filesystem::WasiFilesystemView;
    use wasmtime_wasi::p2::bindings::cli::environment::Host as _;
    use wasmtime_wasi::p2::bindings::filesystem::preopens::Host as _;
    use wasmtime_wasi::p2::bindings::sockets::instance_network::Host as _;
    use wasmtime_wasi::p2::bindings::sockets::ip_name_lookup::Host as _;
    use wasmtime_wasi::p2::bindings::sockets::network::IpAddressFamily;
    use wasmtime_wasi::p2::bindings::sockets::tcp_create_socket::Host as _;
    use wasmtime_wasi::p2::bindings::sockets::udp_create_socket::Host as _;
    use wasmtime_wasi::sockets::WasiSocketsView;

    use super::*;
    use crate::guest_log::LogRate;
    use crate::redact::Redactor;

    fn empty() -> Store<State> {
        let watch = Watch::new(Redactor::default(), Arc::new(LogRate::new()));
        store(&wasmtime::Engine::default(), "get", Reach::Nothing, &watch)
    }

    #[tokio::test]
    async fn the_stubs_of_wasi_reach_nothing() {
        let mut store = empty();
        let state = store.data_mut();
        assert!(state.cli().get_environment().unwrap().is_empty());
        assert!(state.cli().get_arguments().unwrap().is_empty());
        assert!(state.cli().initial_cwd().unwrap().is_none());
        assert!(state.filesystem().get_directories().unwrap().is_empty());
        assert!(state.sockets().create_tcp_socket(IpAddressFamily::Ipv4).is_err());
        assert!(state.sockets().create_udp_socket(IpAddressFamily::Ipv4).await.is_err());
        let network = state.sockets().instance_network().unwrap();
        assert!(state.sockets().resolve_addresses(network, "localhost".to_owned()).is_err());
    }

    #[test]
    fn all_memories_of_a_guest_count_together() {
        let mut store = empty();
        let limiter = &mut store.data_mut().limiter;
        let half = limits::GUEST_MEMORY / 2 + 1;
        assert!(limiter.memory_growing(0, half, None).unwrap());
        assert!(!limiter.memory_growing(0, half, None).unwrap());
        assert!(limiter.memory_growing(half, half + 65_536, None).unwrap());
        assert!(limiter.watch.denial().unwrap().contains("at most 128 are allowed"));
        assert!(!limiter.table_growing(0, limits::TABLE_ELEMENTS + 1, None).unwrap());
    }
}
