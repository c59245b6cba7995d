//! `run`: reads what is asked for, decides whether a run begins, goes on or is over, and drives it.
//!
//! Everything that can refuse a run (command line, spec, key, root, lock) is asked before anything is changed.
//! `parts.rs` wires what a run is made of.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use crate::build::build_log::BuildLog;
use crate::build::context::Context;
use crate::build::kept_files::KEPT_NAMES;
use crate::build::replaced_run;
use crate::build::tested_files;
use crate::build::{self, Run};
use crate::cancel::CancelToken;
use crate::cli::arguments::RunArguments;
use crate::cli::env::{CliEnv, signals};
use crate::cli::outcome::{RunOutcome, next_command};
use crate::cli::output::print_stderr;
use crate::cli::programs;
use crate::cli::reset::foreign;
use crate::cli::run_config::RunConfig;
use crate::cli::target::{RunTarget, not_supported_yet};
use crate::cli::wiring::{self, OpenedRun};
use crate::conversation::event_log::{EventLog, OpenedLog, Projection};
use crate::conversation::log_state::LogState;
use crate::conversation::replay::true_path;
use crate::error::{Error, Result};
use crate::events::bus::Bus;
use crate::events::{Event, MAIN_AGENT, ReplacedRun};
use crate::observers::console::{Console, ConsoleOptions};
use crate::observers::debug::DebugFiles;
use crate::process::sandbox::probe::ProbeResult;
use crate::state::journal::{CutTail, Journal, JournalRepair};
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::state::run::RunState;
use crate::state::store::{LoadedState, Root};
use crate::workspace::Workspace;

/// What becomes of the root's run.
enum RunDecision {
    /// It is over: its result is all there is to say.
    Over(Box<RunState>),
    GoOn(Box<RunState>),
    Begin(FreshStart),
}

/// A new run: words that say what became of the old one, and which one has left something that is kept.
#[derive(Default)]
struct FreshStart {
    words: Vec<String>,
    replaces: Option<ReplacedRun>,
}

impl FreshStart {
    fn saying(word: String) -> FreshStart {
        FreshStart {
            words: vec![word],
            replaces: None,
        }
    }
}

/// Runs the command to its end.
pub fn main(arguments: &RunArguments, env: &CliEnv) -> RunOutcome {
    let spec = match RunTarget::of_run(arguments) {
        Ok(RunTarget::Spec(file)) => file,
        Ok(RunTarget::Workflow(_)) => {
            return RunOutcome::refused(&not_supported_yet("running a workflow"), None);
        }
        Err(error) => return RunOutcome::refused(&error, None),
    };
    let next = next_command(arguments, &spec, env);
    let outcome = signals().and_then(|cancel| {
        let config = RunConfig::read(arguments, &spec, env, &cancel)?;
        execute(&config, cancel, &next)
    });
    outcome.unwrap_or_else(|error| RunOutcome::refused(&error, Some(next)))
}

fn execute(config: &RunConfig<'_>, cancel: CancelToken, next: &str) -> Result<RunOutcome> {
    let root = Root::open(&config.env.root)?;
    root.refuse_links(&["workspace", "logs"])?;
    let _lock = root.lock()?;
    root.sweep();
    let (decision, found) = decide(config, &root)?;
    match decision {
        RunDecision::Over(state) => {
            wiring::forget_caches(config.env);
            let (log_state, build_log) = close_log(config, &root, &state)?;
            let changes = changes_since(&root, &state, &build_log, &cancel)?;
            let outcome = RunOutcome::of_state(&state, log_state.notes().to_vec())
                .with_checks(build_log.rounds().last());
            let outcome = outcome.unless_changed(&changes);
            let words = if changes.is_empty() {
                "over (--no-resume starts afresh)"
            } else {
                "over"
            };
            print_stderr(&format!("this run is {words}: {}", outcome.message()));
            Ok(outcome.with_notes())
        }
        RunDecision::GoOn(state) => drive(config, found, root, cancel, *state, None, next),
        RunDecision::Begin(beginning) => {
            wiring::forget_caches(config.env);
            drive(
                config,
                found,
                root,
                cancel,
                config.new_run(),
                Some(beginning),
                next,
            )
        }
    }
}

