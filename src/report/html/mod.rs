//! A report as one HTML page.

mod attempts;
mod charts;
mod checks;
mod exchanges;
mod highlight;
mod lanes;
mod overview;
mod patch;
mod timeline;
mod workflow;

use crate::html::document::{
    PageSection, begin_document, begin_section, end_document, end_section,
};
use crate::html::writer::HtmlWriter;
use crate::report::model::RunReport;

/// What a page may take, in bytes; the last frames come on top.
const PAGE: usize = 4_400_000;

/// A section and what writes it.
type Section = (PageSection, fn(&mut HtmlWriter, &RunReport));

/// The page of a run.
pub(crate) fn page(report: &RunReport) -> String {
    let sections = sections(report);
    let titles: Vec<PageSection> = sections.iter().map(|(section, _)| *section).collect();
    let mut page = HtmlWriter::new(PAGE);
    begin_document(&mut page, &title(report), &titles);
    for (section, write) in sections {
        begin_section(&mut page, section);
        // What follows a long section needs some space, too.
        let shares = if section.id == "exchanges" { 1 } else { 2 };
        page.within_share(shares, |page| write(page, report));
        end_section(&mut page);
    }
    let footer = concat!(
        "Made from the log of the run by orchestrator ",
        env!("CARGO_PKG_VERSION"),
        "."
    );
    end_document(&mut page, footer);
    page.finish()
}

fn title(report: &RunReport) -> String {
    let kind = match report.is_workflow() {
        true => "Workflow",
        false => "Build",
    };
    format!("{kind} {}: {}", report.spec_file, report.outcome.word())
}

fn sections(report: &RunReport) -> Vec<Section> {
    let section = |id, title| PageSection { id, title };
    let mut sections: Vec<Section> = vec![
        (section("result", "Result"), overview::result),
        (section("next", "How to continue"), overview::next),
        (section("charts", "Charts"), charts::charts),
        (section("timeline", "Timeline"), timeline::timeline),
    ];
    match report.is_workflow() {
        true => sections.extend([
            (
                section("agents", "Agents"),
                workflow::agents as fn(&mut _, &_),
            ),
            (section("transitions", "Transitions"), workflow::transitions),
        ]),
        false => sections.push((section("attempts", "Attempts"), attempts::attempts)),
    }
    sections.extend([
        (
            section("notes", "Sandbox, limits and notes"),
            overview::notes as fn(&mut _, &_),
        ),
        (
            section("exchanges", "Model exchanges"),
            exchanges::exchanges,
        ),
    ]);
    sections.retain(|(section, _)| section.id != "charts" || charts::has_charts(report));
    sections
}
