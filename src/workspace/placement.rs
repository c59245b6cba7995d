//! Many of the user's files, put in their places one after the other.
//!
//! The folder of the last file stays open, and a file is created where nothing has its name yet. Only where something is
//! in the way, or for a link, it is staged and renamed like a single one.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, fchmod};

use crate::error::Error;
use crate::workspace::entry::remove_file;
use crate::workspace::handle::{Workspace, folders_and_name, plain};
use crate::workspace::path_error::PathError;
use crate::workspace::rules::INPUT;
use crate::workspace::stage::{StagedFile, StagedMode};

/// Puts files in their places; sorted ones need each folder once.
#[derive(Debug)]
pub(crate) struct InputPlacement<'a> {
    workspace: &'a Workspace,
    /// The folders from the top to that of the last file.
    folders: Vec<(OsString, OwnedFd)>,
}

impl Workspace {
    /// Begins to put files in their places. Nothing else may change the workspace meanwhile.
    pub(crate) fn place_inputs(&self) -> InputPlacement<'_> {
        InputPlacement {
            workspace: self,
            folders: Vec::new(),
        }
    }
}

impl InputPlacement<'_> {
    /// Puts a file in its place, whatever is there; of `mode` the permission bits are used. It is not durable yet.
    pub(crate) fn put_file<R: io::Read>(
        &mut self,
        path: &Path,
        content: &mut R,
        mode: u32,
    ) -> Result<(), Error> {
        let workspace = self.workspace;
        let failed = |error: PathError| workspace.failed("write", path, error);
        let (folders, name) = folders_and_name(path).map_err(failed)?;
        let folder = self.folder(&folders).map_err(failed)?;
        let file = StagedFile {
            mode: StagedMode::Given(mode),
            owner: None,
            sync: false,
        };
        match file.write(folder, name, content) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                workspace.put_file(path, content, mode, false)
            }
            Err(error) => {
                let _ = remove_file(folder, name);
                Err(Error::io("write", &workspace.path_of(path), error))
            }
            Ok(_) => Ok(()),
        }
    }

    /// Puts a link in its place, whatever is there; its target is not checked.
    pub(crate) fn put_link(&mut self, path: &Path, target: &OsStr) -> Result<(), Error> {
        self.workspace.put_link(path, target)
    }

    /// Makes a folder with this mode, whatever is there; one that exists keeps its content.
    pub(crate) fn make_dir(&mut self, path: &Path, mode: u32) -> Result<(), Error> {
        let workspace = self.workspace;
        plain(path)
            .and_then(|components| self.folder(&components))
            .and_then(|folder| Ok(fchmod(folder, Mode::from_raw_mode(mode & 0o777))?))
            .map_err(|error| workspace.failed("make", path, error))?;
        if mode & 0o700 != 0o700 {
            // A file in it needs it opened up again.
            self.folders.pop();
        }
        Ok(())
    }

    /// Opens a folder; whatever is not one on the way, a link included, becomes one.
    fn folder(&mut self, components: &[&OsStr]) -> Result<BorrowedFd<'_>, PathError> {
        let open = self.folders.iter().map(|(name, _)| name.as_os_str());
        let shared = open
            .zip(components)
            .take_while(|(open, wanted)| open == *wanted)
            .count();
        self.folders.truncate(shared);
        let resolver = self.workspace.resolver(INPUT);
        for name in &components[shared..] {
            let around = self.innermost();
            let folder = resolver.make_folder(around, name)?;
            self.folders.push(((*name).to_owned(), folder));
        }
        Ok(self.innermost())
    }

    fn innermost(&self) -> BorrowedFd<'_> {
        let last = self.folders.last();
        last.map_or_else(|| self.workspace.top(), |(_, folder)| folder.as_fd())
    }
}
