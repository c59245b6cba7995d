//! A report as one HTML page: nothing is loaded from outside, and it has no script.

mod attempts;
mod charts;
mod overview;
mod words;
mod workflow;
mod writer;

use crate::report::html::charts::charts;
use crate::report::html::writer::{HtmlWriter, escape};
use crate::report::model::RunReport;

const STYLE: &str = include_str!("style.css");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// The page of a run.
pub(crate) fn page(report: &RunReport) -> String {
    let mut page = HtmlWriter::new();
    head(&mut page, report);
    page.raw("<body>\n<a class=\"skip\" href=\"#content\">Skip to the content</a>\n<header>\n");
    overview::title(&mut page, report);
    navigation(&mut page, report);
    page.raw("</header>\n<main id=\"content\" tabindex=\"-1\">\n");
    overview::result(&mut page, report);
    overview::next(&mut page, report);
    charts(&mut page, report);
    overview::timeline(&mut page, report);
    if report.is_workflow() {
        workflow::sections(&mut page, report);
    } else {
        attempts::section(&mut page, report);
    }
    overview::notes(&mut page, report);
    attempts::exchanges(&mut page, report);
    page.raw("</main>\n<footer><p>Made from the log of the run by ");
    page.text(concat!("orchestrator ", env!("CARGO_PKG_VERSION"), "."));
    page.raw("</p></footer>\n</body>\n</html>\n");
    page.finish()
}

fn head(page: &mut HtmlWriter, report: &RunReport) {
    let title = escape(&format!("{} {}", report.spec_file, report.outcome.word()));
    page.put(format_args!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n\
         <link rel=\"icon\" href=\"data:,\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n"
    ));
}

fn navigation(page: &mut HtmlWriter, report: &RunReport) {
    let parts = [
        ("result", "Result", true),
        ("next", "How to continue", true),
        ("charts", "Charts", overview::has_charts(report)),
        ("timeline", "Timeline", true),
        ("agents", "Agents", report.is_workflow()),
        ("transitions", "Transitions", report.is_workflow()),
        ("attempts", "Attempts", !report.is_workflow()),
        ("notes", "Sandbox, limits and notes", true),
        ("exchanges", "Model exchanges", true),
    ];
    page.raw("<nav aria-label=\"Sections\"><ul>\n");
    for (id, name, _) in parts.iter().filter(|(_, _, is_there)| *is_there) {
        page.put(format_args!("<li><a href=\"#{id}\">{name}</a></li>\n"));
    }
    page.raw("</ul></nav>\n");
}
