//! System calls on one name in one open directory.
//!
//! Nothing here follows a link. `openat2` guarantees that in the kernel, and that no mount is entered; where it is missing
//! (an old kernel, a container's seccomp filter) an `openat` with `O_NOFOLLOW` and a check of what was opened do.

#![expect(
    clippy::disallowed_methods,
    reason = "the one place that opens, renames and removes generated files"
)]

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    self, AtFlags, Dir, FileType, Mode, OFlags, RenameFlags, ResolveFlags, StatxAttributes,
    StatxFlags, fchmod, fstat, statx,
};
use rustix::io::Errno;
use uuid::Uuid;

use crate::workspace::path_error::PathError;
use crate::workspace::rules::{Access, MountRule};

/// Prefix of temporary entries at the top of the workspace.
pub(super) const STAGE_PREFIX: &str = ".orchestrator-stage-";
/// How often an open is retried while the kernel sees a rename under way.
const OPEN_ATTEMPTS: u32 = 256;
/// How much memory is reserved for a file before it is read.
const MAX_RESERVED: usize = 32 << 20;

const LIST: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);
/// Does not block on a pipe and takes no controlling terminal.
const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Seconds and nanoseconds since 1970.
pub(crate) type FileTime = (i64, u32);

/// What is known of an entry without opening it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EntryMeta {
    pub kind: FileType,
    /// Permission, set-id and sticky bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub ino: u64,
    pub links: u32,
    pub ctime: FileTime,
    pub mtime: FileTime,
    /// Another file system begins here.
    pub is_mount: bool,
}

/// Describes `name`, without following it, or `dir` itself when it is empty.
pub(super) fn stat_entry(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Option<EntryMeta>, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::EMPTY_PATH;
    let found = match statx(dir, name, flags, StatxFlags::BASIC_STATS) {
        Ok(found) => found,
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno),
    };
    Ok(Some(EntryMeta {
        kind: FileType::from_raw_mode(found.stx_mode.into()),
        mode: u32::from(found.stx_mode) & 0o7777,
        uid: found.stx_uid,
        gid: found.stx_gid,
        size: found.stx_size,
        ino: found.stx_ino,
        links: found.stx_nlink,
        ctime: (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec),
        mtime: (found.stx_mtime.tv_sec, found.stx_mtime.tv_nsec),
        is_mount: found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT),
    }))
}

/// Identifies the mount that a folder is in; a kernel without mount ids gives its device.
pub(super) fn mount_of(folder: BorrowedFd<'_>) -> Option<(u64, u32, u32)> {
    let found = statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    Some((found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor))
}

/// Opens the folder `name` for going through it; under `Access::Force` it can be listed, too.
pub(super) fn enter(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    access: Access,
    mounts: MountRule,
) -> Result<OwnedFd, Errno> {
    match access {
        Access::Force => open_folder(dir, name, access),
        Access::AsIs | Access::HiddenIsAbsent => {
            open_beneath(dir, name, OFlags::PATH | OFlags::DIRECTORY, mounts)
        }
    }
}

/// Opens the folder `name`, which may not be a mount, for listing.
pub(super) fn open_folder(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    access: Access,
) -> Result<OwnedFd, Errno> {
    let open = || open_beneath(dir, name, LIST, MountRule::Refuse);
    if access != Access::Force {
        return open();
    }
    let folder = match open() {
        Err(Errno::ACCESS) => unlock(dir, name, 0o700).and_then(|()| open()),
        other => other,
    }?;
    loosen(&folder);
    Ok(folder)
}

/// Opens the folder `name`, which may be a mount, for listing.
pub(super) fn open_mounted_folder(dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    open_beneath(dir, name, LIST, MountRule::ReadOnly)
}

/// Opens the directory `name` in a trusted one; a link there is refused.
pub(super) fn open_top(dir: BorrowedFd<'_>, name: &str) -> Result<OwnedFd, Errno> {
    let open = || {
        let flags = LIST | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        fs::openat(dir, name, flags, Mode::empty())
    };
    match open() {
        Err(Errno::ACCESS) => unlock(dir, OsStr::new(name), 0o700).and_then(|()| open()),
        other => other,
    }
}

/// Opens a directory by a path that the user chose.
pub(super) fn open_trusted(path: &Path) -> Result<OwnedFd, Errno> {
    fs::open(path, LIST | OFlags::CLOEXEC, Mode::empty())
}

/// Opens a regular file for reading. Anything else is recognised by its type and never opened: a pipe would block, a
/// device may act.
pub(super) fn open_regular(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    access: Access,
    mounts: MountRule,
) -> Result<(File, EntryMeta), PathError> {
    require_regular(stat_entry(dir, name)?)?;
    let file = match open_beneath(dir, name, READ, mounts) {
        Err(Errno::ACCESS) if access == Access::Force => {
            unlock(dir, name, 0o600).and_then(|()| open_beneath(dir, name, READ, mounts))
        }
        other => other,
    }?;
    let meta = require_regular(stat_entry(file.as_fd(), OsStr::new(""))?)?;
    Ok((File::from(file), meta))
}

