//! One check a host.

use proxy_operator_sdk::libvirt::{Firmware, HostGrant, HostInfo};
use proxy_operator_sdk::{Check, Context, Error, Result, fail};

use crate::config::{self, Config};
use crate::host::Host;
use crate::place::size;

/// Asks each granted host what it is, and holds that against grant and config.
pub(crate) fn health(host: &impl Host, ctx: &Context, config: &Config) -> Vec<Check> {
    let hosts = host.hosts();
    if hosts.is_empty() {
        let message = format!("Provider {} grants no hypervisor: name one under grants.libvirt.hosts", ctx.provider);
        let error = Some(Error::invalid_config("GrantInvalid", message));
        return vec![Check { subject: "hosts".to_owned(), detail: String::new(), error }];
    }
    let check = |grant: &HostGrant| {
        let subject = format!("hosts/{}", grant.name);
        match host.info(&grant.name) {
            Ok(info) => Check { subject, detail: detail(&info), error: judge(grant, &info, config).err() },
            Err(error) => Check { subject, detail: String::new(), error: Some(error) },
        }
    };
    hosts.iter().map(check).collect()
}

fn judge(grant: &HostGrant, info: &HostInfo, config: &Config) -> Result<()> {
    let host = &grant.name;
    for (field, names) in [("pools", &grant.pools), ("networks", &grant.networks)] {
        if names.is_empty() {
            fail!(InvalidConfig, "GrantInvalid", "grants.libvirt.hosts.{host}.{field} is empty: a machine needs one");
        }
    }
    let active = |name: &&String| info.pools.iter().any(|pool| pool.name == **name && pool.active);
    if let Some(pool) = grant.pools.iter().find(|name| !active(name)) {
        fail!(
            InvalidConfig,
            "PoolMissing",
            "pool {pool} of {host} is missing or inactive: `virsh pool-start {pool}` there, or take it out of the grant"
        );
    }
    if let Some(network) = info.missing_networks.first() {
        fail!(
            InvalidConfig,
            "NetworkMissing",
            "network {network} of {host} is missing or inactive: `virsh net-start {network}` there, or take it out of the grant"
        );
    }
    let by_uefi = config.images.iter().find(|(_, image)| image.firmware == config::Firmware::Uefi);
    if let Some((key, _)) = by_uefi.filter(|_| !info.firmwares.contains(&Firmware::Uefi)) {
        fail!(
            InvalidConfig,
            "FirmwareMissing",
            "image {key} boots by UEFI, for which {host} has no firmware: install it there (Debian: ovmf), or set images.{key}.firmware: bios"
        );
    }
    if let Some(kind) = config.domain_type.as_libvirt().filter(|kind| !info.domain_types.iter().any(|has| has == kind))
    {
        let offered = info.domain_types.join(", ");
        fail!(InvalidConfig, "DomainTypeMissing", "domainType is {kind}, and {host} offers {offered}");
    }
    Ok(())
}

/// `libvirt 9.0.0, QEMU 7.2.0; pool default 30 GiB free; 2048 MiB of memory free`
fn detail(info: &HostInfo) -> String {
    let pools = info.pools.iter().filter(|pool| pool.active);
    let pools: String = pools.map(|pool| format!("; pool {} {} free", pool.name, size(pool.available))).collect();
    format!("{}{pools}; {} MiB of memory free", info.version, info.free_memory_mib)
}
