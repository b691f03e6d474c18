//! Files as `qemu-img` makes them, and as somebody makes them who means harm.

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use super::*;

const MAX: u64 = 64 << 30;

fn look(bytes: &[u8]) -> Result<Inspected, Fault> {
    inspect(&mut Cursor::new(bytes), bytes.len() as u64, MAX)
}

fn look_at(path: &Path) -> Result<Inspected, Fault> {
    let bytes = std::fs::read(path).unwrap();
    look(&bytes)
}

fn message(fault: Result<Inspected, Fault>) -> String {
    let error = fault.unwrap_err().into_error("debian-12");
    assert_eq!((error.code.as_str(), error.reason.as_str()), ("invalid-config", "ImageUnusable"));
    assert!(error.message.starts_with("image debian-12 "), "{error}");
    error.message
}

fn qemu_img(folder: &Path, arguments: &[&str]) {
    let output = Command::new("qemu-img")
        .args(arguments)
        .current_dir(folder)
        .output()
        .expect("these tests need qemu-img: apt-get install qemu-utils");
    assert!(output.status.success(), "qemu-img {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A qcow2 with data in it.
fn made(folder: &Path, name: &str, options: &[&str]) -> Vec<u8> {
    std::fs::write(folder.join("raw"), vec![0x5a; 3 << 20]).unwrap();
    let mut arguments = vec!["convert", "-f", "raw", "-O", "qcow2"];
    arguments.extend(options);
    arguments.extend(["raw", name]);
    qemu_img(folder, &arguments);
    std::fs::read(folder.join(name)).unwrap()
}

#[test]
fn good_images_are_taken_as_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in [
        ("plain", vec![]),
        ("v2", vec!["-o", "compat=0.10"]),
        ("small-clusters", vec!["-o", "cluster_size=512"]),
        ("large-clusters", vec!["-o", "cluster_size=2M"]),
        ("compressed", vec!["-c"]),
        ("zstd", vec!["-c", "-o", "compression_type=zstd"]),
        ("extended", vec!["-o", "extended_l2=on,cluster_size=64k"]),
        ("lazy", vec!["-o", "lazy_refcounts=on"]),
    ] {
        let bytes = made(folder.path(), name, &options);
        assert_eq!(look(&bytes), Ok(Inspected { format: VolumeFormat::Qcow2, capacity: 3 << 20 }), "{name}");
    }
    qemu_img(folder.path(), &["create", "-f", "qcow2", "empty", "40G"]);
    assert_eq!(look_at(&folder.path().join("empty")).unwrap().capacity, 40 << 30);
    qemu_img(folder.path(), &["create", "-f", "qcow2", "-o", "preallocation=metadata", "allocated", "1G"]);
    assert_eq!(look_at(&folder.path().join("allocated")).unwrap().capacity, 1 << 30);
    assert_eq!(look(&[0; 4096]), Ok(Inspected { format: VolumeFormat::Raw, capacity: 4096 }));
}

#[test]
fn an_image_that_names_other_files_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    qemu_img(folder.path(), &["create", "-f", "qcow2", "base", "1G"]);
    qemu_img(folder.path(), &["create", "-f", "qcow2", "-b", "base", "-F", "qcow2", "overlay"]);
    assert!(message(look_at(&folder.path().join("overlay"))).contains("backing file"));
    qemu_img(folder.path(), &["create", "-f", "qcow2", "-o", "compat=0.10", "-b", "base", "-F", "qcow2", "overlay-v2"]);
    assert!(message(look_at(&folder.path().join("overlay-v2"))).contains("backing file"));
    qemu_img(folder.path(), &["create", "-f", "qcow2", "-o", "data_file=data,data_file_raw=on", "external", "1G"]);
    let refused = message(look_at(&folder.path().join("external")));
    assert!(refused.contains("external data file") && refused.contains("qemu-img convert"), "{refused}");
    let secret = ["--object", "secret,id=s,data=hunter2"];
    let luks = [
        &["create", "-f", "qcow2"][..],
        &secret,
        &["-o", "encrypt.format=luks,encrypt.key-secret=s,encrypt.iter-time=10", "luks", "1M"],
    ];
    qemu_img(folder.path(), &luks.concat());
    assert!(message(look_at(&folder.path().join("luks"))).contains("encrypted"));
}

