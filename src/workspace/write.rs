//! What goes into the workspace: the changes of an answer, and the user's own inputs.
//!
//! Content is written beside its place and renamed into it, so hard links are broken, links replaced, and no file is
//! ever half there. An answer bows to the tree (`locate.rs` judges); the user's inputs force their place.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, fchmod, fsync, mkdirat,
    openat, renameat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::entry::{Access, enter, look, stage_name};
use crate::workspace::resolve::{ResolvedFolder, TreeView};
use crate::workspace::safe_path::SafePath;
use crate::workspace::{ChangeRefusal, FileChange, FileTime, Workspace, plain};

/// Up to this many changes are made durable one by one; more are cheaper with one sync of the file system.
const SYNC_EACH: usize = 16;
/// How often a place is cleared for a folder before whoever keeps filling it wins.
const FORCE_ATTEMPTS: u32 = 64;

impl Workspace {
    /// Makes all changes and makes them durable. After a crash the same call again leads to the same tree.
    pub fn apply(&self, changes: &[FileChange]) -> Result<(), Error> {
        self.top();
        let mut touched = BTreeSet::new();
        for change in changes {
            if let FileChange::Delete { path } = change {
                self.delete(path, &mut touched)?;
            }
        }
        let each = changes.len() <= SYNC_EACH;
        if changes
            .iter()
            .any(|change| matches!(change, FileChange::Write { .. }))
        {
            self.write_all(changes, each, &mut touched)?;
        }
        if each {
            self.sync_folders(&touched)
        } else {
            self.sync()
        }
    }

    /// Puts a file in its place, whatever stands in the way; `mode` loses all but its permission bits.
    pub fn put_file(
        &self,
        path: &Path,
        content: &mut dyn io::Read,
        mode: u32,
        sync: bool,
    ) -> Result<(), Error> {
        let failed = |error: io::Error| Error::io("write", &self.display.join(path), error);
        let stage = stage_name();
        let mut file = File::from(
            create(self.top(), OsStr::new(&stage)).map_err(|errno| failed(errno.into()))?,
        );
        let filled = io::copy(content, &mut file)
            .and_then(|_| Ok(fchmod(&file, Mode::from_raw_mode(mode & 0o777))?))
            .and_then(|()| if sync { file.sync_all() } else { Ok(()) })
            .map_err(failed);
        filled
            .and_then(|()| self.force_place(&stage, path))
            .inspect_err(|_| self.discard(&stage))?;
        if sync {
            self.sync_folders(&folders_of(path))
        } else {
            Ok(())
        }
    }

    /// Puts a link in its place, whatever stands in the way; where it points is the caller's to judge.
    pub fn put_link(&self, path: &Path, target: &OsStr) -> Result<(), Error> {
        let stage = stage_name();
        symlinkat(target, self.top(), &stage).map_err(|errno| self.failed("write", path, errno))?;
        self.force_place(&stage, path)
            .inspect_err(|_| self.discard(&stage))
    }

    /// Makes a folder with this mode, whatever stands in the way; one that is there keeps what is in it.
    pub fn make_dir(&self, path: &Path, mode: u32) -> Result<(), Error> {
        let components = plain(path).ok_or_else(|| self.failed("make", path, Errno::INVAL))?;
        self.force_folder(&components)
            .and_then(|folder| fchmod(&folder, Mode::from_raw_mode(mode & 0o777)))
            .map_err(|errno| self.failed("make", path, errno))
    }

