//! The store without a cluster: manifests in a folder, state in SQLite beside them.
//!
//! The manifests say what is wanted; the folder's state says what is. Whoever writes an object does so under one lock:
//! database first, then memory, then the announcement, so that what can be read is durable.

mod apply;
mod connections;
pub mod database;
pub mod manifests;
mod scanner;

use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use async_trait::async_trait;
use jiff::Timestamp;
use proxy_operator_api::{FINALIZER, Provider, ProviderStatus, Proxy, ProxyStatus};
use proxy_operator_capabilities::secrets::SecretStore;
use proxy_operator_core::proxy::Event;
use proxy_operator_core::sensitive::Sensitive;
use tokio::sync::{Mutex, broadcast};

use self::connections::Connections;
use self::database::Database;
use crate::store::{Connection, Key, Kind, Next, Result, Store, StoreError};

pub use scanner::watch;

/// How many announcements a receiver may lag behind before it has to read all objects again.
const CHANGES_CAPACITY: usize = 4096;

/// The folder of Secrets within the folder of manifests.
pub const SECRETS_FOLDER: &str = "secrets";
/// The folder of state within the folder of manifests.
pub const STATE_FOLDER: &str = "state";

/// An object as it is kept.
#[derive(Clone, Debug)]
enum Stored {
    Provider(Arc<Provider>),
    Proxy(Arc<Proxy>),
}

/// Manifests in a folder, state in SQLite.
pub struct StandaloneStore {
    cluster_id: String,
    manifests: PathBuf,
    objects: RwLock<BTreeMap<Key, Stored>>,
    writer: Mutex<Writer>,
    connections: Connections,
    secrets: SecretStore,
    changes: broadcast::Sender<Key>,
}

/// What only the holder of the lock may use.
struct Writer {
    database: Database,
    resource_version: u64,
    absences: apply::Absences,
}

// === impl StandaloneStore ===

impl StandaloneStore {
    /// Opens the state of a folder of manifests.
    ///
    /// # Errors
    /// When folder or state cannot be read, or the state is another version's.
    pub fn open(manifests: &Path, state: &Path) -> Result<Self> {
        let failed = |what: &str, error: Box<dyn std::error::Error + Send + Sync>| {
            StoreError::Failed(format!("{what} {} cannot be opened", state.display()), Some(error))
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state)
            .map_err(|error| failed("state folder", error.into()))?;
        let cluster_id = connections::installation_id(state).map_err(|error| failed("state folder", error.into()))?;
        let connections = Connections::open(state).map_err(|error| failed("state folder", error.into()))?;
        let database = Database::open(state).map_err(|error| failed("the database of state folder", error.into()))?;
        let objects = load(&database).map_err(|error| failed("the database of state folder", error))?;
        let resource_version =
            database.newest_resource_version().map_err(|error| failed("the database of state folder", error.into()))?;
        Ok(Self {
            cluster_id,
            manifests: manifests.to_owned(),
            objects: RwLock::new(objects),
            writer: Mutex::new(Writer { database, resource_version, absences: apply::Absences::default() }),
            connections,
            secrets: SecretStore::new(manifests.join(SECRETS_FOLDER)),
            changes: broadcast::channel(CHANGES_CAPACITY).0,
        })
    }

    fn get(&self, key: &Key) -> Option<Stored> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    fn all(&self) -> Vec<(Key, Stored)> {
        let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
        objects.iter().map(|(key, stored)| (key.clone(), stored.clone())).collect()
    }

    /// Changes a Proxy that has not moved on since it was read.
    async fn change_proxy(&self, read: &Proxy, change: impl FnOnce(&mut Proxy) + Send) -> Result<Arc<Proxy>> {
        let key = Key::of_proxy(read);
        let mut writer = self.writer.lock().await;
        let Some(Stored::Proxy(current)) = self.get(&key) else { return Err(StoreError::NotFound(key)) };
        if current.metadata.resource_version != read.metadata.resource_version {
            return Err(StoreError::Conflict(key));
        }
        let mut changed = Proxy::clone(&current);
        change(&mut changed);
        if changed == *current {
            return Ok(current);
        }
        match self.write(&mut writer, &key, Stored::Proxy(Arc::new(changed)))? {
            Stored::Proxy(proxy) => Ok(proxy),
            Stored::Provider(_) => Err(StoreError::NotFound(key)),
        }
    }

