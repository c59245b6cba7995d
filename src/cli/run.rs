//! `run`: decides what there is to do, drives the run, and concludes with its result.

use std::path::Path;

use crate::build::build_log::BuildLog;
use crate::build::context::Context;
use crate::build::spec::BudgetSpec;
use crate::build::{self, Run};
use crate::cancel::CancelToken;
use crate::cli::arguments::RunArguments;
use crate::cli::best_attempt::{best_text, keep_best};
use crate::cli::decision::{FreshStart, RunDecision, RunPlan, changes_since_success, decide};
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::fresh_start;
use crate::cli::log_file::{log_file, record_repair};
use crate::cli::outcome::RunOutcome;
use crate::cli::output::print_stderr;
use crate::cli::restore::restore_best;
use crate::cli::resume_command::resume_command;
use crate::cli::run_config::RunConfig;
use crate::cli::sandbox;
use crate::cli::target::RunTarget;
use crate::cli::wiring::{self, OpenedJournal};
use crate::cli::workflow;
use crate::conversation::log_state::LogState;
use crate::error::{Error, Result};
use crate::events::{BudgetLimits, Event, ReplacedRun};
use crate::fleet::folder::FleetFolder;
use crate::process::sandbox::probe::ProbeResult;
use crate::snapshots::pending_apply::refuse_unfinished_apply;
use crate::state::phase::Phase;
use crate::state::run::RunState;
use crate::state::store::{LoadedState, Root};
use crate::text::quote::shell_word;

/// The first line of a replay.
pub(super) const REPLAY_LINE: &str = "replay: all answers come from a log; no model is asked, nothing is paid; costs are the recorded ones";

/// Runs the command to its end.
pub(super) fn main(arguments: &RunArguments, env: &CliEnv) -> RunOutcome {
    let spec = match RunTarget::of_run(arguments, env) {
        Ok(RunTarget::Spec(file)) => file,
        Ok(RunTarget::Workflow(path)) => return workflow::main(arguments, &path, env),
        Err(error) => return RunOutcome::refused(&error),
    };
    let outcome = cancel_on_signals().and_then(|cancel| {
        refuse_fleet_root(&env.root)?;
        let config = RunConfig::read(arguments, &spec, env, &cancel)?;
        execute(config, env, cancel)
    });
    outcome
        .unwrap_or_else(|error| RunOutcome::refused(&error))
        .with_next(|continues| resume_command(arguments, &spec, env, continues))
}

/// Refuses the root of an entry of a fleet: its money and its result are those of the fleet.
fn refuse_fleet_root(root: &Path) -> Result<()> {
    let Some(folder) = FleetFolder::of_root(root) else {
        return Ok(());
    };
    let name = root.canonicalize().unwrap_or_default();
    let name = name.file_name().unwrap_or_default().to_string_lossy();
    let path = folder.path.to_string_lossy();
    Err(Error::Usage(format!(
        "the root {} belongs to a fleet\nhelp: `orchestrator fleet task {} {}` runs it there",
        root.display(),
        shell_word(&path),
        shell_word(&name)
    )))
}

fn execute(config: RunConfig, env: &CliEnv, cancel: CancelToken) -> Result<RunOutcome> {
    let root = Root::open(&config.root)?;
    root.refuse_links(&["workspace", "logs"])?;
    let _lock = root.lock()?;
    execute_locked(config, env, root, cancel)
}

/// Runs the command to its end in a root whose lock this process has.
pub(super) fn execute_locked(
    config: RunConfig,
    env: &CliEnv,
    root: Root,
    cancel: CancelToken,
) -> Result<RunOutcome> {
    root.refuse_links(&["workspace", "logs"])?;
    root.sweep();
    match decide(&config, env, &root, &cancel)? {
        RunDecision::Over(state) => report_again(&config, &root, &state, &cancel),
        RunDecision::Start(plan) => {
            refuse_unfinished_apply(&root)?;
            drive(config, *plan, root, cancel)
        }
    }
}

