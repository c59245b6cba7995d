//! The queue of requests that were read and not answered yet.

use std::collections::{BTreeMap, VecDeque};

use crate::environments::registry::UrgentAction;
use crate::server::protocol::{
    LONGEST_LINE, MalformedRequest, RequestProblem, ServeRequest, parse,
};

/// A line to answer.
#[derive(Debug)]
pub enum QueueItem {
    Malformed(MalformedRequest),
    /// `is_done`: it was urgent and took effect at once. It is still answered in its turn.
    Request {
        request: ServeRequest,
        is_done: bool,
    },
}

impl QueueItem {
    /// Whether it is for this environment and has not taken effect.
    fn waits_for(&self, environment: &str) -> bool {
        matches!(self, QueueItem::Request { request, is_done: false } if request.environment == environment)
    }
}

/// Requests in the order in which they were read.
#[derive(Debug, Default)]
pub struct Queue {
    items: VecDeque<QueueItem>,
    /// How many items were taken out.
    taken: usize,
    /// Interrupts and restarts that have not taken effect, by how many items were read before them.
    urgent: VecDeque<usize>,
    /// How many had been read when the last command of an environment began.
    begun: BTreeMap<String, usize>,
    /// The beginning of a line.
    line: Vec<u8>,
    /// The line is too long and is skipped.
    is_too_long: bool,
    is_closed: bool,
}

impl Queue {
    /// Adds input, split anywhere.
    pub fn push(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let end = memchr::memchr(b'\n', bytes);
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.is_too_long |= LONGEST_LINE < self.line.len() + piece.len();
            if self.is_too_long {
                self.line = Vec::new();
            } else {
                self.line.extend_from_slice(piece);
            }
            if end.is_some() {
                self.end_line();
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
    }

    /// Ends the input; its last line may lack a newline.
    pub fn close(&mut self) {
        self.end_line();
        self.is_closed = true;
    }

    /// Whether the input has ended.
    pub fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        if std::mem::take(&mut self.is_too_long) {
            let problem = RequestProblem::TooLong;
            self.add(QueueItem::Malformed(MalformedRequest { id: None, problem }));
        } else if !line.iter().all(u8::is_ascii_whitespace) {
            self.add(match parse(&line) {
                Ok(request) => QueueItem::Request {
                    request,
                    is_done: false,
                },
                Err(malformed) => QueueItem::Malformed(malformed),
            });
        }
    }

    fn add(&mut self, item: QueueItem) {
        if matches!(&item, QueueItem::Request { request, .. } if request.urgent().is_some()) {
            self.urgent.push_back(self.taken + self.items.len());
        }
        self.items.push_back(item);
    }

    /// Takes the next item.
    pub fn take(&mut self) -> Option<QueueItem> {
        let item = self.items.pop_front()?;
        self.taken += 1;
        while self
            .urgent
            .front()
            .is_some_and(|number| *number < self.taken)
        {
            self.urgent.pop_front();
        }
        Some(item)
    }

    /// Records that a command of this environment begins.
    pub fn begin(&mut self, environment: &str) {
        let read = self.taken + self.items.len();
        match self.begun.get_mut(environment) {
            Some(begun) => *begun = read,
            None => drop(self.begun.insert(environment.to_owned(), read)),
        }
    }

    /// Takes the action for the command that runs in this environment: an interrupt or restart that is the next request
    /// for it, or that was read after the command began, even if other requests for it come first.
    pub fn take_urgent(&mut self, environment: &str) -> UrgentAction {
        let Queue {
            items,
            taken,
            urgent,
            begun,
            ..
        } = self;
        let begun = begun.get(environment).copied().unwrap_or_default();
        let is_for_it = |item: &QueueItem| item.waits_for(environment);
        let found = urgent.iter().position(|number| {
            let index = *number - *taken;
            items.get(index).is_some_and(is_for_it)
                && (begun <= *number || !items.range(..index).any(is_for_it))
        });
        let number = found.and_then(|found| urgent.remove(found));
        match number.and_then(|number| items.get_mut(number - *taken)) {
            Some(QueueItem::Request { request, is_done }) => {
                *is_done = true;
                request.urgent().unwrap_or(UrgentAction::Nothing)
            }
            _ => UrgentAction::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with these requests: environment and command, or environment and `!` with an action.
    fn queue(requests: &[(&str, &str)]) -> Queue {
        let mut queue = Queue::default();
        requests
            .iter()
            .for_each(|(environment, action)| push(&mut queue, environment, action));
        queue
    }

    fn push(queue: &mut Queue, environment: &str, action: &str) {
        let request = match action.strip_prefix('!') {
            Some(action) => {
                serde_json::json!({"type": "control", "environment": environment, "action": action})
            }
            None => {
                serde_json::json!({"type": "command", "environment": environment, "command": action})
            }
        };
        queue.push(format!("{request}\n").as_bytes());
    }

    fn done(queue: &mut Queue) -> Option<bool> {
        queue
            .take()
            .map(|item| matches!(item, QueueItem::Request { is_done: true, .. }))
    }

    #[test]
    fn the_next_request_for_an_environment_is_urgent_once() {
        let mut queue = queue(&[
            ("a", "x"),
            ("b", "x"),
            ("a", "!interrupt"),
            ("a", "!restart"),
        ]);
        assert_eq!(done(&mut queue), Some(false));
        queue.begin("a");
        assert_eq!(queue.take_urgent("b"), UrgentAction::Nothing);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Interrupt);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        assert_eq!(
            [done(&mut queue), done(&mut queue), done(&mut queue)],
            [Some(false), Some(true), Some(true)]
        );
    }

    #[test]
    fn an_interrupt_overtakes_only_if_it_was_read_after_the_command_began() {
        let mut queue = queue(&[("a", "x"), ("a", "y"), ("a", "!interrupt")]);
        done(&mut queue);
        queue.begin("a");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        push(&mut queue, "a", "!restart");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
        done(&mut queue);
        queue.begin("a");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Interrupt);
    }

    #[test]
    fn a_request_that_was_taken_is_not_urgent() {
        let mut queue = queue(&[("a", "!interrupt"), ("a", "!wait"), ("a", "!restart")]);
        queue.begin("a");
        done(&mut queue);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        done(&mut queue);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
    }
}
