//! The projection of a run's log that every kind of run shares: conversations, usage, notes.
//!
//! It is a fold: the same events give the same state, live and after a crash.

use crate::conversation::history::{ConversationHistory, Histories};
use crate::conversation::usage::UsageLog;
use crate::events::{Event, RequestPlace};

/// The state that follows from the events of a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogState {
    histories: Histories,
    usage: UsageLog,
    notes: Vec<String>,
    /// The files of the exchanges so far are on disk: once the run has moved on, they are not looked up again.
    is_applied: bool,
}

impl LogState {
    /// Applies one event, the `line`th of the log.
    pub fn apply(&mut self, line: u64, event: &Event) {
        self.usage.apply(event);
        self.histories.apply(line, event);
        match event {
            Event::NoteAdded { note, .. } => self.add_note(note),
            Event::SandboxFound {
                message,
                is_note: true,
                ..
            } => self.add_note(message),
            Event::FilesApplied { .. } => self.is_applied = true,
            Event::TransitionOccurred { .. } if std::mem::take(&mut self.is_applied) => {
                self.histories.forget_exchanges();
            }
            _ => {}
        }
    }

    fn add_note(&mut self, note: &String) {
        if !self.notes.contains(note) {
            self.notes.push(note.clone());
        }
    }

    /// What the log says of the conversations of an agent.
    pub fn conversations(&self, agent_id: &str) -> &ConversationHistory {
        self.histories.of(agent_id)
    }

    pub fn histories(&self) -> &Histories {
        &self.histories
    }

    /// Drops what was said at a place, see [`Histories::drop_contents`].
    pub(crate) fn drop_contents(&mut self, agent_id: &str, place: RequestPlace) {
        self.histories.drop_contents(agent_id, place);
    }

    pub fn usage(&self) -> &UsageLog {
        &self.usage
    }

    pub fn usage_mut(&mut self) -> &mut UsageLog {
        &mut self.usage
    }

    pub fn notes(&self) -> &[String] {
        &self.notes
    }
}
