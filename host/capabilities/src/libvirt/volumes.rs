//! What is done with volumes, as calls of the seam.
//!
//! A volume has no metadata: ours is told by its name, which no other Provider or installation gives.

use proxy_operator_core::capability::libvirt::{Volume, VolumeFormat, VolumeSpec};
use proxy_operator_core::error::{Error, ErrorCode};
use virt_sys as sys;

use super::compose::{self, Backing};
use super::connection::Session;
use super::domains::is_on;
use super::error::Failure;
use super::policy::Scope;
use super::qcow2;
use super::seam::{DomainRef, PoolRef, VolumeRef};
use super::xml::{Element, text_of};
use crate::images::name::{BaseName, Kind};
use crate::limits::CAPACITY_ROUNDING_BYTES;

/// The shortest content that overwrites a volume in place. Behind a shorter one would stand what was there before, and
/// the two could begin like a qcow2 together.
const OVERWRITE_MIN_BYTES: u64 = 512;

type Result<T> = std::result::Result<T, Failure>;

/// A volume as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// Its format, where it is one that we make.
    pub format: Option<VolumeFormat>,
    /// Its virtual size in bytes.
    pub capacity: u64,
    /// Its path on the hypervisor.
    pub path: String,
    /// The path of what it stands on.
    pub backing: Option<String>,
    /// The bytes that its file has, where libvirt says it.
    pub physical: Option<u64>,
}

/// The volumes of ours in all granted pools, or those of one domain.
pub fn list(scope: &Scope, session: &Session<'_>, domain: Option<&str>) -> Result<Vec<Volume>> {
    if let Some(domain) = domain {
        scope.owner(domain)?;
    }
    let mut found = Vec::new();
    for name in &scope.grant.pools {
        let Some(pool) = pool_if_there(session, name)? else { continue };
        let volumes = match session.seam.volumes(&pool) {
            Ok(volumes) => volumes,
            Err(failure) if is_inactive(&failure) => {
                // Not "holds none": its volumes are there, and cannot be seen.
                return Err(inactive(scope, name).into());
            }
            Err(failure) => return Err(failure),
        };
        found.extend(volumes.into_iter().filter_map(|volume| {
            let (of, owner) = scope.volume_owner_if_ours(&volume.name)?;
            domain.is_none_or(|domain| domain == of).then(|| Volume {
                pool: name.clone(),
                domain: of.to_owned(),
                owner: owner.to_owned(),
                name: volume.name.clone(),
            })
        }));
    }
    found.sort_by(|a, b| (&a.pool, &a.name).cmp(&(&b.pool, &b.name)));
    Ok(found)
}

/// Makes a volume, or leaves alone the one that is as the spec says.
pub fn create(scope: &Scope, session: &Session<'_>, pool: &str, name: &str, spec: &VolumeSpec) -> Result<()> {
    scope.pool(pool)?;
    let (domain, _) = scope.volume_owner(name)?;
    scope.volume_size(spec.capacity)?;
    let pool = session.seam.pool(pool)?;
    let backing =
        spec.backing.as_ref().map(|backing| self::backing(scope, session, &pool, backing, spec)).transpose()?;
    if let Some(volume) = volume_if_there(session, &pool, name)?
        && let Some(found) = describe_if_there(session, &pool, &volume)?
    {
        let path = backing.as_ref().map(|backing| backing.path.as_str());
        if found.format == Some(spec.format)
            && is_size(found.capacity, spec.capacity)
            && found.backing.as_deref() == path
        {
            return Ok(());
        }
        if usage(session, domain, &pool.name, name, &found.path)? != Usage::None {
            return Err(in_use(scope, name, "and differs from what is asked for").into());
        }
        check_unclaimed(scope, session, domain, &pool.name, name, &found.path)?;
        session.seam.volume_delete(&volume)?;
    }
    let xml = compose::volume(name, spec.format, spec.capacity, backing.as_ref())
        .map_err(|error| Error::internal("ComposeFailed", format!("{}: {name}: {error}", scope.host())))?;
    make(session, &pool, &xml).map(drop)
}

