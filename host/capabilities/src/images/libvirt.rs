//! libvirt's pools as base images see them: each method a few calls of the seam, on the hypervisor's shared
//! connections.
//!
//! Small reads and writes go with everybody's calls; what takes long goes with the uploads.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;
use proxy_operator_api::grants::LibvirtHost;
use proxy_operator_core::capability::libvirt::VolumeFormat;
use proxy_operator_core::error::{Error, Result};
use virt_sys as sys;

use super::download::cancelled;
use super::limits::ImageLimits;
use super::pool::{Content, Created, ImagePool, Pools, Users, VolumeInfo};
use crate::libvirt::compose;
use crate::libvirt::connection::{Call, Hypervisor, Line, Session};
use crate::libvirt::domains::is_on;
use crate::libvirt::error::Failure;
use crate::libvirt::hypervisors::Hypervisors;
use crate::libvirt::seam::{DomainRef, PoolRef};
use crate::libvirt::volumes::{describe_if_there, remove, volume_if_there};
use crate::libvirt::xml::Element;
use crate::limits::Limits;
use crate::ssh::address::Address;
use crate::ssh::remote_socket;

/// The pools of the hypervisors that this process is connected to.
pub struct LibvirtPools {
    hypervisors: Hypervisors,
    limits: Limits,
    upload: Duration,
}

/// One pool.
struct LibvirtPool {
    hypervisor: Arc<Hypervisor>,
    identity: String,
    label: Arc<str>,
    pool: Arc<str>,
    limits: Limits,
    upload: Duration,
}

/// The pool's job on a thread that may block.
type Outcome<T> = std::result::Result<T, Failure>;

impl LibvirtPools {
    /// Pools on these connections. The limits are those that the connections were made with.
    pub fn new(hypervisors: Hypervisors, limits: Limits, images: &ImageLimits) -> Self {
        Self { hypervisors, limits, upload: images.upload }
    }
}

impl Pools for LibvirtPools {
    fn pool(&self, name: &str, host: &LibvirtHost, pool: &str) -> Result<Arc<dyn ImagePool>> {
        let explain =
            |error: Error| Error { message: format!("spec.grants.libvirt.hosts.{name}: {}", error.message), ..error };
        let hypervisor = self.hypervisors.hypervisor(host).map_err(explain)?;
        let LibvirtHost { address, secret, socket, pools: _, networks: _, limits: _ } = host;
        let address = Address::parse(address).map_err(explain)?;
        Ok(Arc::new(LibvirtPool {
            hypervisor,
            // What the connections are shared by.
            identity: format!(
                "{address} {} {}",
                secret.as_deref().unwrap_or_default(),
                remote_socket(socket.as_deref())
            ),
            label: Arc::from(name),
            pool: Arc::from(pool),
            limits: self.limits.clone(),
            upload: self.upload,
        }))
    }
}

