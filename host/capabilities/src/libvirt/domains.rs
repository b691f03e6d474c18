//! What is done with domains, as calls of the seam.
//!
//! Ours is a domain whose name has our prefix, whose uuid is the one derived from the owner, and whose metadata carry
//! our stamp. A listing holds names and uuids against that, which it gets without a further call for each domain: the
//! prefix is a hash over installation and Provider, the uuid one over installation and owner, so that nobody has both
//! by accident. Before anything is shown alone, changed or deleted, the stamp is read as well.

use std::collections::HashMap;

use jiff::Timestamp;
use proxy_operator_core::capability::libvirt::{Domain, DomainSpec, DomainState};
use proxy_operator_core::error::Error;
use proxy_operator_core::provider::{Address, AddressSource};
use virt_sys as sys;

use super::connection::{CreatedCache, Session};
use super::error::Failure;
use super::metadata::Stamp;
use super::policy::Scope;
use super::seam::{AddressAuthority, DomainRef, Lease, Undefine};
use super::volumes::{check_base_image, pool_if_there};
use super::{compose, qcow2};
use crate::limits::DOMAINS_MAX;

type Result<T> = std::result::Result<T, Failure>;

/// What stands under one of our names.
pub enum Found {
    /// Nothing.
    Absent,
    /// A domain of ours.
    Ours(DomainRef, Stamp),
    /// One that is not, and why.
    Strangers(&'static str),
}

/// Looks a name up and tells whose it is.
pub fn find(scope: &Scope, session: &Session<'_>, name: &str) -> Result<Found> {
    let owner = scope.owner(name)?;
    let domain = match session.seam.domain(name) {
        Ok(domain) => domain,
        Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => return Ok(Found::Absent),
        Err(failure) => return Err(failure),
    };
    let xml = match session.seam.domain_metadata(&domain) {
        Ok(xml) => xml,
        Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN_METADATA) => {
            return Ok(Found::Strangers("it carries no stamp of an operator"));
        }
        // It went between the two calls.
        Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => return Ok(Found::Absent),
        Err(failure) => return Err(failure),
    };
    match Stamp::read(&xml) {
        Some(stamp) if !scope.is_stamp_ours(&stamp, owner) => Ok(Found::Strangers("its stamp is another's")),
        Some(_) if domain.uuid != scope.uuid(owner) => Ok(Found::Strangers("its uuid is not the owner's")),
        Some(stamp) => Ok(Found::Ours(domain, stamp)),
        None => Ok(Found::Strangers("its stamp cannot be read")),
    }
}

/// All domains of ours: one call for the domains, one for the networks, one for each granted network with leases.
pub fn list(scope: &Scope, session: &Session<'_>, created: &CreatedCache) -> Result<Vec<Domain>> {
    let states = session.seam.domain_states()?;
    let ours: Vec<_> = states
        .into_iter()
        .filter_map(|(domain, state)| {
            let owner = scope.owner_if_ours(&domain.name)?.to_owned();
            (domain.uuid == scope.uuid(&owner)).then_some((domain, owner, state))
        })
        .collect();
    if ours.len() > DOMAINS_MAX {
        // Cut short it would say that the others are gone.
        return Err(Error::internal(
            "TooManyDomains",
            format!(
                "{}: {} domains of Provider {}; at most {DOMAINS_MAX} can be listed",
                scope.host(),
                ours.len(),
                scope.identity.provider
            ),
        )
        .into());
    }
    let leases = if ours.iter().any(|(_, _, state)| is_on(*state)) { leases(scope, session)? } else { HashMap::new() };
    let listed = ours.into_iter().map(|(domain, owner, state)| Domain {
        addresses: if is_on(state) { addresses(scope, &leases, &owner) } else { Vec::new() },
        created_at: created.get(&domain.uuid),
        name: domain.name,
        owner,
        state,
    });
    Ok(listed.collect())
}

