//! Agent mode: a phase is a conversation in which the model works with tools in the workspace, until it ends its turn
//! or a bound does; then the checks decide.
//!
//! The loop below is the same for a fresh phase, a resumed one and a replay. A resumed one first hears what the log
//! has (`catch_up`) and goes on where it ends, with fresh environments. `conversation.rs` keeps what was said within
//! the context, `hands.rs` carries out calls and writes them down.

pub mod changes;
pub mod context_window;
mod damaged_log;
pub mod history;
mod inline_calls;
pub mod prompt;
mod restart;
pub mod state;
pub mod tools;
pub mod toolset;

use std::rc::Rc;
use std::time::Instant;

use crate::build::agent::changes::FileDigests;
use crate::build::agent::context_window::ContextWindow;
use crate::build::agent::history::{CallResult, ClosedConversation};
use crate::build::agent::restart::RestartNotice;
use crate::build::agent::state::{ConversationState, NextStep, REMINDER, STEERS};
use crate::build::agent::toolset::{CallLimits, PendingCall, Toolset, refused};
use crate::build::child_env::ChildEnv;
use crate::build::context::Context;
use crate::build::generators::prompt::PromptTemplates;
use crate::build::generators::{Generator, WrittenFiles};
use crate::build::log_state::RecordedAnswer;
use crate::build::model_call::{Continuation, RecordedModel};
use crate::build::replay::Replay;
use crate::build::tampering;
use crate::error::{Error, Result};
use crate::events::{Bound, Event, MAIN_AGENT};
use crate::llm::{ContentBlock, ModelRequest};
use crate::state::phase::Phase;
use crate::state::reason::Reason;

const CUT_OFF: &str = "not run: cut off";
/// So many files that decide the checks are told at once.
const MOST_TOLD: usize = 20;

/// A model that works with tools.
pub struct AgentModel {
    pub model_call: RecordedModel,
    pub prompts: PromptTemplates,
    pub model: String,
    pub context_tokens: usize,
    pub child_env: Rc<ChildEnv>,
}

impl Generator for AgentModel {
    fn write(&mut self, context: &mut Context) -> Result<WrittenFiles> {
        let (phase, retry_count) = (context.state.phase, context.state.retry_count);
        let deadline = Instant::now() + context.spec.generator.phase_timeout;
        let before = open(context)?;
        if context
            .log_state
            .conversations()
            .closed(phase, retry_count)
            .is_none()
        {
            let mut toolset = Toolset::new(&self.child_env, context)?;
            self.model_call.set_deadline(Some(deadline));
            let ended = self.converse(context, &mut toolset, &before, deadline);
            self.model_call.set_deadline(None);
            let (words, bound) = ended?;
            let killed = self.killed(context, toolset.close());
            report_differences(context, &toolset)?;
            // What tools wrote is durable before the log says that the conversation is over: it is not held again.
            context.reopen_workspace()?;
            context.workspace.sync()?;
            close(
                context,
                ClosedConversation {
                    words,
                    killed,
                    bound,
                },
            )?;
        }
        context.reopen_workspace()?;
        let after = changes::look(context)?;
        Ok(changes::between(&before, &after, context))
    }

    fn has_begun(&self, context: &Context) -> bool {
        context.log_state.answer(context.place(0)).is_some()
    }

    fn replay(&self) -> Option<&Replay> {
        self.replayed()
    }
}

