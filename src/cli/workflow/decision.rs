//! Decides what `run --workflow` does in a root: report a run that is over, resume one, or start a new one.
//!
//! Everything that can refuse a run is checked here, before anything is changed.

use crate::cli::env::CliEnv;
use crate::cli::log_file::log_file;
use crate::cli::output::print_stderr;
use crate::cli::workflow::answers::assign_answers;
use crate::cli::workflow::config::WorkflowConfig;
use crate::cli::workflow::settings::RunSettings;
use crate::cli::workflow::wiring::{self, OpenedLogFile};
use crate::conversation::session::is_complete;
use crate::error::{Error, Result};
use crate::observers::workflow_text::run_lines;
use crate::state::reason::Reason;
use crate::state::run::new_run_id;
use crate::state::store::{LoadedState, Root};
use crate::state::workflow::{NewWorkflow, WorkflowPhase, WorkflowState};
use crate::workflow::agent_record::SessionPoint;

pub(super) enum WorkflowDecision {
    /// The run is over; its result is reported again.
    Over(Box<WorkflowState>),
    Start(Box<WorkflowPlan>),
}

/// A run that is started or resumed.
pub(super) struct WorkflowPlan {
    pub(super) state: WorkflowState,
    /// `None`: the run is resumed. Else what happened to the run before it, if there was one.
    pub(super) fresh: Option<Option<String>>,
    pub(super) settings: RunSettings,
    pub(super) opened: OpenedLogFile,
    /// The agents that are answered, with the answers.
    pub(super) answers: Vec<(String, String)>,
}

/// What `state.json` asks for.
enum LoadedRun {
    Over(Box<WorkflowState>),
    Resume(Box<WorkflowState>),
    New(Option<String>),
}

pub(super) fn decide(
    config: &WorkflowConfig,
    env: &CliEnv,
    root: &Root,
) -> Result<WorkflowDecision> {
    let loaded = root.load()?;
    let is_corrupt = matches!(
        loaded,
        LoadedState::Corrupt(_) | LoadedState::CorruptWorkflow(_)
    );
    let (state, fresh, opened) = match loaded_run(config, root, loaded)? {
        LoadedRun::Over(state) => {
            assign_answers(&config.answers, env, &[])?;
            return Ok(WorkflowDecision::Over(state));
        }
        LoadedRun::Resume(state) => match open_log(config, env, root, *state)? {
            OpenedState::Over(state) => return Ok(WorkflowDecision::Over(state)),
            OpenedState::Resume(state, opened) => (*state, None, Some(*opened)),
        },
        LoadedRun::New(message) => (new_state(config), Some(message), None),
    };
    let settings = RunSettings::resolve(config, env, &state.options)?;
    let asking = wiring::asking_agents(&state);
    let answers = assign_answers(&config.answers, env, &asking)?;
    if is_corrupt {
        root.set_aside()?;
    }
    let opened = match opened {
        Some(opened) => opened,
        None => wiring::open_log(env, root, &state.run_id, None)?,
    };
    let mut state_hashes = config.scope.hashes();
    if fresh.is_none() && config.scope.directory.starts_with(&settings.folder) {
        // Programs of the run can add files there; they do not become states.
        state_hashes.retain(|name, _| state.state_hashes.contains_key(name));
    }
    let state = WorkflowState {
        options: settings.options.clone(),
        state_hashes,
        ..state
    };
    Ok(WorkflowDecision::Start(Box::new(WorkflowPlan {
        state,
        fresh,
        settings,
        opened,
        answers,
    })))
}

fn new_state(config: &WorkflowConfig) -> WorkflowState {
    WorkflowState::new(NewWorkflow {
        run_id: new_run_id(),
        workflow: config.workflow.clone(),
        input: config.input.clone(),
        options: config.options.clone(),
        state_hashes: config.scope.hashes(),
    })
}

fn loaded_run(config: &WorkflowConfig, root: &Root, loaded: LoadedState) -> Result<LoadedRun> {
    match loaded {
        LoadedState::Build(_) => Err(Error::Usage(
            "the root has the run of a spec\nhelp: `orchestrator reset` empties workspace/ and deletes its state, or use \
             another --root"
                .into(),
        )),
        LoadedState::Nothing => Ok(LoadedRun::New(None)),
        LoadedState::Corrupt(problem) | LoadedState::CorruptWorkflow(problem)
            if config.starts_over => Ok(LoadedRun::New(Some(format!(
            "state.json was corrupt: {problem}"
        )))),
        LoadedState::Corrupt(problem) | LoadedState::CorruptWorkflow(problem) => {
            record_corruption(config, root, &problem.to_string()).map(LoadedRun::Over)
        }
        LoadedState::Workflow(state) => workflow_run(config, state),
    }
}

