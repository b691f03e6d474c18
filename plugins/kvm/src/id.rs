//! Where an instance is, `hosts/<host>/domains/<name>`, and how its parts are called.

use proxy_operator_sdk::libvirt::HostGrant;
use proxy_operator_sdk::{Context, Error, InstanceRef, Result, id};

use crate::host::Host;

/// The id of a domain.
pub(crate) fn of(host: &str, domain: &str) -> String {
    id::format(&[("hosts", host), ("domains", domain)])
}

/// What every id on a host begins with.
pub(crate) fn prefix(host: &str) -> String {
    format!("hosts/{host}/")
}

/// Host and domain of an id, or `None` when it is not one of this provider.
pub(crate) fn parse(id: &str) -> Option<(&str, &str)> {
    id::parse(id, ["hosts", "domains"]).map(|[host, domain]| (host, domain))
}

/// The overlay that a domain boots from.
pub(crate) fn disk(domain: &str) -> String {
    format!("{domain}.disk.qcow2")
}

/// The NoCloud seed of a domain.
pub(crate) fn seed(domain: &str) -> String {
    format!("{domain}.seed.img")
}

/// The granted host of an id and the domain there, for what needs them to be known.
///
/// A host that is not granted is `unresolvable`, and never `not-found`: a typo in the grant must not look like a
/// machine that vanished.
pub(crate) fn resolve<'a>(host: &impl Host, ctx: &Context, at: &'a InstanceRef) -> Result<(HostGrant, &'a str)> {
    let Some((name, domain)) = parse(&at.id) else {
        let message = format!("\"{}\" is not an id of the provider kvm, hosts/<host>/domains/<name>", at.id);
        return Err(Error::unresolvable("IdInvalid", message));
    };
    let hosts = host.hosts();
    match hosts.iter().find(|grant| grant.name == name) {
        Some(grant) => {
            belongs(ctx, at, domain)?;
            Ok((grant.clone(), domain))
        }
        None => Err(Error::unresolvable(
            "HostNotGranted",
            format!(
                "host {name}, where domain {domain} was placed, is not in grants.libvirt.hosts of Provider {} ({}); grant it again",
                ctx.provider,
                granted(&hosts)
            ),
        )),
    }
}

/// Refuses a domain of another owner: the name of an owner's instance is known.
pub(crate) fn belongs(ctx: &Context, at: &InstanceRef, domain: &str) -> Result<()> {
    if domain.strip_prefix(&ctx.name_prefix) == Some(at.owner.as_str()) {
        return Ok(());
    }
    Err(Error::conflict(
        "OwnerMismatch",
        format!("domain {domain} is not the one of owner {}; it is left alone", at.owner),
    ))
}

/// The granted hosts, for people.
pub(crate) fn granted(hosts: &[HostGrant]) -> String {
    if hosts.is_empty() {
        return "none is granted".to_owned();
    }
    let names: Vec<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    format!("granted: {}", names.join(", "))
}
