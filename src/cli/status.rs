//! `status`: what became of the run of a root, what it used, why it failed, and the command that goes on. Takes no lock,
//! never waits, changes nothing.

use crate::build::rounds::CheckResult;
use crate::cli::best_attempt::best_text;
use crate::cli::env::CliEnv;
use crate::cli::known_run::{KnownRun, RunStatus, SavedState, logged_runs};
use crate::cli::resume_command::{resume_saved_build, resume_saved_workflow};
use crate::cli::run_facts::{RunEnd, RunFacts};
use crate::cli::run_names::named_run;
use crate::cli::workflow_status::workflow_rows;
use crate::error::{Error, Result};
use crate::events::TestTotals;
use crate::snapshots::records::RunSnapshots;
use crate::state::reason::Reason;
use crate::state::run::{RunKind, RunState, UsageTotals};
use crate::state::store::{LoadedState, Root};
use crate::text::invisible::{escaped, printable};

/// How many names of failed tests, or lines of a report without causes, are shown.
const SHOWN_LINES: usize = 12;

/// A row of the table: its name and its value.
pub(super) type Row = (&'static str, String);

/// Returns what is printed; `run` names an older run.
pub(super) fn main(env: &CliEnv, run: Option<&str>, json: bool) -> Result<String> {
    let root = Root::open(&env.root)?;
    match run {
        Some(id) => status_of(env, &root, id, json),
        None => current_status(env, &root, json),
    }
}

fn current_status(env: &CliEnv, root: &Root, json: bool) -> Result<String> {
    match root.load()? {
        LoadedState::Corrupt(problem) | LoadedState::CorruptWorkflow(problem) => {
            Err(Error::StateCorrupt(format!(
                "{} is corrupt: {problem}\nhelp: `orchestrator reset` deletes it",
                root.join("state.json").display()
            )))
        }
        LoadedState::Nothing if json => Ok("null\n".into()),
        LoadedState::Nothing => {
            let earlier = logged_runs(root).is_ok_and(|runs| !runs.is_empty());
            let hint = match earlier {
                true => "; `orchestrator runs` lists earlier ones",
                false => "",
            };
            let path = printable(&env.root.to_string_lossy());
            Ok(format!("no run in {path}{hint}\n"))
        }
        LoadedState::Build(_) | LoadedState::Workflow(_) if json => {
            Ok(String::from_utf8_lossy(&root.read_state()?).into_owned())
        }
        loaded => Ok(SavedState::of(loaded)
            .map(|state| shown(&KnownRun::current(root, state), root, env))
            .unwrap_or_default()),
    }
}

/// The status of the run with an id.
fn status_of(env: &CliEnv, root: &Root, id: &str, json: bool) -> Result<String> {
    let current = SavedState::of(root.load()?);
    let current_id = current.as_ref().map(|state| state.run_id().to_owned());
    let run_id = named_run(root, id)?;
    if current_id.as_deref() == Some(run_id.as_str()) {
        return current_status(env, root, json);
    }
    if json {
        let kept = root.load_kept_state(&run_id);
        let bytes = kept.and_then(|_| root.read_kept_state(&run_id));
        let text = bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        return Ok(text.unwrap_or_else(|| "null\n".into()));
    }
    let state = root.load_kept_state(&run_id).and_then(SavedState::of);
    let facts = RunFacts::of_run(root, &run_id).unwrap_or_default();
    let run = KnownRun::new(run_id, state, false, facts);
    Ok(shown(
        &run.with_status(root.lock_holder().as_ref()),
        root,
        env,
    ))
}

/// The table of a run.
fn shown(run: &KnownRun, root: &Root, env: &CliEnv) -> String {
    let mut rows = vec![("status", status_text(run))];
    match &run.state {
        Some(SavedState::Workflow(state)) => rows.extend(workflow_rows(state, run)),
        Some(SavedState::Build(state)) => rows.extend(build_rows(run, Some(state))),
        None => rows.extend(build_rows(run, None)),
    }
    rows.extend(best(run, root, env).map(|line| ("best", line)));
    rows.extend(next_command(run, env).map(|command| ("next", command)));
    rows.iter().map(|(name, value)| row(name, value)).collect()
}

/// The best attempt of a run that failed.
fn best(run: &KnownRun, root: &Root, env: &CliEnv) -> Option<String> {
    let records = RunSnapshots::of(root, &run.run_id).list().ok()?;
    let older = (!run.is_current).then_some(run.run_id.as_str());
    let has_failed = run.status == RunStatus::Failed;
    best_text(&records, older, env.named_root.as_deref()).filter(|_| has_failed)
}

/// The first row.
fn status_text(run: &KnownRun) -> String {
    match &run.status {
        RunStatus::Running(holder) => {
            let since = holder.since.as_deref().map(|time| format!(", since {time}"));
            let place = format!("running (pid {}{})", holder.pid, since.unwrap_or_default());
            let mut doing = run.facts.activities.sentences().join("; ");
            if let (Some((number, of)), false) = (run.facts.attempt, doing.is_empty()) {
                doing += &format!(" (attempt {number} of {of})");
            }
            match doing.is_empty() {
                true => place,
                false => format!("{place}: {doing}"),
            }
        }
        RunStatus::Interrupted(end) => format!("{}, at {}", interrupt(end), end.at),
        RunStatus::Killed => {
            "killed: the process ended without an end in the log (kill -9, a power cut or a full disk)".into()
        }
        RunStatus::Paused(end) => format!("paused ({}): {}", end.reason, end.message),
        RunStatus::Succeeded | RunStatus::Failed => {
            let reason = run.reason().map(|reason| format!(" ({reason})"));
            format!("over: {}{}", run.status.word(), reason.unwrap_or_default())
        }
        RunStatus::Unknown => {
            "stopped: its log is missing or cannot be read, so it is not known how".into()
        }
    }
}

fn interrupt(end: &RunEnd) -> String {
    match end.message.starts_with("interrupted by ") {
        true => end.message.clone(),
        false => format!("interrupted ({}): {}", end.reason, end.message),
    }
}

/// The rows of a build, or of any run of which only the log is left.
fn build_rows(run: &KnownRun, state: Option<&RunState>) -> Vec<Row> {
    let facts = &run.facts;
    let name = match run.kind() {
        RunKind::Build => "spec",
        RunKind::Workflow => "workflow",
    };
    let mut rows = vec![
        ("run", run.run_id.clone()),
        (name, escaped(run.spec_file())),
    ];
    let phase = state.map(|state| state.phase).or(facts.phase);
    rows.extend(phase.map(|phase| ("state", phase.name().to_owned())));
    let attempt = state.map(RunState::attempt).or(facts.attempt);
    rows.extend(attempt.map(|(number, of)| ("attempt", format!("{number} of {of}"))));
    let tests = facts.checks().iter();
    let tests = TestTotals::sum(tests.filter_map(|check| check.tests.as_ref()));
    rows.extend(tests.map(|tests| ("tests", tests.to_string())));
    rows.extend(usage_rows(run));
    rows.push(("begun", run.started_at().to_owned()));
    let updated = state.map(|state| state.updated_at.clone());
    rows.extend(
        updated
            .max(facts.updated.clone())
            .map(|time| ("updated", time)),
    );
    rows.push(("log", format!("logs/{}.log", run.run_id)));
    let started = facts.start.as_ref();
    let continues = started.and_then(|start| start.continues.clone());
    rows.extend(continues.map(|earlier| ("continues", earlier)));
    rows.extend(result_rows(run, state));
    rows
}

/// What a run used and may still use.
pub(super) fn usage_rows(run: &KnownRun) -> Vec<Row> {
    let usage = run.usage();
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let mut rows = vec![
        ("model calls", usage.llm_calls.to_string()),
        ("tokens", format!("{input} in, {output} out")),
        ("cost", cost(&usage)),
    ];
    rows.extend(run.budget_left().map(|left| ("budget", left)));
    rows
}

/// How the checks ended, and why the run did.
fn result_rows(run: &KnownRun, state: Option<&RunState>) -> Vec<Row> {
    let mut rows = Vec::new();
    rows.extend(run.reason().map(|reason| ("reason", reason)));
    rows.extend(error_of(run, state).map(|error| ("error", error)));
    let code = state.and_then(|state| state.last_test_exit_code);
    rows.extend(code.map(|code| ("last check", format!("exit code {code}"))));
    let checks = run.facts.checks().iter();
    rows.extend(checks.map(|result| ("check", check(result))));
    let files = state.map_or(&run.facts.files, |state| &state.attempt_files);
    let files = files.iter().map(|file| escaped(file)).collect::<Vec<_>>();
    rows.extend((!files.is_empty()).then(|| ("last answer", files.join(", "))));
    match run.cause() {
        Some(cause) => rows.push(("cause", cause)),
        None => rows.extend(state.and_then(|state| last_report(&state.last_test_output))),
    }
    rows
}

/// The error of a run that is over.
fn error_of(run: &KnownRun, state: Option<&RunState>) -> Option<String> {
    match state {
        Some(state) => state.last_error.clone(),
        None if run.status == RunStatus::Failed => {
            let end = run.facts.end.as_ref();
            end.map(|end| end.message.clone())
        }
        None => None,
    }
}

/// The command that goes on, of the run that `state.json` is of.
pub(super) fn next_command(run: &KnownRun, env: &CliEnv) -> Option<String> {
    if !run.is_current || matches!(run.status, RunStatus::Running(_)) {
        return None;
    }
    let continues = match run.status {
        RunStatus::Succeeded => return None,
        RunStatus::Failed => true,
        _ => false,
    };
    match run.state.as_ref()? {
        SavedState::Workflow(state) => resume_saved_workflow(state, env),
        SavedState::Build(state) => {
            let can_go_on = !continues || state.reason.is_some_and(Reason::is_continuable);
            let options = &run.facts.options;
            can_go_on.then(|| resume_saved_build(&state.spec_file, options, continues, env))
        }
    }
}

/// A row; further lines of its value are indented.
pub(super) fn row(name: &str, value: &str) -> String {
    let value = printable(value);
    let value = value.trim_end().replace('\n', "\n             ");
    format!("{name:<12} {value}\n")
}

fn cost(usage: &UsageTotals) -> String {
    let mut text = usage
        .cost_usd
        .map_or("unknown".into(), |cost| format!("{cost:.4} USD"));
    if let Some(lost) = usage.lost_usd.filter(|lost| 0.0 < *lost) {
        text += &format!(", and up to {lost:.4} USD for requests that broke off");
    }
    text
}

fn check(result: &CheckResult) -> String {
    let word = if result.passed { "passed" } else { "failed" };
    let mut text = format!("{}: {word}", result.name);
    if result.flaky {
        text += " (flaky)";
    }
    if let Some(tests) = &result.tests {
        text += &format!("; tests: {tests}");
        let failed_names = &tests.failed_names;
        for name in failed_names.iter().take(SHOWN_LINES) {
            text += &format!("\n  failed: {name}");
        }
        if failed_names.len() > SHOWN_LINES {
            text += &format!("\n  and {} more", failed_names.len() - SHOWN_LINES);
        }
    }
    text
}

/// The first lines of a report of the last round that lists no causes, from the first failed check on.
fn last_report(report: &str) -> Option<Row> {
    let start = report.find("## ")?;
    let lines: Vec<&str> = report[start + 3..].lines().collect();
    let mut text = lines[..lines.len().min(SHOWN_LINES)].join("\n");
    if lines.len() > SHOWN_LINES {
        let more = lines.len() - SHOWN_LINES;
        text += &format!("\n… {more} more lines; status --json shows all");
    }
    Some(("cause", text))
}
