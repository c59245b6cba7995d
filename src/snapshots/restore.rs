//! Brings a snapshot back into the workspace.
//!
//! What a snapshot does not store is neither removed nor replaced: nothing could bring it back.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::error::Result;
use crate::snapshots::objects::ObjectStore;
use crate::snapshots::take::{TakenSnapshot, UnstoredEntry};
use crate::snapshots::tree::{Tree, TreeNode};
use crate::workspace::Workspace;

/// What the workspace has now.
pub(crate) struct CurrentTree<'a> {
    pub tree: Tree,
    pub unstored: &'a [UnstoredEntry],
}

impl<'a> CurrentTree<'a> {
    pub(crate) fn new(tree: Tree, taken: &'a TakenSnapshot) -> CurrentTree<'a> {
        let unstored = &taken.unstored;
        CurrentTree { tree, unstored }
    }
}

/// Makes the workspace equal to `wanted`, durably. Returns the paths of files that the snapshot names and does not store,
/// where the workspace has another content. `spared` names stay at the top.
pub(crate) fn restore(
    workspace: &Workspace,
    store: &ObjectStore,
    wanted: &Tree,
    now: &CurrentTree<'_>,
    spared: &[&str],
) -> Result<Vec<PathBuf>> {
    let mut touched: BTreeSet<&Path> = BTreeSet::new();
    let mut removed: Option<&Path> = None;
    for path in removals(wanted, now, spared) {
        // What is in a folder comes directly after it.
        if !removed.is_some_and(|removed| path.starts_with(removed)) {
            workspace.remove(path)?;
            touched.insert(path);
            removed = Some(path);
        }
    }
    let mut placement = workspace.place_inputs();
    let mut missing = Vec::new();
    for (path, node) in wanted {
        if now.tree.get(path) == Some(node) {
            continue;
        }
        touched.insert(path);
        match node {
            TreeNode::Folder { mode } => placement.make_dir(path, *mode)?,
            TreeNode::File { mode, id, .. } => {
                let content = store.read(*id)?;
                placement.put_file(path, &mut &content[..], *mode)?;
            }
            TreeNode::Link { id } => {
                use std::os::unix::ffi::OsStrExt;
                let target = store.read(*id)?;
                placement.put_link(path, std::ffi::OsStr::from_bytes(&target))?;
            }
            TreeNode::Unstored { .. } => missing.push(path.clone()),
        }
    }
    if !touched.is_empty() {
        workspace.settle(touched)?;
    }
    Ok(missing)
}

/// What is in the workspace and not wanted, a folder before what is in it.
fn removals<'t>(wanted: &Tree, now: &'t CurrentTree<'_>, spared: &[&str]) -> Vec<&'t Path> {
    let is_kept = |path: &Path| {
        let is_unstored = |entry: &UnstoredEntry| Path::new(&entry.path).starts_with(path);
        spared.iter().any(|name| path == Path::new(name)) || now.unstored.iter().any(is_unstored)
    };
    let paths = now.tree.keys().map(PathBuf::as_path);
    paths
        .filter(|path| !wanted.contains_key(*path) && !is_kept(path))
        .collect()
}
