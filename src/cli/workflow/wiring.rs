//! Builds the run of a workflow from its settings: the log with its observers, what programs run in, the models.

use std::collections::HashMap;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::cancel::CancelToken;
use crate::cli::env::{CliEnv, adopt_orphans, own_launcher};
use crate::cli::run_config::secrets;
use crate::cli::sandbox;
use crate::cli::workflow::config::WorkflowConfig;
use crate::cli::workflow::settings::RunSettings;
use crate::cli::workflow_sandbox::WorkflowAccess;
use crate::conversation::event_log::{EventLog, OpenedLog, Projection};
use crate::conversation::log_state::LogState;
use crate::error::{Error, Result};
use crate::events::bus::Bus;
use crate::events::{Event, MAIN_AGENT};
use crate::llm::provider::{ConnectSettings, connect};
use crate::observers::console::Console;
use crate::observers::debug::DebugFiles;
use crate::process::cache::CacheOwner;
use crate::state::journal::{Journal, JournalRepair};
use crate::state::reason::Reason;
use crate::state::store::{Root, real_path};
use crate::state::workflow::{AgentStatus, WorkflowPhase, WorkflowState};
use crate::workflow::agent_env::{SandboxSource, WorkflowEnv};
use crate::workflow::executors::step::ExecutionContext;
use crate::workflow::folder::Folder;
use crate::workflow::models::{Connect, ModelPool};
use crate::workflow::workflow_log::WorkflowLog;
use crate::workflow::{WorkflowEnd, WorkflowRun};

/// Enough descriptors for thousands of agents.
const MANY_FILES: u64 = 16_384;

/// The log of a run, opened, and what its lines say.
pub(super) struct OpenedLogFile {
    journal: Journal,
    repair: Option<JournalRepair>,
    pub(super) log_state: LogState,
    pub(super) workflow_log: WorkflowLog,
    /// Up to the last line that `state.json` takes into account, both say the same.
    pub(super) agrees: bool,
    /// The states that have changed since the run began.
    pub(super) changed: Vec<String>,
}

impl OpenedLogFile {
    pub(super) fn journal_lines(&self) -> u64 {
        self.journal.lines()
    }

    /// Makes the lines durable, so that a saved state may refer to them.
    pub(super) fn sync(&mut self) -> Result<()> {
        self.journal.sync()
    }
}

/// Opens the log of a run, or creates it. `state` is what `state.json` says.
pub(super) fn open_log(
    env: &CliEnv,
    root: &Root,
    run_id: &str,
    state: Option<&WorkflowState>,
) -> Result<OpenedLogFile> {
    let directory = root.directory("logs")?;
    let (mut log_state, mut workflow_log) = (LogState::default(), WorkflowLog::default());
    let mut agrees = state.is_none_or(|state| state.seq == 0);
    let mut apply = |line, event: Event| {
        log_state.apply(line, &event);
        workflow_log.apply(line, &event);
        if let Some(state) = state.filter(|state| state.seq == line) {
            agrees = workflow_log.agrees_with(state);
        }
    };
    let (journal, repair) = Journal::open(
        directory.as_fd(),
        &root.join("logs"),
        run_id,
        &secrets(env, |variable| env.text(variable)),
        &mut apply,
    )?;
    Ok(OpenedLogFile {
        journal,
        repair,
        log_state,
        workflow_log,
        agrees,
        changed: Vec::new(),
    })
}

/// The log of a run with its observers.
pub(super) struct OpenedWorkflow {
    pub(super) log: EventLog,
    pub(super) facts: Arc<Mutex<WorkflowLog>>,
    pub(super) repair: Option<JournalRepair>,
    /// The states that have changed since the run began.
    pub(super) changed: Vec<String>,
}

/// Attaches the console and the debug files to the log of a run.
pub(super) fn attach(
    config: &WorkflowConfig,
    root: &Root,
    run_id: &str,
    opened: OpenedLogFile,
) -> (OpenedWorkflow, Console) {
    let output = &config.output;
    let mut bus = Bus::default();
    let console = Console::attach_workflow(&mut bus, output.console());
    if output.debug {
        DebugFiles::attach_workflow(&mut bus, root.join("logs").join(run_id));
    }
    let facts = Arc::new(Mutex::new(opened.workflow_log));
    let log = OpenedLog {
        journal: opened.journal,
        bus,
        has_details: output.debug,
        has_live_view: console.has_live_area(),
        state: opened.log_state,
        facts: facts.clone(),
    };
    let opened = OpenedWorkflow {
        log: EventLog::new(MAIN_AGENT, log),
        facts,
        repair: opened.repair,
        changed: opened.changed,
    };
    (opened, console)
}

