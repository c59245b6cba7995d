//! The error of a request is held back until it is known whether the end that it leads to says it, too.

use std::collections::BTreeMap;

use crate::events::Event;
use crate::observers::event_text::EventText;
use crate::observers::workflow_text::agent_of;

/// The errors that no line has said, by agent.
#[derive(Default)]
pub(super) struct HeldErrors(BTreeMap<String, HeldError>);

struct HeldError {
    error: String,
    lines: EventText,
}

impl HeldErrors {
    /// The lines to write for an event that has these lines.
    pub(super) fn lines(&mut self, event: &Event, lines: Option<EventText>) -> Vec<EventText> {
        let Some(lines) = lines else {
            return Vec::new();
        };
        if let Event::ModelAnswered {
            agent_id,
            error: Some(error),
            ..
        } = event
        {
            let error = error.clone();
            self.0.insert(agent_id.clone(), HeldError { error, lines });
            return Vec::new();
        }
        let mut held = match agent_of(event) {
            "" => self.finish(),
            agent => self.take(agent),
        };
        if let Some(message) = end_message(event) {
            held.retain(|held| !message.contains(&held.error));
        }
        let held = held.into_iter().map(|held| held.lines);
        held.chain([lines]).collect()
    }

    /// What is left at the end.
    pub(super) fn remaining(&mut self) -> Vec<EventText> {
        let held = self.finish().into_iter();
        held.map(|held| held.lines).collect()
    }

    fn take(&mut self, agent: &str) -> Vec<HeldError> {
        self.0.remove(agent).into_iter().collect()
    }

    fn finish(&mut self) -> Vec<HeldError> {
        std::mem::take(&mut self.0).into_values().collect()
    }
}

/// What an event says of the end of a run or of an agent.
fn end_message(event: &Event) -> Option<&str> {
    match event {
        Event::WorkflowCompleted { message, .. }
        | Event::WorkflowPaused { message, .. }
        | Event::AgentFailed { message, .. }
        | Event::AgentPaused { message, .. } => Some(message),
        _ => None,
    }
}
