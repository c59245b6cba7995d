//! The attempts of a build: what changed, the tests, what was sent to the model; and the exchanges with models.

use crate::report::html::words::{check_result, clock, duration, optional_duration, plural, usd};
use crate::report::html::writer::HtmlWriter;
use crate::report::model::{ModelExchange, ReportAttempt, ReportCheck, ReportToolCall, RunReport};
use crate::text::shorten::cut_chars;

const FIRST_WORDS: usize = 90;

pub(super) fn section(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"attempts\"><h2 id=\"attempts\">Attempts</h2>\n");
    if let Some(baseline) = &report.baseline {
        page.heading(3, "Before the first request");
        let result = match baseline.passed {
            true => "All checks passed before anything was changed.",
            false => "The checks ran once on what the run took in; the model got the report.",
        };
        page.put(format_args!("<p>{result}</p>\n"));
        checks(page, "Checks before the first request", &baseline.checks);
    }
    if report.attempts.is_empty() {
        page.raw("<p>There was no attempt.</p>\n");
    }
    for attempt in &report.attempts {
        one_attempt(page, attempt);
    }
    page.raw("</section>\n");
}

fn one_attempt(page: &mut HtmlWriter, attempt: &ReportAttempt) {
    let number = attempt.number;
    let (class, word) = match attempt.passed {
        Some(true) => ("good", "passed"),
        Some(false) => ("bad", "failed"),
        None => ("warn", "not tested to the end"),
    };
    page.put(format_args!(
        "<h3 id=\"attempt-{number}\">Attempt {number}</h3>\n<p>"
    ));
    page.put(format_args!("<span class=\"{class}\">{word}</span>"));
    let mut facts = vec![duration(attempt.duration_ms)];
    facts.extend(attempt.cost_usd.map(|cost| usd(Some(cost))));
    page.put(format_args!(", {}</p>\n", facts.join(", ")));
    if let Some(cause) = &attempt.cause {
        page.raw("<p>First cause: ");
        page.text(cause);
        page.raw("</p>\n");
    }
    page.heading(4, "What changed");
    changes(page, attempt);
    page.heading(4, "Tests");
    checks(
        page,
        &format!("Checks of attempt {number}"),
        &attempt.checks,
    );
    if let Some(told) = &attempt.told {
        page.heading(4, "What the model was told");
        page.begin_details(&first_line(told));
        page.pre(&format!("Request of attempt {number}"), told);
        page.end_details();
    }
}

fn changes(page: &mut HtmlWriter, attempt: &ReportAttempt) {
    let nothing =
        attempt.changes.is_empty() && attempt.written.is_empty() && attempt.deleted.is_empty();
    if nothing {
        page.raw("<p>Nothing.</p>\n");
    }
    if attempt.changes.is_empty() && !nothing {
        page.raw("<ul class=\"plain\">\n");
        let written = attempt.written.iter().map(|name| ("written", name));
        let deleted = attempt.deleted.iter().map(|name| ("deleted", name));
        for (word, name) in written.chain(deleted) {
            page.put(format_args!("<li>{word}: <code>"));
            page.text(name);
            page.raw("</code></li>\n");
        }
        page.raw("</ul>\n");
    }
    for file in &attempt.changes {
        let counts = match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!("{added} added, {removed} removed"),
            _ => "binary".to_owned(),
        };
        page.begin_details(&format!("{}: {counts}", file.path));
        page.patch(&format!("Changes of {}", file.path), &file.patch);
        page.end_details();
    }
    if let Some(note) = &attempt.changes_note {
        page.raw("<p class=\"soft\">");
        page.text(note);
        page.raw("</p>\n");
    }
    if !attempt.restored.is_empty() {
        page.raw("<p>Protected files that were restored, or foreign files that were removed: ");
        page.text(&attempt.restored.join(", "));
        page.raw("</p>\n");
    }
}

/// Checks as a table, then what is known of the failed ones.
pub(super) fn checks(page: &mut HtmlWriter, caption: &str, checks: &[ReportCheck]) {
    if checks.is_empty() {
        page.raw("<p>No check has ended.</p>\n");
        return;
    }
    let columns = [
        "Check", "Result", "Passed", "Failed", "Skipped", "Time", "Why",
    ];
    page.begin_table(caption, &columns);
    for check in checks {
        let hidden = if check.hidden { " (hidden)" } else { "" };
        page.row_head(format!("{}{hidden}", check.name));
        let (class, word) = check_result(check);
        page.cell(class, word);
        let counts = check
            .tests
            .as_ref()
            .map(|tests| [tests.passed, tests.failed, tests.skipped]);
        for index in 0..3 {
            page.cell(
                "n",
                counts.map_or("-".to_owned(), |counts| counts[index].to_string()),
            );
        }
        page.cell("n", duration(check.duration_ms));
        page.cell("text", check.problem.as_deref().unwrap_or_default());
        page.raw("</tr>\n");
    }
    page.end_table();
    for check in checks {
        failures(page, check);
    }
}

