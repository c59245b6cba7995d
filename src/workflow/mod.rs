//! The workflow loop: agents go from state to state, concurrently, by the tags that models and scripts write.
//!
//! `run` starts the states that can run, at most `jobs` at a time, each on a thread of its own, and handles what has
//! finished. A transition is recorded in the log first; `workflow_log.rs` says what follows from it. `scope.rs` finds the
//! states, `state_file.rs` and `policy.rs` read them, `executors/` execute them, `tags.rs` and `transition.rs` read where
//! they lead. `lint.rs` and `diagram.rs` look at the states without running them: `literal.rs` and `script_text.rs` read
//! the transitions that a state names, `graph.rs` connects them.

pub(crate) mod agent_env;
pub(crate) mod agent_record;
pub(crate) mod diagram;
pub(crate) mod executors;
pub(crate) mod folder;
pub(crate) mod graph;
pub(crate) mod lint;
pub(crate) mod literal;
mod message_queue;
pub(crate) mod models;
mod policy;
mod prints;
pub(crate) mod scope;
mod script_text;
pub(crate) mod state_file;
mod system_prompt;
pub(crate) mod tags;
pub(crate) mod template;
pub(crate) mod transition;
pub(crate) mod workflow_log;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use crate::cancel::WakeReason;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::state::reason::Reason;
use crate::state::store::Root;
use crate::state::workflow::{AgentStatus, WorkflowState};
use crate::workflow::agent_env::AgentRuntime;
use crate::workflow::agent_record::AgentRecord;
use crate::workflow::executors::step::{ExecutionContext, StepOutcome, StepResult, WorkflowStep};
use crate::workflow::message_queue::MessageQueue;
use crate::workflow::transition::Transition;

/// The run of a workflow, ready to go.
pub(crate) struct WorkflowRun {
    pub(crate) context: Arc<ExecutionContext>,
    pub(crate) root: Root,
    pub(crate) state: WorkflowState,
    /// How many states run at the same time.
    pub(crate) jobs: usize,
    /// Asks a person, where one is there.
    pub(crate) person: Option<Arc<dyn Person>>,
}

/// Asks people.
pub(crate) trait Person: Send + Sync {
    /// Asks, and waits for the answer; `None` where there will be none.
    fn ask(&self, question: &OpenQuestion) -> Option<String>;
}

/// The question of an agent.
#[derive(Debug, Clone)]
pub(crate) struct OpenQuestion {
    pub(crate) agent_id: String,
    pub(crate) text: String,
    /// It was asked in an earlier command, so that the console has not shown it.
    pub(crate) is_old: bool,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum WorkflowEnd {
    /// All agents have ended.
    Completed,
    /// At least one agent failed.
    Failed(String),
    /// At least one agent waits for something outside, and none failed.
    Paused(Reason, String),
}

/// What the threads of a run report.
enum WorkflowMessage {
    Finished(Box<FinishedStep>),
    Answered {
        agent_id: String,
        answer: Option<String>,
    },
}

struct FinishedStep {
    agent_id: String,
    visit: u64,
    runtime: AgentRuntime,
    outcome: Result<StepOutcome>,
}

/// Runs agents until none can go on.
pub(crate) fn run(run: &mut WorkflowRun) -> Result<WorkflowEnd> {
    let queue = MessageQueue::new()
        .map_err(|error| Error::Bug(format!("cannot make a message queue: {error}")))?;
    let mut scheduler = Scheduler {
        queue: Arc::new(queue),
        ready: VecDeque::new(),
        busy: HashSet::new(),
        asked: HashSet::new(),
        unanswered: HashSet::new(),
        old_questions: HashSet::new(),
        runtimes: HashMap::new(),
        stop: None,
        run,
    };
    scheduler.announce()?;
    scheduler.take_recorded_answers()?;
    scheduler.old_questions = scheduler.open_questions().into_keys().collect();
    scheduler.run.save()?;
    scheduler.go()?;
    Ok(scheduler.run.end())
}

/// Which agents run, which can, and what of them is kept meanwhile.
struct Scheduler<'a> {
    run: &'a mut WorkflowRun,
    queue: Arc<MessageQueue<WorkflowMessage>>,
    ready: VecDeque<String>,
    /// Agents whose state is being executed.
    busy: HashSet<String>,
    /// Agents whose question a person is being asked.
    asked: HashSet<String>,
    /// Agents whose question got no answer.
    unanswered: HashSet<String>,
    /// Agents that asked before this command began.
    old_questions: HashSet<String>,
    runtimes: HashMap<String, AgentRuntime>,
    /// Why nothing new is started.
    stop: Option<Error>,
}

