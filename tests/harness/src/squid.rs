//! A real squid on loopback, with the configuration under test.

use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

/// How long squid may take to listen, on a machine that does other things too.
const START: Duration = Duration::from_secs(60);

/// A running squid; it ends when it is dropped.
pub struct Squid {
    child: Child,
    port: u16,
    folder: tempfile::TempDir,
}

/// A port of loopback that was free a moment ago.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

impl Squid {
    /// Starts squid with this configuration, which listens on `port`. `passwords` is what the configuration names as
    /// `password_file`. Changed is only where files lie.
    pub fn start(configuration: &str, port: u16, password_file: &str, passwords: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // Squid drops to the user `proxy`, who has to read and write here.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777))?;
        let path = folder.path();
        let own_password_file = path.join("passwd");
        std::fs::write(&own_password_file, passwords)?;
        let mut text = configuration.replace(password_file, &own_password_file.display().to_string());
        let log = path.join("cache.log");
        text.push_str(&format!("pid_filename none\naccess_log none\ncache_log {}\n", log.display()));
        let own_configuration = path.join("squid.conf");
        std::fs::write(&own_configuration, text)?;
        let child = Command::new("squid")
            .args(["-N", "-f"])
            .arg(&own_configuration)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("squid does not start; install the Debian package squid")?;
        let mut squid = Self { child, port, folder };
        squid.wait()?;
        Ok(squid)
    }

    fn wait(&mut self) -> Result<()> {
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let is_up = self.child.try_wait()?.is_none();
            let log = || std::fs::read_to_string(self.folder.path().join("cache.log")).unwrap_or_default();
            ensure!(is_up && begun.elapsed() < START, "squid does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Where it listens.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The status of a GET through it, asked by curl.
    pub fn get(&self, url: &str, user: Option<&str>) -> Result<u16> {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--globoff",
            "--max-time",
            "30",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        curl.args(["--proxy", &format!("http://{}", self.endpoint()), "--noproxy", ""]);
        if let Some(user) = user {
            curl.args(["--proxy-user", user]);
        }
        let output = curl.arg(url).output().context("curl does not run; install the Debian package curl")?;
        Ok(String::from_utf8(output.stdout)?.trim().parse()?)
    }
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
