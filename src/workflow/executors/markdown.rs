//! Markdown states: the prompt runs in the agent's session, with the environments as the model's tools.
//!
//! A message without a valid transition gets a reminder where the state has a policy, in the same session, until the
//! turns of the visit are used up.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::conversation::agent::Agent;
use crate::conversation::budget::Budget;
use crate::conversation::history::RecordedAnswer;
use crate::conversation::model_call::{RecordedModel, SessionRef, StreamedText, TextListener};
use crate::conversation::session::{exchanges_until, last_use_of_environments};
use crate::conversation::state::{ConversationState, TurnRules, UnusableAnswer};
use crate::conversation::toolset::Toolset;
use crate::conversation::turns::{Conversation, TimeLimit, TurnEnd};
use crate::error::{Error, Result};
use crate::events::{Bound, ConversationScope, Objection};
use crate::llm::{ContentBlock, Message, ModelRequest, Role, SessionStart};
use crate::source::finding::FindingLevel;
use crate::state::reason::Reason;
use crate::workflow::agent_env::AgentRuntime;
use crate::workflow::agent_record::SessionPoint;
use crate::workflow::executors::step::{
    ExecutionContext, StateExecutor, StepOutcome, StepResult, WorkflowStep, directories,
};
use crate::workflow::models::context_tokens;
use crate::workflow::prints::PrintRecorder;
use crate::workflow::state_file::{MarkdownState, read_markdown};
use crate::workflow::system_prompt::system_prompt;
use crate::workflow::transition::{Mistake, Transition, read_transition};

/// Model turns per visit of a state, reminders included.
const MAX_TURNS: u32 = 3;
/// Requests per turn.
const MAX_REQUESTS: u32 = 50;
const MAX_TOKENS: u32 = 16_000;
/// A step has no limit in time but the model's silence.
const NO_LIMIT: Duration = Duration::from_secs(100 * 365 * 24 * 3600);
const RESTARTED: &str = "[the environments were restarted: variables, working directories, views and background jobs of \
                         earlier commands are gone; files are as they are]";

/// Asks models.
pub(super) struct MarkdownExecutor;

impl StateExecutor for MarkdownExecutor {
    fn execute(
        &self,
        context: &ExecutionContext,
        step: &WorkflowStep,
        runtime: &mut AgentRuntime,
    ) -> Result<StepOutcome> {
        let state = match read_state(context, &step.agent.state) {
            Ok(state) => state,
            Err(problem) => return Ok(StepOutcome::Failed(problem.to_string())),
        };
        let idle_timeout = match state.timeout.unwrap_or(context.idle_timeout) {
            Duration::ZERO => Duration::MAX,
            timeout => timeout,
        };
        let settings = &context.models.settings;
        let name = settings.model_of(state.model.as_deref());
        let mut model = context.models.take(&name, idle_timeout);
        let visit = StateVisit {
            context,
            step,
            state: &state,
            model: name,
        };
        let outcome = visit.converse(&mut model, runtime);
        model.on_text = None;
        context.models.give_back(model, idle_timeout);
        outcome
    }
}

/// Why a state's file cannot be used.
#[derive(Debug, thiserror::Error)]
enum UnusableState {
    #[error("cannot read {file}: {source}")]
    Unreadable { file: String, source: io::Error },
    /// The mistakes, each with its place.
    #[error("{0}")]
    Invalid(String),
}

/// The state as its file is now.
fn read_state(
    context: &ExecutionContext,
    file: &str,
) -> std::result::Result<MarkdownState, UnusableState> {
    let bytes = context
        .scope
        .read(file)
        .map_err(|source| UnusableState::Unreadable {
            file: file.to_owned(),
            source,
        })?;
    let (state, findings) = read_markdown(file, &bytes);
    let errors = findings
        .iter()
        .filter(|finding| finding.level == FindingLevel::Error)
        .map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.message));
    let errors = errors.collect::<Vec<_>>().join("; ");
    state.ok_or(UnusableState::Invalid(errors))
}

/// A visit of a markdown state.
struct StateVisit<'a> {
    context: &'a ExecutionContext,
    step: &'a WorkflowStep,
    state: &'a MarkdownState,
    /// The model that is asked.
    model: String,
}

/// What the model's message asks for.
struct ChosenTransition {
    transition: Transition,
    directories: Vec<String>,
    is_implicit: bool,
}

