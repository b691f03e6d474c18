//! Reading manifests: files of a folder, documents of a file, objects of documents.
//!
//! A file is cut into documents at its `---` lines before any YAML is parsed, so that a document which does not parse
//! costs no other one of the same file.

use std::path::Path;

use proxy_operator_api::{API_VERSION, Provider, Proxy, validate};
use serde_json::Value;

use crate::store::{Key, Kind};

/// The most bytes of a manifest file: a thousand objects fit, and a disk image dropped here by mistake does not.
pub const FILE_MAX_BYTES: u64 = 8 << 20;

/// The namespace of an object that names none.
pub const DEFAULT_NAMESPACE: &str = "default";

/// An object as a manifest has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A Provider.
    Provider(Box<Provider>),
    /// A Proxy.
    Proxy(Box<Proxy>),
}

/// One document of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    /// File name and the line that the document begins at: `proxies.yaml:12`.
    pub place: String,
    /// Which object it is about, as far as that can be read.
    pub key: Option<Key>,
    /// The object, or what is wrong with it.
    pub object: Result<Object, String>,
}

/// What a scan of a folder found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scan {
    /// All documents, in the order of file names.
    pub documents: Vec<Document>,
    /// Whether a document or a file is there of which not even the object's name could be read: then no object can be
    /// said to be absent.
    pub has_unreadable: bool,
}

/// Reads all manifests of a folder (`*.yaml`, `*.yml`, `*.json`; no sub-folders).
///
/// # Errors
/// When the folder itself cannot be read: then nothing is known of any object.
pub fn scan(folder: &Path) -> std::io::Result<Scan> {
    let mut paths = vec![];
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let is_manifest = path.extension().is_some_and(|ext| ext == "yaml" || ext == "yml" || ext == "json");
        let is_hidden = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with('.'));
        if is_manifest && !is_hidden {
            paths.push(path);
        }
    }
    paths.sort();
    let mut scan = Scan::default();
    for path in paths {
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match read(&path) {
            Ok(text) => {
                for (line, document) in split(&text) {
                    let Some(document) = parse(&format!("{name}:{line}"), document) else { continue };
                    scan.has_unreadable |= document.key.is_none();
                    scan.documents.push(document);
                }
            }
            // A file that went away between the listing and the reading is an absence like any other.
            Err(ReadError::Gone) => {}
            Err(ReadError::Unreadable(message)) => {
                scan.has_unreadable = true;
                scan.documents.push(Document { place: name, key: None, object: Err(message) });
            }
        }
    }
    refuse_duplicates(&mut scan);
    Ok(scan)
}

enum ReadError {
    Gone,
    Unreadable(String),
}

fn read(path: &Path) -> Result<String, ReadError> {
    let unreadable = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => ReadError::Gone,
        _ => ReadError::Unreadable(format!("cannot be read: {error}")),
    };
    let metadata = std::fs::metadata(path).map_err(unreadable)?;
    if metadata.len() > FILE_MAX_BYTES {
        return Err(ReadError::Unreadable(format!(
            "has {} bytes; a manifest has at most {FILE_MAX_BYTES}",
            metadata.len()
        )));
    }
    let bytes = std::fs::read(path).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|error| ReadError::Unreadable(format!("is not UTF-8 text: {error}")))
}

/// Cuts a file at its `---` lines. At the beginning of a line these three bytes are a document marker wherever they
/// stand (YAML 1.2, 9.1.2), within block scalars too.
pub(super) fn split(text: &str) -> Vec<(usize, &str)> {
    let mut documents = vec![];
    let (mut start, mut start_line, mut offset) = (0, 1, 0);
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let is_marker =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']));
        if is_marker {
            documents.push((start_line, text.get(start..offset).unwrap_or_default()));
            // What follows the marker on its line belongs to the document.
            start = offset + 3;
            start_line = index + 1;
        }
        offset += line.len();
    }
    documents.push((start_line, text.get(start..).unwrap_or_default()));
    documents.retain(|(_, document)| {
        document.lines().any(|line| {
            let line = line.trim();
            !line.is_empty() && !line.starts_with('#') && line != "..."
        })
    });
    documents
}

