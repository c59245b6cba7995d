//! The one door to `workspace/`: everything that reads, writes or removes there goes through a `Workspace`.
//!
//! It holds a handle on the directory and goes from it one component at a time, never through a link and never into
//! a mount, so what is swapped in between cannot lead out. Links that stay inside are followed here, in `locate.rs`,
//! on the same handles. `write.rs` puts things in, `remove.rs` takes them out, `walk.rs` lists, `entry.rs` holds the
//! system calls. What belongs in the workspace is for others to say.

mod entry;
pub mod generated;
mod remove;
mod resolve;
pub mod safe_path;
pub mod snapshot;
#[cfg(test)]
pub(crate) mod tests;
mod walk;
mod write;

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fstat, fstatfs, mkdirat, openat, stat, syncfs};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::workspace::entry::{enter, look, loosen, names, unlock};
use crate::workspace::safe_path::{SafePath, Violation};

pub(in crate::workspace) use crate::workspace::entry::{Access, EntryMeta};
pub(in crate::workspace) use crate::workspace::walk::{DEPTH_LIMIT, WalkReach};
pub use crate::workspace::walk::{EntryKind, FileTime, WalkEnd, WalkStep, WorkspaceEntry};
pub use crate::workspace::write::make_executable;

/// File systems that change a file's times with every change of it: ext4, XFS, Btrfs, F2FS.
const TELLING: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// Returns the time as files get it: it goes in steps of a few milliseconds.
pub fn now_of_files() -> FileTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What an answer wants done to one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileChange {
    Write { path: SafePath, content: Vec<u8> },
    Delete { path: SafePath },
}

/// Why changes cannot be made.
#[derive(Debug)]
pub enum ChangeRefusal {
    /// The tree does not allow it as it is; the words are for the model.
    Conflict(String),
    /// It would leave the workspace, or meets a special file.
    Violation(Violation),
    /// The tree could not be looked at.
    Io(Error),
}

/// What was found where a file was to be read.
#[derive(Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    File(Vec<u8>),
    /// A regular file over the limit; its size.
    TooLarge(u64),
    /// Not a regular file, or one that may not be read.
    Other,
    Missing,
}

/// A handle on `workspace/`, and every way to touch what is in it.
#[derive(Debug)]
pub struct Workspace {
    top: OwnedFd,
    /// How the directory is called in messages.
    display: PathBuf,
}

impl Workspace {
    /// Opens the directory `name` in `root`, and makes it when it is missing; a link or a file there is refused.
    pub fn open(root: BorrowedFd<'_>, name: &str, display: &Path) -> Result<Workspace, Error> {
        let failed = |errno: Errno| Error::io("open", display, errno);
        match mkdirat(root, name, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(root, name, flags, Mode::empty()).or_else(|errno| match errno {
            Errno::ACCESS => unlock(root, OsStr::new(name), 0o700)
                .and_then(|()| openat(root, name, flags, Mode::empty())),
            _ => Err(errno),
        });
        match opened {
            Ok(top) => Ok(Workspace {
                top,
                display: display.to_owned(),
            }),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(Violation::new(
                &display.to_string_lossy(),
                "it has to be a directory, not a link or a file",
            )
            .into()),
            Err(errno) => Err(failed(errno)),
        }
    }

    /// Returns whether nothing is in the workspace but regular files of these names at its top.
    pub fn is_empty_but(&self, spared: &[&str]) -> Result<bool, Error> {
        let found = names(self.top(), usize::MAX)
            .map_err(|errno| self.failed("read", Path::new(""), errno))?;
        Ok(found.iter().all(|name| self.is_spared(name, spared)))
    }

    /// Returns whether anything but folders is in the workspace, beside regular files of these names at its top. What
    /// cannot be looked into counts as something.
    pub fn has_files_but(&self, spared: &[&str]) -> Result<bool, Error> {
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

    /// Reads a regular file of at most `limit` bytes; no link is followed, at the end or on the way.
    pub fn read_file(&self, path: &Path, limit: u64) -> Result<ReadOutcome, Error> {
        let (file, meta) = match self.open_file(path, Access::AsIs) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(ReadOutcome::Missing),
            Err(Errno::LOOP | Errno::NOTDIR | Errno::ACCESS | Errno::XDEV | Errno::INVAL) => {
                return Ok(ReadOutcome::Other);
            }
            Err(errno) => return Err(self.failed("read", path, errno)),
        };
        let mut content = Vec::new();
        // One byte more than allowed tells a file that has grown since it was looked at.
        io::Read::read_to_end(
            &mut io::Read::take(&file, limit.saturating_add(1)),
            &mut content,
        )
        .map_err(|error| Error::io("read", &self.display.join(path), error))?;
        let size = meta.size.max(content.len() as u64);
        Ok(if size > limit {
            ReadOutcome::TooLarge(size)
        } else {
            ReadOutcome::File(content)
        })
    }

    /// Refuses to go on where the directory's path leads elsewhere by now: what is found by path would be another's.
    pub fn refuse_moved(&self) -> Result<(), Error> {
        let (held, named) = (fstat(&self.top), stat(&self.display));
        match (held, named) {
            (Ok(held), Ok(named)) if (held.st_dev, held.st_ino) == (named.st_dev, named.st_ino) => {
                Ok(())
            }
            _ => Err(Error::io(
                "use",
                &self.display,
                io::Error::other("it was moved or replaced during the run"),
            )),
        }
    }

    /// Returns whether the times of a file tell every change of it. In memory (tmpfs) a write through a mapping leaves
    /// them as they are; of file systems that are not known here the same is assumed.
    pub fn has_reliable_times(&self) -> bool {
        fstatfs(&self.top).is_ok_and(|found| TELLING.contains(&(found.f_type as u64)))
    }

    /// Makes everything in the workspace durable.
    pub fn sync(&self) -> Result<(), Error> {
        syncfs(self.top()).map_err(|errno| self.failed("sync", Path::new(""), errno))
    }

    /// The directory itself. A program that ran in it may have locked it, and it is ours: it is opened up.
    fn top(&self) -> BorrowedFd<'_> {
        loosen(&self.top);
        self.top.as_fd()
    }

