//! What a downloaded file is, told by its bytes, and whether a hypervisor may have it.

use std::io::{self, Read, Seek, SeekFrom};

use proxy_operator_core::capability::libvirt::VolumeFormat;
use proxy_operator_core::error::Error;

use super::qcow2;

/// A file that is a disk image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// Its format.
    pub format: VolumeFormat,
    /// Its virtual size in bytes.
    pub capacity: u64,
}

/// Why a file cannot be used as a base image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    what: String,
    fix: String,
    /// Of this side's disk, not of the image.
    local: bool,
}

const SECTOR: u64 = 512;

/// Where an ISO 9660 file system says that it is one.
const ISO_AT: u64 = 0x8001;

/// Files that are often offered in place of a disk image: where, what, and what they are called.
const OTHERS: &[(usize, &[u8], &str)] = &[
    (0, b"\x1f\x8b", "a gzip file"),
    (0, b"\xfd7zXZ\0", "an xz file"),
    (0, b"BZh", "a bzip2 file"),
    (0, b"\x28\xb5\x2f\xfd", "a zstd file"),
    (0, b"\x04\x22\x4d\x18", "an lz4 file"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z file"),
    (0, b"PK\x03\x04", "a zip file"),
    (0, b"PK\x05\x06", "an empty zip file"),
    (257, b"ustar", "a tar archive (an .ova is one)"),
    (0, b"KDMV", "a VMDK disk"),
    (0, b"COWD", "a VMDK disk"),
    (0, b"# Disk DescriptorFile", "the description of a VMDK disk"),
    (0x40, b"\x7f\x10\xda\xbe", "a VDI disk"),
    (0, b"vhdxfile", "a VHDX disk"),
    (0, b"conectix", "a VHD disk"),
    (0, b"QED\0", "a QED disk"),
    (0, b"OOOM", "a UML disk"),
    (0, b"WithoutFreeSpace", "a Parallels disk"),
    (0, b"WithouFreSpacExt", "a Parallels disk"),
    (0, b"Bochs Virtual HD Image", "a Bochs disk"),
    (0, b"#!/bin/sh\n#V2.0 Format", "a cloop disk"),
    (0, b"LUKS\xba\xbe", "a LUKS-encrypted disk"),
    (0, b"version https://git-lfs", "a pointer of Git LFS"),
    (0, b"-----BEGIN PGP", "a signature"),
];

/// How pages of text begin.
const PAGES: &[&str] = &["<!doctype", "<html", "<head", "<body", "<?xml", "<!--", "<error"];

/// Looks at a file of `length` bytes.
pub fn inspect<R: Read + Seek>(file: &mut R, length: u64, max_bytes: u64) -> Result<Inspected, Fault> {
    if length > max_bytes {
        return Err(Fault::too_large("a size", length, max_bytes));
    }
    let start = read_at(file, 0, SECTOR).map_err(|error| Fault::unreadable(&error))?;
    if start.starts_with(&qcow2::MAGIC) {
        let capacity = qcow2::inspect(file, length, max_bytes)?;
        return Ok(Inspected { format: VolumeFormat::Qcow2, capacity });
    }
    if start.is_empty() {
        return Err(Fault::new("is empty", "look at what its URL serves"));
    }
    for (at, magic, name) in OTHERS {
        if start.get(*at..).is_some_and(|rest| rest.starts_with(magic)) {
            return Err(other(name));
        }
    }
    let page: String = start.iter().take(64).map(|byte| char::from(byte.to_ascii_lowercase())).collect();
    let page = page.trim_start_matches("ï»¿").trim_start();
    if PAGES.iter().any(|begin| page.starts_with(begin)) {
        return Err(Fault::new(
            "is an HTML or XML page, not a disk image",
            "look at what its URL serves: often a page that offers the download, or a login",
        ));
    }
    if length < SECTOR {
        return Err(Fault::new(
            format!("has {length} bytes, less than one sector of a disk"),
            "look at what its URL serves",
        ));
    }
    let iso = read_at(file, ISO_AT, 5).map_err(|error| Fault::unreadable(&error))?;
    if iso == b"CD001" {
        return Err(Fault::new(
            "is an ISO 9660 image (a CD), not a disk image",
            "use the cloud image (qcow2) of the same system",
        ));
    }
    let last = read_at(file, length.saturating_sub(SECTOR), SECTOR).map_err(|error| Fault::unreadable(&error))?;
    if last.starts_with(b"conectix") {
        return Err(other("a VHD disk"));
    }
    if last.starts_with(b"koly") {
        return Err(other("a DMG disk"));
    }
    Ok(Inspected { format: VolumeFormat::Raw, capacity: length })
}

fn other(name: &str) -> Fault {
    let disk = name.ends_with("disk");
    Fault::new(
        format!("is {name}, {}", if disk { "which is neither qcow2 nor raw" } else { "not a disk image" }),
        if disk {
            "convert it first (qemu-img convert -O qcow2 OLD NEW)"
        } else {
            "decompress or unpack it first, and offer the disk image in it"
        },
    )
}

fn read_at<R: Read + Seek>(file: &mut R, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(offset))?;
    file.take(length).read_to_end(&mut bytes)?;
    Ok(bytes)
}

// === impl Fault ===

impl Fault {
    /// What the file is, and what to do about it.
    pub fn new(what: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { what: what.into(), fix: fix.into(), local: false }
    }

    /// Something that a conversion leaves behind.
    pub fn convert(what: impl Into<String>) -> Self {
        Self::new(what, "convert it into one that stands alone (qemu-img convert -O qcow2 OLD NEW)")
    }

    /// A file that is not whole.
    pub fn cut(what: impl Into<String>) -> Self {
        Self::new(what, "it was cut off: compare it with its original, and give its digest")
    }

    /// A file that makes no sense.
    pub fn broken(what: impl Into<String>) -> Self {
        Self::new(what, "it is damaged: compare it with its original (qemu-img check FILE)")
    }

    /// More than granted.
    pub fn too_large(what: &str, bytes: u64, max_bytes: u64) -> Self {
        Self::new(
            format!("has {what} of {bytes} bytes, more than the {} GiB that are granted", max_bytes >> 30),
            "use a smaller one, or raise spec.grants.images.maxGiB",
        )
    }

    /// This side's disk failed.
    pub fn unreadable(error: &io::Error) -> Self {
        Self {
            local: true,
            ..Self::new(format!("cannot be read from the cache: {error}"), "look at the operator's disk")
        }
    }

    /// As an error about this image.
    pub fn into_error(self, image: &str) -> Error {
        let Self { what, fix, local } = self;
        let message = format!("image {image} {what}; {fix}");
        if local {
            Error::unavailable("ImageCacheFailed", message)
        } else {
            Error::invalid_config("ImageUnusable", message)
        }
    }
}

#[cfg(test)]
mod tests;
