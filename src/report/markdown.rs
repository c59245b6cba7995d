//! A report as Markdown for a pull request. Foreign text is escaped in lines and cells, and fenced in blocks by more backticks
//! than it has.

use std::fmt::Write;

use crate::report::model::{ReportAttempt, RunReport, counts};
use crate::text::markdown::{escaped_line, one_line};
use crate::text::shorten::{cut_chars, cut_middle};

const CELL: usize = 200;
const MOST_CAUSES: usize = 20;
const BLOCK: usize = 4_000;
/// A comment on a pull request has 65,536 characters at most.
const MOST_ROWS: usize = 40;

/// The report of a run.
pub(crate) fn markdown(report: &RunReport) -> String {
    let mut text = format!("### orchestrator: {}", report.outcome.word());
    if !report.message.is_empty() {
        let _ = write!(text, ", {}", inline(&report.message));
    }
    text += "\n\n";
    let cost = report.usage.cost_usd;
    let cost = cost.map_or("cost unknown".to_owned(), |cost| format!("{cost:.4} USD"));
    let _ = writeln!(
        text,
        "{} {}, run {}, {}, {} tokens in, {} out\n",
        report.kind,
        inline(&report.spec_file),
        inline(&report.run_id),
        cost,
        report.usage.input_tokens,
        report.usage.output_tokens
    );
    match report.is_workflow() {
        true => push_agents(&mut text, report),
        false => push_attempts(&mut text, report),
    }
    if let Some(next) = report.next.first() {
        let _ = write!(
            text,
            "{}:\n\n{}",
            inline(&next.purpose),
            fenced(&next.command)
        );
    }
    text
}

fn push_agents(text: &mut String, report: &RunReport) {
    push_table(text, &["agent", "status", "states", "cost", "result"]);
    for agent in report.agents.iter().take(MOST_ROWS) {
        let cost = agent
            .cost_usd
            .map_or("-".to_owned(), |cost| format!("{cost:.4}"));
        push_row(
            text,
            &[
                &agent.agent_id,
                agent.status,
                &agent.visits.to_string(),
                &cost,
                &agent.result,
            ],
        );
    }
    push_more(text, "agents", report.agents.len());
    text.push('\n');
}

/// A line for the rows that a table leaves out.
fn push_more(text: &mut String, what: &str, rows: usize) {
    if MOST_ROWS < rows {
        let more = rows - MOST_ROWS;
        let _ = writeln!(text, "\n{more} {what} are left out.");
    }
}

fn push_attempts(text: &mut String, report: &RunReport) {
    if !report.attempts.is_empty() {
        push_table(
            text,
            &[
                "attempt", "result", "files", "passed", "failed", "cost", "cause",
            ],
        );
    }
    // The newest ones say most.
    let first = report.attempts.len().saturating_sub(MOST_ROWS);
    for attempt in &report.attempts[first..] {
        let [passed, failed, _] = counts(attempt.tests.as_ref());
        let files = attempt.written.len() + attempt.deleted.len();
        let cost = attempt
            .cost_usd
            .map_or("-".to_owned(), |cost| format!("{cost:.4}"));
        push_row(
            text,
            &[
                &attempt.number.to_string(),
                attempt.word(),
                &files.to_string(),
                &passed,
                &failed,
                &cost,
                attempt.cause.as_deref().unwrap_or_default(),
            ],
        );
    }
    push_more(text, "earlier attempts", report.attempts.len());
    text.push('\n');
    if let Some(last) = report.last_tested() {
        push_checks(text, last);
        push_causes(text, last);
    }
    push_stat(text, report);
}

fn push_checks(text: &mut String, attempt: &ReportAttempt) {
    let _ = writeln!(text, "Checks of attempt {}:\n", attempt.number);
    push_table(
        text,
        &["check", "result", "passed", "failed", "skipped", "seconds"],
    );
    for check in attempt.checks.iter().take(MOST_ROWS) {
        let [passed, failed, skipped] = counts(check.tests.as_ref());
        let seconds = format!("{:.1}", check.duration_ms as f64 / 1000.0);
        let row = [
            &check.name,
            check.word(),
            &passed,
            &failed,
            &skipped,
            &seconds,
        ];
        push_row(text, &row);
    }
    push_more(text, "checks", attempt.checks.len());
    text.push('\n');
}

fn push_causes(text: &mut String, attempt: &ReportAttempt) {
    let failed = attempt.checks.iter().filter(|check| !check.passed);
    let mut lines = Vec::new();
    for check in failed {
        for cause in &check.causes {
            let place = cause
                .places
                .first()
                .map(|place| format!(" ({})", inline(place)));
            let name = inline(&check.name);
            let message = inline(&cause.message);
            lines.push(format!(
                "- {name}: {message}{}\n",
                place.unwrap_or_default()
            ));
        }
        if check.causes.is_empty() {
            let problem = inline(check.problem.as_deref().unwrap_or("failed"));
            lines.push(format!("- {}: {problem}\n", inline(&check.name)));
        }
    }
    if lines.is_empty() {
        return;
    }
    *text += "What failed:\n\n";
    lines
        .iter()
        .take(MOST_CAUSES)
        .for_each(|line| text.push_str(line));
    if lines.len() > MOST_CAUSES {
        let _ = writeln!(text, "- and {} more", lines.len() - MOST_CAUSES);
    }
    text.push('\n');
}

/// How much each attempt changed, folded.
fn push_stat(text: &mut String, report: &RunReport) {
    let mut stat = String::new();
    for attempt in &report.attempts {
        for file in &attempt.changes {
            let counts = match (file.added, file.removed) {
                (Some(added), Some(removed)) => format!("+{added} -{removed}"),
                _ => "binary".to_owned(),
            };
            let _ = writeln!(stat, "attempt {}: {} {counts}", attempt.number, file.path);
        }
        if attempt.changes.is_empty() {
            let named = attempt.written.iter().map(|name| ("written", name));
            let named = named.chain(attempt.deleted.iter().map(|name| ("deleted", name)));
            for (word, name) in named {
                let _ = writeln!(stat, "attempt {}: {name} {word}", attempt.number);
            }
        }
    }
    if !stat.is_empty() {
        let stat = fenced(&cut_middle(&stat, BLOCK));
        let _ = write!(
            text,
            "<details><summary>Changed files</summary>\n\n{stat}</details>\n\n"
        );
    }
}

fn push_table(text: &mut String, columns: &[&str]) {
    push_row(text, columns);
    let _ = writeln!(text, "|{}", "---|".repeat(columns.len()));
}

fn push_row(text: &mut String, cells: &[&str]) {
    text.push('|');
    for cell in cells {
        let _ = write!(text, " {} |", inline(cell));
    }
    text.push('\n');
}

/// A block of text as it is.
fn fenced(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max();
    let fence = "`".repeat(longest.unwrap_or(0).max(2) + 1);
    format!("{fence}text\n{}\n{fence}\n", text.trim_end())
}

/// Text on one line that Markdown shows as it is.
fn inline(text: &str) -> String {
    escaped_line(&cut_chars(&one_line(text), CELL, "…"))
}
