//! A Provider on a real hypervisor: libvirtd behind an sshd, as a Provider's grant reaches it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Result;
use proxy_operator_api::grants::{LibvirtGrant, LibvirtHost};
use proxy_operator_capabilities::libvirt::granted::GrantedLibvirt;
use proxy_operator_capabilities::libvirt::hypervisors::Hypervisors;
use proxy_operator_capabilities::libvirt::policy::Identity;
use proxy_operator_capabilities::limits::Limits;
use proxy_operator_capabilities::secrets::SecretStore;
use proxy_operator_harness::Hypervisor;

use crate::kvm::{CLUSTER, HOST, PROVIDER};

/// The hypervisor's own name.
const NAME: &str = "hvbench";

/// A grant and what it gives.
pub(crate) struct Granted {
    /// The hypervisor, which ends with the program.
    pub(crate) hypervisor: &'static Hypervisor,
    /// The connections.
    pub(crate) hypervisors: Hypervisors,
    /// The Provider.
    pub(crate) identity: Identity,
    /// The grant.
    pub(crate) grant: LibvirtGrant,
    /// libvirt for the Provider.
    pub(crate) libvirt: Arc<GrantedLibvirt>,
    /// Secrets, and room for state.
    pub(crate) folder: tempfile::TempDir,
}

impl Granted {
    /// Starts the hypervisor, where it does not run yet.
    pub(crate) fn new() -> Result<Self> {
        let hypervisor = proxy_operator_harness::shared(NAME)?;
        let folder = tempfile::tempdir()?;
        let secret = folder.path().join("secrets/kvm-ssh");
        std::fs::create_dir_all(&secret)?;
        std::fs::copy(&hypervisor.keys.ed25519, secret.join("ssh-privatekey"))?;
        std::fs::copy(&hypervisor.known_hosts, secret.join("known_hosts"))?;
        let host = LibvirtHost {
            address: hypervisor.ssh_address.clone(),
            secret: Some("kvm-ssh".to_owned()),
            socket: None,
            pools: vec![hypervisor.pool.clone()],
            networks: vec![hypervisor.network.clone()],
            limits: None,
        };
        let grant = LibvirtGrant { hosts: BTreeMap::from([(HOST.to_owned(), host)]) };
        let hypervisors = Hypervisors::new(SecretStore::new(folder.path().join("secrets")), Limits::default());
        let identity = Identity::new(CLUSTER, PROVIDER);
        let libvirt = hypervisors.granted(identity.clone(), &grant);
        Ok(Self { hypervisor, hypervisors, identity, grant, libvirt, folder })
    }
}
