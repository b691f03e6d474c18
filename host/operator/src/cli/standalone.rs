//! `proxy-operator standalone DIR`: the whole operator over a folder of manifests.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use proxy_operator_capabilities::images::{ImageLimits, ImageService, LibvirtPools};
use proxy_operator_capabilities::libvirt::hypervisors::Hypervisors;
use proxy_operator_capabilities::limits::Limits;
use proxy_operator_capabilities::secrets::SecretStore;
use proxy_operator_runtime::{Engine, EngineSettings};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::{Logging, folder};
use crate::controller::{self, Plugins};
use crate::granting::Offers;
use crate::store::Store as _;
use crate::store::standalone::{self, SECRETS_FOLDER, StandaloneStore};

/// Where things are.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The folder of manifests. Secrets are in its sub-folder `secrets`: a folder each, with a file a key.
    folder: PathBuf,
    /// The folder of state. Default: `state` in the folder of manifests.
    #[arg(long, env = "PROXY_OPERATOR_STATE")]
    state: Option<PathBuf>,
    /// The folder of plugins. Default: `plugins` beside this program.
    #[arg(long, env = "PROXY_OPERATOR_PLUGINS")]
    plugins: Option<PathBuf>,
    #[command(flatten)]
    logging: Logging,
}

/// Runs until SIGTERM or SIGINT.
pub(super) fn run(arguments: Arguments) -> anyhow::Result<()> {
    arguments.logging.start("info")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let result = runtime.block_on(serve(arguments));
    // Calls that block are bounded by their own deadlines; the program does not wait for them.
    runtime.shutdown_background();
    result
}

async fn serve(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { folder, state, plugins, logging: _ } = arguments;
    let state = folder::state(&folder, state.as_deref());
    let plugins = match plugins {
        Some(plugins) => plugins,
        None => beside_this_program("plugins")?,
    };
    anyhow::ensure!(folder.is_dir(), "{} is not a folder; make it, and put manifests into it", folder.display());
    let _lock = lock(&state)?;
    let store = Arc::new(StandaloneStore::open(&folder, &state)?);
    let settings = EngineSettings { cache_dir: Some(state.join("compiled")), ..EngineSettings::default() };
    let engine = Engine::new(settings)?;
    let (hypervisors, images) = infrastructure(&folder, &state, store.cluster_id());
    let granting = Arc::new(Offers::new(hypervisors.clone(), images));

    let cancelled = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let cancel = cancelled.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
            _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
        }
        cancel.cancel();
    });
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        installation = store.cluster_id(),
        folder = %folder.display(), state = %state.display(), plugins = %plugins.display(),
        pooled = engine.is_pooled(),
        "started"
    );
    let watching = tokio::spawn(standalone::watch(Arc::clone(&store), cancelled.clone()));
    let plugins = Arc::new(Plugins::new(engine, plugins));
    controller::run(store, plugins, granting, cancelled).await;
    watching.await?;
    tokio::task::block_in_place(|| hypervisors.close());
    tracing::info!("ended");
    Ok(())
}

/// The connections of this process, and the images that go over them.
pub(super) fn infrastructure(folder: &Path, state: &Path, cluster_id: &str) -> (Hypervisors, ImageService) {
    let limits = Limits::default();
    let image_limits = ImageLimits::default();
    let hypervisors = Hypervisors::new(SecretStore::new(folder.join(SECRETS_FOLDER)), limits.clone());
    let pools = Arc::new(LibvirtPools::new(hypervisors.clone(), limits, &image_limits));
    let images = ImageService::new(&state.join("images"), cluster_id, pools, image_limits);
    (hypervisors, images)
}

/// One operator to a state folder: two would make two of everything.
fn lock(state: &Path) -> anyhow::Result<std::fs::File> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(state)
        .with_context(|| format!("{} cannot be made", state.display()))?;
    let path = state.join("lock");
    let file = std::fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => {
            anyhow::bail!("another proxy-operator runs on {}; end it first", state.display())
        }
        Err(std::fs::TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("{} cannot be locked", path.display()))
        }
    }
}

fn beside_this_program(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("the path of this program cannot be read; give --plugins")?;
    Ok(program.parent().map(|folder| folder.join(name)).unwrap_or_default())
}
