//! Deletes an instance: domain, NVRAM, disk and seed.

use proxy_operator_sdk::{Context, Deletion, Error, ErrorCode, Instance, InstanceRef, Phase, Result, instance, log};

use crate::host::Host;
use crate::id;

/// Removes everything that bears the instance's name, then looks again: done is what is seen to be absent.
pub(crate) fn delete(host: &impl Host, ctx: &Context, at: &InstanceRef) -> Result<Deletion> {
    let Some((on, name)) = id::parse(&at.id) else { return Ok(Deletion::Done) };
    if !name.starts_with(&ctx.name_prefix) {
        // Not a name that this Provider ever gave.
        return Ok(Deletion::Done);
    }
    id::belongs(ctx, at, name)?;
    if !host.hosts().iter().any(|grant| grant.name == on) {
        return Ok(Deletion::Abandoned(format!(
            "domain {name} and its volumes may be left on host {on}, which is no longer in grants.libvirt.hosts of Provider {}",
            ctx.provider
        )));
    }

    if let Some(error) = remove(host, on, name)? {
        return Ok(pending(at, &error.reason, error.message));
    }
    let left = left(host, on, name)?;
    if left.is_empty() {
        log::info("instance deleted", &[("host", &on), ("domain", &name)]);
        return Ok(Deletion::Done);
    }
    Ok(pending(at, "Deleting", format!("still on {on}: {}", left.join(", "))))
}

/// One round. `Some`: what was still in use.
fn remove(host: &impl Host, on: &str, name: &str) -> Result<Option<Error>> {
    host.destroy_domain(on, name)?;
    if let Some(error) = in_use(host.undefine_domain(on, name))? {
        return Ok(Some(error));
    }
    let mut used = None;
    for volume in host.list_volumes(on, Some(name))? {
        if let Some(error) = in_use(host.delete_volume(on, &volume.pool, &volume.name))? {
            used.get_or_insert(error);
        }
    }
    Ok(used)
}

/// What is still in use passes by itself; other errors end the call.
fn in_use(result: Result<()>) -> Result<Option<Error>> {
    match result {
        Ok(()) => Ok(None),
        Err(error) if matches!(error.reason.as_str(), "DomainRunning" | "VolumeInUse") => Ok(Some(error)),
        Err(error) => Err(error),
    }
}

/// What can still be seen of the instance.
fn left(host: &impl Host, on: &str, name: &str) -> Result<Vec<String>> {
    let domain = match host.lookup_domain(on, name) {
        Ok(domain) => domain.is_some(),
        // A stranger bears the name: what was ours is gone.
        Err(error) if error.code == ErrorCode::Conflict => false,
        Err(error) => return Err(error),
    };
    let mut left: Vec<String> = domain.then(|| format!("domain {name}")).into_iter().collect();
    let volumes = host.list_volumes(on, Some(name))?;
    left.extend(volumes.iter().map(|volume| format!("volume {}/{}", volume.pool, volume.name)));
    Ok(left)
}

fn pending(at: &InstanceRef, reason: &str, message: String) -> Deletion {
    Deletion::Pending(Instance { reason: reason.to_owned(), message, ..instance(&at.id, &at.owner, Phase::Deleting) })
}
