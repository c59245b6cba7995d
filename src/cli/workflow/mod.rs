//! `run --workflow`: decides what there is to do, drives the agents, and concludes with the result.
//!
//! `config` has what the command line asks for, `decision` whether the run is new, resumed or over, `settings` what
//! follows from both, `wiring` builds the run, `answers` and `person` bring the answers of people.

mod answers;
mod config;
mod decision;
mod person;
mod settings;
mod wiring;

use std::path::Path;

use crate::cancel::CancelToken;
use crate::cli::arguments::RunArguments;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::log_file::{log_file, record_repair};
use crate::cli::outcome::RunOutcome;
use crate::cli::output::print_stderr;
use crate::cli::resume_command::{ResumeNeeds, resume_workflow_command};
use crate::cli::run::REPLAY_LINE;
use crate::cli::workflow::config::WorkflowConfig;
use crate::cli::workflow::decision::{WorkflowDecision, WorkflowPlan, decide};
use crate::cli::workflow::settings::RunSettings;
use crate::error::{Error, Result};
use crate::events::{BudgetLimits, Event, RUN_AGENT};
use crate::observers::workflow_text::run_lines;
use crate::process::scratch;
use crate::state::reason::Reason;
use crate::state::store::{LoadedState, Root};
use crate::state::workflow::{AgentStatus, WorkflowPhase, WorkflowState};
use crate::workflow::{self, WorkflowEnd, WorkflowRun};

/// Runs the command to its end.
pub(super) fn main(arguments: &RunArguments, path: &Path, env: &CliEnv) -> RunOutcome {
    let mut needs = ResumeNeeds::default();
    let outcome = cancel_on_signals().and_then(|cancel| {
        refuse_spec_flags(arguments)?;
        let config = WorkflowConfig::read(arguments, path, env)?;
        execute(config, env, cancel, &mut needs)
    });
    outcome
        .unwrap_or_else(|error| RunOutcome::refused(&error))
        .of_workflow()
        .with_next(|_| resume_workflow_command(arguments, path, env, &needs))
}

