//! What one Provider may touch on one hypervisor: grants, names, limits. No IO.

use std::sync::Arc;

use proxy_operator_api::grants::LibvirtHost;
use proxy_operator_core::capability::libvirt::{DomainSpec, HostGrant};
use proxy_operator_core::error::{Error, ErrorCode, Result};
use proxy_operator_core::names;
use uuid::Uuid;

use super::metadata::Stamp;
use crate::images::name::{BaseName, Kind};
use crate::limits::{DISKS_MAX, NETWORKS_MAX, TITLE_MAX_BYTES};

/// The Provider on whose behalf calls are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The id of the operator's installation.
    pub cluster_id: String,
    /// The name of the Provider object.
    pub provider: String,
    /// What the name of each of its domains begins with: [`names::name_prefix`].
    pub name_prefix: String,
}

/// What a Provider may touch on one hypervisor.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The Provider.
    pub identity: Arc<Identity>,
    /// The grant, as a plugin sees it.
    pub grant: Arc<HostGrant>,
}

impl Identity {
    /// The identity of a Provider.
    pub fn new(cluster_id: impl Into<String>, provider: impl Into<String>) -> Self {
        let (cluster_id, provider) = (cluster_id.into(), provider.into());
        let name_prefix = names::name_prefix(&cluster_id, &provider);
        Self { cluster_id, provider, name_prefix }
    }
}

/// The grant of a host as a plugin sees it.
pub fn host_grant(name: &str, host: &LibvirtHost) -> HostGrant {
    let limits = host.limits.clone().unwrap_or_default();
    HostGrant {
        name: name.to_owned(),
        pools: host.pools.clone(),
        networks: host.networks.clone(),
        max_vcpus: limits.vcpus,
        max_memory_mib: limits.memory_mib,
        max_volume_size: limits.volume_gib.map(|gib| gib.saturating_mul(1 << 30)),
    }
}

impl Scope {
    /// The host's name.
    pub fn host(&self) -> &str {
        &self.grant.name
    }

