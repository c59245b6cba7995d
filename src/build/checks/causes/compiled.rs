//! Failures of Rust: errors of the compiler, panics of tests, tests that return an error.

use super::{CauseGroups, clipped, push_line};

/// Reads the output of cargo test and nextest.
pub fn cargo(text: &str, groups: &mut CauseGroups) {
    let mut reader = CargoFailures {
        groups,
        state: CargoState::Outside,
        test: String::new(),
        has_panicked: false,
        said: Vec::new(),
    };
    text.lines().for_each(|line| reader.take(line));
    reader.end_test();
    reader.end();
}

enum CargoState {
    Outside,
    /// After `panicked at place:`, up to an empty line or the backtrace.
    Panic {
        test: String,
        place: String,
        message: Vec<String>,
    },
    /// After `error[E0425]: ...`, up to an empty line; an error without a place is cargo's, and no cause.
    Error {
        place: String,
        message: Vec<String>,
    },
}

struct CargoFailures<'a> {
    groups: &'a mut CauseGroups,
    state: CargoState,
    /// The test whose captured output we are in, if any; whether it told a panic, and what else it said.
    test: String,
    has_panicked: bool,
    said: Vec<String>,
}

impl CargoFailures<'_> {
    fn take(&mut self, line: &str) {
        let trimmed = line.trim_start();
        if let Some(test) = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"))
        {
            self.end_test();
            clipped(test).clone_into(&mut self.test);
        } else if line == "failures:" || line.starts_with("test result: ") {
            self.end_test();
        } else if let Some(panic) = panicked(trimmed) {
            self.end();
            self.has_panicked = true;
            let is_named = !self.test.is_empty() && panic.thread == "main";
            let test = if is_named {
                self.test.clone()
            } else {
                panic.thread.to_owned()
            };
            self.state = CargoState::Panic {
                test,
                place: panic.place,
                message: panic.message,
            };
        } else if line.starts_with("error: ") || line.starts_with("error[") {
            self.end();
            self.state = CargoState::Error {
                place: String::new(),
                message: vec![line.to_owned()],
            };
        } else {
            self.follow(line, trimmed);
        }
    }

    fn follow(&mut self, line: &str, trimmed: &str) {
        let is_end = trimmed.is_empty()
            || trimmed == "stack backtrace:"
            || trimmed.starts_with("note: run with `RUST_");
        if is_end {
            self.end();
            return;
        }
        match &mut self.state {
            CargoState::Panic { message, .. } => push_line(message, line),
            CargoState::Error { place, .. } if place.is_empty() && trimmed.starts_with("--> ") => {
                trimmed[4..].clone_into(place);
            }
            CargoState::Error { message, .. } => push_line(message, line),
            CargoState::Outside if !self.test.is_empty() && !self.has_panicked => {
                push_line(&mut self.said, line)
            }
            CargoState::Outside => {}
        }
    }

    fn end(&mut self) {
        match std::mem::replace(&mut self.state, CargoState::Outside) {
            CargoState::Panic {
                test,
                place,
                message,
            } => self.groups.add(&test, &place, &dedented(&message)),
            CargoState::Error { place, message } if !place.is_empty() => {
                self.groups.add("", &place, &message.join("\n"))
            }
            CargoState::Error { .. } | CargoState::Outside => {}
        }
    }

    /// A test that failed without a panic says why in what it printed last.
    fn end_test(&mut self) {
        self.end();
        if !self.test.is_empty() && !self.has_panicked {
            self.groups.add(&self.test, "", &self.said.join("\n"));
        }
        self.test.clear();
        self.said.clear();
        self.has_panicked = false;
    }
}

struct Panicked<'a> {
    thread: &'a str,
    place: String,
    message: Vec<String>,
}

/// `thread 'name' (12) panicked at src/lib.rs:9:39:`, or as it was once: `panicked at 'message', src/lib.rs:9:39`.
fn panicked(line: &str) -> Option<Panicked<'_>> {
    let (name, rest) = line.strip_prefix("thread '")?.split_once(" panicked at ")?;
    let (thread, _) = name.split_once('\'')?;
    if let Some((message, place)) = rest
        .strip_prefix('\'')
        .and_then(|rest| rest.rsplit_once("', "))
    {
        return Some(Panicked {
            thread,
            place: place.to_owned(),
            message: vec![message.to_owned()],
        });
    }
    Some(Panicked {
        thread,
        place: rest.strip_suffix(':')?.to_owned(),
        message: Vec::new(),
    })
}

/// Nextest indents what a test said.
fn dedented(message: &[String]) -> String {
    let first = message.first().map_or("", String::as_str);
    let indentation = &first[..first.len() - first.trim_start().len()];
    let lines: Vec<&str> = message
        .iter()
        .map(|line| line.strip_prefix(indentation).unwrap_or(line))
        .collect();
    lines.join("\n")
}
