//! Who shares a transfer, what is remembered, what ends with a grant.

use std::sync::atomic::Ordering;

use futures::future::join_all;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_who_ask_at_once_share_one_download_and_one_upload() {
    let bench = Bench::new().await;
    let bytes = image(20);
    bench.server.put("/a.raw", Answer::Slow(bytes.clone(), Duration::from_millis(30)));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    let providers: Vec<_> =
        (0..3).map(|index| bench.granted_to(&format!("p{index}"), &[&bench.server.url("/")])).collect();
    let all = join_all((0..60).map(|index| settle(&*providers[index % 3], &source))).await;
    let volumes: Vec<String> = all.into_iter().map(|image| image.unwrap().volume).collect();
    assert!(volumes.iter().all(|volume| *volume == volumes[0]));
    assert_eq!(bench.server.requests().len(), 1);
    assert_eq!(bench.disk.uploads.load(Ordering::SeqCst), 1);
    // The same without a digest.
    bench.server.put("/b.raw", Answer::Slow(image(21), Duration::from_millis(30)));
    let source = Source { key: Some("other".to_owned()), ..bench.source("/b.raw", None) };
    join_all((0..60).map(|index| settle(&*providers[index % 3], &source)))
        .await
        .into_iter()
        .for_each(|image| drop(image.unwrap()));
    assert_eq!(bench.server.requests().len(), 2);
    assert_eq!(bench.disk.uploads.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn ensure_returns_at_once_and_the_transfer_goes_on_alone() {
    let bench = Bench::new().await;
    let bytes = image(22);
    bench.server.put("/a.raw", Answer::Slow(bytes.clone(), Duration::from_millis(50)));
    let (images, source) = (bench.granted(), bench.source("/a.raw", Some(&sha256(&bytes))));
    let started = Instant::now();
    let status = images.ensure("hv1", "default", &source).await.unwrap();
    assert!(matches!(status, Status::Pending(_)) && started.elapsed() < Duration::from_millis(150), "{status:?}");
    tokio::time::sleep(Duration::from_millis(600)).await;
    assert!(matches!(images.ensure("hv1", "default", &source).await.unwrap(), Status::Ready(_)));
}

#[tokio::test]
async fn what_is_in_the_pool_is_ready_on_the_first_call() {
    let bench = Bench::new().await;
    let bytes = image(23);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    settle(&*bench.granted(), &source).await.unwrap();
    let limits = ImageLimits { grace: Duration::from_secs(2), ..quick() };
    let (service, _pool, _cache) = operator(&bench.disk, "installation", limits);
    let images = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
    assert!(matches!(images.ensure("hv1", "default", &source).await.unwrap(), Status::Ready(_)));
}

#[tokio::test]
async fn a_volume_or_marker_that_was_deleted_by_hand_is_noticed() {
    let bench = Bench::new().await;
    let bytes = image(24);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let (images, source) = (bench.granted(), bench.source("/a.raw", Some(&sha256(&bytes))));
    let ready = settle(&*images, &source).await.unwrap();
    for gone in [ready.volume.clone(), format!("{}.complete", ready.volume)] {
        bench.disk.remove(&gone);
        assert!(matches!(images.ensure("hv1", "default", &source).await.unwrap(), Status::Pending(_)));
        assert_eq!(settle(&*images, &source).await.unwrap(), ready);
        assert_eq!(bench.disk.get(&ready.volume).unwrap().data, bytes);
        assert!(bench.disk.get(&gone).is_some());
    }
}

#[tokio::test]
async fn a_failed_transfer_is_left_in_peace_until_its_time_or_a_change() {
    let bench = Bench::new().await;
    let images = bench.granted();
    let source = bench.source("/a.raw", None);
    settle(&*images, &source).await.unwrap_err();
    bench.server.put("/a.raw", Answer::Body(image(25)));
    for _ in 0..10 {
        let error = images.ensure("hv1", "default", &source).await.unwrap_err();
        assert_eq!(error.reason, "ImageNotFound");
    }
    assert_eq!(bench.server.requests().len(), 1);
    // A grant that changed is another chance at once.
    let changed = bench.granted_to("kvm-home", &[&bench.server.url("/"), "https://images.example/"]);
    settle(&*changed, &source).await.unwrap();
}

#[tokio::test]
async fn one_providers_failure_is_not_anothers() {
    let bench = Bench::new().await;
    let other = Server::start().await;
    let bytes = image(26);
    other.put("/a.raw", Answer::Body(bytes.clone()));
    bench.server.put("/a.raw", Answer::Redirect(other.url("/a.raw")));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    let narrow = bench.granted();
    let wide = bench.granted_to("wide", &[&bench.server.url("/"), &other.url("/")]);
    let (narrow, wide) = tokio::join!(settle(&*narrow, &source), settle(&*wide, &source));
    assert!(wide.is_ok(), "{wide:?}");
    if let Err(error) = narrow {
        assert_eq!(error.reason, "GrantMissing");
    }
}

#[tokio::test]
async fn a_grant_that_ends_ends_its_calls_and_its_transfers_at_once() {
    let bench = Bench::new().await;
    let bytes = image(27);
    bench.server.put("/a.raw", Answer::Stuck(bytes.clone(), 10_000));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    let images = bench.granted();
    images.ensure("hv1", "default", &source).await.unwrap();
    let files = || std::fs::read_dir(bench.cache.path().join("images")).map_or(0, Iterator::count);
    until("the download goes on", || files() == 1).await;
    images.revoke();
    assert_eq!(images.ensure("hv1", "default", &source).await.unwrap_err().reason, "GrantMissing");
    until("the download has ended", || files() == 0).await;
    // In the middle of an upload: cleaned up.
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    *bench.disk.slow.lock().unwrap() = Duration::from_secs(8);
    let images = bench.granted();
    for _ in 0..200 {
        images.ensure("hv1", "default", &source).await.unwrap();
        if bench.disk.uploads.load(Ordering::SeqCst) > 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    drop(images);
    until("the upload is cleaned up", || bench.disk.names().is_empty()).await;
}

#[tokio::test]
async fn a_grant_that_stays_equal_keeps_its_transfers() {
    let bench = Bench::new().await;
    let bytes = image(28);
    bench.server.put("/a.raw", Answer::Slow(bytes.clone(), Duration::from_millis(60)));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    let old = bench.granted();
    old.ensure("hv1", "default", &source).await.unwrap();
    let new = bench.granted();
    old.revoke();
    settle(&*new, &source).await.unwrap();
    assert_eq!(bench.server.requests().len(), 1);
}

#[tokio::test]
async fn uploads_to_a_hypervisor_take_turns() {
    let bench = Bench::new().await;
    *bench.disk.slow.lock().unwrap() = Duration::from_millis(40);
    let images = bench.granted();
    let sources: Vec<Source> = (0..5_u8)
        .map(|index| {
            let bytes = image(30 + index);
            bench.server.put(&format!("/{index}"), Answer::Body(bytes.clone()));
            Source { key: Some(format!("k{index}")), ..bench.source(&format!("/{index}"), Some(&sha256(&bytes))) }
        })
        .collect();
    let all = join_all(sources.iter().map(|source| settle(&*images, source))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    assert_eq!(bench.disk.most_at_once.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_upload_that_stands_still_is_given_up() {
    let bench = Bench::with(ImageLimits { upload_stall: Duration::from_millis(100), ..quick() }).await;
    bench.server.put("/a.raw", Answer::Body(image(29)));
    *bench.disk.slow.lock().unwrap() = Duration::from_secs(60);
    let error = settle(&*bench.granted(), &bench.source("/a.raw", None)).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.reason.as_str()), ("unavailable", "ImageUploadStalled"));
    assert_eq!(bench.disk.names(), [""; 0]);
}

#[tokio::test]
async fn another_image_under_the_same_twelve_digits_is_a_conflict() {
    let bench = Bench::new().await;
    let bytes = image(19);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let ready = settle(&*bench.granted(), &bench.source("/a.raw", Some(&sha256(&bytes)))).await.unwrap();
    // What somebody made on purpose: the digits of the name, and another digest.
    let digest = sha256(&bytes);
    let flipped = if digest.ends_with('0') { "1" } else { "0" };
    let twin = format!("{}{flipped}", &digest[..digest.len() - 1]);
    let error = settle(&*bench.granted(), &bench.source("/a.raw", Some(&twin))).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.reason.as_str()), ("conflict", "ImageNameTaken"));
    assert!(error.message.contains(&ready.volume), "{error}");
}
