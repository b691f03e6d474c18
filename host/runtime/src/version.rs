//! Reads from a component which version of the provider interface it was built for, before it is compiled.

use std::fmt;

use proxy_operator_core::error::{Error, Result};
use wasmparser::{Encoding, Parser, Payload};

use crate::bounds;
use crate::wit::{OFFERED, SUPPORTED};

/// A version of the provider interface. Patch releases do not change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ApiVersion {
    /// The major number.
    pub major: u64,
    /// The minor number.
    pub minor: u64,
}

/// The interface that a plugin exports.
const PROVIDER: &str = "proxy-operator:provider/provider";

/// WASI packages of which inert stubs are linked.
const WASI: [&str; 6] = ["wasi:cli/", "wasi:clocks/", "wasi:filesystem/", "wasi:io/", "wasi:random/", "wasi:sockets/"];

/// What a component imports and exports at its outermost level.
#[derive(Default)]
struct Surface {
    imports: Vec<String>,
    exports: Vec<String>,
}

/// The version that a component was built for, if this host serves it and offers what it imports.
pub(crate) fn of(plugin: &str, bytes: &[u8]) -> Result<ApiVersion> {
    let incompatible = |why: String| Error::invalid_config("PluginIncompatible", format!("plugin {plugin} {why}"));
    let surface = surface(bytes).map_err(incompatible)?;
    let Some(version) = surface.exports.iter().find_map(|name| version_of(PROVIDER, name)) else {
        let newest = SUPPORTED.last().map(ToString::to_string).unwrap_or_default();
        return Err(incompatible(format!("is a component, but no provider: it does not export {PROVIDER}@{newest}.0")));
    };
    let Some(version) = version.filter(|version| SUPPORTED.contains(version)) else {
        let built = version.map_or("without a version".to_owned(), |version| version.to_string());
        return Err(incompatible(format!("was built for provider API {built}, this host supports {}", supported())));
    };
    for import in &surface.imports {
        let (interface, _) = import.split_once('@').unwrap_or((import, ""));
        if !OFFERED.contains(&interface) && !WASI.iter().any(|package| interface.starts_with(package)) {
            let import = bounds::escape(&bounds::cut(import, 200));
            return Err(incompatible(format!(
                "imports {import}, which this host does not offer; it offers {}",
                OFFERED.join(", ")
            )));
        }
    }
    Ok(version)
}

/// The versions that this host serves: `0.1`, `0.1 to 0.3`.
fn supported() -> String {
    match (SUPPORTED.first(), SUPPORTED.last()) {
        (Some(oldest), Some(newest)) if oldest != newest => format!("{oldest} to {newest}"),
        (Some(only), _) => only.to_string(),
        (None, _) => "none".to_owned(),
    }
}

/// The version behind the `@` of an interface's name: `None` when it is another interface, `Some(None)` when it has
/// no version that can be read.
fn version_of(interface: &str, name: &str) -> Option<Option<ApiVersion>> {
    let rest = name.strip_prefix(interface)?;
    if rest.is_empty() {
        return Some(None);
    }
    let mut numbers = rest.strip_prefix('@')?.split('.').map(|number| number.parse().ok());
    match (numbers.next().flatten(), numbers.next().flatten()) {
        (Some(major), Some(minor)) => Some(Some(ApiVersion { major, minor })),
        _ => Some(None),
    }
}

fn surface(bytes: &[u8]) -> std::result::Result<Surface, String> {
    if !bytes.starts_with(b"\0asm") {
        let head: String = bytes.iter().take(24).flat_map(|byte| byte.escape_ascii().map(char::from)).collect();
        return Err(format!("is not WebAssembly: it has {} bytes and begins with \"{head}\"", bytes.len()));
    }
    let broken = |error: wasmparser::BinaryReaderError| format!("is not a valid component: {error}");
    let mut surface = Surface::default();
    // Modules and components within are skipped by their length.
    let mut depth = 0_u32;
    for payload in Parser::new(0).parse_all(bytes) {
        match payload.map_err(broken)? {
            Payload::Version { encoding: Encoding::Module, .. } if depth == 0 => {
                return Err(
                    "is a core WebAssembly module, not a component: `wasm-tools component new` makes one of it"
                        .to_owned(),
                );
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
            Payload::End(_) => depth = depth.saturating_sub(1),
            Payload::ComponentImportSection(section) if depth == 0 => {
                for import in section {
                    surface.imports.push(import.map_err(broken)?.name.name.to_owned());
                }
            }
            Payload::ComponentExportSection(section) if depth == 0 => {
                for export in section {
                    surface.exports.push(export.map_err(broken)?.name.name.to_owned());
                }
            }
            _ => {}
        }
    }
    Ok(surface)
}

impl fmt::Display for ApiVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_from_names() {
        let at = |major, minor| Some(Some(ApiVersion { major, minor }));
        assert_eq!(version_of(PROVIDER, "proxy-operator:provider/provider@0.3.1"), at(0, 3));
        assert_eq!(version_of(PROVIDER, "proxy-operator:provider/provider@1.2.0-rc.1"), at(1, 2));
        assert_eq!(version_of(PROVIDER, "proxy-operator:provider/provider"), Some(None));
        assert_eq!(version_of(PROVIDER, "proxy-operator:provider/provider@x"), Some(None));
        assert_eq!(version_of(PROVIDER, "proxy-operator:provider/providers@0.1.0"), None);
        assert_eq!(version_of(PROVIDER, "proxy-operator:provider/log@0.1.0"), None);
    }

    #[test]
    fn what_is_no_component_is_called_by_its_name() {
        let message = |bytes: &[u8]| of("p", bytes).unwrap_err().message;
        assert_eq!(
            message(b"#!/bin/sh\n"),
            "plugin p is not WebAssembly: it has 10 bytes and begins with \"#!/bin/sh\\n\""
        );
        assert!(message(b"\0asm\x01\0\0\0").contains("core WebAssembly module, not a component"));
        assert!(message(b"\0asm\x0d\0\x01\0").contains("does not export proxy-operator:provider/provider@0.1.0"));
        assert!(message(b"\0asm").contains("not a valid component"));
        assert!(message(b"").contains("0 bytes"));
    }
}
