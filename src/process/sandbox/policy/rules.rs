//! Makes one set of rules of what may be written, read and never seen, in which every entry changes something.

use std::fs;
use std::path::{Path, PathBuf};

use super::program_dirs::trace;
use crate::process::sandbox::SandboxPolicy;

/// What may be done with a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathAccess {
    Write,
    Read,
    Nothing,
}

impl SandboxPolicy {
    /// Returns what may be done with a canonical path: the deepest entry that holds it decides.
    pub fn reach(&self, path: &Path) -> PathAccess {
        reach(path, &self.write, &self.read, &self.hide)
    }

    /// Whether a canonical path is there inside: open, or on the way to something that is.
    pub fn shows(&self, path: &Path) -> bool {
        let is_on_the_way = self
            .read
            .iter()
            .chain(&self.write)
            .any(|open| open.starts_with(path));
        is_on_the_way || self.reach(path) != PathAccess::Nothing
    }

    /// Returns what on the way to something that exists, each link and its end, is not there inside; nothing of it where
    /// the path leads there inside too.
    pub fn unseen(&self, path: &Path) -> Vec<PathBuf> {
        let Some(found) = trace(path) else {
            return vec![path.to_owned()];
        };
        let is_made = |place: &Path| self.links.iter().any(|(link, _)| link == place);
        let links = found
            .links
            .into_iter()
            .map(|(place, _)| place)
            .filter(|place| !is_made(place));
        links
            .chain([found.real])
            .filter(|place| self.reach(place) == PathAccess::Nothing)
            .collect()
    }

    /// Returns what may be read without a look at `hide`, for a wall that can only add: where something is hidden
    /// below a readable folder, the rest of that folder stands for it.
    pub fn readable_parts(&self) -> Vec<PathBuf> {
        let mut parts = Vec::new();
        let mut whole: Vec<PathBuf> = self.read.clone();
        while let Some(place) = whole.pop() {
            if self.hide.iter().any(|hidden| hidden.starts_with(&place)) {
                let inner = fs::read_dir(&place).into_iter().flatten().flatten();
                whole.extend(
                    inner
                        .filter(|entry| !is_link(&entry.path()))
                        .map(|entry| entry.path()),
                );
                whole.retain(|inner| !self.hide.contains(inner));
            } else {
                parts.push(place);
            }
        }
        parts.sort();
        parts.dedup();
        parts
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink())
}

/// Returns those of `read` and `hide` that change something, sorted: what is readable or out of reach anyway is
/// left out. Where both name the same path, it is hidden.
pub(super) fn settle(
    write: &[PathBuf],
    read: Vec<PathBuf>,
    hide: Vec<PathBuf>,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let mut wanted: Vec<(PathBuf, PathAccess)> = hide
        .into_iter()
        .map(|path| (path, PathAccess::Nothing))
        .collect();
    wanted.extend(read.into_iter().map(|path| (path, PathAccess::Read)));
    // A path stands before all that it holds; the sort is stable, so that what is hidden comes first.
    wanted.sort_by(|one, other| one.0.cmp(&other.0));
    wanted.dedup_by(|later, earlier| later.0 == earlier.0);
    let (mut kept_read, mut kept_hide) = (Vec::new(), Vec::new());
    for (path, action) in wanted {
        let before = reach(&path, write, &kept_read, &kept_hide);
        match action {
            // What may be written may be read, and may not be closed to writing by the way.
            PathAccess::Read if before == PathAccess::Nothing => kept_read.push(path),
            PathAccess::Nothing
                if before != PathAccess::Nothing && fs::symlink_metadata(&path).is_ok() =>
            {
                kept_hide.push(path)
            }
            _ => {}
        }
    }
    // Something may be hidden only above the workspace, or by a path that is the workspace itself.
    kept_hide.retain(|path| !write.contains(path));
    (kept_read, kept_hide)
}

fn reach(path: &Path, write: &[PathBuf], read: &[PathBuf], hide: &[PathBuf]) -> PathAccess {
    let depth = |places: &[PathBuf]| {
        let holding = places.iter().filter(|place| path.starts_with(place));
        holding
            .map(|place| place.components().count())
            .max()
            .unwrap_or(0)
    };
    let (written, read, hidden) = (depth(write), depth(read), depth(hide));
    match written.max(read) {
        0 => PathAccess::Nothing,
        open if open < hidden => PathAccess::Nothing,
        _ if read <= written => PathAccess::Write,
        _ => PathAccess::Read,
    }
}

/// Returns the links that have to be made: those that lead to something and lie where nothing is shown.
pub(super) fn needed_links(
    policy: &SandboxPolicy,
    links: Vec<(PathBuf, PathBuf)>,
) -> Vec<(PathBuf, PathBuf)> {
    let is_needed = |(place, _): &(PathBuf, PathBuf)| {
        let leads = place
            .canonicalize()
            .is_ok_and(|target| policy.shows(&target));
        leads && policy.reach(place) == PathAccess::Nothing && !policy.hide.contains(place)
    };
    let mut needed: Vec<_> = links.into_iter().filter(is_needed).collect();
    needed.sort();
    needed.dedup();
    needed
}
