//! Measures: each figure beside a baseline of the same run.
//!
//! `proxy-operator-bench [-o results.json] [FIGURE…]` runs all figures or those named, prints a table, and writes one
//! flat object `{"name": number}`. What each figure means stands in docs/performance.md. A goal that is missed is
//! shown and is no failure; what could not be measured is one.

mod bare;
mod call_vs_grpc;
mod call_vs_wasmtime;
mod fresh_vs_reused;
mod hypervisor;
mod kvm;
mod libvirt_list;
mod recorder;
mod report;
mod sample;
mod start_cold;
mod upload_vs_scp;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};

use crate::report::Report;

/// A figure: its name, what measures it.
type Figure = (&'static str, fn(&mut Report) -> Result<()>);

/// In the order in which they run: those that compute first, on a machine that is still quiet.
const FIGURES: [Figure; 6] = [
    ("call_vs_wasmtime", call_vs_wasmtime::run),
    ("fresh_vs_reused", fresh_vs_reused::run),
    ("call_vs_grpc", call_vs_grpc::run),
    ("start_cold_ms", start_cold::run),
    ("libvirt_list_100_rpcs", libvirt_list::run),
    ("upload_vs_scp", upload_vs_scp::run),
];

fn main() -> Result<ExitCode> {
    let (file, names) = arguments()?;
    recorder::start()?;
    let mut report = Report::open(file)?;
    let mut failed = false;
    for (name, measure) in FIGURES.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name)) {
        report.say(&format!("{name} …"))?;
        if let Err(error) = measure(&mut report) {
            failed = true;
            report.say(&format!("{name} could not be measured: {error:#}"))?;
        }
        // After each, so that what was measured is kept whatever becomes of the rest.
        report.write()?;
    }
    report.table()?;
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn arguments() -> Result<(PathBuf, Vec<String>)> {
    let (mut file, mut names) = (PathBuf::from("results.json"), Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-o" => file = arguments.next().context("a file after -o")?.into(),
            name if FIGURES.iter().any(|(figure, _)| *figure == name) => names.push(argument),
            _ => bail!("{argument} is no figure; there are {}", FIGURES.map(|(name, _)| name).join(", ")),
        }
    }
    Ok((file, names))
}
