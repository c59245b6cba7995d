//! The attempts of a build: what changed, the tests, the request to the model.

use crate::html::units::{duration, plural, usd};
use crate::html::writer::Column::{Number, Text};
use crate::html::writer::{Fold, HtmlWriter};
use crate::report::html::checks::checks;
use crate::report::html::patch::patch;
use crate::report::model::{ReportAttempt, ReportBaseline, RunReport, counts};

/// The changed files of the last attempt are open, unless there are more.
const MOST_OPEN: usize = 3;

pub(super) fn attempts(page: &mut HtmlWriter, report: &RunReport) {
    if report.attempts.is_empty() {
        page.paragraph("", "There was no attempt.");
    } else {
        table(page, report);
    }
    if let Some(one) = &report.baseline {
        page.within_share(report.attempts.len() + 1, |page| baseline(page, one));
    }
    for (index, attempt) in report.attempts.iter().enumerate() {
        let left = report.attempts.len() - index;
        page.within_share(left, |page| one_attempt(page, attempt, left == 1));
    }
}

/// All attempts at a glance.
fn table(page: &mut HtmlWriter, report: &RunReport) {
    let columns = [
        Text("Attempt"),
        Text("Result"),
        Number("Files"),
        Number("Passed"),
        Number("Failed"),
        Number("Skipped"),
        Number("Time"),
        Number("Cost"),
        Text("First cause"),
    ];
    page.begin_table("All attempts", &columns);
    for attempt in &report.attempts {
        let number = attempt.number;
        page.row_link(&format!("attempt-{number}"), &number.to_string());
        page.cell(result_class(attempt), attempt.word());
        page.cell("n", files(attempt));
        for count in counts(attempt.tests.as_ref()) {
            page.cell("n", count);
        }
        page.cell("n", duration(attempt.duration_ms));
        page.cell("n", usd(attempt.cost_usd));
        page.cell("text", attempt.cause.as_deref().unwrap_or_default());
        page.end_row();
    }
    page.end_table();
}

fn files(attempt: &ReportAttempt) -> usize {
    match attempt.changes.len() {
        0 => attempt.written.len() + attempt.deleted.len(),
        changed => changed,
    }
}

fn result_class(attempt: &ReportAttempt) -> &'static str {
    match attempt.passed {
        Some(true) => "good",
        Some(false) => "bad",
        None => "warn",
    }
}

fn baseline(page: &mut HtmlWriter, baseline: &ReportBaseline) {
    page.heading(3, "Before the first request");
    let result = match baseline.passed {
        true => "All checks passed before anything was changed.",
        false => "The checks ran once on what the run took in; the model got the report.",
    };
    page.paragraph("", result);
    checks(page, "Checks before the first request", &baseline.checks);
}

fn one_attempt(page: &mut HtmlWriter, attempt: &ReportAttempt, is_last: bool) {
    let number = attempt.number;
    page.put(format_args!(
        "<h3 id=\"attempt-{number}\">Attempt {number}</h3>\n<p><span class=\"{}\">{}</span>, {}",
        result_class(attempt),
        attempt.word(),
        duration(attempt.duration_ms)
    ));
    if let Some(cost) = attempt.cost_usd {
        page.text(&format!(", {}", usd(Some(cost))));
    }
    page.raw("</p>\n");
    if let Some(cause) = &attempt.cause {
        page.paragraph("lines", &format!("First cause: {cause}"));
    }
    page.heading(4, "What changed");
    page.within_share(2, |page| changes(page, attempt, is_last));
    page.heading(4, "Tests");
    let caption = format!("Checks of attempt {number}");
    page.within_share(2, |page| checks(page, &caption, &attempt.checks));
    told(page, attempt);
}

/// The first request of an attempt, and why answers were refused.
fn told(page: &mut HtmlWriter, attempt: &ReportAttempt) {
    let Some(told) = &attempt.told else { return };
    let number = attempt.number;
    page.heading(4, "What the model was told");
    let lines = plural(told.lines().count(), "line");
    page.begin_details(&format!("The request: {lines}"), Fold::Closed);
    page.pre(&format!("Request of attempt {number}"), told);
    page.end_details();
    for refused in &attempt.refused {
        page.paragraph("lines", &format!("An answer was refused: {refused}"));
    }
}

fn changes(page: &mut HtmlWriter, attempt: &ReportAttempt, is_last: bool) {
    let written = attempt.written.iter().map(|name| ("written", name));
    let deleted = attempt.deleted.iter().map(|name| ("deleted", name));
    let mut named = written
        .chain(deleted)
        .map(|(word, name)| (word, name.as_str()))
        .peekable();
    match (attempt.changes.is_empty(), named.peek()) {
        (true, None) => page.paragraph("", "Nothing."),
        (true, Some(_)) => page.names(named),
        (false, _) => {}
    }
    let fold = match is_last && attempt.changes.len() <= MOST_OPEN {
        true => Fold::Open,
        false => Fold::Printed,
    };
    for (index, file) in attempt.changes.iter().enumerate() {
        let counts = match (file.added, file.removed) {
            (Some(added), Some(removed)) => format!("{added} added, {removed} removed"),
            _ => "binary".to_owned(),
        };
        page.begin_details(&format!("{}: {counts}", file.path), fold);
        let shares = attempt.changes.len() - index;
        page.within_share(shares, |page| patch(page, file));
        page.end_details();
    }
    if let Some(note) = &attempt.changes_note {
        page.paragraph("soft", note);
    }
    if !attempt.restored.is_empty() {
        let names = attempt.restored.join(", ");
        let words = "Protected files that were restored, or foreign files that were removed";
        page.paragraph("", &format!("{words}: {names}"));
    }
}
