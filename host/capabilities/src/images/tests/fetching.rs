//! What servers do: digests, redirects, failures; files; the limits of grants.

use super::*;

#[tokio::test]
async fn an_image_is_downloaded_verified_uploaded_and_ready() {
    let bench = Bench::new().await;
    let bytes = image(1);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let images = bench.granted();
    for digest in [Some(sha256(&bytes)), Some(sha512(&bytes).to_uppercase().replace("SHA", "sha"))] {
        let ready = settle(&*images, &bench.source("/a.raw", digest.as_deref())).await.unwrap();
        let short = &digest.unwrap().to_lowercase()[7..19];
        assert_eq!(ready.volume, format!("base-debian-12-{short}.raw"));
        assert_eq!((ready.format, ready.capacity), (VolumeFormat::Raw, 200_000));
        assert_eq!(bench.disk.get(&ready.volume).unwrap().data, bytes);
        assert!(bench.disk.get(&format!("{}.complete", ready.volume)).is_some());
        assert!(bench.disk.get(&format!("{}.upload", ready.volume)).is_none());
    }
    assert_eq!(bench.disk.names().len(), 4);
}

#[tokio::test]
async fn without_a_digest_the_sha256_of_what_arrives_counts_and_it_is_not_fetched_again() {
    let bench = Bench::new().await;
    let bytes = image(2);
    bench.server.put("/a.raw", Answer::Unannounced(bytes.clone()));
    let source = Source { key: None, ..bench.source("/a.raw", None) };
    let ready = settle(&*bench.granted(), &source).await.unwrap();
    assert!(ready.volume.starts_with("base-url-"), "{}", ready.volume);
    assert!(ready.volume.ends_with(&format!("-{}.raw", &sha256(&bytes)[7..19])), "{}", ready.volume);
    // Another operator, another build under the same URL: what is there serves.
    bench.server.put("/a.raw", Answer::Body(image(3)));
    let (service, _pool, _cache) = operator(&bench.disk, "installation", quick());
    let images = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
    assert_eq!(settle(&*images, &source).await.unwrap(), ready);
    assert_eq!(bench.server.requests().len(), 1);
}

#[tokio::test]
async fn progress_is_of_real_bytes_and_says_what_is_done() {
    let bench = Bench::new().await;
    let bytes = image(4);
    bench.server.put("/a.raw", Answer::Slow(bytes.clone(), Duration::from_millis(80)));
    *bench.disk.slow.lock().unwrap() = Duration::from_millis(400);
    let (images, source) = (bench.granted(), bench.source("/a.raw", Some(&sha256(&bytes))));
    let mut seen: Vec<(String, Option<u8>)> = Vec::new();
    let started = Instant::now();
    loop {
        match images.ensure("hv1", "default", &source).await.unwrap() {
            Status::Ready(_) => break,
            Status::Pending(transfer) => {
                if let Some(percent) = transfer.percent {
                    assert!(transfer.message.contains(&format!("{percent} %")), "{transfer:?}");
                }
                assert!(
                    transfer.message.contains("debian-12") && transfer.message.contains("hv1/default"),
                    "{transfer:?}"
                );
                seen.push((transfer.reason, transfer.percent));
            }
        }
        assert!(started.elapsed() < Duration::from_secs(10));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for reason in ["ImageDownloading", "ImageUploading"] {
        let percents: Vec<u8> =
            seen.iter().filter(|(seen, _)| seen == reason).filter_map(|(_, percent)| *percent).collect();
        assert!(percents.iter().any(|percent| (1..100).contains(percent)), "{reason}: {percents:?}");
        assert!(percents.is_sorted(), "{reason}: {percents:?}");
    }
}

#[tokio::test]
async fn a_wrong_digest_says_what_was_expected_and_what_came_and_leaves_nothing() {
    let bench = Bench::new().await;
    let (bytes, wanted) = (image(5), sha256(&image(6)));
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let images = bench.granted();
    let error = settle(&*images, &bench.source("/a.raw", Some(&wanted))).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.reason.as_str()), ("invalid-config", "ImageDigestMismatch"));
    assert!(error.message.contains(&wanted) && error.message.contains(&sha256(&bytes)), "{error}");
    assert!(error.retry_after.is_some());
    assert_eq!(bench.disk.names(), [""; 0]);
    assert_eq!(std::fs::read_dir(bench.cache.path().join("images")).unwrap().count(), 0);
    // Told to those who ask, without asking the server again; a changed digest is tried at once.
    let again = images.ensure("hv1", "default", &bench.source("/a.raw", Some(&wanted))).await.unwrap_err();
    assert_eq!(again.reason, error.reason);
    assert_eq!(bench.server.requests().len(), 1);
    settle(&*images, &bench.source("/a.raw", Some(&sha256(&bytes)))).await.unwrap();
}

