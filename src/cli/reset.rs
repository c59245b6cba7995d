//! `reset`: an empty workspace and no run. `state.json` goes last, so that a reset that was stopped goes on.

use crate::build::kept_files::KEPT_NAMES;
use crate::cli::env::CliEnv;
use crate::cli::wiring;
use crate::error::{Error, Result};
use crate::state::store::{LoadedState, Root};
use crate::workspace::Workspace;

/// Empties the workspace and forgets the run; returns what is printed.
pub fn main(env: &CliEnv) -> Result<String> {
    let root = Root::open(&env.root)?;
    root.refuse_links(&["workspace"])?;
    let _lock = root.lock()?;
    root.sweep();
    let path = root.join("workspace");
    let is_ours = !matches!(root.load()?, LoadedState::Nothing);
    if path.exists() {
        let workspace = Workspace::open(root.handle(), "workspace", &path)?;
        if !is_ours && workspace.has_files_but(&KEPT_NAMES)? {
            return Err(foreign(&root));
        }
        let left = workspace.clear(&KEPT_NAMES)?;
        if !left.is_empty() {
            let left =
                std::io::Error::other(format!("still there: {}", left.join(", ").escape_debug()));
            return Err(Error::io("empty", &path, left));
        }
    }
    wiring::forget_caches(env);
    root.forget()?;
    Ok(if is_ours {
        "reset: workspace/ is empty, the run is forgotten\n"
    } else {
        "nothing to reset\n"
    }
    .into())
}

/// Returns the refusal of a workspace whose files no run of ours is known to have made.
pub fn foreign(root: &Root) -> Error {
    Error::Usage(format!(
        "{} holds files, and there is no state.json that says they are generated; move them away, or name another --root",
        root.join("workspace").display()
    ))
}
