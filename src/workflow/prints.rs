//! Tells the prints of an output: while it streams as soon as they are certain, the others when it is complete.

use crate::conversation::event_log::EventLog;
use crate::error::Result;
use crate::events::Event;
use crate::workflow::tags::{PrintScanner, read_tags};

/// The prints of one agent's outputs.
pub(crate) struct PrintTeller {
    log: EventLog,
    scanner: PrintScanner,
    /// How many prints of the present output were told.
    told: usize,
    /// How many of them come again: the output has begun anew.
    repeated: usize,
}

impl PrintTeller {
    pub(crate) fn new(log: EventLog) -> PrintTeller {
        PrintTeller {
            log,
            scanner: PrintScanner::default(),
            told: 0,
            repeated: 0,
        }
    }

    /// The output begins anew; what was told is not told again.
    pub(crate) fn restart(&mut self) {
        self.scanner = PrintScanner::default();
        self.repeated = self.told;
    }

    /// Takes the next piece of the output.
    pub(crate) fn piece(&mut self, text: &str) -> Result<()> {
        for print in self.scanner.feed(text) {
            if self.repeated > 0 {
                self.repeated -= 1;
            } else {
                self.told += 1;
                self.tell(print)?;
            }
        }
        Ok(())
    }

    /// Tells what is left of a complete output; the next piece begins another one.
    pub(crate) fn finish(&mut self, text: &str) -> Result<()> {
        let told = std::mem::take(&mut self.told);
        self.scanner = PrintScanner::default();
        self.repeated = 0;
        let mut prints = read_tags(text).prints.into_iter().skip(told);
        prints.try_for_each(|print| self.tell(print))
    }

    fn tell(&self, text: String) -> Result<()> {
        self.log.record(Event::Print {
            agent_id: self.log.agent_id().to_owned(),
            text,
        })
    }
}
