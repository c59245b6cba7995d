//! Patches and tables compared with those of the real git, and patches applied by it.

mod apply;
mod format;
mod git;
mod lines;
mod table;
mod terminal;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::{FileDiff, FileStat, FileVersion, VersionKind, file_stat, git_patch};

/// The files of a folder by their paths below it.
type Tree = BTreeMap<PathBuf, FileVersion<'static>>;

fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

fn version(kind: VersionKind, content: &[u8]) -> FileVersion<'static> {
    FileVersion {
        kind,
        content: Cow::Owned(content.to_owned()),
    }
}

fn regular(content: &[u8]) -> Option<FileVersion<'static>> {
    Some(version(VersionKind::Regular, content))
}

fn executable(content: &[u8]) -> Option<FileVersion<'static>> {
    Some(version(VersionKind::Executable, content))
}

fn link(target: &[u8]) -> Option<FileVersion<'static>> {
    Some(version(VersionKind::Link, target))
}

/// The differences of two trees in the order of their paths.
fn tree_diff<'a>(old: &'a Tree, new: &'a Tree) -> Vec<FileDiff<'a>> {
    let paths: BTreeSet<&PathBuf> = old.keys().chain(new.keys()).collect();
    paths
        .into_iter()
        .map(|path| FileDiff {
            path,
            old: old.get(path).cloned(),
            new: new.get(path).cloned(),
        })
        .filter(|diff| diff.old != diff.new)
        .collect()
}

fn tree_patch(old: &Tree, new: &Tree) -> Vec<u8> {
    tree_diff(old, new).iter().flat_map(git_patch).collect()
}

fn tree_stat(old: &Tree, new: &Tree) -> Vec<(PathBuf, FileStat)> {
    tree_diff(old, new)
        .iter()
        .map(|diff| (diff.path.to_owned(), file_stat(diff)))
        .collect()
}

fn write_tree(folder: &Path, tree: &Tree) {
    for (path, version) in tree {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if version.kind == VersionKind::Link {
            symlink(OsStr::from_bytes(&version.content), &path).unwrap();
            continue;
        }
        fs::write(&path, &version.content).unwrap();
        let is_executable = version.kind == VersionKind::Executable;
        let mode = if is_executable { 0o755 } else { 0o644 };
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
}

fn read_tree(folder: &Path) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            if metadata.is_dir() {
                folders.push(path);
                continue;
            }
            let below = path.strip_prefix(folder).unwrap().to_owned();
            tree.insert(below, read_version(&path, &metadata));
        }
    }
    tree
}

fn read_version(path: &Path, metadata: &fs::Metadata) -> FileVersion<'static> {
    if metadata.is_symlink() {
        let target = fs::read_link(path).unwrap();
        return version(VersionKind::Link, target.as_os_str().as_bytes());
    }
    let kind = match metadata.permissions().mode() & 0o100 {
        0 => VersionKind::Regular,
        _ => VersionKind::Executable,
    };
    version(kind, &fs::read(path).unwrap())
}
