//! A folder of manifests, its secrets and its state, as one installation has them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use proxy_operator::store::standalone::database::{Database, Fault};
use proxy_operator::store::{Key, Kind};
use proxy_operator_api::condition::{self, Condition};
use proxy_operator_api::proxy::Phase;
use proxy_operator_api::{Provider, Proxy};
use proxy_operator_core::names;
use proxy_operator_harness::Hypervisor;
use serde_json::Value;

use super::operator::program;

/// Between two looks at what has no event to wait for.
const POLL: Duration = Duration::from_millis(100);

/// The folder, and all that belongs to it. It goes when this is dropped.
pub(crate) struct Folder {
    folder: tempfile::TempDir,
    /// The id of the installation, known before its operator starts.
    pub(crate) installation: String,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("e2e-kvm-").tempdir().unwrap();
        let installation: String = uuid::Uuid::new_v4().simple().to_string().chars().take(12).collect();
        let state = folder.path().join("state");
        std::fs::create_dir(&state).unwrap();
        std::fs::write(state.join("installation-id"), format!("{installation}\n")).unwrap();
        Self { folder, installation }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.path().join("state")
    }

    pub(crate) fn log_file(&self) -> PathBuf {
        self.path().join("operator.log")
    }

    /// The whole log of all operators that ran over this folder.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    // === what a user does ===

    /// Writes a manifest in one step, as `kubectl apply` would.
    pub(crate) fn apply(&self, name: &str, object: &Value) {
        self.apply_text(name, &format!("{object:#}\n"));
    }

    pub(crate) fn apply_text(&self, name: &str, text: &str) {
        let hidden = self.path().join(format!(".{name}.yaml"));
        std::fs::write(&hidden, text).unwrap();
        std::fs::rename(hidden, self.path().join(format!("{name}.yaml"))).unwrap();
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.path().join(format!("{name}.yaml"))).unwrap();
    }

    /// A Secret with a key and the host keys of a hypervisor.
    pub(crate) fn ssh_secret(&self, secret: &str, key: &Path, known_hosts: &Path) {
        let text = std::fs::read_to_string(known_hosts).unwrap();
        self.ssh_secret_with(secret, key, &text);
    }

    pub(crate) fn ssh_secret_with(&self, secret: &str, key: &Path, known_hosts: &str) {
        let folder = self.path().join("secrets").join(secret);
        std::fs::create_dir_all(&folder).unwrap();
        let put = |file: &str, content: &[u8]| {
            let hidden = folder.join(format!(".{file}"));
            std::fs::write(&hidden, content).unwrap();
            std::fs::rename(hidden, folder.join(file)).unwrap();
        };
        put("known_hosts", known_hosts.as_bytes());
        put("ssh-privatekey", &std::fs::read(key).unwrap());
    }

    /// The usual Secret for a hypervisor, called `kvm-ssh`.
    pub(crate) fn usual_secret(&self, hypervisor: &Hypervisor) {
        self.ssh_secret("kvm-ssh", &hypervisor.keys.ed25519, &hypervisor.known_hosts);
    }

    // === what a user sees ===

    /// The output of `proxy-operator get` over this folder.
    pub(crate) fn get(&self, arguments: &[&str]) -> String {
        let output = program().arg("get").arg("-C").arg(self.path()).args(arguments).output().unwrap();
        assert!(output.status.success(), "get {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// The same, as objects.
    pub(crate) fn get_json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.get(&[arguments, &["-o", "json"]].concat())).unwrap()
    }

    /// What the state holds of a kind; nothing before the operator has made its tables.
    fn objects(&self, kind: Kind) -> Vec<String> {
        self.database().map(|database| database.objects(kind).unwrap()).unwrap_or_default()
    }

    fn database(&self) -> Option<Database> {
        Database::open_read_only(&self.state()).unwrap()
    }

    pub(crate) fn proxy(&self, name: &str) -> Option<Proxy> {
        self.proxy_in("default", name)
    }

    pub(crate) fn proxy_in(&self, namespace: &str, name: &str) -> Option<Proxy> {
        let bodies = self.objects(Kind::Proxy);
        let proxies = bodies.iter().map(|body| serde_json::from_str::<Proxy>(body).unwrap());
        let key = Key::proxy(namespace, name);
        proxies.into_iter().find(|proxy| Key::of_proxy(proxy) == key)
    }

    pub(crate) fn provider(&self, name: &str) -> Option<Provider> {
        let bodies = self.objects(Kind::Provider);
        let providers = bodies.iter().map(|body| serde_json::from_str::<Provider>(body).unwrap());
        providers.into_iter().find(|provider| provider.metadata.name.as_deref() == Some(name))
    }

    pub(crate) fn faults(&self) -> Vec<Fault> {
        self.database().map(|database| database.faults().unwrap()).unwrap_or_default()
    }

    /// Reason and number of the events of a Proxy.
    pub(crate) fn events(&self, name: &str) -> Vec<(String, u32)> {
        let events = self.database().map(|database| database.events(&Key::proxy("default", name)).unwrap());
        events.into_iter().flatten().map(|event| (event.event.reason, event.count)).collect()
    }

    pub(crate) fn has_event(&self, name: &str, reason: &str) -> bool {
        self.events(name).iter().any(|(found, _)| found == reason)
    }

    pub(crate) fn phase(&self, name: &str) -> Option<Phase> {
        self.proxy(name)?.status.map(|status| status.phase)
    }

    pub(crate) fn is_ready(&self, name: &str) -> bool {
        self.phase(name) == Some(Phase::Ready)
    }

    pub(crate) fn proxy_condition(&self, name: &str, type_: &str) -> Option<Condition> {
        condition::find(&self.proxy(name)?.status?.conditions, type_).cloned()
    }

    pub(crate) fn provider_condition(&self, name: &str, type_: &str) -> Option<Condition> {
        condition::find(&self.provider(name)?.status?.conditions, type_).cloned()
    }

    /// The condition `Provisioned` of a Proxy has this reason.
    pub(crate) fn is_provisioned_as(&self, name: &str, reasons: &[&str]) -> bool {
        self.proxy_condition(name, "Provisioned").is_some_and(|found| reasons.contains(&found.reason.as_str()))
    }

    /// The name of a Proxy's domain, known before there is one.
    pub(crate) fn domain(&self, provider: &str, namespace: &str, name: &str) -> String {
        let prefix = names::name_prefix(&self.installation, provider);
        format!("{prefix}{}", names::standalone_uid(&self.installation, "Proxy", namespace, name))
    }

    /// Host, port and credentials of a Proxy from its connection file.
    pub(crate) fn connection(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.state().join("connections").join(name)).unwrap();
        text.lines().find_map(|line| line.strip_prefix("url=")).expect("the endpoint is known").to_owned()
    }

    // === waiting ===

    /// Waits until something is there, within a bound; else fails with what the operator says.
    pub(crate) fn wait<T>(&self, what: &str, seconds: u64, mut look: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = look() {
                return found;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(seconds),
                "{what}: not within {seconds} s\n{}\nthe log's end:\n{}",
                self.get(&[]),
                tail(&self.log(), 60)
            );
            std::thread::sleep(POLL);
        }
    }

    /// The same for what holds or does not.
    pub(crate) fn until(&self, what: &str, seconds: u64, mut holds: impl FnMut() -> bool) {
        self.wait(what, seconds, || holds().then_some(()));
    }
}

fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
