//! A plugin's JSON Schemas (2020-12), with bounds on what they may cost.
//!
//! A schema comes from a third party and runs in the host. So: no reference leaves the document, none leads back to
//! where it came from, unfolded it stays small (a short schema can double itself forty times), and regular
//! expressions are of the kind that runs in linear time.

use std::collections::HashMap;

use jsonschema::{Draft, PatternOptions, Validator};
use proxy_operator_core::provider::Fault;
use serde_json::Value;

use crate::bounds::{cut, escape};
use crate::limits;

/// A schema that is compiled.
pub(crate) struct Schema(Validator);

/// Measures a schema.
struct Survey<'a> {
    root: &'a Value,
    /// The unfolded size of what was measured, by address; `None` while it is being measured.
    sizes: HashMap<*const Value, Option<u64>>,
    patterns: usize,
}

/// A schema's size, or why it is refused: completes `its config schema …`.
type Size = Result<u64, String>;

// === impl Schema ===

impl Schema {
    /// Compiles a schema. The error completes `its config schema …`.
    pub(crate) fn new(text: &str) -> Result<Self, String> {
        if text.len() > limits::SCHEMA {
            return Err(format!("has {} bytes, at most {} are allowed", text.len(), limits::SCHEMA));
        }
        // serde_json itself refuses what is nested deeper than 128.
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("is not JSON: {error}"))?;
        if let Some(depth) = too_deep(&schema) {
            return Err(format!("is nested {depth} deep or more, at most {} are allowed", limits::SCHEMA_DEPTH));
        }
        let mut survey = Survey { root: &schema, sizes: HashMap::new(), patterns: 0 };
        survey.measure(&schema, 0)?;
        if survey.patterns > limits::PATTERNS {
            return Err(format!("has {} patterns, at most {} are allowed", survey.patterns, limits::PATTERNS));
        }
        let patterns = PatternOptions::regex().size_limit(limits::REGEX);
        jsonschema::options()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(patterns)
            .build(&schema)
            .map(Self)
            .map_err(|error| {
                let (at, why) = (error.instance_path().to_string(), error.to_string());
                let at = if at.is_empty() { String::new() } else { format!(" at {at}") };
                format!("is not a JSON Schema that can be used{at}: {}", cut(&escape(&why), limits::FAULT_VALUE))
            })
    }

    /// Holds a document against it.
    pub(crate) fn check(&self, document: &Value) -> Result<(), Vec<Fault>> {
        if too_deep(document).is_some() {
            let message = format!("is nested too deep, at most {} are allowed", limits::SCHEMA_DEPTH);
            return Err(vec![Fault { path: String::new(), message }]);
        }
        let fault = |error: jsonschema::ValidationError<'_>| Fault {
            path: cut(&error.instance_path().to_string(), limits::FAULT_PATH),
            message: cut(&escape(&error.to_string()), limits::FAULT_VALUE),
        };
        let faults: Vec<Fault> = self.0.iter_errors(document).take(limits::FAULTS).map(fault).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

// === impl Survey ===