fn workflow_run(config: &WorkflowConfig, state: Box<WorkflowState>) -> Result<LoadedRun> {
    let id = &state.run_id;
    if config.starts_over {
        let message = format!("the run {id} is thrown away, a new run starts");
        return Ok(LoadedRun::New(Some(message)));
    }
    if state.is_corrupt() {
        return Ok(LoadedRun::Over(state));
    }
    if state.reason == Some(Reason::ReplayMismatch) {
        let message = format!("the run {id} was a replay that did not match: a new run starts");
        return Ok(LoadedRun::New(Some(message)));
    }
    if state.state != WorkflowPhase::Success {
        return match difference(config, &state, true) {
            None => Ok(LoadedRun::Resume(state)),
            Some(what) => Err(Error::Usage(format!(
                "the root has an unfinished run ({id}, {}) with another {what}\n\
                 help: go on with it (`orchestrator status` has the command), or throw it away with --no-resume",
                state.state.name()
            ))),
        };
    }
    let changed = difference(config, &state, false)
        .or((state.state_hashes != config.scope.hashes()).then_some("content of its states"));
    Ok(match changed {
        None => LoadedRun::Over(state),
        Some(what) => LoadedRun::New(Some(format!(
            "the run {id} is over and had another {what}: a new run starts"
        ))),
    })
}

/// What a command line asks for differs in from a run. On a resume the input and the folder may be left out.
fn difference(
    config: &WorkflowConfig,
    state: &WorkflowState,
    is_resume: bool,
) -> Option<&'static str> {
    let left_out = |is_given: bool| is_resume && !is_given;
    let (folder, input) = (&config.options.project_dir, &config.input);
    let has_folder = left_out(folder.is_some()) || *folder == state.options.project_dir;
    let has_input = left_out(input.is_some()) || *input == state.input;
    match () {
        () if config.workflow != state.workflow => Some("workflow or start"),
        () if !has_folder => Some("folder"),
        () if !has_input => Some("input"),
        () => None,
    }
}

/// Keeps a corrupt `state.json` under another name and writes a FAILED one with the reason.
fn record_corruption(
    config: &WorkflowConfig,
    root: &Root,
    problem: &str,
) -> Result<Box<WorkflowState>> {
    let name = root.set_aside()?;
    print_stderr(&run_lines(&format!(
        "error: state.json is corrupt ({problem}); it is kept as {name}"
    )));
    let mut state = new_state(config);
    state.state = WorkflowPhase::Failed;
    state.reason = Some(Reason::StateCorrupt);
    root.save_workflow(&mut state)?;
    Ok(Box::new(state))
}

/// What the log makes of a saved state.
enum OpenedState {
    /// The log says that the run is over; the state did not know yet.
    Over(Box<WorkflowState>),
    Resume(Box<WorkflowState>, Box<OpenedLogFile>),
}

/// Opens the log of a run; one that lacks what the state refers to is refused, and the state stays.
fn open_log(
    config: &WorkflowConfig,
    env: &CliEnv,
    root: &Root,
    mut state: WorkflowState,
) -> Result<OpenedState> {
    let lacking = |what: &str| {
        Error::StateCorrupt(format!(
            "logs/{}.log lacks {what} that state.json refers to\n\
             help: put the log back, or start a new run with --no-resume",
            state.run_id
        ))
    };
    if !log_file(root, &state.run_id).is_file() {
        return Err(lacking("everything"));
    }
    let mut opened = wiring::open_log(env, root, &state.run_id, Some(&state))?;
    if opened.journal_lines() < state.seq {
        return Err(lacking("lines"));
    }
    if !opened.agrees {
        return Err(lacking("transitions"));
    }
    let is_missing = |point: &SessionPoint| !is_complete(&opened.log_state, point.line);
    if opened.workflow_log.session_points().any(is_missing) {
        return Err(lacking("a session"));
    }
    opened.workflow_log.copy_to(&mut state);
    if opened.workflow_log.phase() == WorkflowPhase::Success {
        opened.sync()?;
        state.seq = opened.journal_lines();
        root.save_workflow(&mut state)?;
        return Ok(OpenedState::Over(Box::new(state)));
    }
    opened.changed = changed_states(config, &state);
    Ok(OpenedState::Resume(Box::new(state), Box::new(opened)))
}

/// The states that are not as they were when the run began.
fn changed_states(config: &WorkflowConfig, state: &WorkflowState) -> Vec<String> {
    let now = config.scope.hashes();
    let names = state.state_hashes.keys().chain(now.keys());
    let mut changed: Vec<String> = names
        .filter(|name| state.state_hashes.get(*name) != now.get(*name))
        .cloned()
        .collect();
    changed.sort();
    changed.dedup();
    changed
}
