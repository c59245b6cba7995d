//! What a state is executed with, and how it ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cancel::CancelToken;
use crate::conversation::event_log::EventLog;
use crate::error::Result;
use crate::state::reason::Reason;
use crate::workflow::agent_env::{AgentRuntime, WorkflowEnv};
use crate::workflow::agent_record::{AgentRecord, SessionPoint};
use crate::workflow::models::ModelPool;
use crate::workflow::scope::WorkflowScope;
use crate::workflow::template::TemplateValues;
use crate::workflow::transition::{Mistake, Transition};
use crate::workflow::workflow_log::WorkflowLog;

/// What all states of a run are executed with.
pub(crate) struct ExecutionContext {
    pub(crate) run_id: String,
    pub(crate) log: EventLog,
    /// What the log says of this workflow.
    pub(crate) workflow_log: Arc<Mutex<WorkflowLog>>,
    pub(crate) scope: WorkflowScope,
    pub(crate) env: WorkflowEnv,
    pub(crate) models: ModelPool,
    /// Of a state that names none; zero: none.
    pub(crate) idle_timeout: Duration,
    /// The recorded run of a replay.
    pub(crate) recorded: Option<WorkflowLog>,
    pub(crate) cancel: CancelToken,
}

impl ExecutionContext {
    /// Reads what the log says of this workflow. `read` must not use the log.
    pub(crate) fn facts<R>(&self, read: impl FnOnce(&WorkflowLog) -> R) -> R {
        let log = self.workflow_log.lock();
        read(&log.unwrap_or_else(PoisonError::into_inner))
    }
}

/// One visit of a state.
pub(crate) struct WorkflowStep {
    /// The agent as it was when the step began.
    pub(crate) agent: AgentRecord,
    pub(crate) visit: u64,
    pub(crate) log: EventLog,
}

impl WorkflowStep {
    pub(crate) fn values<'a>(&'a self, context: &'a ExecutionContext) -> TemplateValues<'a> {
        TemplateValues {
            input: self.agent.input.as_deref(),
            agent_id: &self.agent.id,
            run_id: &context.run_id,
            vars: &self.agent.vars,
        }
    }
}

/// How a step ended.
#[derive(Debug)]
pub(crate) enum StepOutcome {
    Moved(StepResult),
    /// The agent cannot go on from this state.
    Failed(String),
    /// The agent waits for something outside.
    Paused(Reason, String),
}

/// Where the agent goes.
#[derive(Debug)]
pub(crate) struct StepResult {
    pub(crate) transition: Transition,
    /// The directories that the transition asks for, relative to the folder.
    pub(crate) directories: Vec<String>,
    /// The policy's only entry was taken.
    pub(crate) is_implicit: bool,
    /// The session after a markdown state.
    pub(crate) session: Option<SessionPoint>,
    pub(crate) cost_usd: Option<f64>,
}

/// Executes one kind of state.
pub(super) trait StateExecutor {
    fn execute(
        &self,
        context: &ExecutionContext,
        step: &WorkflowStep,
        runtime: &mut AgentRuntime,
    ) -> Result<StepOutcome>;
}

/// The directories that a transition asks for, relative to the folder.
pub(super) fn directories(
    context: &ExecutionContext,
    step: &WorkflowStep,
    transition: &Transition,
) -> std::result::Result<Vec<String>, Mistake> {
    let asked = transition.directories().into_iter();
    asked
        .map(|cd| context.env.folder.enter(&step.agent.cwd, cd))
        .collect()
}
