//! Failures in the output of unknown programs: tracebacks, thrown errors, and `file:line: error: message`.

use super::traceback::Traceback;
use crate::build::checks::failures::{CauseGroups, placed};

pub(super) fn failures(text: &str, groups: &mut CauseGroups) {
    let mut traceback = Traceback::default();
    let mut thrown: Option<ThrownError> = None;
    for line in text.lines() {
        traceback.take(line);
        if !traceback.message.is_empty() {
            // Only the first line after the frames certainly belongs to it.
            let found = std::mem::take(&mut traceback);
            groups.add("", &found.place(), &found.message.join("\n"));
        } else if let Some(place) = line.trim_start().strip_prefix("at ") {
            thrown.iter_mut().for_each(|thrown| thrown.take(place));
        } else {
            if let Some(whole) = thrown.take_if(|thrown| !thrown.place.is_empty()) {
                groups.add("", whole.place, whole.message);
            }
            if let Some((place, message)) = compiler_error(line) {
                groups.add("", place, message);
            } else if is_thrown(line.trim_start()) {
                thrown = Some(ThrownError {
                    message: line.trim(),
                    place: "",
                });
            }
        }
    }
    if let Some(whole) = thrown.filter(|thrown| !thrown.place.is_empty()) {
        groups.add("", whole.place, whole.message);
    }
}

/// An error with the first frame of its stack, or the first outside of libraries.
struct ThrownError<'a> {
    message: &'a str,
    place: &'a str,
}

impl<'a> ThrownError<'a> {
    fn take(&mut self, place: &'a str) {
        if self.place.is_empty() || (is_of_a_library(self.place) && !is_of_a_library(place)) {
            self.place = place;
        }
    }
}

/// Whether a frame of a JavaScript stack is in the runtime or in a package.
pub(super) fn is_of_a_library(place: &str) -> bool {
    place.contains("node:internal") || place.contains("node_modules/")
}

/// `x.c:1:20: error: message`, `a.ts(3,5): error TS2304: message`, `x.py:3: error: message`.
fn compiler_error(line: &str) -> Option<(&str, &str)> {
    let is_error = |message: &str| {
        ["error", "fatal error", "Error"]
            .iter()
            .any(|word| message.starts_with(word))
    };
    let found = placed(line).or_else(|| {
        let (place, message) = line.split_once("): ")?;
        place
            .rsplit_once('(')
            .filter(|(path, numbers)| !path.is_empty() && numbers.contains(','))?;
        Some((&line[..=place.len()], message))
    });
    found.filter(|(_, message)| is_error(message))
}

/// `TypeError: message`, `AssertionError [ERR_ASSERTION]: message`, `java.lang.IllegalStateException: message`.
fn is_thrown(line: &str) -> bool {
    let name = line.split([':', ' ']).next().unwrap_or_default();
    (name.ends_with("Error") || name.ends_with("Exception")) && line.contains(':')
}
