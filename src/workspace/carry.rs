//! `CarryFolder`: a folder of the user's that files of the workspace are carried back to.
//!
//! No link below the folder is followed and no mount is entered. Files are written under a temporary name and change
//! places with what they replace, so that the old file can come back as it was.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fsync, syncfs};
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::entry::{
    EntryMeta, create_link, exchange, list, make_folder, make_folder_with, open_folder,
    open_listable, open_regular, open_trusted, read_bounded, read_link, remove_file, remove_folder,
    rename, rename_new, stat_entry,
};
use crate::workspace::handle::{folders_and_name, plain};
use crate::workspace::path_error::PathError;
use crate::workspace::resolve::{ResolvedFolder, Resolver};
use crate::workspace::rules::{Access, CARRY};
use crate::workspace::stage::{StagedFile, StagedMode};

/// What lies deeper is not looked into.
const MAX_DEPTH: usize = 256;

/// An open folder of the user's.
#[derive(Debug)]
pub(crate) struct CarryFolder {
    top: OwnedFd,
    /// Its path without links.
    path: PathBuf,
}

/// What is at a path of the folder.
#[derive(Debug)]
pub(crate) enum CarriedEntry {
    Nothing,
    File {
        content: Vec<u8>,
        meta: EntryMeta,
    },
    /// A file above the limit.
    TooLarge,
    Link(PathBuf),
    Folder {
        mode: u32,
    },
    Special,
    Mount,
    /// Something that is not a folder is where one has to be, by its path.
    Blocked(PathBuf),
}

/// What is written to a temporary name.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CarriedContent<'a> {
    File {
        content: &'a [u8],
        is_executable: bool,
        /// The file that it replaces: owner and mode are kept, but for the executable bit where that changes.
        like: Option<&'a EntryMeta>,
        /// Whether the content is made durable now.
        sync: bool,
    },
    Link(&'a OsStr),
}

impl CarryFolder {
    /// Opens a folder by its path without links.
    pub(crate) fn open(path: &Path) -> Result<CarryFolder, Error> {
        match open_trusted(path) {
            Ok(top) => Ok(CarryFolder {
                top,
                path: path.to_owned(),
            }),
            Err(errno) => Err(Error::io("open", path, errno)),
        }
    }

    /// The path of an entry, for messages and comparison.
    pub(crate) fn path_of(&self, path: &Path) -> PathBuf {
        self.path.join(path)
    }

    /// Looks at what a path has; a file is read, up to `limit` bytes.
    pub(crate) fn look(&self, path: &Path, limit: u64) -> Result<CarriedEntry, PathError> {
        let (folder, name) = match self.parent_of(path) {
            Ok(found) => found,
            Err(PathError::Missing) => return Ok(CarriedEntry::Nothing),
            Err(PathError::NotAFolder(at)) => return Ok(CarriedEntry::Blocked(at)),
            Err(PathError::Mounted) => return Ok(CarriedEntry::Mount),
            Err(error) => return Err(error),
        };
        let dir = folder.innermost();
        let Some(meta) = stat_entry(dir, name)? else {
            return Ok(CarriedEntry::Nothing);
        };
        Ok(match meta.kind {
            _ if meta.is_mount => CarriedEntry::Mount,
            FileType::Directory => CarriedEntry::Folder {
                mode: meta.mode & 0o777,
            },
            FileType::Symlink => CarriedEntry::Link(read_link(dir, name)?),
            FileType::RegularFile => {
                let (file, meta) = open_regular(dir, name, CARRY.access, CARRY.mounts)?;
                match read_bounded(file, &meta, limit) {
                    Ok(content) => CarriedEntry::File { content, meta },
                    Err(PathError::TooLarge(_)) => CarriedEntry::TooLarge,
                    Err(error) => return Err(error),
                }
            }
            _ => CarriedEntry::Special,
        })
    }

