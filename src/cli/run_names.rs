//! Runs of a root by their id, or by the beginning of it.

use crate::cli::known_run::{SavedState, logged_runs};
use crate::error::{Error, Result};
use crate::snapshots::records::RunSnapshots;
use crate::state::store::{LoadedState, Root};
use crate::text::invisible::escaped;

/// The least characters of a run id that name a run.
const SHORTEST_ID: usize = 4;

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

/// The run that an id, or an unambiguous beginning of one, names.
pub(super) fn named_run(root: &Root, id: &str) -> Result<String> {
    let mut known = logged_runs(root)?;
    known.extend(SavedState::of(root.load()?).map(|state| state.run_id().to_owned()));
    if known.contains(id) {
        return Ok(id.to_owned());
    }
    let is_long_enough = SHORTEST_ID <= id.len();
    let matching: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .filter(|known| is_long_enough && known.starts_with(id))
        .collect();
    let shown = escaped(id);
    match matching[..] {
        [one] => Ok(one.to_owned()),
        [] if !is_long_enough => Err(Error::Usage(format!(
            "invalid run {shown}: expected a run id, or its first {SHORTEST_ID} characters or more\n\
             help: `orchestrator runs` lists the runs"
        ))),
        [] => Err(Error::Usage(format!(
            "there is no run {shown} in {}\nhelp: `orchestrator runs` lists the runs",
            root.path.display()
        ))),
        _ => Err(Error::Usage(format!(
            "the run {shown} is ambiguous: {}",
            matching.join(", ")
        ))),
    }
}