/// One domain of ours.
pub fn lookup(scope: &Scope, session: &Session<'_>, created: &CreatedCache, name: &str) -> Result<Option<Domain>> {
    match find(scope, session, name)? {
        Found::Absent => Ok(None),
        Found::Strangers(why) => Err(scope.taken(name, why).into()),
        Found::Ours(domain, stamp) => show(scope, session, created, &domain, &stamp).map(Some),
    }
}

/// Defines a domain, or says that it is there.
pub fn define(scope: &Scope, session: &Session<'_>, created: &CreatedCache, spec: &DomainSpec) -> Result<Domain> {
    scope.domain(spec)?;
    match find(scope, session, &spec.name)? {
        Found::Ours(domain, stamp) => {
            // A definition whose caller went before this was said.
            session.seam.domain_set_autostart(&domain, spec.autostart)?;
            return show(scope, session, created, &domain, &stamp);
        }
        Found::Strangers(why) => return Err(scope.taken(&spec.name, why).into()),
        Found::Absent => {}
    }
    let facts = session.facts;
    if let Some(kind) = &spec.domain_type
        && !facts.domain_types.contains(kind)
    {
        return Err(Error::invalid_config(
            "DomainTypeMissing",
            format!(
                "{}: the hypervisor offers no domains of type {kind:?}; it offers {}",
                scope.host(),
                facts.domain_types.join(", ")
            ),
        )
        .into());
    }
    for disk in &spec.disks {
        if let Some(pool) = pool_if_there(session, &disk.pool)? {
            check_base_image(scope, session, &pool, &disk.volume)?;
        }
        qcow2::check(scope, session, disk)?;
    }
    let owner = scope.owner(&spec.name)?;
    let stamp = Stamp {
        installation: scope.identity.cluster_id.clone(),
        provider: scope.identity.provider.clone(),
        owner: owner.to_owned(),
        created_at: Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string(),
    };
    let identity = compose::Identity { uuid: scope.uuid(owner), macs: scope.macs(owner), stamp: stamp.clone() };
    let xml = compose::domain(spec, &identity, facts)
        .map_err(|error| Error::internal("ComposeFailed", format!("{}: {}: {error}", scope.host(), spec.name)))?;
    let domain = session.seam.domain_define(&xml)?;
    if spec.autostart {
        session.seam.domain_set_autostart(&domain, true)?;
    }
    created.put(domain.uuid, &stamp.created_at);
    Ok(Domain {
        name: spec.name.clone(),
        owner: owner.to_owned(),
        state: DomainState::ShutOff,
        addresses: Vec::new(),
        created_at: Some(stamp.created_at),
    })
}

/// Starts a domain; one that is on is left alone.
pub fn start(scope: &Scope, session: &Session<'_>, name: &str) -> Result<()> {
    let domain = match find(scope, session, name)? {
        Found::Ours(domain, _) => domain,
        Found::Strangers(why) => return Err(scope.taken(name, why).into()),
        Found::Absent => {
            let what = format!("{}: there is no domain {name} to start; it has to be defined first", scope.host());
            return Err(Error::unavailable("DomainMissing", what).into());
        }
    };
    if is_on(session.seam.domain_state(&domain)?) {
        return Ok(());
    }
    match session.seam.domain_start(&domain) {
        // Somebody else was faster.
        Err(failure) if failure.is(sys::VIR_ERR_OPERATION_INVALID) && is_on(session.seam.domain_state(&domain)?) => {
            Ok(())
        }
        outcome => outcome,
    }
}

/// Switches a domain off; one that is off, absent or a stranger's is left alone.
pub fn destroy(scope: &Scope, session: &Session<'_>, name: &str) -> Result<()> {
    let Found::Ours(domain, _) = find(scope, session, name)? else { return Ok(()) };
    match session.seam.domain_destroy(&domain) {
        Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => Ok(()),
        Err(failure) if failure.is(sys::VIR_ERR_OPERATION_INVALID) => match session.seam.domain_state(&domain) {
            Ok(state) if !is_on(state) => Ok(()),
            Err(gone) if gone.is(sys::VIR_ERR_NO_DOMAIN) => Ok(()),
            _ => Err(failure),
        },
        outcome => outcome,
    }
}

