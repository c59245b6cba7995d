//! The project directory behind a handle: where a path leads, and what is there to read.
//!
//! A path is followed one component at a time from the handle, so nothing that is swapped in between leads out. Links
//! that stay inside are followed, also absolute ones; links that do not are refused. Only regular files are opened:
//! a pipe would block, a device may act.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, Stat, StatxFlags, fstat, mkdirat, openat,
    openat2, readlinkat, statat, statx,
};
use rustix::io::Errno;

use crate::error::Error;

/// The largest file that is read or written, in bytes.
pub(in crate::workspace::tests) const MAX_SIZE: u64 = 32_000_000;
/// As many links as the kernel follows before it calls them a loop.
const MAX_LINKS: usize = 40;
const MAX_DEPTH: usize = 256;
const MAX_PATH: usize = 4096;

const READ: OFlags = OFlags::RDONLY
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);

/// The project directory.
#[derive(Debug)]
pub(in crate::workspace::tests) struct ProjectDir {
    top: OwnedFd,
    /// How absolute paths to it begin: as it is, and as it was given.
    names: [PathBuf; 2],
    frozen: FrozenPaths,
}

/// What may be read and not changed, by paths in the project.
#[derive(Debug, Clone, Default)]
pub(in crate::workspace::tests) struct FrozenPaths {
    /// Files, and folders with all that is in them.
    pub paths: BTreeSet<PathBuf>,
    /// What may be changed nevertheless.
    pub except: BTreeSet<PathBuf>,
}

impl FrozenPaths {
    fn holds(&self, path: &Path) -> bool {
        !self.except.contains(path) && path.ancestors().any(|place| self.paths.contains(place))
    }
}

/// Where a path leads when all links are followed: a name in a folder. Whether something is there is another question.
#[derive(Debug)]
pub(in crate::workspace::tests) struct ResolvedPath {
    pub folder: OwnedFd,
    pub name: OsString,
    /// Its path in the project, without links.
    pub real: PathBuf,
}

/// Where a path leads.
#[derive(Debug)]
pub(in crate::workspace::tests) enum ResolvedTarget {
    Place(ResolvedPath),
    /// A folder that exists; its path in the project, without links.
    Folder(PathBuf),
}

/// Why a file cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace::tests) enum PathError {
    Missing,
    Outside,
    LeadsOut,
    Folder,
    Special,
    TooLarge,
    Changed,
    Protected,
    Mounted,
    System(Errno),
}

/// What is done about folders on the way that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::workspace::tests) enum MissingFolders {
    Found,
    Made,
}

impl ProjectDir {
    /// Opens the directory.
    pub fn open(path: &Path) -> Result<ProjectDir, Error> {
        let failed = |error: io::Error| Error::io("open", path, error);
        let real = path.canonicalize().map_err(failed)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat(CWD, &real, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
        let given = std::path::absolute(path).map_err(failed)?;
        Ok(ProjectDir {
            top,
            names: [real, given],
            frozen: FrozenPaths::default(),
        })
    }

    /// Lets some files be read only.
    pub fn freeze(&mut self, frozen: FrozenPaths) {
        self.frozen = frozen;
    }

    /// Refuses a place that may only be read, by its path and the folder that it is in.
    pub fn refuse_frozen(&self, real: &Path, folder: impl AsFd) -> Result<(), PathError> {
        match self.frozen.holds(real) {
            true => Err(PathError::Protected),
            false if mount_of(folder) != mount_of(&self.top) => Err(PathError::Mounted),
            false => Ok(()),
        }
    }

    pub fn top(&self) -> BorrowedFd<'_> {
        self.top.as_fd()
    }

    /// Returns a path as one below the project, without `.`; `..` stays, for links decide what it means.
    pub fn relative(&self, path: &Path) -> Result<PathBuf, PathError> {
        let inside = |name: &PathBuf| path.strip_prefix(name).ok();
        let below = if path.is_absolute() {
            self.names.iter().find_map(inside)
        } else {
            Some(path)
        };
        let parts = below.ok_or(PathError::Outside)?.components();
        Ok(parts.filter(|part| *part != Component::CurDir).collect())
    }

