//! What is in the workspace: every entry, in one order, without following a link or entering a mount.
//!
//! Depth and number are bounded, so a tree made to be endless costs little to look at.

use std::ffi::{OsStr, OsString};
use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::entry::{FileTime, NameList, open_folder, read_link, stat_entry};
use crate::workspace::handle::Workspace;
use crate::workspace::rules::Access;

/// Entries deeper than this many levels are not visited.
pub(super) const DEPTH_LIMIT: usize = 256;
/// After this many entries a walk ends.
const ENTRY_LIMIT: usize = 200_000;

/// Something in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceEntry {
    /// Relative to the workspace; not always UTF-8.
    pub path: PathBuf,
    pub kind: EntryKind,
    pub ino: u64,
    /// How many names it has, in the workspace and elsewhere.
    pub links: u32,
    pub ctime: FileTime,
    pub mtime: FileTime,
}

/// What an entry is; `mode` holds the permission bits and the set-id and sticky ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EntryKind {
    File {
        size: u64,
        mode: u32,
    },
    Dir {
        mode: u32,
    },
    Link {
        target: PathBuf,
    },
    /// A pipe, a socket, a device.
    Special,
}

/// What a visitor wants next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkStep {
    /// Go on, into the folder if it is one.
    On,
    /// Go on, but not into it.
    Skip,
    /// End the walk.
    Stop,
}

/// How a walk ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WalkEnd {
    /// Everything within the depth was offered, or the visitor ended it.
    Whole,
    /// There are more entries than a walk visits.
    Cut,
}

/// How far a walk goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct WalkReach {
    pub entries: usize,
    /// Whether own folders that cannot be read are opened up.
    pub access: Access,
}

/// A folder on the way from the top to where the walk is.
struct WalkLevel {
    handle: OwnedFd,
    /// The length of its path.
    path_length: usize,
    names: NameList,
    next: usize,
}

impl WorkspaceEntry {
    /// Something without a name yet.
    pub(super) fn unknown() -> WorkspaceEntry {
        WorkspaceEntry {
            path: PathBuf::new(),
            kind: EntryKind::Special,
            ino: 0,
            links: 0,
            ctime: (0, 0),
            mtime: (0, 0),
        }
    }

    /// Replaces what follows the first `folder` bytes of the path, which name its folder, by a name.
    pub(super) fn rename(&mut self, folder: usize, name: &OsStr) {
        let mut path = mem::take(&mut self.path).into_os_string().into_vec();
        path.truncate(folder);
        if folder > 0 {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        self.path = OsString::from_vec(path).into();
    }
}

impl Workspace {
    /// Visits every entry, a folder before what is in it, sorted by name in each; what cannot be entered is visited
    /// all the same.
    pub(crate) fn walk(
        &self,
        visit: &mut dyn FnMut(&WorkspaceEntry) -> WalkStep,
    ) -> Result<WalkEnd, Error> {
        self.walk_far(
            WalkReach {
                entries: ENTRY_LIMIT,
                access: Access::AsIs,
            },
            visit,
        )
    }

    /// Visits every entry like `walk`, however many there are, and opens up own folders that cannot be read: for what
    /// must not be missed.
    pub(crate) fn walk_whole(
        &self,
        visit: &mut dyn FnMut(&WorkspaceEntry) -> WalkStep,
    ) -> Result<(), Error> {
        self.walk_far(
            WalkReach {
                entries: usize::MAX,
                access: Access::Force,
            },
            visit,
        )
        .map(drop)
    }

    /// Whether the workspace holds anything but folders, beside regular files of these names at its top. A folder without
    /// read permission counts as something.
    pub(crate) fn has_files_but(&self, spared: &[&str]) -> Result<bool, Error> {
        let mut has_files = false;
        let walked = self.walk(&mut |entry| {
            let is_spared = entry.path.components().count() == 1
                && self.is_spared(entry.path.as_os_str(), spared);
            has_files |= !is_spared
                && !matches!(entry.kind, EntryKind::Dir { mode } if mode & 0o500 == 0o500);
            if has_files {
                WalkStep::Stop
            } else {
                WalkStep::On
            }
        })?;
        Ok(has_files || walked == WalkEnd::Cut)
    }

