//! Agent mode: a phase is a conversation in which the model works with tools in the workspace, until it ends its turn
//! or a bound does; then the checks decide.
//!
//! The loop below is the same for a fresh phase, a resumed one and a replay. A resumed one first hears what the log
//! has (`catch_up`) and goes on where it ends, with fresh environments. `conversation.rs` keeps what was said within
//! the context, `hands.rs` carries out calls and writes them down.

pub mod changes;
pub mod conversation;
mod course;
pub mod hands;
pub mod opening;
pub mod talks;
pub mod tools;

use std::rc::Rc;
use std::time::Instant;

use serde_json::Value;

use crate::engine::agent::changes::Files;
use crate::engine::agent::conversation::Conversation;
use crate::engine::agent::hands::{Call, Hands, Limits};
use crate::engine::agent::talks::{Closed, Returned};
use crate::engine::checks::command::Surroundings;
use crate::engine::context::Context;
use crate::engine::generators::prompt::Prompts;
use crate::engine::generators::{Generator, Written};
use crate::engine::memory::Recorded;
use crate::engine::replay::Replay;
use crate::engine::steering;
use crate::engine::voice::{Continued, Voice, usable};
use crate::error::{Error, Result};
use crate::events::{Bound, Event, MAIN_AGENT, Place};
use crate::llm::claude_code::verdict::MAX_TURNS;
use crate::llm::{Answer, Block, Message, Request, Role, StopReason, is_too_long};
use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// So many answers in a row that were cut off are the end.
const MOST_CUT_OFF: u32 = 3;
const RESTARTED: &str = "[the run was interrupted and goes on: the environments were restarted, so variables, working \
                         directories, views and background jobs are gone; the files are as they were]";
const REMINDER: &str = "[nothing in the workspace has changed; write the files with your tools, then end your turn]";
const STEERS: &str = "[a file that steers the checks is refused; remove it, then end your turn: ";
const CUT_OFF: &str = "not run: cut off\n";

/// A model that works with tools.
pub struct AgentModel {
    pub voice: Voice,
    pub prompts: Prompts,
    pub model: String,
    pub context_tokens: usize,
    pub surroundings: Rc<Surroundings>,
}

/// A conversation under way.
struct Talk {
    request: Request,
    conversation: Conversation,
    /// What the next request adds to the one before it.
    new: Vec<Message>,
    /// The line of the last request.
    line: Option<u64>,
    /// The place of the next request.
    index: u32,
    turns: u32,
    cut_off: u32,
    reminders: u32,
    is_warned: bool,
    is_too_long: bool,
    words: String,
}

/// What an answer asks for.
enum Next {
    Calls(Vec<Block>),
    /// Nothing is to be said: the same goes out again, or goes on.
    Nothing,
    /// It was cut off; these calls of it were not run.
    CutOff(Vec<String>),
    End,
}

impl Generator for AgentModel {
    fn write(&mut self, context: &mut Context) -> Result<Written> {
        let (phase, retry_count) = (context.state.phase, context.state.retry_count);
        let deadline = Instant::now() + context.spec.generator.phase_timeout;
        let before = open(context)?;
        if context.memory.talks().closed(phase, retry_count).is_none() {
            let mut hands = Hands::new(&self.surroundings, context)?;
            self.voice.hurry(Some(deadline));
            let ended = self.converse(context, &mut hands, &before, deadline);
            self.voice.hurry(None);
            let (words, bound) = ended?;
            let killed = self.killed(context, hands.close());
            tell_differences(context, &hands)?;
            close(context, Closed { words, killed, bound })?;
        }
        context.reopen_door()?;
        let after = changes::look(context)?;
        context.door.sync()?;
        Ok(changes::between(&before, &after, context))
    }

    fn has_begun(&self, context: &Context) -> bool {
        context.memory.answer(context.place(0)).is_some()
    }
}

