//! The provider against hypervisors in memory: what is common to the tests.
//!
//! - `create`: every interruption, resuming, what is refused, never a second seed
//! - `place`: order, room, spreading, what is passed over
//! - `observe`: states, addresses, listing, gaps
//! - `delete`: done, pending, abandoned, strangers
//! - `health`: a check a host and its reasons
//! - `config`: schema and faults
//! - `seed`, `vendor`: read back by other programs

mod config;
mod create;
mod delete;
mod fake;
mod health;
mod observe;
mod place;
mod seed;
mod vendor;

use std::io::Write;
use std::process::{Command, Stdio};

use proxy_operator_sdk::{Access, Author, CloudInit, Context, InstanceRef, InstanceSpec, Software, from_json};

use crate::config::Config;
use crate::id;

const PREFIX: &str = "px0123456789-";
const OWNER: &str = "6f1a2b3c-0000-4000-8000-000000000001";
const CONFIG: &str = r##"{
    "images": {
        "debian-12": {"url": "https://images.example/debian-12.qcow2", "firmware": "bios"},
        "debian-13": {"url": "https://images.example/debian-13.qcow2"}
    },
    "machineTypes": {
        "small": {"vcpus": 1, "memoryMiB": 512, "diskGiB": 8},
        "large": {"vcpus": 4, "memoryMiB": 4096, "diskGiB": 80}
    },
    "defaultImage": "debian-12",
    "defaultMachineType": "small"
}"##;

fn config() -> Config {
    from_json(CONFIG).unwrap()
}

fn ctx() -> Context {
    Context {
        provider: "kvm-home".to_owned(),
        cluster_id: "c1".to_owned(),
        name_prefix: PREFIX.to_owned(),
        config: CONFIG.to_owned(),
        timeout_ms: 30_000,
    }
}

fn name() -> String {
    format!("{PREFIX}{OWNER}")
}

fn spec() -> InstanceSpec {
    InstanceSpec {
        owner: OWNER.to_owned(),
        name: name(),
        display_name: "crawlers/crawl-1".to_owned(),
        machine_type: None,
        image: None,
        placement: Vec::new(),
        software: Software {
            name: "squid".to_owned(),
            port: 3128,
            access: Access {
                credentials: Vec::new(),
                allow_from: Vec::new(),
                open: true,
                private_destinations: Vec::new(),
            },
        },
        cloud_init: CloudInit {
            user_data: b"#cloud-config\n{}\n".to_vec(),
            author: Author::Operator,
            vendor_data: None,
        },
        parameters: "{}".to_owned(),
    }
}

/// The instance of [`spec`] on a host.
fn at(host: &str) -> InstanceRef {
    InstanceRef { id: id::of(host, &name()), owner: OWNER.to_owned(), private_state: None }
}

/// The output of a program that gets this on standard input. One that is missing fails the test and says what to
/// install.
fn run(program: &str, arguments: &[&str], input: &[u8], package: &str) -> Vec<u8> {
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program}: {error}; apt-get install --no-install-recommends {package}"));
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {said}");
    output.stdout
}
