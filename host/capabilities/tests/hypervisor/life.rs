//! Volumes and domains, from nothing to gone.

use proxy_operator_capabilities::libvirt::policy::Identity;
use proxy_operator_capabilities::libvirt::seam::Seam;
use proxy_operator_core::capability::libvirt::{DomainState, Firmware, Libvirt, VolumeFormat, VolumeSpec};
use proxy_operator_core::error::ErrorCode;
use proxy_operator_core::provider::AddressSource;
use proxy_operator_core::sensitive::Sensitive;
use proxy_operator_harness::{FakeGuest, Proxying, shared};

use super::support::{Bench, HOST, calls};

const MIB: u64 = 1 << 20;

fn qcow2(capacity: u64, backing: Option<&str>) -> VolumeSpec {
    VolumeSpec { format: VolumeFormat::Qcow2, capacity, backing: backing.map(str::to_owned) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_lives_and_leaves_nothing() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "life");
    let libvirt = &bench.libvirt;
    let info = libvirt.info(HOST).await.unwrap();
    assert!(info.version.starts_with("libvirt ") && info.version.contains("QEMU "), "{info:?}");
    assert_eq!((info.arch.as_str(), info.domain_types.as_slice()), ("x86_64", &["qemu".to_owned()][..]));
    assert_eq!(info.firmwares, [Firmware::Bios, Firmware::Uefi]);
    assert!(info.pools.iter().all(|pool| pool.active && pool.available > 0), "{info:?}");
    assert!(info.missing_networks.is_empty() && info.cpus > 0 && info.free_memory_mib > 0 && info.uuid.len() == 36);

    let base = "base-life-0123456789ab.qcow2";
    hypervisor.virsh(&["vol-create-as", "default", base, "16M", "--format", "qcow2"]).unwrap();
    // One that is not whole comes into nobody's use.
    let early = libvirt
        .create_volume(HOST, "default", &format!("{}.disk", bench.name("o-1")), &qcow2(64 * MIB, Some(base)))
        .await;
    assert_eq!(early.unwrap_err().reason, "ImageNotReady");
    hypervisor.virsh(&["vol-create-as", "default", &format!("{base}.complete"), "1K"]).unwrap();
    for firmware in [Firmware::Bios, Firmware::Uefi] {
        let name = bench.name("o-1");
        let (disk, seed) = (format!("{name}.disk"), format!("{name}.seed"));
        for _ in 0..2 {
            libvirt.create_volume(HOST, "default", &disk, &qcow2(64 * MIB, Some(base))).await.unwrap();
            libvirt.write_volume(HOST, "default", &seed, Sensitive::new(vec![7; 70_000])).await.unwrap();
        }
        // Another size: made anew. Another content: overwritten.
        libvirt.create_volume(HOST, "default", &disk, &qcow2(128 * MIB, Some(base))).await.unwrap();
        let content: Vec<u8> = (0..1_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        libvirt.write_volume(HOST, "default", &seed, Sensitive::new(content.clone())).await.unwrap();
        assert!(std::fs::read(hypervisor.pool_dir.join(&seed)).unwrap().starts_with(&content));
        let volumes = libvirt.list_volumes(HOST, Some(&name)).await.unwrap();
        assert_eq!(volumes.iter().map(|volume| volume.name.as_str()).collect::<Vec<_>>(), [&disk, &seed]);
        assert!(volumes.iter().all(|volume| volume.owner == "o-1" && volume.domain == name));

        assert_eq!(libvirt.lookup_domain(HOST, &name).await.unwrap(), None);
        assert_eq!(libvirt.start_domain(HOST, &name).await.unwrap_err().reason, "DomainMissing");
        let mut spec = bench.spec("o-1");
        spec.firmware = firmware;
        spec.autostart = true;
        spec.disks.push(proxy_operator_core::capability::libvirt::Disk {
            pool: "default".to_owned(),
            volume: seed.clone(),
            format: VolumeFormat::Raw,
            read_only: true,
        });
        let defined = libvirt.define_domain(HOST, &spec).await.unwrap();
        assert_eq!(defined.state, DomainState::ShutOff);
        assert!(defined.created_at.as_ref().is_some_and(|at| at.starts_with("20") && at.ends_with('Z')), "{defined:?}");
        assert_eq!(libvirt.define_domain(HOST, &spec).await.unwrap(), defined);
        for _ in 0..2 {
            libvirt.start_domain(HOST, &name).await.unwrap();
        }
        let running = libvirt.lookup_domain(HOST, &name).await.unwrap().unwrap();
        assert_eq!((running.state, running.owner.as_str()), (DomainState::Running, "o-1"));
        assert_eq!(libvirt.list_domains(HOST).await.unwrap(), [running]);
        assert_eq!(libvirt.agent_addresses(HOST, &name).await.unwrap(), None);
        assert_eq!(libvirt.neighbour_addresses(HOST, &name).await.unwrap(), []);

        let in_use = libvirt.write_volume(HOST, "default", &seed, Sensitive::new(vec![1])).await.unwrap_err();
        assert_eq!((in_use.code, in_use.reason.as_str()), (ErrorCode::Unavailable, "VolumeInUse"));
        assert_eq!(libvirt.delete_volume(HOST, "default", &disk).await.unwrap_err().reason, "VolumeInUse");
        let differs = libvirt.create_volume(HOST, "default", &disk, &qcow2(64 * MIB, Some(base))).await;
        assert_eq!(differs.unwrap_err().reason, "VolumeInUse");
        assert_eq!(libvirt.undefine_domain(HOST, &name).await.unwrap_err().reason, "DomainRunning");

        for _ in 0..2 {
            libvirt.destroy_domain(HOST, &name).await.unwrap();
        }
        for _ in 0..2 {
            libvirt.undefine_domain(HOST, &name).await.unwrap();
            libvirt.destroy_domain(HOST, &name).await.unwrap();
        }
        for volume in [&disk, &seed, &disk] {
            libvirt.delete_volume(HOST, "default", volume).await.unwrap();
        }
        assert_eq!(libvirt.list_domains(HOST).await.unwrap(), []);
        assert_eq!(libvirt.list_volumes(HOST, None).await.unwrap(), []);
        assert!(
            hypervisor.run(&["sh", "-c", "ls /var/lib/libvirt/qemu/nvram 2>/dev/null || true"]).unwrap().is_empty()
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_are_seen_and_left_alone() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "strangers");
    let identity = Identity::new(bench.identity.cluster_id.clone(), "strangers-2");
    let other = bench.hypervisors.granted(identity, &bench.grant);
    let name = bench.name("o-1");
    hypervisor.start_empty_domain(&name, "52:54:00:aa:00:01").unwrap();
    let taken = bench.libvirt.lookup_domain(HOST, &name).await.unwrap_err();
    assert_eq!((taken.code, taken.reason.as_str()), (ErrorCode::Conflict, "NameTaken"), "{taken}");
    assert_eq!(bench.libvirt.define_domain(HOST, &bench.spec("o-1")).await.unwrap_err().reason, "NameTaken");
    assert_eq!(bench.libvirt.start_domain(HOST, &name).await.unwrap_err().reason, "NameTaken");
    bench.libvirt.destroy_domain(HOST, &name).await.unwrap();
    bench.libvirt.undefine_domain(HOST, &name).await.unwrap();
    assert_eq!(bench.libvirt.list_domains(HOST).await.unwrap(), []);
    assert!(hypervisor.virsh(&["domstate", &name]).unwrap().contains("running"));
    hypervisor.virsh(&["destroy", &name]).unwrap();

    // A stamp that somebody took away makes a stranger of it.
    bench.libvirt.define_domain(HOST, &bench.spec("o-2")).await.unwrap();
    let name = bench.name("o-2");
    let uri = "https://crawl.example.com/xmlns/proxy-operator/1";
    hypervisor.virsh(&["metadata", &name, "--uri", uri, "--remove", "--config"]).unwrap();
    assert_eq!(bench.libvirt.lookup_domain(HOST, &name).await.unwrap_err().reason, "NameTaken");
    bench.libvirt.undefine_domain(HOST, &name).await.unwrap();
    hypervisor.virsh(&["undefine", &name]).unwrap();

    // Two Providers on one hypervisor.
    bench.libvirt.define_domain(HOST, &bench.spec("o-3")).await.unwrap();
    assert_eq!(other.list_domains(HOST).await.unwrap(), []);
    for refused in [
        other.destroy_domain(HOST, &bench.name("o-3")).await,
        other.undefine_domain(HOST, &bench.name("o-3")).await,
        other.delete_volume(HOST, "default", &format!("{}.disk", bench.name("o-3"))).await,
    ] {
        let refused = refused.unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (ErrorCode::PermissionDenied, "NameForeign"));
    }
    bench.libvirt.undefine_domain(HOST, &bench.name("o-3")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_gives_the_address() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "lease");
    let (libvirt, name) = (&bench.libvirt, bench.name("o-1"));
    libvirt.create_volume(HOST, "default", &format!("{name}.disk"), &qcow2(16 * MIB, None)).await.unwrap();
    libvirt.define_domain(HOST, &bench.spec("o-1")).await.unwrap();
    libvirt.start_domain(HOST, &name).await.unwrap();
    assert_eq!(libvirt.lookup_domain(HOST, &name).await.unwrap().unwrap().addresses, []);
    let guest = FakeGuest::up(hypervisor, &name, &Proxying::Open).unwrap();
    let addresses = libvirt.lookup_domain(HOST, &name).await.unwrap().unwrap().addresses;
    assert_eq!(addresses.len(), 1, "{addresses:?}");
    assert_eq!(
        (addresses[0].host.as_str(), addresses[0].source),
        (guest.address.to_string().as_str(), AddressSource::Lease)
    );
    assert_eq!(libvirt.list_domains(HOST).await.unwrap()[0].addresses, addresses);
    let neighbours = libvirt.neighbour_addresses(HOST, &name).await.unwrap();
    assert!(neighbours.iter().all(|address| address.host == addresses[0].host), "{neighbours:?}");
    libvirt.destroy_domain(HOST, &name).await.unwrap();
    assert_eq!(libvirt.lookup_domain(HOST, &name).await.unwrap().unwrap().addresses, []);
    libvirt.undefine_domain(HOST, &name).await.unwrap();
    libvirt.delete_volume(HOST, "default", &format!("{name}.disk")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_number_of_calls_does_not_grow_with_domains() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "numbers");
    let libvirt = &bench.libvirt;
    // A host of a name of its own in the log.
    let mut grant = bench.grant.clone();
    let host = grant.hosts.remove(HOST).unwrap();
    grant.hosts.insert("counted".to_owned(), host);
    let counted = bench.hypervisors.granted(bench.identity.clone(), &grant);
    let counts = async || {
        let start = calls().count();
        counted.info("counted").await.unwrap();
        let middle = calls().count();
        let listed = counted.list_domains("counted").await.unwrap().len();
        let ours = |lines: Vec<super::support::Line>| {
            lines.iter().filter(|line| line.0.get("host").is_some_and(|host| host == "counted")).count()
        };
        let (all, list) = (calls().since(start), calls().since(middle));
        (listed, ours(all) - ours(list.clone()), ours(list))
    };
    let name = bench.name("o-0");
    libvirt.create_volume(HOST, "default", &format!("{name}.disk"), &qcow2(16 * MIB, None)).await.unwrap();
    libvirt.define_domain(HOST, &bench.spec("o-0")).await.unwrap();
    libvirt.start_domain(HOST, &name).await.unwrap();
    let (one, info, list) = counts().await;
    for owner in 1..30 {
        libvirt.define_domain(HOST, &bench.spec(&format!("o-{owner}"))).await.unwrap();
    }
    let (many, info_many, list_many) = counts().await;
    assert_eq!((one, many), (1, 30));
    assert_eq!((info, list), (info_many, list_many));
    println!("calls: info {info}, list {list}");
    assert!(info <= 10 && list <= 3, "info {info}, list {list}");
    libvirt.destroy_domain(HOST, &name).await.unwrap();
    for owner in 0..30 {
        libvirt.undefine_domain(HOST, &bench.name(&format!("o-{owner}"))).await.unwrap();
    }
    libvirt.delete_volume(HOST, "default", &format!("{name}.disk")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_that_went_behind_the_pools_back() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "stale");
    let libvirt = &bench.libvirt;
    let volume = format!("{}.disk", bench.name("o-1"));
    let file = hypervisor.pool_dir.join(&volume);
    let spec = qcow2(16 * MIB, None);
    for again in 0..3 {
        libvirt.create_volume(HOST, "default", &volume, &spec).await.unwrap();
        std::fs::remove_file(&file).unwrap();
        match again {
            0 => libvirt.delete_volume(HOST, "default", &volume).await.unwrap(),
            1 => libvirt.create_volume(HOST, "default", &volume, &spec).await.unwrap(),
            _ => libvirt.write_volume(HOST, "default", &volume, Sensitive::new(vec![1; 600])).await.unwrap(),
        }
        assert_eq!(file.exists(), again > 0);
    }
    libvirt.delete_volume(HOST, "default", &volume).await.unwrap();
    // A file that the pool has not seen.
    std::fs::write(&file, "leftover").unwrap();
    libvirt.create_volume(HOST, "default", &volume, &spec).await.unwrap();
    assert!(std::fs::read(&file).unwrap().starts_with(b"QFI"));
    libvirt.delete_volume(HOST, "default", &volume).await.unwrap();
    let too_small = qcow2(8 * MIB, Some("base-stale-0123456789ab.qcow2"));
    hypervisor
        .virsh(&["vol-create-as", "default", "base-stale-0123456789ab.qcow2", "16M", "--format", "qcow2"])
        .unwrap();
    hypervisor.virsh(&["vol-create-as", "default", "base-stale-0123456789ab.qcow2.complete", "1K"]).unwrap();
    assert_eq!(libvirt.create_volume(HOST, "default", &volume, &too_small).await.unwrap_err().reason, "DiskTooSmall");
    // A pool that does not exist.
    let mut grant = bench.grant.clone();
    grant.hosts.values_mut().for_each(|host| host.pools = vec!["nowhere".to_owned()]);
    let without = bench.hypervisors.granted(bench.identity.clone(), &grant);
    without.delete_volume(HOST, "nowhere", &volume).await.unwrap();
    assert_eq!(without.list_volumes(HOST, None).await.unwrap(), []);
    let missing = without.create_volume(HOST, "nowhere", &volume, &spec).await.unwrap_err();
    assert_eq!((missing.code, missing.reason.as_str()), (ErrorCode::InvalidConfig, "PoolMissing"));
    assert!(!without.info(HOST).await.unwrap().pools[0].active);
}

/// What the images capability stands on: a volume is streamed up and its head read back.
#[tokio::test(flavor = "multi_thread")]
async fn megabytes_are_uploaded_and_read_back() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "upload");
    let (host, shared) = bench.libvirt.host(HOST).unwrap();
    let call = bench.libvirt.terms(host, std::time::Duration::from_secs(60));
    let length = 40 * MIB;
    let head = shared.uploads.call(&call, move |session| {
        let seam: &dyn Seam = session.seam;
        let pool = seam.pool("default")?;
        let xml = "<volume><name>base-upload-0123456789ab.raw</name><capacity unit='bytes'>41943040</capacity><allocation>0</allocation><target><format type='raw'/></target></volume>";
        let volume = seam.volume_create(&pool, xml)?;
        seam.volume_upload(&volume, length, &mut std::io::Read::take(std::io::repeat(b'x'), length))?;
        let head = seam.volume_download(&volume, 300_000)?;
        seam.volume_delete(&volume)?;
        Ok(head)
    });
    let head = head.await.unwrap();
    assert!(head.len() == 300_000 && head.iter().all(|byte| *byte == b'x'), "{}", head.len());
    assert!(shared.uploads.is_up() && !shared.calls.is_up(), "the upload has a connection of its own");
}

