//! Builds a run from its settings: the log with its observers, the children's environment, checks, generator, context.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use crate::build::Run;
use crate::build::attempt_store::AttemptStore;
use crate::build::build_log::BuildLog;
use crate::build::checks::ToolRegistry;
use crate::build::checks::command::CommandCheck;
use crate::build::checks::reporters::Reporters;
use crate::build::child_env::{ChildEnv, HomeDirs};
use crate::build::context::Context;
use crate::build::generators::Generator;
use crate::build::generators::agent::AgentModel;
use crate::build::generators::agent_prompt::AGENT_MODE;
use crate::build::generators::model::FilesModel;
use crate::build::generators::prompt::{FILES_MODE, PromptTemplates};
use crate::build::generators::template::TemplateGenerator;
use crate::build::protection::frozen_places;
use crate::build::protection::verified::VerifiedFiles;
use crate::build::spec::GeneratorMode;
use crate::build::spec::inputs::InputKind;
use crate::build::tampering::TamperingRules;
use crate::cancel::CancelToken;
use crate::cli::env::{adopt_orphans, own_launcher};
use crate::cli::run_config::{RunConfig, RunResources};
use crate::cli::sandbox::{self, SandboxSite};
use crate::conversation::budget::Budget;
use crate::conversation::event_log::{EventLog, OpenedLog, Projection};
use crate::conversation::log_state::LogState;
use crate::conversation::model_call::RecordedModel;
use crate::conversation::replay::Replay;
use crate::error::{Error, Result};
use crate::events::bus::Bus;
use crate::events::{Event, MAIN_AGENT};
use crate::llm::provider::{ConnectSettings, connect};
use crate::llm::retry::{RetryPolicy, RetryRounds};
use crate::observers::console::Console;
use crate::observers::debug::DebugFiles;
use crate::process::cache::Caches;
use crate::process::sandbox::{SandboxMode, SandboxPolicy};
use crate::process::scratch::ScratchDirs;
use crate::state::background::BackgroundSave;
use crate::state::journal::{Journal, JournalRepair};
use crate::state::run::RunState;
use crate::state::store::{Root, real_path};
use crate::workspace::Workspace;

/// The journal of a run, opened, and what its lines say.
pub(super) struct OpenedJournal {
    pub journal: Journal,
    pub repair: Option<JournalRepair>,
    pub log_state: LogState,
    pub build_log: BuildLog,
}

/// Opens the journal of a run, or creates it.
pub(super) fn open_journal(config: &RunConfig, root: &Root, run_id: &str) -> Result<OpenedJournal> {
    let directory = root.directory("logs")?;
    let (mut log_state, mut build_log) = (LogState::default(), BuildLog::default());
    let mut apply = |line, event: Event| {
        log_state.apply(line, &event);
        build_log.apply(line, &event);
    };
    let (journal, repair) = Journal::open(
        directory.as_fd(),
        &root.join("logs"),
        run_id,
        &config.secrets,
        &mut apply,
    )?;
    Ok(OpenedJournal {
        journal,
        repair,
        log_state,
        build_log,
    })
}

/// What a run is built from, beside its settings.
pub(super) struct OpenedRun {
    root: Root,
    state: RunState,
    log: EventLog,
    build_log: Arc<Mutex<BuildLog>>,
}

/// Opens the log of a run and attaches the console and the debug files to it.
pub(super) fn open_run(
    config: &RunConfig,
    root: Root,
    state: RunState,
) -> Result<(OpenedRun, Option<JournalRepair>, Console)> {
    let mut opened = open_journal(config, &root, &state.run_id)?;
    opened.log_state.usage_mut().raise_to(&state.usage);
    let output = &config.output;
    let mut bus = Bus::default();
    let console = Console::attach(&mut bus, output.console());
    if output.debug {
        DebugFiles::attach(&mut bus, root.join("logs").join(&state.run_id));
    }
    let build_log = Arc::new(Mutex::new(opened.build_log));
    let log = OpenedLog {
        journal: opened.journal,
        bus,
        has_details: output.debug,
        has_live_view: console.has_live_area(),
        state: opened.log_state,
        facts: build_log.clone(),
    };
    let run = OpenedRun {
        root,
        state,
        log: EventLog::new(MAIN_AGENT, log),
        build_log,
    };
    Ok((run, opened.repair, console))
}

