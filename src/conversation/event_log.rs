//! The log of a run: the one way in which anything that happens is recorded.
//!
//! Recording an event appends it to the journal, applies it to the projections, then publishes it on the bus. Live and
//! after a crash the same folds decide. Handles are clones of one log, one per agent, and may be used by several threads.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::conversation::log_state::LogState;
use crate::error::Result;
use crate::events::bus::Bus;
use crate::events::{Event, RequestPlace};
use crate::state::journal::Journal;

/// A fold over the events of a log, beside [`LogState`]: what one kind of run knows.
pub trait Projection: Send {
    /// Applies one event, the `line`th of the log.
    fn apply(&mut self, line: u64, event: &Event);
}

/// A projection that the log and its reader share.
pub(crate) type SharedProjection = Arc<Mutex<dyn Projection>>;

/// A handle on the log, for one agent.
#[derive(Clone)]
pub(crate) struct EventLog {
    agent_id: Arc<str>,
    shared: Arc<Mutex<SharedLog>>,
    /// Notified when an event is recorded, and by `wake`.
    changed: Arc<Condvar>,
}

/// Whether an event may be recorded now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// Once something else has been recorded it may be.
    Wait,
}

struct SharedLog {
    journal: Journal,
    bus: Bus,
    /// Whether stream pieces and whole prompts are wanted (`--debug`).
    has_details: bool,
    has_live_view: bool,
    state: LogState,
    facts: SharedProjection,
    /// Observers that failed; not part of the log, since an observer cannot change a run.
    observer_failures: Vec<String>,
}

/// What a log is opened with: the journal and the projections of the lines that it has.
pub(crate) struct OpenedLog {
    pub journal: Journal,
    pub bus: Bus,
    pub has_details: bool,
    /// Whether an observer shows what is going on between the lines of the log.
    pub has_live_view: bool,
    pub state: LogState,
    pub facts: SharedProjection,
}

impl EventLog {
    pub(crate) fn new(agent_id: &str, opened: OpenedLog) -> EventLog {
        let OpenedLog {
            journal,
            bus,
            has_details,
            has_live_view,
            state,
            facts,
        } = opened;
        EventLog {
            agent_id: agent_id.into(),
            shared: Arc::new(Mutex::new(SharedLog {
                journal,
                bus,
                has_details,
                has_live_view,
                state,
                facts,
                observer_failures: Vec::new(),
            })),
            changed: Arc::default(),
        }
    }

    /// A handle on the same log for another agent.
    pub(crate) fn for_agent(&self, agent_id: &str) -> EventLog {
        EventLog {
            agent_id: agent_id.into(),
            shared: Arc::clone(&self.shared),
            changed: Arc::clone(&self.changed),
        }
    }

    pub(crate) fn agent_id(&self) -> &str {
        &self.agent_id
    }

