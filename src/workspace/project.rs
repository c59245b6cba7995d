//! `ProjectDir`: the directory that the editor reads, searches and edits.
//!
//! It is the user's own under `serve` and `workspace/` in agent mode. Paths may be absolute and contain `..`; permissions
//! and owners stay as they are; frozen paths and mounts can be read and not changed; hidden paths are treated as absent.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::error::Error;
use crate::workspace::entry::{
    EntryMeta, list, mount_of, open_listable, open_mounted_folder, open_regular,
    open_regular_below, open_trusted, read_bounded, stat_entry,
};
use crate::workspace::hidden::HiddenPaths;
use crate::workspace::path_error::PathError;
use crate::workspace::resolve::{ResolvedFolder, Resolver};
use crate::workspace::rules::{CallerRules, EDITOR, EDITOR_CREATE, EDITOR_STRAIGHT};
use crate::workspace::stage::replace_beside;

/// The largest file that is read or written, in bytes.
pub(crate) const MAX_FILE_SIZE: u64 = 32_000_000;
const MAX_PATH_BYTES: usize = 4096;

/// An open handle on the project directory.
#[derive(Debug)]
pub(crate) struct ProjectDir {
    top: OwnedFd,
    /// How absolute paths into it begin: resolved, and as given.
    names: [PathBuf; 2],
    frozen: FrozenPaths,
}

/// What may not be changed, by paths in the project.
#[derive(Debug, Clone, Default)]
pub struct FrozenPaths {
    /// Files, and folders with all that is in them.
    pub paths: BTreeSet<PathBuf>,
    /// What may be changed nevertheless.
    pub except: BTreeSet<PathBuf>,
    /// What may not be seen either.
    pub hidden: HiddenPaths,
}

/// Where a path leads when all links are followed: a name in a folder, which need not exist.
#[derive(Debug)]
pub(crate) struct ProjectPath<'a> {
    folder: ResolvedFolder<'a>,
    name: OsString,
    /// Its path in the project, without links.
    pub real: PathBuf,
}

/// A file that was read.
#[derive(Debug)]
pub(crate) struct ProjectFile<'a> {
    pub path: ProjectPath<'a>,
    pub content: Vec<u8>,
    pub meta: EntryMeta,
}

/// What a path leads to.
#[derive(Debug)]
pub(crate) enum ProjectTarget<'a> {
    Entry(ProjectPath<'a>),
    /// A folder that exists, by its path without links.
    Folder(PathBuf),
}

/// An open folder of the project.
#[derive(Debug)]
pub(crate) struct ProjectFolder(OwnedFd);

/// A name in a folder and what it is; a link is not followed.
#[derive(Debug)]
pub(crate) struct FolderEntry {
    pub name: OsString,
    pub kind: FileType,
}

impl ProjectDir {
    pub(crate) fn open(path: &Path) -> Result<ProjectDir, Error> {
        let opened = path.canonicalize().and_then(|real| {
            let names = [real, std::path::absolute(path)?];
            Ok((open_trusted(&names[0])?, names))
        });
        let (top, names) = opened.map_err(|error| Error::io("open", path, error))?;
        Ok(ProjectDir {
            top,
            names,
            frozen: FrozenPaths::default(),
        })
    }

    /// Sets what may not be changed, and what may not be seen.
    pub(crate) fn freeze(&mut self, frozen: FrozenPaths) {
        self.frozen = frozen;
    }

    /// Returns a path relative to the project, without `.`; `..` stays, since links decide what it means.
    pub(crate) fn relative(&self, path: &Path) -> Result<PathBuf, PathError> {
        let inside = |name: &PathBuf| path.strip_prefix(name).ok();
        let below = if path.is_absolute() {
            self.names.iter().find_map(inside)
        } else {
            Some(path)
        };
        let parts = below.ok_or(PathError::Outside)?.components();
        Ok(parts.filter(|part| *part != Component::CurDir).collect())
    }

