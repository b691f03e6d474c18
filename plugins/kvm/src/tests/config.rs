use proxy_operator_sdk::{Provider, from_json};
use serde_json::{Value, json};

use super::{CONFIG, ctx};
use crate::Kvm;
use crate::config::{Config, DomainType, Firmware};

fn schema() -> Value {
    schemars::schema_for!(Config).to_value()
}

fn changed(change: impl FnOnce(&mut Value)) -> Value {
    let mut config: Value = serde_json::from_str(CONFIG).unwrap();
    change(&mut config);
    config
}

fn faults(config: &Value) -> Vec<String> {
    let config: Config = from_json(&config.to_string()).unwrap();
    Kvm::validate(&ctx(), &config).into_iter().map(|fault| format!("{} {}", fault.path, fault.message)).collect()
}

#[test]
fn defaults_are_those_that_the_schema_tells() {
    let config: Config =
        from_json(r#"{"machineTypes": {"any text: \"ä/~\"": {"vcpus": 1, "memoryMiB": 64, "diskGiB": 1}}}"#).unwrap();
    assert!(config.install_guest_agent && config.images.is_empty() && config.vendor_data.is_none());
    assert_eq!(config.domain_type, DomainType::Auto);
    assert!(config.faults().is_empty());
    let config: Config = from_json(CONFIG).unwrap();
    assert_eq!(config.images["debian-13"].firmware, Firmware::Uefi);
    assert_eq!(schema()["properties"]["installGuestAgent"]["default"], json!(true));
    assert_eq!(schema()["properties"]["domainType"]["default"], json!("auto"));
}

#[test]
fn the_schema_takes_what_is_right_and_refuses_what_is_not() {
    let schema = jsonschema::validator_for(&schema()).unwrap();
    assert!(schema.is_valid(&serde_json::from_str(CONFIG).unwrap()));
    type Change = fn(&mut Value);
    let wrong: [Change; 12] = [
        |c| c["hosts"] = json!([]),
        |c| c["images"]["debian-12"]["sha256"] = json!("ab"),
        |c| c["images"]["Debian"] = json!({"url": "https://a/b"}),
        |c| c["images"]["a".repeat(41)] = json!({"url": "https://a/b"}),
        |c| c["images"]["debian-12"]["firmware"] = json!("efi"),
        |c| c["machineTypes"] = json!({}),
        |c| c["machineTypes"]["small"]["vcpus"] = json!(0),
        |c| c["machineTypes"]["small"]["memoryMiB"] = json!(63),
        |c| c["machineTypes"]["small"]["diskGiB"] = json!(0),
        |c| c["machineTypes"]["small"]["memoryMib"] = json!(512),
        |c| c["domainType"] = json!("xen"),
        |c| c["vendorData"] = json!(7),
    ];
    for (index, change) in wrong.into_iter().enumerate() {
        assert!(!schema.is_valid(&changed(change)), "case {index}");
    }
}

#[test]
fn every_field_is_described() {
    let schema = schema();
    let definitions = schema["$defs"].as_object().unwrap();
    for (name, object) in definitions.iter().map(|(name, object)| (name.as_str(), object)).chain([("Config", &schema)])
    {
        for (field, property) in object["properties"].as_object().into_iter().flatten() {
            assert!(property["description"].as_str().is_some_and(|text| text.len() > 10), "{name}.{field}");
        }
        assert!(object.get("properties").is_none() || object["additionalProperties"] == json!(false), "{name}");
    }
}

#[test]
fn faults_name_place_and_value() {
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 15] = [
        (
            |c| c["defaultImage"] = json!("debian-11"),
            "/defaultImage \"debian-11\" is not a key of images (known: debian-12, debian-13)",
        ),
        (
            |c| c["defaultMachineType"] = json!("huge"),
            "/defaultMachineType \"huge\" is not a key of machineTypes (known: large, small)",
        ),
        (
            |c| c["images"]["debian-12"]["digest"] = json!("md5:00"),
            "/images/debian-12/digest \"md5:00\" does not begin with",
        ),
        (
            |c| c["images"]["debian-12"]["digest"] = json!("sha256:00"),
            "/images/debian-12/digest has 2 characters after the colon instead of 64",
        ),
        (
            |c| c["images"]["debian-12"]["digest"] = json!(format!("sha512:{}", "g".repeat(128))),
            "/images/debian-12/digest 'g' is no hexadecimal digit",
        ),
        (
            |c| c["images"]["debian-12"]["url"] = json!("images/debian.qcow2"),
            "/images/debian-12/url \"images/debian.qcow2\" is no URL",
        ),
        (|c| c["images"]["debian-12"]["url"] = json!("ftp://a/b"), "/images/debian-12/url the scheme ftp"),
        (
            |c| c["images"]["debian-12"]["url"] = json!("https:///b"),
            "/images/debian-12/url \"https:///b\" names no server",
        ),
        (
            |c| c["images"]["debian-12"]["url"] = json!("file://srv/b"),
            "/images/debian-12/url \"file://srv/b\" is not of the form",
        ),
        (|c| c["images"]["debian-12"]["url"] = json!("https://a/b c"), "/images/debian-12/url holds white space"),
        (
            |c| c["images"]["debian-12"]["url"] = json!("https://u:p@a/b"),
            "/images/debian-12/url holds a user or a password",
        ),
        (|c| c["images"]["a/~"] = json!({"url": "https://a/b"}), "/images/a~1~0 \"a/~\" is no key"),
        (
            |c| c["machineTypes"]["small"]["vcpus"] = json!(1_000),
            "/machineTypes/small/vcpus 1000 is not between 1 and 512",
        ),
        (|c| c["machineTypes"]["small"]["diskGiB"] = json!(0), "/machineTypes/small/diskGiB 0 is not between"),
        (
            |c| {
                c["machineTypes"] = json!({});
                c.as_object_mut().unwrap().remove("defaultMachineType");
            },
            "/machineTypes is empty",
        ),
    ];
    for (change, start) in cases {
        let faults = faults(&changed(change));
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].starts_with(start), "{} instead of {start}", faults[0]);
    }
    for url in ["https://a/b?c=d", "http://[2001:db8::1]:8080/b", "file:///srv/b.img"] {
        assert!(faults(&changed(|c| c["images"]["debian-12"]["url"] = json!(url))).is_empty(), "{url}");
    }
    let digest = json!(format!("sha256:{}", "aB".repeat(32)));
    assert!(faults(&changed(|c| c["images"]["debian-12"]["digest"] = digest)).is_empty());
}
