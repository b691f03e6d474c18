//! The connection files of proxies: `connections/<name>`, mode 0600.
//!
//! A Proxy outside the namespace `default` has `connections/<namespace>_<name>`; neither part can hold an underscore.

use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use proxy_operator_core::sensitive::Sensitive;

use super::manifests::DEFAULT_NAMESPACE;
use crate::store::{Connection, Key};

/// The folder of connection files.
#[derive(Clone, Debug)]
pub(super) struct Connections {
    folder: PathBuf,
}

// === impl Connections ===

impl Connections {
    /// Opens the folder in a state folder, and makes it when it is not there.
    pub(super) fn open(state: &Path) -> std::io::Result<Self> {
        let folder = state.join("connections");
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder })
    }

    pub(super) fn path(&self, key: &Key) -> PathBuf {
        let Key { namespace, name, .. } = key;
        match namespace.as_str() {
            DEFAULT_NAMESPACE => self.folder.join(name),
            _ => self.folder.join(format!("{namespace}_{name}")),
        }
    }

    pub(super) fn read(&self, key: &Key) -> std::io::Result<Option<Connection>> {
        let text = match std::fs::read_to_string(self.path(key)) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).map(ToOwned::to_owned)
        };
        let endpoint = field("host")
            .zip(field("port"))
            .map(|(host, port)| if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") });
        Ok(Some(Connection { username: field("username"), password: field("password").map(Sensitive::new), endpoint }))
    }

    /// Writes the file whole or not at all, durably: credentials that went into a machine must not be lost.
    pub(super) fn write(&self, key: &Key, connection: &Connection) -> std::io::Result<()> {
        let path = self.path(key);
        let Connection { username, password, endpoint } = connection;
        let mut text = String::new();
        let mut line = |name: &str, value: &str| text.push_str(&format!("{name}={value}\n"));
        if let Some(url) = connection.url() {
            line("url", url.expose());
        }
        if let Some((host, port)) = endpoint.as_deref().and_then(|endpoint| endpoint.rsplit_once(':')) {
            line("host", host.trim_start_matches('[').trim_end_matches(']'));
            line("port", port);
        }
        if let Some(username) = username {
            line("username", username);
        }
        if let Some(password) = password {
            line("password", password.expose());
        }
        let mut temporary = tempfile::Builder::new().prefix(".writing-").tempfile_in(&self.folder)?;
        temporary.write_all(text.as_bytes())?;
        temporary.as_file().sync_all()?;
        temporary.persist(&path).map_err(|error| error.error)?;
        std::fs::File::open(&self.folder)?.sync_all()
    }

    pub(super) fn remove(&self, key: &Key) -> std::io::Result<()> {
        match std::fs::remove_file(self.path(key)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// The installation's id, made once and kept in a file of the state folder.
pub(super) fn installation_id(state: &Path) -> std::io::Result<String> {
    let path = state.join("installation-id");
    match std::fs::read_to_string(&path) {
        Ok(id) => {
            let id = id.trim();
            let is_good = (1..=20).contains(&id.len())
                && id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
            if is_good {
                return Ok(id.to_owned());
            }
            let message = format!(
                "{} does not hold an installation id; restore it from a backup: with another id, what was made so far would count as a stranger's",
                path.display()
            );
            Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let id = uuid::Uuid::new_v4().simple().to_string().chars().take(12).collect::<String>();
            let mut file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            writeln!(file, "{id}")?;
            file.sync_all()?;
            std::fs::File::open(state)?.sync_all()?;
            Ok(id)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_connection_is_read_back_as_written_and_is_private() {
        let state = tempfile::tempdir().expect("a folder");
        let connections = Connections::open(state.path()).expect("opens");
        let key = Key::proxy("default", "crawl-1");
        let connection = Connection {
            username: Some("u".into()),
            password: Some(Sensitive::new("p@:/ %".into())),
            endpoint: Some("[2001:db8::7]:3128".into()),
        };
        connections.write(&key, &connection).expect("writes");
        assert_eq!(connections.read(&key).expect("reads"), Some(connection));
        let path = state.path().join("connections/crawl-1");
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        let text = std::fs::read_to_string(path).expect("reads");
        assert!(text.starts_with("url=http://u:p%40%3A%2F%20%25@[2001:db8::7]:3128\n"), "{text}");
        connections.remove(&key).expect("removes");
        assert_eq!(connections.read(&key).expect("reads"), None);
    }

    #[test]
    fn two_proxies_of_one_name_have_two_files() {
        let state = tempfile::tempdir().expect("a folder");
        let connections = Connections::open(state.path()).expect("opens");
        assert_ne!(connections.path(&Key::proxy("a", "b")), connections.path(&Key::proxy("default", "b")));
    }

    #[test]
    fn the_installation_id_is_made_once() {
        let state = tempfile::tempdir().expect("a folder");
        let id = installation_id(state.path()).expect("makes one");
        assert_eq!(installation_id(state.path()).expect("reads it"), id);
        std::fs::write(state.path().join("installation-id"), "").expect("empties it");
        assert!(installation_id(state.path()).is_err(), "a lost id is never replaced silently");
    }
}
