//! Generators write the code: a model, or, offline, a folder of prepared answers.

pub(crate) mod agent;
pub(crate) mod agent_prompt;
pub(crate) mod answer_format;
pub(crate) mod file_selection;
pub(crate) mod model;
pub(crate) mod prompt;
pub(crate) mod template;

use std::collections::BTreeMap;

use crate::build::context::Context;
use crate::conversation::replay::Replay;
use crate::conversation::workspace_files::content_hash;
use crate::error::Result;
use crate::workspace::FileChange;

/// The files that a phase changed, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct WrittenFiles {
    pub written: Vec<String>,
    pub deleted: Vec<String>,
    /// The files of this attempt, sorted.
    pub attempt_files: Vec<String>,
    /// The hash of each file that was written.
    pub hashes: BTreeMap<String, String>,
}

/// Writes the files of a phase.
pub(crate) trait Generator {
    /// Writes this phase's files into the workspace; they are on disk when it returns.
    fn write(&mut self, context: &mut Context) -> Result<WrittenFiles>;

    /// Whether the log has an answer of the phase that a resumed run is in.
    fn has_begun(&self, context: &Context) -> bool;

    /// The recorded run that answers in place of a model.
    fn replay(&self) -> Option<&Replay> {
        None
    }
}

/// Applies the changes of an answer, all or none.
pub(crate) fn apply(context: &Context, changes: &[FileChange]) -> Result<WrittenFiles> {
    context.workspace.apply(changes)?;
    let mut all = WrittenFiles::default();
    for change in changes {
        match change {
            FileChange::Write { path, content } => {
                all.written.push(path.to_string());
                all.hashes.insert(path.to_string(), content_hash(content));
            }
            FileChange::Delete { path } => all.deleted.push(path.to_string()),
        }
    }
    all.attempt_files = all.written.clone();
    all.attempt_files.sort();
    Ok(all)
}
