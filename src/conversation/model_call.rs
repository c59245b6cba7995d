//! Asks a model exactly once: an answer that the log has is not asked for again, and an answer is in the log before it
//! is used.
//!
//! A request is recorded with its place and its worst case, then sent; the answer is recorded, and synced before anything
//! acts on it. A replay takes the place of the provider and of nothing else.

use std::sync::Arc;
use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::conversation::agent::Agent;
use crate::conversation::budget::{Budget, SharedBudget};
use crate::conversation::event_log::Readiness;
use crate::conversation::history::RecordedAnswer;
use crate::conversation::log_state::LogState;
use crate::conversation::replay::Replay;
use crate::conversation::tool_bridge::{InlineTools, ToolBridge};
use crate::conversation::usage::{MODEL_ERROR, STEP_ERROR};
use crate::error::{Error, Result};
use crate::events::{Charge, ConversationScope, Event, Objection, RequestPlace};
use crate::llm::PermanentError;
use crate::llm::mcp::Toolbox;
use crate::llm::retry::{self, GaveUp, RetryEvent, RetryPolicy};
use crate::llm::streamed_text::{streamed_bytes, streamed_text};
use crate::llm::{Answer, Message, Model, ModelRequest, ProviderSession, SessionStart, session_id};
use crate::secrets::Secrets;
use crate::state::reason::Reason;
use crate::text::hex;

/// A model, its price, and the rules by which it is asked.
pub(crate) struct RecordedModel {
    pub client: Model,
    pub provider: &'static str,
    pub budget: Budget,
    /// The budget of the fleet that the run belongs to.
    pub shared_budget: Option<Arc<dyn SharedBudget>>,
    pub policy: RetryPolicy,
    pub replay: Option<Arc<Replay>>,
    /// Gets the text of an answer while it streams.
    pub(crate) on_text: Option<TextListener>,
    /// An answer may contain keys, also those of other providers.
    pub secrets: Secrets,
}

/// A part of an answer that streams.
#[derive(Debug, Clone, Copy)]
pub(crate) enum StreamedText<'a> {
    /// The request is sent again: the answer starts from its beginning.
    Restarted,
    Piece(&'a str),
}

/// Takes the text of answers as it streams; an error ends the request.
pub(crate) type TextListener = Box<dyn FnMut(StreamedText<'_>) -> Result<()> + Send>;

/// A request and where it belongs.
pub(crate) struct ModelCall<'a> {
    pub place: RequestPlace,
    pub request: &'a ModelRequest,
    pub continued: Option<Continuation<'a>>,
    pub objection: Option<Objection>,
    /// For a provider that keeps sessions: the one this call belongs to, `None` for one of its own.
    pub session: Option<SessionRef>,
    pub tools: Option<InlineTools<'a>>,
}

impl<'a> ModelCall<'a> {
    /// A call that is complete in itself.
    pub(crate) fn single(place: RequestPlace, request: &'a ModelRequest) -> ModelCall<'a> {
        ModelCall {
            place,
            request,
            continued: None,
            objection: None,
            session: None,
            tools: None,
        }
    }
}

impl ModelCall<'_> {
    /// Whether the provider's session has begun with this call already: it was sent, and a state's has called a tool.
    fn is_interrupted(&self, agent: &Agent) -> bool {
        agent.history(|history| match self.place.scope {
            ConversationScope::Phase { .. } => history.request(self.place).is_some(),
            ConversationScope::Visit { .. } => !history.inline_steps(self.place).is_empty(),
        })
    }
}

/// What a request in a conversation adds to the one before it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Continuation<'a> {
    /// The line of the one before.
    pub line: u64,
    pub messages: &'a [Message],
}

/// A session that a provider keeps, and how its first request enters it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionRef {
    pub id: String,
    pub start: SessionStart,
}

impl SessionRef {
    /// The session of an agent's scope; the same id again after a crash.
    pub(crate) fn of(agent: &Agent, turn: u32, start: SessionStart) -> SessionRef {
        let key = agent.scope.key(agent.log.agent_id());
        SessionRef {
            id: session_id(&format!("{} {key} {turn}", agent.run_id)),
            start,
        }
    }
}

