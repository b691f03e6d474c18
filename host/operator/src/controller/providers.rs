//! All Providers: a task for each, and what their Proxies may know of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};

use proxy_operator_core::names;
use proxy_operator_core::proxy::ProviderView;
use proxy_operator_runtime::{LoadedProvider, Registry};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::Plugins;
use super::grants::Granting;
use super::provider::ProviderTask;
use super::proxies::Proxies;
use crate::store::{Key, Kind, Store};

/// What serves a Provider's Proxies now.
#[derive(Clone)]
pub struct Serving {
    /// For decisions.
    pub view: ProviderView,
    /// For calls.
    pub provider: Option<Arc<LoadedProvider>>,
    /// What the names of its instances begin with.
    pub name_prefix: String,
}

/// One Provider's task, as others see it.
pub(super) struct Entry {
    pub(super) wake: Notify,
    pub(super) is_check_requested: AtomicBool,
    serving: RwLock<Arc<Serving>>,
}

/// All Providers.
pub struct Providers {
    pub(super) store: Arc<dyn Store>,
    pub(super) plugins: Arc<Plugins>,
    pub(super) granting: Arc<dyn Granting>,
    pub(super) registry: Registry,
    pub(super) cancelled: CancellationToken,
    entries: Mutex<HashMap<String, Arc<Entry>>>,
    proxies: OnceLock<Weak<Proxies>>,
    tasks: TaskTracker,
}

// === impl Providers ===

impl Providers {
    pub(super) fn new(
        store: Arc<dyn Store>,
        plugins: Arc<Plugins>,
        granting: Arc<dyn Granting>,
        tasks: TaskTracker,
        cancelled: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self {
            store,
            plugins,
            granting,
            registry: Registry::new(),
            cancelled,
            entries: Mutex::default(),
            proxies: OnceLock::new(),
            tasks,
        })
    }

    /// Says whom to tell of listings and changes. Once, before anything runs.
    pub(super) fn set_proxies(&self, proxies: &Arc<Proxies>) {
        let _ = self.proxies.set(Arc::downgrade(proxies));
    }

    pub(super) fn proxies(&self) -> Option<Arc<Proxies>> {
        self.proxies.get()?.upgrade()
    }

    /// Starts the tasks of Providers that have none.
    pub(super) fn sync(self: &Arc<Self>) {
        for provider in self.store.providers() {
            let Some(name) = provider.metadata.name.clone() else { continue };
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if !entries.contains_key(&name) {
                let entry = Arc::new(Entry::new(self.loading(&name)));
                entries.insert(name.clone(), Arc::clone(&entry));
                self.tasks.spawn(ProviderTask::new(name, Arc::clone(self), entry).run());
            }
        }
    }

    pub(super) fn changed(&self, key: &Key) {
        if key.kind == Kind::Provider
            && let Some(entry) = self.entry(&key.name)
        {
            entry.wake.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for entry in self.entries.lock().unwrap_or_else(PoisonError::into_inner).values() {
            entry.wake.notify_one();
        }
    }

    /// What serves the Proxies of a Provider now.
    pub fn serving(&self, name: &str) -> Arc<Serving> {
        match self.entry(name) {
            Some(entry) => Arc::clone(&entry.serving.read().unwrap_or_else(PoisonError::into_inner)),
            // Its task is about to start, or there is no such Provider.
            None if self.store.provider(name).is_some() => Arc::new(self.loading(name)),
            None => Arc::new(Serving { view: ProviderView::Absent, ..self.loading(name) }),
        }
    }

    /// Asks for a health check now.
    pub(super) fn request_check(&self, name: &str) {
        if let Some(entry) = self.entry(name) {
            entry.is_check_requested.store(true, Ordering::Release);
            entry.wake.notify_one();
        }
    }

    /// Says what serves now, and wakes the Proxies of the Provider when that is news.
    pub(super) fn publish(&self, name: &str, entry: &Entry, serving: Serving) {
        let is_news = {
            let mut current = entry.serving.write().unwrap_or_else(PoisonError::into_inner);
            let is_news = current.view != serving.view;
            *current = Arc::new(serving);
            is_news
        };
        if is_news && let Some(proxies) = self.proxies() {
            proxies.wake_provider(name);
        }
    }

    /// Forgets a Provider whose task ends.
    pub(super) fn forget(&self, name: &str) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }

    fn entry(&self, name: &str) -> Option<Arc<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn loading(&self, name: &str) -> Serving {
        Serving {
            view: ProviderView::NotServing { reason: "Loading".into(), message: "its plugin is being loaded".into() },
            provider: None,
            name_prefix: names::name_prefix(self.store.cluster_id(), name),
        }
    }
}

// === impl Entry ===

impl Entry {
    fn new(serving: Serving) -> Self {
        Self {
            wake: Notify::new(),
            is_check_requested: AtomicBool::new(false),
            serving: RwLock::new(Arc::new(serving)),
        }
    }
}
