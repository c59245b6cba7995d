//! The queue of requests that were read and not answered yet.

use crate::environments::registry::UrgentAction;
use crate::server::lines::{InputLine, LineSplitter};
use crate::server::order::{OrderedRequest, QueuedItem, RequestOrder};
use crate::server::protocol::{MalformedRequest, RequestProblem, ServeRequest, parse};
use crate::server::streams::InputQueue;

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

impl OrderedRequest for Result<ServeRequest, MalformedRequest> {
    fn environment(&self) -> Option<&str> {
        self.as_ref()
            .ok()
            .map(|request| request.environment.as_str())
    }

    fn urgent(&self) -> Option<UrgentAction> {
        self.as_ref().ok().and_then(ServeRequest::urgent)
    }
}

/// Requests in the order in which they were read.
#[derive(Debug, Default)]
pub struct Queue {
    order: RequestOrder<Result<ServeRequest, MalformedRequest>>,
    lines: LineSplitter,
    is_closed: bool,
}

impl Queue {
    /// Adds input, split anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        let lines = self.lines.push(bytes);
        lines.into_iter().for_each(|line| self.add(line));
    }

    /// Ends the input; its last line may lack a newline.
    pub fn close(&mut self) {
        if let Some(line) = self.lines.end() {
            self.add(line);
        }
        self.is_closed = true;
    }

    fn add(&mut self, line: InputLine) {
        self.order.add(match line {
            InputLine::Text(line) => parse(&line),
            InputLine::TooLong => Err(MalformedRequest {
                id: None,
                problem: RequestProblem::TooLong,
            }),
        });
    }

    /// Takes the next item.
    pub fn take(&mut self) -> Option<QueueItem> {
        let QueuedItem { request, is_done } = self.order.take()?;
        Some(match request {
            Ok(request) => QueueItem::Request { request, is_done },
            Err(malformed) => QueueItem::Malformed(malformed),
        })
    }

    /// How many requests have been read.
    pub fn read_count(&self) -> usize {
        self.order.read_count()
    }

    /// Records that a command of this environment has begun when so many requests had been read.
    pub fn begin(&mut self, environment: &str, read: usize) {
        self.order.begin(environment, read);
    }

    /// Takes the action for the command that runs in this environment.
    pub fn take_urgent(&mut self, environment: &str) -> UrgentAction {
        self.order.take_urgent(environment)
    }
}

impl InputQueue for Queue {
    type Item = QueueItem;

    fn push(&mut self, bytes: &[u8]) {
        Queue::push(self, bytes);
    }

    fn close(&mut self) {
        Queue::close(self);
    }

    fn is_closed(&self) -> bool {
        self.is_closed
    }

    fn take(&mut self) -> Option<QueueItem> {
        Queue::take(self)
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
        queue.begin("a", queue.read_count());
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
        queue.begin("a", queue.read_count());
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        push(&mut queue, "a", "!restart");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
        done(&mut queue);
        queue.begin("a", queue.read_count());
        assert_eq!(queue.take_urgent("a"), UrgentAction::Interrupt);
    }

    #[test]
    fn an_interrupt_that_is_read_while_the_command_begins_overtakes() {
        let mut queue = queue(&[("a", "x")]);
        done(&mut queue);
        let read = queue.read_count();
        push(&mut queue, "a", "y");
        push(&mut queue, "a", "!interrupt");
        queue.begin("a", read);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Interrupt);
    }

    #[test]
    fn a_request_that_was_taken_is_not_urgent() {
        let mut queue = queue(&[("a", "!interrupt"), ("a", "!wait"), ("a", "!restart")]);
        queue.begin("a", queue.read_count());
        done(&mut queue);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        done(&mut queue);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
    }
}