/// Reports the result of a run that is over.
fn report_again(
    config: &RunConfig,
    root: &Root,
    state: &RunState,
    cancel: &CancelToken,
) -> Result<RunOutcome> {
    config.host.remove_caches();
    let (log_state, build_log) = complete_log(config, root, state)?;
    if config.keeps_best && state.phase == Phase::Failed {
        restore_best(root, state)?;
    }
    let changes = changes_since_success(root, state, &build_log, cancel)?;
    let outcome = RunOutcome::of_state(state, log_state.notes().to_vec())
        .with_checks(build_log.rounds.last())
        .with_changes(&changes);
    let hint = if changes.is_empty() {
        " (--no-resume starts a new one)"
    } else {
        ""
    };
    if !config.output.is_silent {
        print_stderr(&format!("this run is over{hint}: {}", outcome.message()));
    }
    Ok(outcome.already_shown())
}

/// Adds what a crash at the very end kept out of the log, and returns what the log says. A log that was deleted is not
/// created again.
fn complete_log(config: &RunConfig, root: &Root, state: &RunState) -> Result<(LogState, BuildLog)> {
    if !log_file(root, &state.run_id).is_file() {
        return Ok((LogState::default(), BuildLog::default()));
    }
    let OpenedJournal {
        mut journal,
        log_state,
        build_log,
        ..
    } = wiring::open_journal(config, root, &state.run_id)?;
    for event in build::missing_transitions(&build_log, state) {
        journal.append(&event)?;
    }
    Ok((log_state, build_log))
}

fn drive(
    mut config: RunConfig,
    plan: RunPlan,
    root: Root,
    cancel: CancelToken,
) -> Result<RunOutcome> {
    let (sandbox, fresh) = (plan.resources.sandbox.as_ref(), plan.fresh);
    let is_new = fresh.is_some();
    if is_new {
        config.host.remove_caches();
    }
    let log_file = log_file(&root, &plan.state.run_id);
    if config.replay.is_some() && !config.output.quiet {
        print_stderr(REPLAY_LINE);
    }
    let (opened, repair, console) = wiring::open_run(&config, root, plan.state)?;
    let mut run = wiring::assemble(&mut config, &plan.resources, opened, cancel)?;
    let started = record_repair(&run.context.log, repair.unwrap_or_default())
        .and_then(|()| start(&config, sandbox, &mut run, fresh));
    if is_new && let Err(error) = started {
        // Without a saved state the run does not exist, and its log goes too.
        if !is_saved(&run.context) {
            let _ = std::fs::remove_file(&log_file);
            let _ = std::fs::remove_dir_all(log_file.with_extension(""));
        }
        config.host.remove_caches();
        return Err(error);
    }
    let result = started.and_then(|()| build::run(&mut run));
    if result.is_ok() {
        config.host.remove_caches();
    }
    let has_failed = matches!(result, Ok(Phase::Failed));
    if has_failed && config.keeps_best {
        keep_best(&mut run.context)?;
    }
    let outcome = conclude(&config, &mut run, result);
    console.finish();
    Ok(outcome.already_shown())
}

/// Whether `state.json` is of this run: what failed may be the sync after it was replaced.
fn is_saved(context: &Context) -> bool {
    match context.root.load() {
        Ok(LoadedState::Build(state)) => state.run_id == context.state.run_id,
        _ => false,
    }
}