impl AgentModel {
    /// Talks until the model ends its turn or a bound does; returns its last words.
    fn converse(
        &mut self,
        context: &mut Context,
        hands: &mut Hands,
        before: &Files,
        deadline: Instant,
    ) -> Result<(String, Option<Bound>)> {
        let mut talk = self.opening(context, hands)?;
        let mut next = self.catch_up(context, &mut talk)?;
        let mut is_resumed = next.is_some();
        if let Some(asked) = self.under_way(context, talk.index) {
            is_resumed = true;
            talk.say_again(&asked.said);
        }
        loop {
            let said = match &next {
                None | Some(Next::Nothing) => Vec::new(),
                Some(Next::CutOff(ids)) => cut_off_words(ids, context.spec.generator.max_tokens),
                Some(Next::Calls(calls)) => self.call_all(context, hands, &talk, calls, deadline, is_resumed)?,
                Some(Next::End) => match objection(context, &mut talk, before)? {
                    Some(text) => vec![Block::text(text)],
                    None => return Ok((talk.words, None)),
                },
            };
            talk.say(said);
            if is_resumed || self.is_restart(context.place(talk.index)) {
                hands.restart();
                talk.say(vec![Block::text(RESTARTED)]);
                let place = context.place(talk.index);
                context.scribe.tell_synced(Event::EnvironmentsRestarted { agent_id: MAIN_AGENT.into(), place })?;
                is_resumed = false;
            }
            if let Some(bound) = bound(context, &talk, deadline) {
                return Ok((talk.words, Some(bound)));
            }
            let recorded = match self.ask(context, &mut talk, hands, deadline) {
                Err(Error::Failed(reason @ (Reason::Budget | Reason::PhaseTimeout), message)) => {
                    return Ok((talk.words, Some(Bound { reason, message })));
                }
                asked => asked?,
            };
            next = Some(talk.hear(context, recorded)?);
        }
    }

    /// Returns the conversation with its first message.
    fn opening(&self, context: &Context, hands: &Hands) -> Result<Talk> {
        let generator = &context.spec.generator;
        let offers = hands.offers();
        let tools = opening::tools(context, &offers);
        let report = opening::report(context, context.memory.talks().last_closed());
        let files = opening::files(context)?;
        let request = Request {
            model: self.model.clone(),
            max_tokens: generator.max_tokens,
            temperature: generator.temperature,
            effort: generator.effort.clone(),
            system: self.prompts.system(&context.spec, &tools),
            tools: offers,
            messages: Vec::new(),
        };
        let opening = self.prompts.task(&context.spec, &tools, &files, report.as_deref());
        let conversation = Conversation::new(&request.system, &request.tools, self.context_tokens);
        Ok(Talk::new(request, conversation, opening))
    }

    /// Hears what the log has of this conversation; returns what its last answer asks for.
    fn catch_up(&self, context: &Context, talk: &mut Talk) -> Result<Option<Next>> {
        let mut next = None;
        loop {
            let place = context.place(talk.index);
            let (Some(asked), Some(recorded)) = (context.memory.request(place), context.memory.answer(place)) else {
                return Ok(next);
            };
            talk.line = Some(asked.line);
            talk.take_over(&asked.said);
            talk.conversation.keep_small();
            next = Some(talk.hear(context, recorded.clone())?);
        }
    }

    /// Sends what is new.
    fn ask(
        &mut self,
        context: &mut Context,
        talk: &mut Talk,
        hands: &mut Hands,
        deadline: Instant,
    ) -> Result<Recorded> {
        let new = std::mem::take(&mut talk.new);
        new.iter().for_each(|message| talk.conversation.add(message.clone()));
        talk.conversation.keep_small();
        talk.request.messages = talk.conversation.messages();
        let continued = talk.line.map(|line| Continued { line, messages: &new });
        let place = context.place(talk.index);
        if !self.voice.calls_by_itself() {
            return self.voice.exchange(context, place, &talk.request, continued, &mut talk.line, None);
        }
        self.ask_with(context, talk, continued, hands, deadline)
    }

    fn call_all(
        &self,
        context: &mut Context,
        hands: &mut Hands,
        talk: &Talk,
        calls: &[Block],
        deadline: Instant,
        is_resumed: bool,
    ) -> Result<Vec<Block>> {
        let place = context.place(talk.index - 1);
        let limits = Limits { deadline, turns_left: context.spec.generator.max_turns.saturating_sub(talk.turns) };
        let mut results = Vec::new();
        for (number, block) in (0..).zip(calls) {
            let Block::ToolUse { id, name, input, raw } = block else { continue };
            context.heed_stop()?;
            let call = Call { place, number, tool: name, input, raw: raw.as_deref(), cancelled: None };
            let returned = match is_resumed {
                true => hands.call_again(context, call)?,
                false => hands.call(context, call, limits, self.voice.replay.as_ref())?,
            };
            results.push(result(id, returned));
        }
        // Only the newest result shows the screens.
        let older = results.len().saturating_sub(1);
        for block in &mut results[..older] {
            if let Block::ToolResult { screen, .. } = block {
                screen.clear();
            }
        }
        Ok(results)
    }

