//! What counts of a file when it is carried: its content and executable bit, or the target of a link.

use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::snapshots::objects::ObjectId;
use crate::snapshots::tree::TreeNode;
use crate::workspace::CarriedEntry;

/// A file, a link or nothing; what folders there are follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum FileState {
    Absent,
    File {
        id: ObjectId,
        executable: bool,
    },
    /// The content of its object is the target.
    Link {
        id: ObjectId,
    },
}

impl FileState {
    /// The state of an entry of a snapshot; `None` if its content is not stored.
    pub(super) fn of_node(node: Option<&TreeNode>) -> Option<FileState> {
        match node {
            None | Some(TreeNode::Folder { .. }) => Some(FileState::Absent),
            Some(TreeNode::File { mode, id, .. }) => Some(FileState::File {
                id: *id,
                executable: is_executable(*mode),
            }),
            Some(TreeNode::Link { id }) => Some(FileState::Link { id: *id }),
            Some(TreeNode::Unstored { .. }) => None,
        }
    }

    /// The state of an entry of a project; `None` if it is something else.
    pub(super) fn of_entry(entry: &CarriedEntry) -> Option<FileState> {
        match entry {
            CarriedEntry::Nothing => Some(FileState::Absent),
            CarriedEntry::File { content, meta } => Some(FileState::File {
                id: ObjectId::of(content),
                executable: is_executable(meta.mode),
            }),
            CarriedEntry::Link(target) => Some(FileState::Link {
                id: ObjectId::of(target.as_os_str().as_bytes()),
            }),
            CarriedEntry::TooLarge
            | CarriedEntry::Folder { .. }
            | CarriedEntry::Special
            | CarriedEntry::Mount
            | CarriedEntry::Blocked(_) => None,
        }
    }

    pub(crate) fn is_absent(&self) -> bool {
        *self == FileState::Absent
    }

    /// The object with its content.
    pub(crate) fn object(&self) -> Option<ObjectId> {
        match self {
            FileState::Absent => None,
            FileState::File { id, .. } | FileState::Link { id } => Some(*id),
        }
    }
}

/// Of the permissions only this one is carried, as in git.
fn is_executable(mode: u32) -> bool {
    mode & 0o100 != 0
}