/// Refuses flags that work with a spec only.
fn refuse_spec_flags(arguments: &RunArguments) -> Result<()> {
    let given = [
        ("--max-retries", arguments.max_retries.is_some()),
        ("--continue", arguments.continues),
        ("--keep-best", arguments.keep_best),
        ("--set", !arguments.set.is_empty()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((flag, _)) => Err(Error::Usage(format!(
            "{flag} does not work with a workflow, only with a spec"
        ))),
        None => Ok(()),
    }
}

/// Runs what there is to run; `needs` gets what the command that goes on has to give.
fn execute(
    config: WorkflowConfig,
    env: &CliEnv,
    cancel: CancelToken,
    needs: &mut ResumeNeeds,
) -> Result<RunOutcome> {
    let root = Root::open(&config.root)?;
    root.refuse_links(&["workspace", "logs"])?;
    let _lock = root.lock()?;
    root.sweep();
    scratch::sweep(&config.host.temporary, &root.real_path());
    match decide(&config, env, &root)? {
        WorkflowDecision::Over(state) => Ok(report_again(&state)),
        WorkflowDecision::Start(plan) => {
            let driven = drive(config, *plan, root, cancel)?;
            *needs = driven.needs;
            Ok(driven.result)
        }
    }
}

/// Reports the result of a run that is over.
fn report_again(state: &WorkflowState) -> RunOutcome {
    let outcome = RunOutcome::of_workflow_state(state, Vec::new(), over_message(state));
    let hint = match state.is_corrupt() {
        true => "`orchestrator reset` or --no-resume starts a new one",
        false => "--no-resume starts a new one",
    };
    print_stderr(&run_lines(&format!("this run is over ({hint})")));
    outcome
}

fn over_message(state: &WorkflowState) -> String {
    match state.state {
        WorkflowPhase::Success => "all agents have ended".into(),
        _ => "state.json was corrupt and is kept beside".into(),
    }
}

/// The result of a run, and what the command that goes on has to give.
struct DrivenRun {
    result: RunOutcome,
    needs: ResumeNeeds,
}

fn drive(
    mut config: WorkflowConfig,
    plan: WorkflowPlan,
    root: Root,
    cancel: CancelToken,
) -> Result<DrivenRun> {
    let WorkflowPlan {
        state,
        fresh,
        settings,
        opened,
        answers,
    } = plan;
    let is_new = fresh.is_some();
    if is_new {
        config.host.remove_caches();
    }
    if config.replay.is_some() && !config.output.quiet {
        print_stderr(&run_lines(REPLAY_LINE));
    }
    let (mut opened, console) = wiring::attach(&config, &root, &state.run_id, opened);
    let repair = opened.repair.take().unwrap_or_default();
    let changed = std::mem::take(&mut opened.changed);
    let mut run = wiring::assemble(&mut config, &settings, (root, state), opened, cancel)?;
    run.person = person::at_terminal(&config.output, &console, &run.context.cancel);
    let started = record_repair(&run.context.log, repair)
        .and_then(|()| start(&config, &settings, &mut run, fresh))
        .and_then(|()| warn_of_changes(&run, &changed));
    if is_new && let Err(error) = started {
        remove_unsaved_log(&run);
        return Err(error);
    }
    let result = started.and_then(|()| answer_and_run(&mut run, answers));
    let outcome = conclude(&mut run, result);
    if run.state.state == WorkflowPhase::Success {
        config.host.remove_caches();
    }
    console.finish();
    let is_budget = run.state.reason == Some(Reason::Budget);
    Ok(DrivenRun {
        needs: ResumeNeeds {
            asking: wiring::asking_agents(&run.state),
            budget: settings.model.budget_usd.filter(|_| is_budget),
        },
        result: outcome.already_shown(),
    })
}

/// Gives the agents their answers, and runs them until none can go on.
fn answer_and_run(run: &mut WorkflowRun, answers: Vec<(String, String)>) -> Result<WorkflowEnd> {
    for (agent, text) in answers {
        run.answer(&agent, text)?;
    }
    let end = workflow::run(run)?;
    wiring::compare_with_recording(run, end)
}

/// Removes the log of a run that could not start. Where its state is there, also if it may not be durable, the run exists
/// and keeps its log.
fn remove_unsaved_log(run: &WorkflowRun) {
    let run_id = &run.state.run_id;
    let is_saved = match run.root.load() {
        Ok(LoadedState::Workflow(state)) => state.run_id == *run_id,
        Ok(_) => false,
        Err(_) => true,
    };
    if !is_saved {
        let _ = std::fs::remove_file(log_file(&run.root, run_id));
    }
}

/// Records the start and saves the state.
fn start(
    config: &WorkflowConfig,
    settings: &RunSettings,
    run: &mut WorkflowRun,
    fresh: Option<Option<String>>,
) -> Result<()> {
    if fresh.is_some() {
        run.root.keep_state()?;
    }
    let context = &run.context;
    let started = start_event(config, settings, run, fresh.is_none());
    context.log.record_synced(started)?;
    let log = context.log.for_agent(RUN_AGENT);
    if let Some(message) = fresh.flatten() {
        log.progress(message)?;
    }
    for warning in &config.warnings {
        log.note(warning.summary())?;
    }
    wiring::record_sandbox(config, settings, context)?;
    run.save()?;
    match run.root.real_path().starts_with(&settings.folder) {
        // Programs may write in the root; the state must stay covered in their sandbox from now on.
        true => run.root.keep_spare(),
        false => Ok(()),
    }
}

fn start_event(
    config: &WorkflowConfig,
    settings: &RunSettings,
    run: &WorkflowRun,
    resumed: bool,
) -> Event {
    let (context, state) = (&run.context, &run.state);
    let run_id = state.run_id.clone();
    Event::WorkflowStarted {
        debug_dir: config.output.debug.then(|| format!("logs/{run_id}")),
        workflow_id: run_id,
        // The path that the programs of the run see.
        scope_dir: run.root.real_path().display().to_string(),
        spec_file: state.workflow.clone(),
        spec_hash: String::new(),
        provider: settings.provider.facts().name.into(),
        model: match config.scope.has_markdown() {
            true => context.models.settings.model_of(None),
            false => String::new(),
        },
        resumed,
        version: env!("CARGO_PKG_VERSION").into(),
        max_retries: None,
        replaces: None,
        continues: None,
        budget: settings.model.budget_usd.map(|usd| BudgetLimits {
            usd: Some(usd),
            tokens: None,
        }),
        // They are in `state.json`.
        options: Vec::new(),
        start_state: Some(config.start.clone()),
        input: state.input.clone(),
        folder: Some(settings.folder.display().to_string()),
    }
}

/// A state that is not as it was when the run began may lead elsewhere.
fn warn_of_changes(run: &WorkflowRun, changed: &[String]) -> Result<()> {
    let log = run.context.log.for_agent(RUN_AGENT);
    let mut changed = changed.iter();
    changed.try_for_each(|file| {
        log.note(format!(
            "the state file {file} has changed since the run stopped"
        ))
    })
}

/// Records the end of the command and returns its result.
fn conclude(run: &mut WorkflowRun, result: Result<WorkflowEnd>) -> RunOutcome {
    let event = end_event(run, &result);
    let recorded = run.context.log.record_synced(event);
    // What is on disk is older where this fails, and true.
    let saved = run.save();
    let (is_recorded, has_ended) = (recorded.is_ok(), result.is_ok());
    let result = result.and_then(|end| recorded.and(saved).map(|()| end));
    // On a full disk neither the journal nor the state can have the end; the observers and the result still show it.
    if !is_recorded || has_ended && result.is_err() {
        run.context.log.publish(&end_event(run, &result));
    }
    let notes = run.context.log.notes();
    match result {
        Ok(end) => RunOutcome::of_workflow_state(&run.state, notes, message_of(&end)),
        Err(Error::Failed(reason, message)) => {
            RunOutcome::failed_workflow(&run.state, notes, reason, message)
        }
        Err(error) => RunOutcome::unfinished_workflow(&error, &run.state, notes),
    }
}

fn message_of(end: &WorkflowEnd) -> String {
    match end {
        WorkflowEnd::Completed => "all agents have ended".into(),
        WorkflowEnd::Failed(message) | WorkflowEnd::Paused(_, message) => message.clone(),
    }
}

fn end_event(run: &WorkflowRun, result: &Result<WorkflowEnd>) -> Event {
    let context = &run.context;
    let workflow_id = run.state.run_id.clone();
    let total_cost_usd = context.log.read(|log| log.usage().totals(true).cost_usd);
    let completed = |outcome: &str, reason: Reason, message: String| Event::WorkflowCompleted {
        workflow_id: workflow_id.clone(),
        total_cost_usd,
        outcome: outcome.into(),
        reason: reason.to_string(),
        message,
    };
    match result {
        Ok(WorkflowEnd::Completed) => {
            let message = "all agents have ended".into();
            completed("SUCCESS", Reason::Completed, message)
        }
        Ok(WorkflowEnd::Failed(message)) => {
            completed("FAILED", Reason::AgentFailed, message.clone())
        }
        Ok(WorkflowEnd::Paused(reason, message)) => Event::WorkflowPaused {
            workflow_id,
            total_cost_usd,
            paused_agent_count: context.facts(|log| paused_agents(log.agents())),
            reason: reason.to_string(),
            message: message.clone(),
        },
        Err(Error::Failed(reason, message)) => completed("FAILED", *reason, message.clone()),
        Err(error) => Event::WorkflowInterrupted {
            workflow_id,
            reason: error.reason().to_string(),
            message: error.to_string(),
        },
    }
}

fn paused_agents(agents: &[workflow::agent_record::AgentRecord]) -> u32 {
    let is_paused = |status| matches!(status, AgentStatus::Paused | AgentStatus::Asking);
    let paused = agents.iter().filter(|agent| is_paused(agent.status));
    u32::try_from(paused.count()).unwrap_or(u32::MAX)
}
