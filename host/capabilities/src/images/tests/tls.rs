//! TLS as servers speak it, with certificates of the tests' own: in a process of its own, since which certificates are
//! trusted is told by its environment.

use std::process::{Child, Command, Stdio};

use super::*;

struct TlsServer {
    child: Child,
    port: u16,
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Serves the files of a folder, head and body as they stand in them.
fn serve(folder: &std::path::Path) -> TlsServer {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let child = Command::new("openssl")
        .args([
            "s_server",
            "-quiet",
            "-HTTP",
            "-key",
            "key.pem",
            "-cert",
            "cert.pem",
            "-accept",
            &format!("127.0.0.1:{port}"),
        ])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("this test needs openssl");
    let started = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(started.elapsed() < Duration::from_secs(10), "openssl s_server does not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    TlsServer { child, port }
}

fn answer(head: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.0 {head}\r\nContent-Length: {}\r\n\r\n", body.len()).as_bytes(), body].concat()
}

#[test]
fn https_is_trusted_by_the_systems_certificates_and_never_left() {
    let folder = tempfile::tempdir().unwrap();
    let made = Command::new("openssl")
        .args("req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost".split(' '))
        .args(["-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE"])
        .current_dir(folder.path())
        .stderr(Stdio::null())
        .status()
        .expect("this test needs openssl");
    assert!(made.success());
    std::fs::write(folder.path().join("a.raw"), answer("200 OK", &image(70))).unwrap();
    let plain = answer("302 Found\r\nLocation: http://localhost:1/a.raw", b"");
    std::fs::write(folder.path().join("plain"), plain).unwrap();
    let server = serve(folder.path());
    for trusted in [true, false] {
        let certificates = if trusted { folder.path().join("cert.pem") } else { folder.path().join("none.pem") };
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "images::tests::tls::in_a_process_of_its_own", "--ignored", "--nocapture"])
            .env("SSL_CERT_FILE", certificates)
            .env_remove("SSL_CERT_DIR")
            .env("IMAGES_TLS_PORT", server.port.to_string())
            .env("IMAGES_TLS_TRUSTED", trusted.to_string())
            .status()
            .unwrap();
        assert!(status.success(), "trusted: {trusted}");
    }
}

#[tokio::test]
#[ignore = "the other test of this file runs it"]
async fn in_a_process_of_its_own() {
    let port = std::env::var("IMAGES_TLS_PORT").unwrap();
    let bench = Bench::new().await;
    let root = format!("https://localhost:{port}/");
    let images = bench.granted_to("kvm-home", &[&root, "http://localhost:1/"]);
    let source = |path: &str| Source { url: format!("{root}{path}"), ..bench.source("/", Some(&sha256(&image(70)))) };
    if std::env::var("IMAGES_TLS_TRUSTED").unwrap() == "true" {
        let left = Source { key: Some("plain".to_owned()), ..source("plain") };
        let error = settle(&*images, &left).await.unwrap_err();
        assert!(error.reason == "GrantMissing" && error.message.contains("TLS"), "{error}");
        settle(&*images, &source("a.raw")).await.unwrap();
    } else {
        let error = settle(&*images, &source("a.raw")).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.reason.as_str()), ("unavailable", "ImageServerUnavailable"), "{error}");
        assert!(error.message.to_lowercase().contains("certificate"), "{error}");
    }
}
