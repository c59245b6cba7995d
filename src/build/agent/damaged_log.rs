//! What a damaged line of the log took from a conversation, made up for from the lines around it.
//!
//! A lost answer is known by its calls and by the request that followed it; a lost request by the results that it
//! carried. Nothing is asked for again, and no call is run again, because of one unreadable line.

use std::time::Instant;

use serde_json::{Value, json};

use crate::build::agent::history::InlineStep;
use crate::build::agent::state::{ConversationState, NextStep, REMINDER};
use crate::build::agent::toolset::{CallLimits, UNKNOWN, refused};
use crate::build::agent::{cut_off_notice, restart, result};
use crate::build::context::Context;
use crate::build::log_state::RecordedRequest;
use crate::events::RequestPlace;
use crate::llm::{Answer, ContentBlock, StopReason, TokenUsage};

const UNREADABLE: &str = "[this answer could not be read from the log]";

/// Returns what is known of an answer that was given, and whose line cannot be read.
pub fn lost_answer(context: &Context, place: RequestPlace) -> Option<Answer> {
    let (log_state, conversations) = (&context.log_state, context.log_state.conversations());
    let after = RequestPlace {
        turn: place.turn + 1,
        ..place
    };
    let followed = log_state.request(after).is_some() || log_state.answer(after).is_some();
    let count = conversations.next_number(place);
    if !followed && count == 0 {
        return None;
    }
    let ids = log_state.request(after).map(result_ids).unwrap_or_default();
    let count = count.max(u32::try_from(ids.len()).unwrap_or(u32::MAX));
    let call = |number: u32| ContentBlock::ToolUse {
        // An empty one is made up for, as where a server gives none.
        id: ids.get(number as usize).cloned().unwrap_or_default(),
        name: conversations
            .tool(place, number)
            .unwrap_or("bash")
            .to_owned(),
        input: arguments(conversations.inline_steps(place), number),
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

/// Says what a request said whose line cannot be read; `before` is what the answer before it asked for.
pub fn restore_lost_messages(
    context: &Context,
    conversation: &mut ConversationState,
    before: Option<&NextStep>,
) {
    let turns_left = context
        .spec
        .generator
        .max_turns
        .saturating_sub(conversation.turns);
    let limits = CallLimits {
        deadline: Instant::now(),
        turns_left,
    };
    let place = context.place(conversation.index);
    let said = match before {
        None | Some(NextStep::Nothing) => Vec::new(),
        Some(NextStep::CutOff(ids)) => cut_off_notice(ids, context, limits),
        Some(NextStep::Calls(calls)) => results(
            context,
            RequestPlace {
                turn: place.turn - 1,
                ..place
            },
            calls,
            limits,
        ),
        Some(NextStep::End) => {
            conversation.reminders += 1;
            vec![ContentBlock::text(REMINDER)]
        }
    };
    conversation.add_user_content(said);
    if let Some(words) = context.log_state.conversations().restart(place) {
        conversation.add_user_content(vec![ContentBlock::text(restart::recorded_notice(words))]);
    }
    // Where its own line was is not known; what follows still continues a request.
    conversation.line.get_or_insert(0);
    let said = std::mem::take(&mut conversation.pending);
    said.into_iter()
        .for_each(|message| conversation.window.add(message));
}

fn results(
    context: &Context,
    place: RequestPlace,
    calls: &[ContentBlock],
    limits: CallLimits,
) -> Vec<ContentBlock> {
    let known = |number| {
        context
            .log_state
            .conversations()
            .result(place, number)
            .cloned()
    };
    let ids = calls.iter().filter_map(|call| {
        if let ContentBlock::ToolUse { id, .. } = call {
            Some(id)
        } else {
            None
        }
    });
    (0..)
        .zip(ids)
        .map(|(number, id)| {
            result(
                id,
                known(number).unwrap_or_else(|| refused(UNKNOWN, limits)),
            )
        })
        .collect()
}

fn arguments(course: &[InlineStep], number: u32) -> Value {
    let of_call = |step: &InlineStep| match step {
        InlineStep::Call {
            number: of,
            arguments,
            ..
        } if *of == number => Some(arguments.clone()),
        _ => None,
    };
    course.iter().find_map(of_call).unwrap_or_else(|| json!({}))
}

/// The ids of the calls that a request has results for, in order.
fn result_ids(asked: &RecordedRequest) -> Vec<String> {
    let blocks = asked.messages().flat_map(|message| message.content);
    blocks
        .filter_map(|block| {
            if let ContentBlock::ToolResult { id, .. } = block {
                Some(id)
            } else {
                None
            }
        })
        .collect()
}
