//! The queue of requests that were read and not answered yet, and the thread that fills it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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
pub struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
    waker: UnixStream,
}

#[derive(Default)]
struct QueueState {
    items: VecDeque<QueueItem>,
    /// How many items were taken out.
    taken: usize,
    /// Interrupts and restarts that have not taken effect, by how many items were read before them.
    urgent: VecDeque<usize>,
    /// How many had been read when the last command of an environment began.
    begun: BTreeMap<String, usize>,
    /// The input has ended.
    is_closed: bool,
    /// Nothing more is answered.
    is_over: bool,
}

impl Queue {
    /// `waker` gets a byte at every change.
    pub fn new(waker: UnixStream) -> Queue {
        Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker,
        }
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        change(&mut self.state());
        self.changed.notify_all();
        // If the stream is full, its reader is woken anyway.
        let _ = (&self.waker).write(b".");
    }

    fn push(&self, item: QueueItem) {
        self.change(|state| {
            if matches!(&item, QueueItem::Request { request, .. } if request.urgent().is_some()) {
                state.urgent.push_back(state.taken + state.items.len());
            }
            state.items.push_back(item);
        });
    }

    /// Ends the queue: what is in it is not answered.
    pub fn end_at_once(&self) {
        self.change(|state| state.is_over = true);
    }

    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Waits for the next item; `None` at the end.
    pub fn next(&self) -> Option<QueueItem> {
        let mut state = self.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Some(item) = state.items.pop_front() {
                state.taken += 1;
                while state
                    .urgent
                    .front()
                    .is_some_and(|number| *number < state.taken)
                {
                    state.urgent.pop_front();
                }
                return Some(item);
            }
            if state.is_closed {
                return None;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Records that a command of this environment begins.
    pub fn begin(&self, environment: &str) {
        let mut state = self.state();
        let read = state.taken + state.items.len();
        state.begun.insert(environment.to_owned(), read);
    }

    /// Takes the action for the command that runs in this environment: an interrupt or restart that is the next request
    /// for it, or that was read after the command began, even if other requests for it come first.
    pub fn take_urgent(&self, environment: &str) -> UrgentAction {
        let mut state = self.state();
        let QueueState {
            items,
            taken,
            urgent,
            begun,
            ..
        } = &mut *state;
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

/// Reads lines into the queue until the input ends.
pub fn read_lines(mut input: impl BufRead, queue: &Queue) {
    let mut line = Vec::new();
    loop {
        match read_line(&mut input, &mut line) {
            InputLine::End => return queue.change(|state| state.is_closed = true),
            InputLine::TooLong => {
                let problem = RequestProblem::TooLong;
                queue.push(QueueItem::Malformed(MalformedRequest { id: None, problem }));
            }
            InputLine::Whole if line.iter().all(u8::is_ascii_whitespace) => {}
            InputLine::Whole => queue.push(match parse(&line) {
                Ok(request) => QueueItem::Request {
                    request,
                    is_done: false,
                },
                Err(malformed) => QueueItem::Malformed(malformed),
            }),
        }
        line = Vec::new();
    }
}

enum InputLine {
    Whole,
    TooLong,
    End,
}

/// Reads one line without its newline, which the last line may lack.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> InputLine {
    let mut is_long = false;
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => &[],
            Ok(available) => available,
        };
        if available.is_empty() {
            return match (is_long, line.is_empty()) {
                (true, _) => InputLine::TooLong,
                (false, true) => InputLine::End,
                (false, false) => InputLine::Whole,
            };
        }
        let end = available.iter().position(|byte| *byte == b'\n');
        let piece = &available[..end.unwrap_or(available.len())];
        is_long |= LONGEST_LINE < line.len() + piece.len();
        if is_long {
            line.clear();
        } else {
            line.extend_from_slice(piece);
        }
        let used = end.map_or(available.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return if is_long {
                InputLine::TooLong
            } else {
                InputLine::Whole
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with these requests: environment and command, or environment and `!` with an action.
    fn queue(requests: &[(&str, &str)]) -> (Queue, UnixStream) {
        let (wake, waker) = UnixStream::pair().unwrap();
        let queue = Queue::new(waker);
        requests
            .iter()
            .for_each(|(environment, action)| push(&queue, environment, action));
        (queue, wake)
    }

    fn push(queue: &Queue, environment: &str, action: &str) {
        let request = match action.strip_prefix('!') {
            Some(action) => {
                serde_json::json!({"type": "control", "environment": environment, "action": action})
            }
            None => {
                serde_json::json!({"type": "command", "environment": environment, "command": action})
            }
        };
        queue.push(QueueItem::Request {
            request: parse(request.to_string().as_bytes()).unwrap(),
            is_done: false,
        });
    }

    fn done(queue: &Queue) -> Option<bool> {
        queue
            .next()
            .map(|item| matches!(item, QueueItem::Request { is_done: true, .. }))
    }

    #[test]
    fn the_next_request_for_an_environment_is_urgent_once() {
        let (queue, _wake) = queue(&[
            ("a", "x"),
            ("b", "x"),
            ("a", "!interrupt"),
            ("a", "!restart"),
        ]);
        assert_eq!(done(&queue), Some(false));
        queue.begin("a");
        assert_eq!(queue.take_urgent("b"), UrgentAction::Nothing);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Interrupt);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        assert_eq!(
            [done(&queue), done(&queue), done(&queue)],
            [Some(false), Some(true), Some(true)]
        );
    }

    #[test]
    fn an_interrupt_overtakes_only_if_it_was_read_after_the_command_began() {
        let (queue, _wake) = queue(&[("a", "x"), ("a", "y"), ("a", "!interrupt")]);
        done(&queue);
        queue.begin("a");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        push(&queue, "a", "!restart");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
        done(&queue);
        queue.begin("a");
        assert_eq!(queue.take_urgent("a"), UrgentAction::Interrupt);
    }

    #[test]
    fn a_request_that_was_taken_is_not_urgent() {
        let (queue, _wake) = queue(&[("a", "!interrupt"), ("a", "!wait"), ("a", "!restart")]);
        queue.begin("a");
        done(&queue);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Nothing);
        done(&queue);
        assert_eq!(queue.take_urgent("a"), UrgentAction::Restart);
    }
}
