//! Errors of requests are said once: the last one is held back until it is known whether the end that it leads to says
//! it, too, and one that is the same as before is not spelled out again.

use std::collections::BTreeMap;

use crate::events::Event;
use crate::observers::event_text::{EventText, few_lines};
use crate::observers::workflow_text::agent_of;

/// What was said of errors of requests, by agent.
#[derive(Default)]
pub(super) struct HeldErrors {
    /// The errors that no line has said.
    held: BTreeMap<String, HeldError>,
    /// The error after which the request is made again, without its digits: delays differ.
    last: BTreeMap<String, String>,
}

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
        let lines = self.shorter(event, lines);
        if let Event::ModelAnswered {
            agent_id,
            error: Some(error),
            ..
        } = event
        {
            let error = error.clone();
            self.held
                .insert(agent_id.clone(), HeldError { error, lines });
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

    /// The line of an error that is the same as the one before says so instead.
    fn shorter(&mut self, event: &Event, lines: EventText) -> EventText {
        let Event::ErrorOccurred {
            agent_id,
            error_message,
            is_retryable: true,
            ..
        } = event
        else {
            self.last.remove(agent_of(event));
            return lines;
        };
        let alike: String = error_message
            .chars()
            .filter(|c| !c.is_ascii_digit())
            .collect();
        let before = self.last.insert(agent_id.clone(), alike.clone());
        let parts = lines.text.split_once(&few_lines(error_message));
        match parts.filter(|_| before == Some(alike)) {
            Some((prefix, aside)) => EventText {
                text: format!("{prefix}the same error again{aside}"),
                ..lines
            },
            None => lines,
        }
    }

    fn take(&mut self, agent: &str) -> Vec<HeldError> {
        self.held.remove(agent).into_iter().collect()
    }

    fn finish(&mut self) -> Vec<HeldError> {
        std::mem::take(&mut self.held).into_values().collect()
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