    fn replayed(&self) -> Option<&Replay> {
        self.voice.replay.as_ref()
    }

    fn is_restart(&self, place: Place) -> bool {
        self.replayed().is_some_and(|replay| replay.talks().is_restart(place))
    }

    /// What was running at the end is said in the next prompt: in a replay as the log has it.
    fn killed(&self, context: &Context, now: Vec<String>) -> Vec<String> {
        let (phase, retry_count) = (context.state.phase, context.state.retry_count);
        let recorded = self.replayed().and_then(|replay| replay.talks().closed(phase, retry_count));
        recorded.map_or(now, |closed| closed.killed.clone())
    }
}

impl Talk {
    fn new(request: Request, conversation: Conversation, opening: Message) -> Talk {
        Talk {
            request,
            conversation,
            new: vec![opening],
            line: None,
            index: 0,
            turns: 0,
            cut_off: 0,
            reminders: 0,
            is_warned: false,
            is_too_long: false,
            words: String::new(),
        }
    }

    /// Adds words of ours to the next request.
    fn say(&mut self, content: Vec<Block>) {
        match self.new.last_mut() {
            _ if content.is_empty() => {}
            Some(message) => message.content.extend(content),
            None => self.new.push(Message { role: Role::User, content }),
        }
    }

    /// Says what a recorded request said, instead of what would be said now.
    fn take_over(&mut self, said: &Value) {
        self.new.clear();
        for message in messages(said) {
            for block in &message.content {
                if let Block::Text { text, .. } = block {
                    self.reminders += u32::from(text == REMINDER);
                    self.is_warned |= text.starts_with(STEERS);
                }
            }
            self.conversation.add(message);
        }
    }

    /// Says what a request said whose answer never came, for its calls may have changed what would be said now.
    fn say_again(&mut self, said: &Value) {
        self.new = messages(said).collect();
        let is_note = |block: &Block| matches!(block, Block::Text { text, .. } if text == RESTARTED);
        self.new.iter_mut().for_each(|message| message.content.retain(|block| !is_note(block)));
    }

    /// Takes an answer into the conversation; returns what it asks for.
    fn hear(&mut self, context: &Context, recorded: Recorded) -> Result<Next> {
        self.index += 1;
        if let Err(message) = &recorded
            && is_too_long(message)
            && !std::mem::replace(&mut self.is_too_long, true)
        {
            self.conversation.halve();
            return Ok(Next::Nothing);
        }
        let mut answer = usable(context, recorded)?;
        self.is_too_long = false;
        self.turns = self.turns.saturating_add(u32::try_from(answer.calls().max(1)).unwrap_or(u32::MAX));
        if let StopReason::Refusal(category) = &answer.stop {
            return Err(context.unusable(format!("the model refused to answer ({category})")));
        }
        let is_cut_off = answer.stop == StopReason::MaxTokens;
        self.cut_off = if is_cut_off { self.cut_off + 1 } else { 0 };
        if self.cut_off == MOST_CUT_OFF {
            let limit = context.spec.generator.max_tokens;
            return Err(context.unusable(format!(
                "{MOST_CUT_OFF} answers in a row were cut off after {limit} tokens; raise generator.max_tokens"
            )));
        }
        if is_cut_off {
            leave_out_the_incomplete(&mut answer);
        }
        self.words = answer.text();
        let is_paused = answer.stop == StopReason::PauseTurn;
        let is_out_of_turns = answer.stop == StopReason::Other(MAX_TURNS.into());
        let calls: Vec<Block> =
            answer.content.iter().filter(|block| matches!(block, Block::ToolUse { .. })).cloned().collect();
        if !calls.is_empty() || !self.words.trim().is_empty() || is_paused {
            self.conversation.add(Message { role: Role::Assistant, content: answer.content });
        }
        Ok(match () {
            () if is_cut_off => Next::CutOff(calls.iter().filter_map(id_of).collect()),
            () if !calls.is_empty() => Next::Calls(calls),
            () if is_paused => Next::Nothing,
            () if is_out_of_turns => {
                self.turns = self.turns.max(context.spec.generator.max_turns);
                Next::Nothing
            }
            () => Next::End,
        })
    }
}