/// Builds the run. Takes the replay out of `config`.
pub(super) fn assemble(
    config: &mut WorkflowConfig,
    settings: &RunSettings,
    (root, state): (Root, WorkflowState),
    opened: OpenedWorkflow,
    cancel: CancelToken,
) -> Result<WorkflowRun> {
    adopt_orphans()?;
    allow_many_files();
    if settings.options.project_dir.is_none() {
        root.directory("workspace")?;
    }
    let recorded = config.replay.take();
    let (replay, recorded) = recorded.map(|run| (run.replay, run.facts)).unzip();
    let replay = replay.map(|replay| replay.with_run(&state.run_id, &settings.folder));
    let is_inside = config.scope.directory.starts_with(&settings.folder);
    let scope = match is_inside && !state.state_hashes.is_empty() {
        true => config.scope.clone().restricted_to(&state.state_hashes),
        false => config.scope.clone(),
    };
    let context = ExecutionContext {
        run_id: state.run_id.clone(),
        workflow_log: opened.facts,
        log: opened.log,
        env: workflow_env(config, settings, &root),
        models: ModelPool {
            settings: settings.model.clone(),
            connect: connector(config, settings, &cancel),
            replay: replay.map(Arc::new),
            idle: Mutex::new(HashMap::new()),
        },
        idle_timeout: settings.idle_timeout,
        recorded,
        scope,
        cancel,
    };
    Ok(WorkflowRun {
        context: Arc::new(context),
        root,
        state,
        jobs: settings.jobs,
        person: None,
    })
}

/// Each living agent holds a few descriptors; the soft limit is often 1,024.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit
        .maximum
        .map_or(MANY_FILES, |most| most.min(MANY_FILES));
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        // A lower limit only bounds the number of agents.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

fn workflow_env(config: &WorkflowConfig, settings: &RunSettings, root: &Root) -> WorkflowEnv {
    let host = &config.host;
    let caches = host.create_caches();
    let cache = caches
        .as_ref()
        .map(|caches| caches.folder(CacheOwner::Environments));
    let access = Arc::new(WorkflowAccess {
        root: root.real_path(),
        folder: settings.folder.clone(),
        states: config
            .scope
            .states()
            .map(|file| config.scope.path(file))
            .collect(),
        read: config.read.clone(),
        network: config.network,
        base: host.caller.clone(),
        caches: caches.as_ref().map(|caches| caches.base().to_owned()),
        extra_write: cache.iter().cloned().collect(),
    });
    let editor = access.clone();
    let mode = settings.sandbox.as_ref().map(|found| found.mode);
    let sandbox = mode.map(|mode| SandboxSource::new(Box::new(move || access.policy(mode))));
    WorkflowEnv {
        launcher: own_launcher(),
        sandbox,
        editor_paths: Box::new(move |directory| editor.editor_paths(directory)),
        base: host.caller.clone(),
        user_home: host.home.clone(),
        temporary: host.temporary.clone(),
        root: root.real_path(),
        folder: Folder {
            path: settings.folder.clone(),
        },
        cache,
        _caches: caches,
        network: config.network,
        kept_variables: config.kept_variables.clone(),
        secrets: settings.secrets.clone(),
    }
}

fn connector(config: &WorkflowConfig, settings: &RunSettings, cancel: &CancelToken) -> Connect {
    let provider = settings.provider;
    let connected = ConnectSettings {
        base_url: settings.base_url.clone(),
        key: settings.key.clone(),
        idle_timeout: settings.idle_timeout,
        cancel: cancel.clone(),
        program: config.host.program(
            settings.client_program.clone(),
            real_path(&config.root),
            settings.secrets.clone(),
        ),
    };
    Box::new(move |idle_timeout| {
        let settings = ConnectSettings {
            idle_timeout,
            ..connected.clone()
        };
        connect(provider, settings)
    })
}

/// Records the sandbox mode.
pub(super) fn record_sandbox(
    config: &WorkflowConfig,
    settings: &RunSettings,
    context: &ExecutionContext,
) -> Result<()> {
    let found = settings.sandbox.as_ref();
    let before = context.facts(|facts| facts.sandbox().map(str::to_owned));
    let opened = sandbox::opened(&config.read, config.network);
    let event = sandbox::found_event(found, &opened, "programs", before.as_deref());
    context.log.record(event)
}

/// The agents whose questions are open.
pub(super) fn asking_agents(state: &WorkflowState) -> Vec<String> {
    let asking = state.agents.iter();
    let asking = asking.filter(|agent| agent.status == AgentStatus::Asking);
    asking.map(|agent| agent.id.clone()).collect()
}

/// A replay ends like the recorded run: in the same outcome, with the same payloads.
pub(super) fn compare_with_recording(run: &WorkflowRun, end: WorkflowEnd) -> Result<WorkflowEnd> {
    let Some(recorded) = &run.context.recorded else {
        return Ok(end);
    };
    let phase = match &end {
        WorkflowEnd::Completed => WorkflowPhase::Success,
        WorkflowEnd::Failed(_) => WorkflowPhase::Failed,
        WorkflowEnd::Paused(..) => WorkflowPhase::Paused,
    };
    let mismatch = |text: String| Err(Error::Failed(Reason::ReplayMismatch, text));
    let is_over = recorded.phase() != WorkflowPhase::Running;
    if is_over && phase != recorded.phase() {
        let (then, now) = (recorded.phase().name(), phase.name());
        return mismatch(format!(
            "the recorded run ended as {then}, the replay as {now}"
        ));
    }
    let differing = run.context.facts(|log| {
        let (then, now) = (recorded.results(), log.results());
        let mut ids = then.keys().chain(now.keys());
        let differs = |id: &&String| match (then.get(*id), now.get(*id)) {
            (Some(then), Some(now)) => then != now,
            _ => is_over,
        };
        ids.find(differs).cloned()
    });
    match differing {
        Some(id) => mismatch(format!("the payload of {id} differs from the recorded one")),
        None => Ok(end),
    }
}
