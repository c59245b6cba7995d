//! Executes one state of an agent: a markdown state asks a model, a script state runs a script.
//!
//! An executor returns where the agent goes; what that does to the agent is up to the loop. Nothing here changes an agent.
//! `step.rs` has the types that executors share.

mod markdown;
mod script;
pub(crate) mod step;

use std::time::Instant;

use crate::error::{Error, Result};
use crate::events::Event;
use crate::workflow::agent_env::AgentRuntime;
use crate::workflow::executors::markdown::MarkdownExecutor;
use crate::workflow::executors::script::ScriptExecutor;
use crate::workflow::executors::step::{
    ExecutionContext, StateExecutor, StepOutcome, StepResult, WorkflowStep,
};
use crate::workflow::scope::StateKind;

fn executor(kind: StateKind) -> &'static dyn StateExecutor {
    match kind {
        StateKind::Markdown => &MarkdownExecutor,
        StateKind::Script => &ScriptExecutor,
    }
}

/// Executes a step. An error is the end of the run, not of the agent.
pub(crate) fn execute(
    context: &ExecutionContext,
    step: &WorkflowStep,
    runtime: &mut AgentRuntime,
) -> Result<StepOutcome> {
    let file = &step.agent.state;
    let known = StateKind::of_file(file).filter(|_| context.scope.has(file));
    let Some(kind) = known else {
        return Ok(StepOutcome::Failed(format!("there is no state {file}")));
    };
    if context.env.folder.existing(&step.agent.cwd).is_none() {
        let directory = context.env.folder.join(&step.agent.cwd);
        return Ok(StepOutcome::Failed(format!(
            "{file}: the agent's directory {} is gone",
            directory.display()
        )));
    }
    let started = Instant::now();
    step.log.record(Event::StateStarted {
        agent_id: step.agent.id.clone(),
        state_name: file.clone(),
        state_type: kind.word().into(),
        attempt: None,
        of: None,
        visit: Some(step.visit),
    })?;
    let outcome = match executor(kind).execute(context, step, runtime) {
        Err(Error::Paused(reason, message)) => Ok(StepOutcome::Paused(reason, message)),
        outcome => outcome,
    }?;
    if let StepOutcome::Moved(result) = &outcome {
        complete(step, result, started)?;
    }
    Ok(outcome)
}

fn complete(step: &WorkflowStep, result: &StepResult, started: Instant) -> Result<()> {
    let total = step.log.read(|state| state.usage().totals(true).cost_usd);
    step.log.record(Event::StateCompleted {
        agent_id: step.agent.id.clone(),
        state_name: step.agent.state.clone(),
        cost_usd: result.cost_usd,
        total_cost_usd: total,
        session_id: result.session.as_ref().map(|point| point.id.clone()),
        duration_ms: started.elapsed().as_millis() as u64,
    })
}
