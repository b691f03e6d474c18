//! What is there: one instance, or all of them.

use std::collections::BTreeMap;

use proxy_operator_sdk::libvirt::{Domain, DomainState};
use proxy_operator_sdk::{
    Address, AddressSource, Context, Endpoint, Error, Gap, Instance, InstanceRef, Page, Phase, Result, fail, instance,
};

use crate::host::Host;
use crate::id;

/// The most instances on a page, and the most addresses of an instance.
const PAGE: usize = 2_000;
const ADDRESSES: usize = 32;

/// Looks at one instance. Volumes without a domain are a create that was cut, and no absence.
pub(crate) fn get(host: &impl Host, ctx: &Context, at: &InstanceRef) -> Result<Instance> {
    let (grant, name) = id::resolve(host, ctx, at)?;
    if let Some(domain) = host.lookup_domain(&grant.name, name)? {
        owned(at, &domain)?;
        return seen(host, &grant.name, domain);
    }
    if host.list_volumes(&grant.name, Some(name))?.is_empty() {
        fail!(NotFound, "DomainMissing", "neither domain {name} nor a volume of it is on {}", grant.name);
    }
    Ok(Instance { private_state: at.private_state.clone(), ..half_made(&grant.name, name, &at.owner) })
}

/// Lists what is on the granted hosts, by two calls a host. A host that cannot be asked is a gap.
///
/// The cursor is the name of the host to go on with.
pub(crate) fn list(host: &impl Host, owner: Option<&str>, cursor: Option<&str>) -> Result<Page> {
    let mut hosts = host.hosts();
    if let Some(cursor) = cursor {
        let Some(position) = hosts.iter().position(|grant| grant.name == cursor) else {
            fail!(Unavailable, "ListingChanged", "host {cursor}, where the listing was to go on, is no longer granted");
        };
        hosts.drain(..position);
    }
    let mut page = Page { instances: Vec::new(), next: None, gaps: Vec::new() };
    for grant in hosts {
        match on_host(host, &grant.name, owner) {
            Ok(instances) if page.instances.is_empty() || page.instances.len() + instances.len() <= PAGE => {
                page.instances.extend(instances);
            }
            Ok(_) => {
                page.next = Some(grant.name);
                break;
            }
            Err(error) => page.gaps.push(Gap { id_prefix: id::prefix(&grant.name), error }),
        }
    }
    Ok(page)
}

fn on_host(host: &impl Host, on: &str, owner: Option<&str>) -> Result<Vec<Instance>> {
    let domains = host.list_domains(on)?;
    let volumes = host.list_volumes(on, None)?;
    let mut without_domain: BTreeMap<String, String> = volumes.into_iter().map(|v| (v.domain, v.owner)).collect();
    let mut instances = Vec::new();
    for domain in domains {
        without_domain.remove(&domain.name);
        instances.push(listed(on, domain));
    }
    instances.extend(without_domain.iter().map(|(name, owner)| half_made(on, name, owner)));
    instances.retain(|instance| owner.is_none_or(|owner| owner == instance.owner));
    if instances.len() > PAGE {
        fail!(Exhausted, "TooManyInstances", "{on} holds {} instances, {PAGE} can be listed", instances.len());
    }
    Ok(instances)
}

/// Refuses a domain of another owner.
pub(crate) fn owned(at: &InstanceRef, domain: &Domain) -> Result<()> {
    if domain.owner == at.owner {
        return Ok(());
    }
    fail!(
        Conflict,
        "OwnerMismatch",
        "domain {} belongs to {}, not to {}; it is left alone",
        domain.name,
        domain.owner,
        at.owner
    )
}

/// A domain, and for one that runs its address, from the most trusted source that knows one: the guest agent, a
/// lease, the hypervisor's neighbour table.
pub(crate) fn seen(host: &impl Host, on: &str, mut domain: Domain) -> Result<Instance> {
    if matches!(domain.state, DomainState::Running | DomainState::Blocked) {
        match host.agent_addresses(on, &domain.name)? {
            // The agent knows the cards as they are: a lease that it does not confirm is of an earlier life.
            Some(addresses) if !addresses.is_empty() => domain.addresses = addresses,
            _ if domain.addresses.is_empty() => domain.addresses = host.neighbour_addresses(on, &domain.name)?,
            _ => {}
        }
    }
    Ok(listed(on, domain))
}

/// A domain with the addresses that it came with.
///
/// One that runs without any is running all the same, and the address that was known last stands: a listing knows
/// leases alone, leases lapse, and agents restart.
fn listed(on: &str, domain: Domain) -> Instance {
    let Domain { name, owner, state, mut addresses, created_at } = domain;
    // Stable: the order of the source is kept within a family.
    addresses.sort_by_key(|address| address.host.contains(':'));
    addresses.truncate(ADDRESSES);
    let (phase, reason, message) = match state {
        DomainState::Running | DomainState::Blocked => match addresses.first() {
            Some(address) => {
                let (reason, source) = source(address);
                (Phase::Running, reason, format!("{} from {source}", address.host))
            }
            None => (
                Phase::Running,
                "WaitingForAddress",
                format!("domain {name} on {on} runs; its address is not known yet"),
            ),
        },
        DomainState::ShutOff => (Phase::Stopped, "DomainOff", format!("domain {name} on {on} is off")),
        DomainState::ShuttingDown => {
            (Phase::Stopped, "DomainShuttingDown", format!("domain {name} on {on} is on its way down"))
        }
        // Its pool may be full, or somebody looks at it: it goes on where it was when that is over, so it is neither
        // started nor replaced.
        DomainState::Paused => (
            Phase::Unknown,
            "DomainPaused",
            format!(
                "domain {name} on {on} is paused, by somebody or because its pool is full; `virsh resume` lets it go on"
            ),
        ),
        DomainState::Suspended => (
            Phase::Unknown,
            "DomainSuspended",
            format!("the system of domain {name} on {on} sleeps; `virsh dompmwakeup` wakes it"),
        ),
        DomainState::Crashed => (Phase::Failed, "", format!("domain {name} on {on} crashed")),
        DomainState::Unknown => (
            Phase::Unknown,
            "DomainStateUnknown",
            format!("libvirt on {on} says nothing of the state of domain {name}"),
        ),
    };
    if phase != Phase::Running {
        addresses.clear();
    }
    Instance {
        reason: reason.to_owned(),
        error: (phase == Phase::Failed).then(|| Error::unavailable("DomainCrashed", message.as_str())),
        message,
        endpoint: addresses.first().map(|address| Endpoint { host: address.host.clone(), port: None }),
        addresses,
        created_at,
        ..instance(&id::of(on, &name), &owner, phase)
    }
}

/// Volumes whose domain was not made yet.
fn half_made(on: &str, name: &str, owner: &str) -> Instance {
    Instance {
        reason: "DomainMissing".to_owned(),
        message: format!("volumes of {name} are on {on}, its domain is not: it is not made yet, or its making was cut"),
        ..instance(&id::of(on, name), owner, Phase::Provisioning)
    }
}

/// From where an address is known: as a reason, and for people.
fn source(address: &Address) -> (&'static str, &'static str) {
    match address.source {
        AddressSource::Agent => ("AddressFromAgent", "the guest agent"),
        AddressSource::Lease => ("AddressFromLease", "a DHCP lease"),
        AddressSource::Arp => ("AddressFromNeighbour", "the hypervisor's neighbour table"),
        AddressSource::Api => ("AddressFromApi", "libvirt"),
    }
}
