//! Where a path of an answer leads, and whether the tree lets the answer be applied.
//!
//! Links are followed here and not in the kernel: every step is an open directory, `..` of a link goes back to the
//! one before it, and what would go further is a violation. So a link that stays inside works as a folder, and the
//! tree can be looked at as it will be once the deletions of the answer are done.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::workspace::entry::{Access, enter, look, read_link};
use crate::workspace::safe_path::{SafePath, Violation};
use crate::workspace::{ChangeRefusal, FileChange, Workspace};

/// As many links as the kernel follows before it calls them a loop.
const MAX_LINKS: usize = 40;
/// Deeper places than any answer may name exist only behind links.
const MAX_DEPTH: usize = 256;

const LEADS_OUT: &str = "a link at its name or on its way leads out of the workspace";

/// How the tree is looked at.
#[derive(Debug)]
pub(super) struct TreeView {
    /// Places that will be gone.
    deleted: HashSet<PathBuf>,
    /// Places that will be files.
    written: HashSet<PathBuf>,
    access: Access,
}

impl TreeView {
    /// The tree as it is.
    pub fn of_now(access: Access) -> TreeView {
        TreeView {
            deleted: HashSet::new(),
            written: HashSet::new(),
            access,
        }
    }
}

/// A folder, there or still to be made, that a path leads to when all links are followed.
#[derive(Debug, Default)]
pub(super) struct ResolvedFolder {
    /// Its path without links.
    pub real: PathBuf,
    /// How many components that path has.
    depth: usize,
    /// The handles of those that exist, outermost first.
    folders: Vec<OwnedFd>,
}

impl ResolvedFolder {
    /// Returns the handle of the folder, if all of it exists.
    pub fn handle<'a>(&'a self, workspace: &'a Workspace) -> Option<BorrowedFd<'a>> {
        (self.folders.len() == self.depth).then(|| self.innermost(workspace))
    }

    /// Returns the handle of the deepest folder that exists.
    pub fn innermost<'a>(&'a self, workspace: &'a Workspace) -> BorrowedFd<'a> {
        self.folders
            .last()
            .map_or(workspace.top.as_fd(), |folder| folder.as_fd())
    }

    /// Returns the names of the folders that are still to be made.
    pub fn missing(&self) -> impl Iterator<Item = &OsStr> {
        self.real.iter().skip(self.folders.len())
    }

    fn go_in(&mut self, name: &OsStr, folder: Option<OwnedFd>) {
        self.real.push(name);
        self.depth += 1;
        self.folders.extend(folder);
    }

    /// Goes back to the folder around this one; false at the top.
    fn go_out(&mut self) -> bool {
        if self.depth == 0 {
            return false;
        }
        self.real.pop();
        self.depth -= 1;
        self.folders.truncate(self.depth);
        true
    }
}

/// What stands at a name.
enum ExistingEntry {
    Nothing,
    Folder,
    /// With these permission bits.
    File(u32),
    Link(PathBuf),
    Special,
    Mount,
}

impl Workspace {
    /// Says whether the changes can be made, on the tree as it is after the deletions, and changes nothing.
    ///
    /// Folders that may not be looked into count as empty: applying opens them up, and looks again.
    pub fn check(&self, changes: &[FileChange]) -> Result<(), ChangeRefusal> {
        self.top();
        let mut view = TreeView::of_now(Access::AsIs);
        for change in changes {
            if let FileChange::Delete { path } = change
                && let Some(spot) = self.locate_for_delete(path, &view)?
            {
                view.deleted.insert(spot.real.join(path.file_name()));
            }
        }
        let writes = || {
            changes.iter().filter_map(|c| {
                if let FileChange::Write { path, .. } = c {
                    Some(path)
                } else {
                    None
                }
            })
        };
        let mut written = HashSet::new();
        for path in writes() {
            let (spot, _) = self.locate_for_write(path, &view)?;
            if !written.insert(spot.real.join(path.file_name())) {
                return Err(ChangeRefusal::Conflict(format!(
                    "`{path}` is written twice: a link leads to the same file"
                )));
            }
        }
        view.written = written;
        writes().try_for_each(|path| self.locate_folder(path, &view).map(drop))
    }

    /// Returns the folder in which `path` is to be written, and the mode of the file that it replaces.
    pub(super) fn locate_for_write(
        &self,
        path: &SafePath,
        view: &TreeView,
    ) -> Result<(ResolvedFolder, Option<u32>), ChangeRefusal> {
        let spot = self.locate_folder(path, view)?;
        let old = match self.standing(&spot, OsStr::new(path.file_name()), view, path)? {
            ExistingEntry::Nothing => None,
            ExistingEntry::File(mode) => Some(mode),
            ExistingEntry::Link(_) => {
                // It is replaced, never followed; only whether it leads out is asked.
                if let Err(refusal @ ChangeRefusal::Violation(_)) =
                    self.locate(path, path.components(), view)
                {
                    return Err(refusal);
                }
                None
            }
            ExistingEntry::Folder => {
                return Err(conflict(path, path.as_str(), "a folder", "a file"));
            }
            ExistingEntry::Special => return Err(special(path)),
            ExistingEntry::Mount => return Err(mount(path)),
        };
        Ok((spot, old))
    }

