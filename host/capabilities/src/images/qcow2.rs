//! Reads the header and the tables of a qcow2 file, and refuses what must not reach a hypervisor.
//!
//! A qcow2 file can name other files (a backing file, an external data file), which QEMU would open on the hypervisor:
//! that is how a downloaded image reads `/etc/shadow`. And one that was cut off somewhere still looks whole from its
//! start; its tables say how far it must reach.
//!
//! No input makes this panic, and no field of it an allocation: what is read is bounded by the file and by the
//! virtual size that is granted.

use std::io::{Read, Seek, SeekFrom};

use super::format::Fault;

/// `QFI\xfb`
pub const MAGIC: [u8; 4] = [0x51, 0x46, 0x49, 0xfb];

/// What is known of the feature bits that a reader must know: 0 dirty, 1 corrupt, 2 external data file, 3 compression
/// type, 4 extended L2 entries.
const DIRTY: u64 = 1;
const CORRUPT: u64 = 1 << 1;
const EXTERNAL_DATA: u64 = 1 << 2;
const COMPRESSION_TYPE: u64 = 1 << 3;
const EXTENDED_L2: u64 = 1 << 4;
const KNOWN: u64 = DIRTY | CORRUPT | EXTERNAL_DATA | COMPRESSION_TYPE | EXTENDED_L2;

/// Bits of an entry that are the offset of a table or of a cluster.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;

/// QEMU's own limit on the L1 table.
const L1_MAX_ENTRIES: u64 = (32 << 20) / 8;

/// The most bytes of tables that are read. 64 GiB in clusters of 64 KiB have 8 MiB of L2 tables.
const TABLES_MAX_BYTES: u64 = 1 << 30;

/// The fields of a header that count here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    version: u32,
    backing_offset: u64,
    cluster_bits: u32,
    size: u64,
    crypt_method: u32,
    l1_size: u32,
    l1_offset: u64,
    refcount_offset: u64,
    refcount_clusters: u32,
    incompatible: u64,
}

/// Reads a file of `length` bytes that begins with [`MAGIC`]; answers its virtual size.
pub fn inspect<R: Read + Seek>(file: &mut R, length: u64, max_bytes: u64) -> Result<u64, Fault> {
    let header = Header::read(file, length)?;
    header.check(length, max_bytes)?;
    header.check_tables(file, length)?;
    Ok(header.size)
}

impl Header {
    fn read<R: Read + Seek>(file: &mut R, length: u64) -> Result<Self, Fault> {
        let bytes = read_at(file, 0, usize::try_from(length.min(112)).unwrap_or(112))?;
        let short = || Fault::cut(format!("is a qcow2 file of {length} bytes, less than a header has"));
        let u32_at = |at: usize| field::<4>(&bytes, at).map(u32::from_be_bytes).ok_or_else(short);
        let u64_at = |at: usize| field::<8>(&bytes, at).map(u64::from_be_bytes).ok_or_else(short);
        let version = u32_at(4)?;
        if !matches!(version, 2 | 3) {
            return Err(Fault::convert(format!("is a qcow file of version {version}; 2 and 3 are known")));
        }
        Ok(Self {
            version,
            backing_offset: u64_at(8)?,
            cluster_bits: u32_at(20)?,
            size: u64_at(24)?,
            crypt_method: u32_at(32)?,
            l1_size: u32_at(36)?,
            l1_offset: u64_at(40)?,
            refcount_offset: u64_at(48)?,
            refcount_clusters: u32_at(56)?,
            incompatible: if version == 3 { u64_at(72)? } else { 0 },
        })
    }

