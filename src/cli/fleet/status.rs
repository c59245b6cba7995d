//! `fleet status` and `fleet cancel`.

use std::path::Path;

use crate::cli::env::CliEnv;
use crate::cli::fleet::summary::{budget_text, summarize};
use crate::cli::fleet::variables::named_entry;
use crate::cli::table::Table;
use crate::error::Result;
use crate::fleet::folder::FleetFolder;
use crate::fleet::plan::FleetPlan;
use crate::report::fleet::model::FleetSummary;
use crate::text::shorten::one_line;

const SHOWN_CHARACTERS: usize = 80;

/// The state of a fleet, with the command that goes on.
pub(super) fn fleet_state(env: &CliEnv, directory: &Path) -> Result<(FleetFolder, FleetSummary)> {
    let folder = FleetFolder::new(&env.absolute(directory));
    let plan = FleetPlan::load_existing(&folder)?;
    let mut summary = summarize(&folder, &plan)?;
    summary.find_next(&folder);
    Ok((folder, summary))
}

/// Returns what `fleet status` prints.
pub(super) fn main(env: &CliEnv, directory: &Path, json: bool) -> Result<String> {
    let (_, summary) = fleet_state(env, directory)?;
    if json {
        return summary.json();
    }
    let mut table = Table::new(["entry", "outcome", "reason", "starts", "cost", "cause"]);
    for entry in &summary.entries {
        let message = entry.message.as_deref().unwrap_or_default();
        table.add([
            named_entry(&entry.name, &entry.variables),
            entry.outcome_word().to_owned(),
            entry.reason.clone().unwrap_or_default(),
            entry.starts.to_string(),
            format!("${:.4}", entry.spent_usd),
            one_line(message, SHOWN_CHARACTERS),
        ]);
    }
    let money = match summary.budget_usd {
        Some(budget) => format!(" of {}", budget_text(budget)),
        None => String::new(),
    };
    let mut text = format!(
        "{}\n{}, ${:.4} spent, ${:.4} reserved{money}\n",
        table.text().trim_end(),
        summary.counts.text(),
        summary.spent_usd,
        summary.reserved_usd
    );
    if let Some(next) = &summary.next {
        text += &format!("next: {next}\n");
    }
    Ok(text)
}
