//! The end of a replayed build against the recorded one: its outcome, its answers, its files.

use crate::build::build_log::BuildLog;
use crate::conversation::replay::Replay;
use crate::state::reason::Reason;
use crate::state::run::RunState;

/// How the end of a run differs from the recorded one: in its outcome, in answers that were not asked for, or in the files
/// that answers and tools wrote.
pub(crate) fn end_difference(
    replay: &Replay,
    recorded: &BuildLog,
    state: &RunState,
    now: &BuildLog,
) -> Option<String> {
    let files = || {
        replay
            .is_repeatable()
            .then(|| recorded.file_difference(now))
            .flatten()
    };
    let difference = outcome_difference(recorded, state)
        .or_else(|| replay.unused_answers())
        .or_else(files)?;
    Some(format!(
        "the end differs from the recorded one: {difference}"
    ))
}

fn outcome_difference(recorded: &BuildLog, state: &RunState) -> Option<String> {
    let (outcome, reason) = recorded.end.as_ref()?;
    let now = state.phase.name();
    let reason_now = state.reason.map(|reason| reason.to_string());
    let reason_now = reason_now.unwrap_or_default();
    let is_same = outcome == now && *reason == reason_now;
    if is_same || *reason == Reason::ReplayMismatch.to_string() {
        return None;
    }
    let why = state.last_error.as_ref().map(|why| format!(": {why}"));
    Some(format!(
        "recorded {outcome} ({reason}), now {now} ({reason_now}){}",
        why.unwrap_or_default()
    ))
}
