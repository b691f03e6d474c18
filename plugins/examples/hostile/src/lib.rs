//! A plugin that misbehaves on request: what the host's sandbox is tested with.
//!
//! `spec.config.do` says what every call does, `spec.config.validate` what `validate` does; without them it is a plugin
//! whose instances run at once. `describe` is given no config: what it does stands in [`ON_DESCRIBE`], a text that a
//! test overwrites in the built component.
#![allow(
    clippy::panic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "misbehaving is what it is for"
)]

use std::hint::black_box;

#[allow(missing_docs, unsafe_code, clippy::all)]
mod bindings {
    wit_bindgen::generate!({ path: "../../../wit", world: "plugin", generate_all });
    use super::Hostile;
    export!(Hostile);
}

use bindings::exports::proxy_operator::provider::provider::{
    Check, Context, Deletion, Description, Endpoint, Fault, Gap, Guest, Instance, InstanceRef, InstanceSpec, Page,
    Phase,
};
use bindings::proxy_operator::provider::images;
use bindings::proxy_operator::provider::libvirt::{self, Disk, DomainSpec, Firmware, VolumeFormat};
use bindings::proxy_operator::provider::log::{self, Level};
use bindings::proxy_operator::provider::types::{Address, AddressSource, BackendError, Error, ErrorCode};
use bindings::wasi::clocks::{monotonic_clock, wall_clock};
use bindings::wasi::random::random;

/// What `describe` does, padded with dots.
static ON_DESCRIBE: &str = "describe=ok.....................";

/// The version that `describe` tells, padded with dots.
static VERSION: &str = "version=0.1.0...................";

struct Hostile;

