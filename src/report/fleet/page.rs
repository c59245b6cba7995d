//! The page of a fleet. It is complete without its script, which only sorts tables.

use std::collections::BTreeSet;

use crate::html::document::{
    PageSection, begin_scripted_document, begin_section, end_scripted_document, end_section,
};
use crate::html::units::{duration, usd};
use crate::html::writer::{Column, HtmlWriter, escape};
use crate::report::fleet::model::{EntrySummary, FleetReport, SolvedRow};
use crate::text::shorten::one_line;

/// What a page may take, in bytes; a row of the table always has a place.
const PAGE: usize = 64 << 20;
/// How much of a cause is shown.
const SHOWN_CHARACTERS: usize = 300;
const SORT: &str = include_str!("sort.js");

/// A section and what writes it.
type FleetSection = (PageSection, fn(&mut HtmlWriter, &FleetReport));

/// The page of a fleet.
pub(crate) fn fleet_page(report: &FleetReport) -> String {
    let section = |id, title| PageSection { id, title };
    let mut sections: Vec<FleetSection> = vec![(section("result", "Result"), result)];
    if 1 < report.solved.len() || report.solved.iter().any(|row| !row.pass_at.is_empty()) {
        sections.push((section("solved", "Solved"), solved));
    }
    sections.push((section("entries", "Entries"), entries));
    let titles: Vec<PageSection> = sections.iter().map(|(section, _)| *section).collect();
    let mut page = HtmlWriter::new(PAGE);
    let summary = &report.summary;
    let id = summary.fleet_id.as_deref().unwrap_or_default();
    let title = format!("Fleet {id}: {}", summary.outcome);
    begin_scripted_document(&mut page, &title, &titles, SORT);
    for (section, write) in sections {
        begin_section(&mut page, section);
        write(&mut page, report);
        end_section(&mut page);
    }
    let footer = concat!(
        "Made from the files of the fleet by orchestrator ",
        env!("CARGO_PKG_VERSION"),
        "."
    );
    end_scripted_document(&mut page, footer, SORT);
    page.finish()
}

fn result(page: &mut HtmlWriter, report: &FleetReport) {
    let summary = &report.summary;
    let class = summary.outcome.to_ascii_lowercase();
    page.put(format_args!("<div class=\"result {class}\">"));
    let counts = summary.counts.text();
    page.paragraph("", &format!("{}: {counts}", summary.outcome));
    page.raw("</div>\n<dl>\n");
    page.term("Spent", &usd(Some(summary.spent_usd)));
    page.term("Reserved", &usd(Some(summary.reserved_usd)));
    let budget = summary
        .budget_usd
        .map_or("none".to_owned(), |budget| usd(Some(budget)));
    page.term("Budget", &budget);
    let seconds = summary.entries.iter().filter_map(|entry| entry.seconds);
    let seconds = seconds.fold(0.0, |sum, seconds| sum + seconds);
    page.term("Time of all tasks", &duration((seconds * 1000.0) as u64));
    page.raw("</dl>\n");
    if let Some(next) = &summary.next {
        page.paragraph("", "Go on with this fleet:");
        page.pre("Command", next);
    }
}

/// How many were solved, and how probably one of k tries solves a spec.
fn solved(page: &mut HtmlWriter, report: &FleetReport) {
    let sizes = report.solved.iter().flat_map(|row| &row.pass_at);
    let sizes: BTreeSet<usize> = sizes.map(|pass| pass.k).collect();
    let names: Vec<String> = sizes.iter().map(|k| format!("pass@{k}")).collect();
    let mut columns = vec![
        Column::Text("Entries"),
        Column::Number("Solved"),
        Column::Number("Of"),
        Column::Number("Share"),
    ];
    columns.extend(names.iter().map(|name| Column::Number(name)));
    page.begin_table("Solved entries", &columns);
    for row in &report.solved {
        page.row_head(row_title(row));
        number(page, row.solved as f64, &row.solved.to_string());
        number(page, row.total as f64, &row.total.to_string());
        let share = 100.0 * row.solved as f64 / row.total.max(1) as f64;
        number(page, share, &format!("{share:.0} %"));
        for k in &sizes {
            match row.pass_at.iter().find(|pass| pass.k == *k) {
                Some(pass) => number(page, pass.probability, &format!("{:.3}", pass.probability)),
                None => page.cell("n", "-"),
            }
        }
        page.end_row();
    }
    page.end_table();
}

fn row_title(row: &SolvedRow) -> String {
    match (&row.key, row.value.as_str()) {
        (None, _) => "all".to_owned(),
        (Some(key), Some(text)) => format!("{key}: {text}"),
        (Some(key), None) => format!("{key}: {}", row.value),
    }
}

fn entries(page: &mut HtmlWriter, report: &FleetReport) {
    let columns = [
        Column::Text("Entry"),
        Column::Text("Outcome"),
        Column::Text("Reason"),
        Column::Text("Spec"),
        Column::Text("Variables"),
        Column::Number("Starts"),
        Column::Number("Cost"),
        Column::Number("Time"),
        Column::Text("Cause"),
    ];
    page.begin_table(
        "All entries; a name leads to the report of its run",
        &columns,
    );
    for entry in &report.summary.entries {
        row(page, entry, report.links.get(&entry.name));
    }
    page.end_table();
}

fn row(page: &mut HtmlWriter, entry: &EntrySummary, link: Option<&String>) {
    match link {
        Some(link) => {
            page.put(format_args!(
                "<tr><th scope=\"row\"><a href=\"{}\">{}</a></th>",
                escape(link),
                escape(&entry.name)
            ));
        }
        None => page.row_head(&entry.name),
    }
    let outcome = entry.outcome_word();
    let class = match outcome {
        "SUCCESS" => "good",
        "FAILED" | "REFUSED" => "bad",
        _ => "warn",
    };
    page.cell(class, outcome);
    page.cell("", entry.reason.as_deref().unwrap_or_default());
    page.cell("", &entry.spec);
    let variables = entry.variables.iter();
    let variables = variables.map(|(key, value)| match value.as_str() {
        Some(text) => format!("{key}={text}"),
        None => format!("{key}={value}"),
    });
    page.cell("", variables.collect::<Vec<_>>().join(", "));
    number(page, f64::from(entry.starts), &entry.starts.to_string());
    number(page, entry.spent_usd, &usd(Some(entry.spent_usd)));
    match entry.seconds {
        Some(seconds) => number(page, seconds, &duration((seconds * 1000.0) as u64)),
        None => number(page, -1.0, "-"),
    }
    let message = entry.message.as_deref().filter(|_| !entry.has_succeeded());
    let cause = one_line(message.unwrap_or_default(), SHOWN_CHARACTERS);
    page.cell("text", &cause);
    page.end_row();
}

/// A cell that is sorted by its value.
fn number(page: &mut HtmlWriter, value: f64, text: &str) {
    page.put(format_args!(
        "<td class=\"n\" data-value=\"{value}\">{}</td>",
        escape(text)
    ));
}
