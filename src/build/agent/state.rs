//! Where a conversation stands: what was said, what is to be said next, what the last answer asks for.
//!
//! Follows from the recorded exchanges alone: a resume hears them again and stands at the same point.

use std::collections::HashSet;

use crate::build::agent::context_window::ContextWindow;
use crate::build::agent::restart;
use crate::build::context::Context;
use crate::build::generators::answer_format::without_thinking;
use crate::build::log_state::{RecordedAnswer, RecordedRequest};
use crate::build::model_call::usable;
use crate::error::Result;
use crate::llm::{
    Answer, ContentBlock, Message, ModelRequest, PermanentErrorKind, Role, StopReason,
};

/// Said where a phase would end with nothing done; counted when it is heard again.
pub const REMINDER: &str =
    "[nothing in the workspace has changed; write the files with your tools, then end your turn]";
/// How a warning of a file that steers the checks begins.
pub const STEERS: &str =
    "[a file that steers the checks is refused; remove it, then end your turn: ";
/// So many answers in a row that were cut off are the end.
const MOST_CUT_OFF: u32 = 3;

/// A conversation under way.
pub struct ConversationState {
    pub request: ModelRequest,
    pub window: ContextWindow,
    /// What the next request adds to the one before it.
    pub pending: Vec<Message>,
    /// The line of the last request.
    pub line: Option<u64>,
    /// The place of the next request.
    pub index: u32,
    pub turns: u32,
    cut_off: u32,
    /// The ids of all calls: each is one call's.
    ids: HashSet<String>,
    pub reminders: u32,
    pub is_warned: bool,
    is_too_long: bool,
    pub words: String,
    /// What was told of a restart of the environments.
    pub restart: Option<String>,
}

/// What an answer asks for.
pub enum NextStep {
    Calls(Vec<ContentBlock>),
    /// Nothing is to be said: the same goes out again, or goes on.
    Nothing,
    /// It was cut off; these calls of it were not run.
    CutOff(Vec<String>),
    End,
}

impl ConversationState {
    /// Returns a conversation that opens with this message.
    pub fn new(
        request: ModelRequest,
        window: ContextWindow,
        opening: Message,
    ) -> ConversationState {
        ConversationState {
            request,
            window,
            pending: vec![opening],
            line: None,
            index: 0,
            turns: 0,
            cut_off: 0,
            ids: HashSet::new(),
            reminders: 0,
            is_warned: false,
            is_too_long: false,
            words: String::new(),
            restart: None,
        }
    }

    /// Adds words of ours to the next request.
    pub fn add_user_content(&mut self, content: Vec<ContentBlock>) {
        match self.pending.last_mut() {
            _ if content.is_empty() => {}
            Some(message) => message.content.extend(content),
            None => self.pending.push(Message {
                role: Role::User,
                content,
            }),
        }
    }

    /// Says what a recorded request said, instead of what would be said now.
    pub fn adopt_request(&mut self, asked: &RecordedRequest) {
        self.pending.clear();
        for message in asked.messages() {
            for block in &message.content {
                if let ContentBlock::Text { text, .. } = block {
                    self.reminders += u32::from(text == REMINDER);
                    self.is_warned |= text.starts_with(STEERS);
                }
            }
            self.window.add(message);
        }
    }

    /// Says what a request said whose answer never came, for its calls may have changed what would be said now.
    pub fn repeat_request(&mut self, asked: &RecordedRequest) {
        self.pending = asked.messages().collect();
        let is_note = |block: &ContentBlock| matches!(block, ContentBlock::Text { text, .. } if restart::is_note(text));
        self.pending
            .iter_mut()
            .for_each(|message| message.content.retain(|block| !is_note(block)));
    }

    /// Takes an answer into the conversation; returns what it asks for.
    pub fn take_answer(&mut self, context: &Context, recorded: RecordedAnswer) -> Result<NextStep> {
        self.index += 1;
        if let Err(error) = &recorded
            && error.kind == PermanentErrorKind::ContextTooLong
            && !std::mem::replace(&mut self.is_too_long, true)
        {
            self.window.halve();
            return Ok(NextStep::Nothing);
        }
        let mut answer = usable(context, recorded)?;
        self.is_too_long = false;
        self.turns = self
            .turns
            .saturating_add(u32::try_from(answer.calls().max(1)).unwrap_or(u32::MAX));
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
            drop_incomplete_call(&mut answer);
        }
        self.make_call_ids_unique(&mut answer);
        self.words = without_thinking(&answer.text()).to_owned();
        let is_paused = answer.stop == StopReason::PauseTurn;
        let is_out_of_turns = answer.stop == StopReason::MaxTurns;
        let calls: Vec<ContentBlock> = answer
            .content
            .iter()
            .filter(|block| matches!(block, ContentBlock::ToolUse { .. }))
            .cloned()
            .collect();
        if !calls.is_empty() || !self.words.trim().is_empty() || is_paused {
            self.window.add(Message {
                role: Role::Assistant,
                content: answer.content,
            });
        }
        Ok(match () {
            () if is_cut_off => NextStep::CutOff(calls.iter().filter_map(id_of).collect()),
            () if !calls.is_empty() => NextStep::Calls(calls),
            () if is_paused => NextStep::Nothing,
            () if is_out_of_turns => {
                self.turns = self.turns.max(context.spec.generator.max_turns);
                NextStep::Nothing
            }
            () => NextStep::End,
        })
    }

    /// Gives calls an id of their own where a server gave none, or one that another call has: results name calls by it.
    fn make_call_ids_unique(&mut self, answer: &mut Answer) {
        for (number, block) in answer.content.iter_mut().enumerate() {
            let ContentBlock::ToolUse { id, .. } = block else {
                continue;
            };
            if id.is_empty() || self.ids.contains(id) {
                *id = format!("call-{}-{number}", self.index);
            }
            self.ids.insert(id.clone());
        }
    }
}

/// A call that the limit cut in two cannot be answered: it goes.
fn drop_incomplete_call(answer: &mut Answer) {
    let is_incomplete = |block: &ContentBlock| match block {
        ContentBlock::ToolUse { input, raw, .. } => {
            raw.is_some() || input.as_object().is_none_or(|fields| fields.is_empty())
        }
        _ => false,
    };
    if answer.content.last().is_some_and(is_incomplete) {
        answer.content.pop();
    }
}

fn id_of(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::ToolUse { id, .. } => Some(id.clone()),
        _ => None,
    }
}