/// The text behind the `=`, without its padding.
fn setting(text: &'static str) -> &'static str {
    let text: &'static str = black_box(text);
    text.split_once('=').map_or("", |(_, value)| value).trim_end_matches('.')
}

/// What the config asks for under a key.
fn wish(context: &Context, key: &str) -> String {
    let config: serde_json::Value = serde_json::from_str(&context.config).unwrap_or_default();
    config[key].as_str().unwrap_or("ok").to_owned()
}

fn fail(code: ErrorCode, reason: &str, message: String) -> Error {
    Error { code, reason: reason.to_owned(), message, backend: None, retry_after_seconds: None }
}

/// Does what is wished, where it is the same in every call.
fn misbehave(wish: &str, spec: Option<&InstanceSpec>) -> Result<(), Error> {
    let user_data = spec.map(|s| String::from_utf8_lossy(&s.cloud_init.user_data).into_owned()).unwrap_or_default();
    let bytes = spec.map(|s| s.cloud_init.user_data.clone()).unwrap_or_default();
    match wish {
        "panic" => {
            log::log(Level::Info, "about to fail", &[("step".to_owned(), "three of four".to_owned())]);
            panic!("hostile panics\non two lines");
        }
        "panic-with-user-data" => panic!("got {user_data:?}, that is {bytes:?}, and {user_data}"),
        "tell-user-data" => {
            log::log(Level::Warn, &format!("user-data is {user_data}"), &[("data".to_owned(), user_data.clone())]);
            return Err(fail(ErrorCode::InvalidProxy, "UserDataInvalid", format!("cannot use {user_data}")));
        }
        "trap" => core::arch::wasm32::unreachable(),
        "loop" => {
            let mut turns = 0_u64;
            loop {
                turns = black_box(turns.wrapping_add(1));
            }
        }
        "allocate" => {
            let mut all: Vec<Vec<u8>> = Vec::new();
            loop {
                all.push(vec![1; 1 << 20]);
                black_box(&all);
            }
        }
        "recurse" => {
            black_box(recurse::<1>(0));
        }
        "recurse-with-large-frames" => {
            black_box(recurse::<64>(0));
        }
        "sleep" => monotonic_clock::subscribe_duration(3_600_000_000_000).block(),
        "timers" => {
            let mut all = Vec::new();
            loop {
                all.push(monotonic_clock::subscribe_duration(3_600_000_000_000));
            }
        }
        "randomness" => {
            random::get_random_bytes(1 << 30);
        }
        "flood" => {
            for line in 0..10_000 {
                log::log(Level::Info, &format!("line {line}"), &[]);
            }
        }
        "strange-lines" => {
            log::log(Level::Warn, "one\ntwo\u{1b}[31m red", &[("a key".to_owned(), "a \"value\"".to_owned())]);
            let fields: Vec<(String, String)> = (0..50).map(|i| (format!("field{i}"), "v".repeat(10_000))).collect();
            log::log(Level::Warn, &"x".repeat(100_000), &fields);
        }
        "clocks" => {
            let message = format!("{} {}", wall_clock::now().seconds, monotonic_clock::now());
            return Err(fail(ErrorCode::Unavailable, "Clocks", message));
        }
        "hosts" => {
            let names: Vec<String> = libvirt::hosts().into_iter().map(|h| h.name).collect();
            return Err(fail(ErrorCode::Unavailable, "Hosts", format!("hosts: {}", names.join(","))));
        }
        "info" => return libvirt::info("hv1").map(|_| ()),
        "info-twice" => {
            libvirt::info("hv1")?;
            return libvirt::info("hv1").map(|_| ());
        }
        "ensure" => {
            let source = images::Source { key: None, url: "https://images.example/i.qcow2".to_owned(), digest: None };
            return images::ensure("hv1", "default", &source).map(|_| ());
        }
        "long-host" => return libvirt::info(&"h".repeat(10_000)).map(|_| ()),
        "large-volume" => return libvirt::write_volume("hv1", "default", "v", &vec![0; (8 << 20) + 1]),
        "huge-volume" => return libvirt::write_volume("hv1", "default", "v", &vec![0; 50 << 20]),
        "many-disks" => {
            let disk = || Disk {
                pool: "default".to_owned(),
                volume: "v".to_owned(),
                format: VolumeFormat::Raw,
                read_only: false,
            };
            let spec = DomainSpec {
                name: "d".to_owned(),
                title: "t".to_owned(),
                domain_type: None,
                vcpus: 1,
                memory_mib: 1,
                firmware: Firmware::Bios,
                disks: (0..9).map(|_| disk()).collect(),
                networks: Vec::new(),
                autostart: false,
            };
            return libvirt::define_domain("hv1", &spec).map(|_| ());
        }
        "strange-error" => {
            return Err(Error {
                code: ErrorCode::Exhausted,
                reason: "not one word".to_owned(),
                message: format!("tab\there {}", "m".repeat(10_000)),
                backend: Some(BackendError { code: "C".repeat(1_000), number: Some(7) }),
                retry_after_seconds: Some(u32::MAX),
            });
        }
        "plain-error" => {
            return Err(Error {
                code: ErrorCode::Exhausted,
                reason: "QuotaExhausted".to_owned(),
                message: "no CPUs left".to_owned(),
                backend: Some(BackendError { code: "QUOTA".to_owned(), number: Some(403) }),
                retry_after_seconds: Some(90),
            });
        }
        _ => {}
    }
    Ok(())
}

/// With small frames the machine's stack ends first, with large ones that in the guest's memory.
fn recurse<const FRAME: usize>(depth: u64) -> u64 {
    let frame = black_box([depth; FRAME]);
    if depth == u64::MAX { 0 } else { recurse::<FRAME>(depth + 1) + frame[0] }
}

fn instance(wish: &str, id: &str, owner: &str) -> Instance {
    let mut instance = Instance {
        id: id.to_owned(),
        owner: owner.to_owned(),
        phase: Phase::Running,
        reason: String::new(),
        message: format!("runs since {} calls", calls()),
        error: None,
        percent: None,
        endpoint: Some(Endpoint { host: "192.0.2.7".to_owned(), port: None }),
        egress_address: None,
        addresses: vec![Address { host: "192.0.2.7".to_owned(), source: AddressSource::Agent }],
        created_at: None,
        private_state: None,
    };
    match wish {
        "long-id" => instance.id = "i".repeat(257),
        "strange-id" => instance.id = "an\nid".to_owned(),
        "other-id" => instance.id = "hosts/hv1/domains/another".to_owned(),
        "other-owner" => instance.owner = "another".to_owned(),
        "long-message" => instance.message = "ä".repeat(5_000),
        "strange-reason" => instance.reason = "no reason!".to_owned(),
        "long-state" => instance.private_state = Some("s".repeat((4 << 10) + 1)),
        "many-addresses" => instance.addresses = vec![instance.addresses[0].clone(); 33],
        "percent" => instance.percent = Some(200),
        "failed" => instance.phase = Phase::Failed,
        "error-while-running" => instance.error = Some(fail(ErrorCode::Internal, "Odd", String::new())),
        "bomb" => instance.message = "b".repeat(40 << 20),
        _ => {}
    }
    instance
}

/// How often this guest was called: always once, since each call has a guest of its own.
fn calls() -> u32 {
    use std::sync::atomic::{AtomicU32, Ordering};
    static CALLS: AtomicU32 = AtomicU32::new(0);
    CALLS.fetch_add(1, Ordering::Relaxed) + 1
}

fn begin() {
    std::panic::set_hook(Box::new(|info| log::fatal(&info.to_string())));
}

impl Guest for Hostile {
    fn describe() -> Description {
        begin();
        let wish = setting(ON_DESCRIBE);
        let _ = misbehave(wish, None);
        let config_schema = match wish {
            "remote-schema" => r#"{"$ref": "https://example.com/schema.json"}"#.to_owned(),
            "endless-schema" => r##"{"$ref": "#"}"##.to_owned(),
            "broken-schema" => "{".to_owned(),
            "large-schema" => " ".repeat((256 << 10) + 1),
            _ => r#"{
                "type": "object",
                "additionalProperties": false,
                "properties": {"do": {"type": "string"}, "validate": {"type": "string", "pattern": "^(a|[a-z-])+$"}}
            }"#
            .to_owned(),
        };
        Description {
            name: if wish == "strange-name" { "Not A Name" } else { "hostile" }.to_owned(),
            version: setting(VERSION).to_owned(),
            config_schema,
            parameters_schema: r#"{"type": "object", "maxProperties": 1}"#.to_owned(),
        }
    }

    fn validate(context: Context) -> Result<(), Vec<Fault>> {
        begin();
        let fault = |message: String| Fault { path: "/do".to_owned(), message };
        let wish = wish(&context, "validate");
        match wish.as_str() {
            "faults" => Err(vec![fault("\"x\" is not to be done".to_owned())]),
            "many-faults" => Err((0..1_000).map(|i| fault(format!("fault {i}"))).collect()),
            wish => misbehave(wish, None).map_err(|error| vec![fault(error.message)]),
        }
    }

    fn place(context: Context, spec: InstanceSpec, _avoid: Vec<String>) -> Result<String, Error> {
        begin();
        let wish = wish(&context, "do");
        misbehave(&wish, Some(&spec))?;
        Ok(instance(&wish, &format!("hosts/hv1/domains/{}", spec.name), &spec.owner).id)
    }

    fn create(context: Context, asked: InstanceRef, spec: InstanceSpec) -> Result<Instance, Error> {
        begin();
        let wish = wish(&context, "do");
        misbehave(&wish, Some(&spec))?;
        Ok(instance(&wish, &asked.id, &asked.owner))
    }

    fn get(context: Context, asked: InstanceRef) -> Result<Instance, Error> {
        begin();
        let wish = wish(&context, "do");
        misbehave(&wish, None)?;
        Ok(instance(&wish, &asked.id, &asked.owner))
    }

    fn list(context: Context, _owner: Option<String>, cursor: Option<String>) -> Result<Page, Error> {
        begin();
        let wish = wish(&context, "do");
        misbehave(&wish, None)?;
        let number: u32 = cursor.and_then(|c| c.parse().ok()).unwrap_or_default();
        let count = match wish.as_str() {
            "many-instances" => 2_001,
            "full-pages" => 2_000,
            _ => 2,
        };
        let instances = (0..count).map(|i| instance(&wish, &format!("hosts/hv1/domains/p{number}-{i}"), "o")).collect();
        let next = match (wish.as_str(), number) {
            ("endless-pages" | "full-pages", _) => Some((number + 1).to_string()),
            ("circling-pages", _) => Some("1".to_owned()),
            ("three-pages", 0 | 1) => Some((number + 1).to_string()),
            _ => None,
        };
        let gap = Gap {
            id_prefix: format!("hosts/hv{number}/"),
            error: fail(ErrorCode::Unavailable, "HostUnreachable", "no route".to_owned()),
        };
        Ok(Page { instances, next, gaps: if wish == "three-pages" { vec![gap] } else { Vec::new() } })
    }

    fn delete(context: Context, asked: InstanceRef) -> Result<Deletion, Error> {
        begin();
        let wish = wish(&context, "do");
        misbehave(&wish, None)?;
        Ok(match wish.as_str() {
            "other-id" | "deleting" => Deletion::Pending(instance(&wish, &asked.id, &asked.owner)),
            "abandon" => Deletion::Abandoned("left\nbehind".to_owned()),
            _ => Deletion::Done,
        })
    }

    fn health(context: Context) -> Vec<Check> {
        begin();
        let wish = wish(&context, "do");
        let error = misbehave(&wish, None).err();
        let count = if wish == "many-checks" { 201 } else { 1 };
        (0..count)
            .map(|i| Check { subject: format!("hosts/hv{i}"), detail: "fine".to_owned(), error: error.clone() })
            .collect()
    }
}