/// Makes a raw volume with this content, or overwrites it.
pub fn write(scope: &Scope, session: &Session<'_>, pool: &str, name: &str, content: &[u8]) -> Result<()> {
    scope.pool(pool)?;
    let (domain, _) = scope.volume_owner(name)?;
    let length = content.len() as u64;
    scope.volume_size(length)?;
    if qcow2::is_qcow2(content) {
        return Err(scope
            .denied("VolumeRefused", format!("the content for {name} is a qcow2 image, which only the host makes"))
            .into());
    }
    let pool = session.seam.pool(pool)?;
    let mut existing = None;
    if let Some(volume) = volume_if_there(session, &pool, name)?
        && let Some(found) = describe_if_there(session, &pool, &volume)?
    {
        if usage(session, domain, &pool.name, name, &found.path)? == Usage::Running {
            return Err(in_use(scope, name, "by a running domain").into());
        }
        check_unclaimed(scope, session, domain, &pool.name, name, &found.path)?;
        if found.format == Some(VolumeFormat::Raw)
            && found.backing.is_none()
            && is_size(found.capacity, length)
            && length >= OVERWRITE_MIN_BYTES
        {
            existing = Some(volume);
        } else {
            session.seam.volume_delete(&volume)?;
        }
    }
    let volume = match existing {
        Some(volume) => volume,
        None => {
            let xml = compose::volume(name, VolumeFormat::Raw, length, None)
                .map_err(|error| Error::internal("ComposeFailed", format!("{}: {name}: {error}", scope.host())))?;
            make(session, &pool, &xml)?
        }
    };
    session.seam.volume_upload(&volume, length, &mut &*content)
}

/// Deletes a volume; absent, or in a pool that does not exist, is well.
pub fn delete(scope: &Scope, session: &Session<'_>, pool: &str, name: &str) -> Result<()> {
    scope.pool(pool)?;
    let (domain, _) = scope.volume_owner(name)?;
    let Some(pool) = pool_if_there(session, pool)? else { return Ok(()) };
    let Some(volume) = volume_if_there(session, &pool, name)? else { return Ok(()) };
    let path = describe_if_there(session, &pool, &volume)?.map(|found| found.path).unwrap_or_default();
    if usage(session, domain, &pool.name, name, &path)? == Usage::Running {
        return Err(in_use(scope, name, "by a running domain").into());
    }
    remove(session, &pool, &volume)
}

/// Deletes a volume that may have gone behind the pool's back.
pub fn remove(session: &Session<'_>, pool: &PoolRef, volume: &VolumeRef) -> Result<()> {
    match session.seam.volume_delete(volume) {
        Err(failure) if failure.is(sys::VIR_ERR_NO_STORAGE_VOL) => Ok(()),
        Err(failure) => match refreshed(session, pool, &volume.name, &failure)? {
            None => Ok(()),
            Some(_) => Err(failure),
        },
        Ok(()) => Ok(()),
    }
}