/// What came back, and the line of the request where one was recorded now.
pub(crate) struct Exchange {
    pub answer: RecordedAnswer,
    pub line: Option<u64>,
}

/// A request as it is sent.
struct PendingRequest {
    body: String,
    hash: String,
    worst: Charge,
    /// What the log gets of it.
    content: Value,
    session: Option<ProviderSession>,
}

impl RecordedModel {
    /// Returns the answer at a place, from the log or from the provider. It is durable.
    pub(crate) fn exchange(&mut self, agent: &Agent, call: ModelCall<'_>) -> Result<Exchange> {
        let exchange = self.exchange_unsynced(agent, call)?;
        agent.log.sync()?;
        Ok(exchange)
    }

    /// Like `exchange`. The answer is recorded; nothing may act on it before the next sync of the log.
    pub(crate) fn exchange_unsynced(
        &mut self,
        agent: &Agent,
        mut call: ModelCall<'_>,
    ) -> Result<Exchange> {
        if let Some(answer) = agent.history(|history| history.answer(call.place).cloned()) {
            return Ok(Exchange { answer, line: None });
        }
        loop {
            let pending = self.pending(agent, &call)?;
            let line = self.announce(agent, &call, &pending)?;
            let started = Instant::now();
            let answer = match &self.replay {
                Some(replay) => Some(replay.answer(
                    agent.log.agent_id(),
                    call.place,
                    &self.redacted(pending.content.clone()),
                    &call.request.varying,
                )?),
                None => self.send(agent, &call.place, &pending, call.tools.take())?,
            };
            // A request that was refused for one of its fields is another request without it: with a line, a hash and a
            // worst case of its own.
            let Some(answer) = answer else { continue };
            let answer = answer.map(|answer| self.as_logged(answer));
            self.record_answer(agent, call.place, &pending, &answer, started)?;
            return Ok(Exchange {
                answer,
                line: Some(line),
            });
        }
    }

    fn pending(&self, agent: &Agent, call: &ModelCall<'_>) -> Result<PendingRequest> {
        let body = self.client.encode(call.request);
        Ok(PendingRequest {
            hash: format!("sha256:{}", hex(&Sha256::digest(body.as_bytes()))),
            worst: self.budget.worst(body.len(), call.request.max_tokens),
            content: match call.continued {
                Some(continued) => json!({"messages": continued.messages}),
                None => serde_json::to_value(call.request)
                    .map_err(|error| Error::Bug(error.to_string()))?,
            },
            session: self
                .client
                .is_session()
                .then(|| self.session(agent, call))
                .transpose()?,
            body,
        })
    }

    fn session(&self, agent: &Agent, call: &ModelCall<'_>) -> Result<ProviderSession> {
        let usd_left = agent.log.read(|state| self.budget.left(state.usage()))?;
        let is_again = call.is_interrupted(agent);
        let own = || SessionRef::of(agent, call.place.turn, SessionStart::Fresh);
        let has_begun = is_again || (call.session.is_some() && call.place.turn > 0);
        let SessionRef { id, start } = call.session.clone().unwrap_or_else(own);
        Ok(ProviderSession {
            id,
            start: if has_begun {
                SessionStart::Continue
            } else {
                start
            },
            resume_prompt: call
                .tools
                .as_ref()
                .and_then(|tools| tools.resume_prompt.clone()),
            usd_left,
            turns_left: call.tools.as_ref().map(|tools| tools.turns_left),
        })
    }

    /// The answer as the log will have it: the run, a resume and a replay use the same text.
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

    /// Whether the provider runs tools itself, in a session that it keeps.
    pub(crate) fn runs_tools_itself(&self) -> bool {
        self.client.is_session()
    }

    /// Sets the time at which asking ends, also in mid-answer.
    pub(crate) fn set_deadline(&mut self, until: Option<Instant>) {
        self.policy.until = until;
        self.client.set_deadline(until);
    }

