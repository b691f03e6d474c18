//! Which host, and which of its pools.

use proxy_operator_sdk::libvirt::{Firmware, HostGrant, HostInfo};
use proxy_operator_sdk::{Context, Error, InstanceSpec, Result, log};

use crate::config::Config;
use crate::host::Host;
use crate::id;
use crate::wanted::Wanted;

/// What a pool must have free to be given another disk. A disk grows with what is written: this is room to boot and
/// to install packages.
const POOL_RESERVE: u64 = 1 << 30;

/// Chooses a host. With `spec.placement`: the first in its order that has room. Without: the one in which most
/// machines of this size have room; among equals, owner and host decide by a hash, so that many Proxies placed at the
/// same moment spread.
pub(crate) fn place(
    host: &impl Host,
    ctx: &Context,
    config: &Config,
    spec: &InstanceSpec,
    avoid: &[String],
) -> Result<String> {
    let wanted = Wanted::new(config, spec)?;
    let mut best: Option<((u32, u64), &str)> = None;
    let mut lacks = Vec::new();
    let mut asked = false;
    let mut unasked = None;
    let granted = host.hosts();
    for grant in candidates(ctx, &granted, spec)? {
        let name = grant.name.as_str();
        if avoid.contains(&id::of(name, &spec.name)) {
            asked = true;
            lacks.push(format!("{name} was tried and is full"));
            continue;
        }
        match host.info(name) {
            Err(error) => {
                // The Provider's health tells it once; here it comes with each attempt.
                log::debug("host passed over", &[("host", &name), ("reason", &error.reason), ("error", &error.message)]);
                lacks.push(format!("{name} cannot be asked ({})", error.reason));
                unasked.get_or_insert(error);
            }
            Ok(info) => {
                asked = true;
                if let Some(lack) = lack(grant, &info, config, &wanted) {
                    lacks.push(format!("{name} {lack}"));
                    continue;
                }
                if !spec.placement.is_empty() {
                    return Ok(id::of(name, &spec.name));
                }
                let room = info.free_memory_mib.checked_div(wanted.machine.memory_mib).unwrap_or_default();
                let rank = (room, hash(&spec.owner, name));
                if best.is_none_or(|(other, _)| rank > other) {
                    best = Some((rank, name));
                }
            }
        }
    }
    match (best, unasked) {
        (Some((_, name)), _) => Ok(id::of(name, &spec.name)),
        (None, Some(error)) if !asked => Err(error),
        (None, _) => {
            let message = format!("no host has room for machine type {}: {}", wanted.machine_key, lacks.join("; "));
            Err(Error::exhausted("NoRoom", message))
        }
    }
}

/// The hosts to look at, in the order of preference.
fn candidates<'a>(ctx: &Context, granted: &'a [HostGrant], spec: &InstanceSpec) -> Result<Vec<&'a HostGrant>> {
    if granted.is_empty() {
        let message = format!("Provider {} grants no hypervisor: name one under grants.libvirt.hosts", ctx.provider);
        return Err(Error::invalid_config("GrantInvalid", message));
    }
    if spec.placement.is_empty() {
        return Ok(granted.iter().collect());
    }
    let find = |place: &String| {
        granted.iter().find(|grant| grant.name == *place).ok_or_else(|| {
            let known = id::granted(granted);
            Error::invalid_proxy(
                "PlacementUnknown",
                format!("spec.placement: \"{place}\" is not a host of Provider {} ({known})", ctx.provider),
            )
        })
    };
    spec.placement.iter().map(find).collect()
}

/// Why a machine cannot be made on a host now; `None` when it can.
fn lack(grant: &HostGrant, info: &HostInfo, config: &Config, wanted: &Wanted<'_>) -> Option<String> {
    let machine = wanted.machine;
    if let Some(limit) = grant.max_vcpus.filter(|limit| machine.vcpus > *limit) {
        return Some(format!("is granted for machines of up to {limit} vCPUs, not {}", machine.vcpus));
    }
    if let Some(limit) = grant.max_memory_mib.filter(|limit| machine.memory_mib > *limit) {
        return Some(format!("is granted for machines of up to {limit} MiB of memory, not {}", machine.memory_mib));
    }
    if let Some(limit) = grant.max_volume_size.filter(|limit| machine.disk_bytes() > *limit) {
        return Some(format!("is granted for volumes of up to {}, not {}", size(limit), size(machine.disk_bytes())));
    }
    let Some(network) = grant.networks.first() else {
        return Some("has no granted network".to_owned());
    };
    if info.missing_networks.contains(network) {
        return Some(format!("has no active network {network}"));
    }
    if wanted.firmware == Firmware::Uefi && !info.firmwares.contains(&Firmware::Uefi) {
        return Some("offers no UEFI firmware".to_owned());
    }
    if let Some(kind) = config.domain_type.as_libvirt().filter(|kind| !info.domain_types.iter().any(|has| has == kind))
    {
        return Some(format!("offers no domain type {kind}"));
    }
    let active = info.pools.iter().filter(|pool| pool.active && grant.pools.contains(&pool.name));
    match active.max_by_key(|pool| pool.available) {
        None if grant.pools.is_empty() => return Some("has no granted pool".to_owned()),
        None => return Some(format!("has no active pool {}", grant.pools.join(" or "))),
        Some(pool) if pool.available < POOL_RESERVE => {
            return Some(format!(
                "has {} free in pool {} and needs {}",
                size(pool.available),
                pool.name,
                size(POOL_RESERVE)
            ));
        }
        Some(_) => {}
    }
    if info.free_memory_mib < machine.memory_mib {
        return Some(format!("has {} MiB of memory free and needs {}", info.free_memory_mib, machine.memory_mib));
    }
    None
}

/// The pool for a new disk: the first granted one that is active and has room; else the first active one, else the
/// first of all, so that libvirt says what is wrong with it.
pub(crate) fn pool<'a>(grant: &'a HostGrant, info: &HostInfo) -> Option<&'a str> {
    let find = |least: u64| {
        grant.pools.iter().find(|name| info.pools.iter().any(|p| p.name == **name && p.active && p.available >= least))
    };
    find(POOL_RESERVE).or_else(|| find(0)).or(grant.pools.first()).map(String::as_str)
}

/// A size in the unit that people would use.
pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..1_073_741_824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// FNV-1a: the same on every machine and in every build.
fn hash(owner: &str, host: &str) -> u64 {
    let bytes = owner.bytes().chain([b'/']).chain(host.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}
