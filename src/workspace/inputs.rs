//! The user's own files, and what a snapshot puts back: they take their place, whatever is there.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, Timespec, Timestamps, UTIME_OMIT, fchmod, utimensat};
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::entry::{FileTime, create_link, rename, stage_name};
use crate::workspace::handle::{Workspace, folders_and_name, plain};
use crate::workspace::path_error::PathError;
use crate::workspace::rules::{INPUT, SNAPSHOT};
use crate::workspace::stage::{StagedFile, StagedMode};
use crate::workspace::sync::folders_of;

impl Workspace {
    /// Puts a file in its place, whatever is there; of `mode` the permission bits are used.
    pub(crate) fn put_file(
        &self,
        path: &Path,
        content: &mut dyn io::Read,
        mode: u32,
        sync: bool,
    ) -> Result<(), Error> {
        let stage = stage_name();
        let staged = StagedFile {
            mode: StagedMode::Given(mode),
            owner: None,
            sync,
        };
        staged
            .write(self.top(), &stage, content)
            .map_err(|error| Error::io("write", &self.display.join(path), error))
            .and_then(|_| self.force_place(&stage, path))
            .inspect_err(|_| self.discard(&stage))?;
        if sync {
            self.sync_folders(&folders_of(path))
        } else {
            Ok(())
        }
    }

    /// Puts a link in its place, whatever is there; its target is not checked.
    pub(crate) fn put_link(&self, path: &Path, target: &OsStr) -> Result<(), Error> {
        let stage = stage_name();
        create_link(target, self.top(), &stage)
            .map_err(|errno| self.failed("write", path, errno))?;
        self.force_place(&stage, path)
            .inspect_err(|_| self.discard(&stage))
    }

    /// Makes a folder with this mode, whatever is there; one that exists keeps its content.
    pub(crate) fn make_dir(&self, path: &Path, mode: u32) -> Result<(), Error> {
        plain(path)
            .and_then(|components| self.force_folder(&components))
            .and_then(|folder| Ok(fchmod(&folder, Mode::from_raw_mode(mode & 0o777))?))
            .map_err(|error| self.failed("make", path, error))
    }

    /// Sets the modification time of what is at `path`, a link included.
    pub(super) fn set_mtime(&self, path: &Path, mtime: FileTime) -> Result<(), Error> {
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
        self.parent_of(path, SNAPSHOT)
            .and_then(|(folder, name)| {
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                Ok(utimensat(folder.innermost(), name, &times, flags)?)
            })
            .map_err(|error| self.failed("write", path, error))
    }

    /// Moves what was staged at the top to its place, and removes what is in the way.
    fn force_place(&self, stage: &OsStr, path: &Path) -> Result<(), Error> {
        let failed = |error: PathError| self.failed("write", path, error);
        let (folders, name) = folders_and_name(path).map_err(failed)?;
        let folder = self.force_folder(&folders).map_err(failed)?;
        let place = || rename((self.top(), stage), (folder.as_fd(), name));
        match place() {
            Err(Errno::ISDIR) => {
                self.remove_at(folder.as_fd(), name, path)?;
                place()
            }
            other => other,
        }
        .map_err(|errno| failed(errno.into()))
    }

    /// Opens a folder; whatever is not one on the way, a link included, becomes one.
    fn force_folder(&self, components: &[&OsStr]) -> Result<OwnedFd, PathError> {
        let resolver = self.resolver(INPUT);
        let folder = resolver.folder(components.iter().copied())?;
        Ok(resolver.make_missing(&folder)?)
    }
}
