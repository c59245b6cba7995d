//! What a new run does with the one before it: its workspace is kept, or is what the new run begins with.

use crate::build::Run;
use crate::build::attempt_store::taken_in;
use crate::build::build_log::ContinuedRun;
use crate::build::context::Context;
use crate::build::kept_workspace::{KeptRun, KnownSnapshots, keep_workspace};
use crate::cli::decision::FreshStart;
use crate::cli::resume_command::attempt_command;
use crate::cli::run_config::RunConfig;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT, ReplacedRun};
use crate::snapshots::records::RunSnapshots;
use crate::state::run::RunState;

impl FreshStart {
    /// The run that is replaced, and not continued.
    pub(super) fn replaced_run(&self) -> Option<ReplacedRun> {
        let before = self.before.as_ref().filter(|_| !self.continues)?;
        Some(ReplacedRun {
            run_id: before.run_id.clone(),
            spec_file: before.spec_file.clone(),
        })
    }
}

/// Keeps the state and the workspace of the run before, before anything replaces them. Returns the message for the user.
pub(super) fn keep_what_was_there(
    config: &RunConfig,
    run: &Run,
    fresh: &FreshStart,
) -> Result<Option<String>> {
    let context = &run.context;
    let Some(message) = fresh.message.clone() else {
        return Ok(None);
    };
    if fresh.before.is_some() {
        context.root.keep_state()?;
    }
    if fresh.continues {
        return Ok(Some(message));
    }
    let before = fresh.before.as_ref();
    let run_id = match before {
        Some(before) => before.run_id.clone(),
        None => newest_run(context)?,
    };
    let kept = KeptRun {
        run_id: &run_id,
        phase: before.map_or("", |before| before.phase.name()),
        why: "before another run",
    };
    let (root, known) = (&context.root, KnownSnapshots::Last);
    let number = keep_workspace(root, &context.workspace, kept, known, &context.cancel)?;
    let Some(number) = number else {
        return Ok(Some(message));
    };
    // Without another run in the root, the state comes back, too.
    let first = match before.is_some_and(|before| !before.phase.is_terminal()) {
        true => "orchestrator reset && ",
        false => "",
    };
    let named_root = config.named_root.as_deref();
    let restore = attempt_command("restore", number, Some(&run_id), named_root);
    Ok(Some(format!(
        "{message}; its workspace is kept: `{first}{restore}` brings it back"
    )))
}

/// The run that a workspace without a readable state belongs to: the newest one, else the one that begins.
fn newest_run(context: &Context) -> Result<String> {
    let newest = RunSnapshots::all(&context.root)?.pop();
    Ok(newest.map_or_else(|| context.state.run_id.clone(), |(run_id, _)| run_id))
}

/// Records the workspace that a continued run, or the replay of one, begins with.
pub(super) fn begin_from_another_run(run: &mut Run, fresh: &FreshStart) -> Result<()> {
    if let Some(before) = fresh.before.as_ref().filter(|_| fresh.continues) {
        return continue_run(&mut run.context, before);
    }
    let recorded = run
        .recorded
        .as_ref()
        .and_then(|recorded| recorded.continued());
    match recorded.cloned() {
        Some(continued) => replay_continued(&mut run.context, continued),
        None => Ok(()),
    }
}

fn continue_run(context: &mut Context, before: &RunState) -> Result<()> {
    let taken = context.attempts.take(&context.workspace, &context.cancel)?;
    let earlier = RunSnapshots::of(&context.root, &before.run_id);
    let mut taken_in = taken_in(context, taken.tree);
    if let Some(earlier) = earlier.taken_in()? {
        taken_in.tree = earlier.tree;
    }
    let rounds = earlier.list()?;
    let last_round = rounds.values().rev().find(|record| record.round.is_some());
    // A report about other files would mislead.
    let is_tested = last_round.is_some_and(|record| record.tree == taken.tree);
    let records = context.attempts.records();
    records.stage_taken_in(&taken_in)?.place()?;
    records.save_start(taken.tree)?;
    if let Some(applied) = earlier.applied()? {
        records.save_applied(applied)?;
    }
    context.log.record_synced(Event::RunContinued {
        agent_id: MAIN_AGENT.into(),
        continues: before.run_id.clone(),
        tree: taken.tree.to_string(),
        report: match is_tested {
            true => before.last_test_output.clone(),
            false => String::new(),
        },
    })
}

fn replay_continued(context: &mut Context, continued: ContinuedRun) -> Result<()> {
    let ContinuedRun {
        run_id,
        tree,
        report,
    } = &continued;
    if !context.attempts.has_tree(continued.tree()?) {
        return Err(Error::Usage(format!(
            "the recorded run continues the run {run_id}, whose workspace is not in this root"
        )));
    }
    context.log.record_synced(Event::RunContinued {
        agent_id: MAIN_AGENT.into(),
        continues: run_id.clone(),
        tree: tree.clone(),
        report: report.clone(),
    })
}