    pub(super) fn walk_far(
        &self,
        reach: WalkReach,
        visit: &mut dyn FnMut(&WorkspaceEntry) -> WalkStep,
    ) -> Result<WalkEnd, Error> {
        let failed = |path: &Path, errno| self.failed("read", path, errno);
        let top = self
            .top()
            .try_clone_to_owned()
            .map_err(|error| Error::io("read", &self.display, error))?;
        let mut levels =
            vec![level(top, 0, reach.entries).map_err(|errno| failed(Path::new(""), errno))?];
        let mut entry = WorkspaceEntry::unknown();
        let mut seen = 0;
        loop {
            let depth = levels.len();
            let Some(innermost) = levels.last_mut() else {
                return Ok(WalkEnd::Whole);
            };
            let Some(name) = innermost.names.get(innermost.next) else {
                levels.pop();
                continue;
            };
            innermost.next += 1;
            entry.rename(innermost.path_length, name);
            let is_there = describe(innermost.handle.as_fd(), name, &mut entry);
            if !is_there.map_err(|errno| failed(&entry.path, errno))? {
                continue;
            }
            seen += 1;
            if seen > reach.entries {
                return Ok(WalkEnd::Cut);
            }
            match visit(&entry) {
                WalkStep::Stop => return Ok(WalkEnd::Whole),
                WalkStep::On
                    if matches!(entry.kind, EntryKind::Dir { .. }) && depth < DEPTH_LIMIT =>
                {
                    let length = entry.path.as_os_str().len();
                    let inner = descend(innermost, name, length, reach, reach.entries - seen);
                    levels.extend(inner.map_err(|errno| failed(&entry.path, errno))?);
                }
                WalkStep::On | WalkStep::Skip => {}
            }
        }
    }
}

/// Lists a folder. One name more than may be visited is read, so that the walk sees that it is cut.
fn level(handle: OwnedFd, path_length: usize, room: usize) -> Result<WalkLevel, Errno> {
    let names = NameList::read(handle.as_fd(), room.saturating_add(1))?;
    Ok(WalkLevel {
        handle,
        path_length,
        names,
        next: 0,
    })
}

/// Opens a folder, unless it may not be entered or is none any more.
fn descend(
    around: &WalkLevel,
    name: &OsStr,
    path_length: usize,
    reach: WalkReach,
    room: usize,
) -> Result<Option<WalkLevel>, Errno> {
    match open_folder(around.handle.as_fd(), name, reach.access)
        .and_then(|handle| level(handle, path_length, room))
    {
        Ok(level) => Ok(Some(level)),
        Err(Errno::ACCESS | Errno::NOENT | Errno::XDEV | Errno::NOTDIR | Errno::LOOP) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Describes what has a name in a folder. False if it is gone or may not be looked at.
fn describe(
    folder: BorrowedFd<'_>,
    name: &OsStr,
    entry: &mut WorkspaceEntry,
) -> Result<bool, Errno> {
    let meta = match stat_entry(folder, name) {
        Ok(Some(meta)) => meta,
        Ok(None) | Err(Errno::ACCESS) => return Ok(false),
        Err(errno) => return Err(errno),
    };
    entry.kind = match meta.kind {
        FileType::RegularFile => EntryKind::File {
            size: meta.size,
            mode: meta.mode,
        },
        FileType::Directory => EntryKind::Dir { mode: meta.mode },
        FileType::Symlink => match read_link(folder, name) {
            Ok(target) => EntryKind::Link { target },
            Err(Errno::NOENT | Errno::INVAL) => return Ok(false),
            Err(errno) => return Err(errno),
        },
        _ => EntryKind::Special,
    };
    (entry.ino, entry.links) = (meta.ino, meta.links);
    (entry.ctime, entry.mtime) = (meta.ctime, meta.mtime);
    Ok(true)
}
