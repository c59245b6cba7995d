//! Records the prints of an output: while it streams as soon as they are certain, the others when it is complete.

use crate::conversation::event_log::EventLog;
use crate::error::Result;
use crate::events::Event;
use crate::workflow::tags::{PrintScanner, read_tags};

/// The prints of one agent's outputs.
pub(crate) struct PrintRecorder {
    log: EventLog,
    scanner: PrintScanner,
    /// How many prints of the present output were recorded.
    recorded: usize,
    /// How many of them come again: the output was restarted.
    repeated: usize,
}

impl PrintRecorder {
    pub(crate) fn new(log: EventLog) -> PrintRecorder {
        PrintRecorder {
            log,
            scanner: PrintScanner::default(),
            recorded: 0,
            repeated: 0,
        }
    }

    /// The output starts again from its beginning; its prints are not recorded twice.
    pub(crate) fn restart(&mut self) {
        self.scanner = PrintScanner::default();
        self.repeated = self.recorded;
    }

    /// Takes the next piece of the output.
    pub(crate) fn piece(&mut self, text: &str) -> Result<()> {
        for print in self.scanner.feed(text) {
            if self.repeated > 0 {
                self.repeated -= 1;
            } else {
                self.recorded += 1;
                self.record(print)?;
            }
        }
        Ok(())
    }

    /// Records the remaining prints of a complete output; the next piece begins another one.
    pub(crate) fn finish(&mut self, text: &str) -> Result<()> {
        let recorded = std::mem::take(&mut self.recorded);
        self.scanner = PrintScanner::default();
        self.repeated = 0;
        let mut prints = read_tags(text).prints.into_iter().skip(recorded).peekable();
        if prints.peek().is_some() {
            // The output is durable before the user sees what it prints.
            self.log.sync()?;
        }
        prints.try_for_each(|print| self.record(print))
    }

    fn record(&self, text: String) -> Result<()> {
        self.log.record(Event::Print {
            agent_id: self.log.agent_id().to_owned(),
            text,
        })
    }
}
