//! Keeps the files of a run of another spec when a new run replaces it in the root.
//!
//! The log of the new run names the old one before anything is moved; the files are renamed to
//! `logs/<run_id>/workspace`, and the log records that before new ones are written. After a crash in between, the
//! remaining renames follow.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::build::context::Context;
use crate::build::kept_files::KEPT_NAMES;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT, ReplacedRun};
use crate::state::run::is_run_id;
use crate::state::store::{Root, STATE_FILE};

/// How many workspaces of earlier runs a root keeps; the oldest are removed.
const MAX_KEPT: usize = 20;
const FOLDER: &str = "workspace";

/// Keeps the state of the replaced run in its folder in `logs/`; the workspace follows in INIT.
pub(crate) fn set_state_aside(root: &Root, replaced: &ReplacedRun) -> Result<()> {
    let folder = folder_of(root, replaced);
    make_room(&folder).map_err(|error| Error::io("make room in", &folder, error))?;
    root.keep_state()
}

/// Moves the files of the replaced run out of the workspace, once, and notes how to restore them.
pub(crate) fn set_workspace_aside(context: &mut Context) -> Result<()> {
    let Some(replaced) = context.facts(|facts| facts.replaced().cloned()) else {
        return Ok(());
    };
    let folder = folder_of(&context.root, &replaced).join(FOLDER);
    fs::create_dir_all(&folder).map_err(|error| Error::io("create", &folder, error))?;
    let failed = |error| Error::io("move workspace/ to", &folder, error);
    let target = fs::File::open(&folder).map_err(failed)?;
    context
        .workspace
        .move_to(target.as_fd(), &folder, &KEPT_NAMES)?;
    target.sync_all().map_err(failed)?;
    fs::File::open(folder.parent().unwrap_or(&folder))
        .and_then(|parent| parent.sync_all())
        .map_err(failed)?;
    let ReplacedRun { run_id, spec_file } = &replaced;
    let note = format!(
        "the run {run_id} of {spec_file} is kept: its workspace is logs/{run_id}/workspace; to restore it, in the root: \
         orchestrator reset && cp -a logs/{run_id}/workspace logs/{run_id}/{STATE_FILE} ."
    );
    context.log.note(note)?;
    context.log.record_synced(Event::WorkspaceKept {
        agent_id: MAIN_AGENT.into(),
        kept: replaced,
    })?;
    remove_the_oldest(&context.root.join("logs"));
    Ok(())
}

/// Renames a workspace that is already there, from a run that was restored by hand.
fn make_room(folder: &Path) -> io::Result<()> {
    let earlier = folder.join(FOLDER);
    let mut names = (1..).map(|number| folder.join(format!("{FOLDER}-{number}")));
    match names
        .find(|name| !name.exists())
        .filter(|_| earlier.is_dir())
    {
        Some(name) => fs::rename(earlier, name),
        None => Ok(()),
    }
}

fn folder_of(root: &Root, replaced: &ReplacedRun) -> PathBuf {
    root.join("logs").join(&replaced.run_id)
}

/// Removes workspaces beyond the number that is kept; errors are ignored.
fn remove_the_oldest(logs: &Path) {
    let runs = fs::read_dir(logs)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            entry.file_name().to_str().is_some_and(is_run_id)
                && entry.file_type().is_ok_and(|kind| kind.is_dir())
        });
    let time_of = |path: &PathBuf| {
        fs::symlink_metadata(path.join(STATE_FILE))
            .and_then(|data| data.modified())
            .ok()
    };
    let mut kept: Vec<(SystemTime, PathBuf)> = runs
        .map(|entry| entry.path())
        .filter(|path| path.join(FOLDER).is_dir())
        .filter_map(|path| Some((time_of(&path)?, path)))
        .collect();
    kept.sort();
    let too_many = kept.len().saturating_sub(MAX_KEPT);
    for (_, path) in kept.into_iter().take(too_many) {
        let _ = fs::remove_dir_all(path.join(FOLDER));
    }
}
