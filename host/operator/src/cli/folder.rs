//! Which folder a command is about.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::store::standalone::STATE_FOLDER;
use crate::store::standalone::database::{Database, FILE_NAME};

/// The folder of manifests and its state.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Folder {
    /// The folder of manifests.
    #[arg(short = 'C', long = "folder", env = "PROXY_OPERATOR_FOLDER", default_value = ".")]
    folder: PathBuf,
    /// The folder of state. Default: `state` in the folder of manifests.
    #[arg(long, env = "PROXY_OPERATOR_STATE")]
    state: Option<PathBuf>,
}

// === impl Folder ===

impl Folder {
    /// Opens the state for reading, beside the process that writes it.
    pub(super) fn database(&self) -> anyhow::Result<Database> {
        let state = self.state();
        let database = Database::open_read_only(&state)
            .with_context(|| format!("{} cannot be read", state.join(FILE_NAME).display()))?;
        database.with_context(|| {
            format!(
                "{} holds no state of proxy-operator; name the folder of manifests with -C, or start `proxy-operator standalone` there",
                self.folder.display()
            )
        })
    }

    /// The folder of state.
    pub(super) fn state(&self) -> PathBuf {
        state(&self.folder, self.state.as_deref())
    }

    /// The folder of manifests.
    pub(super) fn manifests(&self) -> &Path {
        &self.folder
    }
}

/// The folder of state of a folder of manifests.
pub(super) fn state(folder: &Path, state: Option<&Path>) -> PathBuf {
    state.map_or_else(|| folder.join(STATE_FOLDER), Path::to_owned)
}