/// Builds the run. Takes the replay out of `config`.
pub(super) fn assemble(
    config: &mut RunConfig,
    resources: &RunResources,
    opened: OpenedRun,
    cancel: CancelToken,
) -> Result<Run> {
    adopt_orphans()?;
    let recorded = config.replay.take();
    let (replay, recorded) = recorded.map(|run| (run.replay, run.facts)).unzip();
    let root = &opened.root;
    let workspace = Workspace::open(root.handle(), "workspace", &root.join("workspace"))?;
    let root_handle = root
        .handle()
        .try_clone_to_owned()
        .map_err(|error| Error::io("open", &root.path, error))?;
    let attempts = AttemptStore::open(root, &opened.state.run_id)?;
    let child_env = child_env(config, resources, root, &cancel)?;
    let model = recorded_model(config, resources, replay, &cancel);
    let (spec, inputs) = (config.spec.clone(), Arc::clone(&config.inputs));
    Ok(Run {
        checks: checks(config, &child_env),
        generator: generator(config, model, &child_env),
        preparing: None,
        first_failure: None,
        recorded,
        context: Context {
            rules: TamperingRules::new(&spec, &inputs, &child_env.workspace, &child_env.base),
            spec,
            inputs,
            state: updated_state(config, opened.state, &opened.build_log),
            root: opened.root,
            root_handle: Arc::new(root_handle),
            saves: BackgroundSave::default(),
            workspace,
            verified: VerifiedFiles::default(),
            attempts,
            log: opened.log,
            build_log: opened.build_log,
            price_is_known: config.model.price_is_known,
            cancel,
        },
    })
}

/// The state with the settings of this start. A `--max-retries` of an earlier start holds until the command line or the
/// spec gives another one.
fn updated_state(config: &RunConfig, mut state: RunState, build_log: &Mutex<BuildLog>) -> RunState {
    let in_spec = config.spec.max_retries;
    let build_log = build_log.lock().unwrap_or_else(PoisonError::into_inner);
    build_log.lead_to_testing(&mut state);
    let has_changed = build_log
        .max_retries
        .is_some_and(|before| before != in_spec);
    if let Some(max_retries) = config.max_retries.or(has_changed.then_some(in_spec)) {
        state.max_retries = max_retries.max(state.retry_count);
    }
    // The same spec may be in another file now.
    state.spec_file.clone_from(&config.spec_file);
    state
}

/// The environment of the checks and of the model's tools.
fn child_env(
    config: &RunConfig,
    resources: &RunResources,
    root: &Root,
    cancel: &CancelToken,
) -> Result<Rc<ChildEnv>> {
    let host = &config.host;
    let caches = host.create_caches();
    let mode = resources.sandbox.as_ref().map(|found| found.mode);
    let (policy, home_dirs) = sandbox_and_home(config, mode, root, caches.as_ref())?;
    let mut launcher = own_launcher();
    launcher.policy = policy;
    Ok(Rc::new(ChildEnv {
        launcher,
        base: host.caller.clone(),
        home_dirs,
        workspace: root.real_path().join("workspace"),
        caches,
        reporters: Reporters::create(&host.temporary, &root.path)?,
        network: config.spec.sandbox.network,
        temporary: host.temporary.clone(),
        root: root.path.clone(),
        secrets: config.secrets.clone(),
        cancel: cancel.clone(),
    }))
}