/// Parses one document. `None`: it is empty.
pub(super) fn parse(place: &str, text: &str) -> Option<Document> {
    let document = |key, object| Some(Document { place: place.to_owned(), key, object });
    let value: Value = match serde_saphyr::from_str_with_options(text, options()) {
        Ok(Value::Null) => return None,
        Ok(value) => value,
        Err(error) => {
            // The object's name is sought in the text, so that its error is shown at the object.
            return document(guess_key(text), Err(format!("does not parse: {}", first_line(&error.to_string()))));
        }
    };
    let field = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
    let (api_version, kind) = (field("/apiVersion"), field("/kind"));
    if api_version != Some(API_VERSION) {
        let found = api_version.map_or_else(|| "is missing".to_owned(), |found| format!("is {found:?}"));
        return document(None, Err(format!("apiVersion {found}; it is {API_VERSION}")));
    }
    let name = field("/metadata/name").unwrap_or_default();
    let namespace = field("/metadata/namespace").unwrap_or(DEFAULT_NAMESPACE);
    let (key, object) = match kind {
        Some("Provider") => (Key::provider(name), provider(&value)),
        Some("Proxy") => (Key::proxy(namespace, name), proxy(&value, namespace)),
        other => {
            let found = other.map_or_else(|| "is missing".to_owned(), |found| format!("is {found:?}"));
            return document(None, Err(format!("kind {found}; it is Provider or Proxy")));
        }
    };
    if let Some(fault) =
        name_fault("metadata.name", name, 253).or_else(|| name_fault("metadata.namespace", namespace, 63))
    {
        return document(None, Err(fault));
    }
    document(Some(key), object)
}

/// Booleans are `true` and `false` alone (YAML 1.2): a network that is called `on` is a text.
fn options() -> serde_saphyr::Options {
    serde_saphyr::Options { strict_booleans: true, ..serde_saphyr::Options::default() }
}

fn provider(value: &Value) -> Result<Object, String> {
    let object: Provider = typed(value)?;
    report(validate::provider(&object.spec))?;
    Ok(Object::Provider(Box::new(object)))
}

fn proxy(value: &Value, namespace: &str) -> Result<Object, String> {
    let mut object: Proxy = typed(value)?;
    report(validate::proxy(&object.spec))?;
    object.metadata.namespace = Some(namespace.to_owned());
    Ok(Object::Proxy(Box::new(object)))
}

/// Reads a typed object; the error names the field.
fn typed<T: serde::de::DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        format!("{path}: {}", error.into_inner())
    })
}

fn report(faults: Vec<validate::Fault>) -> Result<(), String> {
    if faults.is_empty() {
        return Ok(());
    }
    Err(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
}

/// The rule of Kubernetes for names (RFC 1123).
fn name_fault(field: &str, name: &str, most: usize) -> Option<String> {
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let bytes = name.as_bytes();
    let is_good =
        is_edge(bytes.first()) && is_edge(bytes.last()) && bytes.len() <= most && bytes.iter().copied().all(is_inner);
    (!is_good).then(|| {
        format!(
            "{field}: {name:?} is not a name; use lower-case letters, digits, inner hyphens and dots, at most {most}"
        )
    })
}

/// The object that a document which does not parse is about, by its `kind:` and the first `name:` of its metadata.
fn guess_key(text: &str) -> Option<Key> {
    let after = |line: &str, field: &str| {
        line.trim_start_matches(['{', ' '])
            .strip_prefix(field)
            .map(|rest| rest.trim().trim_matches(['"', '\'']).to_owned())
    };
    let kind = text.lines().find_map(|line| line.strip_prefix("kind:").map(|rest| rest.trim().to_owned()))?;
    let metadata: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.starts_with("metadata:"))
        .enumerate()
        .take_while(|(index, line)| *index == 0 || line.starts_with([' ', '\t']))
        .map(|(_, line)| line.strip_prefix("metadata:").unwrap_or(line))
        .flat_map(|line| line.split([',', '}']))
        .collect();
    let name = metadata.iter().find_map(|part| after(part, "name:")).filter(|name| !name.is_empty())?;
    let namespace = metadata.iter().find_map(|part| after(part, "namespace:"));
    match kind.as_str() {
        "Provider" => Some(Key::provider(name)),
        "Proxy" => Some(Key::proxy(namespace.unwrap_or_else(|| DEFAULT_NAMESPACE.to_owned()), name)),
        _ => None,
    }
}

