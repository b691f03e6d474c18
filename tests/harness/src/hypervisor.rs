use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, bail};

use crate::script::{Vars, output, script};

/// How a hypervisor differs from the usual one.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether sshd forwards unix sockets (`AllowStreamLocalForwarding`).
    pub streamlocal: bool,
    /// sshd's `MaxStartups`.
    pub max_startups: Option<String>,
    /// Whether libvirt offers KVM. Off by default: emulation works on every machine.
    pub kvm: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { streamlocal: true, max_startups: None, kvm: false }
    }
}

/// A daemon of the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Daemon {
    /// libvirtd
    Libvirtd,
    /// sshd; with its sessions, when stopped or killed
    Sshd,
    /// virtlogd, which writes the guests' consoles
    Virtlogd,
}

impl fmt::Display for Daemon {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Libvirtd => "libvirtd",
            Self::Sshd => "sshd",
            Self::Virtlogd => "virtlogd",
        })
    }
}

/// Private keys, as files. All but `stranger` are authorised.
#[derive(Clone, Debug)]
pub struct Keys {
    /// Ed25519, OpenSSH's form.
    pub ed25519: PathBuf,
    /// ECDSA, OpenSSH's form.
    pub ecdsa: PathBuf,
    /// The same in PEM.
    pub ecdsa_pem: PathBuf,
    /// RSA, OpenSSH's form.
    pub rsa: PathBuf,
    /// The same in PEM.
    pub rsa_pem: PathBuf,
    /// Ed25519, encrypted with `passphrase`.
    pub encrypted: PathBuf,
    /// What opens `encrypted`.
    pub passphrase: String,
    /// A good key that the server does not know.
    pub stranger: PathBuf,
}

/// What listens on the bridge address.
#[derive(Clone, Debug)]
pub struct Services {
    /// Answers 204 to any method.
    pub target: String,
    /// Answers 200 and the address that the request came from.
    pub echo: String,
}

/// A libvirtd with an sshd before it, of the test's own. It goes down when this is dropped, and also when the process
/// ends without that.
#[derive(Debug)]
pub struct Hypervisor {
    /// Its name.
    pub name: String,
    /// `ssh://operator@127.0.0.1:port`
    pub ssh_address: String,
    /// The port of its sshd on 127.0.0.1.
    pub ssh_port: u16,
    /// The user that may use libvirt.
    pub ssh_user: String,
    /// Private keys.
    pub keys: Keys,
    /// sshd's keys, as ssh-keyscan writes them.
    pub known_hosts: PathBuf,
    /// The storage pool, a directory.
    pub pool: String,
    /// The pool's directory as libvirt knows it.
    pub pool_path: PathBuf,
    /// The pool's directory as this process sees it.
    pub pool_dir: PathBuf,
    /// The network that guests stand in.
    pub network: String,
    /// Its bridge.
    pub bridge: String,
    /// The machine's address on the bridge.
    pub bridge_address: Ipv4Addr,
    /// The network's addresses.
    pub bridge_cidr: String,
    /// libvirtd's socket, reachable without SSH.
    pub libvirt_socket: PathBuf,
    /// The same as libvirt's connection URI.
    pub libvirt_uri: String,
    /// Where its daemons log.
    pub logs: PathBuf,
    session: Session,
}

/// The process that takes the hypervisor down when its standard input ends.
#[derive(Debug)]
struct Session(Child);

impl Drop for Session {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

impl Hypervisor {
    /// Starts one, a few seconds. Another of the same name is waited for until it has gone down.
    pub fn up(name: &str, options: &Options) -> Result<Self> {
        let mut command = script("hypervisor/hypervisor.sh");
        command.args(["session", name]).stdin(Stdio::piped()).stdout(Stdio::piped());
        command.env("SSH_STREAMLOCAL", if options.streamlocal { "yes" } else { "no" });
        command.env("KVM", if options.kvm { "yes" } else { "no" });
        if let Some(max) = &options.max_startups {
            command.env("SSH_MAX_STARTUPS", max);
        }
        let mut session = Session(command.spawn().with_context(|| format!("cannot run {command:?}"))?);

        let mut text = String::new();
        let mut lines = BufReader::new(session.0.stdout.take().context("no output of the session")?);
        // An empty line follows the last.
        while lines.read_line(&mut text)? > 1 {}
        if !text.ends_with("\n\n") {
            bail!("the hypervisor {name} did not start: see above");
        }
        let vars = Vars::parse(&text);
        Ok(Self {
            name: name.to_owned(),
            ssh_address: vars.get("SSH_ADDRESS")?,
            ssh_port: vars.get("SSH_PORT")?,
            ssh_user: vars.get("SSH_USER")?,
            keys: Keys {
                ed25519: vars.get("SSH_KEY")?,
                ecdsa: vars.get("SSH_KEY_ECDSA")?,
                ecdsa_pem: vars.get("SSH_KEY_ECDSA_PEM")?,
                rsa: vars.get("SSH_KEY_RSA")?,
                rsa_pem: vars.get("SSH_KEY_RSA_PEM")?,
                encrypted: vars.get("SSH_KEY_ENCRYPTED")?,
                passphrase: vars.get("SSH_KEY_PASSPHRASE")?,
                stranger: vars.get("SSH_KEY_STRANGER")?,
            },
            known_hosts: vars.get("KNOWN_HOSTS")?,
            pool: vars.get("POOL")?,
            pool_path: vars.get("POOL_PATH")?,
            pool_dir: vars.get("POOL_DIR")?,
            network: vars.get("NETWORK")?,
            bridge: vars.get("BRIDGE")?,
            bridge_address: vars.get("BRIDGE_ADDRESS")?,
            bridge_cidr: vars.get("BRIDGE_CIDR")?,
            libvirt_socket: vars.get("LIBVIRT_SOCKET")?,
            libvirt_uri: vars.get("LIBVIRT_URI")?,
            logs: vars.get("LOGS")?,
            session,
        })
    }

