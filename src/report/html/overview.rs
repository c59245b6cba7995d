//! The parts of a page that every run has: result, next command, sandbox, limits and notes.

use crate::html::units::{clock, date_and_time, duration, plural, usd};
use crate::html::writer::HtmlWriter;
use crate::report::model::{ReportOutcome, RunReport};

/// What became of the run, and why.
pub(super) fn result(page: &mut HtmlWriter, report: &RunReport) {
    let word = report.outcome.word();
    let class = word.to_lowercase();
    page.put(format_args!(
        "<div class=\"result {class}\"><p><strong>{word}</strong>"
    ));
    if let Some(reason) = &report.reason {
        page.text(&format!(" ({reason})"));
    }
    page.raw("</p>\n");
    page.paragraph("lines", &why(report));
    if report.outcome != ReportOutcome::Success {
        let last = report.last_tested();
        if let Some(cause) = last.and_then(|attempt| attempt.cause.as_deref()) {
            page.paragraph("lines", &format!("First cause: {cause}"));
        }
    }
    page.raw("</div>\n<dl>\n");
    facts(page, report);
    page.raw("</dl>\n");
}

fn why(report: &RunReport) -> String {
    if report.outcome != ReportOutcome::Unfinished {
        return report.message.clone();
    }
    let within = report.last_open().map(|span| match span.attempt {
        Some(attempt) => format!(" within {} of attempt {attempt}", span.name),
        None => format!(" while {} was in {}", span.agent_id, span.name),
    });
    let within = within.unwrap_or_default();
    format!("The log ends{within}: the run is under way, or its process was killed.")
}

fn facts(page: &mut HtmlWriter, report: &RunReport) {
    page.term("Run", &report.run_id);
    if let Some(continues) = &report.continues {
        page.term("Continues", continues);
    }
    if report.is_replay {
        page.term("Replay", "The answers came from a log; nothing was paid.");
    }
    let model = match report.model.is_empty() {
        true => report.provider.clone(),
        false => format!("{} ({})", report.model, report.provider),
    };
    page.term("Model", &model);
    page.term("Begun", &date_and_time(&report.started_at));
    page.term("Last line of the log", &date_and_time(&report.updated_at));
    let mut worked = duration(report.duration_ms);
    if report.starts > 1 {
        worked += &format!(", in {} starts", report.starts);
    }
    page.term("Time", &worked);
    if !report.is_workflow() {
        page.term("Attempts", &report.attempts.len().to_string());
    }
    let last = report.last_tested();
    if let Some(tests) = last.and_then(|attempt| attempt.tests.as_ref()) {
        let (passed, failed, skipped) = (tests.passed, tests.failed, tests.skipped);
        let counts = format!("{passed} passed, {failed} failed, {skipped} skipped");
        page.term("Tests of the last attempt", &counts);
    }
    let usage = &report.usage;
    let calls = plural(count(usage.llm_calls), "model call");
    let (input, output) = (usage.input_tokens, usage.output_tokens);
    page.term("Used", &format!("{calls}, {input} tokens in, {output} out"));
    page.term("Cost", &cost(report));
}

fn cost(report: &RunReport) -> String {
    let usage = &report.usage;
    let mut cost = match usage.cost_usd {
        Some(cost) => usd(Some(cost)),
        None => "unknown, since the price of the model is".to_owned(),
    };
    if let Some(lost) = usage.lost_usd.filter(|lost| *lost > 0.0) {
        cost += &format!(", and up to {lost:.4} USD for requests without a known end");
    }
    cost
}

fn count(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The commands that go on.
pub(super) fn next(page: &mut HtmlWriter, report: &RunReport) {
    if report.next.is_empty() {
        let text = match report.outcome {
            ReportOutcome::Success => "Nothing is left to do: the run has succeeded.",
            _ => "Nothing goes on with this run.",
        };
        page.paragraph("", text);
    }
    for next in &report.next {
        page.paragraph("", &format!("{}:", next.purpose));
        page.pre("Command", &next.command);
    }
}

/// The sandbox, the limits, notes and errors.
pub(super) fn notes(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<dl>\n");
    let sandbox = report.sandbox.as_ref();
    let sandbox = sandbox.map(
        |found| match found.message.trim_start_matches("sandbox: ") {
            "" => found.mode.clone(),
            message if message.starts_with(&found.mode) => message.to_owned(),
            message => format!("{}: {message}", found.mode),
        },
    );
    page.term(
        "Sandbox",
        sandbox.as_deref().unwrap_or("The log does not name it."),
    );
    limits(page, report);
    page.raw("</dl>\n");
    list(page, "Notes", report.notes.iter().cloned());
    if report.skipped_lines > 0 {
        let lines = plural(count(report.skipped_lines), "line");
        let line = format!("{lines} of the log could not be read");
        list(page, "Log", [line].into_iter());
    }
    let errors = report.errors.iter().map(|error| {
        let again = match error.is_retryable {
            true => ", tried again",
            false => "",
        };
        let (at, kind) = (clock(&error.at), &error.error_type);
        format!("{at} {kind}{again}: {}", error.message)
    });
    list(page, "Errors", errors);
}

fn limits(page: &mut HtmlWriter, report: &RunReport) {
    if let Some(retries) = report.max_retries {
        let used = report.attempts.len().saturating_sub(1);
        page.term("Patches", &format!("{used} of {retries} at most"));
    }
    let (usage, budget) = (&report.usage, report.budget.unwrap_or_default());
    if let Some(limit) = budget.usd {
        let spent = usage.cost_usd.unwrap_or_default() + usage.lost_usd.unwrap_or_default();
        page.term("Budget", &format!("{spent:.4} of {limit:.4} USD"));
    }
    if let Some(limit) = budget.tokens {
        let spent = usage.input_tokens.saturating_add(usage.output_tokens);
        page.term("Budget in tokens", &format!("{spent} of {limit}"));
    }
    if !report.options.is_empty() {
        page.term("Options", &report.options.join(" "));
    }
}

fn list(page: &mut HtmlWriter, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    page.heading(3, title);
    page.raw("<ul class=\"plain\">\n");
    for line in lines {
        page.raw("<li class=\"lines\">");
        page.text(&line);
        page.raw("</li>\n");
    }
    page.raw("</ul>\n");
}