impl AgentModel {
    /// Talks until the model ends its turn or a bound does; returns its last words.
    fn converse(
        &mut self,
        context: &mut Context,
        toolset: &mut Toolset,
        before: &FileDigests,
        deadline: Instant,
    ) -> Result<(String, Option<Bound>)> {
        let mut conversation = self.opening(context, toolset)?;
        let mut next = self.catch_up(context, &mut conversation)?;
        let mut is_resumed = next.is_some();
        if let Some(asked) = self.interrupted_request(context, conversation.index) {
            is_resumed = true;
            conversation.repeat_request(asked);
        }
        loop {
            let said = match &next {
                None | Some(NextStep::Nothing) => Vec::new(),
                Some(NextStep::CutOff(ids)) => {
                    cut_off_notice(ids, context, self.limits(context, &conversation, deadline))
                }
                Some(NextStep::Calls(calls)) => {
                    self.call_all(context, toolset, &conversation, calls, deadline, is_resumed)?
                }
                Some(NextStep::End) => match objection(context, &mut conversation, before)? {
                    Some(text) => vec![ContentBlock::text(text)],
                    None => return Ok((conversation.words, None)),
                },
            };
            conversation.add_user_content(said);
            if let Some(RestartNotice {
                text: words,
                changed,
            }) = self.restart(context, conversation.index, is_resumed)?
            {
                toolset.restart();
                conversation.add_user_content(vec![ContentBlock::text(words.clone())]);
                conversation.restart = Some(words.clone());
                let (agent_id, place) = (MAIN_AGENT.into(), context.place(conversation.index));
                context.log.record_synced(Event::EnvironmentsRestarted {
                    agent_id,
                    place,
                    words,
                    changed,
                })?;
                is_resumed = false;
            }
            self.replay_inline_calls(context, toolset, &conversation, deadline)?;
            if let Some(bound) = self.bound(context, &conversation, deadline) {
                return Ok((conversation.words, Some(bound)));
            }
            let recorded = match self.ask(context, &mut conversation, toolset, deadline) {
                Err(Error::Failed(reason @ (Reason::Budget | Reason::PhaseTimeout), message)) => {
                    return Ok((conversation.words, Some(Bound { reason, message })));
                }
                asked => asked?,
            };
            next = Some(conversation.take_answer(context, recorded)?);
        }
    }

    /// Returns the conversation with its first message.
    fn opening(&self, context: &Context, toolset: &Toolset) -> Result<ConversationState> {
        let generator = &context.spec.generator;
        let offers = toolset.offers();
        let tools = prompt::tools(context, &offers);
        let report = prompt::report(context, context.log_state.conversations().last_closed());
        let files = prompt::files(context)?;
        let request = ModelRequest {
            model: self.model.clone(),
            max_tokens: generator.max_tokens,
            temperature: generator.temperature,
            effort: generator.effort.clone(),
            system: self.prompts.system(&context.spec, &tools),
            tools: offers,
            messages: Vec::new(),
            varying: report.clone().into_iter().collect(),
        };
        let opening = self
            .prompts
            .task(&context.spec, &tools, &files, report.as_deref());
        let conversation = ContextWindow::new(&request.system, &request.tools, self.context_tokens);
        Ok(ConversationState::new(request, conversation, opening))
    }

    /// Hears what the log has of this conversation; returns what its last answer asks for. What a damaged line kept
    /// from us is made up for, so that everything behind it still counts.
    fn catch_up(
        &mut self,
        context: &Context,
        conversation: &mut ConversationState,
    ) -> Result<Option<NextStep>> {
        let calls_by_itself = self.model_call.runs_tools_itself();
        let mut next = None;
        loop {
            let place = context.place(conversation.index);
            let recorded = context.log_state.answer(place).cloned();
            let lost = || {
                damaged_log::lost_answer(context, place)
                    .filter(|_| !calls_by_itself)
                    .map(Ok)
            };
            let Some(recorded) = recorded.or_else(lost) else {
                return Ok(next);
            };
            match context.log_state.request(place) {
                Some(asked) => {
                    conversation.line = Some(asked.line);
                    conversation.adopt_request(asked);
                }
                None => damaged_log::restore_lost_messages(context, conversation, next.as_ref()),
            }
            conversation.window.shrink();
            next = Some(conversation.take_answer(context, recorded)?);
        }
    }