/// Decides, and finds out what this system gives where something will be run.
fn decide(config: &RunConfig<'_>, root: &Root) -> Result<(RunDecision, Option<ProbeResult>)> {
    let afresh = config.arguments.no_resume || config.arguments.replay.is_some();
    let loaded = root.load()?;
    let decision = match &loaded {
        LoadedState::Workflow => {
            let text = "the root holds the run of a workflow; `orchestrator reset` forgets it";
            return Err(Error::Usage(text.into()));
        }
        LoadedState::Nothing => RunDecision::Begin(FreshStart::default()),
        LoadedState::Corrupt(problem) if afresh => RunDecision::Begin(FreshStart::saying(format!(
            "state.json was corrupt: {problem}"
        ))),
        LoadedState::Corrupt(problem) => {
            return Ok((record_corruption(config, root, &problem.to_string())?, None));
        }
        LoadedState::Build(state) if afresh => RunDecision::Begin(FreshStart::saying(format!(
            "the run {} is thrown away",
            state.run_id
        ))),
        LoadedState::Build(state) if state.reason == Some(Reason::StateCorrupt) => {
            RunDecision::Over(state.clone())
        }
        LoadedState::Build(state) if state.spec_hash != config.inputs.hash => {
            RunDecision::Begin(claim_root(root, state)?)
        }
        LoadedState::Build(state) if state.phase.is_terminal() => RunDecision::Over(state.clone()),
        LoadedState::Build(state) => RunDecision::GoOn(state.clone()),
    };
    let mut found = None;
    if !matches!(decision, RunDecision::Over(_)) {
        config.key()?;
        config.client_program()?;
        found = config.sandbox()?;
        programs::refuse_missing(
            &config.spec,
            config.env,
            found.as_ref().map(|found| found.mode),
        )?;
    }
    if matches!(loaded, LoadedState::Nothing) {
        refuse_foreign_files(root)?;
    }
    if matches!(loaded, LoadedState::Corrupt(_)) {
        root.set_aside()?;
    }
    Ok((decision, found))
}

/// Returns the beginning of a run where one of another spec stands: what it has left is kept.
fn claim_root(root: &Root, state: &RunState) -> Result<FreshStart> {
    let RunState {
        run_id,
        spec_file,
        phase,
        ..
    } = state;
    let left = format!(
        "the spec has changed: the run {run_id} of {spec_file} ({}) is left",
        phase.name()
    );
    let path = root.join("workspace");
    if !path.exists() {
        return Ok(FreshStart::saying(left));
    }
    let workspace = Workspace::open(root.handle(), "workspace", &path)?;
    if !workspace.has_files_but(&KEPT_NAMES)? && state.usage.llm_calls == 0 {
        return Ok(FreshStart::saying(left));
    }
    let device = |path: &Path| {
        std::fs::metadata(path)
            .map(|data| data.dev())
            .map_err(|error| Error::io("look at", path, error))
    };
    root.directory("logs")?;
    if device(&path)? != device(&root.join("logs"))? {
        return Err(Error::Usage(format!(
            "{left}, but its workspace is on another file system than logs/ and cannot be kept there; move its files away \
             and run `orchestrator reset`, or start afresh without them: --no-resume"
        )));
    }
    let replaces = Some(ReplacedRun {
        run_id: run_id.clone(),
        spec_file: spec_file.clone(),
    });
    Ok(FreshStart {
        words: vec![left],
        replaces,
    })
}

/// A workspace with files and no state that says they are ours stays untouched.
fn refuse_foreign_files(root: &Root) -> Result<()> {
    let workspace = root.join("workspace");
    if !workspace.exists() {
        return Ok(());
    }
    let workspace = Workspace::open(root.handle(), "workspace", &workspace)?;
    if workspace.has_files_but(&KEPT_NAMES)? {
        Err(foreign(root))
    } else {
        Ok(())
    }
}

/// Keeps a corrupt `state.json` aside and lets a FAILED one that says so take its place.
fn record_corruption(config: &RunConfig<'_>, root: &Root, problem: &str) -> Result<RunDecision> {
    let name = root.set_aside()?;
    let mut state = config.new_run();
    state.phase = Phase::Failed;
    state.reason = Some(Reason::StateCorrupt);
    state.last_error = Some(format!(
        "state.json is corrupt ({problem}); it is kept as {name}; `orchestrator reset` or --no-resume starts afresh"
    ));
    root.save(&mut state)?;
    Ok(RunDecision::Over(Box::new(state)))
}

