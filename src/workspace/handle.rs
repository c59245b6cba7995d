//! `Workspace`: an open handle on `workspace/`, what is read from it, and the errors of everything else done in it.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, fstat, fstatfs, stat, syncfs};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::error::Error;
use crate::workspace::entry::{
    EntryMeta, FileTime, loosen, make_folder, names, open_regular, open_regular_below, open_top,
    read_bounded, read_link, stat_entry,
};
use crate::workspace::path_error::PathError;
use crate::workspace::resolve::{ResolvedFolder, Resolver};
use crate::workspace::rules::{CallerRules, READING, SNAPSHOT};
use crate::workspace::safe_path::Violation;

/// File systems that change a file's times with every change of its content: ext4, XFS, Btrfs, F2FS.
const RELIABLE_TIMES: [u64; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// The time that a file would get now; it advances in steps of a few milliseconds.
pub(crate) fn now_of_files() -> FileTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// What was found where a file was to be read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    File(Vec<u8>),
    /// A regular file over the limit, and its size.
    TooLarge(u64),
    /// Not a regular file, or one without read permission.
    Other,
    Missing,
}

/// What was found where a file was to be opened, whatever its mode.
#[derive(Debug)]
pub(crate) enum OpenedFile {
    Opened(File),
    /// Owned by another user.
    Unreadable,
    Missing,
}

/// An open handle on `workspace/`.
#[derive(Debug)]
pub(crate) struct Workspace {
    top: OwnedFd,
    /// The directory's path, for messages.
    pub(super) display: PathBuf,
}

impl Workspace {
    /// Opens the directory `name` in `root`, and makes it if it is missing; a link or a file there is refused.
    pub(crate) fn open(
        root: BorrowedFd<'_>,
        name: &str,
        display: &Path,
    ) -> Result<Workspace, Error> {
        match make_folder(root, OsStr::new(name), 0o755).and_then(|()| open_top(root, name)) {
            Ok(top) => Ok(Workspace {
                top,
                display: display.to_owned(),
            }),
            Err(Errno::NOTDIR | Errno::LOOP) => Err(Violation::new(
                &display.to_string_lossy(),
                "it has to be a directory, not a link or a file",
            )
            .into()),
            Err(errno) => Err(Error::io("open", display, errno)),
        }
    }

    /// Whether the workspace holds nothing but regular files of these names at its top.
    pub(crate) fn is_empty_but(&self, spared: &[&str]) -> Result<bool, Error> {
        let found = names(self.top(), usize::MAX)
            .map_err(|errno| self.failed("read", Path::new(""), errno))?;
        Ok(found.iter().all(|name| self.is_spared(name, spared)))
    }

    /// Reads a regular file of at most `limit` bytes; no link is followed.
    pub(crate) fn read_file(&self, path: &Path, limit: u64) -> Result<ReadOutcome, Error> {
        let content = self
            .open_file(path, READING)
            .and_then(|(file, meta)| read_bounded(file, &meta, limit));
        match content {
            Ok(content) => Ok(ReadOutcome::File(content)),
            Err(PathError::TooLarge(size)) => Ok(ReadOutcome::TooLarge(size)),
            Err(PathError::Missing) => Ok(ReadOutcome::Missing),
            Err(
                PathError::Outside
                | PathError::NotAFolder(_)
                | PathError::Folder
                | PathError::Special
                | PathError::Mounted
                | PathError::System(Errno::ACCESS | Errno::LOOP | Errno::NOTDIR),
            ) => Ok(ReadOutcome::Other),
            Err(error) => Err(self.failed("read", path, error)),
        }
    }

    /// Whether a file that a walk has found has this content.
    pub(crate) fn has_content(&self, path: &Path, content: &[u8]) -> Result<bool, Error> {
        let limit = content.len() as u64;
        let found = self
            .open_found_file(path, READING)
            .and_then(|(file, meta)| read_bounded(file, &meta, limit));
        match found {
            Ok(bytes) => Ok(bytes == content),
            Err(_) => Ok(
                matches!(self.read_file(path, limit)?, ReadOutcome::File(bytes) if bytes == content),
            ),
        }
    }

    /// Opens a regular file of the workspace; an own one that cannot be read is opened up for it.
    pub(crate) fn open_any_file(&self, path: &Path) -> Result<OpenedFile, Error> {
        match self.open_found_file(path, SNAPSHOT) {
            Ok((file, _)) => Ok(OpenedFile::Opened(file)),
            Err(PathError::System(Errno::ACCESS)) => Ok(OpenedFile::Unreadable),
            Err(error) if error.is_absent() => Ok(OpenedFile::Missing),
            Err(error) => Err(self.failed("read", path, error)),
        }
    }

    /// The target of a link, without following it; empty if there is none any more.
    pub(crate) fn link_target(&self, path: &Path) -> Result<Vec<u8>, Error> {
        let target = self
            .parent_of(path, READING)
            .and_then(|(folder, name)| Ok(read_link(folder.innermost(), name)?));
        match target {
            Ok(target) => Ok(target.into_os_string().into_vec()),
            Err(error) if error.is_absent() => Ok(Vec::new()),
            Err(error) => Err(self.failed("read", path, error)),
        }
    }