/// A plugin that chooses the bytes of a disk cannot make the hypervisor open a file of its own.
#[tokio::test(flavor = "multi_thread")]
async fn no_disk_opens_a_file_of_the_hypervisor() {
    let hypervisor = shared("hvcap").unwrap();
    let bench = Bench::new(hypervisor, "escape");
    let (libvirt, spec) = (&bench.libvirt, bench.spec("o-1"));
    let volume = spec.disks[0].volume.clone();
    let file = hypervisor.pool_dir.join(&volume);
    let evil = hypervisor.pool_dir.join("evil.qcow2");
    let image = |arguments: &[&str]| {
        assert!(std::process::Command::new("qemu-img").args(arguments).output().unwrap().status.success());
        std::fs::read(&evil).unwrap()
    };
    let path = evil.to_string_lossy().into_owned();
    let backed = image(&["create", "-q", "-f", "qcow2", "-u", "-b", "/etc/shadow", "-F", "raw", &path, "16M"]);
    let data = format!("data_file={}/data", hypervisor.pool_dir.display());
    let external = image(&["create", "-q", "-f", "qcow2", "-o", &data, &path, "16M"]);
    for content in [backed, external] {
        let refused =
            libvirt.write_volume(HOST, "default", &volume, Sensitive::new(content.clone())).await.unwrap_err();
        assert_eq!((refused.code, refused.reason.as_str()), (ErrorCode::PermissionDenied, "VolumeRefused"));
        // In two parts that are harmless alone.
        let mut head = content.clone();
        head[..3].copy_from_slice(b"XXX");
        libvirt.write_volume(HOST, "default", &volume, Sensitive::new(head)).await.unwrap();
        libvirt.write_volume(HOST, "default", &volume, Sensitive::new(b"QFI".to_vec())).await.unwrap();
        assert!(!std::fs::read(&file).unwrap().starts_with(b"QFI\xfb"));
        libvirt.delete_volume(HOST, "default", &volume).await.unwrap();
        // As a guest would, from within a raw disk.
        let raw = VolumeSpec { format: VolumeFormat::Raw, capacity: 16 * MIB, backing: None };
        libvirt.create_volume(HOST, "default", &volume, &raw).await.unwrap();
        std::os::unix::fs::FileExt::write_all_at(
            &std::fs::File::options().write(true).open(&file).unwrap(),
            &content,
            0,
        )
        .unwrap();
        let refused = libvirt.define_domain(HOST, &spec).await.unwrap_err();
        assert_eq!(
            (refused.code, refused.reason.as_str()),
            (ErrorCode::PermissionDenied, "VolumeRefused"),
            "{refused}"
        );
        let overlay = qcow2(16 * MIB, Some(&volume));
        let other = format!("{}.top", spec.name);
        assert_eq!(libvirt.create_volume(HOST, "default", &other, &overlay).await.unwrap_err().reason, "NameForeign");
        libvirt.delete_volume(HOST, "default", &volume).await.unwrap();
    }
}