impl LibvirtPool {
    async fn on<T, J>(&self, line: &Arc<Line>, time: Duration, job: J) -> Result<T>
    where
        T: Send + 'static,
        J: Fn(&Session<'_>, &PoolRef) -> Outcome<T> + Send + Sync + 'static,
    {
        // Whose calls these are: the host's own. A grant that ends cancels the transfer, between two calls.
        let terms = Call { host: Arc::clone(&self.label), time, revoked: Arc::new(AtomicBool::new(false)) };
        let pool = Arc::clone(&self.pool);
        let outcome = line.call(&terms, move |session| job(session, &session.seam.pool(&pool)?)).await;
        outcome.map_err(|failure| failure.into_error(&self.label))
    }

    async fn look_with<T, J>(&self, job: J) -> Result<T>
    where
        T: Send + 'static,
        J: Fn(&Session<'_>, &PoolRef) -> Outcome<T> + Send + Sync + 'static,
    {
        self.on(&self.hypervisor.calls, self.limits.read_call, job).await
    }

    async fn change_with<T, J>(&self, job: J) -> Result<T>
    where
        T: Send + 'static,
        J: Fn(&Session<'_>, &PoolRef) -> Outcome<T> + Send + Sync + 'static,
    {
        self.on(&self.hypervisor.calls, self.limits.change_call, job).await
    }
}

#[async_trait]
impl ImagePool for LibvirtPool {
    fn hypervisor(&self) -> String {
        self.identity.clone()
    }

    fn name(&self) -> String {
        self.pool.to_string()
    }

    async fn volumes(&self) -> Result<Vec<String>> {
        self.look_with(|session, pool| Ok(session.seam.volumes(pool)?.into_iter().map(|volume| volume.name).collect()))
            .await
    }

    async fn exist(&self, volumes: &[String]) -> Result<bool> {
        let volumes = volumes.to_vec();
        self.look_with(move |session, pool| {
            for name in &volumes {
                // Described, since a pool remembers a file that somebody removed behind its back.
                let there = match volume_if_there(session, pool, name)? {
                    Some(volume) => describe_if_there(session, pool, &volume)?.is_some(),
                    None => false,
                };
                if !there {
                    return Ok(false);
                }
            }
            Ok(true)
        })
        .await
    }

    async fn look(&self, volume: &str) -> Result<Option<VolumeInfo>> {
        let name = volume.to_owned();
        self.look_with(move |session, pool| {
            let Some(volume) = volume_if_there(session, pool, &name)? else { return Ok(None) };
            let described = describe_if_there(session, pool, &volume)?;
            Ok(described.map(|found| VolumeInfo {
                format: found.format,
                capacity: found.capacity,
                physical: found.physical,
                backing: found.backing,
            }))
        })
        .await
    }

    async fn read(&self, volume: &str, most: u64) -> Result<Option<Vec<u8>>> {
        let name = volume.to_owned();
        self.look_with(move |session, pool| {
            let Some(volume) = volume_if_there(session, pool, &name)? else { return Ok(None) };
            match session.seam.volume_download(&volume, most) {
                Ok(bytes) => Ok(Some(bytes)),
                Err(failure) if failure.is(sys::VIR_ERR_NO_STORAGE_VOL) => Ok(None),
                Err(failure) if failure.is_disconnect() => Err(failure),
                Err(failure) => match describe_if_there(session, pool, &volume)? {
                    None => Ok(None),
                    Some(_) => Err(failure),
                },
            }
        })
        .await
    }

    async fn create(&self, volume: &str, capacity: u64) -> Result<Created> {
        let xml = compose::volume(volume, VolumeFormat::Raw, capacity, None)
            .map_err(|error| Error::internal("ComposeFailed", format!("{}: {volume}: {error}", self.label)))?;
        let name = volume.to_owned();
        self.change_with(move |session, pool| match session.seam.volume_create(pool, &xml) {
            Ok(_) => Ok(Created::Made),
            Err(failure) if failure.is(sys::VIR_ERR_STORAGE_VOL_EXIST) => Ok(Created::Exists),
            Err(failure @ Failure::Libvirt(_)) if !failure.is_disconnect() => {
                // A file that the pool does not know yet is in the way.
                session.seam.pool_refresh(pool)?;
                match volume_if_there(session, pool, &name)? {
                    Some(_) => Ok(Created::Exists),
                    None => Err(failure),
                }
            }
            Err(failure) => Err(failure),
        })
        .await
    }

    async fn write(&self, volume: &str, content: Vec<u8>) -> Result<()> {
        let name = volume.to_owned();
        self.change_with(move |session, pool| {
            let volume = session.seam.volume(pool, &name)?;
            session.seam.volume_upload(&volume, content.len() as u64, &mut content.as_slice())
        })
        .await
    }

    async fn upload(&self, volume: &str, content: Content) -> Result<()> {
        let name = volume.to_owned();
        self.on(&self.hypervisor.uploads, self.upload, move |session, pool| {
            let volume = session.seam.volume(pool, &name)?;
            // From the start, also when a connection broke under the first attempt.
            content.progress.restart();
            let mut reader = Reader { at: 0, content: content.clone() };
            session.seam.volume_upload(&volume, content.length, &mut reader)
        })
        .await
    }

    async fn delete(&self, volume: &str) -> Result<()> {
        let name = volume.to_owned();
        self.change_with(move |session, pool| match volume_if_there(session, pool, &name)? {
            Some(volume) => remove(session, pool, &volume),
            None => Ok(()),
        })
        .await
    }

    async fn users(&self) -> Result<Users> {
        self.change_with(|session, pool| {
            let mut found = Vec::new();
            for volume in session.seam.volumes(pool)? {
                // One that went meanwhile stands on nothing.
                if let Some(described) = describe_if_there(session, pool, &volume)? {
                    found.push((volume.name, described));
                }
            }
            let names: BTreeMap<&str, &str> =
                found.iter().map(|(name, described)| (described.path.as_str(), name.as_str())).collect();
            let mut users = Users::new();
            let mut add = |used: &str, user: String| users.entry(used.to_owned()).or_default().push(user);
            for (name, described) in &found {
                if let Some(used) = described.backing.as_deref().and_then(|backing| names.get(backing)) {
                    add(used, name.clone());
                }
            }
            for (domain, state) in session.seam.domain_states()? {
                for used in volumes_of(session, &domain, is_on(state), &pool.name, &names)? {
                    add(&used, format!("domain {}", domain.name));
                }
            }
            Ok(users)
        })
        .await
    }

    async fn available(&self) -> Result<Option<u64>> {
        let space = self.look_with(|session, pool| session.seam.pool_space(pool)).await?;
        if !space.active {
            return Err(Error::invalid_config(
                "PoolMissing",
                format!("{}: storage pool {:?} is not started", self.label, self.pool),
            ));
        }
        Ok(Some(space.available))
    }

    async fn refresh(&self) -> Result<()> {
        self.change_with(|session, pool| session.seam.pool_refresh(pool)).await
    }
}

/// The volumes of a pool that a domain has among its disks or beneath them, as it is defined and as it runs.
fn volumes_of(
    session: &Session<'_>,
    domain: &DomainRef,
    on: bool,
    pool: &str,
    names: &BTreeMap<&str, &str>,
) -> Outcome<BTreeSet<String>> {
    let mut used = BTreeSet::new();
    let documents: &[bool] = if on { &[true, false] } else { &[true] };
    for inactive in documents {
        let xml = match session.seam.domain_xml(domain, *inactive) {
            Ok(xml) => xml,
            // It went meanwhile.
            Err(failure) if failure.is(sys::VIR_ERR_NO_DOMAIN) => break,
            Err(failure) => return Err(failure),
        };
        let root = Element::parse(&xml);
        let disks = root.iter().filter_map(|root| root.child("devices")).flat_map(|devices| devices.all("disk"));
        disks.for_each(|disk| collect(disk, pool, names, &mut used));
    }
    Ok(used)
}

/// The volumes of a pool that a disk, or what it stands on as far as libvirt says it, is.
fn collect(element: &Element, pool: &str, names: &BTreeMap<&str, &str>, used: &mut BTreeSet<String>) {
    for source in element.all("source") {
        if let Some(volume) = source.attribute("volume").filter(|_| source.attribute("pool") == Some(pool)) {
            used.insert(volume.to_owned());
        }
        let path = source.attribute("file").or(source.attribute("dev"));
        if let Some(volume) = path.and_then(|path| names.get(path)) {
            used.insert((*volume).to_owned());
        }
    }
    element.all("backingStore").for_each(|backing| collect(backing, pool, names, used));
}

/// Reads a file for an upload: counts, and ends when the upload does.
struct Reader {
    at: u64,
    content: Content,
}

impl Read for Reader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.content.cancelled.is_cancelled() {
            return Err(io::Error::other(cancelled()));
        }
        let read = self.content.file.read_at(buffer, self.at)?;
        self.at += read as u64;
        self.content.progress.add(read as u64);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_names_volumes_by_pool_path_and_chain() {
        let names = BTreeMap::from([("/p/base", "base"), ("/p/x", "x")]);
        let used = |inner: &str| {
            let mut used = BTreeSet::new();
            let disk = Element::parse(&format!("<disk>{inner}</disk>")).unwrap();
            collect(&disk, "default", &names, &mut used);
            used.into_iter().collect::<Vec<_>>()
        };
        assert_eq!(used("<source pool='default' volume='base'/>"), ["base"]);
        assert_eq!(used("<source file='/p/base'/>"), ["base"]);
        assert_eq!(used("<source dev='/p/base'/>"), ["base"]);
        let chain = "<source file='/p/x'/><backingStore><source file='/p/y'/>
            <backingStore><source file='/p/base'/></backingStore></backingStore>";
        assert_eq!(used(chain), ["base", "x"]);
        assert_eq!(used("<source pool='other' volume='base'/><backingStore/>"), [""; 0]);
    }

    #[test]
    fn a_reader_counts_and_ends_with_its_transfer() {
        let mut file = tempfile::tempfile().unwrap();
        io::Write::write_all(&mut file, &[7; 1000]).unwrap();
        let content =
            Content { file: Arc::new(file), length: 1000, progress: Arc::default(), cancelled: Default::default() };
        let mut reader = Reader { at: 0, content: content.clone() };
        let mut buffer = [0; 600];
        assert_eq!((reader.read(&mut buffer).unwrap(), reader.read(&mut buffer).unwrap()), (600, 400));
        assert_eq!(content.progress.done(), 1000);
        content.cancelled.cancel();
        assert!(reader.read(&mut buffer).is_err());
    }
}
