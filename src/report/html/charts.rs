//! The charts of a run: tests per attempt, cost over time.

use std::fmt::Write;

use crate::events::TestTotals;
use crate::html::chart::figure;
use crate::html::units::{clock, plural, timestamp};
use crate::html::writer::{HtmlWriter, escape};
use crate::report::html::timeline::axis;
use crate::report::model::RunReport;

/// Vertical places in pixels; horizontal ones are in percent.
const HEIGHT: u32 = 170;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 145.0;
const UNDER: f64 = 162.0;
const LEFT: f64 = 14.0;
/// With more bars than this, only some have a number.
const MOST_LABELLED: usize = 12;
const LEGEND: &str = "Tests per attempt, with the number of passed ones: <span class=\"key pass\"></span> passed, \
    <span class=\"key fail\"></span> failed, <span class=\"key skip-bar\"></span> skipped.";

pub(super) fn has_charts(report: &RunReport) -> bool {
    !tested(report).is_empty() || !report.costs.is_empty()
}

pub(super) fn charts(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<div class=\"charts\">\n");
    if let Some(figure) = tests_chart(report) {
        page.raw(&figure);
    }
    if let Some(figure) = cost_chart(report) {
        page.raw(&figure);
    }
    page.raw("</div>\n");
}

/// The attempts with test counts, by their numbers.
fn tested(report: &RunReport) -> Vec<(u32, &TestTotals)> {
    let attempts = report.attempts.iter();
    let tested = attempts.filter_map(|attempt| Some((attempt.number, attempt.tests.as_ref()?)));
    tested.collect()
}

/// A bar per attempt: passed, failed and skipped tests.
fn tests_chart(report: &RunReport) -> Option<String> {
    let bars = tested(report);
    let most = bars.iter().map(|(_, tests)| all(tests)).max()?.max(1);
    let step = (100.0 - LEFT) / bars.len() as f64;
    let is_labelled = bars.len() <= MOST_LABELLED;
    let mut body = scale(&most.to_string());
    let mut sentences = Vec::new();
    for (index, (number, tests)) in bars.iter().enumerate() {
        let middle = LEFT + step * (index as f64 + 0.5);
        let top = push_bar(&mut body, middle, step, (tests, most));
        if is_labelled || index % 5 == 0 {
            push_text(&mut body, middle, UNDER, &number.to_string());
        }
        if is_labelled {
            push_text(&mut body, middle, top - 5.0, &tests.passed.to_string());
        }
        let (passed, failed, skipped) = (tests.passed, tests.failed, tests.skipped);
        sentences.push(format!(
            "attempt {number}: {passed} passed, {failed} failed, {skipped} skipped"
        ));
    }
    let label = format!("Tests per attempt. {}.", sentences.join("; "));
    Some(figure(&label, HEIGHT, &body, LEGEND))
}

fn all(tests: &TestTotals) -> u64 {
    u64::from(tests.passed) + u64::from(tests.failed) + u64::from(tests.skipped)
}

/// Adds the bar of an attempt; returns where it ends above.
fn push_bar(body: &mut String, middle: f64, step: f64, (tests, most): (&TestTotals, u64)) -> f64 {
    let width = (step * 0.7).min(12.0);
    let x = middle - width / 2.0;
    let mut y = BOTTOM;
    for (class, count) in [
        ("pass", tests.passed),
        ("fail", tests.failed),
        ("skip-bar", tests.skipped),
    ] {
        let height = (BOTTOM - TOP) * f64::from(count) / most as f64;
        y -= height;
        if count > 0 {
            let _ = write!(
                body,
                "<rect class=\"{class}\" x=\"{x:.2}%\" y=\"{y:.1}\" width=\"{width:.2}%\" height=\"{height:.1}\"/>"
            );
        }
    }
    y
}

/// The cost of all answers over the time of the run.
fn cost_chart(report: &RunReport) -> Option<String> {
    let last = report.costs.last()?;
    let axis = axis(report)?;
    let most = last.total_usd.max(f64::MIN_POSITIVE);
    let mut points = String::from("0,100");
    let mut y = 100.0;
    for point in &report.costs {
        let x = axis.percent(timestamp(&point.at)?);
        let _ = write!(points, " {x:.2},{y:.2}");
        y = 100.0 - 100.0 * (point.total_usd / most).clamp(0.0, 1.0);
        let _ = write!(points, " {x:.2},{y:.2}");
    }
    let _ = write!(points, " 100,{y:.2}");
    let mut body = scale(&format!("{:.4}", last.total_usd));
    let height = BOTTOM - TOP;
    let _ = write!(
        body,
        "<svg x=\"{LEFT}%\" y=\"{TOP}\" width=\"{}%\" height=\"{height}\" viewBox=\"0 0 100 100\" \
         preserveAspectRatio=\"none\"><polyline class=\"cost\" points=\"{points}\"/></svg>",
        100.0 - LEFT
    );
    push_ends(&mut body, report);
    let answers = plural(report.costs.len(), "answer");
    let total = last.total_usd;
    let label = format!(
        "Cost over time: {total:.4} USD after {answers}, at {}.",
        last.at
    );
    let caption = format!("Cost over time, in USD: {total:.4} after {answers}.");
    Some(figure(&label, HEIGHT, &body, &caption))
}

/// The times at both ends of the horizontal axis.
fn push_ends(body: &mut String, report: &RunReport) {
    let _ = write!(
        body,
        "<text x=\"{LEFT}%\" y=\"{UNDER}\">{}</text><text x=\"100%\" y=\"{UNDER}\" text-anchor=\"end\">{}</text>",
        escape(clock(&report.started_at)),
        escape(clock(&report.updated_at))
    );
}

fn push_text(body: &mut String, x: f64, y: f64, text: &str) {
    let text = escape(text);
    let _ = write!(
        body,
        "<text x=\"{x:.2}%\" y=\"{y:.1}\" text-anchor=\"middle\">{text}</text>"
    );
}

/// Both axes, and the ends of the vertical one.
fn scale(most: &str) -> String {
    let (most, text) = (escape(most), LEFT - 1.0);
    format!(
        "<line class=\"axis\" x1=\"{LEFT}%\" y1=\"{TOP}\" x2=\"{LEFT}%\" y2=\"{BOTTOM}\"/>\
         <line class=\"axis\" x1=\"{LEFT}%\" y1=\"{BOTTOM}\" x2=\"100%\" y2=\"{BOTTOM}\"/>\
         <text x=\"{text}%\" y=\"{}\" text-anchor=\"end\">{most}</text>\
         <text x=\"{text}%\" y=\"{BOTTOM}\" text-anchor=\"end\">0</text>",
        TOP + 8.0
    )
}
