//! Asks a model exactly once: what the log has is not asked again, what comes back is in the log before it is used.
//!
//! A request is written down with its place and its worst case, then sent; the answer is written and synced before
//! anything is done with it. A replay takes the place of the provider and of nothing else.

use std::cell::RefCell;
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::build::budget::Budget;
use crate::build::context::Context;
use crate::build::log_state::{MODEL_ERROR, RecordedAnswer};
use crate::build::replay::Replay;
use crate::build::tool_bridge::{InlineTools, ToolBridge};
use crate::error::{Error, Result};
use crate::events::{Charge, Event, MAIN_AGENT, RequestPlace};
use crate::llm::mcp::Toolbox;
use crate::llm::retry::{self, GaveUp, RetryEvent, RetryPolicy};
use crate::llm::{
    Answer, Message, Model, ModelRequest, PermanentError, ProviderSession, SessionStart,
    TokenUsage, session_id,
};
use crate::secrets::Secrets;
use crate::state::reason::Reason;

/// A model, its price, and the log that remembers what it said.
pub struct RecordedModel {
    pub client: Model,
    pub provider: &'static str,
    pub budget: Budget,
    pub policy: RetryPolicy,
    pub replay: Option<Replay>,
    /// What a provider says may hold keys, also ones of other providers.
    pub secrets: Secrets,
}

/// What a request in a conversation adds to the one before it.
#[derive(Debug, Clone, Copy)]
pub struct Continuation<'a> {
    /// The line of the one before.
    pub line: u64,
    pub messages: &'a [Message],
}

/// A request on its way.
struct PendingRequest<'a> {
    place: RequestPlace,
    model: &'a str,
    continues: Option<u64>,
    body: String,
    hash: String,
    worst: Charge,
    value: Value,
    /// The session of a provider that keeps one.
    session: Option<ProviderSession>,
}

impl RecordedModel {
    /// Returns the answer for a place in the run, from the log or from the provider.
    pub fn ask(
        &mut self,
        context: &mut Context,
        place: RequestPlace,
        request: &ModelRequest,
    ) -> Result<Answer> {
        let recorded = self.exchange(context, place, request, None, &mut None, None)?;
        usable(context, recorded)
    }

    /// Like `ask`, in a conversation: only what is new is written down, in the returned line, and a permanent error is for
    /// the caller to judge.
    pub fn exchange(
        &mut self,
        context: &mut Context,
        place: RequestPlace,
        request: &ModelRequest,
        continued: Option<Continuation<'_>>,
        line: &mut Option<u64>,
        equipment: Option<InlineTools<'_>>,
    ) -> Result<RecordedAnswer> {
        if let Some(recorded) = context.log_state.answer(place).cloned() {
            return Ok(recorded);
        }
        let mut equipment = equipment;
        let (question, started, recorded) = loop {
            let mut question = self.pending_request(place, request, continued)?;
            question.session = self.reserve(context, &question, equipment.as_ref())?;
            if continued.is_some() {
                let whole = || serde_json::to_value(request).unwrap_or_default();
                context.log.publish_lazily(|| Event::PromptSent {
                    agent_id: MAIN_AGENT.into(),
                    place,
                    request: whole(),
                });
            }
            self.record_request(context, &question)?;
            *line = Some(context.log.lines());
            let started = Instant::now();
            let recorded = match &self.replay {
                Some(replay) => Some(replay.answer(
                    place,
                    &self.redacted(question.value.clone()),
                    &request.varying,
                )?),
                None => self.send(context, &question, equipment.take())?,
            };
            // What was refused for a field's sake is another request without it, with its own line, hash and worst case.
            if let Some(recorded) = recorded {
                break (question, started, recorded);
            }
        };
        let recorded = recorded.map(|answer| self.as_logged(answer));
        self.record_answer(context, &question, &recorded, started)?;
        Ok(recorded)
    }

