//! Charts as inline SVG, each with its numbers as text.

use std::fmt::Write;

use crate::report::html::words::{clock, plural};
use crate::report::html::writer::{HtmlWriter, escape};
use crate::report::log_fold::milliseconds;
use crate::report::model::RunReport;

const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 150.0;
const LEFT: f64 = 44.0;
const BOTTOM: f64 = 124.0;
const TOP: f64 = 12.0;

/// The charts of a run: tests per attempt, and cost over time.
pub(super) fn charts(page: &mut HtmlWriter, report: &RunReport) {
    let tests = tests_chart(report);
    let costs = cost_chart(report);
    if tests.is_none() && costs.is_none() {
        return;
    }
    page.raw("<section aria-labelledby=\"charts\"><h2 id=\"charts\">Charts</h2>\n<div class=\"charts\">\n");
    for figure in [tests, costs].into_iter().flatten() {
        page.raw(&figure);
    }
    page.raw("</div></section>\n");
}

fn figure(label: &str, body: &str, caption: &str) -> String {
    let (label, caption) = (escape(label), escape(caption));
    format!(
        "<figure><svg role=\"img\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" aria-label=\"{label}\">{body}\
         <line class=\"axis\" x1=\"{LEFT}\" y1=\"{BOTTOM}\" x2=\"{WIDTH}\" y2=\"{BOTTOM}\"/></svg>\
         <figcaption>{caption}</figcaption></figure>\n"
    )
}

/// A bar per attempt: passed, failed and skipped tests.
fn tests_chart(report: &RunReport) -> Option<String> {
    let bars: Vec<_> = report
        .attempts
        .iter()
        .filter_map(|attempt| Some((attempt.number, attempt.tests.as_ref()?)))
        .collect();
    let most = bars
        .iter()
        .map(|(_, tests)| {
            tests
                .passed
                .saturating_add(tests.failed)
                .saturating_add(tests.skipped)
        })
        .max()?
        .max(1);
    let step = (WIDTH - LEFT) / bars.len() as f64;
    let width = (step * 0.7).min(44.0);
    let mut body = scale(&most.to_string());
    let mut sentences = Vec::new();
    for (index, (number, tests)) in bars.iter().enumerate() {
        let x = LEFT + step * index as f64 + (step - width) / 2.0;
        let mut y = BOTTOM;
        for (class, count) in [
            ("pass", tests.passed),
            ("fail", tests.failed),
            ("skip-bar", tests.skipped),
        ] {
            let height = (BOTTOM - TOP) * f64::from(count) / f64::from(most);
            y -= height;
            if count > 0 {
                let _ = write!(
                    body,
                    "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
                );
            }
        }
        if bars.len() <= 12 || index % 5 == 0 {
            let middle = x + width / 2.0;
            let _ = write!(
                body,
                "<text x=\"{middle:.1}\" y=\"140\" text-anchor=\"middle\">{number}</text>"
            );
        }
        sentences.push(format!(
            "attempt {number}: {} passed, {} failed, {} skipped",
            tests.passed, tests.failed, tests.skipped
        ));
    }
    let label = format!("Tests per attempt. {}.", sentences.join("; "));
    let caption = "Tests per attempt: passed at the bottom, failed above, skipped on top.";
    Some(figure(&label, &body, caption))
}

/// The cost of all answers over the time of the run.
fn cost_chart(report: &RunReport) -> Option<String> {
    let last = report.costs.last()?;
    let span = milliseconds(&report.started_at, &last.at)?.max(1) as f64;
    let most = last.total_usd.max(f64::MIN_POSITIVE);
    let mut points = format!("{LEFT:.1},{BOTTOM:.1}");
    let mut y = BOTTOM;
    for point in &report.costs {
        let elapsed = milliseconds(&report.started_at, &point.at).unwrap_or_default() as f64;
        let x = LEFT + (WIDTH - LEFT - 6.0) * (elapsed / span).min(1.0);
        let _ = write!(points, " {x:.1},{y:.1}");
        y = BOTTOM - (BOTTOM - TOP) * (point.total_usd / most).clamp(0.0, 1.0);
        let _ = write!(points, " {x:.1},{y:.1}");
    }
    let mut body = scale(&format!("{:.4}", last.total_usd));
    let _ = write!(
        body,
        "<polyline class=\"cost\" points=\"{points}\"/>\
         <text x=\"{LEFT}\" y=\"140\">{}</text><text x=\"{WIDTH}\" y=\"140\" text-anchor=\"end\">{}</text>",
        escape(clock(&report.started_at)),
        escape(clock(&last.at))
    );
    let answers = plural(report.costs.len(), "answer");
    let label = format!(
        "Cost over time: {:.4} USD after {answers}, at {}.",
        last.total_usd, last.at
    );
    let caption = format!(
        "Cost over time, in USD: {:.4} after {answers}.",
        last.total_usd
    );
    Some(figure(&label, &body, &caption))
}

/// The ends of the vertical axis.
fn scale(most: &str) -> String {
    format!(
        "<line class=\"axis\" x1=\"{LEFT}\" y1=\"{TOP}\" x2=\"{LEFT}\" y2=\"{BOTTOM}\"/>\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text><text x=\"{}\" y=\"{BOTTOM}\" text-anchor=\"end\">0</text>",
        LEFT - 5.0,
        TOP + 8.0,
        escape(most),
        LEFT - 5.0
    )
}

/// Agents as lanes: what each did when, as bars between the start and the end of the run.
pub(super) fn lanes(page: &mut HtmlWriter, report: &RunReport) {
    let Some(whole) = milliseconds(&report.started_at, &report.updated_at) else {
        return;
    };
    let whole = whole.max(1) as f64;
    page.raw("<ul class=\"lanes\">\n");
    for agent in &report.agents {
        let mut bars = String::new();
        let own = report
            .phases
            .iter()
            .filter(|span| span.agent_id == agent.agent_id);
        for (index, span) in own.enumerate() {
            let start =
                milliseconds(&report.started_at, &span.started_at).unwrap_or_default() as f64;
            let end = span.ended_at.as_ref().unwrap_or(&report.updated_at);
            let width = milliseconds(&span.started_at, end).unwrap_or_default() as f64;
            let _ = write!(
                bars,
                "<rect class=\"p{}\" x=\"{:.2}\" y=\"0\" width=\"{:.2}\" height=\"10\"><title>{}</title></rect>",
                index % 2,
                1000.0 * (start / whole).min(1.0),
                (1000.0 * width / whole).clamp(3.0, 1000.0),
                escape(&span.name)
            );
        }
        let visits = plural(usize::try_from(agent.visits).unwrap_or(usize::MAX), "state");
        let label = escape(&format!("{}: {visits}, {}", agent.agent_id, agent.status));
        page.put(format_args!(
            "<li><span>{label}</span><div class=\"lane\"><svg role=\"img\" aria-label=\"Lane of {label}\" \
             viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\">{bars}</svg></div></li>\n"
        ));
    }
    page.raw("</ul>\n");
}
