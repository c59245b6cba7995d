//! The changes of an answer: checked as a whole against the tree, then applied as a whole.
//!
//! An answer gives way to the tree: what it would have to force is refused, as a conflict that the model can solve or as a
//! violation.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::state::writeback::start_writing;
use crate::workspace::entry::{EntryMeta, make_folder, open_folder, rename, stage_name};
use crate::workspace::handle::Workspace;
use crate::workspace::path_error::PathError;
use crate::workspace::resolve::{ExistingEntry, ResolvedFolder, Resolver};
use crate::workspace::rules::{ANSWER, ANSWER_CHECK, Access};
use crate::workspace::safe_path::{SafePath, Violation};
use crate::workspace::stage::StagedFile;
use crate::workspace::sync::{SYNC_EACH, folders_of};

/// What an answer wants done to one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileChange {
    Write { path: SafePath, content: Vec<u8> },
    Delete { path: SafePath },
}

/// Why changes cannot be made.
#[derive(Debug)]
pub(crate) enum ChangeRefusal {
    /// The tree does not allow it as it is; the text is for the model.
    Conflict(String),
    /// It would leave the workspace, or meets a special file.
    Violation(Violation),
    /// The tree could not be read.
    Io(Error),
}

impl Workspace {
    /// Checks whether the changes can be made, on the tree as it is after the deletions; changes nothing.
    pub(crate) fn check(&self, changes: &[FileChange]) -> Result<(), ChangeRefusal> {
        let mut resolver = self.resolver(ANSWER_CHECK);
        for path in deletions(changes) {
            if let Some(folder) = self.locate_for_delete(&resolver, path)? {
                let real = folder.real.join(path.file_name());
                resolver.pending.deleted.insert(real);
            }
        }
        let mut written = HashSet::new();
        for (_, path, _) in writes(changes) {
            let (folder, _) = self.locate_for_write(&resolver, path)?;
            if !written.insert(folder.real.join(path.file_name())) {
                return Err(ChangeRefusal::Conflict(format!(
                    "`{path}` is written twice: a link leads to the same file"
                )));
            }
        }
        resolver.pending.written = written;
        writes(changes).try_for_each(|(_, path, _)| self.locate_folder(&resolver, path).map(drop))
    }

    /// Makes all changes and makes them durable. After a crash the same call again leads to the same tree.
    pub(crate) fn apply(&self, changes: &[FileChange]) -> Result<(), Error> {
        let mut touched = BTreeSet::new();
        for path in deletions(changes) {
            self.delete(path, &mut touched)?;
        }
        let each = changes.len() <= SYNC_EACH;
        if writes(changes).next().is_some() {
            self.write_all(changes, each, &mut touched)?;
        }
        if each {
            self.sync_folders(&touched)
        } else {
            self.sync()
        }
    }

    fn delete(&self, path: &SafePath, touched: &mut BTreeSet<PathBuf>) -> Result<(), Error> {
        let found = self
            .locate_for_delete(&self.resolver(ANSWER), path)
            .map_err(|refusal| self.refused(path, refusal))?;
        if let Some(folder) = found
            && let Some(handle) = folder.handle()
        {
            let real = folder.real.join(path.file_name());
            self.remove_at(handle, OsStr::new(path.file_name()), &real)?;
            touched.extend(folders_of(&real));
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
        let folder = make_folder(self.top(), &stage, 0o700)
            .and_then(|()| open_folder(self.top(), &stage, Access::Force))
            .map_err(|errno| self.failed("make", Path::new(&stage), errno))?;
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
        let resolver = self.resolver(ANSWER);
        let mut unsynced = Vec::new();
        for (index, path, content) in writes(changes) {
            let (_, old) = self
                .locate_for_write(&resolver, path)
                .map_err(|refusal| self.refused(path, refusal))?;
            let staged = StagedFile {
                sync: false,
                ..StagedFile::replacing(old.as_ref(), content, ANSWER)
            };
            let file = staged
                .write(stage, OsStr::new(&index.to_string()), &mut &content[..])
                .map_err(|error| Error::io("write", &self.display.join(path.as_str()), error))?;
            if sync {
                start_writing(&file);
                unsynced.push((path, file));
            }
        }
        unsynced.into_iter().try_for_each(|(path, file)| {
            file.sync_all()
                .map_err(|error| Error::io("sync", &self.display.join(path.as_str()), error))
        })
    }

    fn move_all(
        &self,
        stage: BorrowedFd<'_>,
        changes: &[FileChange],
        touched: &mut BTreeSet<PathBuf>,
    ) -> Result<(), Error> {
        let resolver = self.resolver(ANSWER);
        for (index, path, _) in writes(changes) {
            let (folder, _) = self
                .locate_for_write(&resolver, path)
                .map_err(|refusal| self.refused(path, refusal))?;
            let name = OsStr::new(path.file_name());
            let staged = index.to_string();
            resolver
                .make_missing(&folder)
                .and_then(|made| rename((stage, OsStr::new(&staged)), (made.as_fd(), name)))
                .map_err(|errno| self.failed("write", Path::new(path.as_str()), errno))?;
            touched.extend(folders_of(&folder.real.join(name)));
        }
        Ok(())
    }

    /// Returns the folder in which `path` is to be written, and the file that it replaces.
    fn locate_for_write<'a>(
        &self,
        resolver: &Resolver<'a>,
        path: &SafePath,
    ) -> Result<(ResolvedFolder<'a>, Option<EntryMeta>), ChangeRefusal> {
        let folder = self.locate_folder(resolver, path)?;
        let existing = resolver
            .existing(&folder, OsStr::new(path.file_name()))
            .map_err(|error| self.refusal(path, error))?;
        let old = match existing {
            ExistingEntry::Nothing => None,
            ExistingEntry::File(meta) => Some(meta),
            ExistingEntry::Link(_) => {
                // It is replaced, not followed, but may not lead out.
                let target = resolver.folder(path.components().map(OsStr::new));
                match target.map_err(|error| self.refusal(path, error)) {
                    Err(refusal @ ChangeRefusal::Violation(_)) => return Err(refusal),
                    _ => None,
                }
            }
            ExistingEntry::Folder => {
                return Err(conflict(path, path.as_str(), "a folder", "a file"));
            }
            ExistingEntry::Special => return Err(self.refusal(path, PathError::Special)),
            ExistingEntry::Mount => return Err(self.refusal(path, PathError::Mounted)),
        };
        Ok((folder, old))
    }