    /// Sends what is new.
    fn ask(
        &mut self,
        context: &mut Context,
        conversation: &mut ConversationState,
        toolset: &mut Toolset,
        deadline: Instant,
    ) -> Result<RecordedAnswer> {
        let new = std::mem::take(&mut conversation.pending);
        new.iter()
            .for_each(|message| conversation.window.add(message.clone()));
        conversation.window.shrink();
        conversation.request.messages = conversation.window.messages();
        let continued = conversation.line.map(|line| Continuation {
            line,
            messages: &new,
        });
        let place = context.place(conversation.index);
        if !self.model_call.runs_tools_itself() {
            return self.model_call.exchange(
                context,
                place,
                &conversation.request,
                continued,
                &mut conversation.line,
                None,
            );
        }
        self.ask_with_tools(context, conversation, continued, toolset, deadline)
    }

    fn call_all(
        &self,
        context: &mut Context,
        toolset: &mut Toolset,
        conversation: &ConversationState,
        calls: &[ContentBlock],
        deadline: Instant,
        is_resumed: bool,
    ) -> Result<Vec<ContentBlock>> {
        let place = context.place(conversation.index - 1);
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
            context.check_cancelled()?;
            let call = PendingCall {
                place,
                number,
                tool: name,
                input,
                raw: raw.as_deref(),
                cancelled: None,
            };
            let limits = self.limits(context, conversation, deadline);
            let returned = match is_resumed {
                true => toolset.call_again(context, call, limits)?,
                false => toolset.call(context, call, limits, self.model_call.replay.as_ref())?,
            };
            results.push(result(id, returned));
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

    /// In a replay each call has the phase's time for itself: when that was over is as in the log.
    fn limits(
        &self,
        context: &Context,
        conversation: &ConversationState,
        deadline: Instant,
    ) -> CallLimits {
        let generator = &context.spec.generator;
        let own = self
            .replayed()
            .map(|_| Instant::now() + generator.phase_timeout);
        CallLimits {
            deadline: own.unwrap_or(deadline),
            turns_left: generator.max_turns.saturating_sub(conversation.turns),
        }
    }

    /// Returns the bound that ends the conversation here, if one does: in a replay the one that the log has.
    fn bound(
        &self,
        context: &Context,
        conversation: &ConversationState,
        deadline: Instant,
    ) -> Option<Bound> {
        let place = context.place(conversation.index);
        let generator = &context.spec.generator;
        if let Some(replay) = self.replayed().filter(|replay| !replay.has_answer(place)) {
            let closed = replay
                .conversations()
                .closed(place.phase, place.retry_count);
            return closed.and_then(|closed| closed.bound.clone());
        }
        if conversation.turns >= generator.max_turns {
            let message = format!(
                "the model used all {} turns of the phase",
                generator.max_turns
            );
            return Some(Bound {
                reason: Reason::MaxTurns,
                message,
            });
        }
        let is_over = self.replayed().is_none() && deadline <= Instant::now();
        is_over.then(|| Bound {
            reason: Reason::PhaseTimeout,
            message: format!(
                "the phase took longer than {} seconds",
                generator.phase_timeout.as_secs_f64()
            ),
        })
    }

    fn replayed(&self) -> Option<&Replay> {
        self.model_call.replay.as_ref()
    }

    /// Returns what is to be told of a restart at this point, if there is one: in a replay as the log has it.
    fn restart(
        &self,
        context: &Context,
        index: u32,
        is_resumed: bool,
    ) -> Result<Option<RestartNotice>> {
        if is_resumed {
            return restart::find(context).map(Some);
        }
        let recorded = self
            .replayed()
            .and_then(|replay| replay.conversations().restart(context.place(index)));
        Ok(recorded.map(|words| RestartNotice {
            text: restart::recorded_notice(words),
            changed: None,
        }))
    }

    /// What was running at the end is said in the next prompt: in a replay as the log has it.
    fn killed(&self, context: &Context, now: Vec<String>) -> Vec<String> {
        let (phase, retry_count) = (context.state.phase, context.state.retry_count);
        let recorded = self
            .replayed()
            .and_then(|replay| replay.conversations().closed(phase, retry_count));
        recorded.map_or(now, |closed| closed.killed.clone())
    }
}

/// Returns the files with which the phase began, and writes them down where it begins now.
fn open(context: &mut Context) -> Result<FileDigests> {
    let (phase, retry_count) = (context.state.phase, context.state.retry_count);
    let (first, conversations) = (context.place(0), context.log_state.conversations());
    let is_under_way =
        context.log_state.answer(first).is_some() || !conversations.inline_steps(first).is_empty();
    if is_under_way && let Some(files) = context.log_state.conversations().files(phase, retry_count)
    {
        return Ok(files.clone());
    }
    let mut files = changes::look(context)?;
    // Where the line that says how it began cannot be read, what calls have changed is known all the same.
    if is_under_way
        && let Some(changed) = context
            .log_state
            .conversations()
            .changed(phase, retry_count)
    {
        files.retain(|path, _| !changed.marks.contains_key(path));
    }
    let agent_id = MAIN_AGENT.into();
    context.log.record(Event::ConversationOpened {
        agent_id,
        phase,
        retry_count,
        files: files.clone(),
    })?;
    Ok(files)
}

fn close(context: &mut Context, closed: ClosedConversation) -> Result<()> {
    let ClosedConversation {
        words,
        killed,
        bound,
    } = closed;
    if let Some(Bound { reason, message }) = &bound {
        context
            .log
            .progress(format!("{reason}: {message}; the checks decide"))?;
    }
    let event = Event::ConversationClosed {
        agent_id: MAIN_AGENT.into(),
        phase: context.state.phase,
        retry_count: context.state.retry_count,
        words,
        killed,
        bound,
    };
    context.log_state.apply_live(&event);
    context.log.record_synced(event)
}

fn report_differences(context: &mut Context, toolset: &Toolset) -> Result<()> {
    match toolset.differing() {
        (_, 0) => Ok(()),
        (all, differing) => context.log.progress(format!(
            "replay: {differing} of {all} results differ from the recorded ones"
        )),
    }
}

/// Returns why a turn cannot end like this, to be told to the model.
fn objection(
    context: &mut Context,
    conversation: &mut ConversationState,
    before: &FileDigests,
) -> Result<Option<String>> {
    context.reopen_workspace()?;
    if !std::mem::replace(&mut conversation.is_warned, true) {
        let violations = tampering::all_violations(context)?;
        if !violations.is_empty() {
            let told: Vec<String> = violations
                .iter()
                .take(MOST_TOLD)
                .map(ToString::to_string)
                .collect();
            return Ok(Some(format!("{STEERS}{}]", told.join("; "))));
        }
        conversation.is_warned = false;
    }
    let has_changed = |now: &FileDigests| {
        !changes::between(before, now, context)
            .attempt_files
            .is_empty()
    };
    if context.state.phase != Phase::Generating || has_changed(&changes::look(context)?) {
        return Ok(None);
    }
    if conversation.reminders == context.spec.generator.format_retries {
        let text = "the model ended its turn without a change in the workspace";
        return Err(Error::Failed(Reason::NoOutput, text.into()));
    }
    conversation.reminders += 1;
    Ok(Some(REMINDER.into()))
}

fn cut_off_notice(ids: &[String], context: &Context, limits: CallLimits) -> Vec<ContentBlock> {
    let mut words: Vec<ContentBlock> = ids
        .iter()
        .map(|id| result(id, refused(CUT_OFF, limits)))
        .collect();
    words.push(ContentBlock::text(format!(
        "[your answer was cut off after {} tokens, and no call of it was run; go on in smaller steps]",
        context.spec.generator.max_tokens
    )));
    words
}

fn result(id: &str, returned: CallResult) -> ContentBlock {
    let CallResult {
        is_error,
        output,
        screen,
        ..
    } = returned;
    ContentBlock::ToolResult {
        id: id.to_owned(),
        text: output,
        screen,
        is_error,
        cache: false,
    }
}
