//! An answer during which the provider calls tools itself: one request, any number of calls, then the final text.
//!
//! The calls are in the log between the request and its answer. After a crash the provider's session goes on, with a
//! notice of what was lost; a replay runs the recorded calls for their effect before it takes the recorded answer.

use crate::conversation::history::{CallResult, ConversationHistory, InlineStep};
use crate::conversation::model_call::{Continuation, Exchange, ModelCall};
use crate::conversation::state::TurnRules;
use crate::conversation::tool_bridge::InlineTools;
use crate::conversation::toolset::{CallLimits, PendingCall};
use crate::conversation::turns::Conversation;
use crate::error::Result;
use crate::events::RequestPlace;
use crate::llm::mcp::{ToolCall, ToolOutcome};

impl Conversation<'_> {
    /// Asks a provider that runs our tools while it answers.
    pub(super) fn ask_with_tools(
        &mut self,
        continued: Option<Continuation<'_>>,
    ) -> Result<Exchange> {
        let place = self.agent.place(self.state.index);
        let was_interrupted = self.was_interrupted(place);
        let (agent, state, toolset) = (self.agent, &self.state, &mut self.toolset);
        let turns_left = state.max_turns.saturating_sub(state.turns);
        let deadline = self.limits.deadline;
        let secrets = self.model.secrets.clone();
        let mut number = agent.history(|history| history.next_number(place));
        let mut call = |call: ToolCall<'_>| {
            // What is run is what the log has.
            let mut input = call.arguments.clone();
            secrets.redact_value(&mut input);
            let limits = CallLimits {
                deadline,
                turns_left: turns_left.saturating_sub(call.turn),
            };
            let pending = PendingCall {
                place,
                number,
                tool: call.name,
                input: &input,
                raw: None,
                cancelled: Some(call.cancelled),
            };
            number += 1;
            let CallResult {
                is_error,
                output,
                screen,
                ..
            } = toolset.call(agent, pending, limits, None)?;
            // The provider goes on with the result at once.
            agent.log.sync()?;
            Ok(ToolOutcome {
                text: output + &screen,
                is_error,
            })
        };
        let restart = state.restart.as_deref();
        let is_first = state.index == 0 || state.rules == TurnRules::State;
        let resume_prompt = (is_first && was_interrupted)
            .then(|| agent.history(|history| interruption_notice(history, place, restart)))
            .flatten();
        self.model.exchange_unsynced(
            agent,
            ModelCall {
                place,
                request: &state.request,
                continued,
                objection: self.objection,
                session: Some(self.session.clone()),
                tools: Some(InlineTools {
                    offers: state.request.tools.clone(),
                    call: &mut call,
                    resume_prompt,
                    turns_left,
                }),
            },
        )
    }

    /// Whether the provider's session knows the request at this place: of a phase where it was sent, of a state, which
    /// may have paused before anything was answered, where it called a tool.
    pub(super) fn was_interrupted(&self, place: RequestPlace) -> bool {
        let rules = self.state.rules;
        self.agent.history(|history| match rules {
            TurnRules::Phase => history.request(place).is_some(),
            TurnRules::State => !history.inline_steps(place).is_empty(),
        })
    }

    /// Runs the calls of the next recorded answer, for their effect.
    pub(super) fn replay_inline_calls(&mut self) -> Result<()> {
        let place = self.agent.place(self.state.index);
        let limits = self.call_limits();
        let Some(replay) = &self.model.replay else {
            return Ok(());
        };
        if !self.model.runs_tools_itself() {
            return Ok(());
        }
        let recorded = replay.conversations(self.agent.log.agent_id());
        for step in recorded.inline_steps(place) {
            self.agent.check_cancelled()?;
            match step {
                InlineStep::Restart => self.toolset.restart(),
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
                    self.toolset.call(self.agent, call, limits, Some(replay))?;
                }
            }
        }
        Ok(())
    }
}

/// The prompt for a session that was interrupted while it answered.
fn interruption_notice(
    history: &ConversationHistory,
    place: RequestPlace,
    restart: Option<&str>,
) -> Option<String> {
    history.request(place)?;
    let mut notice = restart.unwrap_or_default().to_owned();
    for step in history.inline_steps(place) {
        if let InlineStep::Call {
            number,
            tool,
            arguments,
        } = step
            && history.result(place, *number).is_none()
        {
            notice += &format!("\n[outcome unknown, and it was not repeated: {tool} {arguments}]");
        }
    }
    Some(notice + "\nGo on with the task.")
}
