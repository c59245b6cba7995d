//! What was read and is not yet answered, and the thread that reads it.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::environments::registry::{Action, Urgent};
use crate::server::protocol::{Malformed, Request, Wish, parse};

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
        Queue { state: Mutex::default(), changed: Condvar::new(), waker }
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
        self.change(|state| state.items.push_back(item));
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
                return Some(item);
            }
            if state.is_closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
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
        let begun = state.begun.get(environment).copied().unwrap_or_default();
        let taken = state.taken;
        let mut is_next = true;
        for (index, item) in state.items.iter_mut().enumerate() {
            match item {
                Item::Request { request, is_done } if request.environment == environment && !*is_done => {
                    match request.wish {
                        Wish::Control(action) if action.is_urgent() && (is_next || begun <= taken + index) => {
                            *is_done = true;
                            return if action == Action::Restart { Urgent::Restart } else { Urgent::Interrupt };
                        }
                        _ => is_next = false,
                    }
                }
                _ => {}
            }
        }
        Urgent::Nothing
    }
}

/// Reads lines until there are no more.
pub fn read_lines(mut input: impl BufRead, queue: &Queue) {
    let mut line = Vec::new();
    loop {
        match read_line(&mut input, &mut line) {
            Line::End => return queue.change(|state| state.is_closed = true),
            Line::TooLong => {
                let message = format!("Failed to parse command: the line is longer than {LONGEST_LINE} bytes");
                queue.push(Item::Malformed(Malformed { id: None, message }));
            }
            Line::Whole if line.iter().all(u8::is_ascii_whitespace) => {}
            Line::Whole => queue.push(match parse(&line) {
                Ok(request) => Item::Request { request, is_done: false },
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
