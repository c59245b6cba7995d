//! Takes a snapshot: walks the workspace, stores what is new, returns the id of the tree.
//!
//! Left out are caches and temporary entries (`workspace/generated.rs`). Folders that tools fill are named with a digest
//! of their list of entries, and large files with that of their content; neither is stored.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::num::NonZeroU64;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::cancel::CancelToken;
use crate::error::{Error, Result};
use crate::snapshots::objects::{ContentSink, ObjectId};
use crate::snapshots::tree::{FolderLines, Tree, TreeNode};
use crate::text::hex;
use crate::workspace::generated::is_generated;
use crate::workspace::{
    EntryKind, FileTime, OpenedFile, RecordedWalk, WalkStep, Workspace, WorkspaceEntry,
    now_of_files,
};

/// The content of a larger file is not stored.
pub(crate) const MAX_STORED: u64 = 32 << 20;
/// Folders that tools fill: they are named, and their contents are not stored.
const TOOL_FOLDERS: [&str; 4] = ["node_modules", "target", ".venv", BYTECODE];
/// Present after every run of Python; not worth a word to the user.
const BYTECODE: &str = "__pycache__";

/// What the last snapshot found, so that the next one reads only what has changed.
#[derive(Debug, Default)]
pub(crate) struct SnapshotIndex {
    /// By path. Its bytes are hashed and compared, which is faster than its parts.
    entries: HashMap<Box<OsStr>, IndexedEntry>,
    /// Counts the snapshots: an entry of an earlier one is gone.
    generation: u32,
}

#[derive(Debug)]
struct IndexedEntry {
    node: TreeNode,
    /// The metadata at that time, if an equal one later means an equal content.
    stamp: Option<FileStamp>,
    generation: u32,
}

/// Metadata that changes whenever a file is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileStamp {
    ino: NonZeroU64,
    size: u64,
    /// Of ctime and mtime, which take less space in two parts.
    seconds: [i64; 2],
    nanoseconds: [u32; 2],
}

impl FileStamp {
    /// `None` for a file system without inode numbers.
    fn of(entry: &WorkspaceEntry, size: u64) -> Option<FileStamp> {
        Some(FileStamp {
            ino: NonZeroU64::new(entry.ino)?,
            size,
            seconds: [entry.ctime.0, entry.mtime.0],
            nanoseconds: [entry.ctime.1, entry.mtime.1],
        })
    }
}

/// Something that is named in a snapshot and not stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct UnstoredEntry {
    pub path: String,
    /// Of a folder: a digest of the names, sizes and times in it.
    pub hash: String,
    pub is_folder: bool,
}

impl UnstoredEntry {
    /// Its name as it is shown.
    pub(crate) fn shown(&self) -> String {
        let slash = if self.is_folder { "/" } else { "" };
        format!("{}{slash}", self.path.escape_debug())
    }

    /// Whether the user is informed.
    pub(crate) fn is_noteworthy(&self) -> bool {
        Path::new(&self.path).file_name() != Some(OsStr::new(BYTECODE))
    }
}

/// A snapshot that was taken.
#[derive(Debug)]
pub(crate) struct TakenSnapshot {
    pub tree: ObjectId,
    /// What differs from the index as it was, sorted.
    pub changed: Vec<PathBuf>,
    pub unstored: Vec<UnstoredEntry>,
}

impl SnapshotIndex {
    /// The entries of a stored tree; their contents are compared, not their metadata.
    pub(crate) fn of_tree(tree: Tree) -> SnapshotIndex {
        let entry = |node| IndexedEntry {
            node,
            stamp: None,
            generation: 0,
        };
        SnapshotIndex {
            entries: tree
                .into_iter()
                .map(|(path, node)| (path.into_os_string().into(), entry(node)))
                .collect(),
            generation: 0,
        }
    }

    pub(crate) fn get(&self, path: &Path) -> Option<&TreeNode> {
        let found = self.entries.get(path.as_os_str());
        found.map(|entry| &entry.node)
    }

