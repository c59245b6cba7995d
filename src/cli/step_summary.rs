//! The result of a run as a table in the summary of a GitHub Actions step.

use std::fs::OpenOptions;
use std::io::Write;

use crate::build::rounds::CheckResult;
use crate::cli::env::CliEnv;
use crate::cli::outcome::RunOutcome;
use crate::cli::output::print_stderr;
use crate::text::invisible::escaped;
use crate::text::markdown::{escaped_line, one_line};
use crate::text::shorten::cut_chars;

const MAX_CELL: usize = 300;

/// Appends the table to the file that the environment names, if this is a step of GitHub Actions.
pub(super) fn append(env: &CliEnv, outcome: &RunOutcome) {
    let file = env.text("GITHUB_STEP_SUMMARY");
    let Some(file) = file.filter(|_| env.is_github_step()) else {
        return;
    };
    let opened = OpenOptions::new().append(true).create(true).open(&file);
    let written = opened.and_then(|mut opened| opened.write_all(table(outcome).as_bytes()));
    if let Err(error) = written {
        print_stderr(&format!("warning: cannot write the step summary: {error}"));
    }
}

fn table(outcome: &RunOutcome) -> String {
    let usage = &outcome.usage;
    let cost = usage
        .cost_usd
        .map_or("unknown".to_owned(), |usd| format!("{usd:.4} USD"));
    let rows = [
        ("result", outcome.title()),
        ("message", outcome.message().to_owned()),
        ("run", outcome.run_id.as_deref().unwrap_or("-").to_owned()),
        ("patches", outcome.retry_count.to_string()),
        (
            "tokens",
            format!("{} in, {} out", usage.input_tokens, usage.output_tokens),
        ),
        ("cost", cost),
    ];
    let rows = rows.map(|(label, value)| row(&[label.to_owned(), value]));
    let mut text = format!("### orchestrator\n\n| | |\n|---|---|\n{}\n", rows.concat());
    if !outcome.checks.is_empty() {
        text += "| check | result | tests |\n|---|---|---|\n";
        text.extend(outcome.checks.iter().map(check_row));
        text += "\n";
    }
    text
}

fn check_row(check: &CheckResult) -> String {
    let result = match (check.passed, check.flaky) {
        (true, false) => "passed",
        (true, true) => "passed, flaky",
        (false, _) => "failed",
    };
    let tests = check.tests.as_ref().map(|tests| {
        format!(
            "{} passed, {} failed, {} skipped",
            tests.passed, tests.failed, tests.skipped
        )
    });
    row(&[
        check.name.clone(),
        result.to_owned(),
        tests.unwrap_or_default(),
    ])
}

fn row(cells: &[String]) -> String {
    let cells: String = cells
        .iter()
        .map(|text| format!(" {} |", cell(text)))
        .collect();
    format!("|{cells}\n")
}

/// Text that Markdown shows as it is.
fn cell(text: &str) -> String {
    escaped_line(&cut_chars(&escaped(&one_line(text)), MAX_CELL, "..."))
}