fn failures(page: &mut HtmlWriter, check: &ReportCheck) {
    let names = check
        .tests
        .as_ref()
        .map_or(&[][..], |tests| &tests.failed_names);
    if !check.causes.is_empty() {
        page.begin_table(
            &format!("Causes of failures of {}", check.name),
            &["Cause", "Tests", "Place"],
        );
        for cause in &check.causes {
            page.charge(cause.message.len() + 300);
            page.row_head(&cause.message);
            page.cell("text", cause.tests.join(", "));
            page.cell("", cause.places.join(", "));
            page.raw("</tr>\n");
        }
        page.end_table();
    } else if !names.is_empty() {
        page.raw("<p>Failed tests of ");
        page.text(&format!("{}: {}", check.name, names.join(", ")));
        page.raw("</p>\n");
    }
    if check.stdout.is_empty() && check.stderr.is_empty() {
        return;
    }
    page.begin_details(&format!("What {} printed", check.name));
    if !check.command.is_empty() {
        page.pre(&format!("Command of {}", check.name), &check.command);
    }
    for (name, text, bytes) in [
        ("Standard output", &check.stdout, check.stdout_bytes),
        ("Standard error", &check.stderr, check.stderr_bytes),
    ] {
        if !text.is_empty() {
            page.put(format_args!("<p>{name}, {bytes} bytes:</p>\n"));
            page.pre(&format!("{name} of {}", check.name), text);
        }
    }
    page.end_details();
}

/// All exchanges with models, folded.
pub(super) fn exchanges(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"exchanges\"><h2 id=\"exchanges\">Model exchanges</h2>\n");
    if report.exchanges.is_empty() {
        page.raw("<p>No model was asked.</p>\n");
    }
    let mut left_out = usize::try_from(report.exchanges_left_out).unwrap_or(usize::MAX);
    for exchange in &report.exchanges {
        if page.has_room() {
            one_exchange(page, exchange);
        } else {
            left_out = left_out.saturating_add(1);
        }
    }
    if left_out > 0 {
        let count = plural(left_out, "exchange");
        page.put(format_args!(
            "<p>{count} more left out: the report has reached its maximum size. The log has all of them.</p>\n"
        ));
    }
    page.raw("</section>\n");
}

fn one_exchange(page: &mut HtmlWriter, exchange: &ModelExchange) {
    page.charge(1500);
    let place = match (exchange.attempt, exchange.visit) {
        (Some(attempt), _) => format!("Attempt {attempt}, {}", exchange.phase),
        (None, Some(visit)) => format!("Agent {}, visit {visit}", exchange.agent_id),
        (None, None) => exchange.agent_id.clone(),
    };
    let mut summary = format!("{place}, turn {}", u64::from(exchange.turn) + 1);
    let tools: Vec<&str> = exchange
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    if !tools.is_empty() {
        summary += &format!(": {}", tools.join(", "));
    } else if let Some(answer) = &exchange.answered {
        summary += &format!(": {}", first_line(answer));
    }
    if exchange.refused.is_some() {
        summary += " (refused)";
    } else if exchange.answered.is_none() {
        summary += " (no answer)";
    }
    page.begin_details(&cut_chars(&summary, 2 * FIRST_WORDS, "…"));
    let facts = format!(
        "{}, {}, {} tokens in, {} out, {}, {}",
        clock(&exchange.at),
        exchange.model,
        exchange.input_tokens,
        exchange.output_tokens,
        usd(exchange.cost_usd),
        optional_duration(exchange.duration_ms)
    );
    page.raw("<p class=\"soft\">");
    page.text(&facts);
    page.raw("</p>\n");
    labelled(page, "Request", &exchange.asked);
    labelled(
        page,
        "Answer",
        exchange.answered.as_deref().unwrap_or_default(),
    );
    labelled(page, "Error", exchange.error.as_deref().unwrap_or_default());
    labelled(
        page,
        "Refused",
        exchange.refused.as_deref().unwrap_or_default(),
    );
    for tool in &exchange.tools {
        one_call(page, tool);
    }
    page.end_details();
}

fn one_call(page: &mut HtmlWriter, tool: &ReportToolCall) {
    page.charge(800);
    let outcome = match (&tool.output, tool.ran, tool.is_error) {
        (None, ..) => "no result",
        (_, false, _) => "did not run",
        (_, true, true) => "error",
        (_, true, false) => "done",
    };
    let time = duration(tool.duration_ms);
    page.begin_details(&format!("{}: {outcome}, {time}", tool.name));
    labelled(page, "Command", &tool.arguments);
    labelled(page, "Output", tool.output.as_deref().unwrap_or_default());
    if !tool.changed.is_empty() {
        page.raw("<p>Changed: ");
        page.text(&tool.changed.join(", "));
        page.raw("</p>\n");
    }
    page.end_details();
}

/// A text with its name, if there is any.
fn labelled(page: &mut HtmlWriter, name: &str, text: &str) {
    if !text.is_empty() {
        page.put(format_args!("<p>{name}:</p>\n"));
        page.pre(name, text);
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    cut_chars(line.unwrap_or("(empty)").trim(), FIRST_WORDS, "…")
}