    /// Makes what is at these paths durable, their names included; what is not there any more was removed. Many paths
    /// are made durable by one sync of the file system: on ext4 20,000 files took 1.1 s so, and 86 s one by one.
    pub fn settle<'a>(&self, paths: impl IntoIterator<Item = &'a Path>) -> Result<(), Error> {
        let paths: Vec<&Path> = paths.into_iter().collect();
        if paths.len() > SYNC_EACH {
            return self.sync();
        }
        let mut folders = BTreeSet::from([PathBuf::new()]);
        for path in paths {
            folders.extend(folders_of(path));
            let meta = match self
                .parent_of(path, Access::AsIs)
                .and_then(|(folder, name)| look(folder.as_fd(), name))
            {
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(_) => return self.sync(),
                Ok(meta) => meta,
            };
            match meta.map(|meta| meta.kind) {
                Some(FileType::Directory) => drop(folders.insert(path.to_owned())),
                Some(FileType::RegularFile) => match self.open_file(path, Access::AsIs) {
                    Ok((file, _)) => {
                        file.sync_all()
                            .map_err(|error| Error::io("sync", &self.display.join(path), error))?;
                    }
                    Err(_) => return self.sync(),
                },
                _ => {}
            }
        }
        for folder in folders {
            let components: Vec<&OsStr> = folder.iter().collect();
            match self.open_folder(&components, Access::AsIs) {
                Ok(opened) => fsync(opened).map_err(|errno| self.failed("sync", &folder, errno))?,
                Err(Errno::NOENT) => {}
                // One that may not be opened is reached with the rest of the file system.
                Err(_) => return self.sync(),
            }
        }
        Ok(())
    }

    /// Sets the time of the last change of content of what is at `path`, a link included.
    pub(in crate::workspace) fn set_mtime(
        &self,
        path: &Path,
        mtime: FileTime,
    ) -> Result<(), Error> {
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: mtime.0,
                tv_nsec: mtime.1.into(),
            },
        };
        self.parent_of(path, Access::Force)
            .and_then(|(folder, name)| utimensat(folder, name, &times, AtFlags::SYMLINK_NOFOLLOW))
            .map_err(|errno| self.failed("write", path, errno))
    }

    fn delete(&self, path: &SafePath, touched: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        let spot = self
            .locate_for_delete(path, &TreeView::of_now(Access::Force))
            .map_err(|r| self.refused(path, r))?;
        if let Some(spot) = spot
            && let Some(folder) = spot.handle(self)
        {
            let place = spot.real.join(path.file_name());
            self.remove_at(folder, OsStr::new(path.file_name()), &place)?;
            touched.extend(folders_of(&place));
        }
        Ok(())
    }

    /// Writes all contents to a folder of their own, then moves each to its place.
    fn write_all(
        &self,
        changes: &[FileChange],
        sync: bool,
        touched: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        let stage = stage_name();
        let failed = |errno| self.failed("make", Path::new(&stage), errno);
        mkdirat(self.top(), &stage, Mode::from_raw_mode(0o700)).map_err(failed)?;
        let folder = enter(self.top(), OsStr::new(&stage), Access::Force).map_err(failed)?;
        let moved = self
            .stage_all(folder.as_fd(), changes, sync)
            .and_then(|()| self.move_all(folder.as_fd(), changes, touched));
        self.discard(&stage);
        touched.insert(PathBuf::new());
        moved
    }

    fn stage_all(
        &self,
        stage: BorrowedFd<'_>,
        changes: &[FileChange],
        sync: bool,
    ) -> Result<(), Error> {
        let view = TreeView::of_now(Access::Force);
        for (index, change) in changes.iter().enumerate() {
            let FileChange::Write { path, content } = change else {
                continue;
            };
            let (_, old_mode) = self
                .locate_for_write(path, &view)
                .map_err(|refusal| self.refused(path, refusal))?;
            stage_one(stage, index, content, old_mode, sync)
                .map_err(|error| Error::io("write", &self.display.join(path.as_str()), error))?;
        }
        Ok(())
    }

    fn move_all(
        &self,
        stage: BorrowedFd<'_>,
        changes: &[FileChange],
        touched: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        let view = TreeView::of_now(Access::Force);
        for (index, change) in changes.iter().enumerate() {
            let FileChange::Write { path, .. } = change else {
                continue;
            };
            let (spot, _) = self
                .locate_for_write(path, &view)
                .map_err(|refusal| self.refused(path, refusal))?;
            self.make_missing(&spot)
                .and_then(|folder| renameat(stage, index.to_string(), folder, path.file_name()))
                .map_err(|errno| self.failed("write", Path::new(path.as_str()), errno))?;
            touched.extend(folders_of(&spot.real.join(path.file_name())));
        }
        Ok(())
    }

    /// Makes the folders that a spot still lacks, and opens the innermost.
    fn make_missing(&self, spot: &ResolvedFolder) -> Result<OwnedFd, Errno> {
        let mut folder = spot
            .innermost(self)
            .try_clone_to_owned()
            .map_err(|_| Errno::MFILE)?;
        for name in spot.missing() {
            make_folder(folder.as_fd(), name)?;
            folder = enter(folder.as_fd(), name, Access::Force)?;
        }
        Ok(folder)
    }

    /// Moves what was staged at the top to its place, and removes what stands in the way.
    fn force_place(&self, stage: &str, path: &Path) -> Result<(), Error> {
        let failed = |errno| self.failed("write", path, errno);
        let components = plain(path).ok_or_else(|| failed(Errno::INVAL))?;
        let (name, folders) = components
            .split_last()
            .ok_or_else(|| failed(Errno::INVAL))?;
        let folder = self.force_folder(folders).map_err(failed)?;
        match renameat(self.top(), stage, &folder, *name) {
            Err(Errno::ISDIR) => {
                self.remove_at(folder.as_fd(), name, path)?;
                renameat(self.top(), stage, &folder, *name).map_err(failed)
            }
            other => other.map_err(failed),
        }
    }

    /// Opens a folder; what is no folder on the way, a link included, becomes one.
    fn force_folder(&self, components: &[&OsStr]) -> Result<OwnedFd, Errno> {
        let mut folder = self.top().try_clone_to_owned().map_err(|_| Errno::MFILE)?;
        for name in components {
            folder = force_step(folder.as_fd(), name)?;
        }
        Ok(folder)
    }

    /// Drops what was staged. It may be gone or in its place already; what stays is swept at the next start.
    fn discard(&self, stage: &str) {
        let _ = self.remove_at(self.top(), OsStr::new(stage), Path::new(stage));
    }

    fn sync_folders(&self, folders: &BTreeSet<PathBuf>) -> Result<(), Error> {
        for path in folders {
            let components: Vec<&OsStr> = path.iter().collect();
            match self.open_folder(&components, Access::Force).and_then(fsync) {
                // A later deletion took it.
                Ok(()) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.failed("sync", path, errno)),
            }
        }
        Ok(())
    }

    /// The error of a change that was judged well and met something else in the tree.
    fn refused(&self, path: &SafePath, refusal: ChangeRefusal) -> Error {
        match refusal {
            ChangeRefusal::Conflict(text) => Error::io(
                "write",
                &self.display.join(path.as_str()),
                io::Error::other(text),
            ),
            ChangeRefusal::Violation(violation) => violation.into(),
            ChangeRefusal::Io(error) => error,
        }
    }
}

