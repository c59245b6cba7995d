//! The build loop: generate, test, patch, stop.
//!
//! `run` does the step of the current phase and calls `advance`, until the phase is terminal. A resume enters the same loop
//! at the saved phase. Only `advance` changes the phase: it decides by the table, saves `state.json`, then records the
//! transition.

pub(crate) mod attempt_store;
pub(crate) mod attempts;
pub(crate) mod baseline;
pub(crate) mod build_log;
pub(crate) mod checks;
pub(crate) mod child_env;
pub(crate) mod context;
pub(crate) mod generators;
pub(crate) mod kept_files;
pub(crate) mod kept_workspace;
pub(crate) mod progress;
pub(crate) mod protection;
pub(crate) mod replay_end;
pub(crate) mod rounds;
pub(crate) mod spec;
pub(crate) mod steps;
pub(crate) mod tampering;
pub(crate) mod tested_files;

use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

use serde_json::json;

use crate::build::attempts::{CAUSE, cause_of};
use crate::build::build_log::BuildLog;
use crate::build::checks::ToolRegistry;
use crate::build::context::Context;
use crate::build::generators::Generator;
use crate::build::replay_end::end_difference;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::state::phase::{Outcome, Phase};
use crate::state::reason::Reason;
use crate::state::run::RunState;

/// A run under way.
pub(crate) struct Run {
    pub context: Context,
    pub generator: Box<dyn Generator>,
    pub checks: ToolRegistry,
    /// Sets the sandbox of the next check up.
    pub preparing: Option<JoinHandle<()>>,
    /// The headline of the first check that failed in the last round.
    pub first_failure: Option<String>,
    /// What the log of a replayed run says of its build.
    pub recorded: Option<BuildLog>,
}

/// Runs the build to its end. FAILED is an `Ok`; an `Err` leaves the state as it is: the run was stopped or paused, or an
/// I/O error ended it.
pub(crate) fn run(run: &mut Run) -> Result<Phase> {
    let ended = run_phases(run);
    run.finish_preparing();
    let saved = run.context.saves.wait();
    ended.and_then(|phase| saved.map(|()| phase))
}

fn run_phases(run: &mut Run) -> Result<Phase> {
    loop {
        let phase = run.context.state.phase;
        if phase.is_terminal() {
            return Ok(phase);
        }
        let started = Instant::now();
        let cost = run.context.state.usage.cost_usd;
        run.begin(phase)?;
        let outcome = match phase {
            Phase::Init => steps::prepare(run),
            Phase::Generating | Phase::Patching => steps::write(run),
            Phase::Testing => steps::test(run),
            Phase::Success | Phase::Failed => return Ok(phase),
        };
        if matches!(outcome, Ok(_) | Err(Error::Failed(..) | Error::Safety(_))) {
            run.complete(phase, started, cost)?;
        }
        run.advance(outcome)?;
    }
}

impl Run {
    /// Waits until the sandbox of the next check is set up. If that has failed, the check does it itself.
    fn finish_preparing(&mut self) {
        if let Some(preparing) = self.preparing.take() {
            let _ = preparing.join();
        }
    }

    /// Restores what a crash, a pause or a signal interrupted.
    pub(crate) fn resume(&mut self) -> Result<()> {
        self.add_missing_transitions()?;
        self.context.workspace.sweep()?;
        for path in self.context.facts(|facts| facts.hidden.clone()) {
            self.context.workspace.remove(Path::new(&path))?;
        }
        self.undo_hidden_check()?;
        let waits_for_a_patch = self.context.state.phase == Phase::Patching;
        if waits_for_a_patch && !self.generator.has_begun(&self.context) {
            self.advance(Ok(Outcome::Resumed))?;
        }
        Ok(())
    }

    /// Undoes what a hidden check left that a crash interrupted, and says what that was.
    fn undo_hidden_check(&mut self) -> Result<()> {
        let context = &mut self.context;
        let Some(tree) = context.facts(BuildLog::before_hidden) else {
            return Ok(());
        };
        let undone = context
            .attempts
            .undo(&context.workspace, tree, &context.cancel)?;
        let names: Vec<String> = undone
            .iter()
            .map(|path| path.to_string_lossy().escape_debug().to_string())
            .collect();
        if names.is_empty() {
            return Ok(());
        }
        context.log.progress(format!(
            "undone, since a hidden check was interrupted: {}",
            names.join(", ")
        ))
    }

    /// Records the transitions that are in `state.json` and not in the log.
    fn add_missing_transitions(&mut self) -> Result<()> {
        let state = &self.context.state;
        let missing = self
            .context
            .facts(|facts| missing_transitions(facts, state));
        missing
            .into_iter()
            .try_for_each(|event| self.context.log.record(event))
    }

