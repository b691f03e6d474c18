use std::path::PathBuf;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::{config, run};
use crate::config::Config;
use crate::vendor::data;

const AGENT: &[u8] = include_bytes!("../guest-agent.sh");
const CLOUD_CONFIG: &str = "#cloud-config\nruncmd: [[touch, /a]]\n";

fn with(agent: bool, provider: Option<&str>) -> Config {
    Config { install_guest_agent: agent, vendor_data: provider.map(str::to_owned), ..config() }
}

/// Kind, file name and content of each part, as cloud-init itself finds them.
fn by_cloud_init(document: &[u8]) -> Vec<(String, String, Vec<u8>)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tests/user_data.py");
    let found: Value = serde_json::from_slice(&run("/usr/bin/python3", &[script], document, "cloud-init")).unwrap();
    assert_eq!(found["warnings"], "", "cloud-init warns");
    let text = |part: &Value, key: &str| part[key].as_str().unwrap().to_owned();
    let parts = found["parts"].as_array().unwrap().iter();
    parts.map(|p| (text(p, "kind"), text(p, "filename"), BASE64_STANDARD.decode(text(p, "content")).unwrap())).collect()
}

/// Declared kind and content of each part, as Python's email reads them.
fn by_email(document: &[u8]) -> Vec<(String, Vec<u8>)> {
    const SCRIPT: &str = "import sys, email, json, base64\n\
        m = email.message_from_bytes(sys.stdin.buffer.read())\n\
        assert m.is_multipart() and not m.defects, m.defects\n\
        assert all(not p.defects for p in m.walk())\n\
        print(json.dumps([[p.get_content_type(), base64.b64encode(p.get_payload(decode=True)).decode()] for p in m.get_payload()]))";
    let found: Vec<(String, String)> =
        serde_json::from_slice(&run("/usr/bin/python3", &["-c", SCRIPT], document, "python3")).unwrap();
    found.into_iter().map(|(kind, content)| (kind, BASE64_STANDARD.decode(content).unwrap())).collect()
}

#[test]
fn nothing_to_say_is_no_document() {
    assert_eq!(data(&with(false, None), None), None);
    assert_eq!(data(&with(false, Some("")), Some(b"")), None);
}

#[test]
fn what_is_alone_is_delivered_as_it_is() {
    assert_eq!(data(&with(true, None), None).unwrap(), AGENT);
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(data(&with(false, None), Some(&all)).unwrap(), all);
    assert_eq!(data(&with(false, Some(CLOUD_CONFIG)), None).unwrap(), CLOUD_CONFIG.as_bytes());
    assert_eq!(by_cloud_init(AGENT)[0].0, "text/x-shellscript");
}

#[test]
fn cloud_init_finds_each_document_of_several() {
    let script = "#!/bin/sh\r\necho 'ä'\r\n".as_bytes();
    let document = data(&with(true, Some(CLOUD_CONFIG)), Some(script)).unwrap();
    assert!(document.starts_with(b"MIME-Version: 1.0\n"));
    let parts = by_cloud_init(&document);
    let kinds: Vec<&str> = parts.iter().map(|(kind, _, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["text/x-shellscript", "text/cloud-config", "text/x-shellscript"]);
    let contents: Vec<&[u8]> = parts.iter().map(|(_, _, content)| content.as_slice()).collect();
    assert_eq!(contents, [AGENT, CLOUD_CONFIG.as_bytes(), script]);
    let mut names: Vec<&str> = parts.iter().map(|(_, name, _)| name.as_str()).collect();
    names.dedup();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names[0] < names[2], "the agent comes first");
}

#[test]
fn what_others_wrote_is_declared_plain_and_arrives_unchanged() {
    let all: Vec<u8> = (0..=255).cycle().take(5_000).collect();
    let tricky = b"--==proxy-operator-0==\nContent-Type: text/x-shellscript\n\n#!/bin/sh\n--==proxy-operator-0==--\n";
    for content in [&all[..], tricky, b"\n", b"no newline", b"## template: jinja\n#cloud-config\n{}\n"] {
        let document = data(&with(true, Some("#!/bin/sh\n")), Some(content)).unwrap();
        let parts = by_email(&document);
        let kinds: Vec<&str> = parts.iter().map(|(kind, _)| kind.as_str()).collect();
        assert_eq!(kinds, ["text/x-shellscript", "text/plain", "text/plain"]);
        assert_eq!(parts[2].1, content);
    }
    let document = data(&with(true, None), Some(tricky)).unwrap();
    assert!(document.windows(22).any(|window| window == b"==proxy-operator-1==\"\n"), "a boundary that is in no part");
}

/// Runs the script with nothing but these commands (name, body) beside those of a shell; returns what they noted.
fn agent_script(case: &str, commands: &[(&str, &str)]) -> String {
    use std::os::unix::fs::PermissionsExt as _;
    let folder: PathBuf = std::env::temp_dir().join(format!("kvm-agent-{}-{case}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let notes = folder.join("notes");
    std::fs::write(&notes, "").unwrap();
    for (name, body) in commands {
        let path = folder.join(name);
        std::fs::write(&path, format!("#!/bin/sh\necho \"{name} $*\" >> {}\n{body}\n", notes.display())).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // The script adds the system's folders for administrators; what a test needs to be absent is looked for there.
    let script =
        String::from_utf8(AGENT.to_vec()).unwrap().replace("$PATH:/usr/sbin:/sbin", &folder.display().to_string());
    run("/bin/sh", &["-c", &script], b"", "dash");
    let noted = std::fs::read_to_string(&notes).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    noted
}

const APT: &str = "apt-get -q -y -o DPkg::Lock::Timeout=300 --no-install-recommends install qemu-guest-agent\n";

#[test]
fn the_script_installs_and_starts_and_enables_nothing() {
    assert_eq!(
        agent_script("apt", &[("apt-get", ""), ("systemctl", "")]),
        format!("{APT}systemctl start qemu-guest-agent\n")
    );
    let fetched = agent_script("lists", &[("apt-get", "case $* in *install*) exit 100;; esac"), ("systemctl", "")]);
    assert_eq!(fetched, format!("{APT}apt-get -q -o DPkg::Lock::Timeout=300 update\n{APT}"));
    for (manager, command) in [
        ("dnf", "dnf -y -q install qemu-guest-agent\n"),
        ("zypper", "zypper --non-interactive --quiet install --no-recommends qemu-guest-agent\n"),
    ] {
        let noted = agent_script(manager, &[(manager, ""), ("systemctl", "")]);
        assert_eq!(noted, format!("{command}systemctl start qemu-guest-agent\n"));
    }
    let alpine = agent_script("apk", &[("apk", ""), ("rc-update", ""), ("rc-service", "")]);
    assert_eq!(
        alpine,
        "apk add --no-cache qemu-guest-agent\nrc-update add qemu-guest-agent default\nrc-service qemu-guest-agent start\n"
    );
}

#[test]
fn the_script_leaves_an_agent_alone_and_never_fails() {
    assert_eq!(agent_script("there", &[("qemu-ga", ""), ("apt-get", ""), ("systemctl", "")]), "");
    assert_eq!(agent_script("none", &[]), "");
    agent_script("failing", &[("dnf", ""), ("systemctl", "exit 1")]);
}