    /// The path of an entry, for messages.
    pub(crate) fn path_of(&self, entry: &Path) -> PathBuf {
        self.display.join(entry)
    }

    /// Fails if the directory's path leads elsewhere by now, since programs would find other files there.
    pub(crate) fn refuse_moved(&self) -> Result<(), Error> {
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

    /// Whether every change of a file changes its times. On tmpfs a write through a mapping does not; the same is
    /// assumed of unknown file systems.
    pub(crate) fn has_reliable_times(&self) -> bool {
        fstatfs(&self.top).is_ok_and(|found| RELIABLE_TIMES.contains(&(found.f_type as u64)))
    }

    /// Makes everything in the workspace durable.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        syncfs(self.top()).map_err(|errno| self.failed("sync", Path::new(""), errno))
    }

    /// The directory itself, opened up again where a program has taken its permissions away.
    pub(super) fn top(&self) -> BorrowedFd<'_> {
        loosen(&self.top);
        self.top.as_fd()
    }

    pub(super) fn resolver(&self, rules: CallerRules<'static>) -> Resolver<'_> {
        Resolver::new(self.top(), rules)
    }

    /// Opens a regular file for reading.
    pub(super) fn open_file(
        &self,
        path: &Path,
        rules: CallerRules<'static>,
    ) -> Result<(File, EntryMeta), PathError> {
        let (folder, name) = self.parent_of(path, rules)?;
        open_regular(folder.innermost(), name, rules.access, rules.mounts)
    }

    /// Opens a file that a walk has found to be a regular one: at once, or else by the rules.
    pub(super) fn open_found_file(
        &self,
        path: &Path,
        rules: CallerRules<'static>,
    ) -> Result<(File, EntryMeta), PathError> {
        match open_regular_below(self.top.as_fd(), path, rules.mounts) {
            Ok(Some(opened)) if plain(path).is_ok() => Ok(opened),
            _ => self.open_file(path, rules),
        }
    }

    /// Describes what is at `path`, without following a link.
    pub(super) fn stat_path(&self, path: &Path) -> Result<Option<EntryMeta>, Error> {
        let found = self
            .parent_of(path, SNAPSHOT)
            .and_then(|(folder, name)| Ok(stat_entry(folder.innermost(), name)?));
        match found {
            Err(error) if error.is_absent() => Ok(None),
            other => other.map_err(|error| self.failed("look at", path, error)),
        }
    }

    /// Resolves the folder around `path` and returns it with the last name; under rules that refuse missing folders all
    /// of it exists.
    pub(super) fn parent_of<'p>(
        &self,
        path: &'p Path,
        rules: CallerRules<'static>,
    ) -> Result<(ResolvedFolder<'_>, &'p OsStr), PathError> {
        let (folders, name) = folders_and_name(path)?;
        let folder = self.resolver(rules).folder(folders.into_iter())?;
        Ok((folder, name))
    }

    /// Whether `name` is a regular file at the top that is listed in `spared`.
    pub(super) fn is_spared(&self, name: &OsStr, spared: &[&str]) -> bool {
        spared.iter().any(|kept| name == *kept)
            && matches!(stat_entry(self.top.as_fd(), name), Ok(Some(meta)) if meta.kind == FileType::RegularFile)
    }

    /// The error of an operation on `path`. A link or a mount where a folder was expected is an attempt to lead out.
    pub(super) fn failed(
        &self,
        action: &'static str,
        path: &Path,
        error: impl Into<PathError>,
    ) -> Error {
        let error = error.into();
        let rule = match &error {
            PathError::Mounted => {
                "another file system is mounted there, and mounts are never entered"
            }
            PathError::NotAFolder(_) | PathError::System(Errno::LOOP | Errno::NOTDIR) => {
                "what should be a folder on its way is a link or a file"
            }
            PathError::Outside | PathError::LeadsOut => {
                "it does not name a place below the workspace"
            }
            PathError::System(errno) => return Error::io(action, &self.display.join(path), *errno),
            PathError::Missing => {
                return Error::io(action, &self.display.join(path), Errno::NOENT);
            }
            other => {
                let source = io::Error::other(other.to_string());
                return Error::io(action, &self.display.join(path), source);
            }
        };
        Violation::new(&path.to_string_lossy(), rule).into()
    }
}

/// The components of a path that is relative, not empty, and has no `..`.
pub(super) fn plain(path: &Path) -> Result<Vec<&OsStr>, PathError> {
    let components: Option<Vec<&OsStr>> = path
        .components()
        .filter(|component| *component != Component::CurDir)
        .map(|component| match component {
            Component::Normal(name) => Some(name),
            _ => None,
        })
        .collect();
    components
        .filter(|components| !components.is_empty())
        .ok_or(PathError::Outside)
}

/// The components of such a path without the last one, and that one.
pub(super) fn folders_and_name(path: &Path) -> Result<(Vec<&OsStr>, &OsStr), PathError> {
    let mut folders = plain(path)?;
    let name = folders.pop().ok_or(PathError::Outside)?;
    Ok((folders, name))
}
