//! From JSON to the plugin's own types; what is wrong is said with the place where it is.

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use crate::{Error, Fault, InstanceSpec, Result};

/// `Provider::Parameters` of a plugin that knows no `Proxy.spec.parameters`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoParameters {}

/// Parses JSON. A fault carries the JSON Pointer of what does not fit.
pub fn from_json<T: DeserializeOwned>(json: &str) -> std::result::Result<T, Fault> {
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().iter().map(segment).collect::<String>();
        Fault::new(path, error.inner().to_string())
    })?;
    deserializer.end().map_err(|error| Fault::new("", error.to_string()))?;
    Ok(value)
}

/// Parses `Proxy.spec.parameters`; what does not fit is `invalid-proxy`.
pub fn parameters<T: DeserializeOwned>(spec: &InstanceSpec) -> Result<T> {
    from_json(&spec.parameters).map_err(|Fault { path, message }| {
        Error::invalid_proxy("ParametersInvalid", format!("spec.parameters{path}: {message}"))
    })
}

/// One segment of a JSON Pointer, with its slash.
fn segment(segment: &Segment) -> String {
    match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { .. } | Segment::Unknown => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Config {
        rooms: BTreeMap<String, Vec<u8>>,
    }

    #[test]
    fn faults_point_at_what_is_wrong() {
        for (json, path, words) in [
            (r#"{"rooms": {"a/b~c": [1, -2]}}"#, "/rooms/a~1b~0c/1", "-2"),
            (r#"{"rooms": {}, "door": 1}"#, "/door", "unknown field `door`"),
            (r#"{}"#, "", "missing field `rooms`"),
            (r#"{"rooms": "#, "/rooms", "EOF"),
            (r#"{"rooms": {}} x"#, "", "trailing"),
        ] {
            let fault = from_json::<Config>(json).unwrap_err();
            assert_eq!(fault.path, path, "{json}: {}", fault.message);
            assert!(fault.message.contains(words), "{json}: {}", fault.message);
        }
    }

    #[test]
    fn no_parameters_are_an_empty_object() {
        assert_eq!(from_json::<NoParameters>("{}").unwrap(), NoParameters {});
        assert_eq!(from_json::<NoParameters>(r#"{"size": 1}"#).unwrap_err().path, "/size");
    }
}
