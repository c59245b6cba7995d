//! `runs`: the runs of a root, by their logs, which `reset` leaves. Takes no lock, changes nothing.

use serde::Serialize;

use crate::cli::env::CliEnv;
use crate::cli::known_run::{KnownRun, SavedState, logged_runs};
use crate::cli::output::{pretty_json, print_stderr};
use crate::cli::run_facts::RunFacts;
use crate::cli::table::{Table, shown_time};
use crate::error::Result;
use crate::state::run::RunKind;
use crate::state::store::Root;
use crate::text::invisible::{escaped, printable};

/// A run in the list.
#[derive(Debug, Serialize)]
struct ListedRun {
    run_id: String,
    kind: RunKind,
    spec_file: String,
    started_at: String,
    outcome: &'static str,
    reason: Option<String>,
    attempts: u32,
    cost_usd: Option<f64>,
    continues: Option<String>,
}

/// Returns what is printed.
pub(super) fn main(env: &CliEnv, json: bool) -> Result<String> {
    let root = Root::open(&env.root)?;
    let runs = listed_runs(&root)?;
    if json {
        return pretty_json(&runs);
    }
    Ok(match runs.is_empty() {
        true => format!("no run in {}\n", printable(&env.root.to_string_lossy())),
        false => table(&runs),
    })
}

/// All runs, the newest last.
fn listed_runs(root: &Root) -> Result<Vec<ListedRun>> {
    let mut current = root.load().ok().and_then(SavedState::of);
    let current_id = current.as_ref().map(|state| state.run_id().to_owned());
    let mut ids = logged_runs(root)?;
    ids.extend(current_id.clone());
    let holder = root.lock_holder();
    let mut runs = Vec::new();
    for id in ids {
        let is_current = current_id.as_deref() == Some(&id);
        let state = match is_current {
            true => current.take(),
            false => root.load_kept_state(&id).and_then(SavedState::of),
        };
        let facts = read_facts(root, &id);
        if !facts.is_empty() || state.is_some() {
            runs.push(KnownRun::new(id, state, is_current, facts));
        }
    }
    // A process may have begun after the first look.
    let holder = holder.or_else(|| root.lock_holder());
    let runs = runs.into_iter();
    let mut runs: Vec<ListedRun> = runs
        .map(|run| listed(&run.with_status(holder.as_ref())))
        .collect();
    runs.sort_by(|a, b| (&a.started_at, &a.run_id).cmp(&(&b.started_at, &b.run_id)));
    Ok(runs)
}

/// The facts of a log; one that cannot be read is named.
fn read_facts(root: &Root, run_id: &str) -> RunFacts {
    let problem = match RunFacts::of_run(root, run_id) {
        Ok(facts) if facts.start.is_some() => return facts,
        Ok(_) => "it has no readable start".to_owned(),
        Err(error) => error.to_string(),
    };
    print_stderr(&format!("cannot read logs/{run_id}.log: {problem}"));
    RunFacts::default()
}

fn listed(run: &KnownRun) -> ListedRun {
    let start = run.facts.start.as_ref();
    ListedRun {
        run_id: run.run_id.clone(),
        kind: run.kind(),
        spec_file: run.spec_file().to_owned(),
        started_at: run.started_at().to_owned(),
        outcome: run.status.word(),
        reason: run.reason(),
        attempts: run.attempts(),
        cost_usd: run.usage().cost_usd,
        continues: start.and_then(|start| start.continues.clone()),
    }
}

fn table(runs: &[ListedRun]) -> String {
    let outcome = |run: &ListedRun| match &run.reason {
        Some(reason) => escaped(&format!("{} ({reason})", run.outcome)),
        None => run.outcome.to_owned(),
    };
    let head = [
        "run",
        "begun",
        "outcome",
        "attempts",
        "cost",
        "spec or workflow",
    ];
    let mut table = Table::new(head);
    for run in runs {
        let cost = run.cost_usd.map(|usd| format!("{usd:.4} USD"));
        let continues = run
            .continues
            .as_ref()
            .map(|id| format!(" (continues {id})"));
        table.add([
            run.run_id.clone(),
            shown_time(&run.started_at),
            outcome(run),
            run.attempts.to_string(),
            cost.unwrap_or("unknown".into()),
            run.spec_file.clone() + &continues.unwrap_or_default(),
        ]);
    }
    table.text()
}