    /// Resolves a path to what exists there; only the last name may be missing.
    pub(crate) fn find(&self, path: &Path) -> Result<ProjectTarget<'_>, PathError> {
        self.resolve(path, EDITOR)
    }

    /// Resolves the path of a file that may have to be created, with folders on its way.
    pub(crate) fn find_new(&self, path: &Path) -> Result<ProjectPath<'_>, PathError> {
        self.resolve(path, EDITOR_CREATE)?.entry()
    }

    /// Reads a file, through links that stay inside.
    pub(crate) fn read(&self, path: &Path) -> Result<ProjectFile<'_>, PathError> {
        let path = self.find(path)?.entry()?;
        let dir = path.folder.innermost();
        let (file, meta) = open_regular(dir, &path.name, EDITOR.access, EDITOR.mounts)?;
        self.require_own_content(&meta)?;
        let content = read_bounded(file, &meta, MAX_FILE_SIZE)?;
        Ok(ProjectFile {
            path,
            content,
            meta,
        })
    }

    /// Reads a file of at most `limit` bytes by its path without links.
    pub(crate) fn read_straight(&self, path: &Path, limit: u64) -> Result<Vec<u8>, PathError> {
        if let Some((file, meta)) = open_regular_below(self.top.as_fd(), path, EDITOR.mounts)? {
            self.require_own_content(&meta)?;
            return read_bounded(file, &meta, limit);
        }
        let found = self.resolve(path, EDITOR_STRAIGHT)?.entry()?;
        let dir = found.folder.innermost();
        let (file, meta) = open_regular(dir, &found.name, EDITOR.access, EDITOR.mounts)?;
        self.require_own_content(&meta)?;
        read_bounded(file, &meta, limit)
    }

    /// Whether a path without links is hidden.
    pub(crate) fn hides(&self, path: &Path) -> bool {
        self.frozen.hidden.contain(path)
    }

    /// Fails if a file is another name of a hidden one.
    fn require_own_content(&self, meta: &EntryMeta) -> Result<(), PathError> {
        if meta.links < 2 {
            return Ok(());
        }
        let is_same = |path: &PathBuf| {
            let found = stat_entry(self.top.as_fd(), path.as_os_str());
            found.is_ok_and(|found| found.is_some_and(|found| found.ino == meta.ino))
        };
        match self.frozen.hidden.paths.iter().any(is_same) {
            true => Err(PathError::Missing),
            false => Ok(()),
        }
    }

    /// Opens the top folder for listing.
    pub(crate) fn open_folder(&self) -> Result<ProjectFolder, PathError> {
        Ok(ProjectFolder(open_listable(self.top.as_fd())?))
    }

    /// Fails if a path may only be read.
    pub(crate) fn require_changeable(&self, path: &ProjectPath<'_>) -> Result<(), PathError> {
        let made = path.folder.missing().count() + 1;
        if path
            .real
            .ancestors()
            .take(made)
            .any(|new| self.frozen.holds(new))
        {
            return Err(PathError::Frozen);
        }
        match mount_of(path.folder.innermost()) == mount_of(self.top.as_fd()) {
            true => Ok(()),
            false => Err(PathError::Mounted),
        }
    }

    /// Replaces the file that `old` describes, or creates it and the folders on its way.
    pub(crate) fn write(
        &self,
        path: &ProjectPath<'_>,
        content: &[u8],
        old: Option<&EntryMeta>,
    ) -> Result<(), PathError> {
        let size = content.len() as u64;
        if MAX_FILE_SIZE < size {
            return Err(PathError::TooLarge(size));
        }
        self.require_changeable(path)?;
        if old.is_some_and(|old| old.is_mount) {
            return Err(PathError::Mounted);
        }
        let folder = self.resolver(EDITOR_CREATE).make_missing(&path.folder)?;
        replace_beside(folder.as_fd(), &path.name, content, old, EDITOR)
    }

    fn resolve(
        &self,
        path: &Path,
        rules: CallerRules<'static>,
    ) -> Result<ProjectTarget<'_>, PathError> {
        let below = self.relative(path)?;
        if climbs_out(&below) {
            return Err(PathError::Outside);
        }
        if MAX_PATH_BYTES < below.as_os_str().len() {
            return Err(Errno::NAMETOOLONG.into());
        }
        let (folder, name) = self.resolver(rules).entry(below.iter())?;
        Ok(match name {
            Some(name) => ProjectTarget::Entry(ProjectPath {
                real: folder.real.join(&name),
                folder,
                name,
            }),
            None => ProjectTarget::Folder(folder.real),
        })
    }

    fn resolver(&self, rules: CallerRules<'static>) -> Resolver<'_> {
        let rules = CallerRules {
            absolute_links: &self.names,
            hidden: Some(&self.frozen.hidden),
            ..rules
        };
        Resolver::new(self.top.as_fd(), rules)
    }
}

impl<'a> ProjectTarget<'a> {
    fn entry(self) -> Result<ProjectPath<'a>, PathError> {
        match self {
            ProjectTarget::Entry(path) => Ok(path),
            ProjectTarget::Folder(_) => Err(PathError::Folder),
        }
    }
}

impl ProjectPath<'_> {
    /// Describes the regular file there, if there is one.
    pub(crate) fn existing(&self) -> Result<Option<EntryMeta>, PathError> {
        let Some(dir) = self.folder.handle() else {
            return Ok(None);
        };
        match stat_entry(dir, &self.name)? {
            Some(meta) if meta.kind != FileType::RegularFile => Err(PathError::Special),
            found => Ok(found),
        }
    }
}

impl ProjectFolder {
    pub(crate) fn entries(&self) -> Result<Vec<FolderEntry>, PathError> {
        let mut entries = Vec::new();
        list(self.0.as_fd(), |name, kind| {
            entries.push(FolderEntry {
                name: name.to_owned(),
                kind,
            });
            true
        })?;
        // Not every file system lists types.
        for entry in &mut entries {
            if entry.kind == FileType::Unknown
                && let Ok(Some(meta)) = stat_entry(self.0.as_fd(), &entry.name)
            {
                entry.kind = meta.kind;
            }
        }
        Ok(entries)
    }

    pub(crate) fn enter(&self, name: &OsStr) -> Result<ProjectFolder, PathError> {
        Ok(ProjectFolder(open_mounted_folder(self.0.as_fd(), name)?))
    }

    pub(crate) fn read(&self, name: &OsStr) -> Result<Vec<u8>, PathError> {
        let (file, meta) = open_regular(self.0.as_fd(), name, EDITOR.access, EDITOR.mounts)?;
        read_bounded(file, &meta, MAX_FILE_SIZE)
    }
}

impl FrozenPaths {
    fn holds(&self, path: &Path) -> bool {
        !self.except.contains(path) && path.ancestors().any(|part| self.paths.contains(part))
    }
}

/// Whether the path as written goes above its beginning, whatever its links mean.
fn climbs_out(path: &Path) -> bool {
    let mut depth = 0_usize;
    path.components().any(|part| match part {
        Component::ParentDir => match depth.checked_sub(1) {
            Some(less) => {
                depth = less;
                false
            }
            None => true,
        },
        _ => {
            depth += 1;
            false
        }
    })
}
