//! What is listed and removed.

use super::super::stored::{Condition, StoredImage};
use super::*;

async fn filled(bench: &Bench, key: &str, seed: u8) -> BaseImage {
    let bytes = image(seed);
    bench.server.put(&format!("/{key}"), Answer::Body(bytes.clone()));
    let source = Source { key: Some(key.to_owned()), ..bench.source(&format!("/{key}"), Some(&sha256(&bytes))) };
    settle(&*bench.granted(), &source).await.unwrap()
}

async fn prune(bench: &Bench, keep: &(dyn Fn(&StoredImage) -> bool + Send + Sync)) -> Vec<String> {
    let (host, name) = (libvirt_grant().hosts.remove("hv1").unwrap(), "hv1");
    let pruned = bench.service.prune(name, &host, "default", keep).await.unwrap();
    pruned.into_iter().map(|image| image.volume).collect()
}

#[tokio::test]
async fn images_are_listed_with_their_condition_size_and_users() {
    let bench = Bench::new().await;
    let whole = filled(&bench, "whole", 60).await;
    let used = filled(&bench, "used", 61).await;
    bench.disk.put("px0123456789-a.disk", b"overlay", Some(&used.volume));
    bench.disk.put("base-partial-0123456789ab.qcow2", &[0; 600], None);
    bench.disk.put("base-claimed-0123456789ab.raw.upload", &[0; 1024], None);
    bench.disk.put("base-gone-0123456789ab.raw.complete", &[0; 1024], None);
    bench.disk.put("stranger.qcow2", b"x", None);
    let host = libvirt_grant().hosts.remove("hv1").unwrap();
    let listed = bench.service.list("hv1", &host, "default").await.unwrap();
    let conditions: Vec<(&str, Condition)> = listed.iter().map(|image| (image.key.as_str(), image.condition)).collect();
    assert_eq!(
        conditions,
        [
            ("claimed", Condition::Uploading),
            ("gone", Condition::Leftover),
            ("partial", Condition::Partial),
            ("used", Condition::Whole),
            ("whole", Condition::Whole)
        ]
    );
    let last = listed.last().unwrap();
    assert_eq!((last.volume.as_str(), last.bytes), (whole.volume.as_str(), Some(200_000)));
    assert!(last.digest.as_ref().unwrap().starts_with("sha256:") && last.completed_at.is_some());
    assert_eq!(listed[3].users, ["px0123456789-a.disk"]);
}

#[tokio::test]
async fn only_what_nobody_needs_is_removed() {
    let bench = Bench::new().await;
    let (unused, wanted, used) =
        (filled(&bench, "unused", 62).await, filled(&bench, "wanted", 63).await, filled(&bench, "used", 64).await);
    bench.disk.put("px0123456789-a.disk", b"overlay", Some(&used.volume));
    bench.disk.put("base-partial-0123456789ab.qcow2", &[0; 600], None);
    bench.disk.put("base-gone-0123456789ab.raw.complete", &[0; 1024], None);
    bench.disk.put("base-claimed-0123456789ab.raw.upload", &[0; 1024], None);
    bench.disk.put("stranger.qcow2", b"x", None);
    let mut pruned = prune(&bench, &|image| image.key == "wanted").await;
    pruned.sort();
    let mut expected = vec![
        unused.volume.clone(),
        "base-partial-0123456789ab.qcow2".to_owned(),
        "base-gone-0123456789ab.raw".to_owned(),
        "base-claimed-0123456789ab.raw".to_owned(),
    ];
    expected.sort();
    assert_eq!(pruned, expected);
    let mut left = vec![
        wanted.volume.clone(),
        format!("{}.complete", wanted.volume),
        used.volume.clone(),
        format!("{}.complete", used.volume),
        "px0123456789-a.disk".to_owned(),
        "stranger.qcow2".to_owned(),
    ];
    left.sort();
    assert_eq!(bench.disk.names(), left);
    // The marker goes first.
    let changes = bench.disk.changes.lock().unwrap();
    let place = |what: String| changes.iter().rposition(|change| *change == what).unwrap();
    assert!(place(format!("delete {}.complete", unused.volume)) < place(format!("delete {}", unused.volume)));
}

#[tokio::test]
async fn an_image_that_is_being_uploaded_is_left_alone() {
    let bench = Bench::new().await;
    let bytes = image(65);
    bench.server.put("/a.raw", Answer::Body(bytes.clone()));
    *bench.disk.slow.lock().unwrap() = Duration::from_millis(1_500);
    let (images, source) = (bench.granted(), bench.source("/a.raw", Some(&sha256(&bytes))));
    while bench.disk.images().is_empty() {
        images.ensure("hv1", "default", &source).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert_eq!(prune(&bench, &|_| false).await, [""; 0]);
    settle(&*images, &source).await.unwrap();
}
