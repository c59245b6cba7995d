//! What goes out of the workspace: one place, or everything.
//!
//! Trees are taken down by handle and on a list, not on the stack. Only so many levels are held open; what lies deeper
//! is moved up to the top and taken down from there, so a hostile depth costs only its folders.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, fsync};
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::entry::{
    STAGE_PREFIX, list, names, open_folder, remove_file, remove_folder, rename, stage_name, unlock,
};
use crate::workspace::handle::Workspace;
use crate::workspace::rules::{Access, SNAPSHOT};
use crate::workspace::walk::DEPTH_LIMIT;

/// How many levels of a tree are held open at once.
const LEVELS_HELD: usize = 64;
/// How often a folder that is not empty after all is emptied again.
const MAX_PASSES: u32 = 4;

/// Something that could not be removed, where it is now, and why.
struct StuckEntry {
    path: PathBuf,
    errno: Errno,
}

impl StuckEntry {
    fn reason(&self) -> String {
        match self.errno {
            Errno::XDEV | Errno::BUSY => "another file system is mounted there".to_owned(),
            errno => io::Error::from(errno).to_string(),
        }
    }
}

/// A folder that is being emptied.
struct RemovalLevel {
    handle: OwnedFd,
    name: OsString,
    left: Vec<OsString>,
    passes: u32,
    /// Something in it stays, so it stays.
    is_stuck: bool,
}

/// A tree that is being taken down.
struct TreeRemoval<'a> {
    top: BorrowedFd<'a>,
    /// Folders that were moved to the top, by name.
    moved: Vec<OsString>,
    stuck: Vec<StuckEntry>,
}

impl Workspace {
    /// Removes whatever is at `path`, with all below it, and returns whether something was there.
    ///
    /// Links are removed themselves; a link on the way means that nothing is there.
    pub(crate) fn remove(&self, path: &Path) -> Result<bool, Error> {
        match self.parent_of(path, SNAPSHOT) {
            Ok((folder, name)) => self.remove_at(folder.innermost(), name, path),
            Err(error) if error.is_absent() => Ok(false),
            Err(error) => Err(self.failed("remove", path, error)),
        }
    }

    /// Empties the workspace but for regular files of the names in `keep` at its top, durably; returns what would not go.
    pub(crate) fn clear(&self, keep: &[&str]) -> Result<Vec<String>, Error> {
        let mut stuck = Vec::new();
        for name in self.top_names()? {
            if !self.is_spared(&name, keep) {
                stuck.extend(self.remove_tree(self.top(), &name, Path::new(&name)).1);
            }
        }
        // A power cut must not bring back what a later step, such as forgetting the run, relies on being gone.
        fsync(self.top()).map_err(|errno| self.failed("sync", Path::new(""), errno))?;
        let told = |one: &StuckEntry| {
            format!(
                "{} ({})",
                one.path.to_string_lossy().escape_debug(),
                one.reason()
            )
        };
        Ok(stuck.iter().map(told).collect())
    }

    /// Removes every folder or file of this name, wherever it lies, but for those that are spared. Only names and types
    /// are read. A folder that cannot be entered cannot be read either.
    pub(crate) fn remove_everywhere(
        &self,
        name: &str,
        is_spared: &dyn Fn(&Path) -> bool,
    ) -> Result<(), Error> {
        let failed = |path: &Path, errno| self.failed("read", path, errno);
        let top = self
            .top()
            .try_clone_to_owned()
            .map_err(|error| Error::io("read", &self.display, error))?;
        let inner = folders(top.as_fd(), name).map_err(|errno| failed(Path::new(""), errno))?;
        let mut levels = vec![(top, PathBuf::new(), inner)];
        while let Some((handle, around, left)) = levels.last_mut() {
            let Some(next) = left.pop() else {
                levels.pop();
                continue;
            };
            let path = around.join(&next);
            if next == name && !is_spared(&path) {
                self.remove_at(handle.as_fd(), &next, &path)?;
                continue;
            }
            let inner = open_folder(handle.as_fd(), &next, Access::AsIs)
                .and_then(|handle| Ok((folders(handle.as_fd(), name)?, handle)));
            match inner {
                Ok((inner, handle)) if levels.len() < DEPTH_LIMIT => {
                    levels.push((handle, path, inner))
                }
                Ok(_)
                | Err(Errno::ACCESS | Errno::NOENT | Errno::XDEV | Errno::NOTDIR | Errno::LOOP) => {
                }
                Err(errno) => return Err(failed(&path, errno)),
            }
        }
        Ok(())
    }

    /// Removes what an interrupted change left at the top. What will not go does no harm and stays.
    pub(crate) fn sweep(&self) -> Result<(), Error> {
        for name in self.top_names()? {
            if name.to_string_lossy().starts_with(STAGE_PREFIX) {
                self.remove_tree(self.top(), &name, Path::new(&name));
            }
        }
        Ok(())
    }

    /// Drops what was staged. What cannot be removed is swept at the next start.
    pub(super) fn discard(&self, stage: &OsStr) {
        let _ = self.remove_at(self.top(), stage, Path::new(stage));
    }