/// Returns the messages of a recorded request.
fn messages(said: &Value) -> impl Iterator<Item = Message> {
    let all = said["messages"].as_array().into_iter().flatten();
    all.filter_map(|message| serde_json::from_value(message.clone()).ok())
}

/// Returns the files with which the phase began, and writes them down where it begins now.
fn open(context: &mut Context) -> Result<Files> {
    let (phase, retry_count) = (context.state.phase, context.state.retry_count);
    let (first, talks) = (context.place(0), context.memory.talks());
    let is_under_way = context.memory.answer(first).is_some() || !talks.course(first).is_empty();
    if is_under_way && let Some(files) = context.memory.talks().files(phase, retry_count) {
        return Ok(files.clone());
    }
    let files = changes::look(context)?;
    let agent_id = MAIN_AGENT.into();
    context.scribe.tell(Event::ConversationOpened { agent_id, phase, retry_count, files: files.clone() })?;
    Ok(files)
}

fn close(context: &mut Context, closed: Closed) -> Result<()> {
    let Closed { words, killed, bound } = closed;
    if let Some(Bound { reason, message }) = &bound {
        context.scribe.progress(format!("{reason}: {message}; the checks decide"))?;
    }
    let event = Event::ConversationClosed {
        agent_id: MAIN_AGENT.into(),
        phase: context.state.phase,
        retry_count: context.state.retry_count,
        words,
        killed,
        bound,
    };
    context.memory.keep(&event);
    context.scribe.tell_synced(event)
}

fn tell_differences(context: &mut Context, hands: &Hands) -> Result<()> {
    match hands.differing() {
        (_, 0) => Ok(()),
        (all, differing) => {
            context.scribe.progress(format!("replay: {differing} of {all} results differ from the recorded ones"))
        }
    }
}

fn bound(context: &Context, talk: &Talk, deadline: Instant) -> Option<Bound> {
    let generator = &context.spec.generator;
    if talk.turns >= generator.max_turns {
        let message = format!("the model used all {} turns of the phase", generator.max_turns);
        return Some(Bound { reason: Reason::MaxTurns, message });
    }
    let seconds = generator.phase_timeout.as_secs_f64();
    (deadline <= Instant::now()).then(|| Bound {
        reason: Reason::PhaseTimeout,
        message: format!("the phase took longer than {seconds} seconds"),
    })
}

/// Returns why a turn cannot end like this, to be told to the model.
fn objection(context: &mut Context, talk: &mut Talk, before: &Files) -> Result<Option<String>> {
    context.reopen_door()?;
    if !std::mem::replace(&mut talk.is_warned, true) {
        for check in &context.spec.checks {
            match steering::judge_workspace(context, check) {
                Err(Error::Safety(violation)) => return Ok(Some(format!("{STEERS}{violation}]"))),
                other => other?,
            }
        }
        talk.is_warned = false;
    }
    if context.state.phase != Phase::Generating || changes::look(context)? != *before {
        return Ok(None);
    }
    if talk.reminders == context.spec.generator.format_retries {
        let text = "the model ended its turn without a change in the workspace";
        return Err(Error::Failed(Reason::NoOutput, text.into()));
    }
    talk.reminders += 1;
    Ok(Some(REMINDER.into()))
}

/// A call that the limit cut in two cannot be answered: it goes.
fn leave_out_the_incomplete(answer: &mut Answer) {
    let is_incomplete = |block: &Block| match block {
        Block::ToolUse { input, raw, .. } => raw.is_some() || input.as_object().is_none_or(|fields| fields.is_empty()),
        _ => false,
    };
    if answer.content.last().is_some_and(is_incomplete) {
        answer.content.pop();
    }
}

fn cut_off_words(ids: &[String], max_tokens: u32) -> Vec<Block> {
    let not_run = || Returned { ran: false, is_error: true, output: CUT_OFF.into(), screen: String::new() };
    let mut words: Vec<Block> = ids.iter().map(|id| result(id, not_run())).collect();
    words.push(Block::text(format!(
        "[your answer was cut off after {max_tokens} tokens, and no call of it was run; go on in smaller steps]"
    )));
    words
}

fn id_of(block: &Block) -> Option<String> {
    match block {
        Block::ToolUse { id, .. } => Some(id.clone()),
        _ => None,
    }
}

fn result(id: &str, returned: Returned) -> Block {
    let Returned { is_error, output, screen, .. } = returned;
    Block::ToolResult { id: id.to_owned(), text: output, screen, is_error, cache: false }
}