    /// Whether anything is at a path.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        let found = self.parent_of(path);
        found.is_ok_and(|(folder, name)| {
            !matches!(stat_entry(folder.innermost(), name), Ok(None) | Err(_))
        })
    }

    /// Writes a temporary entry, which must not exist.
    pub(crate) fn stage(&self, path: &Path, content: CarriedContent<'_>) -> Result<(), PathError> {
        let (folder, name) = self.parent_of(path)?;
        match content {
            CarriedContent::Link(target) => Ok(create_link(target, folder.innermost(), name)?),
            CarriedContent::File {
                mut content,
                is_executable,
                like,
                sync,
            } => {
                let staged = StagedFile {
                    mode: carried_mode(like, is_executable),
                    owner: like.map(|old| (old.uid, old.gid)),
                    sync,
                };
                staged.write(folder.innermost(), name, &mut content)?;
                Ok(())
            }
        }
    }

    /// Lets two entries change their places. Where the file system cannot do that, the first replaces the second.
    pub(crate) fn exchange(&self, one: &Path, other: &Path) -> Result<(), PathError> {
        self.on_both(one, other, |one, other| match exchange(one, other) {
            Err(Errno::INVAL | Errno::NOSYS) => rename(one, other),
            done => done,
        })
    }

    /// Gives an entry a name that nothing has.
    pub(crate) fn rename_new(&self, from: &Path, to: &Path) -> Result<(), PathError> {
        self.on_both(from, to, rename_new)
    }

    /// Gives an entry the name of another one, which it replaces.
    pub(crate) fn rename_over(&self, from: &Path, to: &Path) -> Result<(), PathError> {
        self.on_both(from, to, rename)
    }

    /// Removes a file or link, if it is there.
    pub(crate) fn remove(&self, path: &Path) -> Result<(), PathError> {
        // Asked first: on a read-only file system even a missing name cannot be removed.
        if !self.exists(path) {
            return Ok(());
        }
        let removed = self
            .parent_of(path)
            .and_then(|(folder, name)| Ok(remove_file(folder.innermost(), name)?));
        match removed {
            Err(PathError::Missing | PathError::NotAFolder(_)) => Ok(()),
            other => other,
        }
    }

    /// Makes a folder, unless it exists, with this mode or by the umask.
    pub(crate) fn make_folder(&self, path: &Path, mode: Option<u32>) -> Result<(), PathError> {
        let (folder, name) = self.parent_of(path)?;
        let dir = folder.innermost();
        match mode {
            Some(mode) => make_folder_with(dir, name, mode)?,
            None => make_folder(dir, name, 0o777)?,
        }
        Ok(())
    }

    /// Removes a folder if it is empty.
    pub(crate) fn remove_folder(&self, path: &Path) -> Result<(), PathError> {
        if !self.exists(path) {
            return Ok(());
        }
        let removed = self
            .parent_of(path)
            .and_then(|(folder, name)| Ok(remove_folder(folder.innermost(), name)?));
        match removed {
            Err(PathError::Missing | PathError::NotAFolder(_))
            | Err(PathError::System(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR)) => Ok(()),
            other => other,
        }
    }

    /// The paths of everything below a folder but folders.
    pub(crate) fn entries_below(&self, path: &Path) -> Result<Vec<PathBuf>, PathError> {
        let mut found = Vec::new();
        let mut pending = vec![(self.open_path(path)?, path.to_owned())];
        while let Some((dir, around)) = pending.pop() {
            let mut names = Vec::new();
            list(dir.as_fd(), |name, _| {
                names.push(name.to_owned());
                true
            })?;
            for name in names {
                let path = around.join(&name);
                match open_folder(dir.as_fd(), &name, Access::AsIs) {
                    Ok(inner) if path.components().count() < MAX_DEPTH => {
                        pending.push((inner, path))
                    }
                    _ => found.push(path),
                }
            }
        }
        Ok(found)
    }

    /// Makes the names in a folder durable, as far as it exists.
    pub(crate) fn sync_folder(&self, path: &Path) -> Result<(), PathError> {
        match self.open_path(path) {
            Ok(folder) => Ok(fsync(folder)?),
            Err(PathError::Missing | PathError::NotAFolder(_)) => Ok(()),
            // What cannot be listed is reached with the rest of the file system.
            Err(PathError::System(Errno::ACCESS)) => self.sync_all(),
            Err(error) => Err(error),
        }
    }

    /// Makes everything in the file system of the folder durable.
    pub(crate) fn sync_all(&self) -> Result<(), PathError> {
        Ok(syncfs(&self.top)?)
    }

    /// An error about a path of the folder.
    pub(crate) fn failed(&self, action: &'static str, path: &Path, error: PathError) -> Error {
        let path = self.path_of(path);
        match error {
            PathError::System(errno) => Error::io(action, &path, errno),
            PathError::Missing => Error::io(action, &path, Errno::NOENT),
            other => Error::io(action, &path, io::Error::other(other.to_string())),
        }
    }

    fn open_path(&self, path: &Path) -> Result<OwnedFd, PathError> {
        if path.as_os_str().is_empty() {
            return Ok(open_listable(self.top.as_fd())?);
        }
        let names = plain(path)?;
        let folder = self.resolver().folder(names.iter().copied())?;
        Ok(open_listable(folder.innermost())?)
    }

    fn on_both(
        &self,
        one: &Path,
        other: &Path,
        act: impl Fn((BorrowedFd<'_>, &OsStr), (BorrowedFd<'_>, &OsStr)) -> Result<(), Errno>,
    ) -> Result<(), PathError> {
        let (one_folder, one_name) = self.parent_of(one)?;
        let (other_folder, other_name) = self.parent_of(other)?;
        let one = (one_folder.innermost(), one_name);
        Ok(act(one, (other_folder.innermost(), other_name))?)
    }

    /// The folder around a path, which exists, and the last name.
    fn parent_of<'p>(&self, path: &'p Path) -> Result<(ResolvedFolder<'_>, &'p OsStr), PathError> {
        let (folders, name) = folders_and_name(path)?;
        let folder = self.resolver().folder(folders.into_iter())?;
        Ok((folder, name))
    }

    fn resolver(&self) -> Resolver<'_> {
        Resolver::new(self.top.as_fd(), CARRY)
    }
}

fn carried_mode(like: Option<&EntryMeta>, is_executable: bool) -> StagedMode {
    let Some(old) = like else {
        return StagedMode::Plain { is_executable };
    };
    let was_executable = old.mode & 0o100 != 0;
    StagedMode::Given(match (was_executable, is_executable) {
        (false, true) => old.mode | (old.mode & 0o444) >> 2,
        (true, false) => old.mode & !0o111,
        _ => old.mode,
    })
}
