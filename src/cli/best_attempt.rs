//! The best attempt of a run that failed: most passed tests, then fewest failed checks, then the latest.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use crate::build::attempt_store::snapshot_event;
use crate::build::context::Context;
use crate::build::kept_workspace::{KeptRun, KeptSnapshot, KnownSnapshots, keep_as_snapshot};
use crate::cli::resume_command::attempt_command;
use crate::error::Result;
use crate::events::{Event, MAIN_AGENT};
use crate::snapshots::records::SnapshotRecord;

/// The best of the attempts that were tested.
pub(super) fn best_attempt(records: &BTreeMap<u32, SnapshotRecord>) -> Option<&SnapshotRecord> {
    let tested = records.values().filter(|record| record.round.is_some());
    tested.max_by_key(|record| {
        let round = record.round.as_ref();
        let passed = round
            .and_then(|round| round.tests.as_ref())
            .map_or(0, |tests| tests.passed);
        (
            passed,
            Reverse(round.map_or(0, |round| round.failed_checks)),
            record.number,
        )
    })
}

/// One line about the best attempt of a failed run; nothing if no attempt was tested. `run_id` names an older run.
pub(super) fn best_text(
    records: &BTreeMap<u32, SnapshotRecord>,
    run_id: Option<&str>,
    root: Option<&Path>,
) -> Option<String> {
    let best = best_attempt(records)?;
    let number = best.number;
    let tests = best.round.as_ref().and_then(|round| round.tests.as_ref());
    let tests =
        tests.map(|tests| format!(" ({} of {} tests passed)", tests.passed, tests.executed));
    Some(format!(
        "attempt {number}{}; `{}` compares it with workspace/, `{}` brings it back",
        tests.unwrap_or_default(),
        attempt_command("diff", number, run_id, root),
        attempt_command("restore", number, run_id, root),
    ))
}

/// Leaves the best attempt of a failed run in the workspace; what is there is kept first.
pub(super) fn keep_best(context: &mut Context) -> Result<()> {
    let records = context.attempts.records().list()?;
    let Some(best) = best_attempt(&records) else {
        return Ok(());
    };
    let kept = KeptRun {
        run_id: &context.state.run_id,
        phase: context.state.phase.name(),
        why: "before --keep-best",
    };
    let (attempts, cancel) = (&mut context.attempts, &context.cancel);
    let known = KnownSnapshots::All;
    let now = keep_as_snapshot(attempts, &context.workspace, kept, known, cancel)?;
    if let Some(KeptSnapshot::New(record)) = &now {
        context.log.record(snapshot_event(record, None))?;
    }
    context
        .attempts
        .bring_back(&context.workspace, best.tree, &context.cancel)?;
    context.log.record(Event::SnapshotRestored {
        agent_id: MAIN_AGENT.into(),
        number: best.number,
        from_run: None,
    })?;
    context.log.progress(format!(
        "attempt {} is the best one and is in workspace/",
        best.number
    ))
}
