use proxy_operator_sdk::libvirt::{DomainState, Firmware, VolumeFormat};
use proxy_operator_sdk::{AddressSource, Error, ErrorCode, Instance, Phase};

use super::fake::{Content, Cut, Fake, address, assert_whole};
use super::{OWNER, at, config, ctx, name, spec};
use crate::create::create;
use crate::observe::get;

fn make(fake: &Fake) -> proxy_operator_sdk::Result<Instance> {
    create(fake, &ctx(), &config(), &at("hv1"), &spec())
}

#[test]
fn an_instance_is_made_in_one_call_when_its_image_is_there() {
    let fake = Fake::new(&["hv1"]);
    let made = make(&fake).unwrap();
    assert_eq!((made.phase, made.reason.as_str()), (Phase::Provisioning, "Booting"));
    assert_eq!(made.id, at("hv1").id);
    assert_whole(&fake, "hv1");
    fake.on("hv1", |machine| {
        let spec = machine.domains[&name()].spec.as_ref().unwrap();
        assert_eq!((spec.vcpus, spec.memory_mib, spec.firmware), (1, 512, Firmware::Bios));
        assert_eq!((spec.title.as_str(), spec.autostart), ("crawlers/crawl-1", true));
        assert_eq!((spec.domain_type.as_deref(), spec.networks.as_slice()), (None, ["lan".to_owned()].as_slice()));
        let disks: Vec<_> = spec.disks.iter().map(|d| (d.pool.as_str(), d.format, d.read_only)).collect();
        assert_eq!(disks, [("default", VolumeFormat::Qcow2, false), ("default", VolumeFormat::Raw, true)]);
        let Content::Made(disk) = &machine.volumes[&("default".to_owned(), format!("{}.disk.qcow2", name()))] else {
            panic!("the disk is an overlay")
        };
        assert_eq!(disk.capacity, 8 << 30);
        assert_eq!(disk.backing.as_deref(), Some("base-debian-12-0123456789ab.qcow2"));
    });
}

#[test]
fn a_create_goes_on_after_every_interruption() {
    let whole = Fake::new(&["hv1"]);
    make(&whole).unwrap();
    let calls = whole.with(|state| state.calls.len());
    let seed = ("default".to_owned(), format!("{}.seed.img", name()));
    let written = whole.on("hv1", |machine| machine.volumes[&seed].clone());
    for cut in [Cut::Before, Cut::Within, Cut::After] {
        // Cut once at each call, then once more while going on.
        for (first, second) in (0..calls).flat_map(|first| (0..calls).map(move |second| (first, second))) {
            let fake = Fake::new(&["hv1"]);
            fake.cut(first, cut);
            make(&fake).unwrap_err();
            match get(&fake, &ctx(), &at("hv1")) {
                Ok(seen) => assert_eq!(seen.id, at("hv1").id),
                Err(error) => assert_eq!(error.code, ErrorCode::NotFound, "{error:?}"),
            }
            fake.cut(second, cut);
            let _ = make(&fake);
            fake.with(|state| state.fuse = None);
            fake.on("hv1", |machine| machine.agent = Some(vec![address("192.0.2.7", AddressSource::Agent)]));
            make(&fake).unwrap();
            assert_eq!(make(&fake).unwrap().phase, Phase::Running, "{cut:?} at {first} and {second}");
            assert_whole(&fake, "hv1");
            fake.on("hv1", |machine| assert_eq!(machine.volumes[&seed], written, "the seed is whole"));
        }
    }
}

#[test]
fn an_image_on_its_way_is_told_and_its_pool_is_kept() {
    let fake = Fake::new(&["hv1"]);
    fake.on("hv1", |machine| machine.pending = 1);
    let pending = make(&fake).unwrap();
    assert_eq!((pending.phase, pending.reason.as_str()), (Phase::Provisioning, "ImageUploading"));
    assert_eq!(pending.percent, Some(42));
    assert!(fake.on("hv1", |machine| machine.volumes.is_empty()));
    // The image takes the space by which the pool was chosen.
    fake.on("hv1", |machine| machine.info.pools[0].available = 1 << 20);
    let mut again = at("hv1");
    again.private_state = pending.private_state;
    create(&fake, &ctx(), &config(), &again, &spec()).unwrap();
    assert!(fake.on("hv1", |machine| machine.volumes.keys().all(|(pool, _)| pool == "default")));
}

#[test]
fn a_disk_in_another_granted_pool_is_gone_on_with() {
    let fake = Fake::new(&["hv1"]);
    // Cut after the disk was made in the second pool, since the first one had no room.
    fake.on("hv1", |machine| machine.info.pools[0].available = 1 << 20);
    fake.cut(5, Cut::Before);
    make(&fake).unwrap_err();
    fake.with(|state| state.fuse = None);
    assert_eq!(fake.on("hv1", |machine| machine.volumes.len()), 1);
    fake.on("hv1", |machine| machine.info.pools[0].available = 30 << 30);
    make(&fake).unwrap();
    assert_whole(&fake, "hv1");
    assert!(fake.on("hv1", |machine| machine.volumes.keys().all(|(pool, _)| pool == "spare")));
}

