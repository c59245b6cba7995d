//! The exchanges with models and the tool calls, folded.

use crate::html::units::{clock, duration, optional_duration, plural, usd};
use crate::html::writer::{Fold, HtmlWriter};
use crate::report::model::{ModelExchange, ReportToolCall, RunReport};
use crate::text::shorten::cut_chars;

const FIRST_WORDS: usize = 90;

pub(super) fn exchanges(page: &mut HtmlWriter, report: &RunReport) {
    if report.exchanges.is_empty() {
        page.paragraph("", "No model was asked.");
    }
    let mut left_out = usize::try_from(report.exchanges_left_out).unwrap_or(usize::MAX);
    for (index, exchange) in report.exchanges.iter().enumerate() {
        if page.has_room() {
            let shares = report.exchanges.len() - index;
            page.within_share(shares, |page| one_exchange(page, exchange));
        } else {
            left_out = left_out.saturating_add(1);
        }
    }
    if left_out > 0 {
        let count = plural(left_out, "exchange");
        let text = format!("{count} more: the page has reached its maximum size, the log has all.");
        page.paragraph("", &text);
    }
}

fn one_exchange(page: &mut HtmlWriter, exchange: &ModelExchange) {
    page.begin_details(&summary(exchange), Fold::Closed);
    let facts = format!(
        "{}, {}, {} tokens in, {} out, {}, {}",
        clock(&exchange.at),
        exchange.model,
        exchange.input_tokens,
        exchange.output_tokens,
        usd(exchange.cost_usd),
        optional_duration(exchange.duration_ms)
    );
    page.paragraph("soft", &facts);
    let texts = [
        ("Request", Some(&exchange.asked)),
        ("Answer", exchange.answered.as_ref()),
        ("Error", exchange.error.as_ref()),
        ("Refused", exchange.refused.as_ref()),
    ];
    for (name, text) in texts {
        page.within_share(2, |page| {
            labelled(page, name, text.map_or("", String::as_str));
        });
    }
    for (index, tool) in exchange.tools.iter().enumerate() {
        let shares = exchange.tools.len() - index;
        page.within_share(shares, |page| one_call(page, tool));
    }
    if exchange.tools_left_out > 0 {
        let count = exchange.tools_left_out;
        page.paragraph("soft", &format!("{count} more tool calls are in the log."));
    }
    page.end_details();
}

fn summary(exchange: &ModelExchange) -> String {
    let place = match (exchange.attempt, exchange.visit) {
        (Some(attempt), _) => format!("Attempt {attempt}, {}", exchange.phase),
        (None, Some(visit)) => {
            let (agent, state) = (&exchange.agent_id, &exchange.state);
            format!("{agent}, {state}, visit {visit}")
        }
        (None, None) => exchange.agent_id.clone(),
    };
    let mut summary = format!("{place}, turn {}", u64::from(exchange.turn) + 1);
    let tools: Vec<&str> = exchange
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    if !tools.is_empty() {
        summary += &format!(": {}", tools.join(", "));
    } else if let Some(answer) = &exchange.answered {
        summary += &format!(": {}", first_line(answer));
    }
    let summary = cut_chars(&summary, 2 * FIRST_WORDS, "…");
    match (&exchange.refused, &exchange.answered) {
        (Some(_), _) => summary + " (refused)",
        (None, None) => summary + " (no answer)",
        (None, Some(_)) => summary,
    }
}

fn one_call(page: &mut HtmlWriter, tool: &ReportToolCall) {
    let outcome = match (&tool.output, tool.ran, tool.is_error) {
        (None, ..) => "no result",
        (_, false, _) => "did not run",
        (_, true, true) => "error",
        (_, true, false) => "done",
    };
    let (time, name) = (duration(tool.duration_ms), &tool.name);
    let command = first_line(&tool.arguments);
    page.begin_details(
        &format!("{name}: {command} ({outcome}, {time})"),
        Fold::Closed,
    );
    if command != tool.arguments.trim() {
        page.within_share(2, |page| labelled(page, "Command", &tool.arguments));
    }
    labelled(page, "Output", tool.output.as_deref().unwrap_or_default());
    if !tool.changed.is_empty() {
        page.paragraph("", &format!("Changed: {}", tool.changed.join(", ")));
    }
    page.end_details();
}

/// A text with its name, if there is any.
fn labelled(page: &mut HtmlWriter, name: &str, text: &str) {
    if !text.is_empty() {
        page.paragraph("", &format!("{name}:"));
        page.pre(name, text);
    }
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    cut_chars(line.unwrap_or("(empty)").trim(), FIRST_WORDS, "…")
}
