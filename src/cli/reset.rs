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
    let has_run = !matches!(loaded, LoadedState::Nothing);
    if let Err(error) = root.keep_state() {
        // On a full disk a reset is what frees space.
        print_stderr(&format!("warning: the state is not kept: {error}"));
    }
    let mut kept = None;
    let keeps_workspace = !matches!(loaded, LoadedState::Nothing | LoadedState::Build(_));
    if !keeps_workspace && let Some(workspace) = open_workspace(&root)? {
        if !has_run && workspace.has_files_but(&KEPT_NAMES)? {
            return Err(not_generated(&root));
        }
        if let LoadedState::Build(state) = &loaded {
            kept = keep(&root, &workspace, state)?;
        }
        let left = workspace.clear(&KEPT_NAMES)?;
        if !left.is_empty() {
            let left =
                std::io::Error::other(format!("still there: {}", left.join(", ").escape_debug()));
            return Err(Error::io("empty", &root.join("workspace"), left));
        }
    }
    if let Some(caches) = env.compiler_caches() {
        let _ = caches.remove();
    }
    root.forget()?;
    let text = match (has_run, keeps_workspace) {
        (false, _) => "nothing to reset\n",
        (true, false) => "reset: workspace/ is empty, state.json is deleted\n",
        (true, true) => "reset: state.json is deleted; workspace/ is as it was\n",
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
