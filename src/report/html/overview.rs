//! The parts of a page that every run has: result, next command, timeline, notes.

use crate::report::html::words::{
    clock, date_and_time, duration, optional_duration, plural, usd, why,
};
use crate::report::html::writer::HtmlWriter;
use crate::report::model::RunReport;

pub(super) fn title(page: &mut HtmlWriter, report: &RunReport) {
    let kind = match report.is_workflow() {
        true => "Workflow",
        false => "Build",
    };
    page.heading(
        1,
        &format!("{kind} {}: {}", report.spec_file, report.outcome.word()),
    );
}

pub(super) fn has_charts(report: &RunReport) -> bool {
    let has_tests = report
        .attempts
        .iter()
        .any(|attempt| attempt.tests.is_some());
    has_tests || !report.costs.is_empty()
}

/// What became of the run, and why.
pub(super) fn result(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"result\"><h2 id=\"result\">Result</h2>\n");
    let word = report.outcome.word();
    page.put(format_args!(
        "<div class=\"result {}\"><p><strong>{word}</strong></p><p>",
        word.to_lowercase()
    ));
    page.text(&why(report));
    page.raw("</p>");
    let cause = report
        .last_tested()
        .and_then(|attempt| attempt.cause.as_deref());
    if let Some(cause) = cause.filter(|_| word != "SUCCESS") {
        page.raw("<p>First cause: ");
        page.text(cause);
        page.raw("</p>");
    }
    page.raw("</div>\n<dl>\n");
    facts(page, report);
    page.raw("</dl></section>\n");
}

fn facts(page: &mut HtmlWriter, report: &RunReport) {
    page.term("Run", &report.run_id);
    if let Some(continues) = &report.continues {
        page.term("Continues", continues);
    }
    if report.is_replay {
        page.term("Replay", "The answers came from a log; nothing was paid.");
    }
    page.term("Model", &format!("{} ({})", report.model, report.provider));
    page.term("Begun", &date_and_time(&report.started_at));
    page.term("Last line of the log", &date_and_time(&report.updated_at));
    let mut worked = duration(report.duration_ms);
    if report.starts > 1 {
        worked += &format!(", in {} starts", report.starts);
    }
    page.term("Time", &worked);
    if !report.is_workflow() {
        page.term("Attempts", &report.attempts.len().to_string());
        if let Some(tests) = report
            .last_tested()
            .and_then(|attempt| attempt.tests.as_ref())
        {
            let (passed, failed, skipped) = (tests.passed, tests.failed, tests.skipped);
            page.term(
                "Tests of the last attempt",
                &format!("{passed} passed, {failed} failed, {skipped} skipped"),
            );
        }
    }
    let usage = &report.usage;
    let calls = plural(
        usize::try_from(usage.llm_calls).unwrap_or(usize::MAX),
        "model call",
    );
    page.term(
        "Used",
        &format!(
            "{calls}, {} tokens in, {} out",
            usage.input_tokens, usage.output_tokens
        ),
    );
    let mut cost = usage
        .cost_usd
        .map_or("unknown".to_owned(), |cost| usd(Some(cost)));
    if let Some(lost) = usage.lost_usd.filter(|lost| *lost > 0.0) {
        cost += &format!(", and up to {lost:.4} USD for requests that broke off");
    }
    page.term("Cost", &cost);
}

/// The commands that go on.
pub(super) fn next(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"next\"><h2 id=\"next\">How to continue</h2>\n");
    if report.next.is_empty() {
        page.raw("<p>No command is known: the run is over, or its root is not here.</p>\n");
    }
    for next in &report.next {
        page.raw("<p>");
        page.text(&next.purpose);
        page.raw("</p>");
        page.begin_region("Command", "scroll wrap cmd");
        page.raw("<pre>");
        page.text(&next.command);
        page.raw("</pre></div>\n");
    }
    page.raw("</section>\n");
}

/// The phases of a build, or the states of a workflow, in their order.
pub(super) fn timeline(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"timeline\"><h2 id=\"timeline\">Timeline</h2>\n");
    if report.is_workflow() {
        crate::report::html::charts::lanes(page, report);
        page.begin_details(&plural(report.phases.len(), "visited state"));
        page.begin_table(
            "Visited states",
            &["State", "Agent", "Begun", "Time", "Cost"],
        );
    } else {
        page.begin_table("Phases", &["Phase", "Attempt", "Begun", "Time", "Cost"]);
    }
    for span in &report.phases {
        page.row_head(&span.name);
        match span.attempt {
            Some(attempt) => page.cell("n", attempt),
            None => page.cell("", &span.agent_id),
        }
        page.cell("n", clock(&span.started_at));
        match span.ended_at {
            Some(_) => page.cell("n", optional_duration(span.duration_ms)),
            None => page.cell("n", "not ended"),
        }
        page.cell("n", usd(span.cost_usd));
        page.raw("</tr>\n");
    }
    page.end_table();
    if report.is_workflow() {
        page.end_details();
    }
    page.charge(150 * report.phases.len());
    page.raw("</section>\n");
}

/// The sandbox, the limits, notes and errors.
pub(super) fn notes(page: &mut HtmlWriter, report: &RunReport) {
    page.raw(
        "<section aria-labelledby=\"notes\"><h2 id=\"notes\">Sandbox, limits and notes</h2>\n<dl>\n",
    );
    match &report.sandbox {
        Some(sandbox) => page.term("Sandbox", &format!("{}: {}", sandbox.mode, sandbox.message)),
        None => page.term("Sandbox", "unknown: the log does not say"),
    }
    if let Some(retries) = report.max_retries {
        page.term("Patches at most", &retries.to_string());
    }
    let budget = report.budget.unwrap_or_default();
    if let Some(limit) = budget.usd {
        page.term("Budget", &format!("{limit:.4} USD"));
    }
    if let Some(limit) = budget.tokens {
        page.term("Budget in tokens", &limit.to_string());
    }
    page.raw("</dl>\n");
    list(page, "Notes", report.notes.iter().cloned());
    if report.skipped_lines > 0 {
        let lines = plural(
            usize::try_from(report.skipped_lines).unwrap_or(usize::MAX),
            "line",
        );
        list(
            page,
            "Log",
            [format!("{lines} of the log could not be read")].into_iter(),
        );
    }
    let errors = report.errors.iter().map(|error| {
        let again = if error.is_retryable {
            ", tried again"
        } else {
            ""
        };
        let (at, kind) = (clock(&error.at), &error.error_type);
        format!("{at} {kind}{again}: {}", error.message)
    });
    list(page, "Errors", errors);
    page.raw("</section>\n");
}

fn list(page: &mut HtmlWriter, title: &str, lines: impl Iterator<Item = String>) {
    let mut lines = lines.peekable();
    if lines.peek().is_none() {
        return;
    }
    page.heading(3, title);
    page.raw("<ul class=\"plain\">\n");
    for line in lines {
        page.charge(line.len());
        page.raw("<li>");
        page.text(&line);
        page.raw("</li>\n");
    }
    page.raw("</ul>\n");
}
