//! What users get wrong: each is said once, where it stands, with what would be right, and costs nobody else anything.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::support::guest::bring_up;
use crate::support::manifests::{provider, proxy, with, without};
use crate::support::{Folder, Ground, IMAGES, Operator, steady};

/// Where it is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    /// A fault of the manifest of the Proxy, and no object.
    ProxyManifest,
    /// A fault of the manifest of the Provider, and no object.
    ProviderManifest,
    /// The condition `Loaded` of the Provider.
    Loaded,
    /// The condition `Healthy` of the Provider.
    Healthy,
    /// The condition `Provisioned` of the Proxy.
    Provisioned,
}

/// Something wrong.
struct Case {
    /// The name of its Provider and of its Proxy.
    name: &'static str,
    provider: Value,
    proxy: Value,
    at: At,
    /// The condition's reason.
    reason: &'static str,
    /// What the message has to name: field, value, fix.
    words: Vec<String>,
}

const HOST: &str = "/spec/grants/libvirt/hosts/hv";

fn cases(ground: &Ground, services: &proxy_operator_harness::Services) -> Vec<Case> {
    let mut cases = vec![];
    let mut case = |name: &'static str,
                    at: At,
                    reason: &'static str,
                    words: &[&str],
                    change: &dyn Fn(Value) -> Value,
                    change_proxy: &dyn Fn(Value) -> Value| {
        let provider = change(provider(name, ground));
        let proxy = change_proxy(proxy(name, name, services));
        let words = words.iter().map(ToString::to_string).collect();
        cases.push(Case { name, provider, proxy, at, reason, words });
    };
    let same = |object: Value| object;
    let set = |pointer: &'static str, value: Value| move |object: Value| with(object, pointer, value.clone());
    let image = |file: &'static str| {
        move |object: Value| {
            with(
                object,
                "/spec/config/images/empty",
                json!({"url": IMAGES.url(file), "digest": IMAGES.digest(file), "firmware": "bios"}),
            )
        }
    };

    // Manifests.
    let mut host_renamed = provider("host-name", ground);
    let host = host_renamed.pointer_mut(HOST).unwrap().take();
    host_renamed = with(host_renamed, "/spec/grants/libvirt/hosts", json!({"hv/1": host}));
    case(
        "host-name",
        At::ProviderManifest,
        "",
        &["spec.grants.libvirt.hosts[\"hv/1\"]", "identifier", "lower-case"],
        &|_| host_renamed.clone(),
        &same,
    );
    case(
        "unknown-field",
        At::ProxyManifest,
        "",
        &["machinetype", "machineType"],
        &same,
        &set("/spec/machinetype", json!("small")),
    );
    case("port", At::ProxyManifest, "", &["spec.port", "70000"], &same, &set("/spec/port", json!(70000)));

    // Config and grants.
    case(
        "schema",
        At::Loaded,
        "ConfigInvalid",
        &["machineTypes", "small", "vcpus", "many"],
        &set("/spec/config/machineTypes/small/vcpus", json!("many")),
        &same,
    );
    case(
        "unknown-config",
        At::Loaded,
        "ConfigInvalid",
        &["machinesTypes"],
        &set("/spec/config/machinesTypes", json!({})),
        &same,
    );
    case(
        "no-libvirt",
        At::Provisioned,
        "GrantInvalid",
        &["grants.libvirt"],
        &|object| without(object, "/spec/grants/libvirt"),
        &same,
    );
    case(
        "no-images",
        At::Provisioned,
        "GrantMissing",
        &["images.ensure", "spec.grants.images"],
        &|object| without(object, "/spec/grants/images"),
        &same,
    );
    case(
        "machine-type",
        At::Provisioned,
        "MachineTypeUnknown",
        &["spec.machineType", "huge", "known: small"],
        &same,
        &set("/spec/machineType", json!("huge")),
    );

    // Images.
    let wrong = format!("sha256:{}", "0".repeat(64));
    case(
        "digest",
        At::Provisioned,
        "ImageDigestMismatch",
        &["sha256:00000", &IMAGES.digest("empty.raw")],
        &set("/spec/config/images/empty/digest", json!(wrong)),
        &same,
    );
    case(
        "truncated",
        At::Provisioned,
        "ImageUnusable",
        &["image empty", "100 bytes", "cut off"],
        &image("truncated.qcow2"),
        &same,
    );
    case(
        "backed",
        At::Provisioned,
        "ImageUnusable",
        &["image empty", "backing file", "qemu-img convert"],
        &image("backed.qcow2"),
        &same,
    );

    // Hosts and keys.
    case(
        "unreachable",
        At::Healthy,
        "HostUnreachable",
        &["ssh://operator@127.0.0.1:9", "refused"],
        &set("/spec/grants/libvirt/hosts/hv/address", json!("ssh://operator@127.0.0.1:9")),
        &same,
    );
    let secret = |name: &'static str| set("/spec/grants/libvirt/hosts/hv/secret", json!(name));
    let port = ground.hypervisor.ssh_port.to_string();
    case(
        "unknown-key",
        At::Healthy,
        "HostKeyUnknown",
        &["unknown-key", "known_hosts", "SHA256:", "ssh-keyscan", &port],
        &secret("unknown-key"),
        &same,
    );
    case(
        "other-key",
        At::Healthy,
        "HostKeyMismatch",
        &["other-key", "known_hosts", "SHA256:", &port],
        &secret("other-key"),
        &same,
    );
    case(
        "passphrase",
        At::Healthy,
        "CredentialsInvalid",
        &["passphrase", "ssh-privatekey", "ssh-keygen -p"],
        &secret("passphrase"),
        &same,
    );
    case(
        "refused-key",
        At::Healthy,
        "AuthenticationFailed",
        &["refused-key", "ssh-privatekey", "authorized_keys", "operator"],
        &secret("refused-key"),
        &same,
    );
    case(
        "pool",
        At::Healthy,
        "PoolMissing",
        &["nowhere", "hv", "pool-start"],
        &set("/spec/grants/libvirt/hosts/hv/pools", json!(["nowhere"])),
        &same,
    );
    case(
        "network",
        At::Healthy,
        "NetworkMissing",
        &["nonet", "hv", "net-start"],
        &set("/spec/grants/libvirt/hosts/hv/networks", json!(["nonet"])),
        &same,
    );
    cases
}