/// The second document about an object is refused; the first stands.
fn refuse_duplicates(scan: &mut Scan) {
    let mut seen: std::collections::BTreeMap<Key, String> = std::collections::BTreeMap::new();
    for document in &mut scan.documents {
        let Some(key) = document.key.clone() else { continue };
        match seen.get(&key) {
            Some(first) => {
                document.object = Err(format!("{key} stands in {first} already; remove one of the two"));
                // It says nothing of the object, which is described elsewhere.
                document.key = None;
            }
            None => {
                seen.insert(key, document.place.clone());
            }
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

impl Object {
    /// Its key.
    pub fn key(&self) -> Key {
        match self {
            Self::Provider(provider) => Key::of_provider(provider),
            Self::Proxy(proxy) => Key::of_proxy(proxy),
        }
    }

    /// Its kind.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Provider(_) => Kind::Provider,
            Self::Proxy(_) => Kind::Proxy,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str =
        "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {name: a}\nspec: {provider: p}\n";

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).expect("writes");
        }
        folder
    }

    fn faults(text: &str) -> Vec<String> {
        let folder = folder(&[("f.yaml", text)]);
        let scan = scan(folder.path()).expect("scans");
        scan.documents.into_iter().filter_map(|document| document.object.err()).collect()
    }

    #[test]
    fn a_document_that_does_not_parse_costs_no_other() {
        let text = format!(
            "{GOOD}---\nkind: Proxy\nmetadata:\n  name: b\nspec: {{provider: [\n---\n{}",
            GOOD.replace("name: a", "name: c")
        );
        let folder = folder(&[("f.yaml", &text)]);
        let scan = scan(folder.path()).expect("scans");
        let keys: Vec<_> =
            scan.documents.iter().map(|document| (document.key.clone(), document.object.is_ok())).collect();
        let key = |name| Some(Key::proxy("default", name));
        assert_eq!(keys, [(key("a"), true), (key("b"), false), (key("c"), true)]);
        assert!(scan.documents[1].place.starts_with("f.yaml:5"), "{}", scan.documents[1].place);
    }

    #[test]
    fn an_unknown_field_is_named() {
        let text = GOOD.replace("provider: p", "provider: p, machinetype: small");
        let all = faults(&text).join("\n");
        assert!(all.contains("spec") && all.contains("machinetype") && all.contains("machineType"), "{all}");
    }

    #[test]
    fn a_value_out_of_range_is_named_with_its_field() {
        for (field, part) in
            [("port: 70000", "spec.port"), ("port: 0", "spec.port"), ("probe: {status: 99}", "spec.probe.status")]
        {
            let all = faults(&GOOD.replace("provider: p", &format!("provider: p, {field}"))).join("\n");
            assert!(all.contains(part), "{field}: {all}");
        }
    }

    #[test]
    fn a_host_name_with_a_slash_is_refused() {
        let text = "apiVersion: crawl.example.com/v1alpha1\nkind: Provider\nmetadata: {name: p}\nspec:\n  plugin: {name: kvm}\n  grants: {libvirt: {hosts: {hv/1: {address: 'ssh://u@h', secret: s, pools: [d], networks: [net]}}}}\n";
        let all = faults(text).join("\n");
        assert!(all.contains("spec.grants.libvirt.hosts[\"hv/1\"]") && all.contains("identifier"), "{all}");
    }

    #[test]
    fn the_second_document_of_an_object_is_refused() {
        let folder = folder(&[("a.yaml", GOOD), ("b.yaml", GOOD)]);
        let scan = scan(folder.path()).expect("scans");
        assert!(scan.documents[0].object.is_ok());
        let error = scan.documents[1].object.as_ref().expect_err("a duplicate");
        assert!(error.contains("a.yaml:1"), "{error}");
    }

    #[test]
    fn text_keeps_its_form() {
        let text = GOOD.replace(
            "spec: {provider: p}",
            "spec:\n  provider: p\n  cloudInit:\n    userData: |\n      #cloud-config\n      version: 1.10\n",
        );
        let folder = folder(&[("f.yaml", &text)]);
        let scan = scan(folder.path()).expect("scans");
        let Ok(Object::Proxy(proxy)) = &scan.documents[0].object else { panic!("{scan:?}") };
        let cloud_init = proxy.spec.cloud_init.as_ref().expect("has cloudInit");
        assert_eq!(cloud_init.user_data.as_deref(), Some("#cloud-config\nversion: 1.10\n"));
    }
}