    /// Records the request, with its worst case reserved in the budget. Returns its line.
    fn announce(
        &self,
        agent: &Agent,
        call: &ModelCall<'_>,
        pending: &PendingRequest,
    ) -> Result<u64> {
        let ModelCall { place, request, .. } = *call;
        if call.continued.is_some() {
            agent.log.publish_detail(|| Event::PromptSent {
                agent_id: agent.id(),
                place,
                request: serde_json::to_value(request).unwrap_or_default(),
            });
        }
        if let Some(session) = &pending.session {
            agent.log.record(Event::ClaudeInvocationStarted {
                agent_id: agent.id(),
                state_name: agent.state_name.clone(),
                session_id: session.id.clone(),
                is_fork: matches!(session.start, SessionStart::Fork { .. }),
                is_reminder: place.turn > 0,
                reminder_attempt: place.turn,
            })?;
        }
        let event = Event::ModelRequested {
            agent_id: agent.id(),
            place,
            provider: self.provider.into(),
            model: request.model.clone(),
            hash: pending.hash.clone(),
            worst: pending.worst,
            continues: call.continued.map(|continued| continued.line),
            objection: call.objection,
            request: pending.content.clone(),
        };
        agent.log.record_when(event, |state| {
            agent.check_cancelled()?;
            let readiness = match pending.session {
                Some(_) => Readiness::Ready,
                None => self.budget.readiness(pending.worst, state.usage())?,
            };
            if readiness == Readiness::Ready && self.replay.is_none() {
                reserve(
                    self.shared_budget.as_deref(),
                    &self.budget,
                    agent,
                    pending,
                    state,
                )?;
            }
            Ok(readiness)
        })
    }

    fn record_answer(
        &self,
        agent: &Agent,
        place: RequestPlace,
        pending: &PendingRequest,
        answer: &RecordedAnswer,
        started: Instant,
    ) -> Result<()> {
        agent.log.record(Event::ModelAnswered {
            agent_id: agent.id(),
            place,
            hash: pending.hash.clone(),
            cost_usd: answer
                .as_ref()
                .ok()
                .and_then(|answer| self.budget.cost(answer)),
            duration_ms: started.elapsed().as_millis() as u64,
            answer: answer
                .as_ref()
                .ok()
                .and_then(|answer| serde_json::to_value(answer).ok()),
            error: answer.as_ref().err().map(ToString::to_string),
        })
    }

    /// Sends a request until it is answered. Returns `None` where the client wants to send it without a field.
    fn send(
        &mut self,
        agent: &Agent,
        place: &RequestPlace,
        pending: &PendingRequest,
        tools: Option<InlineTools<'_>>,
    ) -> Result<Option<RecordedAnswer>> {
        let RecordedModel {
            client,
            budget,
            shared_budget,
            policy,
            secrets,
            on_text,
            ..
        } = self;
        let recorder = AttemptRecorder {
            agent,
            place: *place,
            pending,
            budget,
            shared_budget: shared_budget.as_deref(),
            secrets,
        };
        let mut bridge = tools.map(ToolBridge::new);
        let session = pending.session.clone().unwrap_or_default();
        let mut attempt = |watch: &mut dyn FnMut(&str)| match &mut *client {
            Model::Client(client) => client.attempt(&pending.body, watch),
            Model::Session(client) => {
                let tools = bridge.as_mut().map(|tools| tools as &mut dyn Toolbox);
                client.attempt(&session, &pending.body, tools, watch)
            }
        };
        let got = retry::ask(&mut attempt, policy, &agent.cancel, &mut |event| {
            if let Some(listener) = on_text {
                tell_text(listener, event)?;
            }
            recorder.record(event)
        });
        bridge.and_then(ToolBridge::failure).map_or(Ok(()), Err)?;
        let clean = |message: String| secrets.redact(&message).into_owned();
        match got? {
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
            Err(GaveUp::Stopped) => Err(self.stopped(agent)),
        }
    }

    /// Why a request was ended from our side.
    fn stopped(&self, agent: &Agent) -> Error {
        if let Err(cancelled) = agent.check_cancelled() {
            return cancelled;
        }
        if self
            .policy
            .until
            .is_some_and(|until| until <= Instant::now())
        {
            let text = "the time of the phase was over before the model had answered";
            return Error::Failed(Reason::PhaseTimeout, text.into());
        }
        Error::Bug("a request was ended without a cause".into())
    }
}

