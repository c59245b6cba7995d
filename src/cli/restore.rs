//! `restore`: brings an attempt back into `workspace/`; what is there is kept as a snapshot first.

use std::path::PathBuf;

use crate::build::attempt_store::AttemptStore;
use crate::build::kept_files::KEPT_NAMES;
use crate::build::kept_workspace::{KeptRun, KnownSnapshots, append, keep_workspace};
use crate::cli::best_attempt::best_attempt;
use crate::cli::decision::not_generated;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::output::print_stderr;
use crate::cli::run_names::find_run;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::snapshots::records::{RunSnapshots, SnapshotRecord};
use crate::state::run::RunState;
use crate::state::store::{LoadedState, Root};
use crate::workspace::Workspace;

/// An attempt that is to be brought back, and the run that the workspace belongs to.
struct RestorePlan {
    run_id: String,
    record: SnapshotRecord,
    current: Option<RunState>,
}

/// Returns what is printed.
pub(super) fn main(env: &CliEnv, number: u32, run: Option<&str>) -> Result<String> {
    let root = Root::open(&env.root)?;
    root.refuse_links(&["workspace", "logs"])?;
    let _lock = root.lock()?;
    root.sweep();
    let run_id = find_run(&root, run)?;
    let plan = RestorePlan {
        record: find_attempt(&root, &run_id, number)?,
        current: current_run(&root)?,
        run_id,
    };
    let workspace = Workspace::open(root.handle(), "workspace", &root.join("workspace"))?;
    if plan.current.is_none() && workspace.has_files_but(&KEPT_NAMES)? {
        return Err(not_generated(&root));
    }
    plan.carry_out(&root, &workspace)
}

/// Leaves the best attempt of a run that has failed in the workspace, unless it is there.
pub(super) fn restore_best(root: &Root, state: &RunState) -> Result<()> {
    let mut records = RunSnapshots::of(root, &state.run_id).list()?;
    let best = best_attempt(&records).map(|best| best.number);
    let Some(record) = best.and_then(|number| records.remove(&number)) else {
        return Ok(());
    };
    let plan = RestorePlan {
        run_id: state.run_id.clone(),
        record,
        current: Some(state.clone()),
    };
    let workspace = Workspace::open(root.handle(), "workspace", &root.join("workspace"))?;
    print_stderr(plan.carry_out(root, &workspace)?.trim_end());
    Ok(())
}

impl RestorePlan {
    fn carry_out(&self, root: &Root, workspace: &Workspace) -> Result<String> {
        let cancel = cancel_on_signals()?;
        let current = self.current.as_ref();
        let owner = current.map_or(&self.run_id, |state| &state.run_id);
        let kept = KeptRun {
            run_id: owner,
            phase: current.map_or("", |state| state.phase.name()),
            why: "before restore",
        };
        let before = keep_workspace(root, workspace, kept, KnownSnapshots::All, &cancel)?;
        if current.is_none() {
            bring_back_state(root, &self.run_id)?;
        }
        if *owner == self.run_id && before == Some(self.record.number) {
            return Ok(self.text(None, &[]));
        }
        let mut attempts = AttemptStore::open(root, owner)?;
        let missing = attempts.bring_back(workspace, self.record.tree, &cancel)?;
        let from_run = (*owner != self.run_id).then(|| self.run_id.clone());
        let restored = Event::SnapshotRestored {
            agent_id: MAIN_AGENT.into(),
            number: self.record.number,
            from_run,
        };
        append(root, owner, &[restored])?;
        Ok(self.text(before.map(|number| (number, owner.as_str())), &missing))
    }

    /// What is printed; `before` is the snapshot of what was there.
    fn text(&self, before: Option<(u32, &str)>, missing: &[PathBuf]) -> String {
        let SnapshotRecord {
            number, unstored, ..
        } = &self.record;
        let mut text = format!("workspace/ is attempt {number} of run {}\n", self.run_id);
        if let Some((number, run_id)) = before {
            text += &format!("what was there is kept: attempt {number} of run {run_id}\n");
        }
        let folders = unstored
            .iter()
            .filter(|entry| entry.is_folder && entry.is_noteworthy());
        for folder in folders {
            text += &format!(
                "{} is not part of snapshots: it stays as it is\n",
                folder.shown()
            );
        }
        for path in missing {
            let path = path.to_string_lossy();
            text += &format!(
                "{} was not stored and cannot be brought back\n",
                path.escape_debug()
            );
        }
        text
    }
}

/// The snapshot with this number.
pub(super) fn find_attempt(root: &Root, run_id: &str, number: u32) -> Result<SnapshotRecord> {
    let mut records = RunSnapshots::of(root, run_id).list()?;
    let known: Vec<String> = records.keys().map(ToString::to_string).collect();
    records.remove(&number).ok_or_else(|| {
        let known = match known.is_empty() {
            true => "none is kept".to_owned(),
            false => format!("there are {}", known.join(", ")),
        };
        Error::Usage(format!(
            "there is no attempt {number} of run {run_id}: {known}"
        ))
    })
}

fn current_run(root: &Root) -> Result<Option<RunState>> {
    match root.load()? {
        LoadedState::Build(state) => Ok(Some(*state)),
        LoadedState::Nothing => Ok(None),
        LoadedState::Workflow(_) | LoadedState::CorruptWorkflow(_) => Err(Error::Usage(
            "the root has the run of a workflow\nhelp: `orchestrator reset` deletes its state"
                .into(),
        )),
        LoadedState::Corrupt(problem) => Err(Error::StateCorrupt(format!(
            "{} is corrupt: {problem}\nhelp: `orchestrator reset` deletes it",
            root.join("state.json").display()
        ))),
    }
}

/// After a reset the state of the run comes back with its files, so that they count as generated.
fn bring_back_state(root: &Root, run_id: &str) -> Result<()> {
    match root.load_kept_state(run_id) {
        Some(LoadedState::Build(mut state)) => root.save(&mut state),
        _ => Err(Error::Usage(format!(
            "the state of run {run_id} is not kept, so its files cannot be brought back here\n\
             help: `orchestrator diff --run {run_id}` shows them"
        ))),
    }
}
