//! What the manifests of a folder mean for the objects: made, changed, refused, gone.
//!
//! An absence is believed late and a few at a time: a folder that is being rewritten, a mount that is away or a slip
//! of the hand must not delete a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proxy_operator_api::{Provider, Proxy, validate};
use proxy_operator_core::names;

use super::database::Fault;
use super::manifests::{Document, Object, Scan};
use super::{StandaloneStore, Stored, Writer};
use crate::store::{Key, Result, StoreError};

/// How long an object must be absent from a readable folder before that means deletion.
pub(super) const ABSENCE: Duration = Duration::from_secs(10);

/// How many deletions may begin in one scan.
const DELETIONS_PER_SCAN: usize = 3;

/// Since when objects are absent from the folder.
pub(super) type Absences = BTreeMap<Key, Instant>;

// === impl StandaloneStore ===

impl StandaloneStore {
    /// Makes the objects what a scan says. Gives the time until the next absence is due, if one is.
    ///
    /// # Errors
    /// When the state folder cannot be written.
    pub(super) async fn apply(&self, scan: Scan) -> Result<Option<Duration>> {
        let mut writer = self.writer.lock().await;
        let mut present = BTreeSet::new();
        let mut faults = vec![];
        for Document { place, key, object } in scan.documents {
            present.extend(key.clone());
            let refused = match object {
                Ok(object) => self.apply_one(&mut writer, object)?,
                Err(message) => Some(message),
            };
            if let Some(message) = refused {
                faults.push(Fault { place, key, message });
            }
        }
        let wait = if scan.has_unreadable { None } else { self.remove_absent(&mut writer, &present, &mut faults)? };
        self.tell_faults(&mut writer, &faults)?;
        Ok(wait)
    }

    /// Makes or changes one object; what is refused comes back as a message.
    fn apply_one(&self, writer: &mut Writer, object: Object) -> Result<Option<String>> {
        let key = object.key();
        writer.absences.remove(&key);
        match (object, self.get(&key)) {
            (Object::Proxy(wanted), None) => {
                self.write(writer, &key, Stored::Proxy(Arc::new(self.new_proxy(&key, *wanted))))?;
            }
            (Object::Proxy(wanted), Some(Stored::Proxy(current))) => {
                if let Some(refused) = self.change_wanted(writer, &key, &current, *wanted)? {
                    return Ok(Some(refused));
                }
            }
            (Object::Provider(wanted), None) => {
                let mut provider = Provider { status: None, ..*wanted };
                self.stamp(&key, &mut provider.metadata);
                self.write(writer, &key, Stored::Provider(Arc::new(provider)))?;
            }
            (Object::Provider(wanted), Some(Stored::Provider(current))) => {
                let mut changed = Provider::clone(&current);
                changed.metadata.annotations = wanted.metadata.annotations;
                changed.metadata.labels = wanted.metadata.labels;
                if changed.spec != wanted.spec {
                    changed.spec = wanted.spec;
                    changed.metadata.generation = current.metadata.generation.map(|generation| generation + 1);
                }
                if changed != *current {
                    self.write(writer, &key, Stored::Provider(Arc::new(changed)))?;
                }
            }
            (Object::Proxy(_), Some(Stored::Provider(_))) | (Object::Provider(_), Some(Stored::Proxy(_))) => {}
        }
        Ok(None)
    }

    fn change_wanted(
        &self,
        writer: &mut Writer,
        key: &Key,
        current: &Arc<Proxy>,
        wanted: Proxy,
    ) -> Result<Option<String>> {
        let mut changed = Proxy::clone(current);
        changed.metadata.annotations = wanted.metadata.annotations;
        changed.metadata.labels = wanted.metadata.labels;
        let mut refused = None;
        if changed.spec != wanted.spec {
            let faults = validate::immutable(&current.spec, &wanted.spec);
            if faults.is_empty() {
                changed.spec = wanted.spec;
                changed.metadata.generation = current.metadata.generation.map(|generation| generation + 1);
            } else {
                refused = Some(faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "));
            }
        }
        if changed != **current {
            self.write(writer, key, Stored::Proxy(Arc::new(changed)))?;
        }
        Ok(refused)
    }

    fn new_proxy(&self, key: &Key, wanted: Proxy) -> Proxy {
        let mut proxy = Proxy { status: None, ..wanted };
        self.stamp(key, &mut proxy.metadata);
        proxy
    }

    /// What the API server would set; what the manifest says of it does not count.
    fn stamp(&self, key: &Key, metadata: &mut k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) {
        metadata.uid =
            Some(names::standalone_uid(&self.cluster_id, key.kind.as_str(), &key.namespace, &key.name));
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(Timestamp::now()));
        metadata.deletion_timestamp = None;
        metadata.finalizers = None;
    }

