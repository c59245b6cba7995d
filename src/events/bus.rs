//! Event bus: delivers each event to its subscribers, in the order of subscription.
//!
//! Synchronous, because handlers only write a line somewhere. A handler that fails or panics is noted and does not
//! stop the run; the journal, whose failure must stop it, is not a handler.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::Event;

/// Errors of handlers are only noted.
pub(crate) type HandlerResult = Result<(), Box<dyn std::error::Error>>;

/// Identifies a subscription for `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Subscription(u64);

struct Handler {
    id: Subscription,
    is_wanted: fn(&Event) -> bool,
    on_event: Box<dyn FnMut(&Event) -> HandlerResult + Send>,
}

#[derive(Default)]
pub(crate) struct Bus {
    handlers: Vec<Handler>,
    next_id: u64,
    failures: Vec<String>,
}

impl Bus {
    /// Subscribes a handler to the kinds of events that `is_wanted` selects.
    pub(crate) fn on(
        &mut self,
        is_wanted: fn(&Event) -> bool,
        on_event: impl FnMut(&Event) -> HandlerResult + Send + 'static,
    ) -> Subscription {
        self.next_id += 1;
        let id = Subscription(self.next_id);
        self.handlers.push(Handler {
            id,
            is_wanted,
            on_event: Box::new(on_event),
        });
        id
    }

    /// Ends a subscription; idempotent.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "observers of a command listen until it ends")
    )]
    pub(crate) fn off(&mut self, id: Subscription) {
        self.handlers.retain(|handler| handler.id != id);
    }

    /// Delivers an event to every subscriber of its kind.
    pub(crate) fn emit(&mut self, event: &Event) {
        for handler in &mut self.handlers {
            if !(handler.is_wanted)(event) {
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| (handler.on_event)(event))) {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => self.failures.push(failure.to_string()),
                Err(_) => self.failures.push("a handler panicked".to_owned()),
            }
        }
    }

    /// Takes the failures of handlers since the last call.
    pub(crate) fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn progress(message: &str) -> Event {
        Event::ProgressMessage {
            agent_id: "main".into(),
            message: message.into(),
        }
    }

    fn is_progress(event: &Event) -> bool {
        matches!(event, Event::ProgressMessage { .. })
    }

    fn is_note(event: &Event) -> bool {
        matches!(event, Event::NoteAdded { .. })
    }

    fn listener(
        received: &Arc<Mutex<Vec<String>>>,
        name: &'static str,
    ) -> impl FnMut(&Event) -> HandlerResult + Send + 'static {
        let received = received.clone();
        move |event| {
            let Event::ProgressMessage { message, .. } = event else {
                return Err("unexpected event".into());
            };
            received.lock().unwrap().push(format!("{name}:{message}"));
            Ok(())
        }
    }

    #[test]
    fn subscribers_of_the_kind_get_the_event_in_order() {
        let received = Arc::default();
        let mut bus = Bus::default();
        bus.on(is_progress, listener(&received, "a"));
        bus.on(is_progress, listener(&received, "b"));
        bus.on(is_note, listener(&received, "c"));
        bus.emit(&progress("x"));
        assert_eq!(*received.lock().unwrap(), ["a:x", "b:x"]);
    }

    #[test]
    fn off_ends_one_subscription_and_is_idempotent() {
        let received = Arc::default();
        let mut bus = Bus::default();
        let first = bus.on(is_progress, listener(&received, "a"));
        bus.on(is_progress, listener(&received, "b"));
        bus.off(first);
        bus.off(first);
        bus.emit(&progress("x"));
        assert_eq!(*received.lock().unwrap(), ["b:x"]);
    }

    #[test]
    fn a_failing_or_panicking_handler_is_noted_and_the_others_run() {
        let received = Arc::default();
        let mut bus = Bus::default();
        bus.on(is_progress, |_| Err("disk full".into()));
        bus.on(is_progress, |_| panic!("boom"));
        bus.on(is_progress, listener(&received, "a"));
        bus.emit(&progress("x"));
        assert_eq!(*received.lock().unwrap(), ["a:x"]);
        let failures = bus.take_failures();
        assert_eq!(failures.len(), 2);
        assert_eq!(failures[0], "disk full");
        assert!(bus.take_failures().is_empty());
    }

    #[test]
    fn an_event_without_subscribers_is_ignored() {
        Bus::default().emit(&progress("x"));
    }
}