    fn control(&self, verb: &str, args: &[&str]) -> Result<String> {
        output(script("hypervisor/hypervisor.sh").args([verb, &self.name]).args(args))
    }

    /// The output of virsh on it.
    pub fn virsh(&self, args: &[&str]) -> Result<String> {
        self.control("virsh", args)
    }

    /// The output of a command on it.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        self.control("run", args)
    }

    /// Stops a daemon where it stands, as on a host that hangs.
    pub fn freeze(&self, daemon: Daemon) -> Result<()> {
        self.control("freeze", &[&daemon.to_string()]).map(drop)
    }

    /// Ends [`Self::freeze`].
    pub fn thaw(&self, daemon: Daemon) -> Result<()> {
        self.control("thaw", &[&daemon.to_string()]).map(drop)
    }

    /// Kills a daemon, and leaves it so.
    pub fn kill(&self, daemon: Daemon) -> Result<()> {
        self.control("kill", &[&daemon.to_string()]).map(drop)
    }

    /// Ends a daemon in its own way, and leaves it so.
    pub fn stop(&self, daemon: Daemon) -> Result<()> {
        self.control("stop", &[&daemon.to_string()]).map(drop)
    }

    /// Starts a daemon that does not run, and waits until it answers.
    pub fn start(&self, daemon: Daemon) -> Result<()> {
        self.control("start", &[&daemon.to_string()]).map(drop)
    }

    /// Stops and starts a daemon.
    pub fn restart(&self, daemon: Daemon) -> Result<()> {
        self.control("restart", &[&daemon.to_string()]).map(drop)
    }

    /// Starts the target that proxies are asked to reach and, for guests that boot, the package repository at
    /// `http://packages.test:8080/`.
    pub fn services(&self, repository: Option<&Path>) -> Result<Services> {
        let mut command = script("hypervisor/services.sh");
        command.args(["up", &self.name]).arg(repository.unwrap_or(Path::new("-")));
        output(&mut command)?;
        let base = format!("http://{}:8204/", self.bridge_address);
        Ok(Services { echo: format!("{base}echo"), target: base })
    }

    /// Starts a domain with a network card and no disk: the body for a [`crate::FakeGuest`].
    pub fn start_empty_domain(&self, domain: &str, mac: &str) -> Result<()> {
        let xml = format!(
            "<domain type='qemu'><name>{domain}</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>\
             <os><type arch='x86_64' machine='q35'>hvm</type></os><devices>\
             <interface type='network'><source network='{}'/><mac address='{mac}'/><model type='virtio'/><rom enabled='no'/></interface>\
             <memballoon model='none'/></devices></domain>",
            self.network
        );
        let file = self.logs.join(format!("{domain}.xml"));
        std::fs::write(&file, xml).with_context(|| file.display().to_string())?;
        self.virsh(&["create", &file.to_string_lossy()]).map(drop)
    }

    /// The output of a shell command in a guest, through the guest agent. A status other than 0 is an error.
    pub fn guest_exec(&self, domain: &str, command: &str) -> Result<String> {
        output(script("hypervisor/guest-exec.sh").args([&self.name, domain, command]))
    }

    /// The process that keeps this one's life, for tests of the harness itself.
    pub fn session_pid(&self) -> u32 {
        self.session.0.id()
    }
}

/// The hypervisor of that name that the tests of one program share: the first to ask starts it, and it goes down with
/// the program.
pub fn shared(name: &str) -> Result<&'static Hypervisor> {
    type Started = Mutex<Option<&'static Hypervisor>>;
    static ALL: OnceLock<Mutex<BTreeMap<String, &'static Started>>> = OnceLock::new();

    let started: &'static Started = {
        let mut all = ALL.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(name.to_owned()).or_insert_with(|| Box::leak(Box::default()))
    };
    // One name's start does not hold up another's.
    let mut started = started.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(hypervisor) = *started {
        return Ok(hypervisor);
    }
    let hypervisor: &'static Hypervisor = Box::leak(Box::new(Hypervisor::up(name, &Options::default())?));
    *started = Some(hypervisor);
    Ok(hypervisor)
}