    /// Writes an object: database, memory, announcement.
    fn write(&self, writer: &mut Writer, key: &Key, mut stored: Stored) -> Result<Stored> {
        let resource_version = writer.resource_version + 1;
        let body = match &mut stored {
            Stored::Provider(provider) => {
                Arc::make_mut(provider).metadata.resource_version = Some(resource_version.to_string());
                serde_json::to_string(&**provider)
            }
            Stored::Proxy(proxy) => {
                Arc::make_mut(proxy).metadata.resource_version = Some(resource_version.to_string());
                serde_json::to_string(&**proxy)
            }
        }
        .map_err(|error| StoreError::failed(format!("{key} cannot be written as JSON"), error))?;
        tokio::task::block_in_place(|| writer.database.put_object(key, resource_version, &body))
            .map_err(|error| StoreError::failed(format!("{key} cannot be written to the state folder"), error))?;
        writer.resource_version = resource_version;
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), stored.clone());
        self.announce(key);
        Ok(stored)
    }

    /// Forgets an object.
    fn remove(&self, writer: &Writer, key: &Key) -> Result<()> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
            StoreError::Failed(format!("{key} cannot be removed from the state folder"), Some(error))
        };
        tokio::task::block_in_place(|| {
            writer.database.delete_object(key).map_err(|error| failed(error.into()))?;
            if key.kind == Kind::Proxy {
                self.connections.remove(key).map_err(|error| failed(error.into()))?;
            }
            Ok(())
        })?;
        self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        self.announce(key);
        Ok(())
    }

    fn announce(&self, key: &Key) {
        // Nobody listening is no failure: whoever comes later reads all objects first.
        let _ = self.changes.send(key.clone());
    }
}

#[async_trait]
impl Store for StandaloneStore {
    fn cluster_id(&self) -> &str {
        &self.cluster_id
    }

    fn proxies(&self) -> Vec<Arc<Proxy>> {
        let proxies = self.all().into_iter().filter_map(|(_, stored)| match stored {
            Stored::Proxy(proxy) => Some(proxy),
            Stored::Provider(_) => None,
        });
        proxies.collect()
    }

    fn proxy(&self, key: &Key) -> Option<Arc<Proxy>> {
        match self.get(key)? {
            Stored::Proxy(proxy) => Some(proxy),
            Stored::Provider(_) => None,
        }
    }

    fn providers(&self) -> Vec<Arc<Provider>> {
        let providers = self.all().into_iter().filter_map(|(_, stored)| match stored {
            Stored::Provider(provider) => Some(provider),
            Stored::Proxy(_) => None,
        });
        providers.collect()
    }

    fn provider(&self, name: &str) -> Option<Arc<Provider>> {
        match self.get(&Key::provider(name))? {
            Stored::Provider(provider) => Some(provider),
            Stored::Proxy(_) => None,
        }
    }

    fn changes(&self) -> broadcast::Receiver<Key> {
        self.changes.subscribe()
    }

    async fn update_proxy_status(&self, proxy: &Proxy, status: ProxyStatus) -> Result<Arc<Proxy>> {
        self.change_proxy(proxy, |proxy| proxy.status = Some(status)).await
    }

    async fn update_provider_status(&self, provider: &Provider, status: ProviderStatus) -> Result<Arc<Provider>> {
        let key = Key::of_provider(provider);
        let mut writer = self.writer.lock().await;
        let Some(Stored::Provider(current)) = self.get(&key) else { return Err(StoreError::NotFound(key)) };
        if current.metadata.resource_version != provider.metadata.resource_version {
            return Err(StoreError::Conflict(key));
        }
        if current.status.as_ref() == Some(&status) {
            return Ok(current);
        }
        let changed = Provider { status: Some(status), ..Provider::clone(&current) };
        match self.write(&mut writer, &key, Stored::Provider(Arc::new(changed)))? {
            Stored::Provider(provider) => Ok(provider),
            Stored::Proxy(_) => Err(StoreError::NotFound(key)),
        }
    }

