use std::io::{Cursor, Read};

use super::{OWNER, name, run};
use crate::seed::{image, meta_data};

fn read(volume: &[u8]) -> Vec<(String, Vec<u8>)> {
    let filesystem = fatfs::FileSystem::new(Cursor::new(volume.to_vec()), fatfs::FsOptions::new()).unwrap();
    assert_eq!(filesystem.volume_label(), "CIDATA");
    let entries = filesystem.root_dir().iter().map(|entry| {
        let entry = entry.unwrap();
        let mut content = Vec::new();
        entry.to_file().read_to_end(&mut content).unwrap();
        (entry.file_name(), content)
    });
    entries.collect()
}

#[test]
fn documents_arrive_byte_for_byte_under_their_whole_names() {
    let all: Vec<u8> = (0..=255).cycle().take(100_003).collect();
    let meta = meta_data(OWNER, &name());
    let volume = image(&all, meta.as_bytes(), Some(b"#!/bin/sh\r\n\0")).unwrap();
    let expected = [
        ("user-data".to_owned(), all.clone()),
        ("meta-data".to_owned(), meta.as_bytes().to_vec()),
        ("vendor-data".to_owned(), b"#!/bin/sh\r\n\0".to_vec()),
    ];
    assert_eq!(read(&volume), expected);
    assert_eq!(volume, image(&all, meta.as_bytes(), Some(b"#!/bin/sh\r\n\0")).unwrap(), "equal content, equal bytes");
}

#[test]
fn without_vendor_data_there_is_no_such_file() {
    let names: Vec<String> = read(&image(b"", b"", None).unwrap()).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["user-data", "meta-data"]);
}

#[test]
fn the_largest_documents_fit_within_what_a_volume_may_be_written_with() {
    // User-data and vendor-data of 1 MiB each, a config of 256 KiB, all in base64.
    let user = vec![b'u'; 1 << 20];
    let vendor = vec![b'v'; (5 << 20) / 4 * 3 / 2];
    let volume = image(&user, b"m", Some(&vendor)).unwrap();
    assert!(volume.len() <= 8 << 20, "{}", volume.len());
    assert_eq!(read(&volume)[2].1, vendor);
}

#[test]
fn other_readers_of_fat_agree() {
    let path = std::env::temp_dir().join(format!("kvm-seed-{}.img", std::process::id()));
    std::fs::write(&path, image(b"#cloud-config\n{}\n", b"instance-id: \"x\"\n", None).unwrap()).unwrap();
    let volume = path.to_str().unwrap();
    // cloud-init finds the seed by what blkid says of it.
    let found = run("/usr/sbin/blkid", &["-p", "-o", "export", volume], b"", "util-linux");
    let user_data = run("mtype", &["-i", volume, "::user-data"], b"", "mtools");
    std::fs::remove_file(&path).unwrap();
    let found = String::from_utf8(found).unwrap();
    for line in ["LABEL=CIDATA", "TYPE=vfat"] {
        assert!(found.lines().any(|l| l == line), "{found}");
    }
    assert_eq!(user_data, b"#cloud-config\n{}\n");
}

#[test]
fn the_instance_id_is_the_owner() {
    assert_eq!(meta_data("6f1a", "px-6f1a"), "instance-id: \"6f1a\"\nlocal-hostname: \"px-6f1a\"\n");
}
