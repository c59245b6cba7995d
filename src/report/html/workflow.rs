//! The parts of a page that workflows have: agents, transitions, printed text.

use crate::html::units::{clock, plural, usd};
use crate::html::writer::Column::{Number, Text};
use crate::html::writer::{Fold, HtmlWriter};
use crate::report::html::checks::checks;
use crate::report::model::{ReportAgent, ReportTransition, RunReport};

pub(super) fn agents(page: &mut HtmlWriter, report: &RunReport) {
    let columns = [
        Text("Agent"),
        Text("Begun by"),
        Text("Status"),
        Number("States"),
        Number("Cost"),
        Text("Result"),
    ];
    page.begin_table("Agents of the workflow", &columns);
    let rows = report.agents.iter().take_while(|agent| {
        let has_room = page.has_room();
        if has_room {
            agent_row(page, agent);
        }
        has_room
    });
    let shown = rows.count();
    page.end_table();
    if shown < report.agents.len() {
        let more = plural(report.agents.len() - shown, "agent");
        page.paragraph("soft", &format!("{more} more are left out."));
    }
    scripts(page, report);
    prints(page, report);
}

/// The scripts of each agent, within the size of the page.
fn scripts(page: &mut HtmlWriter, report: &RunReport) {
    for agent in report.agents.iter().filter(|one| !one.scripts.is_empty()) {
        if page.has_room() {
            let name = format!("Scripts of {}", agent.agent_id);
            page.begin_details(&name, Fold::Closed);
            checks(page, &name, &agent.scripts);
            page.end_details();
        }
    }
}

/// What models and scripts have shown, within the size of the page.
fn prints(page: &mut HtmlWriter, report: &RunReport) {
    if !report.prints.is_empty() {
        page.heading(3, "Printed text");
    }
    for print in &report.prints {
        if page.has_room() {
            page.paragraph("", &format!("{}:", print.agent_id));
            page.pre(&format!("Printed by {}", print.agent_id), &print.text);
        }
    }
}

fn agent_row(page: &mut HtmlWriter, agent: &ReportAgent) {
    page.row_head(&agent.agent_id);
    page.cell("", agent.parent.as_deref().unwrap_or("the run"));
    let class = match agent.status {
        "ended" => "good",
        "failed" => "bad",
        _ => "warn",
    };
    page.cell(class, agent.status);
    page.cell("n", agent.visits);
    page.cell("n", usd(agent.cost_usd));
    page.cell("text lines", &agent.result);
    page.end_row();
}

pub(super) fn transitions(page: &mut HtmlWriter, report: &RunReport) {
    if report.transitions.is_empty() {
        page.paragraph("", "There was no transition.");
        return;
    }
    let columns = [
        Number("Time"),
        Text("Agent"),
        Text("From"),
        Text("Kind"),
        Text("To"),
    ];
    page.begin_table("Transitions in their order", &columns);
    let mut left_out = 0;
    for transition in &report.transitions {
        match page.has_room() {
            true => transition_row(page, transition),
            false => left_out += 1,
        }
    }
    page.end_table();
    if left_out > 0 {
        page.paragraph("soft", &format!("{left_out} more are left out."));
    }
}

fn transition_row(page: &mut HtmlWriter, transition: &ReportTransition) {
    page.row_head(clock(&transition.at));
    page.cell("", &transition.agent_id);
    page.cell("", &transition.from_state);
    page.cell("", &transition.transition_type);
    let to = transition.to_state.as_deref().unwrap_or("(the agent ends)");
    let workers = transition.spawned.join(", ");
    page.cell(
        "text",
        match (workers.as_str(), transition.joins) {
            ("", _) => to.to_owned(),
            (workers, true) => format!("{to}, which waits for {workers}"),
            (workers, false) => format!("{to}; begins {workers}"),
        },
    );
    page.end_row();
}