    /// Returns the place that a path leads to; a folder is none.
    pub fn resolve(&self, path: &Path, folders: MissingFolders) -> Result<ResolvedPath, PathError> {
        match self.follow(path, folders)? {
            ResolvedTarget::Place(place) => Ok(place),
            ResolvedTarget::Folder(_) => Err(PathError::Folder),
        }
    }

    /// Returns where a path leads.
    pub fn follow(
        &self,
        path: &Path,
        folders: MissingFolders,
    ) -> Result<ResolvedTarget, PathError> {
        let below = self.relative(path)?;
        if climbs_out(&below) {
            return Err(PathError::Outside);
        }
        if MAX_PATH < below.as_os_str().len() {
            return Err(PathError::System(Errno::NAMETOOLONG));
        }
        let mut way = PathWalk {
            project: self,
            inside: Vec::new(),
            ahead: Vec::new(),
            links: 0,
        };
        way.push(&below);
        while let Some(name) = way.ahead.pop() {
            if name == ".." {
                way.inside.pop().ok_or(PathError::LeadsOut)?;
            } else if let Some(place) = way.step(name, folders)? {
                return Ok(ResolvedTarget::Place(place));
            }
        }
        Ok(ResolvedTarget::Folder(
            way.inside.into_iter().map(|(name, _)| name).collect(),
        ))
    }

    /// Reads a text file, through links that stay inside.
    pub fn read(&self, path: &Path) -> Result<(ResolvedPath, Vec<u8>, Stat), PathError> {
        let place = self.resolve(path, MissingFolders::Found)?;
        let (text, stat) = read(place.folder.as_fd(), &place.name)?;
        Ok((place, text, stat))
    }

    /// Reads a text file of at most `limit` bytes; a link on its way is no way.
    pub fn read_straight(&self, path: &Path, limit: u64) -> Result<Vec<u8>, PathError> {
        let resolve =
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        match openat2(self.top(), path, READ, Mode::empty(), resolve) {
            Ok(file) => read_opened(file.into(), limit).map(|(text, _)| text),
            // An old kernel, a filter of a container, a rename under way: the long way does.
            Err(Errno::NOSYS | Errno::PERM | Errno::AGAIN) => {
                self.read(path).map(|(_, text, _)| text)
            }
            Err(errno) => Err(errno.into()),
        }
    }
}

/// A path on its way from the top.
struct PathWalk<'a> {
    project: &'a ProjectDir,
    /// The folders from the top to here.
    inside: Vec<(OsString, OwnedFd)>,
    /// The names that are left, the next one last.
    ahead: Vec<OsString>,
    links: usize,
}

impl PathWalk<'_> {
    fn folder(&self) -> BorrowedFd<'_> {
        self.inside
            .last()
            .map_or(self.project.top(), |(_, folder)| folder.as_fd())
    }

    fn push(&mut self, path: &Path) {
        self.ahead.extend(
            path.components()
                .rev()
                .map(|part| part.as_os_str().to_owned()),
        );
    }

    /// Goes one name further; returns the place if it is the last one and no folder.
    fn step(
        &mut self,
        name: OsString,
        folders: MissingFolders,
    ) -> Result<Option<ResolvedPath>, PathError> {
        let is_last = self.ahead.is_empty();
        match kind(self.folder(), &name)? {
            Some(FileType::Symlink) => self.follow(&name)?,
            Some(FileType::Directory) => self.enter(name)?,
            _ if is_last => return self.arrive(name).map(Some),
            None if folders == MissingFolders::Made => {
                let real: PathBuf = self
                    .inside
                    .iter()
                    .map(|(folder, _)| folder)
                    .chain([&name])
                    .collect();
                self.project.refuse_frozen(&real, self.folder())?;
                match mkdirat(self.folder(), &name, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(errno.into()),
                }
                self.enter(name)?;
            }
            None => return Err(PathError::Missing),
            Some(_) => return Err(PathError::System(Errno::NOTDIR)),
        }
        Ok(None)
    }

    fn enter(&mut self, name: OsString) -> Result<(), PathError> {
        let folder = openat(self.folder(), &name, FOLDER, Mode::empty())?;
        self.inside.push((name, folder));
        if MAX_DEPTH < self.inside.len() {
            Err(PathError::System(Errno::NAMETOOLONG))
        } else {
            Ok(())
        }
    }

    fn follow(&mut self, name: &OsStr) -> Result<(), PathError> {
        self.links += 1;
        if MAX_LINKS < self.links {
            return Err(PathError::System(Errno::LOOP));
        }
        let target = readlinkat(self.folder(), name, Vec::new())?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            self.inside.clear();
        }
        let inner = self
            .project
            .relative(target)
            .map_err(|_| PathError::LeadsOut)?;
        self.push(&inner);
        Ok(())
    }

    fn arrive(&mut self, name: OsString) -> Result<ResolvedPath, PathError> {
        let real = self
            .inside
            .iter()
            .map(|(folder, _)| folder)
            .chain([&name])
            .collect();
        let folder = match self.inside.pop() {
            Some((_, folder)) => folder,
            None => self
                .project
                .top()
                .try_clone_to_owned()
                .map_err(|_| Errno::MFILE)?,
        };
        Ok(ResolvedPath { folder, name, real })
    }
}