/// Adds what a crash at the very end kept out of the log of a run that is over, and returns what the log
/// knows. A log that is gone stays gone.
fn close_log(
    config: &RunConfig<'_>,
    root: &Root,
    state: &RunState,
) -> Result<(LogState, BuildLog)> {
    let (mut log_state, mut build_log) = (LogState::default(), BuildLog::default());
    let logs = root.join("logs");
    if logs.join(format!("{}.log", state.run_id)).is_file() {
        let secrets = config.secrets();
        let directory = root.directory("logs")?;
        let mut apply = |line, event: Event| {
            log_state.apply(line, &event);
            build_log.apply(line, &event);
        };
        let (mut journal, _) = Journal::open(
            directory.as_fd(),
            &logs,
            &state.run_id,
            &secrets,
            &mut apply,
        )?;
        for event in build::missing_transitions(&build_log, state) {
            journal.append(&event)?;
        }
    }
    Ok((log_state, build_log))
}

/// Returns what is different in the workspace of a SUCCESS since it was tested. Nothing of a run whose log does not say
/// what that was.
fn changes_since(
    root: &Root,
    state: &RunState,
    build_log: &BuildLog,
    cancel: &CancelToken,
) -> Result<Vec<String>> {
    let Some(tested) = build_log.tested().filter(|_| state.phase == Phase::Success) else {
        return Ok(Vec::new());
    };
    let workspace = root.join("workspace");
    let workspace = workspace
        .exists()
        .then(|| Workspace::open(root.handle(), "workspace", &workspace))
        .transpose()?;
    tested_files::changes(workspace.as_ref(), tested, cancel)
}

/// Drives a run; one that goes on has no beginning.
fn drive(
    config: &RunConfig<'_>,
    found: Option<ProbeResult>,
    root: Root,
    cancel: CancelToken,
    state: RunState,
    beginning: Option<FreshStart>,
    next: &str,
) -> Result<RunOutcome> {
    let arguments = config.arguments;
    let logs = root.directory("logs")?;
    let logs_path = root.join("logs");
    let mut log_state = LogState::default();
    let mut build_log = BuildLog::default();
    let secrets = config.secrets();
    let (journal, mended) = Journal::open(
        logs.as_fd(),
        &logs_path,
        &state.run_id,
        &secrets,
        &mut |line, event| {
            log_state.apply(line, &event);
            build_log.apply(line, &event);
        },
    )?;
    log_state.usage_mut().raise_to(&state.usage);
    let mut bus = Bus::default();
    let mut options = ConsoleOptions::stderr(arguments.quiet, !config.env.is_colourless());
    if config.env.has_dumb_terminal() {
        options.terminal = None;
    }
    let console = Console::attach(&mut bus, options);
    if arguments.debug {
        DebugFiles::attach(&mut bus, logs_path.join(&state.run_id));
    }
    let build_log = Arc::new(Mutex::new(build_log));
    let opened = OpenedRun {
        log: EventLog::new(
            MAIN_AGENT,
            OpenedLog {
                journal,
                bus,
                has_details: arguments.debug,
                state: log_state,
                facts: build_log.clone(),
            },
        ),
        root,
        state,
        build_log,
    };
    let mode = found.as_ref().map(|found| found.mode);
    let mut run = wiring::assemble(config, mode, cancel, opened)?;
    let is_new = beginning.is_some();
    let started = start(config, found.as_ref(), &mut run, mended, beginning);
    if is_new && let Err(error) = started {
        // Nothing was saved: there is no run, and a log of it would be nobody's.
        let _ = std::fs::remove_file(logs_path.join(format!("{}.log", run.context.state.run_id)));
        wiring::forget_caches(config.env);
        return Err(error);
    }
    let result = started.and_then(|()| build::run(&mut run));
    if result.is_ok() {
        wiring::forget_caches(config.env);
    }
    let outcome = conclude(&mut run, result, next);
    console.finish();
    Ok(outcome.with_notes())
}

