//! `status`: what `state.json` holds, readable, and what the checks of the last round came to. It takes no lock and changes nothing.

use std::fs::File;
use std::io::BufReader;

use rustix::fs::{Mode, OFlags, openat};

use crate::build::rounds::{CheckResult, Rounds};
use crate::cli::env::CliEnv;
use crate::error::{Error, Result};
use crate::events::TestTotals;
use crate::state::run::RunState;
use crate::state::store::{LoadedState, Root};
use crate::text::invisible::printable;

/// How much of the last test output is shown.
const SHOWN_LINES: usize = 12;

/// Returns what is printed.
pub fn main(env: &CliEnv, json: bool) -> Result<String> {
    let root = Root::open(&env.root)?;
    match root.load()? {
        LoadedState::Nothing if json => Ok("null\n".into()),
        LoadedState::Nothing => Ok(format!(
            "no run in {}\n",
            printable(&env.root.to_string_lossy())
        )),
        LoadedState::Corrupt(problem) => Err(Error::StateCorrupt(format!(
            "{} is corrupt: {problem}; `orchestrator reset` forgets it",
            root.join("state.json").display()
        ))),
        LoadedState::Workflow if !json => Ok("a workflow; status --json shows its state\n".into()),
        _ if json => Ok(String::from_utf8_lossy(&root.read_state()?).into_owned()),
        LoadedState::Build(state) => Ok(readable(&state, &rounds(&root, &state.run_id))),
        LoadedState::Workflow => Ok(String::new()),
    }
}

/// Reads the rounds of checks in the log of a run; nothing where there is no such log.
#[expect(clippy::disallowed_methods, reason = "the log is not a generated file")]
fn rounds(root: &Root, run_id: &str) -> Rounds {
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

fn of_check(result: &CheckResult) -> String {
    let mut text = format!(
        "{}: {}",
        result.name,
        if result.passed { "passed" } else { "failed" }
    );
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

fn readable(state: &RunState, rounds: &Rounds) -> String {
    let cost = state
        .usage
        .cost_usd
        .map_or("unknown".into(), |cost| format!("{cost:.4} USD"));
    let lost = state.usage.lost_usd.filter(|lost| 0.0 < *lost);
    let lost = lost.map_or(String::new(), |lost| {
        format!(", and up to {lost:.4} USD for requests that broke off")
    });
    let mut rows = vec![
        ("state", state.phase.name().to_owned()),
        ("run", state.run_id.clone()),
        ("spec", state.spec_file.clone()),
        (
            "retries",
            format!("{} of {}", state.retry_count, state.max_retries),
        ),
        ("model calls", state.usage.llm_calls.to_string()),
        (
            "tokens",
            format!(
                "{} in, {} out",
                state.usage.input_tokens, state.usage.output_tokens
            ),
        ),
        ("cost", cost + &lost),
        ("begun", state.created_at.clone()),
        ("updated", state.updated_at.clone()),
        ("log", format!("logs/{}.log", state.run_id)),
    ];
    rows.extend(state.reason.map(|reason| ("reason", reason.to_string())));
    rows.extend(state.last_error.clone().map(|error| ("error", error)));
    rows.extend(
        state
            .last_test_exit_code
            .map(|code| ("last check", format!("exit code {code}"))),
    );
    rows.extend(
        rounds
            .last()
            .iter()
            .map(|result| ("check", of_check(result))),
    );
    if !state.attempt_files.is_empty() {
        rows.push(("last answer", state.attempt_files.join(", ")));
    }
    let mut out = String::new();
    for (name, value) in rows {
        out += &format!(
            "{name:<12} {}\n",
            printable(&value)
                .trim_end()
                .replace('\n', "\n             ")
        );
    }
    if !state.last_test_output.is_empty() {
        out += "what the checks said:\n";
        let plain = printable(&state.last_test_output);
        let lines: Vec<&str> = plain.lines().collect();
        for line in lines.iter().take(SHOWN_LINES) {
            out += &format!("  {line}\n");
        }
        if lines.len() > SHOWN_LINES {
            out += &format!(
                "  … {} more lines; status --json shows all\n",
                lines.len() - SHOWN_LINES
            );
        }
    }
    out
}
