//! The files that a spec brings along: what it copies, protects, hides, uses as template or prompt.
//!
//! Protected and hidden contents are kept in memory, since they are restored from here and must not depend on files
//! that may change; what is only copied is streamed from its source later.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::source::finding::Finding;
use crate::workspace::safe_path::SafePath;

/// Everything of the user's that a run needs beside the spec itself.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Inputs {
    /// Sorted by path, without what is protected too.
    pub copy: Vec<WorkspaceInput>,
    /// Sorted by path.
    pub protect: Vec<WorkspaceInput>,
    /// One list for each check, by index; empty for visible checks.
    pub hidden: Vec<Vec<WorkspaceInput>>,
    pub template: Option<Vec<TemplateRound>>,
    pub prompts: UserPrompts,
    /// The root's `env/`, in agent mode.
    pub environments: Vec<WorkspaceInput>,
    /// One line about what was left out of folders in `copy` and `protect`.
    pub left_out: Option<String>,
    /// What the user may not have meant.
    pub warnings: Vec<Finding>,
    /// `sha256:<hex>` over what the spec asks for and all of the above; does not depend on the root's path.
    pub hash: String,
}

/// A file, folder or link for the workspace, and its path there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceInput {
    pub to: SafePath,
    pub kind: InputKind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputKind {
    Dir,
    File {
        source: PathBuf,
        /// The permission bits.
        mode: u32,
        sha256: [u8; 32],
        /// For protected and hidden files.
        content: Option<Arc<[u8]>>,
    },
    /// A link that stays inside the folder that was copied.
    Link {
        target: PathBuf,
    },
}

/// One answer of a template: its files, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TemplateRound {
    pub files: Vec<(SafePath, Vec<u8>)>,
}

/// The user's own prompts; `None` is the built-in one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct UserPrompts {
    pub system: Option<String>,
    pub generate: Option<String>,
    pub patch: Option<String>,
}

impl UserPrompts {
    /// The prompts that are given, with their file names.
    pub(crate) fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("system.md", &self.system),
            ("generate.md", &self.generate),
            ("patch.md", &self.patch),
        ];
        all.into_iter()
            .filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }
}

/// The inputs of one list by their path in the workspace.
pub(super) type PlacedInputs = BTreeMap<SafePath, InputKind>;
