//! The files that a spec brings along: what it copies, protects, hides, uses as template or prompt.
//!
//! Protected and hidden contents are kept in memory, since they are restored from here and must not depend on files
//! that may change; what is only copied is streamed from its source later.

use std::collections::{BTreeMap, HashMap};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
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
        /// The permission bits.
        mode: u32,
        sha256: [u8; 32],
        content: InputContent,
    },
    /// A link that stays inside the folder that was copied.
    Link {
        target: PathBuf,
    },
}

/// Where the content of a file is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum InputContent {
    /// Of protected, hidden and template files.
    Held(Arc<[u8]>),
    /// Of files that are only copied.
    Source(PathBuf),
}

/// The input with this path; the inputs are sorted.
pub(crate) fn find_input<'a>(
    inputs: &'a [WorkspaceInput],
    path: &Path,
) -> Option<&'a WorkspaceInput> {
    let path = path.as_os_str().as_bytes();
    let found = inputs.binary_search_by(|input| input.to.as_str().as_bytes().cmp(path));
    found.ok().map(|index| &inputs[index])
}

/// Whether an input has this path.
pub(crate) fn has_input(inputs: &[WorkspaceInput], path: &Path) -> bool {
    find_input(inputs, path).is_some()
}

/// The inputs that are not inside a folder of the same list.
pub(crate) fn outermost<'a>(
    inputs: impl Iterator<Item = &'a WorkspaceInput>,
) -> impl Iterator<Item = &'a WorkspaceInput> {
    let mut folders: HashMap<&Path, &SafePath> = HashMap::new();
    let mut last: Option<&SafePath> = None;
    // Inputs are sorted: a folder comes before its contents, usually directly before.
    inputs.filter(move |input| {
        if last.is_some_and(|last| input.to.starts_with(last)) {
            return false;
        }
        let around = Path::new(input.to.as_str()).ancestors();
        if let Some(folder) = around.into_iter().find_map(|folder| folders.get(folder)) {
            last = Some(folder);
            return false;
        }
        if input.kind == InputKind::Dir {
            folders.insert(Path::new(input.to.as_str()), &input.to);
            last = Some(&input.to);
        }
        true
    })
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
