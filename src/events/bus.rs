//! The bus: who subscribed to a kind of event is told of it, in the order of subscription.
//!
//! Synchronous, because handlers only write a line somewhere. A handler that fails or panics is noted and never
//! breaks the run: the journal, which must not fail, is no handler.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{Event, EventKind};

/// What a handler answers: an error is noted, nothing more.
pub type HandlerResult = Result<(), String>;

/// Names one subscription, for `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Subscription(u64);

struct Handler {
    id: Subscription,
    kind: EventKind,
    tell: Box<dyn FnMut(&Event) -> HandlerResult>,
}

/// Delivers events.
#[derive(Default)]
pub struct Bus {
    handlers: Vec<Handler>,
    next_id: u64,
    failures: Vec<String>,
}

impl Bus {
    /// Subscribes a handler to one kind of event.
    pub fn on(
        &mut self,
        kind: EventKind,
        tell: impl FnMut(&Event) -> HandlerResult + 'static,
    ) -> Subscription {
        self.next_id += 1;
        let id = Subscription(self.next_id);
        self.handlers.push(Handler {
            id,
            kind,
            tell: Box::new(tell),
        });
        id
    }

    /// Ends a subscription; one that has ended already is no error.
    pub fn off(&mut self, id: Subscription) {
        self.handlers.retain(|handler| handler.id != id);
    }

    /// Tells every subscriber of the event's kind.
    pub fn emit(&mut self, event: &Event) {
        let kind = event.kind();
        for handler in self
            .handlers
            .iter_mut()
            .filter(|handler| handler.kind == kind)
        {
            let told = catch_unwind(AssertUnwindSafe(|| (handler.tell)(event)));
            match told {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => self.failures.push(failure),
                Err(_) => self
                    .failures
                    .push(format!("a handler of {kind:?} panicked")),
            }
        }
    }

    /// Takes what handlers failed with since the last call.
    pub fn take_failures(&mut self) -> Vec<String> {
        std::mem::take(&mut self.failures)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use super::*;

    fn progress(message: &str) -> Event {
        Event::ProgressMessage {
            agent_id: "main".into(),
            message: message.into(),
        }
    }

    fn listener(
        heard: &Rc<RefCell<Vec<String>>>,
        name: &'static str,
    ) -> impl FnMut(&Event) -> HandlerResult + 'static {
        let heard = heard.clone();
        move |event| {
            let Event::ProgressMessage { message, .. } = event else {
                return Err("not mine".into());
            };
            heard.borrow_mut().push(format!("{name}:{message}"));
            Ok(())
        }
    }

    #[test]
    fn every_subscriber_of_the_kind_hears_it_in_order() {
        let heard = Rc::default();
        let mut bus = Bus::default();
        bus.on(EventKind::ProgressMessage, listener(&heard, "a"));
        bus.on(EventKind::ProgressMessage, listener(&heard, "b"));
        bus.on(EventKind::NoteAdded, listener(&heard, "c"));
        bus.emit(&progress("x"));
        assert_eq!(*heard.borrow(), ["a:x", "b:x"]);
    }

    #[test]
    fn off_ends_one_subscription_and_is_idempotent() {
        let heard = Rc::default();
        let mut bus = Bus::default();
        let first = bus.on(EventKind::ProgressMessage, listener(&heard, "a"));
        bus.on(EventKind::ProgressMessage, listener(&heard, "b"));
        bus.off(first);
        bus.off(first);
        bus.emit(&progress("x"));
        assert_eq!(*heard.borrow(), ["b:x"]);
    }

    #[test]
    fn a_failing_or_panicking_handler_is_noted_and_the_others_still_hear() {
        let heard = Rc::default();
        let mut bus = Bus::default();
        bus.on(EventKind::ProgressMessage, |_| Err("no room".into()));
        bus.on(EventKind::ProgressMessage, |_| panic!("boom"));
        bus.on(EventKind::ProgressMessage, listener(&heard, "a"));
        bus.emit(&progress("x"));
        assert_eq!(*heard.borrow(), ["a:x"]);
        let failures = bus.take_failures();
        assert_eq!(failures.len(), 2);
        assert_eq!(failures[0], "no room");
        assert!(bus.take_failures().is_empty());
    }

    #[test]
    fn nobody_listening_is_fine() {
        Bus::default().emit(&progress("x"));
    }
}