impl Scheduler<'_> {
    fn go(&mut self) -> Result<()> {
        loop {
            self.schedule();
            self.ask_person();
            while self.stop.is_none()
                && self.busy.len() < self.run.jobs
                && let Some(id) = self.ready.pop_front()
            {
                let started = self.start(&id);
                self.note_stop(started);
            }
            let has_question = self.stop.is_none() && !self.asked.is_empty();
            if self.busy.is_empty() && !has_question {
                return self.stop.take().map_or(Ok(()), Err);
            }
            self.wait();
            for message in self.queue.take() {
                let handled = self.handle(message);
                self.note_stop(handled);
            }
            if self.stop.is_none() {
                let saved = self.run.save();
                self.note_stop(saved);
            }
        }
    }

    /// Waits for a message; a signal ends the run once everything under way has ended.
    fn wait(&mut self) {
        let cancel = &self.run.context.cancel;
        let woken = match self.stop {
            None => cancel.wait(Some(self.queue.as_fd()), None),
            Some(_) => self.queue.wait().map(|()| WakeReason::Ready),
        };
        let stopped = match woken {
            Ok(WakeReason::Stopped(signal)) => Err(Error::Stopped(signal)),
            Ok(WakeReason::Ready | WakeReason::TimedOut) => Ok(()),
            Err(error) => Err(Error::Bug(format!("cannot wait for agents: {error}"))),
        };
        self.note_stop(stopped);
    }

    /// The first error ends the run, and cancels what is under way.
    fn note_stop(&mut self, result: Result<()>) {
        let Err(error) = result else { return };
        let context = &self.run.context;
        if context.cancel.requested().is_none() {
            context.cancel.request();
        }
        context.log.wake();
        self.stop.get_or_insert(error);
    }

    /// Puts every agent that can run and does not into the queue.
    fn schedule(&mut self) {
        let (busy, ready) = (&self.busy, &self.ready);
        let waiting: HashSet<&String> = ready.iter().collect();
        let new: Vec<String> = self.run.context.facts(|log| {
            let agents = log.agents().iter();
            agents
                .filter(|agent| agent.status == AgentStatus::Running)
                .map(|agent| agent.id.clone())
                .filter(|id| !busy.contains(id) && !waiting.contains(id))
                .collect()
        });
        self.ready.extend(new);
    }

    /// Executes the state of an agent on a thread of its own.
    fn start(&mut self, id: &str) -> Result<()> {
        let context = self.run.context.clone();
        let Some(agent) = context.facts(|log| log.agent(id).cloned()) else {
            return Ok(());
        };
        let step = WorkflowStep {
            visit: visit_of(&context, &agent),
            log: context.log.for_agent(id),
            agent,
        };
        let mut runtime = self.runtimes.remove(id).unwrap_or_default();
        let queue = self.queue.clone();
        let execute = move || {
            let executed = catch_unwind(AssertUnwindSafe(|| {
                executors::execute(&context, &step, &mut runtime)
            }));
            let panicked = |_| Err(Error::Bug("an executor panicked".into()));
            queue.send(WorkflowMessage::Finished(Box::new(FinishedStep {
                agent_id: step.agent.id,
                visit: step.visit,
                runtime,
                outcome: executed.unwrap_or_else(panicked),
            })));
        };
        thread::Builder::new()
            .name(format!("agent {id}"))
            .spawn(execute)
            .map_err(|error| Error::Bug(format!("cannot start a thread: {error}")))?;
        self.busy.insert(id.to_owned());
        Ok(())
    }

    fn handle(&mut self, message: WorkflowMessage) -> Result<()> {
        match message {
            WorkflowMessage::Finished(step) => self.finished(*step),
            WorkflowMessage::Answered { agent_id, answer } => {
                self.asked.remove(&agent_id);
                match answer {
                    Some(text) => self.run.answer(&agent_id, text),
                    None => {
                        self.unanswered.insert(agent_id);
                        Ok(())
                    }
                }
            }
        }
    }

    fn finished(&mut self, step: FinishedStep) -> Result<()> {
        let FinishedStep {
            agent_id,
            visit,
            runtime,
            outcome,
        } = step;
        self.busy.remove(&agent_id);
        let log = self.run.context.log.for_agent(&agent_id);
        match outcome? {
            StepOutcome::Moved(result) => {
                self.advance(&agent_id, visit, result)?;
                self.keep(&agent_id, runtime);
                self.take_recorded_answers()
            }
            StepOutcome::Failed(message) => {
                log.record_synced(Event::AgentFailed { agent_id, message })
            }
            StepOutcome::Paused(reason, message) => log.record_synced(Event::AgentPaused {
                agent_id,
                reason,
                message,
            }),
        }
    }

    /// Records a transition. What it does follows from the line.
    fn advance(&mut self, id: &str, visit: u64, result: StepResult) -> Result<()> {
        let StepResult {
            transition,
            directories,
            is_implicit,
            session,
            ..
        } = result;
        let context = &self.run.context;
        let prepared = context.facts(|log| {
            let agent = log.agent(id)?;
            let mut facts = log.facts_of(agent, &transition, directories.into());
            facts.visit = visit;
            facts.session = session;
            facts.implicit = is_implicit;
            Some((agent.state.clone(), target(agent, &transition), facts))
        });
        let Some((from_state, to_state, facts)) = prepared else {
            return Err(Error::Bug(format!("the agent {id} is not known")));
        };
        let metadata = serde_json::to_value(&facts)
            .map_err(|error| Error::Bug(format!("cannot serialize a transition: {error}")))?;
        context
            .log
            .for_agent(id)
            .record_synced(Event::TransitionOccurred {
                agent_id: id.to_owned(),
                from_state,
                to_state,
                transition_type: transition.tag().word().into(),
                metadata,
            })?;
        self.announce()
    }

    /// Records what transitions have done, where a crash may have kept it out of the log.
    fn announce(&self) -> Result<()> {
        let context = &self.run.context;
        let unannounced = context.facts(|log| log.unannounced());
        let mut unannounced = unannounced.into_iter();
        unannounced.try_for_each(|event| context.log.record(event))
    }

    /// Keeps the environments of an agent for its next state; they end with the agent, and while it asks.
    fn keep(&mut self, id: &str, runtime: AgentRuntime) {
        let status = self
            .run
            .context
            .facts(|log| log.agent(id).map(|agent| agent.status));
        match status {
            None | Some(AgentStatus::Asking) => drop(runtime),
            Some(_) => drop(self.runtimes.insert(id.to_owned(), runtime)),
        }
    }

    /// In a replay questions are answered from the log.
    fn take_recorded_answers(&mut self) -> Result<()> {
        let Some(recorded) = &self.run.context.recorded else {
            return Ok(());
        };
        let answers: Vec<(String, String)> = self.run.context.facts(|log| {
            let asking = log.agents().iter();
            let asking = asking.filter(|agent| agent.status == AgentStatus::Asking);
            asking
                .filter_map(|agent| {
                    let number = log.answer_count(&agent.id);
                    let answer = recorded.answer(&agent.id, number)?;
                    Some((agent.id.clone(), answer.to_owned()))
                })
                .collect()
        });
        let mut answers = answers.into_iter();
        answers.try_for_each(|(id, text)| self.run.answer(&id, text))
    }

    /// The questions that are open, by agent.
    fn open_questions(&self) -> BTreeMap<String, String> {
        self.run.context.facts(|log| {
            let agents = log.agents().iter();
            let asking = agents.filter(|agent| agent.status == AgentStatus::Asking);
            let question = |agent: &AgentRecord| agent.error.clone().unwrap_or_default();
            asking
                .map(|agent| (agent.id.clone(), question(agent)))
                .collect()
        })
    }

    /// Asks the person about the questions that are open, one thread for each that is new.
    fn ask_person(&mut self) {
        let Some(person) = self.run.person.clone().filter(|_| self.stop.is_none()) else {
            return;
        };
        for (agent_id, text) in self.open_questions() {
            if self.unanswered.contains(&agent_id) || !self.asked.insert(agent_id.clone()) {
                continue;
            }
            let question = OpenQuestion {
                is_old: self.old_questions.remove(&agent_id),
                agent_id,
                text,
            };
            let (person, queue) = (person.clone(), self.queue.clone());
            let ask = move || {
                let answer = person.ask(&question);
                let agent_id = question.agent_id;
                queue.send(WorkflowMessage::Answered { agent_id, answer });
            };
            // Without a thread the question stays open.
            let _ = thread::Builder::new().name("question".into()).spawn(ask);
        }
    }
}