    /// The id of the content of a file that is as a snapshot found and stored it.
    pub(crate) fn stored_id(&self, entry: &WorkspaceEntry) -> Option<ObjectId> {
        let known = self.entries.get(entry.path.as_os_str())?;
        let is_same = match entry.kind {
            EntryKind::File { size, .. } => {
                known.stamp.is_some() && known.stamp == FileStamp::of(entry, size)
            }
            _ => false,
        };
        match known.node {
            TreeNode::File { id, .. } if is_same => Some(id),
            _ => None,
        }
    }

    pub(crate) fn tree(&self) -> Tree {
        let entries = self.entries.iter();
        entries
            .map(|(path, entry)| (PathBuf::from(&**path), entry.node))
            .collect()
    }

    /// Walks the workspace, gives new contents to `sink`, and remembers what was found.
    pub(crate) fn take(
        &mut self,
        workspace: &Workspace,
        sink: &mut dyn ContentSink,
        cancel: &CancelToken,
    ) -> Result<TakenSnapshot> {
        let begun = workspace.has_reliable_times().then(now_of_files);
        self.take_visited(workspace, begun, sink, cancel, |visit| {
            workspace.walk_whole(visit)
        })
    }

    /// Takes a snapshot of what a walk has found, after which nothing has changed.
    pub(crate) fn take_walked(
        &mut self,
        workspace: &Workspace,
        walk: &RecordedWalk,
        sink: &mut dyn ContentSink,
        cancel: &CancelToken,
    ) -> Result<TakenSnapshot> {
        self.take_visited(workspace, walk.begun(), sink, cancel, |visit| {
            walk.walk(visit);
            Ok(())
        })
    }

    fn take_visited(
        &mut self,
        workspace: &Workspace,
        begun: Option<FileTime>,
        sink: &mut dyn ContentSink,
        cancel: &CancelToken,
        visit_all: impl FnOnce(&mut dyn FnMut(&WorkspaceEntry) -> WalkStep) -> Result<()>,
    ) -> Result<TakenSnapshot> {
        self.generation += 1;
        let mut walk = SnapshotWalk {
            begun,
            workspace,
            index: self,
            sink,
            levels: vec![OpenFolder::default()],
            tool_folder: None,
            changed: Vec::new(),
            unstored: Vec::new(),
        };
        let mut failure = None;
        visit_all(&mut |entry| {
            let stopped = cancel.requested().map(Error::Stopped);
            match stopped.map_or_else(|| walk.visit(entry), Err) {
                Ok(step) => step,
                Err(error) => {
                    failure = Some(error);
                    WalkStep::Stop
                }
            }
        })?;
        failure.map_or_else(|| walk.finish(), Err)
    }
}

/// A folder whose entries are being visited.
#[derive(Debug, Default)]
struct OpenFolder {
    path: PathBuf,
    mode: u32,
    lines: FolderLines,
}

/// A folder that a tool fills, with the digest of its entries so far.
struct ToolFolder {
    path: PathBuf,
    digest: Sha256,
}

struct SnapshotWalk<'a> {
    workspace: &'a Workspace,
    index: &'a mut SnapshotIndex,
    sink: &'a mut dyn ContentSink,
    /// The file system's time when the walk began, if its times are reliable: a change from then on has a later one.
    begun: Option<FileTime>,
    levels: Vec<OpenFolder>,
    tool_folder: Option<ToolFolder>,
    changed: Vec<PathBuf>,
    unstored: Vec<UnstoredEntry>,
}