/// The Secrets of the cases, each called as its case.
fn secrets(folder: &Folder, ground: &Ground) {
    let keys = &ground.hypervisor.keys;
    folder.usual_secret(ground.hypervisor);
    folder.ssh_secret("passphrase", &keys.encrypted, &ground.hypervisor.known_hosts);
    folder.ssh_secret("refused-key", &keys.stranger, &ground.hypervisor.known_hosts);
    let known = std::fs::read_to_string(&ground.hypervisor.known_hosts).unwrap();
    let elsewhere = known.replace("[127.0.0.1]:", "[192.0.2.1]:");
    folder.ssh_secret_with("unknown-key", &keys.ed25519, &elsewhere);
    // The machine's name, and the key of a user in the place of the machine's.
    let stranger = std::fs::read_to_string(keys.stranger.with_extension("pub")).unwrap();
    let key: Vec<&str> = stranger.split(' ').take(2).collect();
    let other = format!("[127.0.0.1]:{} {}\n", ground.hypervisor.ssh_port, key.join(" "));
    folder.ssh_secret_with("other-key", &keys.ed25519, &other);
}

#[test]
fn what_is_wrong_is_said_once_where_it_stands_and_costs_nobody_else() {
    let ground = Ground::new(steady(), "faults");
    let services = ground.services();
    let folder = Folder::new();
    secrets(&folder, &ground);
    let cases = cases(&ground, &services);
    for case in &cases {
        folder.apply(&format!("{}-provider", case.name), &case.provider);
        folder.apply(&format!("{}-proxy", case.name), &case.proxy);
    }
    folder.apply_text(
        "cut",
        "apiVersion: crawl.example.com/v1alpha1\nkind: Proxy\nmetadata:\n  name: cut\nspec: {provider: [\n",
    );
    folder.apply("good-provider", &provider("good", &ground));
    folder.apply("good-proxy", &proxy("good", "good", &services));
    let operator = Operator::start(&folder);
    let guest = bring_up(&folder, &ground, "good", "good");

    let mut failures = vec![];
    let cut = folder.faults().into_iter().find(|fault| fault.place.starts_with("cut.yaml"));
    if !cut.as_ref().is_some_and(|fault| fault.message.contains("does not parse") && fault.key.is_some()) {
        failures.push(format!("cut: {cut:?}"));
    }
    for case in &cases {
        if let Err(why) = check(&folder, case) {
            failures.push(format!("{}: {why}", case.name));
        }
    }
    assert!(failures.is_empty(), "{}\n\n{}\n{}", failures.join("\n"), folder.get(&[]), folder.log());

    // Nothing half made, but what is good.
    let good = folder.domain("good", "default", "good");
    let prefixes = cases.iter().map(|case| folder.domain(case.name, "default", case.name));
    for domain in prefixes {
        assert_eq!(ground.domains(&domain), Vec::<String>::new());
    }
    assert_eq!(ground.volumes_of_proxies(), [format!("{good}.disk.qcow2"), format!("{good}.seed.img")]);
    assert_eq!(ground.volumes().iter().filter(|name| name.starts_with("base-")).count(), 2, "{:?}", ground.volumes());

    // Each is said once, not at each attempt.
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for line in folder.log().lines().filter(|line| line.contains(" ERROR ") || line.contains(" WARN ")) {
        let words = line.split_once(" ERROR ").or(line.split_once(" WARN ")).unwrap().1.to_owned();
        *told.entry(words).or_default() += 1;
    }
    let repeated: Vec<_> = told.iter().filter(|(line, count)| **count > 2 && !line.contains("dial failed")).collect();
    assert!(repeated.is_empty(), "{repeated:#?}");

    // All of them go again, though nothing of them works.
    for case in &cases {
        folder.remove(&format!("{}-proxy", case.name));
    }
    let refused = |case: &Case| matches!(case.at, At::ProxyManifest);
    folder.until("the Proxies without a machine are gone", 120, || {
        cases.iter().filter(|case| !refused(case)).all(|case| folder.proxy(case.name).is_none())
    });
    assert!(folder.is_ready("good"));
    drop(guest);
    folder.remove("good-proxy");
    folder.until("the good one is gone", 60, || folder.proxy("good").is_none());
    operator.stop();
}

