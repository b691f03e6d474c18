//! What a hypervisor is and can do now. The number of calls depends on the grant, not on what runs there.

use proxy_operator_core::capability::libvirt::{HostInfo, PoolInfo};
use virt_sys as sys;

use super::connection::Session;
use super::error::Failure;
use super::facts::{HostFacts, version};
use super::policy::Scope;

/// Asks: eight calls, and two for each granted pool.
pub fn info(scope: &Scope, session: &Session<'_>) -> Result<HostInfo, Failure> {
    let seam = session.seam;
    let libvirt = version(seam.libvirt_version()?);
    let driver = seam.driver()?;
    // QEMU's can be 0 where libvirt knows no default emulator.
    let driver = match seam.driver_version().map(version) {
        Ok(number) => format!("{driver} {number}"),
        Err(failure) if failure.is_disconnect() => return Err(failure),
        Err(_) => driver,
    };
    // What it offers may have changed since it was connected: a kernel module, a package.
    let facts = HostFacts::read(&seam.capabilities()?).unwrap_or_else(|| session.facts.clone());
    let domain_capabilities = match facts.domain_types.first() {
        Some(kind) => match seam.domain_capabilities(&facts.arch, facts.machine(), kind) {
            Ok(xml) => Some(xml),
            Err(failure) if failure.is_disconnect() => return Err(failure),
            Err(_) => None,
        },
        None => None,
    };
    let firmwares = facts.firmwares(domain_capabilities.as_deref());
    let cpus = seam.cpus()?;
    let free_memory_mib = u32::try_from(seam.free_memory()? >> 20).unwrap_or(u32::MAX);
    let pools = scope.grant.pools.iter().map(|name| pool(session, name)).collect::<Result<_, _>>()?;
    let active = seam.active_networks()?;
    let missing_networks = scope
        .grant
        .networks
        .iter()
        .filter(|name| !active.iter().any(|network| network.name == **name))
        .cloned()
        .collect();
    let HostFacts { uuid, arch, domain_types } = facts;
    Ok(HostInfo {
        version: format!("libvirt {libvirt}, {driver}"),
        arch,
        domain_types,
        firmwares,
        uuid,
        pools,
        missing_networks,
        cpus,
        free_memory_mib,
    })
}

fn pool(session: &Session<'_>, name: &str) -> Result<PoolInfo, Failure> {
    let space = session.seam.pool(name).and_then(|pool| session.seam.pool_space(&pool));
    match space {
        Ok(space) => Ok(PoolInfo {
            name: name.to_owned(),
            active: space.active,
            available: if space.active { space.available } else { 0 },
        }),
        Err(failure) if failure.is(sys::VIR_ERR_NO_STORAGE_POOL) => {
            Ok(PoolInfo { name: name.to_owned(), active: false, available: 0 })
        }
        Err(failure) => Err(failure),
    }
}
