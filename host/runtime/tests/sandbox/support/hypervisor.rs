//! A hypervisor as the tests want it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use proxy_operator_core::capability::images::{Images, Source, Status, Transfer};
use proxy_operator_core::capability::libvirt::{Domain, DomainSpec, HostGrant, HostInfo, Libvirt, Volume, VolumeSpec};
use proxy_operator_core::error::{Error, Result};
use proxy_operator_core::provider::Address;
use proxy_operator_core::sensitive::Sensitive;

/// What `info` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mood {
    Well,
    Slow(Duration),
    Hanging,
    HangingFromTheSecond,
    Panicking,
    Down,
}

/// Counts what was asked of it.
pub(crate) struct Hypervisor {
    mood: Mood,
    pub(crate) calls: AtomicUsize,
    pub(crate) dropped: AtomicUsize,
    pub(crate) now: AtomicUsize,
    pub(crate) most: AtomicUsize,
    /// Run when `info` is called.
    pub(crate) on_info: Mutex<Option<Box<dyn Fn() + Send>>>,
}

/// Counts a call that is under way, and one that was dropped.
struct Under<'a>(&'a Hypervisor, bool);

impl Hypervisor {
    pub(crate) fn new(mood: Mood) -> Arc<Self> {
        let zero = AtomicUsize::default;
        Arc::new(Self { mood, calls: zero(), dropped: zero(), now: zero(), most: zero(), on_info: Mutex::default() })
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
        if !self.1 {
            self.0.dropped.fetch_add(1, Ordering::SeqCst);
        }
    }
}

fn none<T>() -> Result<T> {
    Err(Error::internal("Unexpected", "no test calls this"))
}

#[async_trait]
impl Libvirt for Hypervisor {
    fn hosts(&self) -> Vec<HostGrant> {
        let host = |name: &str| HostGrant {
            name: name.to_owned(),
            pools: vec!["default".to_owned()],
            networks: vec!["lan".to_owned()],
            max_vcpus: None,
            max_memory_mib: None,
            max_volume_size: None,
        };
        vec![host("hv1"), host("hv2")]
    }

    async fn info(&self, _host: &str) -> Result<HostInfo> {
        let earlier = self.calls.fetch_add(1, Ordering::SeqCst);
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        let mut under = Under(self, false);
        if let Some(run) = &*self.on_info.lock().unwrap() {
            run();
        }
        match self.mood {
            Mood::Well => {}
            Mood::Slow(time) => tokio::time::sleep(time).await,
            Mood::HangingFromTheSecond if earlier == 0 => {}
            Mood::Hanging | Mood::HangingFromTheSecond => std::future::pending().await,
            Mood::Panicking => panic!("a fault of the host"),
            Mood::Down => {
                under.1 = true;
                let error = Error::unavailable("HostUnreachable", "host hv1: no route");
                return Err(error.with_backend("VIR_ERR_SYSTEM_ERROR", Some(38)));
            }
        }
        under.1 = true;
        Ok(HostInfo {
            version: "libvirt 9.0.0".to_owned(),
            arch: "x86_64".to_owned(),
            domain_types: vec!["kvm".to_owned()],
            firmwares: Vec::new(),
            uuid: "0".to_owned(),
            pools: Vec::new(),
            missing_networks: Vec::new(),
            cpus: 2,
            free_memory_mib: 1024,
        })
    }

    async fn list_domains(&self, _host: &str) -> Result<Vec<Domain>> {
        none()
    }
    async fn lookup_domain(&self, _host: &str, _name: &str) -> Result<Option<Domain>> {
        none()
    }
    async fn agent_addresses(&self, _host: &str, _name: &str) -> Result<Option<Vec<Address>>> {
        none()
    }
    async fn neighbour_addresses(&self, _host: &str, _name: &str) -> Result<Vec<Address>> {
        none()
    }
    async fn define_domain(&self, _host: &str, _spec: &DomainSpec) -> Result<Domain> {
        none()
    }
    async fn start_domain(&self, _host: &str, _name: &str) -> Result<()> {
        none()
    }
    async fn destroy_domain(&self, _host: &str, _name: &str) -> Result<()> {
        none()
    }
    async fn undefine_domain(&self, _host: &str, _name: &str) -> Result<()> {
        none()
    }
    async fn list_volumes(&self, _host: &str, _domain: Option<&str>) -> Result<Vec<Volume>> {
        none()
    }
    async fn create_volume(&self, _host: &str, _pool: &str, _name: &str, _spec: &VolumeSpec) -> Result<()> {
        none()
    }
    async fn write_volume(&self, _host: &str, _pool: &str, _name: &str, _content: Sensitive<Vec<u8>>) -> Result<()> {
        none()
    }
    async fn delete_volume(&self, _host: &str, _pool: &str, _name: &str) -> Result<()> {
        none()
    }
}

#[async_trait]
impl Images for Hypervisor {
    async fn ensure(&self, _host: &str, _pool: &str, _source: &Source) -> Result<Status> {
        let (reason, message) = ("ImageQueued".to_owned(), "queued".to_owned());
        Ok(Status::Pending(Transfer { reason, message, percent: None }))
    }
}