/// Opens a regular file several folders below `dir` in one call; a link on the way is refused. `None` where the kernel
/// cannot do that now.
pub(super) fn open_regular_below(
    dir: BorrowedFd<'_>,
    path: &Path,
    mounts: MountRule,
) -> Result<Option<(File, EntryMeta)>, PathError> {
    let flags = READ | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = match fs::openat2(dir, path, flags, Mode::empty(), beneath(mounts)) {
        Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => return Ok(None),
        opened => opened?,
    };
    let meta = require_regular(stat_entry(file.as_fd(), OsStr::new(""))?)?;
    Ok(Some((File::from(file), meta)))
}

/// Reads a file of at most `limit` bytes.
pub(super) fn read_bounded(file: File, meta: &EntryMeta, limit: u64) -> Result<Vec<u8>, PathError> {
    if limit < meta.size {
        return Err(PathError::TooLarge(meta.size));
    }
    let expected = usize::try_from(meta.size).unwrap_or(0);
    let mut content = Vec::with_capacity(expected.min(MAX_RESERVED) + 1);
    // One byte more than allowed shows that the file has grown.
    file.take(limit.saturating_add(1))
        .read_to_end(&mut content)?;
    match content.len() as u64 {
        size if limit < size => Err(PathError::TooLarge(size)),
        _ => Ok(content),
    }
}

/// Accepts a regular file only.
pub(super) fn require_regular(found: Option<EntryMeta>) -> Result<EntryMeta, PathError> {
    let meta = found.ok_or(PathError::Missing)?;
    match meta.kind {
        FileType::RegularFile => Ok(meta),
        FileType::Directory => Err(PathError::Folder),
        _ => Err(PathError::Special),
    }
}

/// Gives the owner all permissions on the folder, if it is this user's.
pub(super) fn loosen(folder: &OwnedFd) {
    if let Ok(found) = fstat(folder)
        && found.st_mode & 0o700 != 0o700
    {
        // If it fails, so does what follows, with its path.
        let _ = fchmod(folder, Mode::from_raw_mode(found.st_mode & 0o777 | 0o700));
    }
}

/// Adds permission bits to an entry that cannot be opened, unless it is a link.
pub(super) fn unlock(dir: BorrowedFd<'_>, name: &OsStr, more: u32) -> Result<(), Errno> {
    let handle = open_beneath(dir, name, OFlags::PATH, MountRule::Refuse)?;
    let found = fstat(&handle)?;
    if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
        return Err(Errno::LOOP);
    }
    // fchmod refuses an O_PATH handle; its name under /proc is the same file, whatever happens to the path.
    let name = format!("/proc/self/fd/{}", handle.as_raw_fd());
    fs::chmod(name, Mode::from_raw_mode(found.st_mode & 0o777 | more)).map_err(|_| Errno::ACCESS)
}

/// The names in a directory, one after the other in one piece of memory.
#[derive(Debug, Default)]
pub(super) struct NameList {
    bytes: Vec<u8>,
    ranges: Vec<Range<usize>>,
}

impl NameList {
    /// Lists at most `limit` names of a directory, sorted.
    pub(super) fn read(dir: BorrowedFd<'_>, limit: usize) -> Result<NameList, Errno> {
        let NameList {
            mut bytes,
            mut ranges,
        } = NameList::default();
        list(dir, |name, _| {
            let begin = bytes.len();
            bytes.extend_from_slice(name.as_bytes());
            ranges.push(begin..bytes.len());
            ranges.len() < limit
        })?;
        ranges.sort_unstable_by(|one, other| bytes[one.clone()].cmp(&bytes[other.clone()]));
        Ok(NameList { bytes, ranges })
    }

    pub(super) fn get(&self, index: usize) -> Option<&OsStr> {
        let range = self.ranges.get(index)?.clone();
        Some(OsStr::from_bytes(&self.bytes[range]))
    }
}

/// Lists at most `limit` names of a directory, sorted.
pub(super) fn names(dir: BorrowedFd<'_>, limit: usize) -> Result<Vec<OsString>, Errno> {
    let mut found = Vec::new();
    list(dir, |name, _| {
        found.push(name.to_owned());
        found.len() < limit
    })?;
    found.sort_unstable();
    Ok(found)
}

/// Visits the names of a directory and their types, as far as the listing has them, until `visit` returns false.
pub(super) fn list(
    dir: BorrowedFd<'_>,
    mut visit: impl FnMut(&OsStr, FileType) -> bool,
) -> Result<(), Errno> {
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." && !visit(OsStr::from_bytes(name), entry.file_type()) {
            break;
        }
    }
    Ok(())
}

