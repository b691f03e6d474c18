//! The connections of this process: one hypervisor, one set of them, however many Providers use it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use proxy_operator_api::grants::{LibvirtGrant, LibvirtHost};
use proxy_operator_core::error::{Error, Result};

use super::connection::Hypervisor;
use super::dial::{Dial, TunnelDial};
use super::granted::{GrantedHost, GrantedLibvirt};
use super::policy::{Identity, Scope, host_grant};
use crate::limits::Limits;
use crate::secrets::SecretStore;
use crate::ssh::address::Address;
use crate::ssh::key::Credentials;
use crate::ssh::remote_socket;

/// Makes capabilities for Providers, on connections that they share.
///
/// A hypervisor is known by address, Secret and socket. Its connections live as long as a capability that may use
/// them: when grants change, make the new capability before the old one goes, and what is unchanged stays connected.
#[derive(Clone)]
pub struct Hypervisors {
    secrets: SecretStore,
    limits: Arc<Limits>,
    known: Arc<Mutex<HashMap<Key, Weak<Hypervisor>>>>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    address: Address,
    secret: Option<String>,
    socket: String,
}

/// What is wrong with the Secret of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretFault {
    /// The host's name in the grant.
    pub host: String,
    /// What is wrong.
    pub error: Error,
}

impl Hypervisors {
    /// No connection yet. Secrets are read when one is opened.
    pub fn new(secrets: SecretStore, limits: Limits) -> Self {
        Self { secrets, limits: Arc::new(limits), known: Arc::default() }
    }

    /// libvirt for one Provider. Opens nothing. A host whose address cannot be read fails its own calls alone.
    pub fn granted(&self, identity: Identity, grant: &LibvirtGrant) -> Arc<GrantedLibvirt> {
        let identity = Arc::new(identity);
        let hosts = grant.hosts.iter().map(|(name, host)| {
            let scope = Scope { identity: Arc::clone(&identity), grant: Arc::new(host_grant(name, host)) };
            let hypervisor = self.hypervisor(host).map_err(|error| Error {
                message: format!("spec.grants.libvirt.hosts.{name}: {}", error.message),
                ..error
            });
            (name.clone(), GrantedHost { scope, hypervisor, label: Arc::from(name.as_str()) })
        });
        let hosts: BTreeMap<_, _> = hosts.collect();
        Arc::new(GrantedLibvirt::new(identity, hosts, Arc::clone(&self.limits)))
    }

    /// What is wrong with the Secrets that a grant names, as they are now; for a warning at start. Asks no host.
    pub fn check_secrets(&self, grant: &LibvirtGrant) -> Vec<SecretFault> {
        let faults = grant.hosts.iter().filter_map(|(host, LibvirtHost { secret, .. })| {
            let error = Credentials::read(&self.secrets, secret.as_ref()?).err()?;
            Some(SecretFault { host: host.clone(), error })
        });
        faults.collect()
    }

    /// Ends all connections, and calls with them; later calls fail.
    pub fn close(&self) {
        let known: Vec<_> = self.known.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        known.into_iter().filter_map(|(_, hypervisor)| hypervisor.upgrade()).for_each(|hypervisor| hypervisor.close());
    }

    /// The connections to a granted host.
    pub fn hypervisor(&self, host: &LibvirtHost) -> Result<Arc<Hypervisor>> {
        let LibvirtHost { address, secret, socket, pools: _, networks: _, limits: _ } = host;
        let address = Address::parse(address)?;
        let socket = remote_socket(socket.as_deref());
        if matches!(address, Address::Ssh(_)) && secret.is_none() {
            return Err(Error::invalid_config("GrantInvalid", "names no Secret with ssh-privatekey and known_hosts"));
        }
        let secret = secret.clone().filter(|_| matches!(address, Address::Ssh(_)));
        let key = Key { address, secret, socket };
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, hypervisor| hypervisor.strong_count() > 0);
        if let Some(hypervisor) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(hypervisor);
        }
        let dial: Arc<dyn Dial> = Arc::new(TunnelDial {
            address: key.address.clone(),
            secret: key.secret.clone(),
            socket: key.socket.clone(),
            secrets: self.secrets.clone(),
            limits: Arc::clone(&self.limits),
        });
        let hypervisor = Arc::new(Hypervisor::new(dial, Arc::clone(&self.limits)));
        known.insert(key, Arc::downgrade(&hypervisor));
        Ok(hypervisor)
    }
}
