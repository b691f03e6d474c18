//! The main job.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use proxy_operator_core::squid::PASSWORD_FILE;
use proxy_operator_harness::{FakeGuest, Proxying};
use serde_json::{Value, json};

use crate::support::guest::{status_through, until_on};
use crate::support::manifests::{provider, proxy, with};
use crate::support::{Folder, Ground, IMAGES, Operator, steady};

/// A fake guest whose squid runs by what the operator rendered into the machine's seed.
struct Rendered {
    _guest: FakeGuest,
    _files: tempfile::TempDir,
}

/// Reads the user-data of a seed as a machine would, and takes squid's files out of it.
fn as_rendered(ground: &Ground, domain: &str) -> Rendered {
    let seed = ground.file(&format!("{domain}.seed.img"));
    let read = Command::new("mcopy").arg("-i").arg(seed).args(["::user-data", "-"]).output().unwrap();
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    let document: Value = serde_saphyr::from_str(std::str::from_utf8(&read.stdout).unwrap()).unwrap();
    let file = |path: &str| {
        let all = document["write_files"].as_array().unwrap();
        all.iter().find(|file| file["path"] == path).map(|file| file["content"].as_str().unwrap().to_owned())
    };
    let folder = tempfile::Builder::new().prefix("e2e-kvm-squid-").tempdir().unwrap();
    let at = folder.path();
    std::fs::set_permissions(at, std::fs::Permissions::from_mode(0o777)).unwrap();
    let passwords = at.join("passwords");
    std::fs::write(&passwords, file(PASSWORD_FILE).expect("a password file")).unwrap();
    let rules =
        file("/etc/squid/squid.conf").expect("squid.conf").replace(PASSWORD_FILE, &passwords.display().to_string());
    // Where a machine has a whole disk, squids that share this one need places of their own.
    let places = format!(
        "pid_filename none\nnetdb_filename none\ncache_log {0}/cache.log\naccess_log stdio:{0}/access.log\n",
        at.display()
    );
    let conf = at.join("squid.conf");
    std::fs::write(&conf, rules + &places).unwrap();
    let guest = FakeGuest::up(ground.hypervisor, domain, &Proxying::Config(conf)).unwrap();
    Rendered { _guest: guest, _files: folder }
}

#[test]
fn two_proxies_serve_and_one_is_deleted_without_the_other() {
    let ground = Ground::new(steady(), "life");
    let services = ground.services();
    let folder = Folder::new();
    folder.usual_secret(ground.hypervisor);
    let by_uefi = json!({"url": IMAGES.url("empty.raw"), "firmware": "uefi"});
    folder.apply("provider", &with(provider("p", &ground), "/spec/config/images/uefi", by_uefi));
    let closed = |name: &str| {
        let access = json!({"allowPrivateDestinations": [ground.hypervisor.bridge_cidr]});
        with(proxy(name, "p", &services), "/spec/access", access)
    };
    folder.apply("one", &with(closed("one"), "/spec/image", json!("uefi")));
    folder.apply("two", &with(closed("two"), "/spec/access/allowFrom", json!([ground.hypervisor.bridge_cidr])));
    let operator = Operator::start(&folder);

    let (one, two) = (folder.domain("p", "default", "one"), folder.domain("p", "default", "two"));
    until_on(&folder, "one");
    until_on(&folder, "two");
    let guest = as_rendered(&ground, &one);
    let _other = as_rendered(&ground, &two);
    folder.until("both are Ready", 60, || folder.is_ready("one") && folder.is_ready("two"));

    // Credentials, where they are asked for.
    let target = &services.target;
    let (with_password, also) = (folder.connection("one"), folder.connection("two"));
    let address = |url: &str| format!("http://{}", url.rsplit_once('@').expect("credentials").1);
    let wrong = with_password.replace("http://proxy:", "http://proxy:not");
    assert_eq!(status_through(&with_password, target), 204);
    assert_eq!(status_through(&wrong, target), 407);
    assert_eq!(status_through(&address(&with_password), target), 407);
    assert_eq!(status_through(&also, target), 204);
    assert_eq!(status_through(&address(&also), target), 204, "its source is allowed without a password");

    // What `get` shows.
    let shown = folder.get_json(&["proxies"]);
    let items = shown["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{shown:#}");
    for item in items {
        assert_eq!(item["status"]["phase"], "Ready", "{item:#}");
        let endpoint = item["status"]["endpoint"].as_str().unwrap();
        assert_eq!(item["status"]["egressIP"], endpoint.rsplit_once(':').unwrap().0, "{item:#}");
    }
    let table = folder.get(&[]);
    assert_eq!(table.matches(" Ready ").count(), 2, "{table}");
    assert!(!table.contains(with_password.split(['/', '@']).nth(2).unwrap()), "a password in a table: {table}");

    // One goes, whole.
    assert!(ground.nvram(&one).exists());
    folder.remove("one");
    folder.until("one is gone", 60, || folder.proxy("one").is_none());
    assert_eq!(ground.domains(two.split_once('-').unwrap().0), std::slice::from_ref(&two));
    assert_eq!(ground.volumes_of_proxies(), [format!("{two}.disk.qcow2"), format!("{two}.seed.img")]);
    assert!(!ground.nvram(&one).exists());
    assert!(!folder.state().join("connections/one").exists());
    drop(guest);
    assert_eq!(status_through(&also, target), 204);
    assert!(folder.is_ready("two"));
    assert_eq!(
        folder.events("two").iter().filter(|(reason, _)| reason != "Provisioned" && reason != "Ready").count(),
        0
    );

    // Then the other.
    folder.remove("two");
    folder.until("two is gone", 60, || folder.proxy("two").is_none());
    assert_eq!(ground.domains(two.split_once('-').unwrap().0), Vec::<String>::new());
    assert_eq!(ground.volumes_of_proxies(), Vec::<String>::new());
    operator.stop();
}
