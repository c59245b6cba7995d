//! `reset`: empties the workspace and deletes `state.json`, in this order, so that an interrupted reset can be repeated.

use crate::build::kept_files::KEPT_NAMES;
use crate::cli::decision::{not_generated, open_workspace};
use crate::cli::env::CliEnv;
use crate::error::{Error, Result};
use crate::state::store::{LoadedState, Root};

/// Returns what is printed.
pub(super) fn main(env: &CliEnv) -> Result<String> {
    let root = Root::open(&env.root)?;
    root.refuse_links(&["workspace"])?;
    let _lock = root.lock()?;
    root.sweep();
    let has_run = !matches!(root.load()?, LoadedState::Nothing);
    if let Some(workspace) = open_workspace(&root)? {
        if !has_run && workspace.has_files_but(&KEPT_NAMES)? {
            return Err(not_generated(&root));
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
    Ok(if has_run {
        "reset: workspace/ is empty, state.json is deleted\n"
    } else {
        "nothing to reset\n"
    }
    .into())
}
