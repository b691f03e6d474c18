//! `fresh_vs_reused`: a fresh pooled instance for each call, against one instance that serves them all; both under bare
//! wasmtime, the same component.

use anyhow::Result;

use crate::bare::{self, Bare};
use crate::kvm;
use crate::report::Report;
use crate::sample::{in_turn, runtime};

/// Calls of each.
const PAIRS: usize = 10_000;

pub(crate) fn run(report: &mut Report) -> Result<()> {
    runtime()?.block_on(async {
        let bare = Bare::new(&kvm::component()?)?;
        let at = bare::instance();
        let mut reused = bare.reused().await?;
        let medians =
            in_turn(PAIRS, async || bare.fresh_get(&at).await.map(drop), async || reused.get(&at).await.map(drop))
                .await?;
        report.put("fresh_vs_reused", medians.ratio());
        report.put("call_fresh_p50_us", medians.measured_us);
        report.put("call_reused_p50_us", medians.baseline_us);
        // What of it is store and instance alone.
        let empty = in_turn(PAIRS, async || bare.fresh_alone().await, async || Ok(())).await?;
        report.put("instance_fresh_p50_us", empty.measured_us);
        Ok(())
    })
}
