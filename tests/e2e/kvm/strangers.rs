//! Names that are taken: nobody's machine or volume is adopted, changed or deleted for another's.

use serde_json::json;

use crate::support::guest::{ON, until_on};
use crate::support::manifests::{provider, proxy, with};
use crate::support::{Folder, Ground, Operator, steady};

#[test]
fn two_proxies_of_one_name_in_two_namespaces_are_two_machines() {
    let ground = Ground::new(steady(), "namespaces");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(ground.hypervisor);
    folder.apply("provider", &provider("p", &ground));
    for namespace in ["a", "b"] {
        folder.apply(namespace, &with(proxy("one", "p", &services), "/metadata/namespace", json!(namespace)));
    }
    let _operator = Operator::start(&folder);
    let is_on = |namespace: &str| {
        let status = folder.proxy_in(namespace, "one").and_then(|proxy| proxy.status).unwrap_or_default();
        status
            .conditions
            .iter()
            .any(|condition| condition.type_ == "Provisioned" && ON.contains(&condition.reason.as_str()))
    };
    folder.until("both are on", 90, || is_on("a") && is_on("b"));
    let domains = ["a", "b"].map(|namespace| folder.domain("p", namespace, "one"));
    let other = ground.running_id(&domains[1]);
    assert_ne!(ground.uuid(&domains[0]), ground.uuid(&domains[1]));

    folder.remove("a");
    folder.until("the one of namespace a is gone", 60, || folder.proxy_in("a", "one").is_none());
    assert_eq!(ground.domains(domains[0].split_once('-').unwrap().0), [domains[1].clone()]);
    assert_eq!(ground.running_id(&domains[1]), other);
    assert!(folder.proxy_in("b", "one").is_some());
    folder.remove("b");
    folder.until("the one of namespace b is gone", 60, || folder.proxy_in("b", "one").is_none());
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new());
}

#[test]
fn a_strangers_domain_of_our_name_is_a_conflict_and_outlives_the_proxy() {
    let ground = Ground::new(steady(), "stranger");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(ground.hypervisor);
    let domain = folder.domain("p", "default", "one");
    ground.hypervisor.start_empty_domain(&domain, "52:54:00:0f:00:01").unwrap();
    let uuid = ground.uuid(&domain);

    folder.apply("provider", &provider("p", &ground));
    folder.apply("one", &proxy("one", "p", &services));
    let operator = Operator::start(&folder);
    folder.until("the conflict is said", 60, || folder.is_provisioned_as("one", &["NameTaken"]));
    let said = folder.proxy_condition("one", "Provisioned").unwrap().message;
    assert!(said.contains(&domain) && said.contains("left alone"), "{said}");
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new(), "nothing is made for it");

    folder.remove("one");
    folder.until("the Proxy is gone", 60, || folder.proxy("one").is_none());
    assert_eq!(ground.uuid(&domain), uuid);
    assert!(ground.hypervisor.virsh(&["domstate", &domain]).unwrap().contains("running"));
    operator.stop();
    ground.hypervisor.virsh(&["destroy", &domain]).unwrap();
}

#[test]
fn a_strangers_volume_of_our_disks_name_is_booted_by_nobody_and_is_kept_while_in_use() {
    let ground = Ground::new(steady(), "volume");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(ground.hypervisor);
    folder.apply("provider", &provider("p", &ground));
    let (free, used) = (folder.domain("p", "default", "free"), folder.domain("p", "default", "used"));
    let disk = |domain: &str| format!("{domain}.disk.qcow2");
    let virsh = |arguments: &[&str]| ground.hypervisor.virsh(arguments).unwrap();
    for domain in [&free, &used] {
        virsh(&["vol-create-as", &ground.pool, &disk(domain), "1M", "--format", "raw"]);
        std::fs::write(ground.file(&disk(domain)), "a stranger's").unwrap();
    }
    // A stranger's domain runs from the second.
    let path = virsh(&["vol-path", &disk(&used), "--pool", &ground.pool]);
    let xml = format!(
        "<domain type='qemu'><name>stranger</name><memory unit='MiB'>64</memory><os><type arch='x86_64' machine='q35'>hvm</type></os>\
         <devices><disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='{}'/><target dev='vda' bus='virtio'/></disk>\
         <memballoon model='none'/></devices></domain>",
        path.trim()
    );
    let file = ground.hypervisor.logs.join("stranger.xml");
    std::fs::write(&file, xml).unwrap();
    virsh(&["create", &file.display().to_string()]);

    folder.apply("free", &proxy("free", "p", &services));
    folder.apply("used", &proxy("used", "p", &services));
    let operator = Operator::start(&folder);
    until_on(&folder, "free");
    let made = std::fs::read(ground.file(&disk(&free))).unwrap();
    assert!(made.starts_with(b"QFI\xfb"), "an overlay of our own: no machine boots from a stranger's bytes");

    folder.until("what is in use is said to be", 60, || folder.is_provisioned_as("used", &["NameTaken"]));
    let kept = std::fs::read(ground.file(&disk(&used))).unwrap();
    assert!(kept.starts_with(b"a stranger's"));
    virsh(&["destroy", "stranger"]);
    folder.remove("free");
    folder.remove("used");
    folder.until("both are gone", 90, || folder.proxy("free").is_none() && folder.proxy("used").is_none());
    operator.stop();
}

#[test]
fn two_providers_and_two_installations_share_a_hypervisor_and_a_pool() {
    let ground = Ground::new(steady(), "shared");
    let services = ground.services();
    let folders = [Folder::new(), Folder::new()];
    for folder in &folders {
        folder.usual_secret(ground.hypervisor);
        for name in ["p", "q"] {
            folder.apply(&format!("provider-{name}"), &provider(name, &ground));
            folder.apply(&format!("of-{name}"), &proxy(&format!("of-{name}"), name, &services));
        }
    }
    let _operators = folders.each_ref().map(Operator::start);
    let mut all = vec![];
    for folder in &folders {
        for name in ["p", "q"] {
            until_on(folder, &format!("of-{name}"));
            all.push(folder.domain(name, "default", &format!("of-{name}")));
        }
    }
    let ids: Vec<_> = all.iter().map(|domain| ground.running_id(domain)).collect();
    let images = ground.volumes().into_iter().filter(|name| name.starts_with("base-")).count();
    assert_eq!(images, 2, "one base image and its marker serve all: {:?}", ground.volumes());

    // One of four goes; each of the others has all it had.
    folders[0].remove("of-p");
    folders[0].until("it is gone", 60, || folders[0].proxy("of-p").is_none());
    assert_eq!(ground.domains(&all[0]), Vec::<String>::new());
    let mut expected: Vec<_> =
        all[1..].iter().flat_map(|domain| [format!("{domain}.disk.qcow2"), format!("{domain}.seed.img")]).collect();
    expected.sort();
    assert_eq!(ground.volumes_of_proxies(), expected);
    assert_eq!(all[1..].iter().map(|domain| ground.running_id(domain)).collect::<Vec<_>>(), ids[1..]);

    for (folder, names) in folders.iter().zip([&["of-q"][..], &["of-p", "of-q"]]) {
        names.iter().for_each(|name| folder.remove(name));
        folder.until("the others are gone", 90, || names.iter().all(|name| folder.proxy(name).is_none()));
    }
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new());
}