/// The sandbox policy of checks, and their home and temporary directory: inside the sandbox where it has a mount
/// namespace, else scratch directories. Without a sandbox the home is the user's.
fn sandbox_and_home(
    config: &RunConfig,
    mode: Option<SandboxMode>,
    root: &Root,
    caches: Option<&Caches>,
) -> Result<(Option<SandboxPolicy>, HomeDirs)> {
    let host = &config.host;
    let create_scratch = || ScratchDirs::create(&host.temporary, &root.path);
    let create_policy = |mode, scratch: Option<&ScratchDirs>| {
        let site = SandboxSite {
            mode,
            root: &root.path,
            base: &host.caller,
            private: scratch.map(ScratchDirs::base),
            caches: caches.map(Caches::base),
        };
        sandbox::of_checks(&config.spec, &site)
    };
    Ok(match mode {
        Some(mode @ (SandboxMode::Full | SandboxMode::FullWithoutLandlock)) => {
            let policy = create_policy(mode, None);
            let (tmp, home) = (policy.tmpdir(), policy.home.clone());
            (Some(policy), HomeDirs::Inside { tmp, home })
        }
        Some(SandboxMode::Reduced) => {
            let (private, home) = (create_scratch()?, None);
            let policy = create_policy(SandboxMode::Reduced, Some(&private));
            (Some(policy), HomeDirs::Outside { private, home })
        }
        None => {
            let (private, home) = (create_scratch()?, host.home.clone());
            (None, HomeDirs::Outside { private, home })
        }
    })
}

fn checks(config: &RunConfig, child_env: &Rc<ChildEnv>) -> ToolRegistry {
    let mut registry = ToolRegistry::default();
    let protected = frozen_places(&config.inputs.protect);
    for (check, files) in config.spec.checks.iter().zip(&config.inputs.hidden) {
        // Not the folders of hidden files: one may be a folder of the project, where programs write.
        let hidden = files
            .iter()
            .filter(|input| matches!(input.kind, InputKind::File { .. }))
            .map(|input| PathBuf::from(input.to.as_str()));
        registry.add(Box::new(CommandCheck {
            check: check.clone(),
            frozen: protected.iter().cloned().chain(hidden).collect(),
            child_env: child_env.clone(),
        }));
    }
    registry
}

/// The spec's model; `None` if a template generates.
fn recorded_model(
    config: &RunConfig,
    resources: &RunResources,
    replay: Option<Replay>,
    cancel: &CancelToken,
) -> Option<RecordedModel> {
    let provider = config.spec.generator.provider.model()?;
    let settings = ConnectSettings {
        base_url: config.model.base_url.clone(),
        key: resources.key.clone(),
        idle_timeout: config.model.idle_timeout,
        cancel: cancel.clone(),
        program: config.host.program(
            resources.client_program.clone(),
            real_path(&config.root),
            config.secrets.clone(),
        ),
    };
    Some(RecordedModel {
        client: connect(provider, settings),
        provider: provider.facts().name,
        budget: Budget {
            usd: config.spec.budget.usd,
            tokens: config.spec.budget.tokens,
            price: config.model.price,
        },
        shared_budget: config.shared_budget.clone(),
        policy: RetryPolicy {
            scale: config.model.retry_scale,
            until: None,
            rounds: RetryRounds::One,
        },
        replay: replay.map(Arc::new),
        on_text: None,
        secrets: config.secrets.clone(),
    })
}

fn generator(
    config: &RunConfig,
    model_call: Option<RecordedModel>,
    child_env: &Rc<ChildEnv>,
) -> Box<dyn Generator> {
    let Some(model_call) = model_call else {
        return Box::new(TemplateGenerator);
    };
    let (model, context_tokens) = (config.model.name.clone(), config.model.context_tokens);
    let prompts = |default| PromptTemplates::new(&config.inputs.prompts, default);
    match config.spec.generator.mode {
        GeneratorMode::Files => Box::new(FilesModel {
            model_call,
            prompts: prompts(FILES_MODE),
            context_tokens,
            model,
        }),
        GeneratorMode::Agent => Box::new(AgentModel {
            model_call,
            prompts: prompts(AGENT_MODE),
            context_tokens,
            model,
            child_env: child_env.clone(),
        }),
    }
}
