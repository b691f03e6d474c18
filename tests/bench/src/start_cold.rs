//! `start_cold_ms`: from the start of `proxy-operator standalone` to the end of its first reconcile, with compiled code
//! from the cache; its baseline is the same without that code.
//!
//! The folder holds a Provider and a Proxy. The first reconcile has ended when the plugin serves (loaded, configured,
//! validated) and the Proxy's first call of it has returned. The granted hypervisor is a socket that does not exist, so
//! that its answer takes no time: what is measured is the operator alone.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde_json::json;

use crate::kvm;
use crate::report::Report;
use crate::sample::{median, millis};

/// Starts with compiled code, and without; one more before warms up.
const STARTS: usize = 15;
const STARTS_UNCACHED: usize = 3;
/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A program that ends with this.
struct Operator(Child);

pub(crate) fn run(report: &mut Report) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let manifests = folder.path().join("manifests");
    let plugins = folder.path().join("plugins");
    write(&manifests, &folder.path().join("nobody.sock"))?;
    fs::create_dir_all(&plugins)?;
    fs::copy(kvm::component_path(), plugins.join("kvm.wasm")).context("plugins/build.sh kvm makes it")?;

    let mut uncached = Vec::new();
    for _ in 0..STARTS_UNCACHED {
        drop(fs::remove_dir_all(manifests.join("state/compiled")));
        uncached.push(millis(start(&manifests, &plugins)?));
    }
    let mut cached = Vec::new();
    for round in 0..=STARTS {
        let time = start(&manifests, &plugins)?;
        if round > 0 {
            cached.push(millis(time));
        }
    }
    report.put("start_cold_ms", median(cached)?);
    report.put("start_uncached_ms", median(uncached)?);
    Ok(())
}

/// The manifests, as JSON, which is YAML.
fn write(folder: &Path, socket: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let host = json!({"address": format!("unix://{}", socket.display()), "pools": ["default"], "networks": ["lan"]});
    let provider = json!({
        "apiVersion": "crawl.example.com/v1alpha1",
        "kind": "Provider",
        "metadata": {"name": kvm::PROVIDER},
        "spec": {
            "plugin": {"name": "kvm"},
            "config": kvm::config(),
            "grants": {
                "libvirt": {"hosts": {kvm::HOST: host}},
                "images": {"urlPrefixes": ["https://images.example/"]},
            },
        },
    });
    let proxy = json!({
        "apiVersion": "crawl.example.com/v1alpha1",
        "kind": "Proxy",
        "metadata": {"name": "crawl-1"},
        "spec": {"provider": kvm::PROVIDER},
    });
    fs::write(folder.join("provider.yaml"), provider.to_string())?;
    Ok(fs::write(folder.join("proxy.yaml"), proxy.to_string())?)
}

/// One start: the time until both lines were written.
fn start(manifests: &Path, plugins: &Path) -> Result<Duration> {
    let mut command = Command::new(program()?);
    command.arg("standalone").arg(manifests).arg("--plugins").arg(plugins);
    command.args(["--log-format", "text", "--log", "info,proxy_operator=debug"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let begun = Instant::now();
    let mut operator = Operator(command.spawn().with_context(|| format!("{command:?}"))?);
    let lines = lines(&mut operator.0)?;
    let (mut said, mut serves, mut called) = (String::new(), false, false);
    while !(serves && called) {
        let line = match lines.recv_timeout(PATIENCE.saturating_sub(begun.elapsed())) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => bail!("no reconcile within {PATIENCE:?}:\n{said}"),
            Err(RecvTimeoutError::Disconnected) => bail!("the operator ended:\n{said}"),
        };
        serves |= line.contains(" serves");
        called |= line.contains("call=place") && line.contains("ms=");
        said.push_str(&line);
        said.push('\n');
    }
    Ok(begun.elapsed())
}

/// The program that was built beside this one.
fn program() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("proxy-operator");
    if !path.is_file() {
        bail!("{} is not there: cargo build --release -p proxy-operator", path.display());
    }
    Ok(path)
}

/// What it logs, as it comes.
fn lines(child: &mut Child) -> Result<Receiver<String>> {
    let reader = BufReader::new(child.stderr.take().context("no log")?);
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in reader.lines().map_while(Result::ok) {
            // Read to its end though nobody listens any more: a full pipe would hold the program up.
            let _ = send.send(line);
        }
    });
    Ok(lines)
}

impl Drop for Operator {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(pid) = pid {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.0.wait();
    }
}
