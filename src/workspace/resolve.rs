//! Where a path leads, for every caller.
//!
//! Links are followed here and not in the kernel: every step is an open folder, `..` goes back to the one before it, and
//! what would go further leads out. Folders that do not exist are noted and made later, so resolving changes nothing, and
//! an answer can be resolved on the tree as it will be after its deletions.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::workspace::entry::{EntryMeta, enter, make_folder, read_link, remove_file, stat_entry};
use crate::workspace::hidden::HiddenPaths;
use crate::workspace::path_error::PathError;
use crate::workspace::rules::{Access, CallerRules, LinkRule, MissingFolders, MountRule};

/// As many links as the kernel follows before it reports a loop.
const MAX_LINKS: usize = 40;
const MAX_DEPTH: usize = 256;
/// How often a place is cleared for a folder while another process keeps filling it.
const FORCE_ATTEMPTS: u32 = 64;

/// Resolves paths below one open directory by the rules of one caller.
#[derive(Debug)]
pub(super) struct Resolver<'a> {
    top: BorrowedFd<'a>,
    rules: CallerRules<'a>,
    pub pending: PendingChanges,
}

/// Changes that are not made yet, by paths without links.
#[derive(Debug, Default)]
pub(super) struct PendingChanges {
    pub deleted: HashSet<PathBuf>,
    pub written: HashSet<PathBuf>,
}

/// A folder that a path leads to, as far as it exists.
#[derive(Debug)]
pub(super) struct ResolvedFolder<'a> {
    top: BorrowedFd<'a>,
    /// Its path without links.
    pub real: PathBuf,
    /// How many components that path has.
    depth: usize,
    /// The handles of those that exist, outermost first.
    handles: Vec<OwnedFd>,
}

/// What has a name in a folder.
#[derive(Debug)]
pub(super) enum ExistingEntry {
    Nothing,
    Folder,
    File(EntryMeta),
    Link(PathBuf),
    Special,
    Mount,
}

/// What going into a name led to.
enum Step {
    Folder(OwnedFd),
    Missing,
    Link(PathBuf),
}

