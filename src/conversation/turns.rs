//! A conversation as a loop: the model answers, its calls are run, the results go back, until it ends its turn.
//!
//! The loop is the same for a fresh conversation, a resumed one and a replay. A resumed one first applies what the log
//! has (`catch_up`) and goes on where it ends, with fresh environments. The caller decides whether an end is accepted.

use std::time::{Duration, Instant};

use crate::conversation::agent::Agent;
use crate::conversation::damaged_log::{self, KnownTexts};
use crate::conversation::history::{CallResult, ConversationHistory, RecordedAnswer};
use crate::conversation::model_call::{
    Continuation, Exchange, ModelCall, RecordedModel, SessionRef,
};
use crate::conversation::restart::{self, RestartNotice};
use crate::conversation::state::{ConversationState, NextStep, TurnRules, UnusableAnswer};
use crate::conversation::toolset::{CallLimits, PendingCall, Toolset, refused, result_block};
use crate::error::{Error, Result};
use crate::events::{Bound, Event, Objection};
use crate::llm::{ContentBlock, Message, SessionStart};
use crate::state::reason::Reason;

const CUT_OFF: &str = "not run: cut off";

/// The limits of a conversation in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimit {
    pub timeout: Duration,
    pub deadline: Instant,
}

impl TimeLimit {
    pub(crate) fn starting_now(timeout: Duration) -> TimeLimit {
        TimeLimit {
            timeout,
            deadline: Instant::now() + timeout,
        }
    }
}

/// Why `run` returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TurnEnd {
    /// The model ended its turn.
    Ended,
    /// A limit ended it.
    Bound(Bound),
    /// An answer that cannot be used ended it.
    Unusable(UnusableAnswer),
}

/// A conversation of an agent with a model that works with tools.
pub(crate) struct Conversation<'a> {
    pub(super) agent: &'a Agent,
    pub(super) model: &'a mut RecordedModel,
    pub(super) toolset: &'a mut Toolset,
    pub(super) limits: TimeLimit,
    pub(super) state: ConversationState,
    pub(super) session: SessionRef,
    /// Why the next request follows an end.
    pub(super) objection: Option<Objection>,
    next: Option<NextStep>,
    is_resumed: bool,
    notices: RestartNotices,
}

/// When a request reports that the environments were restarted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RestartNotices {
    /// In a conversation that is resumed, with the files that differ from what the log knows.
    WhenResumed,
    /// With the next request, where there is a text.
    Given(Option<String>),
}