    /// Returns the folder from which `path` is to be deleted, if there can be one.
    fn locate_for_delete<'a>(
        &self,
        resolver: &Resolver<'a>,
        path: &SafePath,
    ) -> Result<Option<ResolvedFolder<'a>>, ChangeRefusal> {
        let folder = match self.locate_folder(resolver, path) {
            Ok(folder) => folder,
            Err(ChangeRefusal::Conflict(_)) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        match resolver.existing(&folder, OsStr::new(path.file_name())) {
            Ok(ExistingEntry::Mount) => Err(self.refusal(path, PathError::Mounted)),
            Ok(_) => Ok(Some(folder)),
            Err(error) => Err(self.refusal(path, error)),
        }
    }

    fn locate_folder<'a>(
        &self,
        resolver: &Resolver<'a>,
        path: &SafePath,
    ) -> Result<ResolvedFolder<'a>, ChangeRefusal> {
        let mut folders: Vec<&OsStr> = path.components().map(OsStr::new).collect();
        folders.pop();
        resolver
            .folder(folders.into_iter())
            .map_err(|error| self.refusal(path, error))
    }

    fn refusal(&self, path: &SafePath, error: PathError) -> ChangeRefusal {
        let rule = match error {
            PathError::LeadsOut => "a link at its name or on its way leads out of the workspace",
            PathError::Special => {
                "a pipe, socket or device stands there, and those are never written to"
            }
            PathError::TooManyLinks | PathError::TooDeep => {
                return ChangeRefusal::Conflict(format!(
                    "`{path}`: too many links or folders on its way"
                ));
            }
            PathError::NotAFolder(file) => {
                return conflict(path, &file.to_string_lossy(), "a file", "a folder");
            }
            other => return self.failed("open", Path::new(path.as_str()), other).into(),
        };
        Violation::new(path.as_str(), rule).into()
    }

    /// The error of a change that passed the check and met a different tree.
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

fn deletions(changes: &[FileChange]) -> impl Iterator<Item = &SafePath> {
    changes.iter().filter_map(|change| match change {
        FileChange::Delete { path } => Some(path),
        FileChange::Write { .. } => None,
    })
}

/// The files that are written, each with its index among the changes.
fn writes(changes: &[FileChange]) -> impl Iterator<Item = (usize, &SafePath, &[u8])> {
    let indexed = changes.iter().enumerate();
    indexed.filter_map(|(index, change)| match change {
        FileChange::Write { path, content } => Some((index, path, content.as_slice())),
        FileChange::Delete { .. } => None,
    })
}

fn conflict(path: &SafePath, place: &str, is: &str, wanted: &str) -> ChangeRefusal {
    ChangeRefusal::Conflict(format!(
        "`{path}` cannot be written: `{place}` is {is} and would have to be {wanted}; delete it in the same answer or \
         choose another name"
    ))
}
