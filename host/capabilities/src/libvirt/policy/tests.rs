//! Names, grants and limits.

use super::*;
use proxy_operator_core::capability::libvirt::{Disk, Firmware, VolumeFormat};

fn scope() -> Scope {
    let grant = HostGrant {
        name: "hv1".to_owned(),
        pools: vec!["default".to_owned()],
        networks: vec!["lan".to_owned()],
        max_vcpus: Some(2),
        max_memory_mib: Some(1024),
        max_volume_size: Some(8 << 30),
    };
    Scope { identity: Arc::new(Identity::new("c1", "kvm-home")), grant: Arc::new(grant) }
}

fn spec(scope: &Scope) -> DomainSpec {
    let name = format!("{}o-1", scope.identity.name_prefix);
    let disk = Disk {
        pool: "default".to_owned(),
        volume: format!("{name}.disk"),
        format: VolumeFormat::Qcow2,
        read_only: false,
    };
    DomainSpec {
        name,
        title: "ns/p".to_owned(),
        domain_type: None,
        vcpus: 1,
        memory_mib: 512,
        firmware: Firmware::Bios,
        disks: vec![disk],
        networks: vec!["lan".to_owned()],
        autostart: false,
    }
}

#[test]
fn only_our_own_names_pass() {
    let scope = scope();
    let prefix = &scope.identity.name_prefix;
    assert_eq!(scope.owner(&format!("{prefix}o-1")).unwrap(), "o-1");
    assert_eq!(scope.volume_owner(&format!("{prefix}o-1.disk")).unwrap(), (&*format!("{prefix}o-1"), "o-1"));
    let other = Identity::new("c1", "kvm-other").name_prefix;
    for name in [
        format!("{other}o-1"),
        prefix.clone(),
        format!("{prefix}O"),
        format!("{prefix}a.b"),
        format!("{prefix}../x"),
        "vm".to_owned(),
    ] {
        let error = scope.owner(&name).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::PermissionDenied, "NameForeign"), "{name}");
    }
    for name in [
        format!("{prefix}o-1"),
        format!("{prefix}o-1."),
        format!("{prefix}o-1.a..b"),
        format!("{prefix}o-1.a..b"),
        "base-x.qcow2".to_owned(),
    ] {
        assert_eq!(scope.volume_owner(&name).unwrap_err().reason, "NameForeign", "{name}");
    }
}

#[test]
fn a_denial_says_what_was_asked_and_what_would_allow_it() {
    let error = scope().pool("fast").unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::PermissionDenied, "GrantMissing"));
    for words in ["kvm-home", "\"fast\"", "spec.grants.libvirt.hosts.hv1.pools"] {
        assert!(error.message.contains(words), "{error}");
    }
    assert!(scope().network("wan").unwrap_err().message.contains("hosts.hv1.networks"));
}

#[test]
fn limits_hold() {
    let scope = scope();
    assert!(scope.domain(&spec(&scope)).is_ok());
    let error = scope.domain(&DomainSpec { vcpus: 3, ..spec(&scope) }).unwrap_err();
    assert!(
        error.reason == "GrantExceeded"
            && error.message.contains("3 virtual CPUs")
            && error.message.contains("limits.vcpus"),
        "{error}"
    );
    let error = scope.domain(&DomainSpec { memory_mib: 1025, ..spec(&scope) }).unwrap_err();
    assert!(error.reason == "GrantExceeded" && error.message.contains("1024 MiB"), "{error}");
    assert!(scope.volume_size(8 << 30).is_ok());
    assert_eq!(scope.volume_size((8 << 30) + 1).unwrap_err().reason, "GrantExceeded");
}

#[test]
fn disks_are_of_the_domain_or_base_images_that_are_read_only() {
    let scope = scope();
    let with = |volume: String, read_only| {
        let disk = Disk { pool: "default".to_owned(), volume, format: VolumeFormat::Qcow2, read_only };
        scope.domain(&DomainSpec { disks: vec![disk], ..spec(&scope) })
    };
    assert!(with("base-debian-12-0123456789ab.qcow2".to_owned(), true).is_ok());
    assert_eq!(with("base-debian-12-0123456789ab.qcow2".to_owned(), false).unwrap_err().reason, "NameForeign");
    assert_eq!(with(format!("{}o-2.disk", scope.identity.name_prefix), true).unwrap_err().reason, "NameForeign");
    assert_eq!(with("/etc/shadow".to_owned(), true).unwrap_err().reason, "NameForeign");
    let pool = Disk {
        pool: "other".to_owned(),
        volume: format!("{}o-1.disk", scope.identity.name_prefix),
        format: VolumeFormat::Raw,
        read_only: false,
    };
    assert_eq!(scope.domain(&DomainSpec { disks: vec![pool], ..spec(&scope) }).unwrap_err().reason, "GrantMissing");
    assert_eq!(
        scope.domain(&DomainSpec { networks: vec!["wan".to_owned()], ..spec(&scope) }).unwrap_err().reason,
        "GrantMissing"
    );
}

#[test]
fn a_stamp_of_another_is_not_ours() {
    let scope = scope();
    let stamp = Stamp {
        installation: "c1".to_owned(),
        provider: "kvm-home".to_owned(),
        owner: "o-1".to_owned(),
        created_at: String::new(),
    };
    assert!(scope.is_stamp_ours(&stamp, "o-1"));
    assert!(!scope.is_stamp_ours(&stamp, "o-2"));
    assert!(!scope.is_stamp_ours(&Stamp { installation: "c2".to_owned(), ..stamp.clone() }, "o-1"));
    assert!(!scope.is_stamp_ours(&Stamp { provider: "x".to_owned(), ..stamp }, "o-1"));
}
