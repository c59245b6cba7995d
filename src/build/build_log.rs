//! What the log says of a build: phase, rounds of checks, attempts, files. A fold, beside the one that all runs share.

use std::collections::{BTreeMap, BTreeSet};

use crate::build::attempts::Attempts;
use crate::build::progress::Progress;
use crate::build::protection::verified::RestoredFiles;
use crate::build::rounds::Rounds;
use crate::conversation::event_log::Projection;
use crate::conversation::workspace_files::counts_as_one;
use crate::error::{Error, Result};
use crate::events::{Event, TestedFile};
use crate::snapshots::objects::ObjectId;
use crate::state::phase::Phase;
use crate::state::run::RunState;

/// Files by name, each with the hash of its content where it is known.
pub(crate) type RecordedFiles = BTreeMap<String, Option<String>>;

/// The result of the checks on what was taken in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BaselineResult {
    pub passed: bool,
    pub report: String,
}

/// The run that this one continues.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContinuedRun {
    pub run_id: String,
    /// The id of the tree that the workspace had.
    pub tree: String,
    pub report: String,
}

impl ContinuedRun {
    pub(crate) fn tree(&self) -> Result<ObjectId> {
        ObjectId::parse(&self.tree)
            .ok_or_else(|| Error::Bug(format!("the log has no tree of the run {}", self.run_id)))
    }
}

/// The state of a build that follows from the events of its log. Only events change it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BuildLog {
    /// The phase that the last transition led to.
    pub(crate) phase: Option<Phase>,
    /// The retry count of the last transition.
    retry_count: Option<u32>,
    /// The files of the last attempt.
    attempt_files: Vec<String>,
    pub(crate) rounds: Rounds,
    attempts: Attempts,
    pub(crate) progress: Progress,
    baseline: Option<BaselineResult>,
    continued: Option<ContinuedRun>,
    /// The sandbox mode that the run had last.
    pub(crate) sandbox: Option<String>,
    /// Hidden files that are in the workspace.
    pub(crate) hidden: Vec<String>,
    /// The tree of the workspace before the hidden check that runs.
    before_hidden: Option<String>,
    /// What was restored since the last files were written: the model does not know of it yet.
    pub(crate) restored: RestoredFiles,
    /// The files that answers and tools wrote and did not delete since.
    files: RecordedFiles,
    /// Outcome and reason of a run that is over.
    pub(crate) end: Option<(String, String)>,
    /// `max_retries` of the spec when the run was last started.
    pub(crate) max_retries: Option<u32>,
    tested: Option<BTreeMap<String, TestedFile>>,
}

impl Projection for BuildLog {
    fn apply(&mut self, _line: u64, event: &Event) {
        self.rounds.apply(event);
        self.attempts.apply(event);
        self.progress.apply(event);
        match event {
            Event::WorkflowStarted {
                resumed,
                max_retries,
                ..
            } => {
                self.max_retries = *max_retries;
                // A run begins in INIT, which no transition leads to.
                self.phase = self.phase.or((!resumed).then_some(Phase::Init));
            }
            Event::TransitionOccurred {
                to_state, metadata, ..
            } => {
                self.phase = to_state.as_deref().and_then(Phase::of_name).or(self.phase);
                let count = metadata["retry_count"].as_u64();
                self.retry_count = count.and_then(|count| u32::try_from(count).ok());
                // A round that is over has removed them, also where the line that says so cannot be read.
                self.end_hidden_check();
            }
            Event::SandboxFound { mode, .. } => self.sandbox = Some(mode.clone()),
            Event::BaselineFinished { passed, report, .. } => {
                self.baseline = Some(BaselineResult {
                    passed: *passed,
                    report: report.clone(),
                });
            }
            Event::RunContinued {
                continues,
                tree,
                report,
                ..
            } => {
                self.continued = Some(ContinuedRun {
                    run_id: continues.clone(),
                    tree: tree.clone(),
                    report: report.clone(),
                });
            }
            Event::WorkspaceTested { files, .. } => self.tested = Some(files.clone()),
            Event::FilesApplied {
                written,
                deleted,
                hashes,
                ..
            } => {
                self.restored = RestoredFiles::default();
                self.attempt_files = hashes.keys().cloned().collect();
                deleted
                    .iter()
                    .for_each(|path| drop(self.files.remove(path)));
                let written = written.iter();
                self.files
                    .extend(written.map(|path| (path.clone(), hashes.get(path).cloned())));
            }
            Event::WorkflowCompleted {
                outcome, reason, ..
            } => self.end = Some((outcome.clone(), reason.clone())),
            Event::ProtectedRestored {
                restored, removed, ..
            } => self.restored.add(RestoredFiles {
                restored: restored.clone(),
                removed: removed.clone(),
            }),
            Event::HiddenFilesPlaced { paths, tree, .. } => {
                self.hidden.clone_from(paths);
                self.before_hidden.clone_from(tree);
            }
            Event::HiddenFilesRemoved { .. } => self.end_hidden_check(),
            _ => {}
        }
    }
}

