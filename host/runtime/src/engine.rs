//! The one engine of a process: compiles components, runs guests, counts time for them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use proxy_operator_core::error::{Error, Result};
use tokio::sync::{Semaphore, SemaphorePermit};
use wasmtime::{Config, Instance, InstanceAllocationStrategy, Module, PoolingAllocationConfig, Store};

use crate::cache::Cache;
use crate::limits;
use crate::wit::Linkers;

/// What an [`Engine`] is made with.
#[derive(Clone, Debug, Default)]
pub struct EngineSettings {
    /// The folder for compiled code; made when it is missing. `None`: every start compiles.
    pub cache_dir: Option<PathBuf>,
    /// Folders with code that was compiled when an image was built. Only read.
    pub prebuilt_dirs: Vec<PathBuf>,
    /// Allocate each guest anew, as on machines that do not give the address space for a pool.
    pub on_demand: bool,
}

/// The engine. Clones are the same engine.
#[derive(Clone)]
pub struct Engine(Arc<Inner>);

struct Inner {
    engine: wasmtime::Engine,
    linkers: Linkers,
    cache: Cache,
    pooled: bool,
    room: Semaphore,
    _ticker: Ticker,
}

/// Counts the epochs of an engine until it is dropped.
struct Ticker {
    thread: Option<JoinHandle<()>>,
    stop: Arc<std::sync::atomic::AtomicBool>,
}

/// `(module (memory 1))`
const PROBE: &[u8] = b"\0asm\x01\0\0\0\x05\x03\x01\0\x01";

// === impl Engine ===

impl Engine {
    /// Makes an engine. Fails where WebAssembly cannot run at all, or the folder for compiled code is not safe.
    pub fn new(settings: EngineSettings) -> Result<Self> {
        let EngineSettings { cache_dir, prebuilt_dirs, on_demand } = settings;
        let broken = |error: wasmtime::Error| {
            Error::internal("EngineUnavailable", format!("WebAssembly cannot run here: {error:#}"))
        };
        let pool = if on_demand { None } else { pooled() };
        let pooled = pool.is_some();
        let engine = match pool {
            Some(engine) => engine,
            None => probed(&config()).map_err(broken)?,
        };
        let linkers = Linkers::new(&engine).map_err(broken)?;
        let cache = Cache::new(&engine, cache_dir, prebuilt_dirs)?;
        let ticker = Ticker::start(&engine)?;
        let room = Semaphore::new(limits::GUESTS as usize);
        Ok(Self(Arc::new(Inner { engine, linkers, cache, pooled, room, _ticker: ticker })))
    }

    /// Whether guests come from a pool, rather than being allocated each time.
    pub fn is_pooled(&self) -> bool {
        self.0.pooled
    }

    pub(crate) fn wasmtime(&self) -> &wasmtime::Engine {
        &self.0.engine
    }

    pub(crate) fn linkers(&self) -> &Linkers {
        &self.0.linkers
    }

    pub(crate) fn cache(&self) -> &Cache {
        &self.0.cache
    }

    /// Waits for room for one more guest.
    pub(crate) async fn room(&self) -> Option<SemaphorePermit<'_>> {
        // It is never closed, hence `None` never comes.
        self.0.room.acquire().await.ok()
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Engine").field("pooled", &self.0.pooled).finish_non_exhaustive()
    }
}

/// What holds for a pool and without one. It is part of the key of the cache of compiled code.
fn config() -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        // Costs a third of a call, and is for guests that are async themselves, which the interface has not.
        .concurrency_support(false)
        .max_wasm_stack(limits::WASM_STACK)
        .async_stack_size(limits::FIBER_STACK)
        .memory_init_cow(true)
        .memory_reservation(limits::GUEST_MEMORY as u64)
        .memory_guard_size(1 << 20)
        .wasm_memory64(false);
    config
}

/// An engine with a pool, where the machine gives the address space for one.
fn pooled() -> Option<wasmtime::Engine> {
    let guests = limits::GUESTS;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(guests)
        .total_stacks(guests)
        .total_core_instances(guests * 16)
        .total_memories(guests * 2)
        .total_tables(guests * 8)
        .max_memory_size(limits::GUEST_MEMORY)
        .max_core_instances_per_component(limits::CORE_INSTANCES)
        .max_memories_per_component(limits::MEMORIES)
        .max_tables_per_component(limits::TABLES)
        .table_elements(limits::TABLE_ELEMENTS)
        .max_component_instance_size(2 << 20)
        .max_core_instance_size(2 << 20)
        .linear_memory_keep_resident(limits::KEEP_RESIDENT)
        .table_keep_resident(64 << 10)
        .async_stack_keep_resident(64 << 10)
        .max_unused_warm_slots(guests / 2);
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    match probed(&config) {
        Ok(engine) => Some(engine),
        Err(error) => {
            tracing::warn!(error = format!("{error:#}"), "no pool for plugins here, each call allocates");
            None
        }
    }
}

/// An engine that has run something.
fn probed(config: &Config) -> wasmtime::Result<wasmtime::Engine> {
    let engine = wasmtime::Engine::new(config)?;
    let module = Module::new(&engine, PROBE)?;
    Instance::new(&mut Store::new(&engine, ()), &module, &[])?;
    Ok(engine)
}

// === impl Ticker ===

impl Ticker {
    fn start(engine: &wasmtime::Engine) -> Result<Self> {
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (engine, stopped) = (engine.clone(), Arc::clone(&stop));
        let tick = move || {
            while !stopped.load(std::sync::atomic::Ordering::Relaxed) {
                engine.increment_epoch();
                thread::park_timeout(limits::TICK);
            }
        };
        let thread = thread::Builder::new().name("plugin-ticker".to_owned()).spawn(tick).map_err(|error| {
            Error::internal("EngineUnavailable", format!("no thread for the ticker of plugins: {error}"))
        })?;
        Ok(Self { thread: Some(thread), stop })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.stop.store(true, std::sync::atomic::Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}
