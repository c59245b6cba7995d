//! Failures in a JUnit report on the output.

use super::super::xml::{XmlPiece, attribute, decoded, junit_document, pieces};
use super::{CauseGroups, clipped, push_line};

/// Reads the test cases with a failure or an error.
pub fn junit(text: &str, groups: &mut CauseGroups) {
    let Some(document) = junit_document(text) else {
        return;
    };
    let mut case = JunitCase::default();
    let mut failure: Option<JunitFailure> = None;
    for piece in pieces(document) {
        match piece {
            XmlPiece::Open {
                name: "testcase",
                attributes,
                ..
            } => case = JunitCase::read(attributes),
            XmlPiece::Open {
                name: "failure" | "error",
                attributes,
                is_empty,
            } => {
                let message = attribute(attributes, "message").unwrap_or_default();
                let found = JunitFailure {
                    message,
                    text: Vec::new(),
                };
                if is_empty {
                    found.finish(&case, groups)
                } else {
                    failure = Some(found)
                }
            }
            XmlPiece::Close {
                name: "failure" | "error",
            } => {
                if let Some(found) = failure.take() {
                    found.finish(&case, groups);
                }
            }
            XmlPiece::Text(text) => keep(&mut failure, &decoded(text)),
            XmlPiece::Verbatim(text) => keep(&mut failure, text),
            _ => {}
        }
    }
}

fn keep(failure: &mut Option<JunitFailure>, text: &str) {
    if let Some(failure) = failure {
        text.trim()
            .lines()
            .for_each(|line| push_line(&mut failure.text, line));
    }
}

#[derive(Default)]
struct JunitCase {
    name: String,
    place: String,
}

impl JunitCase {
    fn read(attributes: &str) -> Self {
        let value = |name| attribute(attributes, name).unwrap_or_default();
        let (class, name) = (value("classname"), value("name"));
        let name = if class.is_empty() {
            name
        } else {
            format!("{class}.{name}")
        };
        let (file, line) = (value("file"), value("line"));
        let place = if line.is_empty() {
            file
        } else {
            format!("{file}:{line}")
        };
        Self {
            name: clipped(&name).to_owned(),
            place: clipped(&place).to_owned(),
        }
    }
}

struct JunitFailure {
    message: String,
    text: Vec<String>,
}

impl JunitFailure {
    /// The message is what the runner thinks matters; the text stands in where there is none.
    fn finish(self, case: &JunitCase, groups: &mut CauseGroups) {
        let message = if self.message.trim().is_empty() {
            self.text.join("\n")
        } else {
            self.message
        };
        groups.add(&case.name, &case.place, &message);
    }
}
