//! Where a conversation is: its messages, what the next request adds, and what the last answer asks for.
//!
//! All of it follows from the recorded exchanges: a resume applies them again and arrives at the same state.

use std::collections::HashSet;
use std::fmt;

use crate::conversation::context_window::ContextWindow;
use crate::conversation::history::{RecordedAnswer, RecordedRequest};
use crate::events::Objection;
use crate::llm::{
    Answer, ContentBlock, Message, ModelRequest, PermanentError, PermanentErrorKind, Role,
    StopReason,
};

/// So many answers in a row that were cut off end the conversation.
const MOST_CUT_OFF: u32 = 3;
const THINKING: &str = "<think>";
const THINKING_END: &str = "</think>";

/// A conversation under way.
#[derive(Debug, Clone)]
pub(crate) struct ConversationState {
    /// System prompt, tools and limits; it has the messages while it is sent.
    pub request: ModelRequest,
    pub window: ContextWindow,
    /// What the next request adds to the one before it.
    pub pending: Vec<Message>,
    /// The line of the last request.
    pub line: Option<u64>,
    /// The number of the next request in its scope.
    pub index: u32,
    pub turns: u32,
    pub max_turns: u32,
    /// The text of the last answer.
    pub words: String,
    /// The notice of a restart of the environments.
    pub restart: Option<String>,
    pub(crate) rules: TurnRules,
    /// The last answer was cut off.
    pub(crate) was_cut_off: bool,
    objections: Vec<Objection>,
    cut_off: u32,
    /// The ids of all calls; results name calls by them.
    call_ids: HashSet<String>,
    was_too_long: bool,
}

/// How turns are counted, and what ends one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnRules {
    /// All requests of a scope share `max_turns`; an answer that was cut off is followed by another.
    Phase,
    /// Each turn has `max_turns` requests; an answer that was cut off and calls nothing ends the turn.
    State,
}

/// What an answer asks for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NextStep {
    Calls(Vec<ContentBlock>),
    /// The next request adds nothing: the answer was paused, or the request was too long and is made smaller.
    Nothing,
    /// It was cut off; these calls of it were not run.
    CutOff(Vec<String>),
    End,
}

/// Why a conversation cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnusableAnswer {
    /// The provider refused the request for good.
    ModelError(PermanentError),
    /// The model refused to answer.
    Refused { category: String },
    /// Several answers in a row were cut off.
    CutOff { max_tokens: u32 },
}

impl fmt::Display for UnusableAnswer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnusableAnswer::ModelError(error) => {
                write!(out, "the model could not be asked: {error}")
            }
            UnusableAnswer::Refused { category } => {
                write!(out, "the model refused to answer ({category})")
            }
            UnusableAnswer::CutOff { max_tokens } => write!(
                out,
                "{MOST_CUT_OFF} answers in a row were cut off after {max_tokens} tokens; raise generator.max_tokens"
            ),
        }
    }
}

impl std::error::Error for UnusableAnswer {}

impl ConversationState {
    /// A conversation that begins with `opening`.
    pub(crate) fn new(
        request: ModelRequest,
        context_tokens: usize,
        max_turns: u32,
        opening: Message,
    ) -> ConversationState {
        let window = ContextWindow::new(&request.system, &request.tools, context_tokens);
        ConversationState {
            request,
            window,
            pending: vec![opening],
            line: None,
            index: 0,
            turns: 0,
            max_turns,
            words: String::new(),
            restart: None,
            rules: TurnRules::Phase,
            was_cut_off: false,
            objections: Vec::new(),
            cut_off: 0,
            call_ids: HashSet::new(),
            was_too_long: false,
        }
    }

    /// Begins the next scope of the same session with `opening`; its turns and requests are counted from 0.
    pub(crate) fn enter_scope(&mut self, opening: Message) {
        self.pending = vec![opening];
        (self.index, self.turns, self.cut_off) = (0, 0, 0);
        self.objections.clear();
        self.restart = None;
    }

    /// Adds content of ours to the next request.
    pub(crate) fn add_user_content(&mut self, content: Vec<ContentBlock>) {
        match self.pending.last_mut() {
            _ if content.is_empty() => {}
            Some(message) => message.content.extend(content),
            None => self.pending.push(Message {
                role: Role::User,
                content,
            }),
        }
    }

    pub(crate) fn object(&mut self, objection: Objection) {
        self.objections.push(objection);
        if self.rules == TurnRules::State {
            self.turns = 0;
        }
    }

    /// How often the end of this conversation was not accepted for this reason.
    pub(crate) fn objections(&self, objection: Objection) -> u32 {
        let all = self.objections.iter().filter(|known| **known == objection);
        u32::try_from(all.count()).unwrap_or(u32::MAX)
    }

