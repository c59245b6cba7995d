//! Counts what was added to a directory tree since a point in time, without a list of what existed before.
//!
//! A file that was created later is new. One that was only changed later is counted separately, since it is unknown how
//! much of it is new. Symlinks are not followed, other file systems not entered, and the depth is limited.

use std::ffi::CString;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, Statx, StatxFlags, openat, statx};

/// Directories deeper than this are counted, but not entered.
const MAX_DEPTH: usize = 256;
const BLOCK: u64 = 512;

/// What was added to a tree.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Growth {
    pub(super) new_files: u64,
    pub(super) new_bytes: u64,
    /// All bytes of files that existed before and have changed.
    pub(super) changed_bytes: u64,
}

/// An open directory, and its subdirectories that are not yet counted.
struct GrowthLevel {
    handle: OwnedFd,
    folders: Vec<CString>,
}

/// Counts what was added below `top` since `begun`; stops early as soon as `is_wanted` is false.
#[expect(
    clippy::disallowed_methods,
    reason = "entries are counted by handle, never read"
)]
pub(super) fn count(top: &Path, begun: SystemTime, is_wanted: &AtomicBool) -> Growth {
    let since = begun.duration_since(UNIX_EPOCH).unwrap_or_default();
    let since = (
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        since.subsec_nanos(),
    );
    let mut counted = Growth::default();
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = |folder: &OwnedFd, name: &CString| {
        openat(folder, name.as_c_str(), flags, Mode::empty()).ok()
    };
    let top = openat(CWD, top, flags, Mode::empty()).ok();
    let device = top
        .as_ref()
        .and_then(|top| stat(top, c""))
        .map(|found| device(&found));
    let mut levels: Vec<GrowthLevel> = top
        .into_iter()
        .map(|top| level(top, device, since, &mut counted))
        .collect();
    while let Some(innermost) = levels
        .last_mut()
        .filter(|_| is_wanted.load(Ordering::Relaxed))
    {
        let Some(name) = innermost.folders.pop() else {
            levels.pop();
            continue;
        };
        let inner = open(&innermost.handle, &name).filter(|_| levels.len() < MAX_DEPTH);
        levels.extend(inner.map(|inner| level(inner, device, since, &mut counted)));
    }
    counted
}

/// Counts the entries of a directory, and returns it with its subdirectories.
fn level(
    handle: OwnedFd,
    on: Option<(u32, u32)>,
    since: (i64, u32),
    counted: &mut Growth,
) -> GrowthLevel {
    let mut folders = Vec::new();
    for entry in Dir::read_from(&handle).into_iter().flatten().flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Some(found) = stat(&handle, name).filter(|found| Some(device(found)) == on) else {
            continue;
        };
        add(&found, since, counted);
        if FileType::from_raw_mode(found.stx_mode.into()) == FileType::Directory {
            folders.push(name.to_owned());
        }
    }
    GrowthLevel { handle, folders }
}

fn add(found: &Statx, since: (i64, u32), counted: &mut Growth) {
    let has_birth = StatxFlags::from_bits_retain(found.stx_mask).contains(StatxFlags::BTIME);
    let changed = (found.stx_ctime.tv_sec, found.stx_ctime.tv_nsec);
    let born = if has_birth {
        (found.stx_btime.tv_sec, found.stx_btime.tv_nsec)
    } else {
        changed
    };
    let bytes = found.stx_blocks.saturating_mul(BLOCK);
    if since <= born {
        counted.new_files += 1;
        counted.new_bytes += bytes;
    } else if since <= changed {
        counted.changed_bytes += bytes;
    }
}

fn stat(folder: impl AsFd, name: &std::ffi::CStr) -> Option<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH | AtFlags::NO_AUTOMOUNT;
    statx(
        folder,
        name,
        flags,
        StatxFlags::BASIC_STATS | StatxFlags::BTIME,
    )
    .ok()
}

fn device(found: &Statx) -> (u32, u32) {
    (found.stx_dev_major, found.stx_dev_minor)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, SystemTime};

    use super::{Growth, count};

    #[test]
    fn only_new_files_are_counted() {
        let (top, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("large"), vec![1; 1 << 20]).unwrap();
        fs::create_dir_all(top.path().join("a/b")).unwrap();
        fs::write(top.path().join("a/b/file"), vec![1; 100_000]).unwrap();
        symlink(outside.path(), top.path().join("link")).unwrap();
        fs::File::create(top.path().join("sparse"))
            .unwrap()
            .set_len(1 << 40)
            .unwrap();
        let before = SystemTime::now() - Duration::from_secs(60);
        let all = count(top.path(), before, &AtomicBool::new(true));
        assert_eq!((all.new_files, all.changed_bytes), (5, 0));
        assert!((100_000..300_000).contains(&all.new_bytes), "{all:?}");
        let after = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(
            count(top.path(), after, &AtomicBool::new(true)),
            Growth::default()
        );
    }

    #[test]
    fn the_depth_is_limited() {
        let top = tempfile::tempdir().unwrap();
        let deep = top.path().join("x/".repeat(1000));
        fs::create_dir_all(&deep).unwrap();
        let all = count(top.path(), SystemTime::UNIX_EPOCH, &AtomicBool::new(true));
        assert_eq!(all.new_files, 256);
        assert_eq!(
            count(
                &deep.join("missing"),
                SystemTime::UNIX_EPOCH,
                &AtomicBool::new(true)
            ),
            Growth::default()
        );
    }
}
