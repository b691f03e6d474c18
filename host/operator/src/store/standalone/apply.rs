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
    pub(super) async fn apply(&self, scan: Scan, now: Instant) -> Result<Option<Duration>> {
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
        let wait =
            if scan.has_unreadable { None } else { self.remove_absent(&mut writer, &present, now, &mut faults)? };
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
        metadata.uid = Some(names::standalone_uid(&self.cluster_id, key.kind.as_str(), &key.namespace, &key.name));
        metadata.generation = Some(1);
        metadata.creation_timestamp = Some(Time(now_in_seconds()));
        metadata.deletion_timestamp = None;
        metadata.finalizers = None;
    }

    /// Begins the deletion of objects that have been absent for long enough.
    fn remove_absent(
        &self,
        writer: &mut Writer,
        present: &BTreeSet<Key>,
        now: Instant,
        faults: &mut Vec<Fault>,
    ) -> Result<Option<Duration>> {
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
            let left = ABSENCE.saturating_sub(now.saturating_duration_since(since));
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
        going.metadata.deletion_timestamp = Some(Time(now_in_seconds()));
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
}

/// The API writes times without fractions.
fn now_in_seconds() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proxy_operator_api::FINALIZER;

    use super::super::manifests;
    use super::*;
    use crate::store::Store as _;

    struct Folder {
        folder: tempfile::TempDir,
        store: StandaloneStore,
        now: Instant,
    }

    fn manifest(name: &str, spec: &str) -> String {
        format!(
            "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata: {{name: {name}}}\nspec: {{provider: p{spec}}}\n"
        )
    }

    impl Folder {
        fn new() -> Self {
            let folder = tempfile::tempdir().expect("a folder");
            let store = open(folder.path());
            Self { folder, store, now: Instant::now() }
        }

        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.folder.path().join(name), text).expect("writes");
        }

        fn remove(&self, name: &str) {
            std::fs::remove_file(self.folder.path().join(name)).expect("removes");
        }

        async fn scan(&mut self, seconds: u64) -> Vec<Fault> {
            self.now += Duration::from_secs(seconds);
            let scan = manifests::scan(self.folder.path()).expect("scans");
            self.store.apply(scan, self.now).await.expect("applies");
            self.store.writer.lock().await.database.faults().expect("reads")
        }

        fn proxy(&self, name: &str) -> Option<Arc<Proxy>> {
            self.store.proxy(&Key::proxy("default", name))
        }

        /// Makes a Proxy that is held by its finalizer.
        async fn held(&mut self, name: &str) {
            self.write(&format!("{name}.yaml"), &manifest(name, ""));
            self.scan(0).await;
            self.store.add_finalizer(&self.proxy(name).expect("is there")).await.expect("adds");
        }
    }

    fn open(folder: &Path) -> StandaloneStore {
        StandaloneStore::open(folder, &folder.join("state")).expect("opens")
    }

    fn is_going(proxy: Option<Arc<Proxy>>) -> bool {
        proxy.expect("is there").metadata.deletion_timestamp.is_some()
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_absence_means_deletion_after_ten_seconds() {
        let mut folder = Folder::new();
        folder.held("a").await;
        folder.remove("a.yaml");
        folder.scan(1).await;
        folder.scan(9).await;
        assert!(!is_going(folder.proxy("a")));
        folder.scan(1).await;
        assert!(is_going(folder.proxy("a")), "its finalizer holds it, and it is being deleted");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_manifest_that_comes_back_in_time_changes_nothing() {
        let mut folder = Folder::new();
        folder.held("a").await;
        folder.remove("a.yaml");
        folder.scan(9).await;
        folder.write("elsewhere.yaml", &manifest("a", ""));
        folder.scan(9).await;
        folder.remove("elsewhere.yaml");
        folder.scan(9).await;
        assert!(!is_going(folder.proxy("a")), "each absence is counted anew");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_manifest_that_does_not_parse_is_no_absence() {
        let mut folder = Folder::new();
        folder.held("a").await;
        for broken in ["kind: Proxy\nmetadata:\n  name: a\nspec: [", "\tnothing: of it", &manifest("a", ", port: 0")] {
            folder.write("a.yaml", broken);
            let faults = folder.scan(60).await;
            assert_eq!(faults.len(), 1, "{faults:?}");
            assert!(faults[0].place.starts_with("a.yaml"), "{faults:?}");
            folder.scan(60).await;
            assert!(!is_going(folder.proxy("a")), "{broken}");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_few_deletions_begin_in_one_scan() {
        let mut folder = Folder::new();
        for index in 0..7 {
            folder.held(&format!("a{index}")).await;
        }
        for index in 0..7 {
            folder.remove(&format!("a{index}.yaml"));
        }
        folder.scan(0).await;
        let mut going = vec![];
        for _ in 0..3 {
            folder.scan(10).await;
            going.push(folder.store.proxies().into_iter().filter(|proxy| is_going(Some(Arc::clone(proxy)))).count());
        }
        assert_eq!(going, [3, 6, 7]);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_the_machine_was_made_from_does_not_change() {
        let mut folder = Folder::new();
        folder.held("a").await;
        folder.write("a.yaml", &manifest("a", ", machineType: large, paused: true"));
        let faults = folder.scan(1).await;
        assert!(faults[0].message.starts_with("spec.machineType: cannot be changed"), "{faults:?}");
        assert!(!folder.proxy("a").expect("is there").spec.paused, "a change is taken whole or not at all");
        folder.write("a.yaml", &manifest("a", ", paused: true"));
        assert_eq!(folder.scan(1).await, []);
        let proxy = folder.proxy("a").expect("is there");
        assert_eq!((proxy.spec.paused, proxy.metadata.generation), (true, Some(2)));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_provider_that_is_used_is_kept() {
        let mut folder = Folder::new();
        folder.write("p.yaml", "apiVersion: crawl.example.com/v1alpha1\nkind: Provider\nmetadata: {name: p}\nspec: {plugin: {name: kvm}}\n");
        folder.held("a").await;
        folder.remove("p.yaml");
        folder.scan(0).await;
        let faults = folder.scan(60).await;
        assert!(faults[0].message.contains("default/a"), "{faults:?}");
        assert!(folder.store.provider("p").is_some());
        folder.remove("a.yaml");
        folder.scan(0).await;
        folder.scan(60).await;
        let proxy = folder.proxy("a").expect("is there");
        folder.store.remove_finalizer(&proxy).await.expect("removes");
        folder.scan(1).await;
        assert!(folder.store.provider("p").is_none());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn all_is_there_after_a_restart() {
        let mut folder = Folder::new();
        folder.held("a").await;
        let before = folder.proxy("a").expect("is there");
        let Folder { folder, store, .. } = folder;
        let id = store.cluster_id().to_owned();
        drop(store);
        let store = open(folder.path());
        assert_eq!(store.proxy(&Key::proxy("default", "a")), Some(Arc::clone(&before)));
        assert_eq!(store.cluster_id(), id);
        assert_eq!(before.metadata.finalizers, Some(vec![FINALIZER.to_owned()]));
    }
}