impl StateVisit<'_> {
    fn converse(
        &self,
        model: &mut RecordedModel,
        runtime: &mut AgentRuntime,
    ) -> Result<StepOutcome> {
        let agent = self.agent();
        let toolset = runtime.toolset(&self.context.env, &agent, &self.step.agent.cwd)?;
        let Some(conversation_state) = self.opening(toolset) else {
            let text = "the log lacks a part of the agent's session";
            return Err(Error::StateCorrupt(text.into()));
        };
        let mut answers = AnswerWatch {
            prints: Arc::new(Mutex::new(PrintRecorder::new(self.step.log.clone()))),
            budget: model.budget,
            cost_usd: Some(0.0),
        };
        model.on_text = Some(answers.text_listener());
        let session = self.session(&agent);
        let limits = TimeLimit::starting_now(NO_LIMIT);
        let mut conversation =
            Conversation::open(&agent, model, toolset, limits, conversation_state)
                .in_session(session.clone())
                .with_restart_notice(self.restart_notice(&agent));
        if let Err(unusable) = conversation.catch_up((Objection::Reminder, "")) {
            return Ok(self.unusable(&unusable));
        }
        loop {
            let end = conversation.run(&mut |answer| answers.answered(answer))?;
            if let Some(outcome) = self.stopped(end) {
                return Ok(outcome);
            }
            match self.chosen(conversation.state()) {
                Ok(chosen) => {
                    let line = conversation.state().line;
                    return Ok(moved(chosen, session.id, line, answers.cost_usd));
                }
                Err(mistake) => match self.reminder(conversation.state(), &mistake) {
                    Some(text) => conversation.object(Objection::Reminder, text),
                    None => return Ok(self.failed(&mistake)),
                },
            }
        }
    }

    /// The outcome of a turn that ended without a final message.
    fn stopped(&self, end: TurnEnd) -> Option<StepOutcome> {
        match end {
            TurnEnd::Ended => None,
            TurnEnd::Bound(Bound {
                reason: Reason::Budget,
                message,
            }) => Some(StepOutcome::Paused(Reason::Budget, message)),
            TurnEnd::Bound(bound) => Some(self.failed(&bound.message)),
            TurnEnd::Unusable(unusable) => Some(self.unusable(&unusable)),
        }
    }

    /// The limit of tokens is fixed here, so its end is described without the field of a spec that raises it.
    fn unusable(&self, unusable: &UnusableAnswer) -> StepOutcome {
        match unusable {
            UnusableAnswer::CutOff { .. } => self.failed(&Mistake::CutOff),
            UnusableAnswer::ModelError(_) | UnusableAnswer::Refused { .. } => self.failed(unusable),
        }
    }

    /// The follow-up after a mistake, while the visit has turns left and the state a policy.
    fn reminder(&self, conversation: &ConversationState, mistake: &Mistake) -> Option<String> {
        let turns = 1 + conversation.objections(Objection::Reminder);
        let policy = self.state.policy.as_ref().filter(|_| turns < MAX_TURNS)?;
        Some(policy.reminder(mistake, &self.step.values(self.context)))
    }

    fn failed(&self, problem: &dyn std::fmt::Display) -> StepOutcome {
        StepOutcome::Failed(format!("{}: {problem}", self.step.agent.state))
    }

    fn agent(&self) -> Agent {
        Agent {
            log: self.step.log.clone(),
            run_id: self.context.run_id.clone(),
            scope: ConversationScope::Visit {
                visit: self.step.visit,
            },
            state_name: self.step.agent.state.clone(),
            cancel: self.context.cancel.clone(),
            directory: None,
        }
    }

    /// The session at the point where this visit begins: continued, branched, or fresh.
    fn opening(&self, toolset: &Toolset) -> Option<ConversationState> {
        let values = self.step.values(self.context);
        let prompt = Message {
            role: Role::User,
            content: vec![ContentBlock::text(values.render(&self.state.prompt))],
        };
        let request = ModelRequest {
            model: self.model.clone(),
            max_tokens: MAX_TOKENS,
            temperature: None,
            effort: self.state.effort.clone(),
            system: system_prompt(&self.context.env, &self.step.agent.cwd),
            tools: toolset.offers(),
            messages: Vec::new(),
            varying: values.inserted(),
        };
        let tokens = context_tokens(&self.model);
        let mut state = ConversationState::new(request, tokens, MAX_REQUESTS, prompt.clone());
        state.rules = TurnRules::State;
        if let Some(point) = self.point() {
            let exchanges = self.step.log.read(|log| exchanges_until(log, point.line))?;
            state.replay_exchanges(exchanges, &context_tokens).ok()?;
            state.enter_scope(prompt);
        }
        Some(state)
    }

    /// Where the session is entered.
    fn point(&self) -> Option<&SessionPoint> {
        let agent = &self.step.agent;
        agent.session.as_ref().or(agent.branch.as_ref())
    }

    /// The session as a provider that keeps sessions knows it.
    fn session(&self, agent: &Agent) -> SessionRef {
        let record = &self.step.agent;
        match (&record.session, &record.branch) {
            (Some(session), _) => SessionRef {
                id: session.id.clone(),
                start: SessionStart::Continue,
            },
            (None, Some(branch)) => {
                let from = branch.id.clone();
                SessionRef::of(agent, 0, SessionStart::Fork { from })
            }
            (None, None) => SessionRef::of(agent, 0, SessionStart::Fresh),
        }
    }

    /// The notice that the environments were restarted since this session used them.
    fn restart_notice(&self, agent: &Agent) -> Option<String> {
        let since = self.step.agent.environments_since;
        let last_use = self.step.log.read(|log| {
            let history = log.conversations(agent.log.agent_id());
            let of_visit = history.last_request(agent.scope);
            let line = of_visit.or(self.point().map(|point| point.line))?;
            last_use_of_environments(log, line)
        });
        last_use
            .is_some_and(|line| line < since)
            .then(|| RESTARTED.to_owned())
    }

    /// The transition of the model's last message.
    fn chosen(
        &self,
        conversation: &ConversationState,
    ) -> std::result::Result<ChosenTransition, Mistake> {
        if conversation.was_cut_off {
            return Err(Mistake::CutOff);
        }
        let (scope, policy) = (&self.context.scope, self.state.policy.as_ref());
        let implicit = || policy?.implicit(scope, &self.step.values(self.context));
        let is_forced = policy.is_some_and(|policy| policy.force_implicit);
        let read = match is_forced {
            true => Err(Mistake::NoTag),
            false => read_transition(&conversation.words, scope),
        };
        let (transition, is_implicit) = match read {
            Ok(transition) => (transition, false),
            Err(mistake @ (Mistake::NoTag | Mistake::ForeignTag(_))) => {
                (implicit().ok_or(mistake)?, true)
            }
            Err(mistake) => return Err(mistake),
        };
        if let Some(policy) = policy.filter(|_| !is_implicit) {
            policy.check(&transition, scope)?;
        }
        Ok(ChosenTransition {
            directories: directories(self.context, self.step, &transition)?,
            transition,
            is_implicit,
        })
    }
}

