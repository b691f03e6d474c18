//! The NoCloud seed: a FAT volume labelled CIDATA, in which cloud-init finds what the machine is to be.

use std::io::{Cursor, Result, Write};

/// FAT's own needs beside the content, and the granularity of the volume.
const OVERHEAD: usize = 256 << 10;
const STEP: usize = 64 << 10;

/// The meta-data. The instance-id makes a boot the first boot: it is the owner's uid, and stays for life.
pub(crate) fn meta_data(owner: &str, hostname: &str) -> String {
    format!("instance-id: \"{owner}\"\nlocal-hostname: \"{hostname}\"\n")
}

/// A seed with these documents, byte for byte. Equal documents give equal bytes.
pub(crate) fn image(user_data: &[u8], meta_data: &[u8], vendor_data: Option<&[u8]>) -> Result<Vec<u8>> {
    let files = [("user-data", Some(user_data)), ("meta-data", Some(meta_data)), ("vendor-data", vendor_data)];
    let content: usize = files.iter().filter_map(|(_, content)| content.map(<[u8]>::len)).sum();
    let mut volume = Cursor::new(vec![0; (content + OVERHEAD).next_multiple_of(STEP)]);
    let options = fatfs::FormatVolumeOptions::new().volume_label(*b"CIDATA     ").volume_id(0x7073_6565);
    fatfs::format_volume(&mut volume, options)?;
    let filesystem = fatfs::FileSystem::new(&mut volume, fatfs::FsOptions::new())?;
    for (name, content) in files {
        if let Some(content) = content {
            let mut file = filesystem.root_dir().create_file(name)?;
            file.write_all(content)?;
            file.flush()?;
        }
    }
    filesystem.unmount()?;
    Ok(volume.into_inner())
}