    fn check(&self, length: u64, max_bytes: u64) -> Result<(), Fault> {
        let Self {
            version: _,
            backing_offset,
            cluster_bits,
            size,
            crypt_method,
            l1_size,
            l1_offset,
            refcount_offset,
            refcount_clusters,
            incompatible,
        } = *self;
        if backing_offset != 0 {
            return Err(Fault::convert("has a backing file, which would be opened on the hypervisor"));
        }
        if incompatible & EXTERNAL_DATA != 0 {
            return Err(Fault::convert("has an external data file, which would be opened on the hypervisor"));
        }
        if crypt_method != 0 {
            return Err(Fault::convert("is encrypted, and there is nobody to give its passphrase"));
        }
        if incompatible & !KNOWN != 0 {
            return Err(Fault::convert(format!(
                "needs features that are not known here (incompatible bits {:#x})",
                incompatible & !KNOWN
            )));
        }
        if incompatible & CORRUPT != 0 {
            return Err(Fault::new(
                "is marked as corrupt",
                "repair it (qemu-img check -r all FILE), or download it again",
            ));
        }
        if !(9..=21).contains(&cluster_bits) {
            return Err(Fault::broken(format!("has clusters of 2^{cluster_bits} bytes; 2^9 to 2^21 are possible")));
        }
        if size == 0 {
            return Err(Fault::broken("has a virtual size of 0"));
        }
        if size > max_bytes {
            return Err(Fault::too_large("a virtual size", size, max_bytes));
        }
        let cluster = 1_u64 << cluster_bits;
        let aligned = |offset: u64| offset != 0 && offset.is_multiple_of(cluster);
        if !aligned(l1_offset) || !aligned(refcount_offset) || refcount_clusters == 0 {
            return Err(Fault::broken("has tables at impossible places"));
        }
        let needed = size.div_ceil(self.bytes_of_an_l2_table());
        if u64::from(l1_size) < needed || u64::from(l1_size) > L1_MAX_ENTRIES {
            return Err(Fault::broken(format!(
                "has {l1_size} entries in its L1 table; its virtual size needs {needed}"
            )));
        }
        let l1_end = l1_offset.checked_add(u64::from(l1_size) * 8);
        let refcount_end =
            u64::from(refcount_clusters).checked_mul(cluster).and_then(|bytes| refcount_offset.checked_add(bytes));
        // The last cluster of a file may be written in part.
        let end = length.checked_next_multiple_of(cluster).unwrap_or(u64::MAX);
        for (what, table_end) in [("L1", l1_end), ("refcount", refcount_end)] {
            if table_end.is_none_or(|table_end| table_end > end) {
                return Err(Fault::cut(format!("ends after {length} bytes, before its {what} table does")));
            }
        }
        Ok(())
    }

    /// How much of the virtual disk one L2 table describes.
    fn bytes_of_an_l2_table(&self) -> u64 {
        let entry = if self.incompatible & EXTENDED_L2 != 0 { 16 } else { 8 };
        let cluster = 1_u64 << self.cluster_bits.min(21);
        cluster * (cluster / entry)
    }

    /// Follows the tables: every cluster that they name must be in the file.
    fn check_tables<R: Read + Seek>(&self, file: &mut R, length: u64) -> Result<(), Fault> {
        let cluster = 1_u64 << self.cluster_bits;
        let end = length.checked_next_multiple_of(cluster).unwrap_or(u64::MAX);
        let within = |offset: u64, bytes: u64| offset.checked_add(bytes).is_some_and(|last| last <= end);
        let cut = || Fault::cut(format!("ends after {length} bytes, before the data that its tables name"));
        let l1 = read_at(file, self.l1_offset, usize::try_from(u64::from(self.l1_size) * 8).unwrap_or(usize::MAX))?;
        let mut budget = TABLES_MAX_BYTES;
        let mut known = 0;
        for entry in l1.chunks_exact(8) {
            let table = entry_of(entry) & OFFSET;
            if table == 0 || table == known {
                continue;
            }
            if !within(table, cluster) {
                return Err(cut());
            }
            budget = budget
                .checked_sub(cluster)
                .ok_or_else(|| Fault::convert("has more tables than a disk of its size needs"))?;
            let l2 = read_at(file, table, usize::try_from(cluster).unwrap_or(usize::MAX))?;
            let step = if self.incompatible & EXTENDED_L2 != 0 { 16 } else { 8 };
            for entry in l2.chunks_exact(step) {
                let entry = entry_of(entry);
                let inside = if entry & COMPRESSED != 0 {
                    // The offset is in the low bits, the number of further sectors in those above; the last of them
                    // may lie behind the end.
                    let bits = 62_u32.saturating_sub(self.cluster_bits.saturating_sub(8));
                    let offset = entry & (1_u64 << bits).wrapping_sub(1);
                    let further = (entry & (COMPRESSED - 1)) >> bits;
                    offset < length && within(offset & !511, further * 512)
                } else {
                    entry & OFFSET == 0 || within(entry & OFFSET, cluster)
                };
                if !inside {
                    return Err(cut());
                }
            }
            known = table;
        }
        Ok(())
    }
}

fn entry_of(bytes: &[u8]) -> u64 {
    field::<8>(bytes, 0).map_or(0, u64::from_be_bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Reads what is there of so many bytes; what lies behind the end of the file reads as nothing.
fn read_at<R: Read + Seek>(file: &mut R, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))
        .and_then(|_| file.take(length as u64).read_to_end(&mut bytes))
        .map_err(|error| Fault::unreadable(&error))?;
    Ok(bytes)
}