#[test]
fn a_truncated_image_is_refused_wherever_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    for (name, options) in [("plain", vec![]), ("compressed", vec!["-c"]), ("v2", vec!["-o", "compat=0.10"])] {
        let bytes = made(folder.path(), name, &options);
        // What a cut takes from the last cluster of data alone is padding.
        for part in 0..40 {
            let length = (bytes.len() - (64 << 10)) * part / 40;
            let cut = look(&bytes[..length]);
            assert!(cut.is_err(), "{name} cut to {length} of {} bytes", bytes.len());
        }
    }
    let bytes = made(folder.path(), "plain", &[]);
    assert!(message(look(&bytes[..bytes.len() / 2])).contains("cut off"));
}

#[test]
fn a_virtual_size_beyond_the_grant_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    qemu_img(folder.path(), &["create", "-f", "qcow2", "big", "65G"]);
    let refused = message(look_at(&folder.path().join("big")));
    assert!(refused.contains("spec.grants.images.maxGiB") && refused.contains("64 GiB"), "{refused}");
    let raw = inspect(&mut Cursor::new(vec![0; 4096]), 4096, 1024);
    assert!(message(raw).contains("size"));
}

#[test]
fn what_is_no_disk_image_is_called_by_its_name() {
    let mut tar = vec![0; 1024];
    tar[257..262].copy_from_slice(b"ustar");
    let mut vdi = vec![0; 1024];
    vdi[0x40..0x44].copy_from_slice(&0xbeda_107f_u32.to_le_bytes());
    let mut iso = vec![0; 0x9000];
    iso[0x8001..0x8006].copy_from_slice(b"CD001");
    let mut vhd = vec![0; 4096];
    vhd[4096 - 512..4096 - 504].copy_from_slice(b"conectix");
    let starts = |magic: &[u8]| [magic, &[0; 2048]].concat();
    for (bytes, word) in [
        (starts(b"\x1f\x8b\x08"), "gzip"),
        (starts(b"\xfd7zXZ\0"), "xz"),
        (starts(b"PK\x03\x04"), "zip"),
        (starts(b"BZh9"), "bzip2"),
        (starts(b"\x28\xb5\x2f\xfd"), "zstd"),
        (starts(b"KDMV"), "VMDK"),
        (starts(b"vhdxfile"), "VHDX"),
        (starts(b"<!DOCTYPE html>"), "HTML"),
        (starts(b"\n  <HTML>"), "HTML"),
        (b"<?xml version='1.0'?><Error>".to_vec(), "XML"),
        (b"\xef\xbb\xbf<!doctype html>".to_vec(), "HTML"),
        (starts(b"LUKS\xba\xbe"), "LUKS"),
        (starts(b"QED\0"), "QED"),
        (tar, "tar"),
        (vdi, "VDI"),
        (iso, "ISO 9660"),
        (vhd, "VHD"),
        (Vec::new(), "empty"),
        (b"not found".to_vec(), "9 bytes"),
    ] {
        let refused = message(look(&bytes));
        assert!(refused.contains(word), "{word}: {refused}");
    }
    assert!(message(look(&starts(b"\x1f\x8b"))).contains("decompress"));
    assert!(message(look(&starts(b"KDMV"))).contains("qemu-img convert"));
}

