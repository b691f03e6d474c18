//! All Proxies: a task for each, and who tells them what.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use proxy_operator_api::Proxy;
use proxy_operator_core::provider::{Instance, Page};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::providers::Providers;
use super::proxy::ProxyTask;
use crate::limits::SIGHTINGS;
use crate::store::{Key, Kind, Store};

/// What a listing says of one instance.
pub(super) struct Sighting {
    /// The id that was recorded when the listing began.
    pub(super) id: String,
    /// When the listing began: what happened since is newer.
    pub(super) begun: Instant,
    /// The instance; `None`: the listing, which has no gap there, does not show it.
    pub(super) instance: Option<Instance>,
}

/// A Proxy whose instance a listing may show.
pub(super) struct Placed {
    key: Key,
    id: String,
    owner: String,
}

struct Entry {
    wake: Arc<Notify>,
    sightings: mpsc::Sender<Sighting>,
}

/// All Proxies.
pub struct Proxies {
    pub(super) store: Arc<dyn Store>,
    pub(super) providers: Arc<Providers>,
    pub(super) cancelled: CancellationToken,
    entries: Mutex<HashMap<Key, Entry>>,
    tasks: TaskTracker,
}

// === impl Proxies ===

impl Proxies {
    pub(super) fn new(
        store: Arc<dyn Store>,
        providers: Arc<Providers>,
        tasks: TaskTracker,
        cancelled: CancellationToken,
    ) -> Arc<Self> {
        Arc::new(Self { store, providers, cancelled, entries: Mutex::default(), tasks })
    }

    /// Starts the tasks of Proxies that have none.
    pub(super) fn sync(self: &Arc<Self>) {
        for proxy in self.store.proxies() {
            let key = Key::of_proxy(&proxy);
            let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
            if !entries.contains_key(&key) {
                let wake = Arc::new(Notify::new());
                let (sender, receiver) = mpsc::channel(SIGHTINGS);
                entries.insert(key.clone(), Entry { wake: Arc::clone(&wake), sightings: sender });
                self.tasks.spawn(ProxyTask::new(key, Arc::clone(self), wake, receiver).run());
            }
        }
    }

    pub(super) fn changed(&self, key: &Key) {
        if key.kind == Kind::Proxy
            && let Some(entry) = self.entries.lock().unwrap_or_else(PoisonError::into_inner).get(key)
        {
            entry.wake.notify_one();
        }
    }

    pub(super) fn wake_all(&self) {
        for entry in self.entries.lock().unwrap_or_else(PoisonError::into_inner).values() {
            entry.wake.notify_one();
        }
    }

    /// Wakes the Proxies of a Provider.
    pub(super) fn wake_provider(&self, provider: &str) {
        for proxy in self.store.proxies().iter().filter(|proxy| proxy.spec.provider == provider) {
            self.changed(&Key::of_proxy(proxy));
        }
    }

    /// The Proxies of a Provider that have a recorded id.
    pub(super) fn placed(&self, provider: &str) -> Vec<Placed> {
        let proxies = self.store.proxies();
        let of_provider = proxies.iter().filter(|proxy| proxy.spec.provider == provider);
        of_provider.filter_map(|proxy| placed(proxy)).collect()
    }

    /// Tells each Proxy what a listing says of its instance.
    pub(super) fn sighted(&self, watched: &[Placed], page: &Page, begun: Instant) {
        let seen: HashMap<(&str, &str), &Instance> =
            page.instances.iter().map(|instance| ((instance.id.as_str(), instance.owner.as_str()), instance)).collect();
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        for Placed { key, id, owner } in watched {
            let is_hidden = page.next.is_some() || page.gaps.iter().any(|gap| id.starts_with(&gap.id_prefix));
            let instance = match seen.get(&(id.as_str(), owner.as_str())) {
                Some(instance) => Some((*instance).clone()),
                None if is_hidden => continue,
                None => None,
            };
            if let Some(entry) = entries.get(key) {
                // A full mailbox is one whose owner is busy with newer things.
                let _ = entry.sightings.try_send(Sighting { id: id.clone(), begun, instance });
            }
        }
    }

    /// Forgets a Proxy whose task ends. A new object of the name gets a new task.
    pub(super) fn forget(self: &Arc<Self>, key: &Key) {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
        if self.store.proxy(key).is_some() {
            self.sync();
        }
    }
}

fn placed(proxy: &Proxy) -> Option<Placed> {
    let id = proxy.status.as_ref()?.provider_id.clone()?;
    Some(Placed { key: Key::of_proxy(proxy), id, owner: proxy.metadata.uid.clone()? })
}
