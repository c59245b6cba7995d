//! Opens files that the user names: regular files only, without blocking on FIFOs or devices.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;

/// Opens a regular file for reading; links are followed unless `flags` forbids it.
pub(crate) fn open_regular_file(path: &Path, flags: OFlags) -> io::Result<File> {
    // Checked before opening too, since opening a device may have effects.
    require_regular(&fs::metadata(path)?)?;
    let flags = flags | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)?;
    require_regular(&file.metadata()?)?;
    Ok(file)
}

fn require_regular(metadata: &Metadata) -> io::Result<()> {
    match metadata.is_file() {
        true => Ok(()),
        false => Err(io::Error::other("it is not a regular file")),
    }
}
