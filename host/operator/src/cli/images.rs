//! `proxy-operator images`: base images in the pools of the granted hypervisors.

use std::collections::BTreeSet;

use proxy_operator_api::Provider;
use proxy_operator_api::grants::LibvirtHost;
use proxy_operator_capabilities::images::{Condition, ImageService, StoredImage};
use proxy_operator_core::error::Result;

use super::folder::Folder;
use super::get::objects;
use super::render::{cell, print, table};
use super::standalone::infrastructure;
use super::{Logging, render};
use crate::store::Kind;

/// What to do with base images.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Show them: whole or partial, who uses them, how large they are.
    List(Arguments),
    /// Delete those that nobody uses. They are brought again when a Proxy needs them.
    Prune {
        #[command(flatten)]
        arguments: Arguments,
        /// Say what would be deleted, and delete nothing.
        #[arg(long)]
        dry_run: bool,
    },
}

/// Where to look.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// Only the hypervisors of this Provider.
    #[arg(long)]
    provider: Option<String>,
    #[command(flatten)]
    logging: Logging,
}

/// A granted pool. Two Providers may grant the same.
struct Pool {
    host: String,
    granted: LibvirtHost,
    pool: String,
}

/// Runs the command.
pub(super) fn run(command: Command) -> anyhow::Result<()> {
    let (arguments, is_prune, is_dry) = match command {
        Command::List(arguments) => (arguments, false, false),
        Command::Prune { arguments, dry_run } => (arguments, true, dry_run),
    };
    arguments.logging.start("warn")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let pools = pools(&arguments)?;
        let state = arguments.folder.state();
        let id = std::fs::read_to_string(state.join("installation-id"))?;
        let (hypervisors, images) = infrastructure(arguments.folder.manifests(), &state, id.trim());
        let mut rows = vec![];
        let mut failed = 0;
        for pool in &pools {
            match visit(&images, pool, is_prune, is_dry).await {
                Ok(found) => rows.extend(found.iter().map(|image| row(pool, image))),
                Err(error) => {
                    failed += 1;
                    render::error(&anyhow::Error::new(error).context(format!("{}/{}", pool.host, pool.pool)));
                }
            }
        }
        tokio::task::block_in_place(|| hypervisors.close());
        let header = ["HOST", "POOL", "IMAGE", "STATE", "SIZE", "USERS", "DIGEST"];
        match (is_prune, rows.is_empty()) {
            (true, true) if failed == 0 => print("nothing to delete: every base image is in use\n")?,
            (true, false) => {
                print(if is_dry { "would be deleted:\n" } else { "deleted:\n" })?;
                print(&table(&header, &rows))?;
            }
            _ => print(&table(&header, &rows))?,
        }
        anyhow::ensure!(failed == 0, "{failed} of {} pools could not be asked", pools.len());
        Ok(())
    })
}

async fn visit(images: &ImageService, pool: &Pool, is_prune: bool, is_dry: bool) -> Result<Vec<StoredImage>> {
    if is_prune && !is_dry {
        return images.prune(&pool.host, &pool.granted, &pool.pool, &|_| false).await;
    }
    let mut found = images.list(&pool.host, &pool.granted, &pool.pool).await?;
    if is_dry {
        found.retain(|image| image.users.is_empty() && image.condition != Condition::Uploading);
    }
    Ok(found)
}

fn pools(arguments: &Arguments) -> anyhow::Result<Vec<Pool>> {
    let database = arguments.folder.database()?;
    let mut seen = BTreeSet::new();
    let mut pools = vec![];
    for provider in objects::<Provider>(&database, Kind::Provider)? {
        if arguments.provider.as_ref().is_some_and(|wanted| provider.metadata.name.as_ref() != Some(wanted)) {
            continue;
        }
        for (host, granted) in provider.spec.grants.libvirt.unwrap_or_default().hosts {
            for pool in &granted.pools {
                if seen.insert((granted.address.clone(), granted.socket.clone(), pool.clone())) {
                    pools.push(Pool { host: host.clone(), granted: granted.clone(), pool: pool.clone() });
                }
            }
        }
    }
    anyhow::ensure!(!pools.is_empty(), "no Provider in {} grants a pool", arguments.folder.manifests().display());
    Ok(pools)
}

fn row(pool: &Pool, image: &StoredImage) -> Vec<String> {
    let StoredImage { volume, key: _, condition, digest, bytes, completed_at: _, users } = image;
    let condition = match condition {
        Condition::Whole => "whole",
        Condition::Partial => "partial",
        Condition::Uploading => "uploading",
        Condition::Leftover => "leftover",
    };
    vec![
        pool.host.clone(),
        pool.pool.clone(),
        volume.clone(),
        condition.to_owned(),
        cell(bytes.map(|bytes| format!("{} MiB", bytes >> 20)).as_deref()),
        users.len().to_string(),
        cell(digest.as_deref()),
    ]
}
