//! An answer in whose course the provider calls tools itself: one request, any number of calls, then the last words.
//!
//! The calls stand in the log between the request and its answer. After a crash the provider's session goes on, and is
//! told what was lost; a replay runs the recorded calls for their effect before it takes the recorded answer.

use std::time::Instant;

use crate::build::agent::AgentModel;
use crate::build::agent::history::{CallResult, InlineStep};
use crate::build::agent::state::ConversationState;
use crate::build::agent::toolset::{CallLimits, PendingCall, Toolset};
use crate::build::context::Context;
use crate::build::log_state::{RecordedAnswer, RecordedRequest};
use crate::build::model_call::Continuation;
use crate::build::tool_bridge::InlineTools;
use crate::error::Result;
use crate::events::RequestPlace;
use crate::llm::mcp::{ToolCall, ToolOutcome};

impl AgentModel {
    /// Returns the request whose answer was interrupted, where calls are made in the course of one.
    pub(super) fn interrupted_request<'a>(
        &mut self,
        context: &'a Context,
        index: u32,
    ) -> Option<&'a RecordedRequest> {
        context
            .log_state
            .request(context.place(index))
            .filter(|_| self.model_call.runs_tools_itself())
    }

    /// Asks with our hands at the provider's disposal.
    pub(super) fn ask_with_tools(
        &mut self,
        context: &mut Context,
        conversation: &mut ConversationState,
        continued: Option<Continuation<'_>>,
        toolset: &mut Toolset,
        deadline: Instant,
    ) -> Result<RecordedAnswer> {
        let place = context.place(conversation.index);
        let turns_left = context
            .spec
            .generator
            .max_turns
            .saturating_sub(conversation.turns);
        let mut number = context.log_state.conversations().next_number(place);
        let secrets = self.model_call.secrets.clone();
        let mut call = |context: &mut Context, call: ToolCall<'_>| {
            let ToolCall {
                name: tool,
                arguments,
                turn,
                cancelled,
            } = call;
            // What is run is what the log has.
            let mut input = arguments.clone();
            secrets.redact_value(&mut input);
            let limits = CallLimits {
                deadline,
                turns_left: turns_left.saturating_sub(turn),
            };
            let call = PendingCall {
                place,
                number,
                tool,
                input: &input,
                raw: None,
                cancelled: Some(cancelled),
            };
            number += 1;
            let CallResult {
                is_error,
                output,
                screen,
                ..
            } = toolset.call(context, call, limits, None)?;
            Ok(ToolOutcome {
                text: output + &screen,
                is_error,
            })
        };
        let word = (conversation.index == 0)
            .then(|| interruption_notice(context, place, conversation.restart.as_deref()))
            .flatten();
        let offers = conversation.request.tools.clone();
        let equipment = InlineTools {
            offers,
            call: &mut call,
            resume_prompt: word,
            turns_left,
        };
        self.model_call.exchange(
            context,
            place,
            &conversation.request,
            continued,
            &mut conversation.line,
            Some(equipment),
        )
    }

    /// Runs what was called in the course of the next recorded answer, for its effect.
    pub(super) fn replay_inline_calls(
        &mut self,
        context: &mut Context,
        toolset: &mut Toolset,
        conversation: &ConversationState,
        deadline: Instant,
    ) -> Result<()> {
        let (place, calls_by_itself) = (
            context.place(conversation.index),
            self.model_call.runs_tools_itself(),
        );
        let Some(replay) = self.replayed().filter(|_| calls_by_itself) else {
            return Ok(());
        };
        for step in replay.conversations().inline_steps(place) {
            context.check_cancelled()?;
            match step {
                InlineStep::Restart => toolset.restart(),
                InlineStep::Call {
                    number,
                    tool,
                    arguments: input,
                } => {
                    let call = PendingCall {
                        place,
                        number: *number,
                        tool,
                        input,
                        raw: None,
                        cancelled: None,
                    };
                    toolset.call(
                        context,
                        call,
                        self.limits(context, conversation, deadline),
                        Some(replay),
                    )?;
                }
            }
        }
        Ok(())
    }
}

/// Returns what a session is told that was interrupted in the course of an answer.
fn interruption_notice(
    context: &Context,
    place: RequestPlace,
    restart: Option<&str>,
) -> Option<String> {
    context.log_state.request(place)?;
    let conversations = context.log_state.conversations();
    let mut words = restart.unwrap_or_default().to_owned();
    for step in conversations.inline_steps(place) {
        if let InlineStep::Call {
            number,
            tool,
            arguments,
        } = step
            && conversations.result(place, *number).is_none()
        {
            words += &format!("\n[outcome unknown, and it was not repeated: {tool} {arguments}]");
        }
    }
    Some(words + "\nGo on with the task.")
}
