//! The agents of a workflow as lanes: the states of each as bars, forks and joins as lines between them.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::html::chart::TimeAxis;
use crate::html::units::{plural, timestamp};
use crate::html::writer::{HtmlWriter, escape};
use crate::report::html::timeline::bounds;
use crate::report::model::{PhaseSpan, ReportAgent, RunReport};

/// Vertical sizes in pixels; horizontal places are in percent.
const LANE: usize = 46;
const LABEL: usize = 14;
const BAR_TOP: usize = 20;
const BAR: usize = 20;
const MOST_LANES: usize = 60;
const LEGEND: &str = "A lane per agent, a bar per visited state. Lines with an arrow begin agents at a fork; dashed lines are \
    joins, where the agent above waits for the one below.";

/// A lane: its agent, its place from above, and its states.
struct Lane<'a> {
    agent: &'a ReportAgent,
    top: usize,
    spans: Vec<(&'a PhaseSpan, f64, f64)>,
}

impl Lane<'_> {
    fn begin(&self) -> Option<f64> {
        self.spans.first().map(|span| span.1)
    }

    fn end(&self) -> Option<f64> {
        self.spans.last().map(|span| span.2)
    }

    fn label(&self) -> String {
        let visits = usize::try_from(self.agent.visits).unwrap_or(usize::MAX);
        let (name, status) = (&self.agent.agent_id, self.agent.status);
        format!("{name}: {}, {status}", plural(visits, "state"))
    }
}

pub(super) fn lanes(page: &mut HtmlWriter, report: &RunReport, axis: &TimeAxis) {
    let all = report.agents.iter().take(MOST_LANES).enumerate();
    let all: Vec<Lane> = all
        .map(|(index, agent)| lane(report, agent, index * LANE, axis))
        .collect();
    let mut body = String::from(
        "<defs><marker id=\"arrow\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" markerHeight=\"7\" \
         orient=\"auto\"><path class=\"tip\" d=\"M0 0L8 4L0 8z\"/></marker></defs>",
    );
    all.iter().for_each(|lane| push_bars(&mut body, lane));
    push_lines(&mut body, report, &all, axis);
    all.iter().for_each(|lane| push_label(&mut body, lane));
    let labels: Vec<String> = all.iter().map(Lane::label).collect();
    let label = escape(&format!("Agents over time. {}.", labels.join("; ")));
    let height = all.len() * LANE;
    page.put(format_args!(
        "<figure class=\"lanes\"><svg role=\"img\" width=\"100%\" height=\"{height}\" aria-label=\"{label}\">{body}</svg>\n\
         <figcaption>{LEGEND}</figcaption></figure>\n"
    ));
    if MOST_LANES < report.agents.len() {
        let more = report.agents.len() - MOST_LANES;
        page.paragraph(
            "soft",
            &format!("{} more have no lane.", plural(more, "agent")),
        );
    }
}

fn lane<'a>(
    report: &'a RunReport,
    agent: &'a ReportAgent,
    top: usize,
    axis: &TimeAxis,
) -> Lane<'a> {
    let own = report.phases.iter();
    let own = own.filter(|span| span.agent_id == agent.agent_id);
    let spans = own.filter_map(|span| {
        let (begin, end) = bounds(span, report)?;
        Some((span, axis.percent(begin), axis.percent(end)))
    });
    Lane {
        agent,
        top,
        spans: spans.collect(),
    }
}

fn push_label(body: &mut String, lane: &Lane<'_>) {
    let (y, label) = (lane.top + LABEL, escape(&lane.label()));
    let _ = write!(
        body,
        "<text class=\"label\" x=\"0\" y=\"{y}\">{label}</text>"
    );
}

fn push_bars(body: &mut String, lane: &Lane<'_>) {
    let y = lane.top + BAR_TOP;
    let _ = write!(
        body,
        "<rect class=\"ground\" x=\"0\" y=\"{y}\" width=\"100%\" height=\"{BAR}\"/>"
    );
    for (index, (span, begin, end)) in lane.spans.iter().enumerate() {
        let width = (end - begin).max(0.4);
        let begin = begin.min(99.6);
        let name = escape(&span.name);
        let _ = write!(
            body,
            "<svg x=\"{begin:.2}%\" y=\"{y}\" width=\"{width:.2}%\" height=\"{BAR}\"><title>{name}</title>\
             <rect class=\"s{}\" width=\"100%\" height=\"100%\"/><text class=\"name\" x=\"4\" y=\"{LABEL}\">{}</text></svg>",
            index % 2,
            name.trim_end_matches(".md")
        );
    }
}

/// The lines of forks and joins.
fn push_lines(body: &mut String, report: &RunReport, lanes: &[Lane<'_>], axis: &TimeAxis) {
    let by_id: BTreeMap<&str, &Lane> = lanes
        .iter()
        .map(|lane| (lane.agent.agent_id.as_str(), lane))
        .collect();
    for transition in &report.transitions {
        let Some(parent) = by_id.get(transition.agent_id.as_str()) else {
            continue;
        };
        let at = timestamp(&transition.at).map_or(0.0, |at| axis.percent(at));
        let workers = transition.spawned.iter();
        for worker in workers.filter_map(|id| by_id.get(id.as_str())) {
            let begin = worker.begin().unwrap_or(at);
            push_line(body, "fork", begin, (parent, worker));
            let is_over = worker.agent.status == "ended";
            if let Some(end) = worker.end().filter(|_| transition.joins && is_over) {
                push_line(body, "join", end, (parent, worker));
            }
        }
    }
}

fn push_line(body: &mut String, class: &str, x: f64, (parent, worker): (&Lane<'_>, &Lane<'_>)) {
    let x = x.clamp(0.2, 99.8);
    let (above, below) = (parent.top + BAR_TOP + BAR, worker.top + BAR_TOP);
    let marker = match class {
        "fork" => " marker-end=\"url(#arrow)\"",
        _ => "",
    };
    let _ = write!(
        body,
        "<line class=\"{class}\" x1=\"{x:.2}%\" y1=\"{above}\" x2=\"{x:.2}%\" y2=\"{below}\"{marker}/>"
    );
}
