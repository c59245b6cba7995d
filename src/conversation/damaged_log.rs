//! What a damaged line of the log took from a conversation, made up for from the lines around it.
//!
//! A lost answer is known by its calls and by the request that followed it; a lost request by the results that it
//! carried. Nothing is asked for again, and no call is run again, because of one unreadable line.

use serde_json::{Value, json};

use crate::conversation::history::{ConversationHistory, InlineStep, RecordedRequest};
use crate::conversation::restart;
use crate::conversation::state::{ConversationState, NextStep};
use crate::conversation::toolset::{UNKNOWN, refused, result_block};
use crate::events::{Objection, RequestPlace};
use crate::llm::{Answer, ContentBlock, StopReason, TokenUsage};

const UNREADABLE: &str = "[this answer could not be read from the log]";

/// What is known of an answer that was given and whose line cannot be read.
pub(super) fn lost_answer(history: &ConversationHistory, place: RequestPlace) -> Option<Answer> {
    let after = place.next();
    let followed = history.request(after).is_some() || history.answer(after).is_some();
    let count = history.next_number(place);
    if !followed && count == 0 {
        return None;
    }
    let ids = history.request(after).map(result_ids).unwrap_or_default();
    let count = count.max(u32::try_from(ids.len()).unwrap_or(u32::MAX));
    let call = |number: u32| ContentBlock::ToolUse {
        // An empty id is replaced, as where a server gives none.
        id: ids.get(number as usize).cloned().unwrap_or_default(),
        name: history.tool(place, number).unwrap_or("bash").to_owned(),
        input: arguments(history.inline_steps(place), number),
        raw: None,
    };
    let mut content: Vec<ContentBlock> = (0..count).map(call).collect();
    let stop = if content.is_empty() {
        StopReason::EndTurn
    } else {
        StopReason::ToolUse
    };
    if content.is_empty() {
        content.push(ContentBlock::text(UNREADABLE));
    }
    Some(Answer {
        content,
        stop,
        usage: TokenUsage::default(),
        model: String::new(),
        request_id: None,
        bill: None,
    })
}

/// What the requests of a conversation are known to say: the notice of a cut-off answer, and an objection.
pub(super) struct KnownTexts<'a> {
    pub cut_off: &'a dyn Fn(&[String]) -> Vec<ContentBlock>,
    pub objection: (Objection, &'a str),
}

/// Restores the messages of a request whose line cannot be read; `before` is what the answer before it asked for.
pub(super) fn restore_lost_messages(
    history: &ConversationHistory,
    conversation: &mut ConversationState,
    place: RequestPlace,
    before: Option<&NextStep>,
    texts: &KnownTexts<'_>,
) {
    let turns_left = conversation.max_turns.saturating_sub(conversation.turns);
    let content = match before {
        None | Some(NextStep::Nothing) => Vec::new(),
        Some(NextStep::CutOff(ids)) => (texts.cut_off)(ids),
        Some(NextStep::Calls(calls)) => {
            let answered = place.scope.turn(place.turn.saturating_sub(1));
            results(history, answered, calls, turns_left)
        }
        Some(NextStep::End) => {
            let (objection, text) = texts.objection;
            conversation.object(objection);
            vec![ContentBlock::text(text)]
        }
    };
    conversation.add_user_content(content);
    if let Some(recorded) = history.restart(place) {
        let notice = restart::recorded_notice(recorded);
        conversation.add_user_content(vec![ContentBlock::text(notice)]);
    }
    // The line of the lost request is not known; the next one still continues a request.
    conversation.line.get_or_insert(0);
    let messages = std::mem::take(&mut conversation.pending);
    messages
        .into_iter()
        .for_each(|message| conversation.window.add(message));
}

fn results(
    history: &ConversationHistory,
    place: RequestPlace,
    calls: &[ContentBlock],
    turns_left: u32,
) -> Vec<ContentBlock> {
    let ids = calls.iter().filter_map(|call| match call {
        ContentBlock::ToolUse { id, .. } => Some(id),
        _ => None,
    });
    let result = |(number, id): (u32, &String)| {
        let known = history.result(place, number).cloned();
        result_block(id, known.unwrap_or_else(|| refused(UNKNOWN, turns_left)))
    };
    (0..).zip(ids).map(result).collect()
}

fn arguments(steps: &[InlineStep], number: u32) -> Value {
    let of_call = |step: &InlineStep| match step {
        InlineStep::Call {
            number: of,
            arguments,
            ..
        } if *of == number => Some(arguments.clone()),
        _ => None,
    };
    steps.iter().find_map(of_call).unwrap_or_else(|| json!({}))
}

/// The ids of the calls that a request has results for, in order.
fn result_ids(request: &RecordedRequest) -> Vec<String> {
    let blocks = request.messages().flat_map(|message| message.content);
    let id = |block| match block {
        ContentBlock::ToolResult { id, .. } => Some(id),
        _ => None,
    };
    blocks.filter_map(id).collect()
}