/// The number of the visit: in a replay the one that the recorded transition came from.
fn visit_of(context: &ExecutionContext, agent: &AgentRecord) -> u64 {
    let recorded = context.recorded.as_ref();
    let recorded = recorded.and_then(|log| log.visit_of_step(&agent.id, agent.steps));
    recorded.unwrap_or(agent.visit)
}

/// The state that an agent goes to; `None` where it ends.
fn target(agent: &AgentRecord, transition: &Transition) -> Option<String> {
    let returned = || agent.stack.last().map(|frame| frame.return_state.clone());
    transition.target().map(str::to_owned).or_else(returned)
}

impl WorkflowRun {
    /// Saves what the log says.
    pub(crate) fn save(&mut self) -> Result<()> {
        let (context, state) = (&self.context, &mut self.state);
        // Nothing is recorded meanwhile, so that the state is exactly what the log says up to the line.
        context.log.read_durable(|line, log| {
            state.seq = line;
            state.usage = log.usage().totals(true);
            context.facts(|log| log.copy_to(state));
        })?;
        self.root.save_workflow(state)
    }

    /// Answers the question of an agent.
    pub(crate) fn answer(&self, agent_id: &str, text: String) -> Result<()> {
        let log = self.context.log.for_agent(agent_id);
        log.record_synced(Event::AgentAnswered {
            agent_id: agent_id.to_owned(),
            text,
        })
    }