fn moved(
    chosen: ChosenTransition,
    session_id: String,
    line: Option<u64>,
    cost_usd: Option<f64>,
) -> StepOutcome {
    StepOutcome::Moved(StepResult {
        transition: chosen.transition,
        directories: chosen.directories,
        is_implicit: chosen.is_implicit,
        session: line.map(|line| SessionPoint {
            id: session_id,
            line,
        }),
        cost_usd,
    })
}

/// Watches the answers of a visit: what they print, and what they cost.
struct AnswerWatch {
    prints: Arc<Mutex<PrintRecorder>>,
    budget: Budget,
    cost_usd: Option<f64>,
}

impl AnswerWatch {
    /// Records the prints of an answer while it streams.
    fn text_listener(&self) -> TextListener {
        let prints = self.prints.clone();
        Box::new(move |part| {
            let mut prints = prints.lock().unwrap_or_else(PoisonError::into_inner);
            match part {
                StreamedText::Restarted => {
                    prints.restart();
                    Ok(())
                }
                StreamedText::Piece(text) => prints.piece(text),
            }
        })
    }

    fn answered(&mut self, answer: Option<&RecordedAnswer>) -> Result<()> {
        let Some(Ok(answer)) = answer else {
            return Ok(());
        };
        let sum = self.cost_usd.zip(self.budget.cost(answer));
        self.cost_usd = sum.map(|(sum, cost)| sum + cost);
        let mut prints = self.prints.lock().unwrap_or_else(PoisonError::into_inner);
        prints.finish(&answer.text())
    }
}