    async fn add_finalizer(&self, proxy: &Proxy) -> Result<Arc<Proxy>> {
        self.change_proxy(proxy, |proxy| {
            let finalizers = proxy.metadata.finalizers.get_or_insert_default();
            if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
                finalizers.push(FINALIZER.to_owned());
            }
        })
        .await
    }

    async fn remove_finalizer(&self, proxy: &Proxy) -> Result<()> {
        let changed = self
            .change_proxy(proxy, |proxy| {
                if let Some(finalizers) = &mut proxy.metadata.finalizers {
                    finalizers.retain(|finalizer| finalizer != FINALIZER);
                }
            })
            .await;
        let proxy = match changed {
            Err(StoreError::NotFound(_)) => return Ok(()),
            other => other?,
        };
        let is_free = proxy.metadata.finalizers.as_ref().is_none_or(Vec::is_empty);
        if is_free && proxy.metadata.deletion_timestamp.is_some() {
            let writer = self.writer.lock().await;
            self.remove(&writer, &Key::of_proxy(&proxy))?;
        }
        Ok(())
    }

    async fn secret(
        &self,
        _namespace: &str,
        secret: &str,
        key: &str,
    ) -> proxy_operator_core::error::Result<Sensitive<Vec<u8>>> {
        // One person's folder: its Secrets are there for every namespace.
        tokio::task::block_in_place(|| self.secrets.read(secret, key))
    }

    async fn connection(&self, key: &Key) -> Result<Option<Connection>> {
        tokio::task::block_in_place(|| self.connections.read(key)).map_err(|error| {
            StoreError::failed(format!("{} cannot be read", self.connections.path(key).display()), error)
        })
    }

    async fn put_connection(&self, key: &Key, connection: &Connection) -> Result<()> {
        tokio::task::block_in_place(|| self.connections.write(key, connection)).map_err(|error| {
            StoreError::failed(format!("{} cannot be written", self.connections.path(key).display()), error)
        })
    }

    async fn record_event(&self, key: &Key, event: &Event) {
        let now = Timestamp::now().to_string();
        let writer = self.writer.lock().await;
        let result = tokio::task::block_in_place(|| writer.database.add_event(key, event, &now));
        if let Err(error) = result {
            tracing::warn!(object = %key, %error, "an event cannot be written to the state folder");
        }
    }

    async fn note_next(&self, key: &Key, next: &Next) {
        let writer = self.writer.lock().await;
        let result = tokio::task::block_in_place(|| writer.database.put_next(key, next));
        if let Err(error) = result {
            tracing::warn!(object = %key, %error, "what is next cannot be written to the state folder");
        }
    }
}

/// All objects of a database.
fn load(database: &Database) -> std::result::Result<BTreeMap<Key, Stored>, Box<dyn std::error::Error + Send + Sync>> {
    let mut objects = BTreeMap::new();
    for body in database.objects(Kind::Provider)? {
        let provider: Provider = serde_json::from_str(&body)?;
        objects.insert(Key::of_provider(&provider), Stored::Provider(Arc::new(provider)));
    }
    for body in database.objects(Kind::Proxy)? {
        let proxy: Proxy = serde_json::from_str(&body)?;
        objects.insert(Key::of_proxy(&proxy), Stored::Proxy(Arc::new(proxy)));
    }
    Ok(objects)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::store::contract::{self, AsyncCall, Ground};

    /// Writes and removes manifests, as a user does.
    struct User {
        store: Arc<StandaloneStore>,
        folder: PathBuf,
        writes: bool,
    }

    #[async_trait]
    impl AsyncCall for User {
        async fn call(&self, name: &str) {
            let path = self.folder.join(format!("{name}.yaml"));
            let mut now = Instant::now();
            if self.writes {
                let text = format!(
                    "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {{name: {name}}}\nspec: {{provider: p}}\n"
                );
                std::fs::write(path, text).expect("writes");
            } else {
                std::fs::remove_file(path).expect("removes");
                self.scan(now).await;
                now += apply::ABSENCE;
            }
            self.scan(now).await;
        }
    }

    impl User {
        async fn scan(&self, now: Instant) {
            let scan = manifests::scan(&self.folder).expect("scans");
            self.store.apply(scan, now).await.expect("applies");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_contract_of_a_store_holds() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = folder.path().join("state");
        let store = Arc::new(StandaloneStore::open(folder.path(), &state).expect("opens"));
        let user = |writes| Box::new(User { store: Arc::clone(&store), folder: folder.path().to_owned(), writes });
        let ground = Ground { store: Arc::clone(&store) as _, apply: user(true), delete: user(false) };
        contract::holds(&ground).await;
    }
}
