//! The fields of a span or an event, in order, each key once.

use serde_json::Value;
use tracing::field::{Field, Visit};

/// Fields as they were recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Fields(Vec<(String, Value)>);

// === impl Fields ===

impl Fields {
    pub(super) fn iter(&self) -> impl Iterator<Item = &(String, Value)> {
        self.0.iter()
    }

    pub(super) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Adds the fields whose keys are not there yet.
    pub(super) fn add_missing(&mut self, other: &Self) {
        for (name, value) in &other.0 {
            if self.get(name).is_none() {
                self.0.push((name.clone(), value.clone()));
            }
        }
    }

    /// Takes the message out.
    pub(super) fn take_message(&mut self) -> String {
        let index = self.0.iter().position(|(name, _)| name == "message");
        match index.map(|index| self.0.remove(index).1) {
            Some(Value::String(text)) => text,
            Some(other) => other.to_string(),
            None => String::new(),
        }
    }

    fn put(&mut self, field: &Field, value: Value) {
        match self.0.iter_mut().find(|(name, _)| name == field.name()) {
            Some((_, old)) => *old = value,
            None => self.0.push((field.name().to_owned(), value)),
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.put(field, Value::String(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, Value::String(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    /// The whole chain of causes, each once.
    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut text = value.to_string();
        let mut source = value.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.ends_with(&cause_text) {
                text.push_str(": ");
                text.push_str(&cause_text);
            }
            source = cause.source();
        }
        self.put(field, Value::String(text));
    }
}

/// A value in a text line: quoted only where it has to be.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) if text.is_empty() || text.contains([' ', '"', '=']) => format!("{:?}", escape(text)),
        Value::String(text) => escape(text),
        other => other.to_string(),
    }
}

/// Control characters would break the line or the terminal.
pub(super) fn escape(text: &str) -> String {
    if !text.chars().any(char::is_control) {
        return text.to_owned();
    }
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] }).collect()
}
