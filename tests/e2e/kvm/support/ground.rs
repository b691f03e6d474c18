//! Hypervisors that the tests share, and what a test has of its own on one: a storage pool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use proxy_operator_harness::{Hypervisor, Services, shared};

/// The names of the hypervisors. Two worktrees that test at one time need names of their own.
pub(crate) fn name(number: usize) -> String {
    let stem = std::env::var("KVM_TEST_HYPERVISOR").unwrap_or_else(|_| "hve".to_owned());
    format!("{stem}{number}")
}

/// The hypervisor of tests that leave its daemons alone.
pub(crate) fn steady() -> &'static Hypervisor {
    shared(&name(1)).unwrap()
}

/// The hypervisor whose daemons are frozen, killed and restarted, by one test at a time.
pub(crate) fn shaken() -> (&'static Hypervisor, MutexGuard<'static, ()>) {
    static ONE: Mutex<()> = Mutex::new(());
    let guard = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    (shared(&name(2)).unwrap(), guard)
}

/// A storage pool of a test's own, so that what is left in it is the test's own too.
pub(crate) struct Ground {
    pub(crate) hypervisor: &'static Hypervisor,
    pub(crate) pool: String,
    dir: PathBuf,
}

impl Ground {
    pub(crate) fn new(hypervisor: &'static Hypervisor, pool: &str) -> Self {
        let path = hypervisor.pool_path.with_file_name(format!("pool-{pool}"));
        let dir = hypervisor.pool_dir.with_file_name(format!("pool-{pool}"));
        std::fs::create_dir_all(&dir).unwrap();
        let path = path.display();
        hypervisor
            .virsh(&[&format!("pool-define-as {pool} dir --target {path}; pool-start {pool}; pool-autostart {pool}")])
            .unwrap();
        Self { hypervisor, pool: pool.to_owned(), dir }
    }

    /// Where something answers 204 on the network of the guests.
    pub(crate) fn services(&self) -> Services {
        // Started by the first who asks, by one at a time.
        static STARTING: Mutex<()> = Mutex::new(());
        let _one = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
        self.hypervisor.services(None).unwrap()
    }

    /// A file of the pool as this process sees it.
    pub(crate) fn file(&self, volume: &str) -> PathBuf {
        self.dir.join(volume)
    }

    /// What is in the pool, sorted.
    pub(crate) fn volumes(&self) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(&self.dir)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    /// What is in the pool beside base images and their markers.
    pub(crate) fn volumes_of_proxies(&self) -> Vec<String> {
        let mut names = self.volumes();
        names.retain(|name| !name.starts_with("base-"));
        names
    }

    /// The domains, on and off, whose names begin so.
    pub(crate) fn domains(&self, prefix: &str) -> Vec<String> {
        let listed = self.hypervisor.virsh(&["list", "--all", "--name"]).unwrap();
        listed.lines().filter(|name| !name.is_empty() && name.starts_with(prefix)).map(str::to_owned).collect()
    }

    /// The NVRAM file of a domain as this process sees it.
    pub(crate) fn nvram(&self, domain: &str) -> PathBuf {
        self.hypervisor.pool_dir.with_file_name("qemu").join("nvram").join(format!("{domain}_VARS.fd"))
    }

    pub(crate) fn uuid(&self, domain: &str) -> String {
        self.hypervisor.virsh(&["domuuid", domain]).unwrap().trim().to_owned()
    }

    /// The number of a running domain, another one after each start.
    pub(crate) fn running_id(&self, domain: &str) -> String {
        self.hypervisor.virsh(&["domid", domain]).unwrap().trim().to_owned()
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        let _ = self.hypervisor.virsh(&[&format!("pool-destroy {0}; pool-undefine {0}", self.pool)]);
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Disk images that no machine boots from, in a folder that goes with the hypervisor.
pub(crate) struct Images {
    folder: PathBuf,
}

/// The images of all tests.
pub(crate) static IMAGES: LazyLock<Images> = LazyLock::new(Images::make);

impl Images {
    fn make() -> Self {
        let folder = steady().pool_dir.with_file_name("test-images");
        std::fs::create_dir(&folder).unwrap();
        let at = |name: &str| folder.join(name);
        // Several messages of libvirt's stream long.
        std::fs::write(at("empty.raw"), vec![0; 1 << 20]).unwrap();
        let qemu_img = |arguments: &[&str]| {
            let status = Command::new("qemu-img").current_dir(&folder).args(arguments).output().unwrap();
            assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
        };
        qemu_img(&["create", "-q", "-f", "qcow2", "whole.qcow2", "64M"]);
        qemu_img(&["create", "-q", "-f", "qcow2", "-b", "/etc/shadow", "-F", "raw", "-u", "backed.qcow2", "64M"]);
        let whole = std::fs::read(at("whole.qcow2")).unwrap();
        std::fs::write(at("truncated.qcow2"), &whole[..100]).unwrap();
        Self { folder }
    }

    pub(crate) fn prefix(&self) -> String {
        format!("file://{}/", self.folder.display())
    }

    pub(crate) fn url(&self, name: &str) -> String {
        format!("{}{name}", self.prefix())
    }

    pub(crate) fn digest(&self, name: &str) -> String {
        digest(&self.folder.join(name))
    }
}

fn digest(file: &Path) -> String {
    use sha2::{Digest as _, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(std::fs::read(file).unwrap())))
}
