use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use proxy_operator_core::error::Error;
use proxy_operator_runtime::{Engine, EngineSettings, Plugin};

use crate::support::{Lines, hostile};

fn engine(cache_dir: &Path) -> Result<Engine, Error> {
    Engine::new(EngineSettings { cache_dir: Some(cache_dir.to_owned()), ..Default::default() })
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

async fn load(folder: &Path) -> String {
    let (lines, _guard) = Lines::keep("info");
    Plugin::load(&engine(folder).unwrap(), "hostile", hostile()).await.unwrap();
    lines.text()
}

/// A file that was not read keeps what tells that it was: the time of its last change.
fn stamp(path: &Path) -> std::time::SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

#[tokio::test]
async fn code_is_compiled_once() {
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("a/b/cache");
    load(&cache).await;
    assert_eq!(fs::metadata(&cache).unwrap().permissions().mode() & 0o777, 0o700);
    let file = files(&cache).pop().unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let written = stamp(&file);
    let begun = std::time::Instant::now();
    assert_eq!(load(&cache).await.matches("WARN").count(), 0);
    println!("a start with compiled code: {:?}", begun.elapsed());
    assert_eq!((files(&cache).len(), stamp(&file)), (1, written));
}

#[tokio::test]
async fn a_damaged_file_is_compiled_anew() {
    let folder = tempfile::tempdir().unwrap();
    load(folder.path()).await;
    let file = files(folder.path()).pop().unwrap();
    let whole = fs::read(&file).unwrap();
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() / 2], b"", b"\x7fELF and so on"] {
        fs::write(&file, damaged).unwrap();
        let lines = load(folder.path()).await;
        assert!(lines.contains("compiled code is not used"), "{lines}");
        assert_eq!(fs::read(&file).unwrap().len(), whole.len());
    }
}

#[tokio::test]
async fn a_folder_that_others_can_write_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for bits in [0o720, 0o702, 0o777] {
        mode(folder.path(), bits);
        let error = engine(folder.path()).unwrap_err();
        assert!(
            error.message.contains("can be written by others") && error.message.contains("0700"),
            "{}",
            error.message
        );
    }
    mode(folder.path(), 0o700);
    let link = folder.path().join("link");
    symlink(folder.path(), &link).unwrap();
    assert!(engine(&link).unwrap_err().message.contains("is not a folder"));
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(engine(&file).is_err());
}

#[tokio::test]
async fn a_file_that_others_can_write_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    load(folder.path()).await;
    let file = files(folder.path()).pop().unwrap();
    mode(&file, 0o666);
    let lines = load(folder.path()).await;
    assert!(lines.contains("can be written by others"), "{lines}");
    // Written anew, and trusted again.
    assert_eq!(load(folder.path()).await.matches("WARN").count(), 0);

    // Neither is a link to one elsewhere.
    let elsewhere = tempfile::tempdir().unwrap();
    let moved = elsewhere.path().join("code");
    fs::rename(&file, &moved).unwrap();
    symlink(&moved, &file).unwrap();
    assert!(load(folder.path()).await.contains("compiled code is not used"));
}

#[tokio::test]
async fn a_file_of_another_user_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    load(folder.path()).await;
    let file = files(folder.path()).pop().unwrap();
    if std::os::unix::fs::chown(&file, Some(12345), None).is_err() {
        println!("only root can give a file away: what belongs to others is tested where tests run as root");
        return;
    }
    assert!(load(folder.path()).await.contains("belongs to user 12345"));
    std::os::unix::fs::chown(folder.path(), Some(12345), None).unwrap();
    assert!(engine(folder.path()).unwrap_err().message.contains("belongs to user 12345"));
}

#[tokio::test]
async fn code_that_came_with_the_image_is_used_and_never_written() {
    let prebuilt = tempfile::tempdir().unwrap();
    load(prebuilt.path()).await;
    mode(prebuilt.path(), 0o555);
    let own = tempfile::tempdir().unwrap();
    let settings = EngineSettings {
        cache_dir: Some(own.path().to_owned()),
        prebuilt_dirs: vec![prebuilt.path().to_owned()],
        ..Default::default()
    };
    Plugin::load(&Engine::new(settings).unwrap(), "hostile", hostile()).await.unwrap();
    assert_eq!((files(own.path()).len(), files(prebuilt.path()).len()), (0, 1));
    mode(prebuilt.path(), 0o700);
}

#[tokio::test]
async fn code_of_other_settings_is_not_found() {
    let folder = tempfile::tempdir().unwrap();
    load(folder.path()).await;
    let file = files(folder.path()).pop().unwrap();
    let name = file.file_name().unwrap().to_str().unwrap().to_owned();
    let (digest, _) = name.split_once('-').unwrap();
    assert_eq!(digest.len(), 64);
    fs::rename(&file, folder.path().join(format!("{digest}-0123456789abcdef.code"))).unwrap();
    load(folder.path()).await;
    assert_eq!(files(folder.path()).len(), 2);
}