    /// The owner's uid in the name of a domain of ours.
    pub fn owner<'a>(&self, domain: &'a str) -> Result<&'a str> {
        self.owner_if_ours(domain).ok_or_else(|| {
            self.denied(
                "NameForeign",
                format!("{domain:?} is not a name of this Provider's domains, which begin with {:?} and end with the owner's uid", self.identity.name_prefix),
            )
        })
    }

    /// The owner's uid, when the name can be one of ours.
    pub fn owner_if_ours<'a>(&self, domain: &'a str) -> Option<&'a str> {
        domain.strip_prefix(self.identity.name_prefix.as_str()).filter(|owner| names::is_identifier(owner))
    }

    /// The domain and the owner's uid in the name of a volume of ours.
    pub fn volume_owner<'a>(&self, volume: &'a str) -> Result<(&'a str, &'a str)> {
        self.volume_owner_if_ours(volume).ok_or_else(|| {
            self.denied(
                "NameForeign",
                format!(
                    "{volume:?} is not a name of this Provider's volumes, which are called {}<owner>.<suffix>",
                    self.identity.name_prefix
                ),
            )
        })
    }

    /// The domain and the owner's uid, when the name can be one of ours.
    pub fn volume_owner_if_ours<'a>(&self, volume: &'a str) -> Option<(&'a str, &'a str)> {
        let (domain, suffix) = volume.split_once('.')?;
        suffix.split('.').all(names::is_identifier).then_some(())?;
        Some((domain, self.owner_if_ours(domain)?))
    }

    /// Whether the stamp of a domain is this Provider's for this owner.
    pub fn is_stamp_ours(&self, stamp: &Stamp, owner: &str) -> bool {
        let Stamp { installation, provider, owner: stamped, created_at: _ } = stamp;
        *installation == self.identity.cluster_id && *provider == self.identity.provider && stamped == owner
    }

    /// The uuid of an owner's domain.
    pub fn uuid(&self, owner: &str) -> Uuid {
        names::domain_uuid(&self.identity.cluster_id, owner)
    }

    /// The MAC addresses that an owner's domain can have.
    pub fn macs(&self, owner: &str) -> Vec<String> {
        (0..NETWORKS_MAX).map(|index| names::mac_address(&self.identity.cluster_id, owner, index)).collect()
    }

    /// A pool is granted.
    pub fn pool(&self, pool: &str) -> Result<()> {
        self.listed(&self.grant.pools, "pool", "pools", pool)
    }

    /// A network is granted.
    pub fn network(&self, network: &str) -> Result<()> {
        self.listed(&self.grant.networks, "network", "networks", network)
    }

    /// A volume's size is within the limit.
    pub fn volume_size(&self, bytes: u64) -> Result<()> {
        let most = self.grant.max_volume_size;
        self.within(most, bytes, "volumeGiB", &format!("a volume of {bytes} bytes"), &|most| {
            format!("{} GiB", most >> 30)
        })
    }

    /// What a volume stands on: a base image. A guest may have written to a volume of ours, and what stands on it would
    /// open whatever its bytes then say.
    pub fn backing(&self, volume: &str) -> Result<()> {
        if is_base_image(volume) {
            return Ok(());
        }
        Err(self.denied(
            "NameForeign",
            format!("{volume:?} is no base image (base-…), and a volume can stand on nothing else"),
        ))
    }

    /// A domain to be defined: all that its spec names is granted, within the limits, and of its own owner.
    pub fn domain(&self, spec: &DomainSpec) -> Result<()> {
        let DomainSpec { name, title, domain_type, vcpus, memory_mib, firmware: _, disks, networks, autostart: _ } =
            spec;
        self.owner(name)?;
        let invalid =
            |what: String| Err(Error::internal("SpecInvalid", format!("{}: domain {name}: {what}", self.host())));
        if *vcpus == 0 || *memory_mib == 0 {
            return invalid("needs at least one virtual CPU and some memory".to_owned());
        }
        if title.len() > TITLE_MAX_BYTES {
            return invalid(format!("its title has {} bytes; at most {TITLE_MAX_BYTES} are allowed", title.len()));
        }
        if disks.is_empty() || disks.len() > DISKS_MAX || networks.len() > NETWORKS_MAX {
            return invalid(format!("needs 1 to {DISKS_MAX} disks and at most {NETWORKS_MAX} networks"));
        }
        if domain_type.as_ref().is_some_and(|kind| !names::is_identifier(kind)) {
            return invalid(format!("{domain_type:?} is not a domain type"));
        }
        let vcpus = u64::from(*vcpus);
        self.within(self.grant.max_vcpus.map(u64::from), vcpus, "vcpus", &format!("{vcpus} virtual CPUs"), &|most| {
            most.to_string()
        })?;
        let memory = u64::from(*memory_mib);
        self.within(
            self.grant.max_memory_mib.map(u64::from),
            memory,
            "memoryMiB",
            &format!("{memory} MiB of memory"),
            &|most| format!("{most} MiB"),
        )?;
        for disk in disks {
            self.pool(&disk.pool)?;
            let own = self.volume_owner_if_ours(&disk.volume).is_some_and(|(domain, _)| domain == name);
            // Many domains stand on a base image: none may write to it.
            if !(own || is_base_image(&disk.volume) && disk.read_only) {
                return Err(self.denied(
                    "NameForeign",
                    format!("{:?} can be no disk of {name}: it is neither a volume of that domain nor a base image that is read only", disk.volume),
                ));
            }
        }
        networks.iter().try_for_each(|network| self.network(network))
    }

    /// A denial, with who asked.
    pub fn denied(&self, reason: &str, what: String) -> Error {
        Error::permission_denied(reason, format!("Provider {} on {}: {what}", self.identity.provider, self.host()))
    }

    /// A domain of that name that is not ours.
    pub fn taken(&self, name: &str, why: &str) -> Error {
        Error::new(
            ErrorCode::Conflict,
            "NameTaken",
            format!(
                "{}: a domain called {name} exists that Provider {} did not make ({why}); it is left alone",
                self.host(),
                self.identity.provider
            ),
        )
    }

    fn listed(&self, granted: &[String], kind: &str, field: &str, asked: &str) -> Result<()> {
        if granted.iter().any(|granted| granted == asked) {
            return Ok(());
        }
        Err(self.denied(
            "GrantMissing",
            format!("the {kind} {asked:?} is not granted; to allow it, add {asked:?} to spec.grants.libvirt.hosts.{}.{field}", self.host()),
        ))
    }

    fn within(
        &self,
        most: Option<u64>,
        value: u64,
        field: &str,
        asked: &str,
        show: &dyn Fn(u64) -> String,
    ) -> Result<()> {
        let Some(most) = most.filter(|most| value > *most) else { return Ok(()) };
        Err(self.denied(
            "GrantExceeded",
            format!(
                "{asked} are more than the {} of spec.grants.libvirt.hosts.{}.limits.{field}",
                show(most),
                self.host()
            ),
        ))
    }
}

/// Whether a name is one that the images capability gives to base images: not that of a marker or a claim.
pub fn is_base_image(volume: &str) -> bool {
    matches!(BaseName::parse(volume), Some((_, Kind::Image)))
}

#[cfg(test)]
mod tests;