    fn begin(&mut self, phase: Phase) -> Result<()> {
        let (attempt, of) = self.context.state.attempt();
        self.context.log.record(Event::StateStarted {
            agent_id: MAIN_AGENT.into(),
            state_name: phase.name().into(),
            state_type: "build".into(),
            attempt: Some(attempt),
            of: Some(of),
            visit: None,
        })
    }

    fn complete(&mut self, phase: Phase, started: Instant, cost_before: Option<f64>) -> Result<()> {
        self.context.update_usage();
        let total = self.context.state.usage.cost_usd;
        self.context.log.record(Event::StateCompleted {
            agent_id: MAIN_AGENT.into(),
            state_name: phase.name().into(),
            cost_usd: total.zip(cost_before).map(|(now, before)| now - before),
            total_cost_usd: total,
            session_id: None,
            duration_ms: started.elapsed().as_millis() as u64,
        })
    }

    /// Changes the phase. An error that ends the run is recorded as FAILED; one that only stops it is returned.
    fn advance(&mut self, outcome: Result<Outcome>) -> Result<()> {
        let (outcome, mut end) = match outcome {
            Ok(outcome) => (outcome, None),
            Err(error @ (Error::Failed(..) | Error::Safety(_))) => (Outcome::Broke, Some(error)),
            Err(error) => return Err(error),
        };
        let is_already_green = self.context.is_already_green();
        let state = &mut self.context.state;
        let from = state.phase;
        let to = from
            .next(outcome, state.retries_left())
            .map_err(|illegal| match end.take() {
                // The table has no transition from INIT to FAILED: the run never began.
                Some(error) => error,
                None => Error::Bug(illegal.to_string()),
            })?;
        state.phase = to;
        if from == Phase::Patching && outcome == Outcome::Written {
            state.retry_count += 1;
            // A resume may have lowered the limit while this patch was under way.
            state.max_retries = state.max_retries.max(state.retry_count);
        }
        match (to, end.map(|end| (end.reason(), end.to_string()))) {
            (Phase::Failed, Some((reason, text))) => {
                state.reason = Some(reason);
                state.last_error = Some(text);
            }
            (Phase::Failed, None) => {
                state.reason = Some(Reason::RetriesExhausted);
                state.last_error = Some(steps::failure_line(state, self.first_failure.as_deref()));
            }
            (Phase::Success, _) => {
                state.reason = Some(match is_already_green {
                    true => Reason::AlreadyGreen,
                    false => Reason::TestsPassed,
                });
            }
            _ => {}
        }
        let to = self.compare_end(from, to)?;
        let context = &mut self.context;
        match to {
            // The log leads to it if a power cut brings the state before it back.
            Phase::Testing => context.save_soon()?,
            _ => context.save()?,
        }
        context
            .log
            .record(transition(&context.state, from, to, "advance"))?;
        if to.is_terminal() {
            context.prune_snapshots()?;
        }
        Ok(())
    }

    /// The end of a replay is the recorded one, or the run has failed. Returns the phase that the run is in.
    fn compare_end(&mut self, from: Phase, to: Phase) -> Result<Phase> {
        let Run {
            context,
            generator,
            recorded,
            ..
        } = self;
        let is_over = to.is_terminal() && context.state.reason != Some(Reason::ReplayMismatch);
        let replayed = generator.replay().zip(recorded.as_ref());
        let Some((replay, recorded)) = replayed.filter(|_| is_over) else {
            return Ok(to);
        };
        let difference = context.facts(|now| end_difference(replay, recorded, &context.state, now));
        let Some(difference) = difference else {
            return Ok(to);
        };
        let state = &mut context.state;
        state.phase = from
            .next(Outcome::Broke, 0)
            .map_err(|illegal| Error::Bug(illegal.to_string()))?;
        state.reason = Some(Reason::ReplayMismatch);
        state.last_error = Some(difference);
        Ok(state.phase)
    }
}

/// The transitions that a crash kept out of the log: `state.json` is written first.
pub fn missing_transitions(facts: &BuildLog, state: &RunState) -> Vec<Event> {
    let Some(known) = facts.phase else {
        return Vec::new();
    };
    let way = known.path_to(state.phase);
    let from = std::iter::once(known).chain(way.iter().copied());
    from.zip(way.iter().copied())
        .map(|(from, to)| transition(state, from, to, "resumed"))
        .collect()
}

fn transition(state: &RunState, from_state: Phase, to_state: Phase, how: &str) -> Event {
    let mut metadata = json!({"retry_count": state.retry_count, "reason": state.reason});
    if let Some(cause) = cause_of(state, to_state) {
        metadata[CAUSE] = cause.into();
    }
    Event::TransitionOccurred {
        agent_id: MAIN_AGENT.into(),
        from_state: from_state.name().into(),
        to_state: Some(to_state.name().into()),
        transition_type: how.into(),
        metadata,
    }
}
