//! The checks run once in INIT, on what was taken in: the first request has what they report, and if all of them pass, no
//! model is asked.

use crate::build::Run;
use crate::build::context::Context;
use crate::build::protection;
use crate::build::steps::{CheckRound, first_visible, run_checks};
use crate::error::Result;
use crate::events::{Event, MAIN_AGENT};
use crate::process::Launcher;

/// Runs the checks if this run has a baseline. What they leave behind is undone; a timeout is part of the report.
pub(crate) fn run_baseline(run: &mut Run) -> Result<()> {
    if !is_wanted(run)? {
        return Ok(());
    }
    let context = &mut run.context;
    context
        .log
        .progress("running the checks before the first request")?;
    // Its sandbox is set up while the workspace is copied.
    let launcher = run.checks.launcher(first_visible(&context.spec));
    launcher.iter().for_each(Launcher::prepare);
    let before = context
        .attempts
        .remember(&context.workspace, &context.root)?;
    let round = run_checks(run);
    let context = &mut run.context;
    // The store has what was taken in once it is durable.
    context.saves.wait()?;
    context.attempts.put_back(before, &context.workspace)?;
    protection::may_have_changed(&mut run.context);
    let round = round?;
    record(&mut run.context, &round)
}

fn record(context: &mut Context, round: &CheckRound) -> Result<()> {
    let passed = round.all_passed();
    let report = round.report(context).text;
    context.log.record_synced(Event::BaselineFinished {
        agent_id: MAIN_AGENT.into(),
        passed,
        report,
    })
}

/// With files of the user's, and where a continued run has a workspace that no report is about. A replay does what the
/// recorded run did.
fn is_wanted(run: &Run) -> Result<bool> {
    let context = &run.context;
    if let Some(recorded) = &run.recorded {
        return Ok(recorded.baseline().is_some());
    }
    if !context.spec.baseline {
        return Ok(false);
    }
    let inputs = &context.inputs;
    if !inputs.copy.is_empty() || !inputs.protect.is_empty() {
        return Ok(true);
    }
    let has_report = context.facts(|facts| {
        facts
            .continued()
            .map(|continued| !continued.report.is_empty())
    });
    match has_report {
        None | Some(true) => Ok(false),
        Some(false) => Ok(!context.workspace.is_empty_but(&[])?),
    }
}