    /// Begins the deletion of objects that have been absent for long enough.
    fn remove_absent(
        &self,
        writer: &mut Writer,
        present: &BTreeSet<Key>,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<Duration>> {
        let now = Instant::now();
        let (mut begun, mut next) = (0, None::<Duration>);
        for (key, stored) in self.all() {
            let is_going = match &stored {
                Stored::Proxy(proxy) => proxy.metadata.deletion_timestamp.is_some(),
                Stored::Provider(_) => false,
            };
            if present.contains(&key) || is_going {
                writer.absences.remove(&key);
                continue;
            }
            let since = *writer.absences.entry(key.clone()).or_insert(now);
            let left = ABSENCE.saturating_sub(now.duration_since(since));
            if !left.is_zero() || begun >= DELETIONS_PER_SCAN {
                let left = left.max(Duration::from_secs(1));
                next = Some(next.map_or(left, |next| next.min(left)));
                continue;
            }
            match stored {
                Stored::Proxy(proxy) => {
                    begun += 1;
                    tracing::info!(object = %key, "its manifest is gone; it is deleted");
                    self.begin_deletion(writer, &key, &proxy)?;
                }
                Stored::Provider(_) => {
                    let users = self.users(&key.name);
                    if users.is_empty() {
                        tracing::info!(object = %key, "its manifest is gone; it is forgotten");
                        self.remove(writer, &key)?;
                        writer.absences.remove(&key);
                    } else {
                        let message = format!(
                            "its manifest is gone, and it is kept while it is used by {}; put the manifest back, or delete these first",
                            users.join(", ")
                        );
                        faults.push(Fault { place: key.name.clone(), key: Some(key), message });
                    }
                }
            }
        }
        Ok(next)
    }

    fn begin_deletion(&self, writer: &mut Writer, key: &Key, proxy: &Proxy) -> Result<()> {
        let is_held = proxy.metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty());
        if !is_held {
            return self.remove(writer, key);
        }
        let mut going = proxy.clone();
        going.metadata.deletion_timestamp = Some(Time(Timestamp::now()));
        self.write(writer, key, Stored::Proxy(Arc::new(going)))?;
        Ok(())
    }

    /// The Proxies that name a Provider, for a message.
    fn users(&self, provider: &str) -> Vec<String> {
        let users = self.all().into_iter().filter_map(|(key, stored)| match stored {
            Stored::Proxy(proxy) if proxy.spec.provider == provider => Some(format!("{}/{}", key.namespace, key.name)),
            _ => None,
        });
        users.take(5).collect()
    }

    /// Keeps the faults for `get` and `describe`, and logs each when it is new.
    fn tell_faults(&self, writer: &mut Writer, faults: &[Fault]) -> Result<()> {
        let failed = |error| StoreError::failed("the faults of manifests cannot be written to the state folder", error);
        let known = tokio::task::block_in_place(|| writer.database.faults()).map_err(failed)?;
        if known == faults {
            return Ok(());
        }
        for Fault { place, key, message } in faults.iter().filter(|fault| !known.contains(fault)) {
            let object = key.as_ref().map(tracing::field::display);
            tracing::error!(manifest = place, object, "{message}");
        }
        tokio::task::block_in_place(|| writer.database.put_faults(faults)).map_err(failed)
    }

    /// Whether an object of this key is kept. For tests of the rules.
    #[cfg(test)]
    pub(super) fn has(&self, key: &Key) -> bool {
        self.get(key).is_some()
    }
}

