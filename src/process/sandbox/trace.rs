//! Resolves a path and records the symlinks on the way.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// How many symlinks a path may contain, as in the kernel.
const MAX_LINKS: usize = 40;

/// An existing path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TracedPath {
    /// Its canonical path.
    pub(super) real: PathBuf,
    /// The symlinks on the way, as canonical path and literal target.
    pub(super) links: Vec<(PathBuf, PathBuf)>,
}

/// Resolves an absolute path; `None` if it does not exist.
pub(super) fn trace(path: &Path) -> Option<TracedPath> {
    let mut ahead: Vec<OsString> = Vec::new();
    push(&mut ahead, path);
    let mut found = TracedPath {
        real: PathBuf::from("/"),
        links: Vec::new(),
    };
    while let Some(name) = ahead.pop() {
        match name.as_encoded_bytes() {
            b"/" => found.real = PathBuf::from("/"),
            b".." => drop(found.real.pop()),
            _ => step(&mut found, &mut ahead, &name)?,
        }
    }
    Some(found)
}

fn step(found: &mut TracedPath, ahead: &mut Vec<OsString>, name: &OsStr) -> Option<()> {
    let next = found.real.join(name);
    if !fs::symlink_metadata(&next).ok()?.is_symlink() {
        found.real = next;
        return Some(());
    }
    let target = fs::read_link(&next).ok()?;
    push(ahead, &target);
    found.links.push((next, target));
    (found.links.len() <= MAX_LINKS).then_some(())
}

/// Pushes the components of a path onto the stack of pending ones, first component on top.
fn push(ahead: &mut Vec<OsString>, path: &Path) {
    let parts = path
        .components()
        .rev()
        .filter(|part| !matches!(part, Component::CurDir));
    ahead.extend(parts.map(|part| part.as_os_str().to_owned()));
}
