//! The system calls under the door: one name in one open directory at a time.
//!
//! Nothing here follows a link or enters a mount. `openat2` promises both in the kernel; where it is missing (an old
//! kernel, a filter of a container) a plain no-follow open and a look at what was opened do.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, StatxAttributes, StatxFlags, chmod, fchmod,
    fstat, openat, openat2, readlinkat, statx,
};
use rustix::io::Errno;
use uuid::Uuid;

/// How the names of our own passing entries at the top of the workspace begin.
pub(super) const STAGE_PREFIX: &str = ".orchestrator-stage-";

/// How often an open is tried again when the kernel saw a rename under way.
const OPEN_ATTEMPTS: u32 = 256;

/// Whether an own entry whose permissions are in the way is opened up first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace) enum Access {
    AsIs,
    Force,
}

/// What is known of an entry without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace) struct EntryMeta {
    pub kind: FileType,
    /// The permission bits.
    pub mode: u32,
    pub size: u64,
    pub ino: u64,
    /// How many names it has.
    pub links: u32,
    /// Seconds and nanoseconds.
    pub ctime: (i64, u32),
    pub mtime: (i64, u32),
    /// Another file system begins here.
    pub is_mount: bool,
}

/// Looks at `name` itself, or, when it is empty, at what `dir` is; returns nothing when it is not there.
pub(in crate::workspace) fn look(
    dir: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<Option<EntryMeta>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let found = match statx(dir, name, flags, StatxFlags::BASIC_STATS) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    Ok(Some(EntryMeta {
        kind: FileType::from_raw_mode(found.stx_mode.into()),
        mode: u32::from(found.stx_mode) & 0o7777,
        size: found.stx_size,
        ino: found.stx_ino,
        links: found.stx_nlink,
        ctime: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        mtime: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    }))
}

/// Opens the directory `name` in `dir`.
pub(super) fn enter(dir: BorrowedFd<'_>, name: &OsStr, access: Access) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    if access == Access::AsIs {
        return open_beneath(dir, name, flags);
    }
    let folder = match open_beneath(dir, name, flags) {
        Err(Errno::ACCESS) => {
            unlock(dir, name, 0o700).and_then(|()| open_beneath(dir, name, flags))
        }
        other => other,
    }?;
    loosen(&folder);
    Ok(folder)
}

/// Opens the file `name` in `dir` for reading, and never waits for anything.
pub(super) fn open_file(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    access: Access,
) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    match open_beneath(dir, name, flags) {
        Err(Errno::ACCESS) if access == Access::Force => {
            unlock(dir, name, 0o600).and_then(|()| open_beneath(dir, name, flags))
        }
        other => other,
    }
}

/// Gives the owner all rights to the directory, as far as that is ours to give.
pub(super) fn loosen(folder: &OwnedFd) {
    if let Ok(found) = fstat(folder)
        && found.st_mode & 0o700 != 0o700
    {
        // Not ours: then what follows fails, and says so with its path.
        let _ = fchmod(folder, Mode::from_raw_mode(found.st_mode & 0o777 | 0o700));
    }
}

/// Adds the permission bits `more` to an entry that cannot be opened, unless it is a link.
pub(super) fn unlock(dir: BorrowedFd<'_>, name: &OsStr, more: u32) -> Result<(), Errno> {
    let handle = open_beneath(dir, name, OFlags::PATH)?;
    let found = fstat(&handle)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    // A handle without rights takes no fchmod; its name under /proc is the same file, whatever happens to the path.
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    chmod(name, Mode::from_raw_mode(found.st_mode & 0o777 | more)).map_err(|_| Errno::ACCESS)
}

/// Returns the names in a directory, sorted, and stops reading after `limit` of them.
pub(super) fn names(dir: BorrowedFd<'_>, limit: usize) -> Result<Vec<OsString>, Errno> {
    let mut found = Vec::new();
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            found.push(OsStr::from_bytes(name).to_owned());
        }
        if found.len() >= limit {
            break;
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Returns where the link `name` points.
pub(super) fn read_link(dir: BorrowedFd<'_>, name: &OsStr) -> Result<PathBuf, Errno> {
    let target = readlinkat(dir, name, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

/// Returns a fresh name for a passing entry at the top of the workspace.
pub(super) fn stage_name() -> String {
    format!("{STAGE_PREFIX}{}", Uuid::new_v4().simple())
}

fn open_beneath(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    for _ in 0..OPEN_ATTEMPTS {
        match openat2(dir, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_by_hand(dir, name, flags),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// What `openat2` does, for one component: a no-follow open, and no mount.
fn open_by_hand(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    if name == ".." || name.as_bytes().contains(&b'/') {
        return Err(Errno::XDEV);
    }
    let opened = openat(dir, name, flags, Mode::empty())?;
    match look(opened.as_fd(), OsStr::new(""))? {
        Some(meta) if meta.is_mount => Err(Errno::XDEV),
        _ => Ok(opened),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn without_openat2_no_link_is_followed_either() {
        let root = tempfile::tempdir().expect("tempdir");
        fs::create_dir(root.path().join("real")).expect("mkdir");
        symlink("real", root.path().join("link")).expect("symlink");
        let top = fs::File::open(root.path()).expect("open");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        assert!(open_by_hand(top.as_fd(), OsStr::new("real"), flags).is_ok());
        assert_eq!(
            open_by_hand(top.as_fd(), OsStr::new("link"), flags).err(),
            Some(Errno::NOTDIR)
        );
        assert_eq!(
            open_by_hand(top.as_fd(), OsStr::new(".."), flags).err(),
            Some(Errno::XDEV)
        );
        assert_eq!(
            open_by_hand(top.as_fd(), OsStr::new("real/.."), flags).err(),
            Some(Errno::XDEV)
        );
    }
}
