//! A pool in memory that several services share, and that can die under each of them.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::super::format;
use super::super::pool::{Content, Created, ImagePool, Pools, Users, VolumeInfo};
use super::*;

#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) data: Vec<u8>,
    pub(super) backing: Option<String>,
    /// As the pool saw it last.
    format: Option<VolumeFormat>,
    capacity: u64,
}

/// What stays when an operator dies.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) volumes: Mutex<BTreeMap<String, Volume>>,
    /// Calls that changed something, and which.
    pub(super) changes: Mutex<Vec<String>>,
    pub(super) uploads: AtomicUsize,
    pub(super) at_once: AtomicUsize,
    pub(super) most_at_once: AtomicUsize,
    pub(super) space: Mutex<Option<u64>>,
    /// An upload takes so long.
    pub(super) slow: Mutex<Duration>,
    pub(super) failures: Mutex<Vec<(&'static str, Error)>>,
}

/// The pool as one operator sees it: it dies with it.
#[derive(Clone)]
pub(super) struct MemoryPool {
    pub(super) disk: Arc<Disk>,
    /// How many changes are left to make.
    pub(super) life: Arc<AtomicI64>,
}

impl Disk {
    pub(super) fn names(&self) -> Vec<String> {
        self.volumes.lock().unwrap().keys().cloned().collect()
    }

    pub(super) fn get(&self, name: &str) -> Option<Volume> {
        self.volumes.lock().unwrap().get(name).cloned()
    }

    pub(super) fn put(&self, name: &str, data: &[u8], backing: Option<&str>) {
        let volume = Volume { data: data.to_vec(), backing: backing.map(str::to_owned), format: None, capacity: 0 };
        self.volumes.lock().unwrap().insert(name.to_owned(), volume.seen());
    }

    pub(super) fn remove(&self, name: &str) {
        self.volumes.lock().unwrap().remove(name);
    }

    pub(super) fn images(&self) -> Vec<String> {
        self.names().into_iter().filter(|name| name.ends_with(".qcow2") || name.ends_with(".raw")).collect()
    }
}

impl Volume {
    /// As a pool sees it that looks at its content.
    fn seen(mut self) -> Self {
        let length = self.data.len() as u64;
        match format::inspect(&mut Cursor::new(&self.data), length, u64::MAX) {
            Ok(found) => (self.format, self.capacity) = (Some(found.format), found.capacity),
            Err(_) => (self.format, self.capacity) = (Some(VolumeFormat::Raw), length),
        }
        self
    }
}

impl MemoryPool {
    pub(super) fn new(disk: &Arc<Disk>) -> Self {
        Self { disk: Arc::clone(disk), life: Arc::new(AtomicI64::new(i64::MAX)) }
    }

    /// Before each change: an operator that has died makes none, and returns to nobody.
    async fn change(&self, what: String) -> Result<()> {
        if self.life.fetch_sub(1, Ordering::SeqCst) <= 0 {
            self.life.store(0, Ordering::SeqCst);
            std::future::pending::<()>().await;
        }
        let failed = {
            let mut failures = self.disk.failures.lock().unwrap();
            failures.iter().position(|(prefix, _)| what.starts_with(prefix)).map(|index| failures.remove(index).1)
        };
        self.disk.changes.lock().unwrap().push(what);
        failed.map_or(Ok(()), Err)
    }
}

#[async_trait]
impl ImagePool for MemoryPool {
    fn hypervisor(&self) -> String {
        "memory".to_owned()
    }

    fn name(&self) -> String {
        "default".to_owned()
    }

    async fn volumes(&self) -> Result<Vec<String>> {
        Ok(self.disk.names())
    }

    async fn exist(&self, volumes: &[String]) -> Result<bool> {
        Ok(volumes.iter().all(|name| self.disk.get(name).is_some()))
    }

    async fn look(&self, volume: &str) -> Result<Option<VolumeInfo>> {
        tokio::task::yield_now().await;
        Ok(self.disk.get(volume).map(|found| VolumeInfo {
            format: found.format,
            capacity: found.capacity,
            physical: Some(found.data.len() as u64),
            backing: found.backing,
        }))
    }

    async fn read(&self, volume: &str, most: u64) -> Result<Option<Vec<u8>>> {
        tokio::task::yield_now().await;
        Ok(self.disk.get(volume).map(|found| found.data.into_iter().take(most as usize).collect()))
    }

    async fn create(&self, volume: &str, capacity: u64) -> Result<Created> {
        self.change(format!("create {volume}")).await?;
        let mut volumes = self.disk.volumes.lock().unwrap();
        if volumes.contains_key(volume) {
            return Ok(Created::Exists);
        }
        let data = vec![0; capacity as usize];
        volumes.insert(volume.to_owned(), Volume { data, backing: None, format: Some(VolumeFormat::Raw), capacity });
        Ok(Created::Made)
    }

    async fn write(&self, volume: &str, content: Vec<u8>) -> Result<()> {
        // In two pieces, so that one can be torn.
        for part in [0..content.len() / 2, content.len() / 2..content.len()] {
            self.change(format!("write {volume}")).await?;
            let mut volumes = self.disk.volumes.lock().unwrap();
            let found = volumes.get_mut(volume).ok_or_else(|| Error::unavailable("VolumeMissing", volume))?;
            found.data[part.clone()].copy_from_slice(&content[part]);
        }
        Ok(())
    }

    async fn upload(&self, volume: &str, content: Content) -> Result<()> {
        self.disk.uploads.fetch_add(1, Ordering::SeqCst);
        let now = self.disk.at_once.fetch_add(1, Ordering::SeqCst) + 1;
        self.disk.most_at_once.fetch_max(now, Ordering::SeqCst);
        let slow = *self.disk.slow.lock().unwrap();
        let piece = content.length.div_ceil(4);
        for part in 0..4 {
            self.change(format!("upload {volume} {part}")).await?;
            tokio::time::sleep(slow / 4).await;
            let (start, end) = ((part * piece).min(content.length), ((part + 1) * piece).min(content.length));
            let mut bytes = vec![0; (end - start) as usize];
            content.file.read_exact_at(&mut bytes, start).unwrap();
            content.progress.add(end - start);
            let mut volumes = self.disk.volumes.lock().unwrap();
            let found = volumes.get_mut(volume).ok_or_else(|| Error::unavailable("VolumeMissing", volume))?;
            found.data[start as usize..end as usize].copy_from_slice(&bytes);
        }
        self.disk.at_once.fetch_sub(1, Ordering::SeqCst);
        Ok(())
    }

    async fn delete(&self, volume: &str) -> Result<()> {
        self.change(format!("delete {volume}")).await?;
        self.disk.remove(volume);
        Ok(())
    }

    async fn users(&self) -> Result<Users> {
        let volumes = self.disk.volumes.lock().unwrap();
        let mut users = Users::new();
        for (name, volume) in &*volumes {
            if let Some(backing) = &volume.backing {
                users.entry(backing.clone()).or_default().push(name.clone());
            }
        }
        Ok(users)
    }

    async fn available(&self) -> Result<Option<u64>> {
        Ok(*self.disk.space.lock().unwrap())
    }

    async fn refresh(&self) -> Result<()> {
        let mut volumes = self.disk.volumes.lock().unwrap();
        for volume in volumes.values_mut() {
            *volume = volume.clone().seen();
        }
        Ok(())
    }
}

impl Pools for MemoryPool {
    fn pool(&self, _name: &str, _host: &LibvirtHost, _pool: &str) -> Result<Arc<dyn ImagePool>> {
        Ok(Arc::new(self.clone()))
    }
}
