//! What was read and is not yet answered, and the thread that reads it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::environments::registry::Urgent;
use crate::server::protocol::{Malformed, Request, parse};

/// A line longer than this is skipped to its end.
const LONGEST_LINE: usize = 128 << 20;

/// Something to answer.
#[derive(Debug)]
pub enum Item {
    Malformed(Malformed),
    /// `is_done`: it was urgent and acted at once; its answer keeps its place.
    Request {
        request: Request,
        is_done: bool,
    },
}

impl Item {
    /// Whether it is said to this environment and has not acted.
    fn waits_for(&self, environment: &str) -> bool {
        matches!(self, Item::Request { request, is_done: false } if request.environment == environment)
    }
}

/// Requests in the order in which they were read.
pub struct Queue {
    state: Mutex<State>,
    changed: Condvar,
    waker: UnixStream,
}

#[derive(Default)]
struct State {
    items: VecDeque<Item>,
    /// How many items were taken out.
    taken: usize,
    /// Interrupts and restarts that have not acted, by how many items were read before them.
    urgent: VecDeque<usize>,
    /// How many had been read when the last command of an environment began.
    begun: BTreeMap<String, usize>,
    /// No more will come.
    is_closed: bool,
    /// Everything ends, answered or not.
    is_over: bool,
}

impl Queue {
    /// Returns an empty queue; `waker` gets a byte whenever somebody who waits should look.
    pub fn new(waker: UnixStream) -> Queue {
        Queue {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
        // A full stream has woken enough.
        let _ = (&self.waker).write(b".");
    }

    fn push(&self, item: Item) {
        self.change(|state| {
            if matches!(&item, Item::Request { request, .. } if request.urgent().is_some()) {
                state.urgent.push_back(state.taken + state.items.len());
            }
            state.items.push_back(item);
        });
    }

    /// Says that everything ends now.
    pub fn end_at_once(&self) {
        self.change(|state| state.is_over = true);
    }

    /// Whether everything ends now.
    pub fn is_over(&self) -> bool {
        self.state().is_over
    }

    /// Waits for the next item; none is the end.
    pub fn next(&self) -> Option<Item> {
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

    /// Notes that a command has begun.
    pub fn begin(&self, environment: &str) {
        let mut state = self.state();
        let read = state.taken + state.items.len();
        state.begun.insert(environment.to_owned(), read);
    }

    /// Takes what should happen at once to the command that runs in this environment: an interrupt or restart that is
    /// the next thing said to it, or that was read after the command began, whatever waits before it.
    pub fn take_urgent(&self, environment: &str) -> Urgent {
        let mut state = self.state();
        let State {
            items,
            taken,
            urgent,
            begun,
            ..
        } = &mut *state;
        let begun = begun.get(environment).copied().unwrap_or_default();
        let is_for_it = |item: &Item| item.waits_for(environment);
        let found = urgent.iter().position(|number| {
            let index = *number - *taken;
            items.get(index).is_some_and(is_for_it)
                && (begun <= *number || !items.range(..index).any(is_for_it))
        });
        let number = found.and_then(|found| urgent.remove(found));
        match number.and_then(|number| items.get_mut(number - *taken)) {
            Some(Item::Request { request, is_done }) => {
                *is_done = true;
                request.urgent().unwrap_or(Urgent::Nothing)
            }
            _ => Urgent::Nothing,
        }
    }
}

/// Reads lines until there are no more.
pub fn read_lines(mut input: impl BufRead, queue: &Queue) {
    let mut line = Vec::new();
    loop {
        match read_line(&mut input, &mut line) {
            Line::End => return queue.change(|state| state.is_closed = true),
            Line::TooLong => {
                let message = format!(
                    "Failed to parse command: the line is longer than {LONGEST_LINE} bytes"
                );
                queue.push(Item::Malformed(Malformed { id: None, message }));
            }
            Line::Whole if line.iter().all(u8::is_ascii_whitespace) => {}
            Line::Whole => queue.push(match parse(&line) {
                Ok(request) => Item::Request {
                    request,
                    is_done: false,
                },
                Err(malformed) => Item::Malformed(malformed),
            }),
        }
        line = Vec::new();
    }
}

enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads one line without its newline; a last one may lack it.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> Line {
    let mut is_long = false;
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => &[],
            Ok(available) => available,
        };
        if available.is_empty() {
            return match (is_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Whole,
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
            return if is_long { Line::TooLong } else { Line::Whole };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with these requests: environment and command, or environment and `!` and an action.
    fn queue(requests: &[(&str, &str)]) -> (Queue, UnixStream) {
        let (wake, waker) = UnixStream::pair().unwrap();
        let queue = Queue::new(waker);
        requests
            .iter()
            .for_each(|(environment, wish)| push(&queue, environment, wish));
        (queue, wake)
    }

    fn push(queue: &Queue, environment: &str, wish: &str) {
        let request = match wish.strip_prefix('!') {
            Some(action) => {
                serde_json::json!({"type": "control", "environment": environment, "action": action})
            }
            None => {
                serde_json::json!({"type": "command", "environment": environment, "command": wish})
            }
        };
        queue.push(Item::Request {
            request: parse(request.to_string().as_bytes()).unwrap(),
            is_done: false,
        });
    }

    fn done(queue: &Queue) -> Option<bool> {
        queue
            .next()
            .map(|item| matches!(item, Item::Request { is_done: true, .. }))
    }

    #[test]
    fn the_next_thing_said_to_an_environment_is_urgent_once() {
        let (queue, _wake) = queue(&[
            ("a", "x"),
            ("b", "x"),
            ("a", "!interrupt"),
            ("a", "!restart"),
        ]);
        assert_eq!(done(&queue), Some(false));
        queue.begin("a");
        assert_eq!(queue.take_urgent("b"), Urgent::Nothing);
        assert_eq!(queue.take_urgent("a"), Urgent::Interrupt);
        assert_eq!(queue.take_urgent("a"), Urgent::Restart);
        assert_eq!(queue.take_urgent("a"), Urgent::Nothing);
        assert_eq!(
            [done(&queue), done(&queue), done(&queue)],
            [Some(false), Some(true), Some(true)]
        );
    }

    #[test]
    fn what_was_read_before_a_command_began_waits_behind_others_and_what_came_later_does_not() {
        let (queue, _wake) = queue(&[("a", "x"), ("a", "y"), ("a", "!interrupt")]);
        done(&queue);
        queue.begin("a");
        assert_eq!(queue.take_urgent("a"), Urgent::Nothing);
        push(&queue, "a", "!restart");
        assert_eq!(queue.take_urgent("a"), Urgent::Restart);
        done(&queue);
        queue.begin("a");
        assert_eq!(queue.take_urgent("a"), Urgent::Interrupt);
    }

    #[test]
    fn what_was_taken_out_is_urgent_no_more() {
        let (queue, _wake) = queue(&[("a", "!interrupt"), ("a", "!wait"), ("a", "!restart")]);
        queue.begin("a");
        done(&queue);
        assert_eq!(queue.take_urgent("a"), Urgent::Nothing);
        done(&queue);
        assert_eq!(queue.take_urgent("a"), Urgent::Restart);
    }
}
