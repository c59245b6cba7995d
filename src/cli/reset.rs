//! `reset`: empties the workspace of a build and deletes `state.json`, in this order, so that an interrupted reset can be
//! repeated. The state is kept in `logs/`, for `status`. A workflow works on files of the user's, so its workspace stays.

use crate::build::kept_files::KEPT_NAMES;
use crate::build::kept_workspace::{KeptRun, KnownSnapshots, keep_workspace};
use crate::cli::decision::{not_generated, open_workspace};
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::output::print_stderr;
use crate::cli::resume_command::attempt_command;
use crate::error::{Error, Result};
use crate::snapshots::pending_apply::refuse_unfinished_apply;
use crate::state::run::RunState;
use crate::state::store::{LoadedState, Root};
use crate::workspace::Workspace;

/// Returns what is printed.
pub(super) fn main(env: &CliEnv) -> Result<String> {
    let root = Root::open(&env.root)?;
    root.refuse_links(&["workspace"])?;
    let _lock = root.lock()?;
    refuse_unfinished_apply(&root)?;
    root.sweep();
    let loaded = root.load()?;
    if let Err(error) = root.keep_state() {
        // On a full disk a reset is what frees space.
        print_stderr(&format!("warning: the state is not kept: {error}"));
    }
    let keeps_workspace = !matches!(loaded, LoadedState::Nothing | LoadedState::Build(_));
    let kept = match keeps_workspace {
        true => None,
        false => empty_workspace(&root, &loaded)?,
    };
    if let Some(caches) = env.compiler_caches() {
        let _ = caches.remove();
    }
    root.forget()?;
    let text = match (&loaded, keeps_workspace) {
        (LoadedState::Nothing, _) => "nothing to reset\n",
        (_, false) => "reset: workspace/ is empty, state.json is deleted\n",
        (_, true) => "reset: state.json is deleted; workspace/ is as it was\n",
    };
    Ok(match kept {
        Some((number, run_id)) => {
            let command =
                attempt_command("restore", number, Some(&run_id), env.named_root.as_deref());
            format!("{text}what was in it is kept: `{command}` brings it back\n")
        }
        None => text.into(),
    })
}

/// Empties the workspace of a build, which is kept first; files that no build wrote are refused.
fn empty_workspace(root: &Root, loaded: &LoadedState) -> Result<Option<(u32, String)>> {
    let Some(workspace) = open_workspace(root)? else {
        return Ok(None);
    };
    let kept = match loaded {
        LoadedState::Build(state) => keep(root, &workspace, state)?,
        _ if workspace.has_files_but(&KEPT_NAMES)? => return Err(not_generated(root)),
        _ => None,
    };
    let left = workspace.clear(&KEPT_NAMES)?;
    if left.is_empty() {
        return Ok(kept);
    }
    let left = format!("still there: {}", left.join(", ").escape_debug());
    Err(Error::io(
        "empty",
        &root.join("workspace"),
        std::io::Error::other(left),
    ))
}

/// Keeps the workspace as a snapshot of the run. Returns the number of the snapshot, and the run.
fn keep(root: &Root, workspace: &Workspace, state: &RunState) -> Result<Option<(u32, String)>> {
    let kept = KeptRun {
        run_id: &state.run_id,
        phase: state.phase.name(),
        why: "before reset",
    };
    let cancel = cancel_on_signals()?;
    let number = keep_workspace(root, workspace, kept, KnownSnapshots::Last, &cancel)?;
    Ok(number.map(|number| (number, state.run_id.clone())))
}
