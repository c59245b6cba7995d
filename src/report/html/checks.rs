//! Checks as a table, then what is known of the failed ones and what they printed.

use crate::html::units::{duration, plural};
use crate::html::writer::Column::{Number, Text};
use crate::html::writer::{Fold, HtmlWriter};
use crate::report::model::{ReportCheck, counts};

pub(super) fn checks(page: &mut HtmlWriter, caption: &str, checks: &[ReportCheck]) {
    if checks.is_empty() {
        page.paragraph("", "No check has ended.");
        return;
    }
    let columns = [
        Text("Check"),
        Text("Result"),
        Number("Passed"),
        Number("Failed"),
        Number("Skipped"),
        Number("Time"),
        Text("Why"),
    ];
    page.begin_table(caption, &columns);
    for check in checks {
        let hidden = if check.hidden { " (hidden)" } else { "" };
        page.row_head(format!("{}{hidden}", check.name));
        page.cell(result_class(check), check.word());
        for count in counts(check.tests.as_ref()) {
            page.cell("n", count);
        }
        page.cell("n", duration(check.duration_ms));
        page.cell("text", check.problem.as_deref().unwrap_or_default());
        page.end_row();
    }
    page.end_table();
    for (index, check) in checks.iter().enumerate() {
        page.within_share(checks.len() - index, |page| {
            causes(page, check);
            other_tests(page, check);
            passed_tests(page, check);
            output(page, check);
        });
    }
}

fn result_class(check: &ReportCheck) -> &'static str {
    match (check.passed, check.flaky) {
        (true, false) => "good",
        (true, true) => "warn",
        (false, _) => "bad",
    }
}

fn causes(page: &mut HtmlWriter, check: &ReportCheck) {
    if check.causes.is_empty() {
        return;
    }
    page.begin_table(
        &format!("Why {} failed", check.name),
        &[Text("Cause"), Text("Tests"), Text("Place")],
    );
    for cause in &check.causes {
        page.row_head(&cause.message);
        page.cell("text", cause.tests.join(", "));
        page.cell("text", cause.places.join(", "));
        page.end_row();
    }
    page.end_table();
}

/// Failed tests that no cause names, and skipped ones.
fn other_tests(page: &mut HtmlWriter, check: &ReportCheck) {
    let failed = check.tests.iter().flat_map(|tests| &tests.failed_names);
    let failed: Vec<&str> = failed
        .filter(|name| check.cause_of(name).is_none())
        .map(String::as_str)
        .collect();
    let skipped: Vec<&str> = check.skipped_names.iter().map(String::as_str).collect();
    let others = match check.causes.is_empty() {
        true => "Failed tests",
        false => "Other failed tests",
    };
    for (words, names) in [(others, failed), ("Skipped tests", skipped)] {
        if !names.is_empty() {
            page.paragraph(
                "",
                &format!("{words} of {}: {}", check.name, names.join(", ")),
            );
        }
    }
}

fn passed_tests(page: &mut HtmlWriter, check: &ReportCheck) {
    if !check.passed_names.is_empty() {
        let count = plural(check.passed_names.len(), "test");
        page.begin_details(
            &format!("{count} of {} that passed", check.name),
            Fold::Closed,
        );
        page.paragraph("", &check.passed_names.join(", "));
        page.end_details();
    }
}

fn output(page: &mut HtmlWriter, check: &ReportCheck) {
    if check.stdout.is_empty() && check.stderr.is_empty() {
        return;
    }
    page.begin_details(&format!("What {} printed", check.name), Fold::Closed);
    if !check.command.is_empty() {
        page.pre(&format!("Command of {}", check.name), &check.command);
    }
    let streams = [
        ("Standard output", &check.stdout, check.stdout_bytes),
        ("Standard error", &check.stderr, check.stderr_bytes),
    ];
    for (index, (name, text, bytes)) in streams.into_iter().enumerate() {
        if !text.is_empty() {
            page.paragraph("", &format!("{name}, {bytes} bytes:"));
            page.within_share(2 - index, |page| {
                page.pre(&format!("{name} of {}", check.name), text);
            });
        }
    }
    page.end_details();
}