fn create(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(folder, name, flags, Mode::from_raw_mode(0o666))
}

fn stage_one(
    stage: BorrowedFd<'_>,
    index: usize,
    content: &[u8],
    old_mode: Option<u32>,
    sync: bool,
) -> io::Result<()> {
    let mut file = File::from(create(stage, OsStr::new(&index.to_string()))?);
    file.write_all(content)?;
    match old_mode {
        Some(mode) => fchmod(&file, Mode::from_raw_mode(mode & 0o777 | 0o600))?,
        None if content.starts_with(b"#!") => make_executable(&file)?,
        None => {}
    }
    if sync { file.sync_all() } else { Ok(()) }
}

/// Lets everybody execute a new file who may read it.
pub fn make_executable(file: &File) -> io::Result<()> {
    let mode = file.metadata()?.permissions().mode() & 0o777;
    Ok(fchmod(
        file,
        Mode::from_raw_mode(mode | (mode & 0o444) >> 2),
    )?)
}

fn make_folder(folder: BorrowedFd<'_>, name: &OsStr) -> Result<(), Errno> {
    match mkdirat(folder, name, Mode::from_raw_mode(0o777)) {
        Err(Errno::EXIST) => Ok(()),
        other => other,
    }
}

fn force_step(folder: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
    for _ in 0..FORCE_ATTEMPTS {
        match enter(folder, name, Access::Force) {
            Err(Errno::NOENT) => make_folder(folder, name)?,
            Err(Errno::NOTDIR | Errno::LOOP) => match unlinkat(folder, name, AtFlags::empty()) {
                // Gone, or a folder again: the next look tells.
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                Err(errno) => return Err(errno),
            },
            other => return other,
        }
    }
    Err(Errno::BUSY)
}

/// The folders around a path, the top included: each holds the name of the next.
fn folders_of(path: &Path) -> BTreeSet<PathBuf> {
    path.ancestors().skip(1).map(Path::to_owned).collect()
}