/// A header of one's own.
fn header(change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = vec![0; 4 << 16];
    bytes[..4].copy_from_slice(&qcow2::MAGIC);
    let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
    put(4, &3_u32.to_be_bytes());
    put(20, &16_u32.to_be_bytes());
    put(24, &(1_u64 << 30).to_be_bytes());
    put(36, &2_u32.to_be_bytes());
    put(40, &(3_u64 << 16).to_be_bytes());
    put(48, &(1_u64 << 16).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    change(&mut bytes);
    bytes
}

#[test]
fn hostile_headers_are_refused() {
    assert_eq!(look(&header(|_| ())).unwrap().capacity, 1 << 30);
    let put = |at: usize, value: Vec<u8>| header(move |bytes| bytes[at..at + value.len()].copy_from_slice(&value));
    let (long, word) = (|value: u64| value.to_be_bytes().to_vec(), |value: u32| value.to_be_bytes().to_vec());
    for (bytes, what) in [
        (put(4, word(1)), "version 1"),
        (put(4, word(4)), "version 4"),
        (put(8, long(512)), "backing file"),
        (put(8, long(u64::MAX)), "backing file"),
        (put(20, word(8)), "clusters"),
        (put(20, word(22)), "clusters"),
        (put(20, word(u32::MAX)), "clusters"),
        (put(24, long(0)), "virtual size of 0"),
        (put(24, long(u64::MAX)), "maxGiB"),
        (put(24, long(64 << 30)), "L1"),
        (put(32, word(1)), "encrypted"),
        (put(32, word(2)), "encrypted"),
        (put(36, word(0)), "L1"),
        (put(36, word(u32::MAX)), "L1"),
        (put(40, long(0)), "impossible"),
        (put(40, long(1)), "impossible"),
        (put(40, long(1 << 40)), "L1 table"),
        (put(40, long(u64::MAX << 16)), "L1 table"),
        (put(48, long(1 << 40)), "refcount table"),
        (put(48, long(u64::MAX << 16)), "refcount table"),
        (put(56, word(u32::MAX)), "refcount table"),
        (put(56, word(0)), "impossible"),
        (put(72, long(1 << 1)), "corrupt"),
        (put(72, long(1 << 2)), "external data file"),
        (put(72, long(1 << 5)), "0x20"),
        (put(72, long(1 << 63)), "not known"),
        (put(3 << 16, long(1 << 63 | 1 << 40)), "before the data"),
    ] {
        let refused = message(look(&bytes));
        assert!(refused.contains(what), "{what}: {refused}");
    }
}

/// A generator of no quality, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.roll() % (limit.max(1) as u64)).unwrap()
    }
}

#[test]
fn no_bytes_make_it_panic_or_last() {
    let folder = tempfile::tempdir().unwrap();
    let images = [
        made(folder.path(), "plain", &[]),
        made(folder.path(), "compressed", &["-c", "-o", "cluster_size=512"]),
        made(folder.path(), "extended", &["-o", "extended_l2=on,cluster_size=64k"]),
        header(|_| ()),
    ];
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let started = std::time::Instant::now();
    for round in 0..4_000 {
        let mut bytes = images[round % images.len()].clone();
        for _ in 0..=dice.below(6) {
            // Mostly in the header and in the tables.
            let at = if dice.below(3) == 0 { dice.below(bytes.len()) } else { dice.below(112) };
            let values = [0, 1, 0x7f, 0x80, 0xff, dice.roll() as u8];
            bytes[at] = values[dice.below(values.len())];
        }
        bytes[..4].copy_from_slice(&qcow2::MAGIC);
        if dice.below(4) == 0 {
            bytes.truncate(dice.below(bytes.len()));
        }
        let _ = look(&bytes);
    }
    for length in 0..600 {
        let mut bytes: Vec<u8> = (0..length).map(|_| dice.roll() as u8).collect();
        let _ = look(&bytes);
        bytes.splice(..bytes.len().min(4), qcow2::MAGIC);
        let _ = look(&bytes);
    }
    assert!(started.elapsed().as_secs() < 120, "{:?}", started.elapsed());
}