impl<'a> Survey<'a> {
    /// The number of values that a part of the schema has when every reference is replaced by what it refers to.
    fn measure(&mut self, value: &'a Value, depth: usize) -> Size {
        if depth > limits::SCHEMA_UNFOLDED_DEPTH {
            return Err(format!("is nested more than {} deep through its references", limits::SCHEMA_UNFOLDED_DEPTH));
        }
        let address: *const Value = value;
        match self.sizes.get(&address) {
            Some(Some(size)) => return Ok(*size),
            Some(None) => return Err("refers to itself: recursive schemas are not supported".to_owned()),
            None => {}
        }
        self.sizes.insert(address, None);
        let mut size = 1_u64;
        match value {
            Value::Array(items) => {
                for item in items {
                    size = size.saturating_add(self.measure(item, depth + 1)?);
                }
            }
            Value::Object(members) => {
                for (key, member) in members {
                    size = size.saturating_add(self.measure_member(value, key, member, depth + 1)?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if size > limits::SCHEMA_UNFOLDED {
            return Err(format!("has more than {} parts once its references are followed", limits::SCHEMA_UNFOLDED));
        }
        self.sizes.insert(address, Some(size));
        Ok(size)
    }

    fn measure_member(&mut self, parent: &'a Value, key: &str, member: &'a Value, depth: usize) -> Size {
        match (key, member) {
            ("$ref", Value::String(reference)) => {
                let target = self.target(reference)?;
                return self.measure(target, depth);
            }
            // These resolve at run time, or change what references mean.
            ("$dynamicRef" | "$recursiveRef" | "$anchor" | "$dynamicAnchor", Value::String(name)) => {
                return Err(format!("uses {key} {:?}, which is not supported: use $ref with #/$defs/…", cut(name, 64)));
            }
            ("$id", Value::String(_)) if !std::ptr::eq(parent, self.root) => {
                return Err("has $id within, which is not supported".to_owned());
            }
            ("pattern", Value::String(_)) => self.patterns += 1,
            ("patternProperties", Value::Object(patterns)) => self.patterns += patterns.len(),
            _ => {}
        }
        self.measure(member, depth)
    }

    fn target(&self, reference: &str) -> Result<&'a Value, String> {
        let shown = cut(&escape(reference), 200);
        let Some(pointer) = reference.strip_prefix('#').filter(|p| p.is_empty() || p.starts_with('/')) else {
            return Err(format!("refers to {shown:?}: only references within the document (#/$defs/…) are followed"));
        };
        self.root.pointer(pointer).ok_or_else(|| format!("refers to {shown:?}, which is not there"))
    }
}

/// The depth of a value, when it is more than is allowed.
fn too_deep(value: &Value) -> Option<usize> {
    let mut level = vec![value];
    for depth in 0..=limits::SCHEMA_DEPTH {
        let mut next = Vec::new();
        for value in level {
            match value {
                Value::Array(items) => next.extend(items),
                Value::Object(members) => next.extend(members.values()),
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        if next.is_empty() {
            return None;
        }
        if depth == limits::SCHEMA_DEPTH {
            return Some(depth + 1);
        }
        level = next;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use serde_json::json;

    use super::*;

    fn refused(schema: Value) -> String {
        Schema::new(&schema.to_string()).map(|_| ()).unwrap_err()
    }

    #[test]
    fn faults_tell_place_and_value() {
        let schema = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {"images": {"additionalProperties": {"$ref": "#/$defs/image"}}},
            "$defs": {"image": {"properties": {"firmware": {"enum": ["bios", "uefi"]}}, "required": ["url"]}},
        });
        let schema = Schema::new(&schema.to_string()).unwrap();
        assert_eq!(schema.check(&json!({"images": {"debian-12": {"url": "x", "firmware": "uefi"}}})), Ok(()));
        let faults = schema.check(&json!({"images": {"debian-12": {"firmware": "efi"}}, "imags": {}})).unwrap_err();
        let texts: Vec<String> = faults.iter().map(|f| format!("{} {}", f.path, f.message)).collect();
        let texts = texts.join("\n");
        assert!(texts.contains("/images/debian-12/firmware \"efi\" is not one of \"bios\" or \"uefi\""), "{texts}");
        assert!(texts.contains("\"url\" is a required property"), "{texts}");
        assert!(texts.contains("'imags' was unexpected"), "{texts}");
    }

    #[test]
    fn references_stay_within() {
        for reference in ["https://example.com/schema.json", "file:///etc/passwd", "other.json#/x", "#name"] {
            let why = refused(json!({"properties": {"a": {"$ref": reference}}}));
            assert!(why.contains(reference) && why.contains("within the document"), "{why}");
        }
        assert!(refused(json!({"$ref": "#/$defs/none"})).contains("is not there"));
        assert!(refused(json!({"$dynamicRef": "#a"})).contains("not supported"));
    }

    #[test]
    fn what_multiplies_itself_is_refused() {
        assert!(refused(json!({"$ref": "#"})).contains("refers to itself"));
        assert!(
            refused(json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}))
                .contains("refers to itself")
        );
        let mut defs = serde_json::Map::new();
        for i in 0..40 {
            let next = json!({"$ref": format!("#/$defs/a{}", i + 1)});
            defs.insert(format!("a{i}"), json!({"allOf": [next, next]}));
        }
        defs.insert("a40".into(), json!({"type": "object"}));
        assert!(
            refused(json!({"$ref": "#/$defs/a0", "$defs": defs})).contains("parts once its references are followed")
        );
    }

    #[test]
    fn size_and_depth_are_bounded() {
        let deep = (0..70).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(refused(deep.clone()).contains("nested"));
        assert!(Schema::new(&"[".repeat(100_000)).map(|_| ()).unwrap_err().contains("not JSON"));
        assert!(Schema::new(&" ".repeat(limits::SCHEMA + 1)).map(|_| ()).unwrap_err().contains("at most"));
        let faults = Schema::new("{}").unwrap().check(&deep).unwrap_err();
        assert!(faults[0].message.contains("nested too deep"));
        let many: Value = (0..1000).map(|i| json!({"pattern": format!("a{i}")})).collect();
        assert!(refused(json!({"anyOf": many})).contains("patterns"));
    }

    #[test]
    fn regular_expressions_are_linear() {
        let schema = Schema::new(&json!({"pattern": "^(a+)+$"}).to_string()).unwrap();
        let begun = Instant::now();
        assert!(schema.check(&json!(format!("{}!", "a".repeat(100_000)))).is_err());
        assert!(begun.elapsed() < Duration::from_secs(1));
        assert!(refused(json!({"pattern": "^(?=a)b"})).contains("(?=a)"), "{}", refused(json!({"pattern": "^(?=a)b"})));
        assert!(refused(json!({"pattern": "(a{1000}){1000}"})).contains("a{1000}"));
    }

    #[test]
    fn long_values_are_cut() {
        let schema = Schema::new(&json!({"type": "integer"}).to_string()).unwrap();
        let faults = schema.check(&json!("x".repeat(100_000))).unwrap_err();
        assert!(faults[0].message.len() <= limits::FAULT_VALUE, "{}", faults[0].message.len());
    }
}
