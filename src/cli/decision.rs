//! Decides what `run` does in a root: report a run that is over, resume one, or start a new one.
//!
//! Everything that can refuse a run is checked here, before anything is changed.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::build::kept_files::KEPT_NAMES;
use crate::cli::env::CliEnv;
use crate::cli::programs;
use crate::cli::run_config::{RunConfig, RunResources};
use crate::error::{Error, Result};
use crate::events::ReplacedRun;
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::RunState;
use crate::state::store::{LoadedState, Root};
use crate::workspace::Workspace;

pub(super) enum RunDecision {
    /// The run is over; its result is reported again.
    Over(Box<RunState>),
    Start(Box<RunPlan>),
}

/// A run that is started or resumed.
pub(super) struct RunPlan {
    pub state: RunState,
    /// `None`: the run is resumed.
    pub fresh: Option<FreshStart>,
    pub resources: RunResources,
}

/// The start of a new run.
#[derive(Default)]
pub(super) struct FreshStart {
    /// What happened to the run before it.
    pub message: Option<String>,
    /// The run before it, if what it left is kept.
    pub replaces: Option<ReplacedRun>,
}

impl FreshStart {
    fn with_message(message: String) -> FreshStart {
        FreshStart {
            message: Some(message),
            replaces: None,
        }
    }
}

/// What `state.json` asks for.
enum LoadedBuild {
    Over(Box<RunState>),
    Resume(Box<RunState>),
    New(FreshStart),
}

pub(super) fn decide(config: &RunConfig, env: &CliEnv, root: &Root) -> Result<RunDecision> {
    let loaded = root.load()?;
    let (state, fresh) = match next_step(config, root, &loaded)? {
        LoadedBuild::Over(state) => return Ok(RunDecision::Over(state)),
        LoadedBuild::Resume(state) => (*state, None),
        LoadedBuild::New(fresh) => (config.new_run(), Some(fresh)),
    };
    let resources = RunResources::find(config, env)?;
    let mode = resources.sandbox.as_ref().map(|found| found.mode);
    programs::refuse_missing(&config.spec, &config.root, &config.host.caller, mode)?;
    match loaded {
        LoadedState::Nothing => refuse_foreign_files(root)?,
        LoadedState::Corrupt(_) => drop(root.set_aside()?),
        LoadedState::Build(_) | LoadedState::Workflow(_) | LoadedState::CorruptWorkflow(_) => {}
    }
    Ok(RunDecision::Start(Box::new(RunPlan {
        state,
        fresh,
        resources,
    })))
}

fn next_step(config: &RunConfig, root: &Root, loaded: &LoadedState) -> Result<LoadedBuild> {
    let fresh = |message| Ok(LoadedBuild::New(FreshStart::with_message(message)));
    match loaded {
        LoadedState::Workflow(_) | LoadedState::CorruptWorkflow(_) => Err(Error::Usage(
            "the root has the run of a workflow\nhelp: `orchestrator reset` deletes its state, \
             or use another --root"
                .into(),
        )),
        LoadedState::Nothing => Ok(LoadedBuild::New(FreshStart::default())),
        LoadedState::Corrupt(problem) if config.starts_over => {
            fresh(format!("state.json was corrupt: {problem}"))
        }
        LoadedState::Corrupt(problem) => {
            record_corruption(config, root, &problem.to_string()).map(LoadedBuild::Over)
        }
        LoadedState::Build(state) if config.starts_over => {
            fresh(format!("the run {} is thrown away", state.run_id))
        }
        LoadedState::Build(state) if state.reason == Some(Reason::StateCorrupt) => {
            Ok(LoadedBuild::Over(state.clone()))
        }
        LoadedState::Build(state) if state.spec_hash != config.inputs.hash => {
            replace_run(root, state).map(LoadedBuild::New)
        }
        LoadedState::Build(state) if state.phase.is_terminal() => {
            Ok(LoadedBuild::Over(state.clone()))
        }
        LoadedState::Build(state) => Ok(LoadedBuild::Resume(state.clone())),
    }
}

/// The start of a run in place of one of another spec. What that one left is kept.
fn replace_run(root: &Root, state: &RunState) -> Result<FreshStart> {
    let message = format!(
        "the spec has changed: a new run replaces the run {} of {} ({})",
        state.run_id,
        state.spec_file,
        state.phase.name()
    );
    let Some(workspace) = open_workspace(root)? else {
        return Ok(FreshStart::with_message(message));
    };
    if !workspace.has_files_but(&KEPT_NAMES)? && state.usage.llm_calls == 0 {
        return Ok(FreshStart::with_message(message));
    }
    root.directory("logs")?;
    if device(&root.join("workspace"))? != device(&root.join("logs"))? {
        return Err(Error::Usage(format!(
            "{message}, but workspace/ cannot be kept in logs/, which is on another file system\n\
             help: move the files of workspace/ away and run `orchestrator reset`, or discard them with --no-resume"
        )));
    }
    Ok(FreshStart {
        message: Some(message),
        replaces: Some(ReplacedRun {
            run_id: state.run_id.clone(),
            spec_file: state.spec_file.clone(),
        }),
    })
}

fn device(path: &Path) -> Result<u64> {
    let metadata = std::fs::metadata(path).map_err(|error| Error::io("stat", path, error))?;
    Ok(metadata.dev())
}

/// Refuses a workspace with files but without a `state.json`: they were not generated.
fn refuse_foreign_files(root: &Root) -> Result<()> {
    match open_workspace(root)? {
        Some(workspace) if workspace.has_files_but(&KEPT_NAMES)? => Err(not_generated(root)),
        _ => Ok(()),
    }
}

/// Refuses a workspace with files that no run is known to have generated.
pub(super) fn not_generated(root: &Root) -> Error {
    Error::Usage(format!(
        "{} has files, but there is no state.json, so they were not generated here\n\
         help: move them away, or use another --root",
        root.join("workspace").display()
    ))
}

/// Opens `workspace/` if it exists.
pub(super) fn open_workspace(root: &Root) -> Result<Option<Workspace>> {
    let path = root.join("workspace");
    path.exists()
        .then(|| Workspace::open(root.handle(), "workspace", &path))
        .transpose()
}

/// Keeps a corrupt `state.json` under another name and writes a FAILED one with the reason.
fn record_corruption(config: &RunConfig, root: &Root, problem: &str) -> Result<Box<RunState>> {
    let name = root.set_aside()?;
    let mut state = config.new_run();
    state.phase = Phase::Failed;
    state.reason = Some(Reason::StateCorrupt);
    state.last_error = Some(format!(
        "state.json is corrupt ({problem}); it is kept as {name}; `orchestrator reset` or --no-resume starts a new run"
    ));
    root.save(&mut state)?;
    Ok(Box::new(state))
}