    /// The state of the run when no agent can go on.
    pub(crate) fn end(&self) -> WorkflowEnd {
        self.context.facts(|log| {
            let agents = log.agents();
            let failed = agents
                .iter()
                .filter(|agent| agent.status == AgentStatus::Failed);
            let failures: Vec<String> = failed.map(stopped_text).collect();
            if !failures.is_empty() {
                return WorkflowEnd::Failed(failures.join("\n"));
            }
            let paused = agents.iter().filter_map(|agent| match agent.status {
                AgentStatus::Asking => Some((Reason::Asking, stopped_text(agent))),
                AgentStatus::Paused => Some((
                    agent.reason.unwrap_or(Reason::ProviderUnavailable),
                    stopped_text(agent),
                )),
                AgentStatus::Running | AgentStatus::Waiting | AgentStatus::Failed => None,
            });
            let paused: Vec<(Reason, String)> = paused.collect();
            let Some((reason, _)) = paused.first() else {
                return WorkflowEnd::Completed;
            };
            let reason = *reason;
            let texts: Vec<String> = paused.into_iter().map(|(_, text)| text).collect();
            WorkflowEnd::Paused(reason, texts.join("\n"))
        })
    }
}

fn stopped_text(agent: &AgentRecord) -> String {
    let what = match agent.status {
        AgentStatus::Asking => "asks",
        AgentStatus::Paused => "paused",
        AgentStatus::Failed | AgentStatus::Running | AgentStatus::Waiting => "failed",
    };
    let why = agent.error.as_deref().unwrap_or_default();
    let names_state = why.starts_with(&agent.state) || agent.status == AgentStatus::Asking;
    match names_state {
        true => format!("{} {what}: {why}", agent.id),
        false => format!("{} {what} at {}: {why}", agent.id, agent.state),
    }
}