/// Returns the target of the link `name`.
pub(super) fn read_link(dir: BorrowedFd<'_>, name: &OsStr) -> Result<PathBuf, Errno> {
    let target = fs::readlinkat(dir, name, Vec::new())?;
    Ok(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
}

/// Whether this process may write to the file `name`.
pub(super) fn require_writable(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    fs::accessat(dir, name, fs::Access::WRITE_OK, AtFlags::EACCESS)
}

/// Creates the file `name`, which does not exist.
pub(super) fn create_file(dir: BorrowedFd<'_>, name: &OsStr) -> Result<File, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    fs::openat(dir, name, flags, Mode::from_raw_mode(0o666)).map(File::from)
}

pub(super) fn create_link(target: &OsStr, dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    fs::symlinkat(target, dir, name)
}

/// Makes the folder `name`, unless it exists.
pub(super) fn make_folder(dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Result<(), Errno> {
    match fs::mkdirat(dir, name, Mode::from_raw_mode(mode)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

/// Makes the folder `name` with exactly this mode, unless it exists.
pub(super) fn make_folder_with(dir: BorrowedFd<'_>, name: &OsStr, mode: u32) -> Result<(), Errno> {
    match fs::mkdirat(dir, name, Mode::from_raw_mode(0o700)) {
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    let folder = open_beneath(dir, name, LIST, MountRule::Refuse)?;
    fchmod(folder, Mode::from_raw_mode(mode & 0o777))
}

/// Lets two entries change their places.
pub(super) fn exchange(
    (from, name): (BorrowedFd<'_>, &OsStr),
    (to, other): (BorrowedFd<'_>, &OsStr),
) -> Result<(), Errno> {
    fs::renameat_with(from, name, to, other, RenameFlags::EXCHANGE)
}

/// Moves an entry over whatever has the new name.
pub(super) fn rename(
    (from, name): (BorrowedFd<'_>, &OsStr),
    (to, new_name): (BorrowedFd<'_>, &OsStr),
) -> Result<(), Errno> {
    fs::renameat(from, name, to, new_name)
}

/// Gives an entry a name that nothing has, as far as the file system can promise that.
pub(super) fn rename_new(
    (from, name): (BorrowedFd<'_>, &OsStr),
    (to, new_name): (BorrowedFd<'_>, &OsStr),
) -> Result<(), Errno> {
    match fs::renameat_with(from, name, to, new_name, RenameFlags::NOREPLACE) {
        Err(Errno::INVAL | Errno::NOSYS) => rename((from, name), (to, new_name)),
        other => other,
    }
}

pub(super) fn remove_file(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    fs::unlinkat(dir, name, AtFlags::empty())
}

pub(super) fn remove_folder(dir: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    fs::unlinkat(dir, name, AtFlags::REMOVEDIR)
}

/// Opens a folder again for listing and fsync, which an O_PATH handle does not allow.
pub(super) fn open_listable(folder: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    fs::openat(folder, ".", LIST | OFlags::CLOEXEC, Mode::empty())
}

/// Returns a fresh name for a temporary entry at the top of the workspace.
pub(super) fn stage_name() -> OsString {
    temporary_name(STAGE_PREFIX)
}

pub(super) fn temporary_name(prefix: &str) -> OsString {
    format!("{prefix}{}", Uuid::new_v4().simple()).into()
}

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS);

fn beneath(mounts: MountRule) -> ResolveFlags {
    match mounts {
        MountRule::Refuse => BENEATH | ResolveFlags::NO_XDEV,
        MountRule::ReadOnly => BENEATH,
    }
}

fn open_beneath(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mounts: MountRule,
) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = beneath(mounts);
    for _ in 0..OPEN_ATTEMPTS {
        match fs::openat2(dir, name, flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(Errno::NOSYS | Errno::PERM) => return open_by_hand(dir, name, flags, mounts),
            other => return other,
        }
    }
    Err(Errno::AGAIN)
}

/// What `openat2` does, for one component.
fn open_by_hand(
    dir: BorrowedFd<'_>,
    name: &OsStr,
    flags: OFlags,
    mounts: MountRule,
) -> Result<OwnedFd, Errno> {
    if name == ".." || name.as_bytes().contains(&b'/') {
        return Err(Errno::XDEV);
    }
    let opened = fs::openat(dir, name, flags, Mode::empty())?;
    match stat_entry(opened.as_fd(), OsStr::new(""))? {
        Some(meta) if meta.is_mount && mounts == MountRule::Refuse => Err(Errno::XDEV),
        _ => Ok(opened),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn without_openat2_links_and_parents_are_refused() {
        let root = tempfile::tempdir().expect("tempdir");
        fs::create_dir(root.path().join("real")).expect("mkdir");
        symlink("real", root.path().join("link")).expect("symlink");
        let top = fs::File::open(root.path()).expect("open");
        for mounts in [MountRule::Refuse, MountRule::ReadOnly] {
            for flags in [OFlags::PATH, OFlags::RDONLY] {
                let flags = flags | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let open = |name: &str| {
                    open_by_hand(top.as_fd(), OsStr::new(name), flags, mounts).map(drop)
                };
                assert_eq!(open("real"), Ok(()));
                assert_eq!(open("link"), Err(Errno::NOTDIR));
                assert_eq!(open(".."), Err(Errno::XDEV));
                assert_eq!(open("real/.."), Err(Errno::XDEV));
            }
        }
    }
}
