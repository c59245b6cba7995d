//! Puts a file in its place, whole or not at all.
//!
//! The content goes to a file beside it, to the disk, and then under the name; mode and owner stay. A file that was
//! changed since it was read is left alone.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use rustix::fs::{
    Access, AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, accessat, fchmod, fchown, fstat,
    fsync, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use uuid::Uuid;

use super::resolve::{MAX_SIZE, PathError, ResolvedPath};
use crate::workspace::stage::make_executable;

/// Replaces the file that `old` tells of, or makes a new one where nothing is.
pub(in crate::workspace::tests) fn put(
    place: &ResolvedPath,
    content: &[u8],
    old: Option<&Stat>,
) -> Result<(), PathError> {
    if MAX_SIZE < content.len() as u64 {
        return Err(PathError::TooLarge);
    }
    let folder = place.folder.as_fd();
    if old.is_some() {
        // A rename asks for no right to the file; who took that right away did not want it replaced.
        accessat(folder, &place.name, Access::WRITE_OK, AtFlags::EACCESS)?;
    }
    let beside = format!(".orchestrator-edit-{}", Uuid::new_v4().simple());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(openat(folder, &beside, flags, Mode::from_raw_mode(0o666))?);
    let placed = fill(file, content, old)
        .map_err(|error| PathError::from(&error))
        .and_then(|()| swap(place, &beside, old));
    if placed.is_err() {
        let _ = unlinkat(folder, &beside, AtFlags::empty());
        return placed;
    }
    // The file is in its place; a folder that may not be read cannot be asked to keep its name over a power cut.
    if let Ok(readable) = openat(
        folder,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    ) {
        fsync(readable)?;
    }
    Ok(())
}

/// Returns what is at a place: a regular file, or nothing.
pub(in crate::workspace::tests) fn existing(
    place: &ResolvedPath,
) -> Result<Option<Stat>, PathError> {
    match statat(&place.folder, &place.name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {
            Ok(Some(stat))
        }
        Ok(_) => Err(PathError::Special),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn fill(mut file: File, content: &[u8], old: Option<&Stat>) -> io::Result<()> {
    file.write_all(content)?;
    if old.is_none() && content.starts_with(b"#!") {
        make_executable(&file)?;
    }
    if let Some(old) = old {
        let own = fstat(&file)?;
        if (own.st_uid, own.st_gid) != (old.st_uid, old.st_gid) {
            // Only root may give files away; anyone else keeps what is theirs to give.
            let _ = fchown(
                &file,
                Some(Uid::from_raw(old.st_uid)),
                Some(Gid::from_raw(old.st_gid)),
            );
        }
        fchmod(&file, Mode::from_raw_mode(old.st_mode & 0o7777))?;
    }
    file.sync_all()
}

fn swap(place: &ResolvedPath, beside: &str, old: Option<&Stat>) -> Result<(), PathError> {
    let (folder, name) = (place.folder.as_fd(), &place.name);
    let Some(old) = old else {
        return match renameat_with(folder, beside, folder, name, RenameFlags::NOREPLACE) {
            // Not every file system can promise it.
            Err(Errno::INVAL | Errno::NOSYS) => Ok(renameat(folder, beside, folder, name)?),
            other => Ok(other?),
        };
    };
    if existing(place)?.is_none_or(|now| identity(&now) != identity(old)) {
        return Err(PathError::Changed);
    }
    Ok(renameat(folder, beside, folder, name)?)
}

/// What changes with a file's content.
fn identity(stat: &Stat) -> impl PartialEq + use<> {
    (
        stat.st_dev,
        stat.st_ino,
        stat.st_size,
        stat.st_mtime,
        stat.st_mtime_nsec,
        stat.st_ctime,
        stat.st_ctime_nsec,
    )
}