impl BuildLog {
    fn end_hidden_check(&mut self) {
        self.hidden.clear();
        self.before_hidden = None;
    }

    /// The tree of the workspace before a hidden check that a crash interrupted.
    pub(crate) fn before_hidden(&self) -> Option<ObjectId> {
        self.before_hidden.as_deref().and_then(ObjectId::parse)
    }

    /// Moves a state on to TESTING if the log has that transition and the state is the one before it: a power cut may
    /// take the name of the newest `state.json`, and the files of the attempt were durable before it was written.
    pub(crate) fn lead_to_testing(&self, state: &mut RunState) {
        let retries = match state.phase {
            Phase::Generating => state.retry_count,
            Phase::Patching => state.retry_count + 1,
            Phase::Init | Phase::Testing | Phase::Success | Phase::Failed => return,
        };
        if self.phase == Some(Phase::Testing) && self.retry_count == Some(retries) {
            state.phase = Phase::Testing;
            state.retry_count = retries;
            state.max_retries = state.max_retries.max(retries);
            state.attempt_files.clone_from(&self.attempt_files);
        }
    }

    /// For the prompt: the attempts so far, and whether they failed alike.
    pub(crate) fn attempts_for_prompt(&self, state: &RunState) -> String {
        let summary = self.attempts.summary(state);
        match self.repeated_failure() {
            Some(repeated) => format!("{summary}\n\n{repeated}"),
            None => summary,
        }
    }

    /// For the prompt: that the last attempts failed alike.
    pub(crate) fn repeated_failure(&self) -> Option<String> {
        let equal = self.progress.failures_for_prompt()?;
        Some(self.attempts.repeated_failure(equal))
    }

    /// The checks before the first request, if there were any.
    pub(crate) fn baseline(&self) -> Option<&BaselineResult> {
        self.baseline.as_ref()
    }

    /// The run that this one continues.
    pub(crate) fn continued(&self) -> Option<&ContinuedRun> {
        self.continued.as_ref()
    }

    /// The files that all checks have passed on; `None` where the log is older than this record.
    pub(crate) fn tested(&self) -> Option<&BTreeMap<String, TestedFile>> {
        self.tested.as_ref()
    }

    /// How the files that another run wrote differ from these.
    pub fn file_difference(&self, now: &BuildLog) -> Option<String> {
        file_difference(&self.files, &now.files)
    }
}

/// The first file that differs. Of what an older version recorded only the name is known.
fn file_difference(recorded: &RecordedFiles, now: &RecordedFiles) -> Option<String> {
    let names: BTreeSet<&String> = recorded.keys().chain(now.keys()).collect();
    names
        .into_iter()
        .filter(|name| !counts_as_one(name))
        .find_map(|name| {
            let path = name.escape_debug();
            match (recorded.get(name), now.get(name)) {
                (Some(_), None) => Some(format!("{path} was written, and is not now")),
                (None, _) => Some(format!("{path} was not written, and is now")),
                (Some(Some(old)), Some(Some(new))) if old != new => Some(format!(
                    "{path} has another content (recorded {old}, now {new})"
                )),
                _ => None,
            }
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conversation::prefix_check::check_every_prefix;

    #[test]
    fn after_every_prefix_of_a_recorded_run_the_fold_of_the_log_is_the_live_projection() {
        let count = check_every_prefix::<BuildLog>(|_, _, _| {});
        assert!(count > 150, "{count} events");
    }

    #[test]
    fn the_files_of_two_ends_are_compared_by_name_and_content() {
        let files = |list: &[(&str, Option<&str>)]| -> RecordedFiles {
            list.iter()
                .map(|(name, hash)| ((*name).to_owned(), hash.map(str::to_owned)))
                .collect()
        };
        let recorded = files(&[("a", Some("1")), ("b", None), ("target", None)]);
        assert_eq!(
            file_difference(&recorded, &files(&[("a", Some("1")), ("b", Some("2"))])),
            None
        );
        for other in [
            &[("a", Some("2")), ("b", None)][..],
            &[("a", Some("1"))],
            &[("a", None), ("b", None), ("c", None)],
        ] {
            assert!(
                file_difference(&recorded, &files(other)).is_some(),
                "{other:?}"
            );
        }
    }
}
