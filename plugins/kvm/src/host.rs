//! What is asked of the infrastructure: the granted capabilities behind a trait, so that tests can stand in for them.

use proxy_operator_sdk::images::{self, Source, Status};
use proxy_operator_sdk::libvirt::{self, Domain, DomainSpec, HostGrant, HostInfo, Volume, VolumeSpec};
use proxy_operator_sdk::{Address, Result};

/// The functions of `wit/libvirt.wit` and `wit/images.wit` that this provider uses. Their contract stands there.
pub(crate) trait Host {
    /// The hosts that are granted, in the order of the grant. Asks nobody.
    fn hosts(&self) -> Vec<HostGrant>;
    /// What a hypervisor is and can do now.
    fn info(&self, host: &str) -> Result<HostInfo>;
    /// All domains of ours on a host.
    fn list_domains(&self, host: &str) -> Result<Vec<Domain>>;
    /// One domain of ours.
    fn lookup_domain(&self, host: &str, name: &str) -> Result<Option<Domain>>;
    /// What the guest agent says; `None` when none answers.
    fn agent_addresses(&self, host: &str, name: &str) -> Result<Option<Vec<Address>>>;
    /// What the hypervisor's neighbour table says.
    fn neighbour_addresses(&self, host: &str, name: &str) -> Result<Vec<Address>>;
    /// Defines a domain, or says that it is there already.
    fn define_domain(&self, host: &str, spec: &DomainSpec) -> Result<Domain>;
    /// Starts a domain; one that runs is left alone.
    fn start_domain(&self, host: &str, name: &str) -> Result<()>;
    /// Switches a domain off.
    fn destroy_domain(&self, host: &str, name: &str) -> Result<()>;
    /// Forgets a domain that is off.
    fn undefine_domain(&self, host: &str, name: &str) -> Result<()>;
    /// The volumes of ours in all granted pools of a host, or those of one domain.
    fn list_volumes(&self, host: &str, domain: Option<&str>) -> Result<Vec<Volume>>;
    /// Makes a volume.
    fn create_volume(&self, host: &str, pool: &str, name: &str, spec: &VolumeSpec) -> Result<()>;
    /// Makes a raw volume with this content, or overwrites it.
    fn write_volume(&self, host: &str, pool: &str, name: &str, content: &[u8]) -> Result<()>;
    /// Deletes a volume.
    fn delete_volume(&self, host: &str, pool: &str, name: &str) -> Result<()>;
    /// Asks for a base image in a pool.
    fn ensure_image(&self, host: &str, pool: &str, source: &Source) -> Result<Status>;
}

/// What the Provider's grant gives.
pub(crate) struct Granted;

// === impl Granted ===

impl Host for Granted {
    fn hosts(&self) -> Vec<HostGrant> {
        libvirt::hosts()
    }

    fn info(&self, host: &str) -> Result<HostInfo> {
        libvirt::info(host)
    }

    fn list_domains(&self, host: &str) -> Result<Vec<Domain>> {
        libvirt::list_domains(host)
    }

    fn lookup_domain(&self, host: &str, name: &str) -> Result<Option<Domain>> {
        libvirt::lookup_domain(host, name)
    }

    fn agent_addresses(&self, host: &str, name: &str) -> Result<Option<Vec<Address>>> {
        libvirt::agent_addresses(host, name)
    }

    fn neighbour_addresses(&self, host: &str, name: &str) -> Result<Vec<Address>> {
        libvirt::neighbour_addresses(host, name)
    }

    fn define_domain(&self, host: &str, spec: &DomainSpec) -> Result<Domain> {
        libvirt::define_domain(host, spec)
    }

    fn start_domain(&self, host: &str, name: &str) -> Result<()> {
        libvirt::start_domain(host, name)
    }

    fn destroy_domain(&self, host: &str, name: &str) -> Result<()> {
        libvirt::destroy_domain(host, name)
    }

    fn undefine_domain(&self, host: &str, name: &str) -> Result<()> {
        libvirt::undefine_domain(host, name)
    }

    fn list_volumes(&self, host: &str, domain: Option<&str>) -> Result<Vec<Volume>> {
        libvirt::list_volumes(host, domain)
    }

    fn create_volume(&self, host: &str, pool: &str, name: &str, spec: &VolumeSpec) -> Result<()> {
        libvirt::create_volume(host, pool, name, spec)
    }

    fn write_volume(&self, host: &str, pool: &str, name: &str, content: &[u8]) -> Result<()> {
        libvirt::write_volume(host, pool, name, content)
    }

    fn delete_volume(&self, host: &str, pool: &str, name: &str) -> Result<()> {
        libvirt::delete_volume(host, pool, name)
    }

    fn ensure_image(&self, host: &str, pool: &str, source: &Source) -> Result<Status> {
        images::ensure(host, pool, source)
    }
}