#[test]
fn a_domain_that_is_off_is_started_with_its_seed_untouched() {
    let fake = Fake::new(&["hv1"]);
    make(&fake).unwrap();
    fake.on("hv1", |machine| machine.domains.get_mut(&name()).unwrap().domain.state = DomainState::ShutOff);
    let mut changed = spec();
    changed.cloud_init.user_data = b"#cloud-config\n{other: 1}\n".to_vec();
    changed.image = Some("unknown".to_owned());
    let started = create(&fake, &ctx(), &config(), &at("hv1"), &changed).unwrap();
    assert_eq!((started.phase, started.reason.as_str()), (Phase::Provisioning, "Booting"));
    assert_whole(&fake, "hv1");
}

#[test]
fn a_domain_that_is_not_off_is_not_started() {
    for state in [
        DomainState::Paused,
        DomainState::Suspended,
        DomainState::ShuttingDown,
        DomainState::Crashed,
        DomainState::Unknown,
    ] {
        let fake = Fake::new(&["hv1"]);
        fake.put("hv1", OWNER, state, Vec::new());
        make(&fake).unwrap();
        fake.with(|state| assert_eq!(state.calls, ["hv1 lookup-domain"]));
    }
}

#[test]
fn what_cannot_work_is_refused_before_anything_is_made() {
    type Change = fn(&mut proxy_operator_sdk::InstanceSpec);
    let cases: [(Change, &str, &str); 4] = [
        (|spec| spec.machine_type = Some("huge".to_owned()), "MachineTypeUnknown", "known: large, small"),
        (|spec| spec.image = Some("debian-11".to_owned()), "ImageUnknown", "known: debian-12, debian-13"),
        (|spec| spec.image = Some("ftp://a/b".to_owned()), "ImageInvalid", "ftp"),
        (|spec| spec.image = Some("https://u:secret@a/b".to_owned()), "ImageInvalid", "password"),
    ];
    for (change, reason, words) in cases {
        let fake = Fake::new(&["hv1"]);
        let mut spec = spec();
        change(&mut spec);
        let error = create(&fake, &ctx(), &config(), &at("hv1"), &spec).unwrap_err();
        assert_eq!((error.code, error.reason.as_str()), (ErrorCode::InvalidProxy, reason));
        assert!(error.message.contains(words) && !error.message.contains("secret"), "{}", error.message);
        fake.with(|state| assert_eq!(state.calls, ["hv1 lookup-domain"]));
    }
    let mut config = config();
    config.default_machine_type = None;
    let error = create(&Fake::new(&["hv1"]), &ctx(), &config, &at("hv1"), &spec()).unwrap_err();
    assert_eq!(error.reason, "MachineTypeMissing");
}

#[test]
fn an_image_by_url_boots_by_uefi_and_a_larger_image_keeps_its_size() {
    let fake = Fake::new(&["hv1"]);
    let mut spec = spec();
    spec.image = Some("https://images.example/own.qcow2".to_owned());
    let mut config = config();
    config.machine_types.get_mut("small").unwrap().disk_gib = 1;
    create(&fake, &ctx(), &config, &at("hv1"), &spec).unwrap();
    fake.on("hv1", |machine| {
        assert_eq!(machine.domains[&name()].spec.as_ref().unwrap().firmware, Firmware::Uefi);
        assert!(machine.volumes.values().any(|v| matches!(v, Content::Made(disk) if disk.capacity == 3 << 30)));
    });
}

#[test]
fn a_place_that_is_not_known_is_unresolvable_and_a_stranger_is_a_conflict() {
    let fake = Fake::new(&["hv1"]);
    let error = create(&fake, &ctx(), &config(), &at("hv2"), &spec()).unwrap_err();
    assert_eq!((error.code, error.reason.as_str()), (ErrorCode::Unresolvable, "HostNotGranted"));
    assert!(error.message.contains("granted: hv1"), "{}", error.message);

    let mut other = at("hv1");
    other.owner = "6f1a2b3c-0000-4000-8000-000000000002".to_owned();
    assert_eq!(create(&fake, &ctx(), &config(), &other, &spec()).unwrap_err().code, ErrorCode::Conflict);

    let taken = Error::conflict("NameTaken", "a stranger has the name");
    fake.on("hv1", |machine| machine.refuse.insert("lookup-domain", taken.clone()));
    assert_eq!(make(&fake).unwrap_err(), taken);
    assert!(fake.on("hv1", |machine| machine.volumes.is_empty()));
}

#[test]
fn what_the_host_says_is_passed_on() {
    let fake = Fake::new(&["hv1"]);
    let full = Error::exhausted("PoolFull", "no space left");
    fake.on("hv1", |machine| machine.refuse.insert("create-volume", full.clone()));
    assert_eq!(make(&fake).unwrap_err(), full);
}

#[test]
fn a_title_is_cut_between_characters() {
    let fake = Fake::new(&["hv1"]);
    let mut spec = spec();
    spec.display_name = "ä".repeat(100);
    create(&fake, &ctx(), &config(), &at("hv1"), &spec).unwrap();
    fake.on("hv1", |machine| assert_eq!(machine.domains[&name()].spec.as_ref().unwrap().title, "ä".repeat(64)));
}