    fn shared(&self) -> MutexGuard<'_, SharedLog> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn record(&self, event: Event) -> Result<()> {
        self.record_now(event, false)
    }

    fn record_now(&self, event: Event, is_synced: bool) -> Result<()> {
        let recorded = self.shared().record(event, is_synced);
        self.changed.notify_all();
        recorded
    }

    /// Makes every `record_when` that waits check again.
    pub(crate) fn wake(&self) {
        drop(self.shared());
        self.changed.notify_all();
    }

    /// Like `record`; the line survives a power cut before anything acts on it.
    pub(crate) fn record_synced(&self, event: Event) -> Result<()> {
        self.record_now(event, true)
    }

    /// Makes everything that was recorded durable. Lines of several acts share one sync: each act waits for the sync after
    /// its own line.
    pub(crate) fn sync(&self) -> Result<()> {
        self.shared().journal.sync()
    }

    /// Like `record_synced`, once `check` says that it may be, and unless it objects; nothing else is recorded in between.
    /// Returns the number of the line.
    pub(crate) fn record_when(
        &self,
        event: Event,
        mut check: impl FnMut(&LogState) -> Result<Readiness>,
    ) -> Result<u64> {
        let mut shared = self.shared();
        while check(&shared.state)? == Readiness::Wait {
            let waited = self.changed.wait(shared);
            shared = waited.unwrap_or_else(PoisonError::into_inner);
        }
        shared.record(event, true)?;
        let line = shared.journal.lines();
        drop(shared);
        self.changed.notify_all();
        Ok(line)
    }

    /// Makes all lines durable, and reads the projection with their number: a saved copy of it must not refer to lines
    /// that a power cut takes. `read` must not use the log.
    pub(crate) fn read_durable<R>(&self, read: impl FnOnce(u64, &LogState) -> R) -> Result<R> {
        let mut shared = self.shared();
        shared.journal.sync()?;
        Ok(read(shared.journal.lines(), &shared.state))
    }

    /// Records a piece of a stream where details are wanted.
    pub(crate) fn stream(&self, event: impl FnOnce() -> Event) -> Result<()> {
        let mut shared = self.shared();
        if !shared.has_details {
            return Ok(());
        }
        shared.record(event(), false)
    }

    /// Publishes something that only a live view shows, if there is one.
    pub(crate) fn show(&self, event: impl FnOnce() -> Option<Event>) {
        let mut shared = self.shared();
        if shared.has_live_view
            && let Some(event) = event()
            && let Ok(event) = shared.journal.redacted(&event)
        {
            shared.publish(&event);
        }
    }

    /// Publishes something that the journal holds in another form, where details are wanted.
    pub(crate) fn publish_detail(&self, event: impl FnOnce() -> Event) {
        let mut shared = self.shared();
        if shared.has_details
            && let Ok(event) = shared.journal.redacted(&event())
        {
            shared.publish(&event);
        }
    }

    /// Publishes an event that is not part of the log: the end of this process's work.
    pub(crate) fn publish(&self, event: &Event) {
        self.shared().publish(event);
    }

    /// Records a note for the user, once.
    pub(crate) fn note(&self, note: String) -> Result<()> {
        let mut shared = self.shared();
        if shared.has_note(&note) {
            return Ok(());
        }
        let agent_id = self.agent_id().into();
        shared.record(Event::NoteAdded { agent_id, note }, false)
    }

    pub(crate) fn progress(&self, message: impl Into<String>) -> Result<()> {
        self.record(Event::ProgressMessage {
            agent_id: self.agent_id().into(),
            message: message.into(),
        })
    }

    /// Reads the projection. `read` must not use the log.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&LogState) -> R) -> R {
        read(&self.shared().state)
    }

    /// Drops what this agent's log says at a place from memory: this process has used it, and a later one reads the file.
    pub(crate) fn drop_contents(&self, place: RequestPlace) {
        self.shared().state.drop_contents(self.agent_id(), place);
    }

    /// The notes of the run so far, with observers that failed.
    pub(crate) fn notes(&self) -> Vec<String> {
        let shared = self.shared();
        let notes = shared.state.notes().iter();
        notes.chain(&shared.observer_failures).cloned().collect()
    }
}

impl SharedLog {
    fn record(&mut self, event: Event, is_synced: bool) -> Result<()> {
        let redacted = self.journal.append(&event)?;
        if is_synced {
            self.journal.sync()?;
        }
        let event = redacted.unwrap_or(event);
        let line = self.journal.lines();
        self.state.apply(line, &event);
        let mut facts = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        facts.apply(line, &event);
        drop(facts);
        self.publish(&event);
        Ok(())
    }

    fn has_note(&self, note: &String) -> bool {
        self.state.notes().contains(note) || self.observer_failures.contains(note)
    }

    /// Publishes on the bus. An observer that fails is reported once, and never stops a run.
    fn publish(&mut self, event: &Event) {
        self.bus.emit(event);
        for failure in self.bus.take_failures() {
            let note = format!("an observer failed: {failure}");
            if !self.has_note(&note) {
                self.observer_failures.push(note.clone());
                self.bus.emit(&Event::NoteAdded {
                    agent_id: crate::events::MAIN_AGENT.into(),
                    note,
                });
                self.bus.take_failures();
            }
        }
    }
}