impl<'a> Resolver<'a> {
    pub(super) fn new(top: BorrowedFd<'a>, rules: CallerRules<'a>) -> Resolver<'a> {
        Resolver {
            top,
            rules,
            pending: PendingChanges::default(),
        }
    }

    /// Resolves a path of folders.
    pub(super) fn folder<'n>(
        &self,
        names: impl DoubleEndedIterator<Item = &'n OsStr>,
    ) -> Result<ResolvedFolder<'a>, PathError> {
        let mut walk = PathWalk::new(self.top, names);
        while let Some(name) = walk.ahead.pop() {
            self.require_visible(&walk.at, &name)?;
            self.step(&mut walk, &name)?;
        }
        Ok(walk.at)
    }

    /// Resolves a path whose last name may be anything; a link there is followed like the others. Returns the folder and
    /// the name in it, or no name where the path leads to the folder itself.
    pub(super) fn entry<'n>(
        &self,
        names: impl DoubleEndedIterator<Item = &'n OsStr>,
    ) -> Result<(ResolvedFolder<'a>, Option<OsString>), PathError> {
        let mut walk = PathWalk::new(self.top, names);
        while let Some(name) = walk.ahead.pop() {
            self.require_visible(&walk.at, &name)?;
            if walk.ahead.is_empty()
                && name != ".."
                && !matches!(
                    self.existing(&walk.at, &name)?,
                    ExistingEntry::Folder | ExistingEntry::Link(_)
                )
            {
                return Ok((walk.at, Some(name)));
            }
            self.step(&mut walk, &name)?;
        }
        Ok((walk.at, None))
    }

    /// Fails if a name is hidden; every name on the way is asked about, so no link or `..` leads around this.
    fn require_visible(&self, folder: &ResolvedFolder<'_>, name: &OsStr) -> Result<(), PathError> {
        let is_hidden =
            |hidden: &HiddenPaths| name != ".." && hidden.contain(&folder.real.join(name));
        match (self.rules.hidden, self.rules.missing_folders) {
            (Some(hidden), MissingFolders::Make) if is_hidden(hidden) => Err(PathError::Reserved),
            (Some(hidden), MissingFolders::Refuse) if is_hidden(hidden) => Err(PathError::Missing),
            _ => Ok(()),
        }
    }

    /// Returns what has this name in a folder.
    pub(super) fn existing(
        &self,
        folder: &ResolvedFolder<'_>,
        name: &OsStr,
    ) -> Result<ExistingEntry, PathError> {
        let Some(dir) = folder
            .handle()
            .filter(|_| !is_in(&self.pending.deleted, folder, name))
        else {
            return Ok(ExistingEntry::Nothing);
        };
        let meta = match stat_entry(dir, name) {
            Ok(Some(meta)) => meta,
            Ok(None) => return Ok(ExistingEntry::Nothing),
            Err(Errno::ACCESS) if self.rules.access == Access::HiddenIsAbsent => {
                return Ok(ExistingEntry::Nothing);
            }
            Err(errno) => return Err(errno.into()),
        };
        Ok(match meta.kind {
            _ if meta.is_mount && self.rules.mounts == MountRule::Refuse => ExistingEntry::Mount,
            FileType::Directory => ExistingEntry::Folder,
            FileType::RegularFile => ExistingEntry::File(meta),
            // A failure means that it was swapped just now.
            FileType::Symlink => {
                ExistingEntry::Link(read_link(dir, name).map_err(|_| Errno::LOOP)?)
            }
            _ => ExistingEntry::Special,
        })
    }

    /// Makes the folders that do not exist yet, and returns the innermost.
    pub(super) fn make_missing(&self, folder: &ResolvedFolder<'_>) -> Result<OwnedFd, Errno> {
        let mut handle = folder
            .innermost()
            .try_clone_to_owned()
            .map_err(|_| Errno::MFILE)?;
        for name in folder.missing() {
            handle = self.make_folder(handle.as_fd(), name)?;
        }
        Ok(handle)
    }

    /// Opens the folder `name`, and makes it if it is missing; by the rules of inputs whatever is there gives way.
    pub(super) fn make_folder(&self, dir: BorrowedFd<'_>, name: &OsStr) -> Result<OwnedFd, Errno> {
        let enter_it = || enter(dir, name, self.rules.access, MountRule::Refuse);
        if self.rules.links != LinkRule::Replace {
            return make_folder(dir, name, 0o777).and_then(|()| enter_it());
        }
        for _ in 0..FORCE_ATTEMPTS {
            match enter_it() {
                Err(Errno::NOENT) => make_folder(dir, name, 0o777)?,
                Err(Errno::NOTDIR | Errno::LOOP) => match remove_file(dir, name) {
                    // Gone, or a folder by now: the next attempt shows.
                    Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                    Err(errno) => return Err(errno),
                },
                other => return other,
            }
        }
        Err(Errno::BUSY)
    }

    fn step(&self, walk: &mut PathWalk<'a>, name: &OsStr) -> Result<(), PathError> {
        if name == ".." {
            return walk.at.go_out();
        }
        match self.go_in(&walk.at, name)? {
            Step::Folder(handle) => walk.at.go_in(name, Some(handle)),
            Step::Missing if self.rules.missing_folders == MissingFolders::Make => {
                walk.at.go_in(name, None)
            }
            Step::Missing => return Err(PathError::Missing),
            Step::Link(target) => walk.follow(&target, self.rules.absolute_links)?,
        }
        match walk.at.depth > MAX_DEPTH {
            true => Err(PathError::TooDeep),
            false => Ok(()),
        }
    }

    /// Opens the folder `name`. What it is is asked only if it is not a folder, so nothing can be swapped in between.
    fn go_in(&self, folder: &ResolvedFolder<'_>, name: &OsStr) -> Result<Step, PathError> {
        if is_in(&self.pending.written, folder, name) {
            return Err(PathError::NotAFolder(folder.real.join(name)));
        }
        let Some(dir) = folder
            .handle()
            .filter(|_| !is_in(&self.pending.deleted, folder, name))
        else {
            return Ok(Step::Missing);
        };
        let CallerRules { access, mounts, .. } = self.rules;
        match enter(dir, name, access, mounts) {
            Ok(handle) => Ok(Step::Folder(handle)),
            Err(Errno::NOENT) => Ok(Step::Missing),
            Err(Errno::ACCESS) if access == Access::HiddenIsAbsent => Ok(Step::Missing),
            Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => self.not_a_folder(folder, name, errno),
            Err(errno) => Err(errno.into()),
        }
    }

    fn not_a_folder(
        &self,
        folder: &ResolvedFolder<'_>,
        name: &OsStr,
        errno: Errno,
    ) -> Result<Step, PathError> {
        match self.rules.links {
            LinkRule::Replace => return Ok(Step::Missing),
            LinkRule::Refuse => return Err(PathError::NotAFolder(folder.real.join(name))),
            LinkRule::Follow => {}
        }
        match self.existing(folder, name)? {
            ExistingEntry::Nothing => Ok(Step::Missing),
            ExistingEntry::Link(target) => Ok(Step::Link(target)),
            ExistingEntry::File(_) => Err(PathError::NotAFolder(folder.real.join(name))),
            ExistingEntry::Special => Err(PathError::Special),
            ExistingEntry::Mount => Err(PathError::Mounted),
            // It was swapped just now.
            ExistingEntry::Folder => Err(errno.into()),
        }
    }
}

