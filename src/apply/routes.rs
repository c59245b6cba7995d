//! Where a path of the workspace came from, or would go: the folders and files that `copy` named, opened.

use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::snapshots::records::CopiedSource;
use crate::state::store::{LOCK_FILE, is_own_entry};
use crate::workspace::CarryFolder;

/// Everything that was copied, with open folders.
#[derive(Debug)]
pub(crate) struct Routes {
    sources: Vec<OpenSource>,
    pub folders: Vec<CarryFolder>,
    /// The root of the run and the spec, links resolved.
    root: PathBuf,
    spec_file: PathBuf,
}

/// A copied file or folder.
#[derive(Debug)]
struct OpenSource {
    /// Its path in the workspace.
    to: PathBuf,
    is_folder: bool,
    /// Its folder among those of `Routes`, or why there is none.
    folder: std::result::Result<usize, PathBuf>,
    /// Of a file: its name in that folder.
    name: PathBuf,
}

/// The target of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    /// Nothing that was copied contains it.
    Nowhere,
    /// Where it was copied from is gone.
    SourceGone(PathBuf),
    To(RoutedPath),
}

/// A path in one of the folders of `Routes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RoutedPath {
    pub folder: usize,
    pub path: PathBuf,
    /// The workspace's path of that folder; `None` if a single file was copied.
    pub copied_to: Option<PathBuf>,
}

impl Routes {
    /// Opens what was copied. `root` is without links.
    pub(crate) fn open(copied: &[CopiedSource], root: &Path, spec_file: &Path) -> Result<Routes> {
        let mut routes = Routes {
            sources: Vec::new(),
            folders: Vec::new(),
            root: root.to_owned(),
            spec_file: spec_file.to_owned(),
        };
        for source in copied {
            let opened = routes.open_source(source)?;
            routes.sources.push(opened);
        }
        // The deepest first, and of equal ones the last, which replaced what the others brought.
        routes.sources.reverse();
        let depth = |source: &OpenSource| source.to.components().count();
        routes
            .sources
            .sort_by_key(|source| std::cmp::Reverse(depth(source)));
        Ok(routes)
    }

    fn open_source(&mut self, source: &CopiedSource) -> Result<OpenSource> {
        let from = self.root.join(&source.from);
        let mut opened = OpenSource {
            to: PathBuf::from(&source.to),
            is_folder: source.is_folder,
            folder: Err(from.clone()),
            name: PathBuf::new(),
        };
        let Some((folder, name)) = resolved(&from, source.is_folder) else {
            return Ok(opened);
        };
        let top = Path::new("");
        let known = (self.folders.iter()).position(|known| known.path_of(top) == folder);
        opened.folder = Ok(match known {
            Some(known) => known,
            None => {
                self.folders.push(CarryFolder::open(&folder)?);
                self.folders.len() - 1
            }
        });
        opened.name = name;
        Ok(opened)
    }

    /// The target of a path. Of one that was taken in it is the deepest that exists, else the deepest.
    pub(super) fn route(&self, path: &Path, was_taken_in: bool) -> Route {
        let mut candidates = self.sources.iter().filter_map(|source| source.route(path));
        let exists = |route: &Route| match route {
            Route::To(to) => self.folders[to.folder].exists(&to.path),
            Route::Nowhere | Route::SourceGone(_) => false,
        };
        let Some(first) = candidates.next() else {
            return Route::Nowhere;
        };
        if !was_taken_in || exists(&first) {
            return first;
        }
        candidates.find(exists).unwrap_or(first)
    }

    /// The absolute path of a target.
    pub(super) fn target(&self, to: &RoutedPath) -> PathBuf {
        self.folders[to.folder].path_of(&to.path)
    }

    /// Whether a target is, or lies in, what the run keeps in its root.
    pub(super) fn is_owned_by_run(&self, target: &Path) -> bool {
        let below = target.strip_prefix(&self.root).ok();
        let first = below.and_then(|below| below.iter().next());
        first.is_some_and(|name| {
            name == "workspace"
                || is_own_entry(name)
                || name.to_string_lossy().starts_with(".orchestrator")
                || name == LOCK_FILE
        })
    }

    pub(super) fn is_spec(&self, target: &Path) -> bool {
        target == self.spec_file
    }
}

impl OpenSource {
    fn route(&self, path: &Path) -> Option<Route> {
        let below = path.strip_prefix(&self.to).ok()?;
        let is_itself = below.as_os_str().is_empty();
        if is_itself == self.is_folder {
            return None;
        }
        let folder = match &self.folder {
            Ok(folder) => *folder,
            Err(from) => return Some(Route::SourceGone(from.clone())),
        };
        Some(Route::To(RoutedPath {
            folder,
            path: self.name.join(below).components().collect(),
            copied_to: self.is_folder.then(|| self.to.clone()),
        }))
    }
}

/// The folder that holds a source and the name in it, links resolved; a folder holds itself.
fn resolved(from: &Path, is_folder: bool) -> Option<(PathBuf, PathBuf)> {
    let real = match from.canonicalize() {
        Ok(real) => real,
        // A file may have been deleted since.
        Err(_) if !is_folder => from.parent()?.canonicalize().ok()?.join(from.file_name()?),
        Err(_) => return None,
    };
    match is_folder {
        true => real.is_dir().then(|| (real, PathBuf::new())),
        false => Some((real.parent()?.to_owned(), PathBuf::from(real.file_name()?))),
    }
}
