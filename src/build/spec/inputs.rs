//! What a spec brings along: the data types of everything it copies, protects, hides, uses as template or prompt.
//!
//! Protected and hidden contents are held in memory, since they are put back from here and must not depend on files
//! that may change; what is only copied is streamed from its source later.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::workspace::safe_path::SafePath;

/// Everything of the user's that a run needs besides the spec itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Inputs {
    /// Sorted by place; what is protected too is not here.
    pub copy: Vec<WorkspaceInput>,
    /// Sorted by place.
    pub protect: Vec<WorkspaceInput>,
    /// One list for each check, by index; empty for visible ones.
    pub hidden: Vec<Vec<WorkspaceInput>>,
    pub template: Option<Vec<TemplateRound>>,
    pub prompts: UserPrompts,
    /// The user's own environments: what lies in the root's `env/`, for a model that works with tools.
    pub environments: Vec<WorkspaceInput>,
    /// The line that says what stayed behind of folders in `copy` and `protect`.
    pub left_out: Option<String>,
    /// What of it the user may not have meant.
    pub warnings: Vec<String>,
    /// `sha256:<hex>` over what the spec asks for and all of the above; the same in every place.
    pub hash: String,
}

/// Something that goes into the workspace, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkspaceInput {
    pub to: SafePath,
    pub kind: InputKind,
}

/// What it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InputKind {
    Dir,
    File {
        source: PathBuf,
        /// The permission bits.
        mode: u32,
        sha256: [u8; 32],
        /// Held for protected and hidden files.
        content: Option<Arc<[u8]>>,
    },
    /// A link that stays inside what it came with.
    Link {
        target: PathBuf,
    },
}

/// One answer of a template: its files, sorted by place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TemplateRound {
    pub files: Vec<(SafePath, Vec<u8>)>,
}

/// The prompts that the user gives; `None` is the built-in one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserPrompts {
    pub system: Option<String>,
    pub generate: Option<String>,
    pub patch: Option<String>,
}

impl UserPrompts {
    /// Returns the prompts that are there, with the names of their files.
    pub fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let all = [
            ("system.md", &self.system),
            ("generate.md", &self.generate),
            ("patch.md", &self.patch),
        ];
        all.into_iter()
            .filter_map(|(name, text)| Some((name, text.as_deref()?)))
    }
}

/// The things of one list by their place; what comes later in the spec wins.
pub(super) type PlacedInputs = BTreeMap<SafePath, InputKind>;