fn check(folder: &Folder, case: &Case) -> Result<(), String> {
    let Case { name, at, reason, words, provider: _, proxy: _ } = case;
    let (found, message) = match at {
        At::ProxyManifest | At::ProviderManifest => {
            let (kind, is_there) = match at {
                At::ProxyManifest => ("proxy", folder.proxy(name).is_some()),
                _ => ("provider", folder.provider(name).is_some()),
            };
            if is_there {
                return Err("an object was made of it".to_owned());
            }
            let place = format!("{name}-{kind}.yaml");
            let mut faults = folder.faults();
            faults.retain(|fault| fault.place.starts_with(&place));
            let [fault] = &faults[..] else { return Err(format!("not one fault: {faults:?}")) };
            (String::new(), fault.message.clone())
        }
        At::Loaded | At::Healthy | At::Provisioned => {
            let condition = || match at {
                At::Loaded => folder.provider_condition(name, "Loaded"),
                At::Healthy => folder.provider_condition(name, "Healthy"),
                _ => folder.proxy_condition(name, "Provisioned"),
            };
            let mut last = None;
            for _ in 0..150 {
                last = condition();
                if last.as_ref().is_some_and(|condition| condition.reason == *reason) {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            let Some(condition) = last else { return Err("no condition".to_owned()) };
            (condition.reason, condition.message)
        }
    };
    if found != *reason {
        return Err(format!("reason {found}, not {reason}: {message}"));
    }
    let missing: Vec<_> = words.iter().filter(|word| !message.contains(*word)).collect();
    if missing.is_empty() { Ok(()) } else { Err(format!("{missing:?} not in: {message}")) }
}
