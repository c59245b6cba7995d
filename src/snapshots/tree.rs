//! What a snapshot holds: names, modes and contents of a tree.
//!
//! The object of a folder has a line for each entry, sorted by name: kind, mode, id, size, name. In a name a backslash
//! and the end of a line are escaped; all other bytes are as they are.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::snapshots::objects::{ContentSink, ObjectId, ObjectStore};

/// An entry of a snapshot; `mode` has the permission bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TreeNode {
    File {
        mode: u32,
        size: u64,
        id: ObjectId,
    },
    /// The content of its object is the target.
    Link {
        id: ObjectId,
    },
    Folder {
        mode: u32,
    },
    /// A file whose content is not stored: it is too large, or cannot be read.
    Unstored {
        mode: u32,
        size: u64,
        id: ObjectId,
    },
}

/// All entries of a snapshot by path.
pub(crate) type Tree = BTreeMap<PathBuf, TreeNode>;

/// A line in the object of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineKind {
    File,
    Link,
    Folder,
    Unstored,
}

impl LineKind {
    const ALL: [(LineKind, &'static str); 4] = [
        (LineKind::File, "file"),
        (LineKind::Link, "link"),
        (LineKind::Folder, "folder"),
        (LineKind::Unstored, "unstored"),
    ];

    fn word(self) -> &'static str {
        let found = LineKind::ALL.iter().find(|(kind, _)| *kind == self);
        found.map_or("", |(_, word)| word)
    }
}

/// The object of a folder while it is written.
#[derive(Debug, Default)]
pub(super) struct FolderLines(Vec<u8>);

impl FolderLines {
    pub(super) fn add(&mut self, name: &OsStr, node: &TreeNode) {
        match node {
            TreeNode::File { mode, size, id } => self.line(LineKind::File, *mode, id, *size),
            TreeNode::Link { id } => self.line(LineKind::Link, 0o777, id, 0),
            TreeNode::Unstored { mode, size, id } => {
                self.line(LineKind::Unstored, *mode, id, *size)
            }
            TreeNode::Folder { .. } => return,
        }
        self.name(name);
    }

    pub(super) fn add_folder(&mut self, name: &OsStr, mode: u32, id: &ObjectId) {
        self.line(LineKind::Folder, mode, id, 0);
        self.name(name);
    }

    fn line(&mut self, kind: LineKind, mode: u32, id: &ObjectId, size: u64) {
        let mut digits = [0; 64];
        id.write_hex(&mut digits);
        self.0.extend_from_slice(kind.word().as_bytes());
        self.0.push(b' ');
        // Writing to a vector does not fail.
        let _ = write!(self.0, "{:o} ", mode & 0o777);
        self.0.extend_from_slice(&digits);
        let _ = write!(self.0, " {size} ");
    }

