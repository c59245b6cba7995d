//! Asks a model exactly once: what the log has is not asked again, what comes back is in the log before it is used.
//!
//! A request is written down with its place and its worst case, then sent; the answer is written and synced before
//! anything is done with it. A replay takes the place of the provider and of nothing else.

use std::time::Instant;

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::engine::context::Context;
use crate::engine::ledger::Ledger;
use crate::engine::memory::{MODEL_ERROR, Recorded};
use crate::engine::replay::Replay;
use crate::error::{Error, Result};
use crate::events::{Charge, Event, MAIN_AGENT, Place};
use crate::llm::retry::{self, GaveUp, Policy, Told};
use crate::llm::{Answer, LlmClient, Message, Request, Usage};
use crate::secrets::Secrets;
use crate::state::reason::Reason;

/// A model, its price, and the log that remembers what it said.
pub struct Voice {
    pub client: Box<dyn LlmClient>,
    pub provider: &'static str,
    pub ledger: Ledger,
    pub policy: Policy,
    pub replay: Option<Replay>,
    /// What a provider says may hold keys, also ones of other providers.
    pub secrets: Secrets,
}

/// What a request in a conversation adds to the one before it.
#[derive(Debug, Clone, Copy)]
pub struct Continued<'a> {
    /// The line of the one before.
    pub line: u64,
    pub messages: &'a [Message],
}

/// A request on its way.
struct Question<'a> {
    place: Place,
    model: &'a str,
    continues: Option<u64>,
    body: String,
    hash: String,
    worst: Charge,
    value: Value,
}

impl Voice {
    /// Returns the answer for a place in the run, from the log or from the provider.
    pub fn ask(&mut self, context: &mut Context, place: Place, request: &Request) -> Result<Answer> {
        let recorded = self.exchange(context, place, request, None, &mut None)?;
        usable(context, recorded)
    }

    /// Like `ask`, in a conversation: only what is new is written down, in the returned line, and a permanent error is for
    /// the caller to judge.
    pub fn exchange(
        &mut self,
        context: &mut Context,
        place: Place,
        request: &Request,
        continued: Option<Continued<'_>>,
        line: &mut Option<u64>,
    ) -> Result<Recorded> {
        if let Some(recorded) = context.memory.answer(place).cloned() {
            return Ok(recorded);
        }
        let body = self.client.encode(request);
        let question = Question {
            place,
            model: &request.model,
            hash: format!("sha256:{}", hex(&Sha256::digest(body.as_bytes()))),
            worst: self.ledger.worst(body.len(), request.max_tokens),
            continues: continued.map(|continued| continued.line),
            value: match continued {
                Some(continued) => json!({"messages": continued.messages}),
                None => serde_json::to_value(request).map_err(|error| Error::Bug(error.to_string()))?,
            },
            body,
        };
        self.ledger.promise(question.worst, &context.state.usage)?;
        if continued.is_some() {
            let whole = || serde_json::to_value(request).unwrap_or_default();
            context.scribe.show(|| Event::PromptSent { agent_id: MAIN_AGENT.into(), place, request: whole() });
        }
        self.write_down(context, &question)?;
        *line = Some(context.scribe.lines());
        let started = Instant::now();
        let recorded = match &self.replay {
            Some(replay) => replay.answer(place, &question.value)?,
            None => self.send(context, &question)?,
        };
        self.keep(context, &question, &recorded, started)?;
        Ok(recorded)
    }

    /// Sets the time at which asking ends, whatever is under way.
    pub fn hurry(&mut self, until: Option<Instant>) {
        self.policy.until = until;
        self.client.hurry(until);
    }

    fn write_down(&self, context: &mut Context, question: &Question<'_>) -> Result<()> {
        context.scribe.tell_synced(Event::ModelRequested {
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
    fn keep(
        &mut self,
        context: &mut Context,
        question: &Question<'_>,
        recorded: &Recorded,
        started: Instant,
    ) -> Result<()> {
        let cost = recorded.as_ref().ok().and_then(|answer| self.ledger.cost(&answer.usage));
        context.scribe.tell_synced(Event::ModelAnswered {
            agent_id: MAIN_AGENT.into(),
            place: question.place,
            hash: question.hash.clone(),
            cost_usd: cost,
            duration_ms: started.elapsed().as_millis() as u64,
            answer: recorded.as_ref().ok().and_then(|answer| serde_json::to_value(answer).ok()),
            error: recorded.as_ref().err().cloned(),
        })?;
        if let Ok(answer) = recorded {
            // A server that counts nothing must not make a budget mean nothing.
            if answer.usage == Usage::default() {
                self.ledger.add(question.worst);
            }
            context.state.usage.add(answer.usage.all_input(), answer.usage.output, cost);
            context.save()?;
        }
        Ok(())
    }

    fn send(&mut self, context: &mut Context, question: &Question<'_>) -> Result<Recorded> {
        let Voice { client, ledger, policy, secrets, .. } = self;
        let state_name = context.state.phase.name();
        let usage = context.state.usage;
        let scribe = &mut context.scribe;
        let mut tell = |told: Told<'_>| match told {
            Told::Piece(piece) => scribe.stream(Event::ModelStreamed {
                agent_id: MAIN_AGENT.into(),
                place: question.place,
                piece: piece.to_owned(),
            }),
            Told::Sending { attempt } => {
                ledger.promise(question.worst, &usage)?;
                scribe.tell_synced(Event::ModelRetried { agent_id: MAIN_AGENT.into(), place: question.place, attempt })
            }
            Told::Failed { attempt, message, spent, again_after } => {
                let charge = ledger.charge(spent, question.worst);
                charge.into_iter().for_each(|charge| ledger.add(charge));
                let wait = again_after.map(|delay| format!("; next try in {} s", delay.as_secs_f64()));
                scribe.tell_synced(Event::ErrorOccurred {
                    agent_id: MAIN_AGENT.into(),
                    error_type: MODEL_ERROR.into(),
                    error_message: format!("{}{}", secrets.redact(message), wait.unwrap_or_default()),
                    current_state: state_name.into(),
                    is_retryable: again_after.is_some(),
                    retry_count: attempt,
                    max_retries: retry::RETRIES,
                    charge,
                })
            }
        };
        let got = retry::ask(client.as_mut(), &question.body, policy, &context.stop, &mut tell)?;
        let clean = |message: String| secrets.redact(&message).into_owned();
        match got {
            Ok(answer) => Ok(Ok(answer)),
            Err(GaveUp::Permanent(message)) => Ok(Err(clean(message))),
            Err(GaveUp::Unavailable(message)) => Err(Error::Paused(Reason::ProviderUnavailable, clean(message))),
            Err(GaveUp::Unauthorized(message)) => Err(Error::Paused(Reason::ProviderUnauthorized, clean(message))),
            Err(GaveUp::Stopped) => {
                context.heed_stop()?;
                if self.policy.until.is_some_and(|until| until <= Instant::now()) {
                    let text = "the time of the phase was over before the model had answered";
                    return Err(Error::Failed(Reason::PhaseTimeout, text.into()));
                }
                Err(Error::Bug("a request ended although nobody asked for it".into()))
            }
        }
    }
}

/// A permanent error ends the run, also when it is met again in the log.
pub fn usable(context: &Context, recorded: Recorded) -> Result<Answer> {
    recorded.map_err(|message| context.unusable(format!("the model could not be asked: {message}")))
}

/// Returns bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
