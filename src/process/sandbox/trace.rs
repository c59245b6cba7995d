//! Resolves paths, and records the symlinks on the way.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, FileType};
use std::path::{Component, Path, PathBuf};
use std::rc::Rc;

/// How many symlinks a path may contain, as in the kernel.
const MAX_LINKS: usize = 40;
/// Larger folders are not kept as a list.
const MAX_NAMES: usize = 20_000;

/// An existing path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TracedPath {
    /// Its canonical path.
    pub(crate) real: PathBuf,
    /// The symlinks on the way, as canonical path and literal target.
    pub(crate) links: Vec<(PathBuf, PathBuf)>,
    pub(crate) is_folder: bool,
}

/// Resolves many paths, and asks the system only once about each name. What changes meanwhile may not be seen.
#[derive(Debug, Default)]
pub(crate) struct PathResolver {
    kinds: RefCell<HashMap<PathBuf, Option<PathKind>>>,
    folders: RefCell<HashMap<PathBuf, Rc<FolderNames>>>,
}

type FolderNames = HashMap<OsString, FileType>;

/// What is at an existing canonical path, or at a link in a canonical folder.
#[derive(Debug, Clone, PartialEq, Eq)]
enum PathKind {
    Folder,
    Link(PathBuf),
    Other,
}

/// Resolves an absolute path; `None` if it does not exist.
pub(crate) fn trace(path: &Path) -> Option<TracedPath> {
    PathResolver::default().trace(path)
}

impl PathResolver {
    /// Resolves an absolute path; `None` if it does not exist.
    pub(crate) fn trace(&self, path: &Path) -> Option<TracedPath> {
        let mut ahead: Vec<OsString> = Vec::new();
        push(&mut ahead, path);
        let mut found = TracedPath {
            real: PathBuf::from("/"),
            links: Vec::new(),
            is_folder: true,
        };
        while let Some(name) = ahead.pop() {
            match name.as_encoded_bytes() {
                b"/" => found.real = PathBuf::from("/"),
                b".." => drop(found.real.pop()),
                _ => self.step(&mut found, &mut ahead, &name)?,
            }
        }
        Some(found)
    }

    /// The canonical path; the path itself if it does not exist.
    pub(crate) fn real(&self, path: &Path) -> PathBuf {
        match path.is_absolute() {
            true => self.trace(path).map(|found| found.real),
            false => path.canonicalize().ok(),
        }
        .unwrap_or_else(|| path.to_owned())
    }

    /// Whether there is a file, a folder or a link at a path in a canonical folder.
    pub(super) fn is_there(&self, path: &Path) -> bool {
        self.kind(path).is_some()
    }

    /// The names in a canonical folder; later questions about them are answered from this list.
    pub(super) fn list(&self, folder: &Path) -> Rc<FolderNames> {
        if let Some(known) = self.folders.borrow().get(folder) {
            return Rc::clone(known);
        }
        let read = fs::read_dir(folder);
        let is_readable = read.is_ok();
        let entries = read.into_iter().flatten().flatten();
        let names: FolderNames = entries
            .filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?)))
            .take(MAX_NAMES)
            .collect();
        let names = Rc::new(names);
        if is_readable && names.len() < MAX_NAMES {
            let mut folders = self.folders.borrow_mut();
            folders.insert(folder.to_owned(), Rc::clone(&names));
        }
        names
    }

    fn step(&self, found: &mut TracedPath, ahead: &mut Vec<OsString>, name: &OsStr) -> Option<()> {
        let next = found.real.join(name);
        match self.kind(&next)? {
            PathKind::Link(target) => {
                push(ahead, &target);
                found.links.push((next, target));
                return (found.links.len() <= MAX_LINKS).then_some(());
            }
            kind => found.is_folder = kind == PathKind::Folder,
        }
        found.real = next;
        Some(())
    }

    fn kind(&self, path: &Path) -> Option<PathKind> {
        if let Some(known) = self.kinds.borrow().get(path) {
            return known.clone();
        }
        let kind = self.look_up(path);
        let mut kinds = self.kinds.borrow_mut();
        kinds.insert(path.to_owned(), kind.clone());
        kind
    }

    fn look_up(&self, path: &Path) -> Option<PathKind> {
        let file_type = match self.listed(path) {
            Some(listed) => listed?,
            None => fs::symlink_metadata(path).ok()?.file_type(),
        };
        if file_type.is_symlink() {
            return fs::read_link(path).ok().map(PathKind::Link);
        }
        Some(match file_type.is_dir() {
            true => PathKind::Folder,
            false => PathKind::Other,
        })
    }

    /// The kind of a path by the list of its folder; `None` without a list.
    fn listed(&self, path: &Path) -> Option<Option<FileType>> {
        let folders = self.folders.borrow();
        let names = folders.get(path.parent()?)?;
        Some(names.get(path.file_name()?).copied())
    }
}

/// Pushes the components of a path onto the stack of pending ones, first component on top.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    let parts = path
        .components()
        .rev()
        .filter(|part| !matches!(part, Component::CurDir));
    ahead.extend(parts.map(|part| part.as_os_str().to_owned()));
}
