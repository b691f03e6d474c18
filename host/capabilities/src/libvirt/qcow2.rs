//! What the header of a qcow2 disk makes QEMU open on the hypervisor.
//!
//! A plugin says in which format a disk is opened. If it could call a volume qcow2 whose bytes it or a guest has
//! chosen, those bytes would name a backing file or a data file, and QEMU would open it: any file of the hypervisor.
//! So no content that is written begins like a qcow2, and what is to be opened as one is looked at when it is defined:
//! it stands on nothing, or on a base image of its own pool. Nothing else can change a header: a guest sees only the
//! inside of a qcow2, and a volume belongs to one domain.

use proxy_operator_core::capability::libvirt::{Disk, VolumeFormat};
use proxy_operator_core::error::{Error, ErrorCode};

use super::connection::Session;
use super::error::Failure;
use super::policy::{Scope, is_base_image};
use super::volumes::{describe_if_there, pool_if_there, volume_if_there};

const MAGIC: [u8; 4] = *b"QFI\xfb";

/// The bytes of a volume in which its header is looked for: QEMU puts the backing file's name within the first
/// cluster, libvirt's clusters have 64 KiB.
const HEAD_BYTES: u64 = 64 << 10;

/// The longest name of a backing file that QEMU takes.
const BACKING_MAX_BYTES: usize = 1_023;

/// The feature bit of an external data file.
const EXTERNAL_DATA: u64 = 1 << 2;

/// What a header names.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Header {
    backing: Option<String>,
    external_data: bool,
}

/// Whether bytes begin like a qcow2.
pub fn is_qcow2(content: &[u8]) -> bool {
    content.starts_with(&MAGIC)
}

/// Refuses a disk that would open another file than a base image of its pool. A volume that does not exist yet can
/// only become a good one.
pub fn check(scope: &Scope, session: &Session<'_>, disk: &Disk) -> Result<(), Failure> {
    if disk.format != VolumeFormat::Qcow2 {
        return Ok(());
    }
    let Some(pool) = pool_if_there(session, &disk.pool)? else { return Ok(()) };
    let Some(volume) = volume_if_there(session, &pool, &disk.volume)? else { return Ok(()) };
    let refused = |why: String| {
        Error::new(
            ErrorCode::PermissionDenied,
            "VolumeRefused",
            format!("{}: volume {} cannot be a qcow2 disk: {why}", scope.host(), disk.volume),
        )
    };
    let head = session.seam.volume_download(&volume, HEAD_BYTES)?;
    let header = Header::read(&head).ok_or_else(|| refused("it has no header that can be read".to_owned()))?;
    if header.external_data {
        return Err(refused("its data are in another file".to_owned()).into());
    }
    let Some(backing) = header.backing else { return Ok(()) };
    let base = backing.rsplit('/').next().filter(|name| is_base_image(name));
    if let Some(base) = base
        && let Some(base) = volume_if_there(session, &pool, base)?
        && describe_if_there(session, &pool, &base)?.is_some_and(|described| described.path == backing)
    {
        return Ok(());
    }
    Err(refused(format!("it stands on {backing:?}, which is no base image of its pool")).into())
}

impl Header {
    /// Reads a header of version 2 or 3; `None` when it is none.
    fn read(head: &[u8]) -> Option<Self> {
        if !is_qcow2(head) {
            return None;
        }
        let u32_at = |at: usize| Some(u32::from_be_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_be_bytes(head.get(at..at + 8)?.try_into().ok()?));
        let incompatible = match u32_at(4)? {
            2 => 0,
            3 => u64_at(72)?,
            _ => return None,
        };
        let backing = match (u64_at(8)?, usize::try_from(u32_at(16)?).ok()?) {
            (0, _) => None,
            (_, length) if length > BACKING_MAX_BYTES => return None,
            (offset, length) => {
                let start = usize::try_from(offset).ok()?;
                let name = head.get(start..start.checked_add(length)?)?;
                Some(std::str::from_utf8(name).ok()?.to_owned())
            }
        };
        Some(Self { backing, external_data: incompatible & EXTERNAL_DATA != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(version: u32, backing: &str, incompatible: u64) -> Vec<u8> {
        let mut head = vec![0; 512];
        head[..4].copy_from_slice(&MAGIC);
        head[4..8].copy_from_slice(&version.to_be_bytes());
        if !backing.is_empty() {
            head[8..16].copy_from_slice(&256_u64.to_be_bytes());
            head[16..20].copy_from_slice(&(backing.len() as u32).to_be_bytes());
            head[256..256 + backing.len()].copy_from_slice(backing.as_bytes());
        }
        head[72..80].copy_from_slice(&incompatible.to_be_bytes());
        head
    }

    #[test]
    fn what_a_header_names_is_read() {
        let read = |bytes: &[u8]| Header::read(bytes);
        assert_eq!(read(&header(3, "/etc/shadow", 0)).unwrap().backing.as_deref(), Some("/etc/shadow"));
        assert_eq!(read(&header(2, "", 0)), Some(Header { backing: None, external_data: false }));
        assert!(read(&header(3, "", EXTERNAL_DATA)).unwrap().external_data);
        let mut far = header(3, "x", 0);
        far[8..16].copy_from_slice(&u64::MAX.to_be_bytes());
        for bad in [far, header(4, "", 0), header(3, "", 0)[..70].to_vec(), b"QFI".to_vec(), vec![0; 512]] {
            assert_eq!(read(&bad), None);
        }
    }
}