    fn name(&mut self, name: &OsStr) {
        for byte in name.as_bytes() {
            match byte {
                b'\\' => self.0.extend_from_slice(b"\\\\"),
                b'\n' => self.0.extend_from_slice(b"\\n"),
                other => self.0.push(*other),
            }
        }
        self.0.push(b'\n');
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Reads the tree with this id.
pub(crate) fn read_tree(store: &ObjectStore, id: ObjectId) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut folders = vec![(PathBuf::new(), id)];
    while let Some((folder, id)) = folders.pop() {
        for line in folder_lines(store, id)? {
            let path = folder.join(&line.name);
            if line.kind == LineKind::Folder {
                folders.push((path.clone(), line.id));
            }
            tree.insert(path, line.node());
        }
    }
    Ok(tree)
}

/// Stores the lists of a tree whose contents are stored; returns its id.
pub(crate) fn write_tree(tree: &Tree, sink: &mut dyn ContentSink) -> Result<ObjectId> {
    let mut children: BTreeMap<&Path, Vec<(&OsStr, &TreeNode)>> = BTreeMap::new();
    children.insert(Path::new(""), Vec::new());
    for (path, node) in tree {
        if let TreeNode::Folder { .. } = node {
            children.entry(path).or_default();
        }
        if let (Some(parent), Some(name)) = (path.parent(), path.file_name()) {
            children.entry(parent).or_default().push((name, node));
        }
    }
    let mut ids: BTreeMap<&Path, ObjectId> = BTreeMap::new();
    // A folder comes before what is in it, so the reverse order completes the inner ones first.
    for (folder, entries) in children.iter().rev() {
        let mut lines = FolderLines::default();
        for (name, node) in entries {
            match (node, ids.get(folder.join(name).as_path())) {
                (TreeNode::Folder { mode }, Some(id)) => lines.add_folder(name, *mode, id),
                (node, _) => lines.add(name, node),
            }
        }
        ids.insert(folder, sink.add(lines.bytes())?);
    }
    let top = ids.get(Path::new("")).copied();
    top.ok_or_else(|| Error::Bug("a tree without a top".into()))
}

/// Adds the ids of everything that a tree needs; what is in `live` already is not read again.
pub(super) fn add_live(
    store: &ObjectStore,
    id: ObjectId,
    live: &mut HashSet<ObjectId>,
) -> Result<()> {
    let mut folders = vec![id];
    while let Some(id) = folders.pop() {
        if !live.insert(id) {
            continue;
        }
        for line in folder_lines(store, id)? {
            match line.kind {
                LineKind::Folder => folders.push(line.id),
                LineKind::File | LineKind::Link => drop(live.insert(line.id)),
                LineKind::Unstored => {}
            }
        }
    }
    Ok(())
}

/// The paths that differ between two trees, sorted; folders count only where one side has something else.
pub(crate) fn changed_paths<'a>(old: &'a Tree, new: &'a Tree) -> Vec<&'a Path> {
    let is_work = |node: Option<&TreeNode>| !matches!(node, None | Some(TreeNode::Folder { .. }));
    let mut paths: Vec<&Path> = Vec::new();
    for (path, node) in old {
        let now = new.get(path);
        if now != Some(node) && (is_work(Some(node)) || is_work(now)) {
            paths.push(path);
        }
    }
    let added = new.iter().filter(|(path, _)| !old.contains_key(*path));
    paths.extend(
        added
            .filter(|(_, node)| is_work(Some(node)))
            .map(|(path, _)| path.as_path()),
    );
    paths.sort();
    paths
}

#[derive(Debug)]
struct FolderLine {
    kind: LineKind,
    mode: u32,
    id: ObjectId,
    size: u64,
    name: OsString,
}

impl FolderLine {
    fn node(&self) -> TreeNode {
        let (mode, size, id) = (self.mode, self.size, self.id);
        match self.kind {
            LineKind::File => TreeNode::File { mode, size, id },
            LineKind::Link => TreeNode::Link { id },
            LineKind::Folder => TreeNode::Folder { mode },
            LineKind::Unstored => TreeNode::Unstored { mode, size, id },
        }
    }
}

fn folder_lines(store: &ObjectStore, id: ObjectId) -> Result<Vec<FolderLine>> {
    let content = store.read(id)?;
    let lines = content
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty());
    lines
        .map(|line| {
            parse_line(line)
                .ok_or_else(|| Error::Bug(format!("the object {id} is not the list of a folder")))
        })
        .collect()
}

fn parse_line(line: &[u8]) -> Option<FolderLine> {
    let mut words = line.splitn(5, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(words.next()?).ok();
    let kind = word()?;
    let (kind, _) = LineKind::ALL.iter().find(|(_, known)| *known == kind)?;
    let mode = u32::from_str_radix(word()?, 8).ok()?;
    let id = ObjectId::parse(word()?)?;
    let size = word()?.parse().ok()?;
    let name = unescaped(words.next()?)?;
    let is_name =
        !name.is_empty() && name != "." && name != ".." && !name.as_bytes().contains(&b'/');
    is_name.then_some(FolderLine {
        kind: *kind,
        mode,
        id,
        size,
        name,
    })
}

fn unescaped(text: &[u8]) -> Option<OsString> {
    let (mut name, mut bytes) = (Vec::with_capacity(text.len()), text.iter());
    while let Some(byte) = bytes.next() {
        name.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'\\' => b'\\',
                _ => return None,
            },
            other => *other,
        });
    }
    Some(OsString::from_vec(name))
}
