//! What differs between the callers that resolve and replace files, as values; the table is in `mod.rs`.

use std::path::PathBuf;

use crate::workspace::hidden::HiddenPaths;

/// The rules of one caller.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallerRules<'a> {
    pub links: LinkRule,
    /// How the absolute links begin that are followed; all others lead out.
    pub absolute_links: &'a [PathBuf],
    pub mounts: MountRule,
    pub missing_folders: MissingFolders,
    pub access: Access,
    /// What is treated as absent and cannot be created.
    pub hidden: Option<&'a HiddenPaths>,
    /// Whether a file that is replaced keeps its owner and group, as far as the system allows it.
    pub keeps_owner: bool,
}

/// What is done about a link on the way to the last name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinkRule {
    /// It is followed, and may not lead out.
    Follow,
    /// It is not a folder.
    Refuse,
    /// It gives way to a folder, as everything does that is not one.
    Replace,
}

/// What is done about a folder or file on which another file system is mounted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MountRule {
    Refuse,
    ReadOnly,
}

/// What is done about folders on the way that do not exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingFolders {
    Refuse,
    Make,
}

/// What is done about permissions that are in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// They hold.
    AsIs,
    /// They hold, and what they hide counts as absent.
    HiddenIsAbsent,
    /// Entries of this user are opened up.
    Force,
}

/// Reading without following anything.
pub(super) const READING: CallerRules<'static> = CallerRules {
    links: LinkRule::Refuse,
    absolute_links: &[],
    mounts: MountRule::Refuse,
    missing_folders: MissingFolders::Refuse,
    access: Access::AsIs,
    hidden: None,
    keeps_owner: false,
};

/// Snapshots, and what is removed.
pub(super) const SNAPSHOT: CallerRules<'static> = CallerRules {
    access: Access::Force,
    ..READING
};

/// The files that the user gives, and what a snapshot puts back.
pub(super) const INPUT: CallerRules<'static> = CallerRules {
    links: LinkRule::Replace,
    missing_folders: MissingFolders::Make,
    ..SNAPSHOT
};

/// The changes of an answer while they are applied.
pub(super) const ANSWER: CallerRules<'static> = CallerRules {
    links: LinkRule::Follow,
    ..INPUT
};

/// The changes of an answer before anything is touched: applying opens folders up and checks again.
pub(super) const ANSWER_CHECK: CallerRules<'static> = CallerRules {
    access: Access::HiddenIsAbsent,
    ..ANSWER
};

/// Files that are carried back to the user's folders.
pub(super) const CARRY: CallerRules<'static> = CallerRules {
    keeps_owner: true,
    ..READING
};

/// Files that the editor reads or edits; `ProjectDir` adds the names of its directory for absolute links.
pub(super) const EDITOR: CallerRules<'static> = CallerRules {
    links: LinkRule::Follow,
    mounts: MountRule::ReadOnly,
    keeps_owner: true,
    ..READING
};

/// Files that the editor's search found.
pub(super) const EDITOR_STRAIGHT: CallerRules<'static> = CallerRules {
    links: LinkRule::Refuse,
    ..EDITOR
};

/// Files that the editor creates.
pub(super) const EDITOR_CREATE: CallerRules<'static> = CallerRules {
    missing_folders: MissingFolders::Make,
    ..EDITOR
};
