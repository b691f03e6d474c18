//! `call_vs_wasmtime`: a `get` of the shipped kvm plugin through the whole host path, against the same component under
//! bare wasmtime with a fresh pooled instance.

use anyhow::{Result, ensure};
use proxy_operator_core::provider::{Phase, Provider as _};

use crate::bare::Bare;
use crate::report::Report;
use crate::sample::{in_turn, runtime};
use crate::{bare, kvm};

/// Calls of each.
const PAIRS: usize = 10_000;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    runtime()?.block_on(async {
        let provider = kvm::provider().await?;
        let bare = Bare::new(&kvm::component()?)?;
        let instance = kvm::instance();
        // The same answer, before it is timed.
        let ours = provider.get(&instance).await?;
        let theirs = bare.fresh_get(&bare::instance()).await?;
        ensure!(ours.phase == Phase::Running && ours.id == theirs.id && ours.message == theirs.message, "{ours:?}");

        let at = bare::instance();
        let host = async || provider.get(&instance).await.map(drop).map_err(Into::into);
        let wasmtime = async || bare.fresh_get(&at).await.map(drop);
        let medians = in_turn(PAIRS, host, wasmtime).await?;
        report.put("call_vs_wasmtime", medians.ratio());
        report.put("call_get_p50_us", medians.measured_us);
        report.put("call_get_wasmtime_p50_us", medians.baseline_us);
        Ok(())
    })
}