impl<'a> Conversation<'a> {
    /// Opens a conversation, or takes it up where the log leaves it. `reminder` is the text of an objection whose line
    /// cannot be read.
    pub(crate) fn open(
        agent: &'a Agent,
        model: &'a mut RecordedModel,
        toolset: &'a mut Toolset,
        limits: TimeLimit,
        state: ConversationState,
    ) -> Conversation<'a> {
        model.set_deadline(Some(limits.deadline));
        Conversation {
            session: SessionRef::of(agent, 0, SessionStart::Fresh),
            agent,
            model,
            toolset,
            limits,
            state,
            objection: None,
            next: None,
            is_resumed: false,
            notices: RestartNotices::WhenResumed,
        }
    }

    /// Lets the caller decide about restarts of the environments: the next request reports one where there is a text.
    pub(crate) fn with_restart_notice(mut self, text: Option<String>) -> Conversation<'a> {
        self.notices = RestartNotices::Given(text);
        self
    }

    /// Uses a session that the provider keeps already: continued, or branched from another one.
    pub(crate) fn in_session(mut self, session: SessionRef) -> Conversation<'a> {
        self.session = session;
        self
    }

    pub(crate) fn state(&self) -> &ConversationState {
        &self.state
    }

    /// Applies what the log has of this conversation. What a damaged line took is restored, so that everything after it
    /// still counts; `reminder` is the text of an objection whose line cannot be read.
    pub(crate) fn catch_up(
        &mut self,
        reminder: (Objection, &str),
    ) -> std::result::Result<(), UnusableAnswer> {
        let runs_tools_itself = self.model.runs_tools_itself();
        let (agent, limits) = (self.agent, self.call_limits());
        let Conversation { state, next, .. } = self;
        let max_tokens = state.request.max_tokens;
        let texts = KnownTexts {
            cut_off: &|ids| cut_off_notice(ids, max_tokens, limits.turns_left),
            objection: reminder,
        };
        agent.history(|history| {
            loop {
                let place = agent.place(state.index);
                let lost = || {
                    let answer = damaged_log::lost_answer(history, place);
                    answer.filter(|_| !runs_tools_itself).map(Ok)
                };
                let Some(recorded) = history.answer(place).cloned().or_else(lost) else {
                    return Ok(());
                };
                match history.request(place) {
                    Some(request) => state.adopt_request(request),
                    None => damaged_log::restore_lost_messages(
                        history,
                        state,
                        place,
                        next.as_ref(),
                        &texts,
                    ),
                }
                state.window.shrink();
                *next = Some(state.take_answer(recorded)?);
            }
        })?;
        self.is_resumed = self.next.is_some();
        // The results of the last answer are still to be sent.
        (1..self.state.index).for_each(|index| self.drop_contents_before(index));
        self.repeat_interrupted_request();
        Ok(())
    }

    /// A provider that runs tools itself is sent again what its interrupted request said.
    fn repeat_interrupted_request(&mut self) {
        if !self.model.runs_tools_itself() {
            return;
        }
        let (agent, place) = (self.agent, self.agent.place(self.state.index));
        if !self.was_interrupted(place) {
            return;
        }
        agent.history(|history| {
            if let Some(request) = history.request(place) {
                self.is_resumed = true;
                let notice = history.restart(place).map(restart::recorded_notice);
                self.state.repeat_request(request, notice.as_deref());
            }
        });
    }

    /// Goes on until the model ends its turn or something else ends it. `checkpoint` is called after each request, with its
    /// answer where it got one.
    ///
    /// A sync covers an answer and the start of its first call, another one the result of a call and what follows it: the
    /// next call or request. The last lines become durable with the line that the caller records of the end.
    pub(crate) fn run(
        &mut self,
        checkpoint: &mut dyn FnMut(Option<&RecordedAnswer>) -> Result<()>,
    ) -> Result<TurnEnd> {
        loop {
            let content = match self.next.take() {
                None | Some(NextStep::Nothing) => Vec::new(),
                Some(NextStep::CutOff(ids)) => cut_off_notice(
                    &ids,
                    self.state.request.max_tokens,
                    self.call_limits().turns_left,
                ),
                Some(NextStep::Calls(calls)) => self.call_all(&calls)?,
                Some(NextStep::End) => return Ok(TurnEnd::Ended),
            };
            self.state.add_user_content(content);
            self.note_restart()?;
            self.replay_inline_calls()?;
            if let Some(bound) = self.bound() {
                return Ok(TurnEnd::Bound(bound));
            }
            let asked = self.ask();
            let saved = checkpoint(asked.as_ref().ok());
            let answer = match asked {
                Err(Error::Failed(reason @ (Reason::Budget | Reason::PhaseTimeout), message)) => {
                    return Ok(TurnEnd::Bound(Bound { reason, message }));
                }
                asked => asked?,
            };
            saved?;
            match self.state.take_answer(answer) {
                Ok(next) => self.next = Some(next),
                Err(unusable) => return Ok(TurnEnd::Unusable(unusable)),
            }
        }
    }

    /// Does not accept an end: the next request says why.
    pub(crate) fn object(&mut self, objection: Objection, text: String) {
        self.state.object(objection);
        self.objection = Some(objection);
        self.state.add_user_content(vec![ContentBlock::text(text)]);
    }

    /// Ends the environments; returns the commands that were still running: in a replay as the log has them.
    pub(crate) fn close(self) -> Result<Vec<String>> {
        self.model.set_deadline(None);
        let running = self.toolset.close();
        let (compared, differing) = self.toolset.differing();
        if differing > 0 {
            self.agent.log.progress(format!(
                "replay: {differing} of {compared} results differ from the recorded ones"
            ))?;
        }
        let scope = self.agent.scope;
        let recorded = self.recorded().and_then(|history| history.closed(scope));
        Ok(recorded.map_or(running, |closed| closed.killed.clone()))
    }

    /// Sends what is new.
    fn ask(&mut self) -> Result<RecordedAnswer> {
        let new = std::mem::take(&mut self.state.pending);
        let window = &mut self.state.window;
        new.iter().for_each(|message| window.add(message.clone()));
        window.shrink();
        self.state.request.messages = window.lend();
        let exchanged = self.exchange(&new);
        let sent = std::mem::take(&mut self.state.request.messages);
        self.state.window.give_back(sent);
        let Exchange { answer, line } = exchanged?;
        self.drop_contents_before(self.state.index);
        self.objection = None;
        self.state.line = line.or(self.state.line);
        Ok(answer)
    }

    /// Drops the exchange before a request from the log's state: this conversation has it. Sessions of states may branch
    /// from any exchange later.
    fn drop_contents_before(&self, index: u32) {
        if self.state.rules == TurnRules::Phase && 0 < index {
            self.agent.log.drop_contents(self.agent.place(index - 1));
        }
    }

    /// Makes the request of the state, which adds `new` to the one before it.
    fn exchange(&mut self, new: &[Message]) -> Result<Exchange> {
        let continued = self.state.line.map(|line| Continuation {
            line,
            messages: new,
        });
        if self.model.runs_tools_itself() {
            return self.ask_with_tools(continued);
        }
        let place = self.agent.place(self.state.index);
        let call = ModelCall {
            continued,
            objection: self.objection,
            ..ModelCall::single(place, &self.state.request)
        };
        self.model.exchange_unsynced(self.agent, call)
    }

    /// Runs the calls of the last answer, in order.
    fn call_all(&mut self, calls: &[ContentBlock]) -> Result<Vec<ContentBlock>> {
        let place = self.agent.place(self.state.index - 1);
        let limits = self.call_limits();
        let mut results = Vec::new();
        for (number, block) in (0..).zip(calls) {
            let ContentBlock::ToolUse {
                id,
                name,
                input,
                raw,
            } = block
            else {
                continue;
            };
            self.agent.check_cancelled()?;
            let call = PendingCall {
                place,
                number,
                tool: name,
                input,
                raw: raw.as_deref(),
                cancelled: None,
            };
            let returned = if self.is_resumed {
                self.toolset.call_again(self.agent, call, limits)?
            } else {
                let replay = self.model.replay.as_deref();
                self.toolset.call(self.agent, call, limits, replay)?
            };
            results.push(result_block(id, returned));
        }
        // Only the newest result shows the screens.
        let older = results.len().saturating_sub(1);
        for block in &mut results[..older] {
            if let ContentBlock::ToolResult { screen, .. } = block {
                screen.clear();
            }
        }
        Ok(results)
    }

    /// In a replay each call has the whole time for itself: when it was over is as in the log.
    pub(super) fn call_limits(&self) -> CallLimits {
        let replay = self.model.replay.as_ref();
        let own = replay.map(|_| Instant::now() + self.limits.timeout);
        CallLimits {
            deadline: own.unwrap_or(self.limits.deadline),
            turns_left: self.state.max_turns.saturating_sub(self.state.turns),
        }
    }

    /// The limit that ends the conversation here, if one does: in a replay the one that the log has.
    fn bound(&self) -> Option<Bound> {
        let place = self.agent.place(self.state.index);
        if let Some(recorded) = self
            .recorded()
            .filter(|_| self.state.rules == TurnRules::Phase)
            .filter(|history| history.answer(place).is_none())
        {
            let closed = recorded.closed(place.scope);
            return closed.and_then(|closed| closed.bound.clone());
        }
        let max_turns = self.state.max_turns;
        if self.state.turns >= max_turns {
            return Some(Bound {
                reason: Reason::MaxTurns,
                message: match self.state.rules {
                    TurnRules::Phase => {
                        format!("the model used all {max_turns} turns of the phase")
                    }
                    TurnRules::State => {
                        format!("the model did not end its turn within {max_turns} requests")
                    }
                },
            });
        }
        let is_over = self.model.replay.is_none() && self.limits.deadline <= Instant::now();
        is_over.then(|| Bound {
            reason: Reason::PhaseTimeout,
            message: format!(
                "the phase took longer than {} seconds",
                self.limits.timeout.as_secs_f64()
            ),
        })
    }

    /// What the recorded run of a replay has of this agent.
    fn recorded(&self) -> Option<&ConversationHistory> {
        let replay = self.model.replay.as_ref()?;
        Some(replay.conversations(self.agent.log.agent_id()))
    }

    /// Adds the notice of a restart to the next request where there was one: in a replay as the log has it.
    fn note_restart(&mut self) -> Result<()> {
        let place = self.agent.place(self.state.index);
        let is_resumed = std::mem::take(&mut self.is_resumed);
        let without_files = |text| RestartNotice {
            text,
            changed: None,
        };
        let notice = match &mut self.notices {
            RestartNotices::WhenResumed if is_resumed => Some(restart::find(self.agent)?),
            RestartNotices::WhenResumed => None,
            RestartNotices::Given(text) => text.take().map(without_files),
        };
        let recorded = self.recorded().and_then(|history| history.restart(place));
        let recorded = recorded.map(restart::recorded_notice).map(without_files);
        if recorded.is_some() || self.notices == RestartNotices::WhenResumed && notice.is_some() {
            self.toolset.restart();
        }
        let Some(RestartNotice { text, changed }) = notice.or(recorded) else {
            return Ok(());
        };
        self.state
            .add_user_content(vec![ContentBlock::text(text.clone())]);
        self.state.restart = Some(text.clone());
        self.agent.log.record_synced(Event::EnvironmentsRestarted {
            agent_id: self.agent.id(),
            place,
            words: text,
            changed,
        })
    }
}

fn cut_off_notice(ids: &[String], max_tokens: u32, turns_left: u32) -> Vec<ContentBlock> {
    let not_run = |id: &String| -> ContentBlock {
        let result: CallResult = refused(CUT_OFF, turns_left);
        result_block(id, result)
    };
    let mut content: Vec<ContentBlock> = ids.iter().map(not_run).collect();
    content.push(ContentBlock::text(format!(
        "[your answer was cut off after {max_tokens} tokens, and no call of it was run; go on in smaller steps]"
    )));
    content
}