/// Which mount a folder is in; a kernel that does not say so tells the device.
fn mount_of(folder: impl AsFd) -> Option<(u64, u32, u32)> {
    let found = statx(folder, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID).ok()?;
    Some((found.stx_mnt_id, found.stx_dev_major, found.stx_dev_minor))
}

/// Whether a path goes above its beginning by its own words, whatever links say.
fn climbs_out(path: &Path) -> bool {
    let mut depth = 0_usize;
    path.components().any(|part| match part {
        Component::ParentDir if depth == 0 => true,
        Component::ParentDir => {
            depth -= 1;
            false
        }
        _ => {
            depth += 1;
            false
        }
    })
}

/// Returns what stands at a name, without following or opening it.
fn kind(folder: BorrowedFd<'_>, name: &OsStr) -> Result<Option<FileType>, PathError> {
    match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(FileType::from_raw_mode(found.st_mode))),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads the text file of this name in a folder.
pub(in crate::workspace::tests) fn read(
    folder: BorrowedFd<'_>,
    name: &OsStr,
) -> Result<(Vec<u8>, Stat), PathError> {
    match kind(folder, name)? {
        Some(FileType::RegularFile) => {
            read_opened(openat(folder, name, READ, Mode::empty())?.into(), MAX_SIZE)
        }
        Some(FileType::Directory) => Err(PathError::Folder),
        Some(_) => Err(PathError::Special),
        None => Err(PathError::Missing),
    }
}

fn read_opened(file: File, limit: u64) -> Result<(Vec<u8>, Stat), PathError> {
    let stat = fstat(&file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        FileType::Directory => return Err(PathError::Folder),
        _ => return Err(PathError::Special),
    }
    let size = u64::try_from(stat.st_size).unwrap_or(0);
    if limit < size {
        return Err(PathError::TooLarge);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0) + 1);
    // One byte more than allowed tells a file that has grown since it was looked at.
    let count = file
        .take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| PathError::from(&error))?;
    if limit < count as u64 {
        return Err(PathError::TooLarge);
    }
    Ok((bytes, stat))
}

impl From<Errno> for PathError {
    fn from(errno: Errno) -> PathError {
        match errno {
            Errno::NOENT => PathError::Missing,
            other => PathError::System(other),
        }
    }
}

impl From<&io::Error> for PathError {
    fn from(error: &io::Error) -> PathError {
        Errno::from_io_error(error).unwrap_or(Errno::IO).into()
    }
}

impl fmt::Display for PathError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathError::Missing => f.write_str("file not found"),
            PathError::Outside => f.write_str("it is outside the project directory"),
            PathError::LeadsOut => f.write_str("a link leads out of the project directory"),
            PathError::Folder => f.write_str("it is a folder"),
            PathError::Special => f.write_str("it is a pipe, socket or device"),
            PathError::TooLarge => f.write_str("it is larger than 32 MB"),
            PathError::Protected => {
                f.write_str("it is protected: given by the user, to be read and never changed")
            }
            PathError::Mounted => {
                f.write_str("another file system is mounted there, to be read and never changed")
            }
            PathError::Changed => f.write_str("it was changed at the same time"),
            PathError::System(errno) => io::Error::from(*errno).fmt(f),
        }
    }
}