    /// Returns the folder from which `path` is to be deleted, or nothing where there is no such folder.
    pub(super) fn locate_for_delete(
        &self,
        path: &SafePath,
        view: &TreeView,
    ) -> Result<Option<ResolvedFolder>, ChangeRefusal> {
        let spot = match self.locate_folder(path, view) {
            Ok(spot) => spot,
            Err(ChangeRefusal::Conflict(_)) => return Ok(None),
            Err(refusal) => return Err(refusal),
        };
        match self.standing(&spot, OsStr::new(path.file_name()), view, path)? {
            ExistingEntry::Mount => Err(mount(path)),
            _ => Ok(Some(spot)),
        }
    }

    fn locate_folder(
        &self,
        path: &SafePath,
        view: &TreeView,
    ) -> Result<ResolvedFolder, ChangeRefusal> {
        self.locate(
            path,
            path.components()
                .rev()
                .skip(1)
                .collect::<Vec<_>>()
                .into_iter()
                .rev(),
            view,
        )
    }

    /// Goes along `components`, links included; `path` is what an error names.
    fn locate<'a>(
        &self,
        path: &SafePath,
        components: impl DoubleEndedIterator<Item = &'a str>,
        view: &TreeView,
    ) -> Result<ResolvedFolder, ChangeRefusal> {
        let mut spot = ResolvedFolder::default();
        let mut ahead: Vec<OsString> = components.rev().map(OsString::from).collect();
        let mut links = 0;
        while let Some(name) = ahead.pop() {
            if name == ".." {
                if !spot.go_out() {
                    return Err(Violation::new(path.as_str(), LEADS_OUT).into());
                }
                continue;
            }
            if let Some(target) = self.step(&mut spot, &name, view, path)? {
                links += 1;
                push_target(&mut ahead, &target, path)?;
            }
            if links > MAX_LINKS || spot.depth > MAX_DEPTH {
                return Err(ChangeRefusal::Conflict(format!(
                    "`{path}`: too many links or folders on its way"
                )));
            }
        }
        Ok(spot)
    }

    /// Goes into the folder `name`, or returns where the link of that name points.
    fn step(
        &self,
        spot: &mut ResolvedFolder,
        name: &OsStr,
        view: &TreeView,
        path: &SafePath,
    ) -> Result<Option<PathBuf>, ChangeRefusal> {
        let folder = match self.standing(spot, name, view, path)? {
            ExistingEntry::Link(target) => return Ok(Some(target)),
            ExistingEntry::File(_) => {
                let file = spot.real.join(name);
                return Err(conflict(
                    path,
                    &file.to_string_lossy(),
                    "a file",
                    "a folder",
                ));
            }
            ExistingEntry::Special => return Err(special(path)),
            ExistingEntry::Mount => return Err(mount(path)),
            ExistingEntry::Nothing => None,
            ExistingEntry::Folder => match enter(spot.innermost(self), name, view.access) {
                Err(Errno::ACCESS) if view.access == Access::AsIs => None,
                entered => Some(
                    entered.map_err(|errno| self.failed("open", &spot.real.join(name), errno))?,
                ),
            },
        };
        spot.go_in(name, folder);
        Ok(None)
    }

    fn standing(
        &self,
        spot: &ResolvedFolder,
        name: &OsStr,
        view: &TreeView,
        path: &SafePath,
    ) -> Result<ExistingEntry, ChangeRefusal> {
        let real = spot.real.join(name);
        if view.written.contains(&real) {
            return Ok(ExistingEntry::File(0));
        }
        let Some(folder) = spot.handle(self).filter(|_| !view.deleted.contains(&real)) else {
            return Ok(ExistingEntry::Nothing);
        };
        let failed =
            |errno| ChangeRefusal::from(self.failed("look at", Path::new(path.as_str()), errno));
        let meta = match look(folder, name) {
            Ok(Some(meta)) => meta,
            Ok(None) => return Ok(ExistingEntry::Nothing),
            Err(Errno::ACCESS) if view.access == Access::AsIs => return Ok(ExistingEntry::Nothing),
            Err(errno) => return Err(failed(errno)),
        };
        Ok(match meta.kind {
            _ if meta.is_mount => ExistingEntry::Mount,
            FileType::Directory => ExistingEntry::Folder,
            FileType::RegularFile => ExistingEntry::File(meta.mode),
            // A link that is none any more was swapped at this moment.
            FileType::Symlink => {
                ExistingEntry::Link(read_link(folder, name).map_err(|_| failed(Errno::LOOP))?)
            }
            _ => ExistingEntry::Special,
        })
    }
}

/// Puts the way of a link before what is ahead.
fn push_target(
    ahead: &mut Vec<OsString>,
    target: &Path,
    path: &SafePath,
) -> Result<(), ChangeRefusal> {
    for component in target.components().rev() {
        match component {
            Component::Normal(name) => ahead.push(name.to_owned()),
            Component::ParentDir => ahead.push("..".into()),
            Component::CurDir => {}
            Component::RootDir | Component::Prefix(_) => {
                return Err(Violation::new(path.as_str(), LEADS_OUT).into());
            }
        }
    }
    Ok(())
}

fn conflict(path: &SafePath, place: &str, is: &str, wanted: &str) -> ChangeRefusal {
    ChangeRefusal::Conflict(format!(
        "`{path}` cannot be written: `{place}` is {is} and would have to be {wanted}; delete it in the same answer or \
         choose another name"
    ))
}

fn special(path: &SafePath) -> ChangeRefusal {
    Violation::new(
        path.as_str(),
        "a pipe, socket or device stands there, and those are never written to",
    )
    .into()
}

fn mount(path: &SafePath) -> ChangeRefusal {
    Violation::new(
        path.as_str(),
        "another file system is mounted there, and mounts are never entered",
    )
    .into()
}
