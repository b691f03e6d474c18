//! Makes an instance, one repeatable step after the other.

use proxy_operator_sdk::images::Status;
use proxy_operator_sdk::libvirt::{Disk, DomainSpec, DomainState, HostGrant, Volume, VolumeFormat, VolumeSpec};
use proxy_operator_sdk::{Context, Error, Instance, InstanceRef, InstanceSpec, Phase, Result, instance, log};

use crate::config::Config;
use crate::host::Host;
use crate::wanted::Wanted;
use crate::{id, observe, place, seed, vendor};

/// The most bytes of a domain's title.
const TITLE_BYTES: usize = 128;

/// Looks for the domain; makes what is missing of it; starts it.
///
/// A domain is defined only after both its volumes are whole, hence nothing is written once there is a domain: its
/// seed stays what it was at the first boot.
pub(crate) fn create(
    host: &impl Host,
    ctx: &Context,
    config: &Config,
    at: &InstanceRef,
    spec: &InstanceSpec,
) -> Result<Instance> {
    let (grant, name) = id::resolve(host, ctx, at)?;
    if let Some(domain) = host.lookup_domain(&grant.name, name)? {
        observe::owned(at, &domain)?;
        return match domain.state {
            DomainState::ShutOff => start(host, &grant.name, name, at),
            _ => observe::seen(host, &grant.name, domain),
        };
    }

    let wanted = Wanted::new(config, spec)?;
    let Some(network) = grant.networks.first() else {
        return Err(ungranted(&grant, "networks", "a network"));
    };
    let volumes = host.list_volumes(&grant.name, Some(name))?;
    let pool = pool(host, &grant, name, at, &volumes)?;
    let base = match host.ensure_image(&grant.name, &pool, &wanted.source)? {
        Status::Ready(base) => base,
        Status::Pending(transfer) => {
            return Ok(Instance {
                reason: transfer.reason,
                message: transfer.message,
                percent: transfer.percent,
                private_state: Some(remember(&pool)),
                ..instance(&at.id, &at.owner, Phase::Provisioning)
            });
        }
    };

    let disk = Disk { pool: pool.clone(), volume: id::disk(name), format: VolumeFormat::Qcow2, read_only: false };
    let capacity = base.capacity.max(wanted.machine.disk_bytes());
    let overlay = VolumeSpec { format: disk.format, capacity, backing: Some(base.volume) };
    host.create_volume(&grant.name, &pool, &disk.volume, &overlay)?;

    let seed = Disk { pool: pool.clone(), volume: id::seed(name), format: VolumeFormat::Raw, read_only: true };
    host.write_volume(&grant.name, &pool, &seed.volume, &content(config, name, spec)?)?;

    let document = DomainSpec {
        name: name.to_owned(),
        title: cut(&spec.display_name, TITLE_BYTES).to_owned(),
        domain_type: config.domain_type.as_libvirt().map(str::to_owned),
        vcpus: wanted.machine.vcpus,
        memory_mib: wanted.machine.memory_mib,
        firmware: wanted.firmware,
        disks: vec![disk, seed],
        networks: vec![network.clone()],
        autostart: true,
    };
    observe::owned(at, &host.define_domain(&grant.name, &document)?)?;
    log::info(
        "domain defined",
        &[("host", &grant.name), ("domain", &name), ("pool", &pool), ("machineType", &wanted.machine_key)],
    );
    start(host, &grant.name, name, at)
}

fn start(host: &impl Host, on: &str, name: &str, at: &InstanceRef) -> Result<Instance> {
    host.start_domain(on, name)?;
    log::info("domain started", &[("host", &on), ("domain", &name)]);
    Ok(Instance {
        reason: "Booting".to_owned(),
        message: format!("domain {name} on {on} was started"),
        ..instance(&at.id, &at.owner, Phase::Provisioning)
    })
}

/// The pool in which a create goes on: where its disk is, or its seed, or its image was asked for; else a new choice.
fn pool(host: &impl Host, grant: &HostGrant, name: &str, at: &InstanceRef, volumes: &[Volume]) -> Result<String> {
    let holds = |volume: String| volumes.iter().find(|v| v.name == volume).map(|v| v.pool.as_str());
    if let Some(pool) = holds(id::disk(name)).or_else(|| holds(id::seed(name))) {
        return Ok(pool.to_owned());
    }
    let remembered = at.private_state.as_deref().and_then(|state| state.strip_prefix(REMEMBERED));
    if let Some(pool) = remembered.filter(|pool| grant.pools.iter().any(|granted| granted == pool)) {
        return Ok(pool.to_owned());
    }
    let info = host.info(&grant.name)?;
    place::pool(grant, &info).map(str::to_owned).ok_or_else(|| ungranted(grant, "pools", "a pool"))
}

/// The pool as private state: an image on its way there takes the space that the choice was made by.
const REMEMBERED: &str = "pool=";

fn remember(pool: &str) -> String {
    format!("{REMEMBERED}{pool}")
}

fn content(config: &Config, name: &str, spec: &InstanceSpec) -> Result<Vec<u8>> {
    let vendor = vendor::data(config, spec.cloud_init.vendor_data.as_deref());
    let meta = seed::meta_data(&spec.owner, name);
    seed::image(&spec.cloud_init.user_data, meta.as_bytes(), vendor.as_deref())
        .map_err(|error| Error::internal("SeedFailed", format!("writing the seed of {name}: {error}")))
}

fn ungranted(grant: &HostGrant, field: &str, what: &str) -> Error {
    let message = format!("grants.libvirt.hosts.{}.{field} is empty: a machine needs {what}", grant.name);
    Error::invalid_config("GrantInvalid", message)
}

/// The longest beginning of a text within a number of bytes.
fn cut(text: &str, bytes: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes)).unwrap_or(text)
}