/// A pool by name; `None` when there is none.
pub fn pool_if_there(session: &Session<'_>, name: &str) -> Result<Option<PoolRef>> {
    match session.seam.pool(name) {
        Ok(pool) => Ok(Some(pool)),
        Err(failure) if failure.is(sys::VIR_ERR_NO_STORAGE_POOL) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A volume by name; `None` when there is none.
pub fn volume_if_there(session: &Session<'_>, pool: &PoolRef, name: &str) -> Result<Option<VolumeRef>> {
    match session.seam.volume(pool, name) {
        Ok(volume) => Ok(Some(volume)),
        Err(failure) if failure.is(sys::VIR_ERR_NO_STORAGE_VOL) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A volume as it is; `None` when its file has gone and only the pool's memory of it was left, which is mended.
pub fn describe_if_there(session: &Session<'_>, pool: &PoolRef, volume: &VolumeRef) -> Result<Option<Described>> {
    let failure = match describe(session, volume) {
        Ok(described) => return Ok(Some(described)),
        // Also where libvirt says that there is no such volume: the pool would still refuse to make one of that name.
        Err(failure) => failure,
    };
    match refreshed(session, pool, &volume.name, &failure)? {
        None => Ok(None),
        Some(_) => Err(failure),
    }
}

fn describe(session: &Session<'_>, volume: &VolumeRef) -> Result<Described> {
    let xml = session.seam.volume_xml(volume)?;
    read(&xml).ok_or_else(|| {
        Error::unavailable("LibvirtFailed", format!("what libvirt says of volume {} cannot be read", volume.name))
            .into()
    })
}

fn read(xml: &str) -> Option<Described> {
    let root = Element::parse(xml)?;
    let capacity = root.child("capacity")?;
    // libvirt answers in bytes, whatever it was asked in.
    let unit = capacity.attribute("unit").is_none_or(|unit| matches!(unit, "bytes" | "B"));
    let format = root.at(&["target", "format"]).and_then(|format| format.attribute("type"));
    Some(Described {
        format: match format {
            Some("raw") => Some(VolumeFormat::Raw),
            Some("qcow2") => Some(VolumeFormat::Qcow2),
            _ => None,
        },
        capacity: text_of(capacity).parse().ok().filter(|_| unit)?,
        path: root.at(&["target", "path"]).map(text_of).unwrap_or_default(),
        backing: root.at(&["backingStore", "path"]).map(text_of).filter(|path| !path.is_empty()),
        physical: root.child("physical").and_then(|physical| text_of(physical).parse().ok()),
    })
}

/// A base image that comes into use is whole. One that is only on its way is replaced by whoever brings it, unless it
/// is in use: a plugin could keep it from all other Providers.
pub fn check_base_image(scope: &Scope, session: &Session<'_>, pool: &PoolRef, name: &str) -> Result<()> {
    let Some((base, Kind::Image)) = BaseName::parse(name) else { return Ok(()) };
    if volume_if_there(session, pool, &base.marker())?.is_some() {
        return Ok(());
    }
    let what =
        format!("{}: the base image {name} is not there, or not whole yet; ask for it with `images`", scope.host());
    Err(Error::unavailable("ImageNotReady", what).into())
}

/// What a volume is to stand on.
fn backing(scope: &Scope, session: &Session<'_>, pool: &PoolRef, name: &str, spec: &VolumeSpec) -> Result<Backing> {
    scope.backing(name)?;
    check_base_image(scope, session, pool, name)?;
    let volume = session.seam.volume(pool, name)?;
    let described = describe(session, &volume)?;
    let format = described.format.ok_or_else(|| {
        Error::invalid_config("ImageUnusable", format!("{}: volume {name} is neither raw nor qcow2", scope.host()))
    })?;
    if spec.capacity < described.capacity {
        return Err(Error::new(
            ErrorCode::InvalidProxy,
            "DiskTooSmall",
            format!(
                "{}: a disk of {} bytes cannot hold the image {name}, which has {}",
                scope.host(),
                spec.capacity,
                described.capacity
            ),
        )
        .into());
    }
    if spec.format != VolumeFormat::Qcow2 {
        let what = format!("{}: only a qcow2 volume can stand on another one", scope.host());
        return Err(Error::internal("SpecInvalid", what).into());
    }
    Ok(Backing { path: described.path, format })
}

/// Makes a volume. When the pool has not seen a file that is in its way, it looks, and the file goes.
fn make(session: &Session<'_>, pool: &PoolRef, xml: &str) -> Result<VolumeRef> {
    let failure = match session.seam.volume_create(pool, xml) {
        Ok(volume) => return Ok(volume),
        // The pool knows it: another call makes it right now.
        Err(failure) if failure.is(sys::VIR_ERR_STORAGE_VOL_EXIST) => return Err(failure),
        Err(failure) => failure,
    };
    let name = Element::parse(xml).and_then(|root| root.child("name").map(text_of)).unwrap_or_default();
    match refreshed(session, pool, &name, &failure)? {
        // A leftover of our own name that the pool did not know: nobody can use it.
        Some(volume) => {
            session.seam.volume_delete(&volume)?;
            session.seam.volume_create(pool, xml)
        }
        None => Err(failure),
    }
}

/// A volume after the pool has looked at what it holds, since a call failed that a stale memory may have failed.
/// Where it cannot look, that call's failure stands.
fn refreshed(session: &Session<'_>, pool: &PoolRef, name: &str, failure: &Failure) -> Result<Option<VolumeRef>> {
    if failure.is_disconnect() || matches!(failure, Failure::Core(_)) {
        return Err(failure.clone());
    }
    match session.seam.pool_refresh(pool) {
        Ok(()) => volume_if_there(session, pool, name),
        Err(refresh) if refresh.is_disconnect() => Err(refresh),
        Err(_) => Err(failure.clone()),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Usage {
    None,
    Defined,
    Running,
}

/// Whether the domain that a volume belongs to uses it, whoever's that domain is. No other domain can: a definition
/// takes no volume of another domain.
fn usage(session: &Session<'_>, domain: &str, pool: &str, volume: &str, path: &str) -> Result<Usage> {
    let asked = session.seam.domain(domain).and_then(|domain| {
        let state = session.seam.domain_state(&domain)?;
        Ok((uses(session, &domain, is_on(state), pool, volume, path)?, state))
    });
    let (uses, state) = match asked {
        Ok(asked) => asked,
        Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => return Ok(Usage::None),
        Err(failure) => return Err(failure),
    };
    Ok(match (uses, is_on(state)) {
        (false, _) => Usage::None,
        (true, false) => Usage::Defined,
        (true, true) => Usage::Running,
    })
}

/// Whether a domain has a volume among its disks: of what runs, which may differ from what is defined.
fn uses(session: &Session<'_>, domain: &DomainRef, on: bool, pool: &str, volume: &str, path: &str) -> Result<bool> {
    let root = Element::parse(&session.seam.domain_xml(domain, !on)?);
    let mut disks = root.iter().filter_map(|root| root.child("devices")).flat_map(|devices| devices.all("disk"));
    Ok(disks.any(|disk| {
        disk.child("source").is_some_and(|source| {
            let by_name = source.attribute("pool") == Some(pool) && source.attribute("volume") == Some(volume);
            by_name || (!path.is_empty() && source.attribute("file").or(source.attribute("dev")) == Some(path))
        })
    }))
}

/// Refuses what another domain has among its disks: a stranger who gave a volume one of our names. Asked only where
/// something is there before we have made it, which a create that was cut leaves, and little else.
fn check_unclaimed(
    scope: &Scope,
    session: &Session<'_>,
    ours: &str,
    pool: &str,
    volume: &str,
    path: &str,
) -> Result<()> {
    for (domain, state) in session.seam.domain_states()? {
        let used = match uses(session, &domain, is_on(state), pool, volume, path) {
            Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => false,
            outcome => outcome?,
        };
        if used && domain.name != ours {
            let what = format!(
                "{}: volume {volume} of pool {pool} has a name of Provider {}, and is in use by domain {}, which is not the one it would belong to; it is left alone",
                scope.host(),
                scope.identity.provider,
                domain.name
            );
            return Err(Error::new(ErrorCode::Conflict, "NameTaken", what).into());
        }
    }
    Ok(())
}

fn in_use(scope: &Scope, name: &str, how: &str) -> Error {
    Error::unavailable("VolumeInUse", format!("{}: volume {name} is in use {how}", scope.host()))
}

fn inactive(scope: &Scope, pool: &str) -> Error {
    Error::invalid_config("PoolMissing", format!("{}: storage pool {pool:?} is not started", scope.host()))
}

fn is_inactive(failure: &Failure) -> bool {
    matches!(failure, Failure::Libvirt(error) if error.is(sys::VIR_ERR_OPERATION_INVALID))
}

/// Whether a size is what was asked for, or that rounded up to what the pool deals in.
fn is_size(found: u64, asked: u64) -> bool {
    found >= asked && found - asked < CAPACITY_ROUNDING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_read() {
        let xml = "<volume type='file'><name>a &amp; b</name><capacity unit='bytes'>1024</capacity>
            <target><path>/p/a</path><format type='qcow2'/></target>
            <physical unit='bytes'>512</physical><backingStore><path>/p/base</path><format type='raw'/></backingStore></volume>";
        let expected = Described {
            format: Some(VolumeFormat::Qcow2),
            capacity: 1024,
            path: "/p/a".to_owned(),
            backing: Some("/p/base".to_owned()),
            physical: Some(512),
        };
        assert_eq!(read(xml), Some(expected));
        assert_eq!(read("<volume><capacity unit='KiB'>1</capacity></volume>"), None);
    }

    #[test]
    fn a_size_may_be_rounded_up() {
        assert!(is_size(10, 10) && is_size(4 << 20, 10) && !is_size(9, 10) && !is_size(1 << 30, 10));
    }
}
