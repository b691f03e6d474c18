//! Times two things in turn, so that what disturbs the machine disturbs both.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Times of what is measured, and of its baseline.
#[derive(Default)]
pub(crate) struct Pairs {
    measured: Vec<Duration>,
    baseline: Vec<Duration>,
}

/// Medians in microseconds.
pub(crate) struct Medians {
    /// Of what is measured.
    pub(crate) measured_us: f64,
    /// Of the baseline.
    pub(crate) baseline_us: f64,
}

/// Runs A and B in turn: A B A B …; the first tenth only warms up.
pub(crate) async fn in_turn(
    pairs: usize,
    mut a: impl AsyncFnMut() -> Result<()>,
    mut b: impl AsyncFnMut() -> Result<()>,
) -> Result<Medians> {
    let mut times = Pairs::default();
    let warm = pairs / 10;
    for pair in 0..pairs + warm {
        let begun = Instant::now();
        a().await?;
        let between = Instant::now();
        b().await?;
        let ended = Instant::now();
        if pair >= warm {
            times.measured.push(between - begun);
            times.baseline.push(ended - between);
        }
    }
    let Pairs { measured, baseline } = times;
    Ok(Medians { measured_us: micros(median(measured)?), baseline_us: micros(median(baseline)?) })
}

/// The middle one.
pub(crate) fn median<T: PartialOrd>(mut values: Vec<T>) -> Result<T> {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
    let middle = values.len() / 2;
    values.into_iter().nth(middle).context("nothing was measured")
}

/// A time in microseconds.
pub(crate) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// A time in milliseconds.
pub(crate) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

// === impl Medians ===

impl Medians {
    /// How many times the baseline.
    pub(crate) fn ratio(&self) -> f64 {
        self.measured_us / self.baseline_us
    }
}

/// A runtime like the operator's.
pub(crate) fn runtime() -> Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}
