//! `status`: what `state.json` has, in readable form, and the last round of checks. Takes no lock, changes nothing.

use std::fs::File;
use std::io::BufReader;

use rustix::fs::{Mode, OFlags, openat};

use crate::build::rounds::{CheckResult, Rounds};
use crate::cli::env::CliEnv;
use crate::cli::resume_command::resume_saved_workflow;
use crate::cli::workflow_status::workflow_table;
use crate::error::{Error, Result};
use crate::events::TestTotals;
use crate::state::run::{RunState, UsageTotals};
use crate::state::store::{LoadedState, Root};
use crate::text::invisible::printable;

/// How many lines of the last report, or names of failed tests, are shown.
const SHOWN_LINES: usize = 12;

/// Returns what is printed.
pub(super) fn main(env: &CliEnv, json: bool) -> Result<String> {
    let root = Root::open(&env.root)?;
    match root.load()? {
        LoadedState::Corrupt(problem) | LoadedState::CorruptWorkflow(problem) => {
            Err(Error::StateCorrupt(format!(
                "{} is corrupt: {problem}\nhelp: `orchestrator reset` deletes it",
                root.join("state.json").display()
            )))
        }
        LoadedState::Nothing if json => Ok("null\n".into()),
        LoadedState::Nothing => Ok(format!(
            "no run in {}\n",
            printable(&env.root.to_string_lossy())
        )),
        LoadedState::Build(_) | LoadedState::Workflow(_) if json => {
            Ok(String::from_utf8_lossy(&root.read_state()?).into_owned())
        }
        LoadedState::Workflow(state) => {
            let next = resume_saved_workflow(&state, env);
            Ok(workflow_table(&state)
                + &next
                    .map(|command| row("next", &command))
                    .unwrap_or_default())
        }
        LoadedState::Build(state) => {
            let rounds = read_rounds(&root, &state.run_id);
            Ok(table(&state, &rounds) + &last_report(&state.last_test_output))
        }
    }
}

/// The rounds of checks in the log of a run; none without a log.
#[expect(clippy::disallowed_methods, reason = "the log is not a generated file")]
fn read_rounds(root: &Root, run_id: &str) -> Rounds {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let logs = openat(
        root.handle(),
        "logs",
        flags | OFlags::DIRECTORY,
        Mode::empty(),
    );
    let log = logs.and_then(|logs| openat(logs, format!("{run_id}.log"), flags, Mode::empty()));
    let log = log
        .map(File::from)
        .ok()
        .filter(|log| log.metadata().is_ok_and(|found| found.is_file()));
    log.map(|log| Rounds::of_log(BufReader::new(log)))
        .unwrap_or_default()
}

fn table(state: &RunState, rounds: &Rounds) -> String {
    let usage = &state.usage;
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    let files = state.attempt_files.join(", ");
    let exit_code = |code| ("last check", format!("exit code {code}"));
    let mut rows = vec![
        ("state", state.phase.name().to_owned()),
        ("run", state.run_id.clone()),
        ("spec", state.spec_file.clone()),
        (
            "retries",
            format!("{} of {}", state.retry_count, state.max_retries),
        ),
        ("model calls", usage.llm_calls.to_string()),
        ("tokens", format!("{input} in, {output} out")),
        ("cost", cost(usage)),
        ("begun", state.created_at.clone()),
        ("updated", state.updated_at.clone()),
        ("log", format!("logs/{}.log", state.run_id)),
    ];
    rows.extend(state.reason.map(|reason| ("reason", reason.to_string())));
    rows.extend(state.last_error.clone().map(|error| ("error", error)));
    rows.extend(state.last_test_exit_code.map(exit_code));
    rows.extend(rounds.last().iter().map(|result| ("check", check(result))));
    rows.extend((!files.is_empty()).then_some(("last answer", files)));
    rows.iter().map(|(name, value)| row(name, value)).collect()
}

pub(super) fn row(name: &str, value: &str) -> String {
    let value = printable(value);
    let value = value.trim_end().replace('\n', "\n             ");
    format!("{name:<12} {value}\n")
}

pub(super) fn cost(usage: &UsageTotals) -> String {
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
    if let Some(TestTotals {
        executed,
        passed,
        failed,
        skipped,
        failed_names,
    }) = &result.tests
    {
        text += &format!(
            "; tests: {executed} executed, {passed} passed, {failed} failed, {skipped} skipped"
        );
        for name in failed_names.iter().take(SHOWN_LINES) {
            text += &format!("\n  failed: {name}");
        }
        if failed_names.len() > SHOWN_LINES {
            text += &format!("\n  and {} more", failed_names.len() - SHOWN_LINES);
        }
    }
    text
}

/// The first lines of the report of the last round.
fn last_report(report: &str) -> String {
    if report.is_empty() {
        return String::new();
    }
    let plain = printable(report);
    let lines: Vec<&str> = plain.lines().collect();
    let mut text = "output of the checks:\n".to_owned();
    for line in lines.iter().take(SHOWN_LINES) {
        text += &format!("  {line}\n");
    }
    if lines.len() > SHOWN_LINES {
        text += &format!(
            "  … {} more lines; status --json shows all\n",
            lines.len() - SHOWN_LINES
        );
    }
    text
}