#[tokio::test]
async fn answers_of_servers_become_reasons() {
    let bench = Bench::new().await;
    let images = bench.granted();
    let part = image(7);
    for (answer, code, reason, word) in [
        (Answer::Status(404, String::new()), "invalid-config", "ImageNotFound", "404"),
        (Answer::Status(410, String::new()), "invalid-config", "ImageNotFound", "410"),
        (Answer::Status(403, String::new()), "invalid-config", "ImageNotFound", "credentials"),
        (Answer::Status(500, String::new()), "unavailable", "ImageServerUnavailable", "500"),
        (Answer::Status(204, String::new()), "unavailable", "ImageServerUnavailable", "204"),
        (Answer::Status(302, String::new()), "unavailable", "ImageServerUnavailable", "where"),
        (Answer::Cut(part.clone(), 1_000), "unavailable", "ImageServerUnavailable", ""),
        (Answer::Stuck(part.clone(), 1_000), "unavailable", "ImageServerUnavailable", ""),
        (Answer::Body(b"<!DOCTYPE html><p>moved".to_vec()), "invalid-config", "ImageUnusable", "HTML"),
        (Answer::Body(Vec::new()), "invalid-config", "ImageUnusable", "empty"),
    ] {
        bench.server.put("/a.raw", answer);
        let source =
            Source { key: Some(format!("k{}", bench.server.requests().len())), ..bench.source("/a.raw", None) };
        let error = settle(&*images, &source).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.reason.as_str()), (code, reason), "{error}");
        assert!(error.message.contains(word), "{error}");
    }
    bench.server.put("/a.raw", Answer::Status(503, "Retry-After: 120\r\n".to_owned()));
    let error = settle(&*images, &bench.source("/a.raw", None)).await.unwrap_err();
    assert!(error.retry_after.unwrap() > Duration::from_secs(100), "{error:?}");
    assert_eq!(bench.disk.names(), [""; 0]);
}

#[tokio::test]
async fn a_server_that_is_not_there_or_speaks_no_tls_is_transient_and_comes_back() {
    let bench = Bench::new().await;
    let address = bench.server.address;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for url in [
        format!("http://{closed}/a.raw"),
        format!("https://{address}/a.raw"),
        "http://nowhere.invalid/a.raw".to_owned(),
    ] {
        let images = bench.granted_to("kvm-home", &[&url]);
        let error = settle(&*images, &Source { url, ..bench.source("/", None) }).await.unwrap_err();
        assert_eq!((error.code.as_str(), error.reason.as_str()), ("unavailable", "ImageServerUnavailable"), "{error}");
    }
    let (images, bytes) = (bench.granted(), image(8));
    bench.server.put("/a.raw", Answer::Cut(bytes.clone(), 10));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    settle(&*images, &source).await.unwrap_err();
    bench.server.put("/a.raw", Answer::Body(bytes));
    tokio::time::sleep(Duration::from_millis(60)).await;
    settle(&*images, &source).await.unwrap();
}

#[tokio::test]
async fn redirects_are_followed_where_they_are_granted_and_nowhere_else() {
    let bench = Bench::new().await;
    let other = Server::start().await;
    let bytes = image(9);
    other.put("/a.raw", Answer::Body(bytes.clone()));
    bench.server.put("/granted", Answer::Redirect(other.url("/a.raw")));
    bench.server.put("/relative", Answer::Redirect("./granted#x".to_owned()));
    bench.server.put("/file", Answer::Redirect("file:///etc/passwd".to_owned()));
    bench.server.put("/tls", Answer::Redirect(format!("https://{}/a.raw", other.address)));
    bench.server.put("/metadata", Answer::Redirect("https://169.254.169.254/latest".to_owned()));
    bench.server.put("/loop", Answer::Redirect(bench.server.url("/loop")));
    // Another image: this one is in the cache now, whoever asks for it by its digest.
    let digest = sha256(&image(99));
    let both = bench.granted_to("both", &[&bench.server.url("/"), &other.url("/")]);
    settle(&*both, &bench.source("/relative", None)).await.unwrap();
    let requests = other.requests().len();
    let one = bench.granted();
    for (path, pinned, word) in [
        ("/granted", false, "give the image's digest"),
        ("/granted", true, "neither https nor granted"),
        ("/file", true, "no redirect may name"),
        ("/tls", false, "give the image's digest"),
        ("/tls", true, "not public"),
        ("/metadata", true, "not public"),
    ] {
        let source = Source { key: Some("other".to_owned()), ..bench.source(path, pinned.then_some(digest.as_str())) };
        let error = settle(&*one, &source).await.unwrap_err();
        assert_eq!(
            (error.code.as_str(), error.reason.as_str()),
            ("permission-denied", "GrantMissing"),
            "{path}: {error}"
        );
        assert!(error.message.contains(word), "{path}: {error}");
    }
    assert_eq!(other.requests().len(), requests, "nobody was asked who may not be");
    let error =
        settle(&*one, &Source { key: Some("other".to_owned()), ..bench.source("/loop", None) }).await.unwrap_err();
    assert!(error.message.contains("more than 5 times"), "{error}");
}

