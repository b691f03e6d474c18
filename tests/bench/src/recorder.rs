//! The log of this process: written as the operator writes it, to nowhere, and counted.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use proxy_operator::logging::{Format, Lines};
use tracing::field::{Field, Visit};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

/// One line of the targets that are recorded, by field.
pub(crate) type Line = BTreeMap<String, String>;

/// The targets that are recorded: one line for each RPC, and for each transfer of an image.
const TARGETS: [&str; 2] = ["libvirt", "images"];

static LINES: LazyLock<Mutex<Vec<Line>>> = LazyLock::new(Mutex::default);

/// Records the lines of [`TARGETS`].
struct Recorder;

/// Collects the fields of one line.
struct Fields(Line);

/// Starts the log, with what the operator writes at `info` and the lines of RPCs. It goes the operator's own way up to
/// the writer, since a call pays for the span it runs in.
pub(crate) fn start() -> Result<()> {
    let filter = EnvFilter::try_new("info,libvirt=debug")?;
    tracing_subscriber::registry()
        .with(filter)
        .with(Lines::new(Format::Json, std::io::sink()))
        .with(Recorder)
        .try_init()?;
    Ok(())
}

/// Takes what was recorded since it was last taken.
pub(crate) fn take() -> Vec<Line> {
    std::mem::take(&mut *lines())
}

/// The RPCs among the lines since the last taking, in order.
pub(crate) fn take_rpcs() -> Vec<String> {
    take().into_iter().filter_map(|mut line| line.remove("rpc")).collect()
}

fn lines() -> MutexGuard<'static, Vec<Line>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: tracing::Subscriber> Layer<S> for Recorder {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if TARGETS.contains(&event.metadata().target()) {
            let mut fields = Fields(Line::new());
            event.record(&mut fields);
            lines().push(fields.0);
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }
}