    /// Opens a regular file for reading. Anything else is told from its type alone and never opened: a pipe would
    /// block, a device may act.
    pub(in crate::workspace) fn open_file(
        &self,
        path: &Path,
        access: Access,
    ) -> Result<(File, EntryMeta), Errno> {
        let (folder, name) = self.parent_of(path, access)?;
        if look(folder.as_fd(), name)?.ok_or(Errno::NOENT)?.kind != FileType::RegularFile {
            return Err(Errno::INVAL);
        }
        let file = entry::open_file(folder.as_fd(), name, access)?;
        let meta = look(file.as_fd(), OsStr::new(""))?.ok_or(Errno::NOENT)?;
        if meta.kind == FileType::RegularFile {
            Ok((File::from(file), meta))
        } else {
            Err(Errno::INVAL)
        }
    }

    /// Looks at what is at `path`; nothing, if the way there is not one of folders.
    pub(in crate::workspace) fn look_at(&self, path: &Path) -> Result<Option<EntryMeta>, Error> {
        match self
            .parent_of(path, Access::Force)
            .and_then(|(folder, name)| look(folder.as_fd(), name))
        {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(None),
            other => other.map_err(|errno| self.failed("look at", path, errno)),
        }
    }

    /// Opens the folder around `path`; a link on the way is no folder.
    fn parent_of<'a>(&self, path: &'a Path, access: Access) -> Result<(OwnedFd, &'a OsStr), Errno> {
        let components = plain(path).ok_or(Errno::INVAL)?;
        let (name, folders) = components.split_last().ok_or(Errno::INVAL)?;
        Ok((self.open_folder(folders, access)?, name))
    }

    /// Opens a folder; a link on the way is no folder.
    fn open_folder(&self, components: &[&OsStr], access: Access) -> Result<OwnedFd, Errno> {
        let mut folder = self.top().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        for name in components {
            folder = enter(folder.as_fd(), name, access)?;
        }
        Ok(folder)
    }

    fn is_spared(&self, name: &OsStr, spared: &[&str]) -> bool {
        spared.iter().any(|kept| name == *kept)
            && matches!(look(self.top.as_fd(), name), Ok(Some(meta)) if meta.kind == FileType::RegularFile)
    }

    /// The error of a system call on `path`. A link or a mount where a folder was expected is an attempt to lead out.
    pub(in crate::workspace) fn failed(
        &self,
        action: &'static str,
        path: &Path,
        errno: Errno,
    ) -> Error {
        let rule = match errno {
            Errno::XDEV => "another file system is mounted there, and mounts are never entered",
            Errno::LOOP | Errno::NOTDIR => "what should be a folder on its way is a link or a file",
            Errno::INVAL if plain(path).is_none() => "it does not name a place below the workspace",
            _ => return Error::io(action, &self.display.join(path), errno),
        };
        Violation::new(&path.to_string_lossy(), rule).into()
    }
}

impl From<Violation> for ChangeRefusal {
    fn from(violation: Violation) -> ChangeRefusal {
        ChangeRefusal::Violation(violation)
    }
}

impl From<Error> for ChangeRefusal {
    fn from(error: Error) -> ChangeRefusal {
        match error {
            Error::Safety(violation) => ChangeRefusal::Violation(violation),
            other => ChangeRefusal::Io(other),
        }
    }
}

/// The components of a path that is relative, not empty, and climbs nowhere.
fn plain(path: &Path) -> Option<Vec<&OsStr>> {
    let components: Option<Vec<&OsStr>> = path
        .components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| {
            if let Component::Normal(name) = component {
                Some(name)
            } else {
                None
            }
        })
        .collect();
    components.filter(|components| !components.is_empty())
}
