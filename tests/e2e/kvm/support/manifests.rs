//! Manifests, to be changed by tests as they need.

use proxy_operator_harness::Services;
use serde_json::{Value, json};

use super::ground::{Ground, IMAGES};

/// A host of a grant: the hypervisor through SSH, one pool, one network.
pub(crate) fn host(ground: &Ground) -> Value {
    json!({
        "address": ground.hypervisor.ssh_address,
        "secret": "kvm-ssh",
        "pools": [ground.pool],
        "networks": [ground.hypervisor.network],
    })
}

/// A Provider with the host `hv` and the image `empty`, whose machines are cheap.
pub(crate) fn provider(name: &str, ground: &Ground) -> Value {
    json!({
        "apiVersion": "crawl.example.com/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": name},
        "spec": {
            "plugin": {"name": "kvm"},
            "config": {
                "images": {
                    "empty": {"url": IMAGES.url("empty.raw"), "digest": IMAGES.digest("empty.raw"), "firmware": "bios"}
                },
                "machineTypes": {"small": {"vcpus": 1, "memoryMiB": 64, "diskGiB": 1}},
                "defaultImage": "empty",
                "defaultMachineType": "small",
                "domainType": "qemu",
                "installGuestAgent": false
            },
            "grants": {
                "libvirt": {"hosts": {"hv": host(ground)}},
                "images": {"urlPrefixes": [IMAGES.prefix()]}
            }
        }
    })
}

/// An open Proxy in the namespace `default`, probed often.
pub(crate) fn proxy(name: &str, provider: &str, services: &Services) -> Value {
    json!({
        "apiVersion": "crawl.example.com/v1alpha1",
        "kind": "Proxy",
        "metadata": {"name": name},
        "spec": {
            "provider": provider,
            "access": {"open": true},
            "probe": {"url": services.target, "egressUrl": services.echo, "intervalSeconds": 2}
        }
    })
}

/// Puts a value at a JSON pointer, making the objects on the way.
pub(crate) fn with(mut object: Value, pointer: &str, value: Value) -> Value {
    let mut at = &mut object;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/");
        if !at.is_object() {
            *at = json!({});
        }
        at = at.as_object_mut().unwrap().entry(part).or_insert(Value::Null);
    }
    *at = value;
    object
}

/// Takes away what is at a JSON pointer.
pub(crate) fn without(mut object: Value, pointer: &str) -> Value {
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    object.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(field).expect("it is there");
    object
}
