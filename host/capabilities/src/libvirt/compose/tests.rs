//! Documents from hostile texts, read back.

use super::*;
use crate::libvirt::xml::{Element, text_of};

const HOSTILE: &str = "a</name><domain type='x'>&amp;\"'\u{1}\u{ffff}]]><!-- \u{fc}\r\n";

fn facts() -> HostFacts {
    HostFacts {
        uuid: String::new(),
        arch: "x86_64".to_owned(),
        domain_types: vec!["kvm".to_owned(), "qemu".to_owned()],
    }
}

fn identity() -> Identity {
    Identity {
        uuid: Uuid::nil(),
        macs: vec!["52:54:00:00:00:01".to_owned(), "52:54:00:00:00:02".to_owned()],
        stamp: Stamp {
            installation: "c".to_owned(),
            provider: HOSTILE.replace(['\u{1}', '\u{ffff}', '\r', '\n'], ""),
            owner: "o".to_owned(),
            created_at: "2026-01-01T00:00:00Z".to_owned(),
        },
    }
}

fn spec(firmware: Firmware) -> DomainSpec {
    let disk = |volume: &str, format, read_only| Disk {
        pool: HOSTILE.to_owned(),
        volume: volume.to_owned(),
        format,
        read_only,
    };
    DomainSpec {
        name: "pxab-o".to_owned(),
        title: HOSTILE.to_owned(),
        domain_type: None,
        vcpus: 2,
        memory_mib: 512,
        firmware,
        disks: vec![disk("pxab-o.disk", VolumeFormat::Qcow2, false), disk("pxab-o.seed", VolumeFormat::Raw, true)],
        networks: vec![HOSTILE.to_owned(), "lan".to_owned()],
        autostart: true,
    }
}

#[test]
fn hostile_texts_stay_texts() {
    let root = Element::parse(&domain(&spec(Firmware::Uefi), &identity(), &facts()).unwrap()).unwrap();
    assert_eq!((root.name.as_str(), root.attribute("type")), ("domain", Some("kvm")));
    assert_eq!(root.child("name").map(text_of).as_deref(), Some("pxab-o"));
    assert_eq!(root.child("title").map(text_of).as_deref(), Some(&*one_line(HOSTILE).replace('\u{ffff}', "\u{fffd}")));
    assert_eq!(root.all("domain").count(), 0);
    let devices = root.child("devices").unwrap();
    let sources: Vec<_> = devices.all("disk").filter_map(|disk| disk.child("source")).collect();
    let pool = HOSTILE.replace(['\u{1}', '\u{ffff}'], "\u{fffd}");
    assert_eq!(sources.iter().filter_map(|source| source.attribute("pool")).collect::<Vec<_>>(), [&pool, &pool]);
    let cards: Vec<_> =
        devices.all("interface").filter_map(|card| card.child("source")?.attribute("network")).collect();
    assert_eq!(cards, [pool.as_str(), "lan"]);
    assert_eq!(root.children.len(), 14, "{root:#?}");
}

#[test]
fn a_domain_has_what_every_one_has() {
    let root = Element::parse(&domain(&spec(Firmware::Uefi), &identity(), &facts()).unwrap()).unwrap();
    let os = root.child("os").unwrap();
    assert_eq!(os.attribute("firmware"), Some("efi"));
    assert_eq!(os.child("type").unwrap().attribute("machine"), Some("q35"));
    let features: Vec<_> =
        os.child("firmware").unwrap().all("feature").map(|f| (f.attribute("name"), f.attribute("enabled"))).collect();
    assert_eq!(features, [(Some("enrolled-keys"), Some("no")), (Some("secure-boot"), Some("no"))]);
    assert!(root.at(&["features", "acpi"]).is_some());
    let devices = root.child("devices").unwrap();
    let disks: Vec<_> = devices
        .all("disk")
        .map(|disk| {
            let driver = disk.child("driver").unwrap();
            (driver.attribute("type"), disk.child("target").unwrap().attribute("dev"), disk.child("readonly").is_some())
        })
        .collect();
    assert_eq!(disks, [(Some("qcow2"), Some("vda"), false), (Some("raw"), Some("vdb"), true)]);
    for name in ["serial", "console", "channel", "rng", "memballoon"] {
        assert!(devices.child(name).is_some(), "{name}");
    }
    assert!(devices.child("graphics").is_none() && devices.child("emulator").is_none());
    let bios = Element::parse(&domain(&spec(Firmware::Bios), &identity(), &facts()).unwrap()).unwrap();
    assert!(bios.child("os").unwrap().attribute("firmware").is_none());
    let emulated = DomainSpec { domain_type: Some("qemu".to_owned()), ..spec(Firmware::Bios) };
    let emulated = Element::parse(&domain(&emulated, &identity(), &facts()).unwrap()).unwrap();
    assert!(emulated.attribute("type") == Some("qemu") && emulated.child("cpu").is_none());
}

#[test]
fn a_volume_names_its_backing() {
    let backing = Backing { path: "/var/lib/<&>'/base".to_owned(), format: VolumeFormat::Qcow2 };
    let root = Element::parse(&volume("pxab-o.disk", VolumeFormat::Qcow2, 5 << 30, Some(&backing)).unwrap()).unwrap();
    assert_eq!(root.at(&["backingStore", "path"]).map(text_of).as_deref(), Some("/var/lib/<&>'/base"));
    assert_eq!(root.at(&["backingStore", "format"]).unwrap().attribute("type"), Some("qcow2"));
    assert_eq!(root.child("capacity").map(text_of).as_deref(), Some("5368709120"));
    let plain = Element::parse(&volume("a", VolumeFormat::Raw, 1, None).unwrap()).unwrap();
    assert!(plain.child("backingStore").is_none());
}
