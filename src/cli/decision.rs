//! Decides what `run` does in a root: report a run that is over, resume one, or start a new one.
//!
//! Everything that can refuse a run is checked here, before anything is changed.

use crate::build::build_log::BuildLog;
use crate::build::kept_files::KEPT_NAMES;
use crate::build::kept_workspace;
use crate::build::tested_files;
use crate::cancel::CancelToken;
use crate::cli::env::CliEnv;
use crate::cli::programs;
use crate::cli::run_config::{RunConfig, RunResources};
use crate::error::{Error, Result};
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
    /// The run before it.
    pub before: Option<Box<RunState>>,
    /// Whether it continues that run.
    pub continues: bool,
    /// Whether that run was asked for by another spec: the user may not know that it is replaced.
    pub is_of_another_spec: bool,
}

/// What `state.json` asks for.
enum LoadedBuild {
    Over(Box<RunState>),
    Resume(Box<RunState>),
    New(FreshStart),
}

pub(super) fn decide(
    config: &RunConfig,
    env: &CliEnv,
    root: &Root,
    cancel: &CancelToken,
) -> Result<RunDecision> {
    let loaded = root.load()?;
    let (state, fresh) = match next_step(config, root, &loaded, cancel)? {
        LoadedBuild::Over(state) => return Ok(RunDecision::Over(state)),
        LoadedBuild::Resume(state) => (*state, None),
        LoadedBuild::New(fresh) => {
            let before = fresh.before.as_ref().filter(|_| fresh.continues);
            let continues = before.map(|before| before.run_id.clone());
            (config.new_run(continues), Some(fresh))
        }
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

fn next_step(
    config: &RunConfig,
    root: &Root,
    loaded: &LoadedState,
    cancel: &CancelToken,
) -> Result<LoadedBuild> {
    match loaded {
        LoadedState::Workflow(_) | LoadedState::CorruptWorkflow(_) => Err(Error::Usage(
            "the root has the run of a workflow\nhelp: `orchestrator reset` deletes its state, \
             or use another --root"
                .into(),
        )),
        LoadedState::Nothing if config.continues => {
            Err(nothing_to_continue("there is no run here"))
        }
        LoadedState::Nothing => Ok(LoadedBuild::New(FreshStart::default())),
        LoadedState::Corrupt(problem) if config.starts_over => Ok(LoadedBuild::New(FreshStart {
            message: Some(format!("state.json was corrupt: {problem}")),
            ..FreshStart::default()
        })),
        LoadedState::Corrupt(problem) => {
            record_corruption(config, root, &problem.to_string()).map(LoadedBuild::Over)
        }
        LoadedState::Build(state) => of_build(config, root, state, cancel),
    }
}

fn of_build(
    config: &RunConfig,
    root: &Root,
    state: &RunState,
    cancel: &CancelToken,
) -> Result<LoadedBuild> {
    let replaced_by = |message: String| {
        LoadedBuild::New(FreshStart {
            message: Some(message),
            before: Some(Box::new(state.clone())),
            continues: false,
            is_of_another_spec: !config.starts_over,
        })
    };
    let run_id = &state.run_id;
    if config.starts_over {
        return Ok(replaced_by(format!("the run {run_id} is thrown away")));
    }
    if config.continues {
        return continuation(root, state, cancel).map(LoadedBuild::New);
    }
    if state.reason == Some(Reason::StateCorrupt) {
        return Ok(LoadedBuild::Over(Box::new(state.clone())));
    }
    if state.spec_hash != config.inputs.hash {
        return Ok(replaced_by(format!(
            "the spec has changed: a new run replaces the run {run_id} of {} ({})",
            state.spec_file,
            state.phase.name()
        )));
    }
    let state = Box::new(state.clone());
    Ok(match state.phase.is_terminal() {
        true => LoadedBuild::Over(state),
        false => LoadedBuild::Resume(state),
    })
}

/// The start of a run that continues another one, if that can be.
fn continuation(root: &Root, state: &RunState, cancel: &CancelToken) -> Result<FreshStart> {
    let run_id = &state.run_id;
    let can_be_continued = match (state.phase, state.reason) {
        (Phase::Failed, Some(reason)) => reason.is_continuable(),
        (Phase::Success, _) => {
            let build_log = kept_workspace::read_build_log(root, run_id)?;
            !changes_since_success(root, state, &build_log, cancel)?.is_empty()
        }
        _ => false,
    };
    let reason = state.reason.map(|reason| reason.to_string());
    match (can_be_continued, reason) {
        (true, _) => Ok(FreshStart {
            message: Some(format!("this run continues the run {run_id}")),
            before: Some(Box::new(state.clone())),
            continues: true,
            is_of_another_spec: false,
        }),
        (false, None) => Err(nothing_to_continue(&format!(
            "the run {run_id} is not over; the same command without --continue goes on with it"
        ))),
        (false, Some(reason)) => Err(nothing_to_continue(&format!(
            "the run {run_id} ended {} ({reason}); --no-resume starts a new one",
            state.phase.name()
        ))),
    }
}

fn nothing_to_continue(why: &str) -> Error {
    Error::Usage(format!("nothing can be continued: {why}"))
}

/// What differs in the workspace of a SUCCESS from what was tested, if the log says what that was.
pub(super) fn changes_since_success(
    root: &Root,
    state: &RunState,
    build_log: &BuildLog,
    cancel: &CancelToken,
) -> Result<Vec<String>> {
    match build_log.tested().filter(|_| state.phase == Phase::Success) {
        Some(tested) => tested_files::changes(open_workspace(root)?.as_ref(), tested, cancel),
        None => Ok(Vec::new()),
    }
}

/// Refuses a workspace with files but without a `state.json`: they were not generated.
pub(super) fn refuse_foreign_files(root: &Root) -> Result<()> {
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
    let mut state = config.new_run(None);
    state.phase = Phase::Failed;
    state.reason = Some(Reason::StateCorrupt);
    state.last_error = Some(format!(
        "state.json is corrupt ({problem}); it is kept as {name}; `orchestrator reset` or --no-resume starts a new run"
    ));
    root.save(&mut state)?;
    Ok(Box::new(state))
}