impl SnapshotWalk<'_> {
    fn visit(&mut self, entry: &WorkspaceEntry) -> Result<WalkStep> {
        if self.is_in_tool_folder(entry) {
            return Ok(WalkStep::Skip);
        }
        let name = entry.path.file_name().unwrap_or_default();
        if matches!(entry.kind, EntryKind::Dir { .. })
            && TOOL_FOLDERS.iter().any(|known| name == *known)
        {
            self.tool_folder = Some(ToolFolder {
                path: entry.path.clone(),
                digest: Sha256::new(),
            });
            return Ok(WalkStep::On);
        }
        if is_generated(name) {
            return Ok(WalkStep::Skip);
        }
        self.close_up_to(entry.path.parent().unwrap_or(Path::new("")))?;
        if let EntryKind::Dir { mode } = entry.kind {
            self.remember(entry, TreeNode::Folder { mode: mode & 0o777 }, None);
            self.levels.push(OpenFolder {
                path: entry.path.clone(),
                mode,
                lines: FolderLines::default(),
            });
            return Ok(WalkStep::On);
        }
        let mut node = self.unchanged(entry);
        if node.is_none()
            && let Some((new, stamp)) = self.node(entry)?
        {
            self.remember(entry, new, stamp);
            node = Some(new);
        }
        if let Some((node, folder)) = node.zip(self.levels.last_mut()) {
            folder.lines.add(name, &node);
        }
        Ok(WalkStep::On)
    }

    /// Adds an entry directly in the tool folder to its digest; the first entry outside completes it.
    fn is_in_tool_folder(&mut self, entry: &WorkspaceEntry) -> bool {
        if let Some(folder) = &mut self.tool_folder
            && entry.path.starts_with(&folder.path)
        {
            let size = if let EntryKind::File { size, .. } = entry.kind {
                size
            } else {
                0
            };
            folder.digest.update(entry.path.as_os_str().as_bytes());
            let line = format!(" {size} {}.{:09}\n", entry.mtime.0, entry.mtime.1);
            folder.digest.update(line.as_bytes());
            return true;
        }
        self.complete_tool_folder();
        false
    }

    fn complete_tool_folder(&mut self) {
        if let Some(ToolFolder { path, digest }) = self.tool_folder.take() {
            self.unstored.push(UnstoredEntry {
                path: path.to_string_lossy().into_owned(),
                hash: hex(&digest.finalize()),
                is_folder: true,
            });
        }
    }

    /// Completes the folders that the walk has left.
    fn close_up_to(&mut self, parent: &Path) -> Result<()> {
        while self
            .levels
            .last()
            .is_some_and(|folder| folder.path.as_os_str() != parent.as_os_str())
            && self.levels.len() > 1
        {
            self.close_folder()?;
        }
        Ok(())
    }

    fn close_folder(&mut self) -> Result<Option<ObjectId>> {
        let Some(folder) = self.levels.pop() else {
            return Ok(None);
        };
        let id = self.sink.add(folder.lines.bytes())?;
        if let Some(around) = self.levels.last_mut() {
            around.lines.add_folder(
                folder.path.file_name().unwrap_or_default(),
                folder.mode,
                &id,
            );
        }
        Ok(Some(id))
    }

    /// What is recorded of an entry, and its stamp if an equal one later means an equal content; nothing if it is gone.
    fn node(&mut self, entry: &WorkspaceEntry) -> Result<Option<(TreeNode, Option<FileStamp>)>> {
        match &entry.kind {
            EntryKind::Link { target } => {
                let id = self.sink.add(target.as_os_str().as_bytes())?;
                Ok(Some((TreeNode::Link { id }, None)))
            }
            EntryKind::File { size, mode } => self.file(entry, *size, *mode & 0o777),
            EntryKind::Dir { .. } => Ok(None),
            EntryKind::Special => {
                self.note_unstored(entry, "");
                Ok(None)
            }
        }
    }

    /// The node of a stored file that is as the last snapshot found it.
    fn unchanged(&mut self, entry: &WorkspaceEntry) -> Option<TreeNode> {
        let EntryKind::File { size, mode } = entry.kind else {
            return None;
        };
        let stamp = self.stamp(entry, size)?;
        let known = self.index.entries.get_mut(entry.path.as_os_str())?;
        let has_mode =
            matches!(known.node, TreeNode::File { mode: known, .. } if known == mode & 0o777);
        if !has_mode || known.stamp != Some(stamp) {
            return None;
        }
        known.generation = self.index.generation;
        Some(known.node)
    }

    /// The metadata of a file, if an equal one later means an equal content.
    fn stamp(&self, entry: &WorkspaceEntry, size: u64) -> Option<FileStamp> {
        let is_settled = self.begun.is_some_and(|begun| entry.ctime < begun);
        FileStamp::of(entry, size).filter(|_| is_settled)
    }

    fn file(
        &mut self,
        entry: &WorkspaceEntry,
        size: u64,
        mode: u32,
    ) -> Result<Option<(TreeNode, Option<FileStamp>)>> {
        let stamp = self.stamp(entry, size);
        let known = self.index.entries.get(entry.path.as_os_str());
        let known = known.filter(|known| stamp.is_some() && known.stamp == stamp);
        let node = match known.map(|known| known.node) {
            // A change of the mode alone is seen in the metadata.
            Some(TreeNode::File { size, id, .. }) => Some(TreeNode::File { mode, size, id }),
            Some(TreeNode::Unstored { size, id, .. }) => {
                Some(TreeNode::Unstored { mode, size, id })
            }
            _ => self.read(entry, mode)?,
        };
        if let Some(TreeNode::Unstored { id, .. }) = &node {
            self.note_unstored(entry, &id.to_string());
        }
        Ok(node.map(|node| (node, stamp)))
    }

    fn read(&mut self, entry: &WorkspaceEntry, mode: u32) -> Result<Option<TreeNode>> {
        let failed = |error| Error::io("read", &self.workspace.path_of(&entry.path), error);
        let file: File = match self.workspace.open_any_file(&entry.path)? {
            OpenedFile::Opened(file) => file,
            OpenedFile::Missing => return Ok(None),
            OpenedFile::Unreadable => {
                let (size, id) = (0, ObjectId::of(b""));
                return Ok(Some(TreeNode::Unstored { mode, size, id }));
            }
        };
        let expected = match entry.kind {
            EntryKind::File { size, .. } => usize::try_from(size.min(MAX_STORED)).unwrap_or(0),
            _ => 0,
        };
        let mut content = Vec::with_capacity(expected + 1);
        let mut file = file.take(MAX_STORED + 1);
        file.read_to_end(&mut content).map_err(failed)?;
        let size = content.len() as u64;
        if size <= MAX_STORED {
            let id = self.sink.add(&content)?;
            return Ok(Some(TreeNode::File { mode, size, id }));
        }
        let rest = std::io::Cursor::new(content).chain(file.into_inner());
        let (id, size) = ObjectId::of_file(rest).map_err(failed)?;
        Ok(Some(TreeNode::Unstored { mode, size, id }))
    }

    fn note_unstored(&mut self, entry: &WorkspaceEntry, hash: &str) {
        self.unstored.push(UnstoredEntry {
            path: entry.path.to_string_lossy().into_owned(),
            hash: hash.to_owned(),
            is_folder: false,
        });
    }

    fn remember(&mut self, entry: &WorkspaceEntry, node: TreeNode, stamp: Option<FileStamp>) {
        let generation = self.index.generation;
        let is_folder = matches!(node, TreeNode::Folder { .. });
        if let Some(known) = self.index.entries.get_mut(entry.path.as_os_str()) {
            let was_folder = matches!(known.node, TreeNode::Folder { .. });
            if known.node != node && !(is_folder && was_folder) {
                self.changed.push(entry.path.clone());
            }
            *known = IndexedEntry {
                node,
                stamp,
                generation,
            };
            return;
        }
        if !is_folder {
            self.changed.push(entry.path.clone());
        }
        let new = IndexedEntry {
            node,
            stamp,
            generation,
        };
        self.index
            .entries
            .insert(entry.path.as_os_str().into(), new);
    }

    fn finish(mut self) -> Result<TakenSnapshot> {
        self.complete_tool_folder();
        self.close_up_to(Path::new(""))?;
        let top = self.close_folder()?;
        let SnapshotWalk {
            index,
            mut changed,
            unstored,
            ..
        } = self;
        let generation = index.generation;
        index.entries.retain(|path, entry| {
            let is_there = entry.generation == generation;
            if !is_there && !matches!(entry.node, TreeNode::Folder { .. }) {
                changed.push(PathBuf::from(&**path));
            }
            is_there
        });
        changed.sort();
        Ok(TakenSnapshot {
            tree: top.ok_or_else(|| Error::Bug("a walk without a top".into()))?,
            changed,
            unstored,
        })
    }
}