/// Tells the beginning, saves, and picks up what a crash left.
fn start(
    config: &RunConfig<'_>,
    found: Option<&ProbeResult>,
    run: &mut Run,
    mended: Option<JournalRepair>,
    beginning: Option<FreshStart>,
) -> Result<()> {
    let context = &mut run.context;
    let JournalRepair { skipped, cut } = mended.unwrap_or_default();
    if let Some(CutTail {
        dropped_bytes,
        dropped,
        kept_as,
    }) = cut
    {
        context.log.record(Event::LogMended {
            agent_id: MAIN_AGENT.into(),
            dropped_bytes,
            dropped,
            kept_as,
        })?;
    }
    for line in skipped {
        context.log.note(format!(
            "line {line} of the log is unreadable and was skipped"
        ))?;
    }
    let goes_on = beginning.is_none();
    let FreshStart { words, replaces } = beginning.unwrap_or_default();
    if let Some(replaced) = &replaces {
        replaced_run::set_state_aside(&context.root, replaced)?;
    }
    context.log.record_synced(Event::WorkflowStarted {
        workflow_id: context.state.run_id.clone(),
        // As the programs in it see it, links resolved.
        scope_dir: true_path(&context.root.path).display().to_string(),
        debug_dir: config
            .arguments
            .debug
            .then(|| format!("logs/{}", context.state.run_id)),
        spec_file: context.state.spec_file.clone(),
        spec_hash: context.state.spec_hash.clone(),
        provider: config.provider_name().into(),
        model: config.model_name(),
        resumed: goes_on,
        version: env!("CARGO_PKG_VERSION").into(),
        max_retries: Some(config.spec.max_retries),
        replaces,
    })?;
    for word in words {
        context.log.progress(word)?;
    }
    for warning in &config.spec.warnings {
        context.log.note(format!("warning: {warning}"))?;
    }
    record_sandbox_mode(config, found, context)?;
    context.save()?;
    if goes_on { run.resume() } else { Ok(()) }
}

/// Tells behind which walls the programs of the run are, and where those are not the ones it began with.
fn record_sandbox_mode(
    config: &RunConfig<'_>,
    found: Option<&ProbeResult>,
    context: &mut Context,
) -> Result<()> {
    let (mode, mut message) = match found {
        Some(found) => (found.mode.name(), found.line(&opened(config))),
        None => (
            "off",
            "--no-sandbox: the checks run without kernel containment".to_owned(),
        ),
    };
    let before = context.facts(|facts| facts.sandbox().map(str::to_owned));
    if let Some(before) = before.filter(|before| *before != mode) {
        message += &format!(" (before it was resumed this run had: {before})");
    }
    context.log.record(Event::SandboxFound {
        agent_id: MAIN_AGENT.into(),
        mode: mode.into(),
        message,
        is_note: found.is_none_or(ProbeResult::is_noteworthy),
    })
}

/// What the spec opens beyond the usual.
fn opened(config: &RunConfig<'_>) -> String {
    let sandbox = &config.spec.sandbox;
    let paths: Vec<String> = sandbox
        .read
        .iter()
        .chain(&sandbox.devices)
        .map(|path| and_where_it_leads(path))
        .collect();
    let mut words = String::new();
    if !paths.is_empty() {
        words += &format!("; opened: {}", paths.join(", "));
    }
    if sandbox.network {
        words += "; the network is open, the host's loopback too";
    }
    words
}

/// Returns a path, and after an arrow what it is where links or dots hide that.
fn and_where_it_leads(path: &Path) -> String {
    match path.canonicalize().ok().filter(|real| real != path) {
        Some(real) => format!("{} -> {}", path.display(), real.display()),
        None => path.display().to_string(),
    }
}

/// Tells the end of the command and returns it as a result.
fn conclude(run: &mut Run, result: Result<Phase>, next: &str) -> RunOutcome {
    let context = &mut run.context;
    let workflow_id = context.state.run_id.clone();
    let total_cost_usd = context.state.usage.cost_usd;
    let notes = context.log.notes();
    let outcome = match &result {
        Ok(_) => RunOutcome::of_state(&context.state, notes),
        Err(error) => RunOutcome::unfinished(error, &context.state, notes, next.to_owned()),
    };
    let outcome = context.facts(|facts| outcome.with_checks(facts.rounds().last()));
    let message = outcome.message().to_owned();
    let event = match &result {
        Ok(phase) => Event::WorkflowCompleted {
            outcome: phase.name().into(),
            reason: context
                .state
                .reason
                .map(|reason| reason.to_string())
                .unwrap_or_default(),
            message: match phase {
                Phase::Success => message,
                _ => format!("{message}\nkept: workspace/, state.json, logs/{workflow_id}.log"),
            },
            workflow_id,
            total_cost_usd,
        },
        Err(error @ Error::Paused(reason, _)) => Event::WorkflowPaused {
            workflow_id,
            total_cost_usd,
            paused_agent_count: 1,
            reason: reason.to_string(),
            message: error.to_string(),
        },
        Err(error) => Event::WorkflowInterrupted {
            workflow_id,
            reason: error.reason().to_string(),
            message,
        },
    };
    // Where the disk is full the journal cannot take the end; the listeners and the result still tell it.
    if context.log.record(event.clone()).is_err() {
        context.log.publish(&event);
    }
    outcome
}