#[tokio::test]
async fn a_denial_says_what_would_allow_it_and_asks_nobody() {
    let bench = Bench::new().await;
    let images = bench.granted_to("kvm-home", &["https://images.example/"]);
    let source = bench.source("/a.raw", None);
    let denied = images.ensure("hv1", "default", &source).await.unwrap_err();
    assert!(
        denied.message.contains("spec.grants.images.urlPrefixes") && denied.message.contains(&bench.server.url("/")),
        "{denied}"
    );
    let images = bench.granted();
    let denied = images.ensure("hv2", "default", &source).await.unwrap_err();
    assert!(denied.message.contains("spec.grants.libvirt.hosts"), "{denied}");
    let denied = images.ensure("hv1", "fast", &source).await.unwrap_err();
    assert!(denied.message.contains("spec.grants.libvirt.hosts.hv1.pools"), "{denied}");
    assert_eq!(bench.server.requests(), [""; 0]);
}

#[tokio::test]
async fn files_come_from_the_granted_folder_and_from_nowhere_else() {
    let bench = Bench::new().await;
    let folder = tempfile::tempdir().unwrap();
    let (inside, outside) = (folder.path().join("images"), folder.path().join("secret.raw"));
    std::fs::create_dir(&inside).unwrap();
    let bytes = image(10);
    std::fs::write(inside.join("a b.raw"), &bytes).unwrap();
    std::fs::write(&outside, &bytes).unwrap();
    std::os::unix::fs::symlink(&outside, inside.join("absolute.raw")).unwrap();
    std::os::unix::fs::symlink("../secret.raw", inside.join("relative.raw")).unwrap();
    std::os::unix::fs::symlink("a b.raw", inside.join("within.raw")).unwrap();
    let root = format!("file://{}/", inside.display());
    let images = bench.granted_to("kvm-home", &[&root]);
    let source = |name: &str| Source { url: format!("{root}{name}"), ..bench.source("/", None) };
    let ready = settle(&*images, &source("a%20b.raw")).await.unwrap();
    assert_eq!(bench.disk.get(&ready.volume).unwrap().data, bytes);
    settle(&*images, &source("within.raw")).await.unwrap();
    let alone = format!("{root}within.raw");
    settle(&*bench.granted_to("one-file", &[&alone]), &source("within.raw")).await.unwrap();
    for (name, reason) in [
        ("absolute.raw", "ImageUnusable"),
        ("relative.raw", "ImageUnusable"),
        ("../secret.raw", "GrantMissing"),
        ("%2e%2e/secret.raw", "GrantMissing"),
        ("..%2fsecret.raw", "ConfigInvalid"),
        ("missing.raw", "ImageNotFound"),
    ] {
        let error = settle(&*images, &source(name)).await.unwrap_err();
        assert_eq!(error.reason, reason, "{name}: {error}");
    }
    let fifo = inside.join("fifo.raw");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    assert_eq!(settle(&*images, &source("fifo.raw")).await.unwrap_err().reason, "ImageUnusable");
}

#[tokio::test]
async fn downloads_are_bounded() {
    let bench = Bench::new().await;
    let grant = ImagesGrant { max_gib: Some(0), ..images_grant(&[&bench.server.url("/")]) };
    let images = bench.service.granted("kvm-home", &grant, &libvirt_grant());
    for answer in [Answer::Body(image(11)), Answer::Unannounced(image(11))] {
        bench.server.put("/a.raw", answer);
        let source =
            Source { key: Some(format!("k{}", bench.server.requests().len())), ..bench.source("/a.raw", None) };
        let error = settle(&*images, &source).await.unwrap_err();
        assert_eq!(error.reason, "ImageUnusable");
        assert!(error.message.contains("maxGiB"), "{error}");
    }
    // One that is in the pool already does not become usable by that.
    let bytes = image(12);
    bench.server.put("/b.raw", Answer::Body(bytes.clone()));
    let source = bench.source("/b.raw", Some(&sha256(&bytes)));
    settle(&*bench.granted(), &source).await.unwrap();
    assert!(settle(&*images, &source).await.unwrap_err().message.contains("maxGiB"));
}

#[tokio::test]
async fn a_full_pool_is_exhausted() {
    let bench = Bench::new().await;
    bench.server.put("/a.raw", Answer::Body(image(13)));
    *bench.disk.space.lock().unwrap() = Some(1_000);
    let error = settle(&*bench.granted(), &bench.source("/a.raw", None)).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.reason.as_str()), ("exhausted", "PoolFull"));
    assert!(error.message.contains("hv1/default"), "{error}");
    assert_eq!(bench.disk.names(), [""; 0]);
}