    /// Removes `name` from an open folder; `path` is what an error names.
    pub(super) fn remove_at(
        &self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> Result<bool, Error> {
        let (found, stuck) = self.remove_tree(folder, name, path);
        match stuck.first() {
            Some(first) => Err(Error::io(
                "remove",
                &self.display.join(&first.path),
                first.errno,
            )),
            None => Ok(found),
        }
    }

    fn top_names(&self) -> Result<Vec<OsString>, Error> {
        names(self.top(), usize::MAX).map_err(|errno| self.failed("read", Path::new(""), errno))
    }

    /// Takes down whatever `name` is; returns whether it was there, and what would not go.
    fn remove_tree(
        &self,
        folder: BorrowedFd<'_>,
        name: &OsStr,
        path: &Path,
    ) -> (bool, Vec<StuckEntry>) {
        let mut removal = TreeRemoval {
            top: self.top(),
            moved: Vec::new(),
            stuck: Vec::new(),
        };
        match remove_file(folder, name) {
            Ok(()) => {}
            Err(Errno::NOENT) => return (false, Vec::new()),
            Err(Errno::ISDIR) => removal.take_down(folder, name, path),
            Err(errno) => removal.stuck.push(StuckEntry {
                path: path.to_owned(),
                errno,
            }),
        }
        while let Some(name) = removal.moved.pop() {
            removal.take_down(removal.top, &name, Path::new(&name));
        }
        (true, removal.stuck)
    }
}

/// Returns the folders in a folder, and whatever has this name.
fn folders(dir: BorrowedFd<'_>, wanted: &str) -> Result<Vec<OsString>, Errno> {
    let mut found = Vec::new();
    list(dir, |name, kind| {
        if matches!(kind, FileType::Directory | FileType::Unknown) || name == wanted {
            found.push(name.to_owned());
        }
        true
    })?;
    Ok(found)
}

impl TreeRemoval<'_> {
    /// Empties and removes the folder `name` in `base`, except what lies too deep: that is in `moved` afterwards.
    fn take_down(&mut self, base: BorrowedFd<'_>, name: &OsStr, path: &Path) {
        let mut levels = Vec::new();
        self.descend(&mut levels, base, name.to_owned(), path);
        while let Some(level) = levels.last_mut() {
            let Some(child) = level.left.pop() else {
                self.finish_level(&mut levels, base, path);
                continue;
            };
            match remove_file(level.handle.as_fd(), &child) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(Errno::ISDIR) if levels.len() < LEVELS_HELD => {
                    self.descend(&mut levels, base, child, path)
                }
                Err(Errno::ISDIR) => self.move_up(&mut levels, child, path),
                Err(errno) => self.keep(&mut levels, path, Some(&child), errno),
            }
        }
    }

    /// Opens the folder `name` in the innermost level, to be emptied next.
    fn descend(
        &mut self,
        levels: &mut Vec<RemovalLevel>,
        base: BorrowedFd<'_>,
        name: OsString,
        path: &Path,
    ) {
        let around = levels.last().map_or(base, |level| level.handle.as_fd());
        let opened = open_folder(around, &name, Access::Force)
            .and_then(|handle| Ok((names(handle.as_fd(), usize::MAX)?, handle)));
        match opened {
            Ok((left, handle)) => levels.push(RemovalLevel {
                handle,
                name,
                left,
                passes: 1,
                is_stuck: false,
            }),
            Err(Errno::NOENT) => {}
            // The given folder itself is at `path`; all others are below it.
            Err(errno) => {
                let name = (!levels.is_empty()).then_some(name);
                self.keep(levels, path, name.as_deref(), errno);
            }
        }
    }

    /// Removes the innermost level, which was emptied, from the one around it.
    fn finish_level(&mut self, levels: &mut Vec<RemovalLevel>, base: BorrowedFd<'_>, path: &Path) {
        let Some(mut level) = levels.pop() else {
            return;
        };
        if level.is_stuck {
            return;
        }
        let around = levels.last().map_or(base, |outer| outer.handle.as_fd());
        match remove_folder(around, &level.name) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Another process fills it, or the file system skipped names while others were removed.
            Err(Errno::NOTEMPTY | Errno::EXIST) if level.passes < MAX_PASSES => {
                level.passes += 1;
                level.left = names(level.handle.as_fd(), usize::MAX).unwrap_or_default();
                levels.push(level);
            }
            Err(errno) => {
                let name = (!levels.is_empty()).then_some(level.name);
                self.keep(levels, path, name.as_deref(), errno);
            }
        }
    }

    /// Moves the folder `child` of the innermost level to the top, to be taken down from there.
    fn move_up(&mut self, levels: &mut [RemovalLevel], child: OsString, path: &Path) {
        let Some(level) = levels.last() else { return };
        let name = stage_name();
        let handle = level.handle.as_fd();
        let place = || rename((handle, &child), (self.top, &name));
        let moved = place().or_else(|errno| match errno {
            // Moving a folder needs write permission on it, since its `..` changes.
            Errno::ACCESS => unlock(handle, &child, 0o700).and_then(|()| place()),
            _ => Err(errno),
        });
        match moved {
            Ok(()) => self.moved.push(name),
            Err(errno) => self.keep(levels, path, Some(&child), errno),
        }
    }

    /// Notes that something stays, and with it the folders around it.
    fn keep(
        &mut self,
        levels: &mut [RemovalLevel],
        path: &Path,
        name: Option<&OsStr>,
        errno: Errno,
    ) {
        let mut stays = path.to_owned();
        stays.extend(levels.iter().skip(1).map(|level| &level.name));
        stays.extend(name);
        levels.iter_mut().for_each(|level| level.is_stuck = true);
        self.stuck.push(StuckEntry { path: stays, errno });
    }
}
