//! The program under test, as a process.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::folder::Folder;

/// How long the program may take to end by itself: its own grace for calls in flight, and a margin.
const END: Duration = Duration::from_secs(20);

/// A running `proxy-operator standalone`. It is killed when this is dropped.
pub(crate) struct Operator {
    child: Child,
}

pub(crate) fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_proxy-operator"));
    // What is set where the tests run is not what they are about.
    for variable in ["STATE", "PLUGINS", "FOLDER", "LOG", "LOG_FORMAT"] {
        command.env_remove(format!("PROXY_OPERATOR_{variable}"));
    }
    command.stdin(Stdio::null());
    command
}

impl Operator {
    /// Starts it over a folder. Its log is added to the folder's.
    pub(crate) fn start(folder: &Folder) -> Self {
        let plugins = plugins();
        let log = OpenOptions::new().create(true).append(true).open(folder.log_file()).unwrap();
        let mut command = program();
        command.arg("standalone").arg(folder.path()).arg("--plugins").arg(plugins);
        command.args(["--log-format", "text", "--log", log_level()]);
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self { child: command.spawn().unwrap() }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// What kills it at this moment, from any thread.
    pub(crate) fn killer(&self) -> impl FnOnce() + Send + use<> {
        let pid = self.pid();
        move || kill_process(pid, Signal::KILL).unwrap()
    }

    /// Whether it has ended; it stays to be waited for.
    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// SIGKILL.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and its end.
    pub(crate) fn stop(mut self) {
        kill_process(self.pid(), Signal::TERM).unwrap();
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < END, "it does not end on SIGTERM");
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(status.success(), "{status}");
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn log_level() -> &'static str {
    match std::env::var("KVM_TEST_LOG_LEVEL").as_deref() {
        Ok("2") => "info,proxy_operator=debug,libvirt=trace",
        _ => "info,libvirt=debug",
    }
}

/// The folder with the kvm plugin, built once by its script.
fn plugins() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let plugins = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins");
        let mut script = Command::new(plugins.join("build.sh"));
        script.arg("kvm").stdin(Stdio::null());
        // What cargo sets for tests is not meant for a build of its own.
        for variable in ["CARGO", "CARGO_MANIFEST_DIR", "CARGO_TARGET_DIR", "RUSTFLAGS", "RUSTC", "RUSTDOCFLAGS"] {
            script.env_remove(variable);
        }
        let output = script.output().expect("plugins/build.sh can be run");
        assert!(
            output.status.success(),
            "plugins/build.sh kvm: {}\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
        plugins.join("target/plugins")
    })
}
