//! The parts of a page that workflows have: agents, transitions, printed text.

use crate::report::html::attempts::checks;
use crate::report::html::words::{clock, usd};
use crate::report::html::writer::HtmlWriter;
use crate::report::model::RunReport;

pub(super) fn sections(page: &mut HtmlWriter, report: &RunReport) {
    agents(page, report);
    transitions(page, report);
}

fn agents(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"agents\"><h2 id=\"agents\">Agents</h2>\n");
    let columns = ["Agent", "Began by", "Status", "States", "Cost", "Result"];
    page.begin_table("Agents of the workflow", &columns);
    for agent in &report.agents {
        page.charge(300 + agent.result.len());
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
        page.cell("text", &agent.result);
        page.raw("</tr>\n");
    }
    page.end_table();
    for agent in report
        .agents
        .iter()
        .filter(|agent| !agent.scripts.is_empty())
    {
        page.begin_details(&format!("Scripts of {}", agent.agent_id));
        checks(
            page,
            &format!("Scripts of {}", agent.agent_id),
            &agent.scripts,
        );
        page.end_details();
    }
    if !report.prints.is_empty() {
        page.heading(3, "Printed text");
        for print in &report.prints {
            page.pre(&format!("Printed by {}", print.agent_id), &print.text);
        }
    }
    page.raw("</section>\n");
}

fn transitions(page: &mut HtmlWriter, report: &RunReport) {
    page.raw("<section aria-labelledby=\"transitions\"><h2 id=\"transitions\">Transitions</h2>\n");
    page.begin_table(
        "Transitions in their order",
        &["From", "To", "Kind", "Agent", "Time"],
    );
    for transition in &report.transitions {
        page.row_head(&transition.from_state);
        page.cell("", transition.to_state.as_deref().unwrap_or("(ends)"));
        page.cell("", &transition.transition_type);
        page.cell("", &transition.agent_id);
        page.cell("n", clock(&transition.at));
        page.raw("</tr>\n");
    }
    page.charge(200 * report.transitions.len());
    page.end_table();
    page.raw("</section>\n");
}
