//! An operator that dies at each step, two that share a pool, images in use.

use std::sync::atomic::Ordering;

use super::*;

const CHANGES: usize = 13;

/// What must be there at the end: one whole image, and nothing else.
fn check(disk: &Disk, ready: &BaseImage, bytes: &[u8]) {
    assert_eq!(disk.names(), [ready.volume.clone(), format!("{}.complete", ready.volume)]);
    assert_eq!(disk.get(&ready.volume).unwrap().data, bytes);
}

/// Dies after so many changes; says whether the image was whole then by its marker.
async fn die_after(bench: &Bench, source: &Source, changes: i64) {
    let (service, pool, _cache) = operator(&bench.disk, "installation", quick());
    pool.life.store(changes, Ordering::SeqCst);
    let images = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
    let before = bench.disk.changes.lock().unwrap().len() as i64;
    for _ in 0..2_000 {
        let status = images.ensure("hv1", "default", source).await.unwrap();
        let made = bench.disk.changes.lock().unwrap().len() as i64 - before;
        if matches!(status, Status::Ready(_)) || made >= changes {
            // What it would still do, it does now.
            tokio::time::sleep(Duration::from_millis(10)).await;
            break;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    pool.life.store(0, Ordering::SeqCst);
}

#[tokio::test]
async fn after_a_crash_at_any_step_the_next_operator_ends_with_one_whole_image() {
    let bytes = image(40);
    for changes in 0..=CHANGES as i64 {
        let bench = Bench::new().await;
        bench.server.put("/a.raw", Answer::Body(bytes.clone()));
        let source = bench.source("/a.raw", Some(&sha256(&bytes)));
        die_after(&bench, &source, changes).await;
        // Whoever looks now sees a whole image, or none.
        if let Some((name, _)) =
            bench.disk.images().first().and_then(|volume| super::super::name::BaseName::parse(volume))
            && let super::super::stock::Stock::Whole(_) = super::super::stock::look(&bench.pool, &name).await.unwrap()
        {
            assert_eq!(bench.disk.get(&name.to_string()).unwrap().data, bytes, "after {changes} changes");
        }
        let ready = settle(&*bench.granted(), &source).await.unwrap();
        bench.disk.remove(&format!("{}.upload", ready.volume));
        check(&bench.disk, &ready, &bytes);
    }
}

#[tokio::test]
async fn an_upload_makes_as_many_changes_as_the_crash_test_cuts() {
    let bench = Bench::new().await;
    let bytes = image(41);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    settle(&*bench.granted(), &bench.source("/a.raw", Some(&sha256(&bytes)))).await.unwrap();
    let changes = bench.disk.changes.lock().unwrap();
    // Beats of the claim come when they come.
    let changes: Vec<&String> = changes.iter().collect();
    assert!(changes.len() >= CHANGES, "{changes:#?}");
    let place = |what: &str| changes.iter().position(|change| change.starts_with(what)).unwrap();
    let marker =
        changes.iter().rposition(|change| change.starts_with("write") && change.ends_with(".complete")).unwrap();
    assert!(place("create base") < place("delete base") && place("upload") < marker, "{changes:#?}");
}

#[tokio::test]
async fn crashes_in_a_row_do_not_add_up() {
    let bench = Bench::new().await;
    let bytes = image(42);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    for changes in [7, 3, 10, 1, 8, 5, 11, 2] {
        die_after(&bench, &source, changes).await;
    }
    let ready = settle(&*bench.granted(), &source).await.unwrap();
    bench.disk.remove(&format!("{}.upload", ready.volume));
    check(&bench.disk, &ready, &bytes);
}

#[tokio::test]
async fn two_installations_that_share_a_pool_upload_once() {
    let bench = Bench::new().await;
    let bytes = image(43);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    *bench.disk.slow.lock().unwrap() = Duration::from_millis(600);
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    let (service, _pool, _cache) = operator(&bench.disk, "another", quick());
    let theirs = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
    let (ours, theirs) = (bench.granted(), theirs);
    let (first, second) = tokio::join!(settle(&*ours, &source), settle(&*theirs, &source));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(bench.disk.uploads.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_upload_of_an_installation_that_died_is_taken_over_when_it_stands_still() {
    let bench = Bench::new().await;
    let bytes = image(44);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    for changes in [1, 3, 6, 8, 11] {
        let (service, pool, _cache) = operator(&bench.disk, "another", quick());
        pool.life.store(changes, Ordering::SeqCst);
        let theirs = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
        for _ in 0..30 {
            theirs.ensure("hv1", "default", &source).await.unwrap();
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let images = bench.granted();
        assert!(matches!(images.ensure("hv1", "default", &source).await.unwrap(), Status::Pending(_)));
        let ready = settle(&*images, &source).await.unwrap();
        check(&bench.disk, &ready, &bytes);
        for name in bench.disk.names() {
            bench.disk.remove(&name);
        }
    }
}

#[tokio::test]
async fn an_operator_that_wakes_up_late_vouches_for_nothing() {
    let bench = Bench::new().await;
    let bytes = image(45);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    // One stops before it writes its marker, another takes over and is in the middle of its upload.
    die_after(&bench, &source, 10).await;
    let volume = bench.disk.images().remove(0);
    let (name, _) = super::super::name::BaseName::parse(&volume).unwrap();
    *bench.disk.slow.lock().unwrap() = Duration::from_secs(2);
    let images = bench.granted();
    let uploads = bench.disk.uploads.load(Ordering::SeqCst);
    while bench.disk.uploads.load(Ordering::SeqCst) == uploads {
        images.ensure("hv1", "default", &source).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    // The first one wakes up, and writes a marker that was true once.
    let marker = super::super::marker::Marker {
        version: 1,
        volume: volume.clone(),
        digest: sha256(&bytes),
        length: bytes.len() as u64,
        capacity: bytes.len() as u64,
        source: String::new(),
        token: "late".to_owned(),
        completed_at: String::new(),
    };
    bench.disk.put(&name.marker(), &marker.encode().unwrap(), None);
    let (service, _pool, _cache) = operator(&bench.disk, "another", quick());
    let theirs = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(matches!(theirs.ensure("hv1", "default", &source).await.unwrap(), Status::Pending(_)));
    *bench.disk.slow.lock().unwrap() = Duration::ZERO;
    let ready = settle(&*images, &source).await.unwrap();
    check(&bench.disk, &ready, &bytes);
}

#[tokio::test]
async fn an_image_in_use_is_never_replaced() {
    let bench = Bench::new().await;
    let bytes = image(46);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let digest = sha256(&bytes);
    let source = bench.source("/a.raw", Some(&digest));
    let volume = format!("base-debian-12-{}.raw", &digest[7..19]);
    // Without a marker, and something stands on it.
    bench.disk.put(&volume, &bytes[..1_000], None);
    bench.disk.put("px0123456789-a.disk", b"overlay", Some(&volume));
    let error = settle(&*bench.granted(), &source).await.unwrap_err();
    assert_eq!((error.code.as_str(), error.reason.as_str()), ("conflict", "ImageInUse"));
    assert!(error.message.contains("px0123456789-a.disk"), "{error}");
    assert_eq!(bench.disk.get(&volume).unwrap().data, bytes[..1_000]);
    assert_eq!(bench.disk.names().len(), 2);
    // A new digest is a new volume beside it.
    let newer = image(47);
    bench.server.put("/a.raw", Answer::Body(newer.clone()));
    let ready = settle(&*bench.granted(), &bench.source("/a.raw", Some(&sha256(&newer)))).await.unwrap();
    assert_ne!(ready.volume, volume);
    assert_eq!(bench.disk.get(&volume).unwrap().data, bytes[..1_000]);
    // Unused, it is made anew.
    bench.disk.remove("px0123456789-a.disk");
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let (service, _pool, _cache) = operator(&bench.disk, "installation", quick());
    let images = service.granted("kvm-home", &images_grant(&[&bench.server.url("/")]), &libvirt_grant());
    settle(&*images, &source).await.unwrap();
    assert_eq!(bench.disk.get(&volume).unwrap().data, bytes);
}

#[tokio::test]
async fn what_looks_like_ours_and_is_not_whole_is_made_anew() {
    let bytes = image(48);
    let digest = sha256(&bytes);
    let volume = format!("base-debian-12-{}.raw", &digest[7..19]);
    for (content, marker) in
        [(&bytes[..500], None), (&bytes[..], Some(vec![0; 1024])), (&bytes[..], Some(b"{}".to_vec()))]
    {
        let bench = Bench::new().await;
        bench.server.put("/a.raw", Answer::Body(bytes.clone()));
        bench.disk.put(&volume, content, None);
        if let Some(marker) = marker {
            bench.disk.put(&format!("{volume}.complete"), &marker, None);
        }
        let ready = settle(&*bench.granted(), &bench.source("/a.raw", Some(&digest))).await.unwrap();
        check(&bench.disk, &ready, &bytes);
    }
}

#[tokio::test]
async fn an_upload_that_libvirt_breaks_off_is_cleaned_up_and_tried_again() {
    // Longer than a test is kept from its processor: else a failure is over before it is seen.
    let peace = Duration::from_secs(1);
    let bench = Bench::with(ImageLimits { retry_transient: peace, retry_transient_most: peace, ..quick() }).await;
    let bytes = image(49);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    let source = bench.source("/a.raw", Some(&sha256(&bytes)));
    let images = bench.granted();
    for step in ["create base", "upload base", "write base", "delete base"] {
        let failure = (step, Error::unavailable("LibvirtUnavailable", "the connection ended"));
        bench.disk.failures.lock().unwrap().push(failure);
        let error = settle(&*images, &source).await.expect_err(step);
        assert_eq!(error.reason, "LibvirtUnavailable", "{step}");
        tokio::time::sleep(peace).await;
    }
    let ready = settle(&*images, &source).await.unwrap();
    check(&bench.disk, &ready, &bytes);
    assert_eq!(bench.server.requests().len(), 1, "the download was kept");
}
