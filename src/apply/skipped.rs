//! What is not carried, and why.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Paths of the workspace that are not carried; a folder means all that is in it.
pub(crate) type SkippedPaths = BTreeMap<PathBuf, SkipReason>;

/// Why something is not carried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SkipReason {
    Protected,
    /// It lies outside every folder that was copied.
    Outside,
    Git,
    /// The target belongs to the run: its state, logs or workspace.
    OwnedByRun,
    Spec,
    LeavingLink,
    LinkForFile,
    NotStored,
    ToolFolder,
    UnsafeName(String),
    /// A copy of the folder would leave it out.
    LeftOut(&'static str),
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SkipReason::Protected => "it is protected",
            SkipReason::Outside => "it is outside every folder that `copy` names",
            SkipReason::Git => ".git is never written",
            SkipReason::OwnedByRun => "its place belongs to the run",
            SkipReason::Spec => "its place is that of the spec",
            SkipReason::LeavingLink => "the link leads out of the copied folder, or into .git",
            SkipReason::LinkForFile => "it is a link in place of a copied file",
            SkipReason::NotStored => "it is larger than 32 MiB, or cannot be read as a file",
            SkipReason::ToolFolder => "folders that tools fill are not kept",
            SkipReason::UnsafeName(rule) => rule,
            SkipReason::LeftOut(why) => why,
        })
    }
}

/// The part of a path up to a name `.git`, in any case.
pub(super) fn git_part(path: &Path) -> Option<PathBuf> {
    let at = path
        .iter()
        .position(|name| name.eq_ignore_ascii_case(".git"))?;
    Some(path.iter().take(at + 1).collect())
}
