//! Logs: one line an event, for people on a terminal and as JSON elsewhere.
//!
//! A line says for which proxy, Provider and call it is: the fields of all spans around it, each key once, the
//! outermost first. Logs go to standard error, so that what a command prints stays clean.

mod fields;

use std::io::{IsTerminal as _, Write};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use serde_json::{Map, Value};
use tracing::{Event, Level, Subscriber, span};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use self::fields::Fields;

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Text on a terminal, JSON elsewhere.
    #[default]
    Auto,
    /// For people.
    Text,
    /// For programs.
    Json,
}

/// What a text line repeats from the spans around it; a JSON line has all.
const TEXT_SPAN_FIELDS: [&str; 3] = ["proxy", "provider", "call"];

/// Starts logging for the whole process.
///
/// # Errors
/// When the filter cannot be parsed, or logging was started before.
pub fn start(format: Format, filter: &str) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(filter)?;
    tracing_subscriber::registry().with(filter).with(Lines::new(format, std::io::stderr())).try_init()?;
    Ok(())
}

/// The layer that writes lines. Public for tests that want the same lines.
pub struct Lines<W> {
    is_json: bool,
    writer: Mutex<W>,
}

// === impl Lines ===

impl<W: Write> Lines<W> {
    /// Writes lines to a writer.
    pub fn new(format: Format, writer: W) -> Self {
        let is_json = match format {
            Format::Auto => !std::io::stderr().is_terminal(),
            Format::Text => false,
            Format::Json => true,
        };
        Self { is_json, writer: Mutex::new(writer) }
    }

    fn write(&self, line: &str) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody can be told that logs cannot be written.
        let _ = writer.write_all(line.as_bytes());
    }
}

impl<S, W> Layer<S> for Lines<W>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: Write + Send + 'static,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &span::Id, context: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = context.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &span::Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Fields>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut around = Fields::default();
        for span in context.event_scope(event).into_iter().flat_map(|scope| scope.from_root()) {
            if let Some(fields) = span.extensions().get::<Fields>() {
                around.add_missing(fields);
            }
        }
        let mut own = Fields::default();
        event.record(&mut own);
        let level = *event.metadata().level();
        let line =
            if self.is_json { json(level, event.metadata().target(), &around, own) } else { text(level, &around, own) };
        self.write(&line);
    }
}

/// `03:49:19.123 INFO proxy=default/a provider=kvm call=create: message key=value`
fn text(level: Level, around: &Fields, mut own: Fields) -> String {
    let message = own.take_message();
    let mut line = format!("{} {level:<5}", Timestamp::now().strftime("%H:%M:%S%.3f"));
    let shown = around.iter().filter(|(name, _)| TEXT_SPAN_FIELDS.contains(&name.as_str()) && own.get(name).is_none());
    for (name, value) in shown {
        line.push_str(&format!(" {name}={}", fields::plain(value)));
    }
    if !message.is_empty() {
        line.push(' ');
        line.push_str(&fields::escape(&message));
    }
    for (name, value) in own.iter() {
        line.push_str(&format!(" {name}={}", fields::plain(value)));
    }
    line.push('\n');
    line
}

fn json(level: Level, target: &str, around: &Fields, mut own: Fields) -> String {
    let mut object = Map::new();
    object.insert("time".into(), Value::String(Timestamp::now().to_string()));
    object.insert("level".into(), Value::String(level.to_string().to_lowercase()));
    object.insert("message".into(), Value::String(own.take_message()));
    object.insert("target".into(), Value::String(target.to_owned()));
    own.add_missing(around);
    for (name, value) in own.iter() {
        object.entry(name.clone()).or_insert_with(|| value.clone());
    }
    format!("{}\n", Value::Object(object))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Clone, Default)]
    struct Buffer(Arc<Mutex<Vec<u8>>>);

    impl Write for Buffer {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().expect("locks").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, log: impl FnOnce()) -> String {
        let buffer = Buffer::default();
        let subscriber = tracing_subscriber::registry().with(Lines::new(format, buffer.clone()));
        tracing::subscriber::with_default(subscriber, log);
        let bytes = buffer.0.lock().expect("locks").clone();
        String::from_utf8(bytes).expect("UTF-8")
    }

    fn log_one() {
        let outer = tracing::info_span!("proxy", proxy = "default/a", provider = tracing::field::Empty);
        outer.record("provider", "kvm-home");
        let _outer = outer.entered();
        let _inner = tracing::info_span!("call", proxy = "another name", call = "create", plugin = "kvm").entered();
        tracing::info!(rpc = "virDomainCreate", ms = 3, "one\nline");
    }

    #[test]
    fn a_text_line_names_proxy_provider_and_call_once() {
        let line = logged(Format::Text, log_one);
        let (_, rest) = line.split_once(' ').expect("has a time");
        assert_eq!(rest, "INFO  proxy=default/a provider=kvm-home call=create one\\nline rpc=virDomainCreate ms=3\n");
    }

    #[test]
    fn a_json_line_has_all() {
        let line: Value = serde_json::from_str(&logged(Format::Json, log_one)).expect("parses");
        let field = |name: &str| line.get(name).cloned().unwrap_or_default();
        assert_eq!(
            (field("proxy"), field("call"), field("plugin")),
            ("default/a".into(), "create".into(), "kvm".into())
        );
        assert_eq!((field("ms"), field("message")), (3.into(), "one\nline".into()));
    }
}