/// Forgets a domain that is off, and looks that it is gone; absent or a stranger's is left alone.
pub fn undefine(scope: &Scope, session: &Session<'_>, name: &str) -> Result<()> {
    let Found::Ours(domain, _) = find(scope, session, name)? else { return Ok(()) };
    let running = || {
        Error::unavailable(
            "DomainRunning",
            format!("{}: domain {name} runs; it has to be switched off first", scope.host()),
        )
    };
    match session.seam.domain_state(&domain) {
        Ok(state) if is_on(state) => return Err(running().into()),
        Ok(_) => {}
        Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => return Ok(()),
        Err(failure) => return Err(failure),
    }
    let unknown = |failure: &Failure| {
        failure.is(sys::VIR_ERR_INVALID_ARG)
            || failure.is(sys::VIR_ERR_ARGUMENT_UNSUPPORTED)
            || failure.is(sys::VIR_ERR_NO_SUPPORT)
    };
    let mut outcome = Ok(());
    for what in [Undefine::Everything, Undefine::WithoutCheckpoints, Undefine::Plain] {
        outcome = session.seam.domain_undefine(&domain, what);
        if !matches!(&outcome, Err(failure) if unknown(failure)) {
            break;
        }
    }
    match outcome {
        Err(failure) if !failure.is(sys::VIR_ERR_NO_DOMAIN) => return Err(failure),
        _ => {}
    }
    match find(scope, session, name)? {
        // One that was started in between goes on without a definition, until it is switched off.
        Found::Ours(..) => Err(running().into()),
        Found::Absent | Found::Strangers(_) => Ok(()),
    }
}