    /// Returns a request as it is sent now.
    fn pending_request<'a>(
        &self,
        place: RequestPlace,
        request: &'a ModelRequest,
        continued: Option<Continuation<'_>>,
    ) -> Result<PendingRequest<'a>> {
        let body = self.client.encode(request);
        Ok(PendingRequest {
            place,
            model: &request.model,
            hash: format!("sha256:{}", hex(&Sha256::digest(body.as_bytes()))),
            worst: self.budget.worst(body.len(), request.max_tokens),
            continues: continued.map(|continued| continued.line),
            session: None,
            value: match continued {
                Some(continued) => json!({"messages": continued.messages}),
                None => {
                    serde_json::to_value(request).map_err(|error| Error::Bug(error.to_string()))?
                }
            },
            body,
        })
    }

    /// Returns an answer as the log will have it: the run, a resume and a replay use the same text.
    fn as_logged(&self, answer: Answer) -> Answer {
        let value = serde_json::to_value(&answer).unwrap_or_default();
        if !self.secrets.is_in(&value.to_string()) {
            return answer;
        }
        serde_json::from_value(self.redacted(value)).unwrap_or(answer)
    }

    fn redacted(&self, mut value: Value) -> Value {
        self.secrets.redact_value(&mut value);
        value
    }

    /// Makes sure that the budget has room; returns the session of a provider that keeps one.
    fn reserve(
        &self,
        context: &Context,
        question: &PendingRequest<'_>,
        equipment: Option<&InlineTools<'_>>,
    ) -> Result<Option<ProviderSession>> {
        if !self.client.is_session() {
            self.budget.reserve(question.worst, &context.state.usage)?;
            return Ok(None);
        }
        let usd_left = self.budget.left(&context.state.usage)?;
        let is_again = context.log_state.request(question.place).is_some();
        let start = |has_begun: bool| match has_begun {
            true => SessionStart::Continue,
            false => SessionStart::Fresh,
        };
        Ok(Some(match equipment {
            // A conversation is one session; an answer with files is one by itself.
            Some(equipment) => ProviderSession {
                id: session_of(context, question.place, 0),
                start: start(is_again || question.place.turn > 0),
                resume_prompt: equipment.resume_prompt.clone(),
                usd_left,
                turns_left: Some(equipment.turns_left),
            },
            None => ProviderSession {
                id: session_of(context, question.place, question.place.turn),
                start: start(is_again),
                usd_left,
                ..ProviderSession::default()
            },
        }))
    }

    /// Whether the provider calls tools itself while it answers, in a session that it keeps.
    pub fn runs_tools_itself(&self) -> bool {
        self.client.is_session()
    }

    /// Sets the time at which asking ends, whatever is under way.
    pub fn set_deadline(&mut self, until: Option<Instant>) {
        self.policy.until = until;
        self.client.set_deadline(until);
    }

    fn record_request(
        &mut self,
        context: &mut Context,
        question: &PendingRequest<'_>,
    ) -> Result<()> {
        if let Some(session) = &question.session {
            context.log.record(Event::ClaudeInvocationStarted {
                agent_id: MAIN_AGENT.into(),
                state_name: context.state.phase.name().into(),
                session_id: session.id.clone(),
                is_fork: false,
                is_reminder: question.place.turn > 0,
                reminder_attempt: question.place.turn,
            })?;
        }
        context.log.record_synced(Event::ModelRequested {
            agent_id: MAIN_AGENT.into(),
            place: question.place,
            provider: self.provider.into(),
            model: question.model.into(),
            hash: question.hash.clone(),
            worst: question.worst,
            continues: question.continues,
            request: question.value.clone(),
        })
    }

    /// Writes down what came back, and what it cost, before anybody uses it.
    fn record_answer(
        &mut self,
        context: &mut Context,
        question: &PendingRequest<'_>,
        recorded: &RecordedAnswer,
        started: Instant,
    ) -> Result<()> {
        let cost = recorded
            .as_ref()
            .ok()
            .and_then(|answer| self.budget.cost(answer));
        context.log.record_synced(Event::ModelAnswered {
            agent_id: MAIN_AGENT.into(),
            place: question.place,
            hash: question.hash.clone(),
            cost_usd: cost,
            duration_ms: started.elapsed().as_millis() as u64,
            answer: recorded
                .as_ref()
                .ok()
                .and_then(|answer| serde_json::to_value(answer).ok()),
            error: recorded.as_ref().err().map(ToString::to_string),
        })?;
        if let Ok(answer) = recorded {
            // A server that counts nothing must not make a budget mean nothing.
            if answer.usage == TokenUsage::default() {
                self.budget.add(question.worst);
            }
            context.state.usage.add(
                answer.calls(),
                answer.usage.all_input(),
                answer.usage.output,
                cost,
            );
            context.save()?;
        }
        Ok(())
    }

    /// Returns what came back; nothing where the client wants to send it in other words.
    fn send(
        &mut self,
        context: &mut Context,
        question: &PendingRequest<'_>,
        equipment: Option<InlineTools<'_>>,
    ) -> Result<Option<RecordedAnswer>> {
        let RecordedModel {
            client,
            budget,
            policy,
            secrets,
            ..
        } = self;
        let keeps_its_limit = client.is_session();
        let state_name = context.state.phase.name();
        let (usage, stop) = (context.state.usage, context.cancel.clone());
        // Who tells and who carries out calls both write into the log, one at a time.
        let shared = RefCell::new(&mut *context);
        let mut tell = |told: RetryEvent<'_>| match told {
            RetryEvent::Piece(piece) => shared.borrow_mut().log.stream(Event::ModelStreamed {
                agent_id: MAIN_AGENT.into(),
                place: question.place,
                piece: piece.to_owned(),
            }),
            RetryEvent::Sending { attempt } => {
                match keeps_its_limit {
                    true => budget.left(&usage).map(drop)?,
                    false => budget.reserve(question.worst, &usage)?,
                }
                let agent_id = MAIN_AGENT.into();
                let retried = Event::ModelRetried {
                    agent_id,
                    place: question.place,
                    attempt,
                };
                shared.borrow_mut().log.record_synced(retried)
            }
            RetryEvent::Failed {
                attempt,
                message,
                spent,
                again_after,
            } => {
                let charge = budget.charge(spent, question.worst);
                charge.into_iter().for_each(|charge| budget.add(charge));
                let wait =
                    again_after.map(|delay| format!("; next try in {} s", delay.as_secs_f64()));
                let mut context = shared.borrow_mut();
                context.log.record_synced(Event::ErrorOccurred {
                    agent_id: MAIN_AGENT.into(),
                    error_type: MODEL_ERROR.into(),
                    error_message: format!(
                        "{}{}",
                        secrets.redact(message),
                        wait.unwrap_or_default()
                    ),
                    current_state: state_name.into(),
                    is_retryable: again_after.is_some(),
                    retry_count: attempt,
                    max_retries: retry::RETRIES,
                    charge,
                })?;
                let Some(charge) = charge else { return Ok(()) };
                context.state.usage.lose(charge.cost_usd);
                context.save()
            }
        };
        let mut tools = equipment.map(|equipment| ToolBridge::new(&shared, equipment));
        let session = question.session.clone().unwrap_or_default();
        let mut attempt = |watch: &mut dyn FnMut(&str)| match &mut *client {
            Model::Client(client) => client.attempt(&question.body, watch),
            Model::Session(client) => {
                let tools = tools.as_mut().map(|tools| tools as &mut dyn Toolbox);
                client.attempt(&session, &question.body, tools, watch)
            }
        };
        let got = retry::ask(&mut attempt, policy, &stop, &mut tell);
        tools.and_then(ToolBridge::failure).map_or(Ok(()), Err)?;
        let got = got?;
        let clean = |message: String| secrets.redact(&message).into_owned();
        match got {
            Ok(answer) => Ok(Some(Ok(answer))),
            Err(GaveUp::FieldRefused) => Ok(None),
            Err(GaveUp::Permanent(error)) => Ok(Some(Err(PermanentError {
                message: clean(error.message),
                ..error
            }))),
            Err(GaveUp::OverBudget(message)) => Err(Error::Failed(Reason::Budget, clean(message))),
            Err(GaveUp::Unavailable(message)) => {
                Err(Error::Paused(Reason::ProviderUnavailable, clean(message)))
            }
            Err(GaveUp::Unauthorized(message)) => {
                Err(Error::Paused(Reason::ProviderUnauthorized, clean(message)))
            }
            Err(GaveUp::Stopped) => {
                context.check_cancelled()?;
                if self
                    .policy
                    .until
                    .is_some_and(|until| until <= Instant::now())
                {
                    let text = "the time of the phase was over before the model had answered";
                    return Err(Error::Failed(Reason::PhaseTimeout, text.into()));
                }
                Err(Error::Bug(
                    "a request ended although nobody asked for it".into(),
                ))
            }
        }
    }
}

fn session_of(context: &Context, place: RequestPlace, turn: u32) -> String {
    let RequestPlace {
        phase, retry_count, ..
    } = place;
    session_id(&format!(
        "{} {phase} {retry_count} {turn}",
        context.state.run_id
    ))
}

/// A permanent error ends the run, also when it is met again in the log.
pub fn usable(context: &Context, recorded: RecordedAnswer) -> Result<Answer> {
    recorded.map_err(|error| context.unusable(format!("the model could not be asked: {error}")))
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