/// Passes on what an event says of the text.
fn tell_text(listener: &mut TextListener, event: RetryEvent<'_>) -> Result<()> {
    match event {
        RetryEvent::Sending { .. } => listener(StreamedText::Restarted),
        RetryEvent::Piece(piece) => match streamed_text(piece) {
            Some(text) => listener(StreamedText::Piece(&text)),
            None => Ok(()),
        },
        RetryEvent::Failed { .. } | RetryEvent::RoundFailed { .. } => Ok(()),
    }
}

/// The attempts at one request, as they are recorded.
struct AttemptRecorder<'a> {
    agent: &'a Agent,
    place: RequestPlace,
    pending: &'a PendingRequest,
    budget: &'a Budget,
    shared_budget: Option<&'a dyn SharedBudget>,
    secrets: &'a Secrets,
}

/// Reserves in the budget that several runs share what a request may cost. A provider with a limit of its own may use
/// up what is left of the run's budget.
fn reserve(
    shared: Option<&dyn SharedBudget>,
    budget: &Budget,
    agent: &Agent,
    pending: &PendingRequest,
    state: &LogState,
) -> Result<()> {
    let Some(shared) = shared else {
        return Ok(());
    };
    let (_, used) = budget.used(state.usage());
    let next = match &pending.session {
        Some(session) => session.usd_left,
        None => pending.worst.cost_usd,
    };
    shared.reserve(&agent.run_id, used, next.unwrap_or(0.0))
}

impl AttemptRecorder<'_> {
    fn record(&self, event: RetryEvent<'_>) -> Result<()> {
        let (agent, place, log) = (self.agent, self.place, &self.agent.log);
        match event {
            RetryEvent::Piece(piece) => {
                log.show(|| {
                    Some(Event::TextStreamed {
                        agent_id: agent.id(),
                        text: streamed_text(piece).unwrap_or_default(),
                        bytes: streamed_bytes(piece)?,
                    })
                });
                log.stream(|| Event::ModelStreamed {
                    agent_id: agent.id(),
                    place,
                    piece: piece.to_owned(),
                })
            }
            RetryEvent::Sending { attempt } => {
                let retried = Event::ModelRetried {
                    agent_id: agent.id(),
                    place,
                    attempt,
                };
                let recorded = log.record_when(retried, |state| self.readiness(state));
                recorded.map(drop)
            }
            RetryEvent::RoundFailed { round, of, message } => {
                log.record_synced(Event::ErrorOccurred {
                    agent_id: agent.id(),
                    error_type: STEP_ERROR.into(),
                    error_message: self.secrets.redact(message).into_owned(),
                    current_state: agent.state_name.clone(),
                    is_retryable: round < of,
                    retry_count: round,
                    max_retries: of,
                    charge: None,
                })
            }
            RetryEvent::Failed {
                attempt,
                message,
                spent,
                again_after,
            } => {
                let message = self.secrets.redact(message);
                let wait =
                    again_after.map(|delay| format!("; next try in {} s", delay.as_secs_f64()));
                log.record_synced(Event::ErrorOccurred {
                    agent_id: agent.id(),
                    error_type: MODEL_ERROR.into(),
                    error_message: format!("{message}{}", wait.unwrap_or_default()),
                    current_state: agent.state_name.clone(),
                    is_retryable: again_after.is_some(),
                    retry_count: attempt,
                    max_retries: retry::RETRIES,
                    charge: self.budget.charge(spent, self.pending.worst),
                })
            }
        }
    }

    /// Whether the budgets allow the request now; what it may cost is reserved then.
    fn readiness(&self, state: &LogState) -> Result<Readiness> {
        self.agent.check_cancelled()?;
        let readiness = match self.pending.session {
            Some(_) => self.budget.left(state.usage()).map(|_| Readiness::Ready)?,
            None => self.budget.readiness(self.pending.worst, state.usage())?,
        };
        if readiness == Readiness::Ready {
            reserve(
                self.shared_budget,
                self.budget,
                self.agent,
                self.pending,
                state,
            )?;
        }
        Ok(readiness)
    }
}
