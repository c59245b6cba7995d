//! Runs of a root by their id, or by the beginning of it.

use crate::error::{Error, Result};
use crate::snapshots::records::RunSnapshots;
use crate::state::store::{LoadedState, Root};

/// The fewest characters that name a run.
const SHORTEST: usize = 4;

/// The run that is meant: the one that is named, else the one in `state.json`, else the newest with snapshots.
pub(super) fn find_run(root: &Root, given: Option<&str>) -> Result<String> {
    if let Some(given) = given {
        return named_run(root, given);
    }
    match root.load()? {
        LoadedState::Build(state) => return Ok(state.run_id),
        LoadedState::Workflow(_) | LoadedState::CorruptWorkflow(_) => {
            return Err(Error::Usage(
                "the run in this root is a workflow, which has no attempts".into(),
            ));
        }
        LoadedState::Nothing | LoadedState::Corrupt(_) => {}
    }
    let newest = RunSnapshots::all(root)?.pop();
    newest
        .map(|(run_id, _)| run_id)
        .ok_or_else(|| Error::Usage(format!("there is no run in {}", root.path.display())))
}

fn named_run(root: &Root, given: &str) -> Result<String> {
    let known = RunSnapshots::all(root)?
        .into_iter()
        .map(|(run_id, _)| run_id);
    let mut found = known
        .filter(|run_id| run_id == given || given.len() >= SHORTEST && run_id.starts_with(given));
    match (found.next(), found.next()) {
        (Some(run_id), None) => Ok(run_id),
        (Some(_), Some(_)) => Err(Error::Usage(format!(
            "several runs begin with {given}: write more of the id"
        ))),
        (None, _) => Err(Error::Usage(format!(
            "no attempts of a run {given} are kept here\nhelp: `orchestrator runs` lists the runs"
        ))),
    }
}