/// What the agent of a running domain says; `None` when none answers.
pub fn agent_addresses(scope: &Scope, session: &Session<'_>, name: &str, wait: u32) -> Result<Option<Vec<Address>>> {
    let Some(domain) = running(scope, session, name)? else { return Ok(None) };
    let asked = session
        .seam
        .domain_agent_timeout(&domain, wait)
        .and_then(|()| session.seam.domain_addresses(&domain, AddressAuthority::Agent));
    match asked {
        Ok(cards) => Ok(Some(of_our_cards(scope, name, &cards, AddressSource::Agent))),
        Err(failure) if failure.is_disconnect() => Err(failure),
        // No agent, one that does not answer yet, a channel that is not connected, a driver that knows no agents, a
        // domain that went off: each is "ask again later", and the other sources serve.
        Err(Failure::Libvirt(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// What the neighbour table says of a running domain; nothing when it cannot be read.
pub fn neighbour_addresses(scope: &Scope, session: &Session<'_>, name: &str) -> Result<Vec<Address>> {
    let Some(domain) = running(scope, session, name)? else { return Ok(Vec::new()) };
    match session.seam.domain_addresses(&domain, AddressAuthority::Neighbours) {
        Ok(cards) => Ok(of_our_cards(scope, name, &cards, AddressSource::Arp)),
        Err(failure) if failure.is_disconnect() => Err(failure),
        Err(Failure::Libvirt(_)) => Ok(Vec::new()),
        Err(failure) => Err(failure),
    }
}

/// Whether a domain of this state has processes.
pub fn is_on(state: DomainState) -> bool {
    !matches!(state, DomainState::ShutOff | DomainState::Crashed)
}

fn running(scope: &Scope, session: &Session<'_>, name: &str) -> Result<Option<DomainRef>> {
    match find(scope, session, name)? {
        Found::Strangers(why) => Err(scope.taken(name, why).into()),
        Found::Ours(domain, _) if is_on(session.seam.domain_state(&domain)?) => Ok(Some(domain)),
        Found::Ours(..) | Found::Absent => Ok(None),
    }
}

fn show(
    scope: &Scope,
    session: &Session<'_>,
    created: &CreatedCache,
    domain: &DomainRef,
    stamp: &Stamp,
) -> Result<Domain> {
    created.put(domain.uuid, &stamp.created_at);
    let state = session.seam.domain_state(domain)?;
    let addresses = if is_on(state) { addresses(scope, &leases(scope, session)?, &stamp.owner) } else { Vec::new() };
    Ok(Domain {
        name: domain.name.clone(),
        owner: stamp.owner.clone(),
        state,
        addresses,
        created_at: Some(stamp.created_at.clone()),
    })
}

/// The leases of the granted networks, by MAC address, the newest first. A network of a driver that gives no
/// leases, or that has just been stopped, has none.
fn leases(scope: &Scope, session: &Session<'_>) -> Result<HashMap<String, Vec<Lease>>> {
    let mut found: HashMap<String, Vec<Lease>> = HashMap::new();
    for network in session.seam.active_networks()?.iter().filter(|network| scope.grant.networks.contains(&network.name))
    {
        match session.seam.leases(network) {
            Ok(leases) => {
                for lease in leases {
                    found.entry(lease.mac.to_ascii_lowercase()).or_default().push(lease);
                }
            }
            Err(failure) if failure.is_disconnect() => return Err(failure),
            Err(Failure::Libvirt(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    found.values_mut().for_each(|leases| leases.sort_by_key(|lease| std::cmp::Reverse(lease.expires)));
    Ok(found)
}

fn addresses(scope: &Scope, leases: &HashMap<String, Vec<Lease>>, owner: &str) -> Vec<Address> {
    let mut found: Vec<_> = scope.macs(owner).iter().filter_map(|mac| leases.get(mac)).flatten().collect();
    found.sort_by_key(|lease| std::cmp::Reverse(lease.expires));
    let usable = found.into_iter().filter_map(|lease| usable(&lease.address));
    distinct(usable.map(|host| Address { host, source: AddressSource::Lease }))
}

fn of_our_cards(
    scope: &Scope,
    name: &str,
    cards: &[super::seam::CardAddresses],
    source: AddressSource,
) -> Vec<Address> {
    let macs = scope.owner_if_ours(name).map(|owner| scope.macs(owner)).unwrap_or_default();
    let ours =
        cards.iter().filter(|card| card.mac.as_ref().is_some_and(|mac| macs.contains(&mac.to_ascii_lowercase())));
    let usable = ours.flat_map(|card| &card.addresses).filter_map(|address| usable(address));
    distinct(usable.map(|host| Address { host, source }))
}

fn distinct(addresses: impl Iterator<Item = Address>) -> Vec<Address> {
    let mut found: Vec<Address> = Vec::new();
    addresses.for_each(|address| {
        if !found.contains(&address) {
            found.push(address);
        }
    });
    found
}

/// An address that others can use: no loopback, link-local, multicast or unspecified one; without prefix or zone.
fn usable(text: &str) -> Option<String> {
    let text = text.split(['/', '%']).next()?;
    let address: std::net::IpAddr = text.parse().ok()?;
    let useless = match address {
        std::net::IpAddr::V4(v4) => v4.is_link_local() || v4.is_broadcast(),
        std::net::IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    (!useless && !address.is_loopback() && !address.is_multicast() && !address.is_unspecified())
        .then(|| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::usable;

    #[test]
    fn only_addresses_that_others_can_use() {
        for (text, expected) in [
            ("192.0.2.7", Some("192.0.2.7")),
            ("192.0.2.7/24", Some("192.0.2.7")),
            ("2001:DB8::7/64", Some("2001:db8::7")),
            ("127.0.0.1", None),
            ("169.254.1.1", None),
            ("fe80::1%eth0", None),
            ("::1", None),
            ("0.0.0.0", None),
            ("224.0.0.1", None),
            ("", None),
            ("nonsense", None),
        ] {
            assert_eq!(usable(text).as_deref(), expected, "{text}");
        }
    }
}
