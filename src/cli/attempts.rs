//! `attempts`: the snapshots of a run as a table, or as a JSON list. Takes no lock, changes nothing.

use serde::Serialize;

use crate::cli::env::CliEnv;
use crate::cli::output::pretty_json;
use crate::cli::run_names::find_run;
use crate::cli::table::{Table, shown_time};
use crate::error::Result;
use crate::events::TestTotals;
use crate::snapshots::records::{RunSnapshots, SnapshotRecord};
use crate::snapshots::take::UnstoredEntry;
use crate::state::run::UsageTotals;
use crate::state::store::{LoadedState, Root};
use crate::text::invisible::printable;

/// A row of the JSON list.
#[derive(Debug, Serialize)]
struct AttemptRow<'a> {
    number: u32,
    phase: &'a str,
    /// What differs from the attempt before.
    files: &'a [String],
    tests: Option<&'a TestTotals>,
    cause: Option<&'a str>,
    usage: Option<&'a UsageTotals>,
    time: &'a str,
    duration_ms: Option<u64>,
    /// Why it was kept without a round of checks.
    kept: Option<&'a str>,
    /// What is named in it and not stored.
    unstored: Vec<&'a str>,
}

/// Returns what is printed.
pub(super) fn main(env: &CliEnv, run: Option<&str>, json: bool) -> Result<String> {
    let root = Root::open(&env.root)?;
    if run.is_none() && has_no_run(&root)? {
        return Ok(match json {
            true => "[]\n".into(),
            false => format!("no run in {}\n", printable(&env.root.to_string_lossy())),
        });
    }
    let run_id = find_run(&root, run)?;
    let snapshots = RunSnapshots::of(&root, &run_id);
    let records: Vec<SnapshotRecord> = snapshots.list()?.into_values().collect();
    if json {
        return pretty_json(&records.iter().map(row).collect::<Vec<_>>());
    }
    if records.is_empty() {
        return Ok(format!("no attempts of run {run_id} are kept\n"));
    }
    let continues = root_continues(&root, &run_id);
    let mut text = format!("run {run_id}");
    if let Some(continues) = continues {
        text += &format!(", continues {continues}");
    }
    Ok(text + "\n" + &table(&records) + &unstored(&records))
}

fn has_no_run(root: &Root) -> Result<bool> {
    Ok(matches!(root.load()?, LoadedState::Nothing) && RunSnapshots::all(root)?.is_empty())
}

/// The run that a run continues, as its state says.
fn root_continues(root: &Root, run_id: &str) -> Option<String> {
    let is_run =
        |state: &LoadedState| matches!(state, LoadedState::Build(state) if state.run_id == run_id);
    let current = root.load().ok().filter(is_run);
    match current.or_else(|| root.load_kept_state(run_id))? {
        LoadedState::Build(state) => state.continues,
        _ => None,
    }
}

fn row(record: &SnapshotRecord) -> AttemptRow<'_> {
    let round = record.round.as_ref();
    AttemptRow {
        number: record.number,
        phase: &record.phase,
        files: &record.files,
        tests: round.and_then(|round| round.tests.as_ref()),
        cause: round.and_then(|round| round.cause.as_deref()),
        usage: round.map(|round| &round.usage),
        time: &record.time,
        duration_ms: round.map(|round| round.duration_ms),
        kept: record.kept.as_deref(),
        unstored: record
            .unstored
            .iter()
            .map(|entry| entry.path.as_str())
            .collect(),
    }
}

fn table(records: &[SnapshotRecord]) -> String {
    let mut table = Table::new([
        "", "phase", "files", "tests", "tokens", "cost", "time", "cause",
    ]);
    for record in records {
        let round = record.round.as_ref();
        let tests = round.and_then(|round| round.tests.as_ref());
        let usage = round.map(|round| &round.usage);
        let cause = match (&record.kept, round) {
            (Some(kept), _) => format!("(kept {kept})"),
            (None, Some(round)) if round.failed_checks == 0 => "passed".to_owned(),
            (None, round) => round
                .and_then(|round| round.cause.clone())
                .unwrap_or_default(),
        };
        table.add([
            record.number.to_string(),
            record.phase.clone(),
            record.files.len().to_string(),
            tests
                .map(|tests| format!("{} of {}", tests.passed, tests.executed))
                .unwrap_or("-".into()),
            usage
                .map(|usage| (usage.input_tokens + usage.output_tokens).to_string())
                .unwrap_or("-".into()),
            usage
                .and_then(|usage| usage.cost_usd)
                .map(|cost| format!("{cost:.4}"))
                .unwrap_or("-".into()),
            shown_time(&record.time),
            cause,
        ]);
    }
    table.text()
}

fn unstored(records: &[SnapshotRecord]) -> String {
    let mut names: Vec<String> = Vec::new();
    for entry in records
        .iter()
        .flat_map(|record| &record.unstored)
        .filter(|entry| entry.is_noteworthy())
    {
        let name = UnstoredEntry::shown(entry);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.is_empty() {
        true => String::new(),
        false => format!("not stored, only named: {}\n", names.join(", ")),
    }
}
