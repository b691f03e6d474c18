//! Where figures go: a file for programs, a table for people.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Which way a figure is good.
enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// The figures that have a goal.
const GOALS: [(&str, Goal); 6] = [
    ("call_vs_wasmtime", Goal::AtMost(1.3)),
    ("fresh_vs_reused", Goal::AtMost(2.5)),
    ("call_vs_grpc", Goal::AtMost(0.2)),
    ("libvirt_list_100_rpcs", Goal::AtMost(4.0)),
    ("upload_vs_scp", Goal::AtLeast(0.8)),
    ("start_cold_ms", Goal::AtMost(300.0)),
];

/// The figures of this run, and those of earlier ones that this run did not measure.
pub(crate) struct Report {
    file: PathBuf,
    figures: BTreeMap<String, f64>,
    measured: BTreeMap<String, f64>,
}

// === impl Report ===

impl Report {
    /// With what an earlier run wrote to the file.
    pub(crate) fn open(file: PathBuf) -> Result<Self> {
        let earlier: Value = match std::fs::read_to_string(&file) {
            Ok(text) => serde_json::from_str(&text).with_context(|| format!("{} is not JSON", file.display()))?,
            Err(_) => Value::Null,
        };
        let numbers = earlier.as_object().into_iter().flatten();
        let figures = numbers.filter_map(|(name, number)| Some((name.clone(), number.as_f64()?))).collect();
        Ok(Self { file, figures, measured: BTreeMap::new() })
    }

    /// Keeps a figure, to three decimals: more is noise.
    pub(crate) fn put(&mut self, name: &str, number: f64) {
        let rounded = (number * 1_000.0).round() / 1_000.0;
        self.figures.insert(name.to_owned(), rounded);
        self.measured.insert(name.to_owned(), rounded);
    }

    /// Writes all figures.
    pub(crate) fn write(&self) -> Result<()> {
        if let Some(folder) = self.file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let text = serde_json::to_string_pretty(&self.figures)?;
        std::fs::write(&self.file, text + "\n").with_context(|| self.file.display().to_string())
    }

    /// A line for who waits.
    pub(crate) fn say(&self, line: &str) -> Result<()> {
        Ok(writeln!(std::io::stderr(), "{line}")?)
    }

    /// What was measured, goals first.
    pub(crate) fn table(&self) -> Result<()> {
        let mut out = std::io::stdout().lock();
        writeln!(out, "\n{:34} {:>12} {:>9}", "figure", "measured", "goal")?;
        for (name, goal) in &GOALS {
            let Some(number) = self.measured.get(*name) else { continue };
            let (sign, bound, met) = match goal {
                Goal::AtMost(bound) => ("≤", bound, number <= bound),
                Goal::AtLeast(bound) => ("≥", bound, number >= bound),
            };
            let verdict = if met { "met" } else { "MISSED" };
            writeln!(out, "{name:34} {number:12.3} {:>9} {verdict}", format!("{sign} {bound}"))?;
        }
        for (name, number) in self.measured.iter().filter(|(name, _)| GOALS.iter().all(|(goal, _)| goal != name)) {
            writeln!(out, "{name:34} {number:12.3}")?;
        }
        Ok(writeln!(out, "\nwritten to {}", self.file.display())?)
    }
}