    /// Takes over the messages of a recorded request instead of those that would be sent now.
    pub(crate) fn adopt_request(&mut self, recorded: &RecordedRequest) {
        self.pending.clear();
        self.line = Some(recorded.line);
        if let Some(objection) = recorded.objection {
            self.object(objection);
        }
        recorded
            .messages()
            .for_each(|message| self.window.add(message));
    }

    /// Sends again what an interrupted request said, since its calls may have changed what would be said now. A notice of
    /// an earlier restart is dropped: the next one replaces it.
    pub(crate) fn repeat_request(&mut self, recorded: &RecordedRequest, restart: Option<&str>) {
        self.pending = recorded.messages().collect();
        let is_notice = |block: &ContentBlock| matches!(block, ContentBlock::Text { text, .. } if Some(text.as_str()) == restart);
        for message in &mut self.pending {
            message.content.retain(|block| !is_notice(block));
        }
    }

    /// Takes an answer into the conversation; returns what it asks for.
    pub(crate) fn take_answer(
        &mut self,
        recorded: RecordedAnswer,
    ) -> Result<NextStep, UnusableAnswer> {
        self.index += 1;
        let mut answer = match recorded {
            Err(error)
                if error.kind == PermanentErrorKind::ContextTooLong
                    && !std::mem::replace(&mut self.was_too_long, true) =>
            {
                self.window.halve();
                return Ok(NextStep::Nothing);
            }
            recorded => recorded.map_err(UnusableAnswer::ModelError)?,
        };
        self.was_too_long = false;
        let requests = u32::try_from(answer.calls().max(1)).unwrap_or(u32::MAX);
        self.turns = self.turns.saturating_add(requests);
        if let StopReason::Refusal(category) = &answer.stop {
            let category = category.clone();
            return Err(UnusableAnswer::Refused { category });
        }
        self.count_cut_off(&mut answer)?;
        self.make_call_ids_unique(&mut answer);
        self.words = without_thinking(&answer.text()).to_owned();
        Ok(self.next_step(answer))
    }

    fn count_cut_off(&mut self, answer: &mut Answer) -> Result<(), UnusableAnswer> {
        if answer.stop != StopReason::MaxTokens {
            self.cut_off = 0;
            return Ok(());
        }
        self.cut_off += 1;
        if self.cut_off == MOST_CUT_OFF {
            let max_tokens = self.request.max_tokens;
            return Err(UnusableAnswer::CutOff { max_tokens });
        }
        drop_incomplete_call(answer);
        Ok(())
    }

    fn next_step(&mut self, answer: Answer) -> NextStep {
        let is_call = |block: &&ContentBlock| matches!(block, ContentBlock::ToolUse { .. });
        let calls: Vec<ContentBlock> = answer.content.iter().filter(is_call).cloned().collect();
        self.was_cut_off = answer.stop == StopReason::MaxTokens;
        let next = match &answer.stop {
            StopReason::MaxTokens if self.rules == TurnRules::State && calls.is_empty() => {
                NextStep::End
            }
            StopReason::MaxTokens => NextStep::CutOff(calls.iter().filter_map(id_of).collect()),
            _ if !calls.is_empty() => NextStep::Calls(calls.clone()),
            StopReason::PauseTurn => NextStep::Nothing,
            StopReason::MaxTurns => {
                self.turns = self.turns.max(self.max_turns);
                NextStep::Nothing
            }
            _ => NextStep::End,
        };
        let is_paused = answer.stop == StopReason::PauseTurn;
        // An empty answer cannot be sent back.
        if !calls.is_empty() || !self.words.trim().is_empty() || is_paused {
            self.window.add(Message {
                role: Role::Assistant,
                content: answer.content,
            });
        }
        next
    }

    /// Gives calls an id of their own where a server gave none, or one that another call has.
    fn make_call_ids_unique(&mut self, answer: &mut Answer) {
        for (number, block) in answer.content.iter_mut().enumerate() {
            let ContentBlock::ToolUse { id, .. } = block else {
                continue;
            };
            // Of a session with several scopes the index starts again in each, and the calls so far do not.
            let mut base = match self.rules {
                TurnRules::Phase => self.index as usize,
                TurnRules::State => self.call_ids.len(),
            };
            while id.is_empty() || self.call_ids.contains(id) {
                *id = format!("call-{base}-{number}");
                base += 1;
            }
            self.call_ids.insert(id.clone());
        }
    }
}

/// Drops a call that the token limit cut in two: it cannot be answered.
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

/// An answer without the thinking that some models put in front of it.
pub(crate) fn without_thinking(text: &str) -> &str {
    let Some(thinking) = text.trim_start().strip_prefix(THINKING) else {
        return text;
    };
    thinking
        .split_once(THINKING_END)
        .map_or(text, |(_, answer)| answer)
}
