//! Writes down, then tells: every event of a run goes through here, to the journal first and to the bus after.

use crate::error::Result;
use crate::events::bus::Bus;
use crate::events::{Event, MAIN_AGENT};
use crate::state::journal::Journal;

/// The one way in which a run says what happened.
pub struct EventLog {
    journal: Journal,
    bus: Bus,
    /// Stream pieces are written down only when somebody asked for them.
    journals_streams: bool,
    notes: Vec<String>,
}

impl EventLog {
    /// Returns a scribe; `notes` are those that the run has already.
    pub fn new(journal: Journal, bus: Bus, journals_streams: bool, notes: Vec<String>) -> EventLog {
        EventLog {
            journal,
            bus,
            journals_streams,
            notes,
        }
    }

    /// Writes an event down and tells it.
    pub fn record(&mut self, event: Event) -> Result<()> {
        let redacted = self.journal.append(&event)?;
        self.publish(redacted.as_ref().unwrap_or(&event));
        Ok(())
    }

    /// Like `tell`, and the line survives a power cut before anybody hears of it.
    pub fn record_synced(&mut self, event: Event) -> Result<()> {
        let redacted = self.journal.append(&event)?;
        self.journal.sync()?;
        self.publish(redacted.as_ref().unwrap_or(&event));
        Ok(())
    }

    /// Passes a piece of a stream on; without a wish for them the journal does not grow with their number.
    pub fn stream(&mut self, event: Event) -> Result<()> {
        if self.journals_streams {
            self.record(event)
        } else {
            Ok(())
        }
    }

    /// Shows something to the listeners alone, where somebody asked for such details; the journal tells it otherwise.
    pub fn publish_lazily(&mut self, event: impl FnOnce() -> Event) {
        if self.journals_streams
            && let Ok(event) = self.journal.redacted(&event())
        {
            self.publish(&event);
        }
    }

    /// Adds something that the user should know, once.
    pub fn note(&mut self, note: String) -> Result<()> {
        if self.notes.contains(&note) {
            return Ok(());
        }
        self.notes.push(note.clone());
        self.record(Event::NoteAdded {
            agent_id: MAIN_AGENT.into(),
            note,
        })
    }

    /// Tells behind which walls programs run; said at each start, and noted where less than everything holds.
    pub fn sandbox(&mut self, mode: &str, message: String, is_note: bool) -> Result<()> {
        if is_note && !self.notes.contains(&message) {
            self.notes.push(message.clone());
        }
        self.record(Event::SandboxFound {
            agent_id: MAIN_AGENT.into(),
            mode: mode.into(),
            message,
            is_note,
        })
    }

    /// Tells of progress.
    pub fn progress(&mut self, message: impl Into<String>) -> Result<()> {
        self.record(Event::ProgressMessage {
            agent_id: MAIN_AGENT.into(),
            message: message.into(),
        })
    }

    /// Returns how many lines the log has: the number of the last one.
    pub fn lines(&self) -> u64 {
        self.journal.lines()
    }

    /// Returns the notes of the run so far.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Tells the listeners; one that fails is told of once, and never stops a run.
    pub fn publish(&mut self, event: &Event) {
        self.bus.emit(event);
        for failure in self.bus.take_failures() {
            let note = format!("an observer failed: {failure}");
            if !self.notes.contains(&note) {
                self.notes.push(note.clone());
                self.bus.emit(&Event::NoteAdded {
                    agent_id: MAIN_AGENT.into(),
                    note,
                });
                self.bus.take_failures();
            }
        }
    }
}
