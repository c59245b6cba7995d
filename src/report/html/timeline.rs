//! When a run was in which phase or state: a bar per row, or a lane per agent.

use crate::html::chart::TimeAxis;
use crate::html::units::{clock, optional_duration, plural, timestamp, usd};
use crate::html::writer::Column::{Number, Text};
use crate::html::writer::{Fold, HtmlWriter};
use crate::report::html::lanes::lanes;
use crate::report::model::{PhaseSpan, RunReport};

/// The phases of a build, or the states of a workflow, in their order.
pub(super) fn timeline(page: &mut HtmlWriter, report: &RunReport) {
    let Some(axis) = axis(report) else {
        page.paragraph("", "The log has no phase.");
        return;
    };
    if report.is_workflow() {
        lanes(page, report, &axis);
        let states = plural(report.phases.len(), "visited state");
        page.begin_details(&states, Fold::Printed);
    }
    spans(page, report, &axis);
    if report.is_workflow() {
        page.end_details();
    }
}

fn spans(page: &mut HtmlWriter, report: &RunReport, axis: &TimeAxis) {
    let (caption, first, second) = match report.is_workflow() {
        true => ("Visited states", Text("State"), Text("Agent")),
        false => ("Phases", Text("Phase"), Number("Attempt")),
    };
    let [begun, time, cost] = [Number("Begun"), Number("Time"), Number("Cost")];
    let columns = [first, second, begun, time, cost, Text("When")];
    page.begin_table(caption, &columns);
    let mut left_out = 0;
    for span in &report.phases {
        match page.has_room() {
            true => row(page, span, axis, bounds(span, report)),
            false => left_out += 1,
        }
    }
    page.end_table();
    if left_out > 0 {
        page.paragraph("soft", &format!("{} more are left out.", left_out));
    }
}

fn row(page: &mut HtmlWriter, span: &PhaseSpan, axis: &TimeAxis, bounds: Option<(i64, i64)>) {
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
    let (begin, end) = bounds.unwrap_or_default();
    let begin = axis.percent(begin);
    let width = (axis.percent(end) - begin).max(0.5);
    let class = phase_class(&span.name);
    page.put(format_args!(
        "<td class=\"when\"><svg class=\"bar\" width=\"100%\" height=\"12\" aria-hidden=\"true\">\
         <rect class=\"{class}\" x=\"{:.2}%\" width=\"{width:.2}%\" height=\"12\"/></svg></td>",
        begin.min(99.5)
    ));
    page.end_row();
}

/// Tests and all else have different colours.
fn phase_class(name: &str) -> &'static str {
    match name {
        "TESTING" | "INIT" => "p1",
        _ => "p0",
    }
}

/// The time of the run, without long gaps.
pub(super) fn axis(report: &RunReport) -> Option<TimeAxis> {
    TimeAxis::of(report.phases.iter().filter_map(|span| bounds(span, report)))
}

/// Begin and end of a span, in milliseconds. One without an end goes on until the next one of its agent, at most to the end
/// of the log.
pub(super) fn bounds(span: &PhaseSpan, report: &RunReport) -> Option<(i64, i64)> {
    let begin = timestamp(&span.started_at)?;
    let end = match &span.ended_at {
        Some(end) => timestamp(end)?,
        None => {
            let own = report.phases.iter();
            let own = own.filter(|other| other.agent_id == span.agent_id);
            let later = own.filter_map(|other| timestamp(&other.started_at));
            let later = later.filter(|start| begin < *start).min();
            later.or_else(|| timestamp(&report.updated_at))?
        }
    };
    Some((begin, end.max(begin)))
}
