//! `libvirt`, on behalf of a guest.

use proxy_operator_core::capability::libvirt as core;
use proxy_operator_core::error::Error;
use proxy_operator_core::sensitive::Sensitive;

use super::imports::libvirt;
use super::imports::types::Address;
use super::{lift, lower};
use crate::bounds::argument;
use crate::limits;
use crate::store::{Answer, State};

/// Holds the names among the arguments of a function against their bound.
fn names(function: &str, names: &[(&str, &str)]) -> Answer<()> {
    for (item, name) in names {
        argument(function, item, name.len(), limits::NAME)?;
    }
    Ok(())
}

/// Holds the size of what a hypervisor said against its bound.
fn told(function: &str, host: &str, size: usize, most: usize) -> Answer<()> {
    if size <= most {
        return Ok(());
    }
    let message = format!("{function} of {host} gave {size} items, at most {most} can be handled");
    Err(Error::internal("ResultTooLarge", message).into())
}

fn addresses(
    function: &str,
    host: &str,
    addresses: Vec<proxy_operator_core::provider::Address>,
) -> Answer<Vec<Address>> {
    told(function, host, addresses.len(), limits::PAGE)?;
    Ok(addresses.into_iter().map(lower::address).collect())
}

impl libvirt::Host for State {
    fn hosts(&mut self) -> wasmtime::Result<Vec<libvirt::HostGrant>> {
        match self.libvirt_names("libvirt.hosts") {
            Ok(granted) => {
                Ok(granted.map(|l| l.hosts().into_iter().map(lower::host_grant).collect()).unwrap_or_default())
            }
            Err(crate::store::Denied::End(ended)) => Err(ended.into()),
            Err(crate::store::Denied::Answer(_)) => Ok(Vec::new()),
        }
    }

    async fn info(&mut self, host: String) -> Answer<libvirt::HostInfo> {
        const FUNCTION: &str = "libvirt.info";
        names(FUNCTION, &[("host", &host)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(lower::host_info(libvirt.info(&host).await?))
    }

    async fn list_domains(&mut self, host: String) -> Answer<Vec<libvirt::Domain>> {
        const FUNCTION: &str = "libvirt.list-domains";
        names(FUNCTION, &[("host", &host)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        let domains = libvirt.list_domains(&host).await?;
        told(FUNCTION, &host, domains.len(), limits::PAGE)?;
        Ok(domains.into_iter().map(lower::domain).collect())
    }

    async fn lookup_domain(&mut self, host: String, name: String) -> Answer<Option<libvirt::Domain>> {
        const FUNCTION: &str = "libvirt.lookup-domain";
        names(FUNCTION, &[("host", &host), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(libvirt.lookup_domain(&host, &name).await?.map(lower::domain))
    }

    async fn agent_addresses(&mut self, host: String, name: String) -> Answer<Option<Vec<Address>>> {
        const FUNCTION: &str = "libvirt.agent-addresses";
        names(FUNCTION, &[("host", &host), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        match libvirt.agent_addresses(&host, &name).await? {
            Some(found) => Ok(Some(addresses(FUNCTION, &host, found)?)),
            None => Ok(None),
        }
    }

    async fn neighbour_addresses(&mut self, host: String, name: String) -> Answer<Vec<Address>> {
        const FUNCTION: &str = "libvirt.neighbour-addresses";
        names(FUNCTION, &[("host", &host), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        let found = libvirt.neighbour_addresses(&host, &name).await?;
        addresses(FUNCTION, &host, found)
    }

    async fn define_domain(&mut self, host: String, spec: libvirt::DomainSpec) -> Answer<libvirt::Domain> {
        const FUNCTION: &str = "libvirt.define-domain";
        names(FUNCTION, &[("host", &host), ("spec.name", &spec.name)])?;
        argument(FUNCTION, "spec.title", spec.title.len(), limits::TITLE)?;
        argument(FUNCTION, "spec.disks", spec.disks.len(), limits::DISKS)?;
        argument(FUNCTION, "spec.networks", spec.networks.len(), limits::NETWORKS)?;
        for disk in &spec.disks {
            names(FUNCTION, &[("spec.disks.pool", &disk.pool), ("spec.disks.volume", &disk.volume)])?;
        }
        for network in spec.networks.iter().chain(&spec.domain_type) {
            names(FUNCTION, &[("spec.networks or spec.domain-type", network)])?;
        }
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(lower::domain(libvirt.define_domain(&host, &lift::domain_spec(spec)).await?))
    }

    async fn start_domain(&mut self, host: String, name: String) -> Answer<()> {
        const FUNCTION: &str = "libvirt.start-domain";
        names(FUNCTION, &[("host", &host), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(libvirt.start_domain(&host, &name).await?)
    }

    async fn destroy_domain(&mut self, host: String, name: String) -> Answer<()> {
        const FUNCTION: &str = "libvirt.destroy-domain";
        names(FUNCTION, &[("host", &host), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(libvirt.destroy_domain(&host, &name).await?)
    }

    async fn undefine_domain(&mut self, host: String, name: String) -> Answer<()> {
        const FUNCTION: &str = "libvirt.undefine-domain";
        names(FUNCTION, &[("host", &host), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(libvirt.undefine_domain(&host, &name).await?)
    }

    async fn list_volumes(&mut self, host: String, domain: Option<String>) -> Answer<Vec<libvirt::Volume>> {
        const FUNCTION: &str = "libvirt.list-volumes";
        names(FUNCTION, &[("host", &host), ("domain", domain.as_deref().unwrap_or_default())])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        let volumes = libvirt.list_volumes(&host, domain.as_deref()).await?;
        told(FUNCTION, &host, volumes.len(), limits::VOLUMES)?;
        Ok(volumes.into_iter().map(lower::volume).collect())
    }

    async fn create_volume(
        &mut self,
        host: String,
        pool: String,
        name: String,
        spec: libvirt::VolumeSpec,
    ) -> Answer<()> {
        const FUNCTION: &str = "libvirt.create-volume";
        let libvirt::VolumeSpec { format, capacity, backing } = spec;
        names(FUNCTION, &[("host", &host), ("pool", &pool), ("name", &name)])?;
        names(FUNCTION, &[("spec.backing", backing.as_deref().unwrap_or_default())])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        let spec = core::VolumeSpec { format: lift::volume_format(format), capacity, backing };
        Ok(libvirt.create_volume(&host, &pool, &name, &spec).await?)
    }

    async fn write_volume(&mut self, host: String, pool: String, name: String, content: Vec<u8>) -> Answer<()> {
        const FUNCTION: &str = "libvirt.write-volume";
        names(FUNCTION, &[("host", &host), ("pool", &pool), ("name", &name)])?;
        argument(FUNCTION, "content", content.len(), limits::VOLUME_CONTENT)?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(libvirt.write_volume(&host, &pool, &name, Sensitive::new(content)).await?)
    }

    async fn delete_volume(&mut self, host: String, pool: String, name: String) -> Answer<()> {
        const FUNCTION: &str = "libvirt.delete-volume";
        names(FUNCTION, &[("host", &host), ("pool", &pool), ("name", &name)])?;
        let libvirt = self.libvirt(FUNCTION)?;
        let _waiting = self.wait(FUNCTION, &host);
        Ok(libvirt.delete_volume(&host, &pool, &name).await?)
    }
}
