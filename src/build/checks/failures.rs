//! What failed and why: failures grouped by their message.
//!
//! A cause is a message; the places and the tests are listed under it, so that one missing function is reported once
//! and not for each of a hundred tests. The readers of `runners/` fill the groups; everything is bounded.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use crate::text::shorten::{cut_middle, first_bytes};

/// Why tests failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The first tests in order of appearance; a last entry counts the others.
    pub tests: Vec<String>,
    /// How many tests failed for this reason.
    pub count: usize,
    /// The message, then a line for each place where it occurred.
    pub text: String,
    /// The first places of it; a last entry counts the others.
    pub places: Vec<String>,
}

impl Cause {
    /// The first line of the message that has words.
    pub(crate) fn headline(&self) -> &str {
        let mut lines = self.text.lines().map(str::trim);
        lines.find(|line| !line.is_empty()).unwrap_or_default()
    }

    /// The places as `path:line`, relative to `folder` where they are in it.
    pub(crate) fn places_in(&self, folder: &Path) -> Vec<String> {
        let folder = format!("{}/", folder.display());
        let places = self.places.iter().map(|place| {
            let place = placed(place).map_or(place.as_str(), |(place, _)| place);
            place.strip_prefix(&folder).unwrap_or(place).to_owned()
        });
        places.collect()
    }
}

pub(super) const MAX_GROUPS: usize = 50;
pub(super) const MAX_TEXT: usize = 2048;
/// How many tests a cause names.
pub(super) const MAX_TESTS: usize = 20;
/// How many places a cause names.
const MAX_PLACES: usize = 10;
const MAX_NAME: usize = 300;
/// How many lines a message has at most; what follows is rarely the reason.
const MAX_LINES: usize = 40;

/// The causes found so far.
#[derive(Default)]
pub(super) struct CauseGroups {
    list: Vec<CauseGroup>,
    by_message: HashMap<String, usize>,
    seen: HashSet<(usize, String)>,
    /// Failures after the last group that is kept.
    left_out: usize,
}

struct CauseGroup {
    message: String,
    tests: BoundedNames,
    places: BoundedNames,
}

/// The first names of a list, and the number of the others.
struct BoundedNames {
    first: Vec<String>,
    most: usize,
    others: usize,
}

impl CauseGroups {
    /// Whether nothing has failed so far.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Adds a failure; the test and the place may be empty.
    pub(super) fn add(&mut self, test: &str, place: &str, message: &str) {
        let message = message.trim_end().trim_start_matches('\n');
        let message = cut_middle(
            if message.is_empty() {
                "failed, with no message"
            } else {
                message
            },
            MAX_TEXT / 2,
        );
        let Some(index) = self.index(normalised(&message), message) else {
            return;
        };
        let (test, place) = (
            clipped(test.trim()).to_owned(),
            clipped(place.trim()).to_owned(),
        );
        let group = &mut self.list[index];
        if !test.is_empty() && self.seen.insert((index, test.clone())) {
            group.tests.push(test);
        }
        if !place.is_empty() && self.seen.insert((index, format!("\n{place}"))) {
            group.places.push(place);
        }
    }

    fn index(&mut self, key: String, message: String) -> Option<usize> {
        if let Some(index) = self.by_message.get(&key) {
            return Some(*index);
        }
        if self.list.len() == MAX_GROUPS {
            self.left_out += 1;
            return None;
        }
        self.by_message.insert(key, self.list.len());
        self.list.push(CauseGroup {
            message,
            tests: BoundedNames::new(MAX_TESTS),
            places: BoundedNames::new(MAX_PLACES),
        });
        Some(self.list.len() - 1)
    }

    pub(super) fn finish(self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = self.list.into_iter().map(CauseGroup::finish).collect();
        if 0 < self.left_out {
            let text = format!("{} more failures are not listed", self.left_out);
            causes.push(Cause {
                tests: Vec::new(),
                count: self.left_out,
                text,
                places: Vec::new(),
            });
        }
        causes
    }
}

impl CauseGroup {
    fn finish(self) -> Cause {
        let places = self.places.finish();
        let listed: String = places
            .iter()
            .map(|place| format!("\n  at {place}"))
            .collect();
        let count = self.tests.first.len() + self.tests.others;
        Cause {
            tests: self.tests.finish(),
            count,
            text: cut_middle(&format!("{}{listed}", self.message), MAX_TEXT),
            places,
        }
    }
}

impl BoundedNames {
    fn new(most: usize) -> BoundedNames {
        BoundedNames {
            first: Vec::new(),
            most,
            others: 0,
        }
    }

    fn push(&mut self, name: String) {
        if self.first.len() < self.most {
            self.first.push(name);
        } else {
            self.others += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if 0 < self.others {
            self.first.push(format!("and {} more", self.others));
        }
        self.first
    }
}

/// The message without what differs between two occurrences of the same failure: addresses and times.
fn normalised(message: &str) -> String {
    let mut key = String::with_capacity(message.len());
    let mut rest = message;
    while let Some(start) = rest.find(|character: char| character.is_ascii_digit()) {
        key.push_str(&rest[..start]);
        rest = &rest[start..];
        let is_within_word =
            key.ends_with(|character: char| character.is_alphanumeric() || character == '_');
        let (length, stand_in) = number(rest);
        key.push_str(if is_within_word {
            &rest[..length]
        } else {
            stand_in.unwrap_or(&rest[..length])
        });
        rest = &rest[length..];
    }
    key + rest
}

/// The length of the number at the start of the text, and its replacement if it is an address or a time.
fn number(text: &str) -> (usize, Option<&'static str>) {
    let length_while =
        |text: &str, belongs: fn(&char) -> bool| text.chars().take_while(belongs).count();
    if let Some(address) = text.strip_prefix("0x") {
        return (
            2 + length_while(address, char::is_ascii_hexdigit),
            Some("0x_"),
        );
    }
    let digits = length_while(text, |character| {
        character.is_ascii_digit() || *character == '.'
    });
    let unit = length_while(&text[digits..], char::is_ascii_alphabetic);
    match &text[digits..digits + unit] {
        "s" | "ms" | "us" | "ns" => (digits + unit, Some("_s")),
        _ => (digits, None),
    }
}

/// Splits `a/b.py:12:5: rest` into its place and the rest: a path, a line, maybe a column.
pub(super) fn placed(line: &str) -> Option<(&str, &str)> {
    let (place, rest) = line
        .split_once(": ")
        .or_else(|| Some((line.strip_suffix(':')?, "")))?;
    let (path, number) = place.rsplit_once(':')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let is_path = |text: &str| {
        !text.is_empty() && !text.contains(char::is_whitespace) && !text.contains("://")
    };
    (is_number(number) && is_path(path)).then_some((place, rest))
}

/// The part of a name that is kept. A reader that copies a name for each line clips it first, to stay linear.
pub(super) fn clipped(name: &str) -> &str {
    first_bytes(name, MAX_NAME)
}

/// Adds a line to a message unless it is full.
pub(super) fn push_line(message: &mut Vec<String>, line: &str) {
    if message.len() < MAX_LINES {
        message.push(cut_middle(line, MAX_TEXT / 2));
    }
}