/// Records the start, saves the state, and after a crash completes what it interrupted.
fn start(
    config: &RunConfig,
    sandbox: Option<&ProbeResult>,
    run: &mut Run,
    fresh: Option<FreshStart>,
) -> Result<()> {
    let is_resumed = fresh.is_none();
    let fresh = fresh.unwrap_or_default();
    let message = fresh_start::keep_what_was_there(config, run, &fresh)?;
    let context = &mut run.context;
    let started = start_event(config, context, is_resumed, fresh.replaced_run());
    context.log.record_synced(started)?;
    match message {
        Some(message) if fresh.is_of_another_spec => context.log.note(message)?,
        Some(message) => context.log.progress(message)?,
        None => {}
    }
    for warning in &config.warnings {
        context.log.note(format!("warning: {warning}"))?;
    }
    record_sandbox(config, sandbox, context)?;
    fresh_start::begin_from_another_run(run, &fresh)?;
    run.context.save()?;
    if is_resumed { run.resume() } else { Ok(()) }
}

fn start_event(
    config: &RunConfig,
    context: &Context,
    resumed: bool,
    replaces: Option<ReplacedRun>,
) -> Event {
    let run_id = context.state.run_id.clone();
    Event::WorkflowStarted {
        debug_dir: config.output.debug.then(|| format!("logs/{run_id}")),
        workflow_id: run_id,
        // The path that the programs of the run see.
        scope_dir: context.root.real_path().display().to_string(),
        spec_file: context.state.spec_file.clone(),
        spec_hash: context.state.spec_hash.clone(),
        provider: config.spec.generator.provider.name().into(),
        model: config.model.name.clone(),
        resumed,
        version: env!("CARGO_PKG_VERSION").into(),
        max_retries: Some(config.spec.max_retries),
        replaces,
        continues: context.state.continues.clone(),
        budget: budget_limits(&config.spec.budget),
        options: config.options.clone(),
        start_state: None,
        input: None,
        folder: None,
    }
}

/// The limits of a budget, if it has any.
fn budget_limits(budget: &BudgetSpec) -> Option<BudgetLimits> {
    let BudgetSpec { usd, tokens } = *budget;
    (usd.is_some() || tokens.is_some()).then_some(BudgetLimits { usd, tokens })
}

/// Records the sandbox mode.
fn record_sandbox(
    config: &RunConfig,
    found: Option<&ProbeResult>,
    context: &mut Context,
) -> Result<()> {
    let before = context.facts(|facts| facts.sandbox.clone());
    let extra_access = sandbox::extra_access(&config.spec.sandbox);
    let event = sandbox::found_event(found, &extra_access, "the checks", before.as_deref());
    context.log.record(event)
}

/// Records the end of the command and returns its result.
fn conclude(config: &RunConfig, run: &mut Run, result: Result<Phase>) -> RunOutcome {
    let context = &mut run.context;
    let notes = context.log.notes();
    let outcome = match &result {
        Ok(_) => RunOutcome::of_state(&context.state, notes),
        Err(error) => RunOutcome::unfinished(error, &context.state, notes),
    };
    let outcome = context.facts(|facts| outcome.with_checks(facts.rounds.last()));
    let records = context.attempts.records().list().unwrap_or_default();
    let best = best_text(&records, None, config.named_root.as_deref());
    let event = end_event(&context.state, &result, outcome.message().to_owned(), best);
    // On a full disk the journal cannot record the end; the observers and the result still show it.
    if context.log.record(event.clone()).is_err() {
        context.log.publish(&event);
    }
    outcome
}

/// The event of the end; `best` is the line about the best attempt.
fn end_event(
    state: &RunState,
    result: &Result<Phase>,
    message: String,
    best: Option<String>,
) -> Event {
    let workflow_id = state.run_id.clone();
    let total_cost_usd = state.usage.cost_usd;
    match result {
        Ok(phase) => Event::WorkflowCompleted {
            outcome: phase.name().into(),
            reason: state
                .reason
                .map(|reason| reason.to_string())
                .unwrap_or_default(),
            message: match phase {
                Phase::Success => message,
                _ => {
                    let best = best
                        .map(|best| format!("\nbest: {best}"))
                        .unwrap_or_default();
                    format!("{message}\nkept: workspace/, state.json, logs/{workflow_id}.log{best}")
                }
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
    }
}