impl<'a> ResolvedFolder<'a> {
    /// The handle of the folder, if all of it exists.
    pub(super) fn handle(&self) -> Option<BorrowedFd<'_>> {
        (self.handles.len() == self.depth).then(|| self.innermost())
    }

    /// The handle of the deepest folder that exists.
    pub(super) fn innermost(&self) -> BorrowedFd<'_> {
        self.handles.last().map_or(self.top, AsFd::as_fd)
    }

    /// The names of the folders that are still to be made.
    pub(super) fn missing(&self) -> impl Iterator<Item = &OsStr> {
        self.real.iter().skip(self.handles.len())
    }

    fn go_in(&mut self, name: &OsStr, handle: Option<OwnedFd>) {
        self.real.push(name);
        self.depth += 1;
        self.handles.extend(handle);
    }

    fn go_out(&mut self) -> Result<(), PathError> {
        self.depth = self.depth.checked_sub(1).ok_or(PathError::LeadsOut)?;
        self.real.pop();
        self.handles.truncate(self.depth);
        Ok(())
    }
}

/// A path that is being resolved.
struct PathWalk<'a> {
    at: ResolvedFolder<'a>,
    /// The names that are left, the next one last.
    ahead: Vec<OsString>,
    links: usize,
}

impl<'a> PathWalk<'a> {
    fn new<'n>(
        top: BorrowedFd<'a>,
        names: impl DoubleEndedIterator<Item = &'n OsStr>,
    ) -> PathWalk<'a> {
        PathWalk {
            at: ResolvedFolder {
                top,
                real: PathBuf::new(),
                depth: 0,
                handles: Vec::new(),
            },
            ahead: names.rev().map(OsStr::to_owned).collect(),
            links: 0,
        }
    }

    /// Puts the target of a link before the names that are left.
    fn follow(&mut self, target: &Path, absolute_links: &[PathBuf]) -> Result<(), PathError> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(PathError::TooManyLinks);
        }
        let mut below = target;
        if target.is_absolute() {
            let inside = |prefix: &PathBuf| target.strip_prefix(prefix).ok();
            below = absolute_links
                .iter()
                .find_map(inside)
                .ok_or(PathError::LeadsOut)?;
            while self.at.go_out().is_ok() {}
        }
        let names = below
            .components()
            .filter(|part| *part != Component::CurDir)
            .rev();
        self.ahead
            .extend(names.map(|part| part.as_os_str().to_owned()));
        Ok(())
    }
}

fn is_in(changes: &HashSet<PathBuf>, folder: &ResolvedFolder<'_>, name: &OsStr) -> bool {
    !changes.is_empty() && changes.contains(&folder.real.join(name))
}
