//! Where objects are kept: one trait, so that the controllers do not know whether they run in a cluster.
//!
//! The contract, held by one suite for every store:
//! - Reads may be stale. A write names the resource version it was decided on and fails with [`StoreError::Conflict`]
//!   when the object has moved on.
//! - What a write has answered `Ok` to is durable.
//! - An object that is being deleted stays readable until its last finalizer is removed.
//! - Every change of an object, whoever made it, is announced once it can be read.

#[cfg(test)]
mod contract;
pub mod standalone;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use proxy_operator_api::{Provider, ProviderStatus, Proxy, ProxyStatus};
use proxy_operator_core::proxy::Event;
use proxy_operator_core::sensitive::Sensitive;
use tokio::sync::broadcast;

/// Which kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A Provider.
    Provider,
    /// A Proxy.
    Proxy,
}

/// Names one object.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace; empty for a Provider.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// Credentials and address of a proxy, ready for whoever uses it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connection {
    /// The user's name; `None` for an open proxy.
    pub username: Option<String>,
    /// The password; `None` for an open proxy.
    pub password: Option<Sensitive<String>>,
    /// `host:port`, once it is known.
    pub endpoint: Option<String>,
}

/// What a Proxy does next, for people who ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// What, or what is waited for.
    pub message: String,
    /// When, at the latest.
    pub until: Option<Timestamp>,
    /// The last probe.
    pub probe: Option<String>,
}

/// Why a store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The object has moved on; read it again and decide anew.
    #[error("{0} has changed since it was read")]
    Conflict(Key),
    /// There is no such object.
    #[error("{0} is not there")]
    NotFound(Key),
    /// The store itself failed.
    #[error("{0}")]
    Failed(String, #[source] Option<Box<dyn std::error::Error + Send + Sync>>),
}

/// The result of a store.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Where objects are kept.
#[async_trait]
pub trait Store: Send + Sync {
    /// Identifies this installation: `[a-z0-9]{1,20}`, made once.
    fn cluster_id(&self) -> &str;
    /// All Proxies.
    fn proxies(&self) -> Vec<Arc<Proxy>>;
    /// One Proxy.
    fn proxy(&self, key: &Key) -> Option<Arc<Proxy>>;
    /// All Providers.
    fn providers(&self) -> Vec<Arc<Provider>>;
    /// One Provider.
    fn provider(&self, name: &str) -> Option<Arc<Provider>>;
    /// Announces the keys of objects that changed. A receiver that lags reads all objects again.
    fn changes(&self) -> broadcast::Receiver<Key>;

    /// Replaces the status of a Proxy.
    async fn update_proxy_status(&self, proxy: &Proxy, status: ProxyStatus) -> Result<Arc<Proxy>>;
    /// Replaces the status of a Provider.
    async fn update_provider_status(&self, provider: &Provider, status: ProviderStatus) -> Result<Arc<Provider>>;
    /// Adds our finalizer to a Proxy.
    async fn add_finalizer(&self, proxy: &Proxy) -> Result<Arc<Proxy>>;
    /// Removes our finalizer from a Proxy; one that is gone is `Ok`.
    async fn remove_finalizer(&self, proxy: &Proxy) -> Result<()>;

    /// One key of a Secret of a namespace. The error is the vocabulary's: it becomes a condition as it is.
    async fn secret(
        &self,
        namespace: &str,
        secret: &str,
        key: &str,
    ) -> proxy_operator_core::error::Result<Sensitive<Vec<u8>>>;
    /// The connection of a Proxy; `None` when none was written yet.
    async fn connection(&self, key: &Key) -> Result<Option<Connection>>;
    /// Writes the connection of a Proxy.
    async fn put_connection(&self, key: &Key, connection: &Connection) -> Result<()>;
    /// Tells something that happened to an object.
    async fn record_event(&self, key: &Key, event: &Event);
    /// Notes what a Proxy does next.
    async fn note_next(&self, key: &Key, next: &Next);
}

// === impl Key ===

impl Key {
    /// The key of a Proxy.
    pub fn proxy(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { kind: Kind::Proxy, namespace: namespace.into(), name: name.into() }
    }

    /// The key of a Provider.
    pub fn provider(name: impl Into<String>) -> Self {
        Self { kind: Kind::Provider, namespace: String::new(), name: name.into() }
    }

    /// The key of a Proxy object.
    pub fn of_proxy(proxy: &Proxy) -> Self {
        Self::proxy(
            proxy.metadata.namespace.clone().unwrap_or_default(),
            proxy.metadata.name.clone().unwrap_or_default(),
        )
    }

    /// The key of a Provider object.
    pub fn of_provider(provider: &Provider) -> Self {
        Self::provider(provider.metadata.name.clone().unwrap_or_default())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Provider => write!(f, "Provider {}", self.name),
            Kind::Proxy => write!(f, "Proxy {}/{}", self.namespace, self.name),
        }
    }
}

// === impl Kind ===

impl Kind {
    /// As `kind` writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "Provider",
            Self::Proxy => "Proxy",
        }
    }
}

// === impl Connection ===

impl Connection {
    /// The proxy's URL with its credentials, once its address is known.
    pub fn url(&self) -> Option<Sensitive<String>> {
        let endpoint = self.endpoint.as_ref()?;
        let encoded = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
        let user = match (&self.username, &self.password) {
            (Some(username), Some(password)) => format!("{}:{}@", encoded(username), encoded(password.expose())),
            _ => String::new(),
        };
        Some(Sensitive::new(format!("http://{user}{endpoint}")))
    }
}

// === impl StoreError ===

impl StoreError {
    /// A failure of the store itself.
    pub fn failed(what: impl Into<String>, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Failed(what.into(), Some(source.into()))
    }
}
