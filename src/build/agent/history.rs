//! What a log knows of conversations: how they began, what their calls came to, how they ended.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use crate::events::{Bound, Event, FileMark, RequestPlace};
use crate::state::phase::Phase;

/// What a call of a tool came to; one that did not run says why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallResult {
    pub ran: bool,
    pub is_error: bool,
    pub output: String,
    pub screen: String,
}

/// How a conversation ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClosedConversation {
    pub words: String,
    /// Commands that were still running, each with its environment.
    pub killed: Vec<String>,
    pub bound: Option<Bound>,
}

/// What happened while an answer was being made.
#[derive(Debug, Clone, PartialEq)]
pub enum InlineStep {
    /// A call began.
    Call {
        number: u32,
        tool: String,
        arguments: Value,
    },
    Restart,
}

/// What calls changed in the files since a conversation began.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedChanges {
    /// By path: each as it was last recorded.
    pub marks: BTreeMap<String, FileMark>,
    /// Some call's changes were not recorded.
    pub is_incomplete: bool,
}

impl RecordedChanges {
    fn add(&mut self, changed: Option<Vec<FileMark>>) {
        self.is_incomplete |= changed.is_none();
        self.marks.extend(
            changed
                .into_iter()
                .flatten()
                .map(|mark| (mark.path.clone(), mark)),
        );
    }
}

/// The conversations of a run, by phase and place.
#[derive(Debug, Default)]
pub struct ConversationHistory {
    opened: HashMap<(Phase, u32), BTreeMap<String, String>>,
    begun: HashSet<(RequestPlace, u32)>,
    /// The tool of each call.
    tools: HashMap<(RequestPlace, u32), String>,
    /// What happened in the course of one answer, in order.
    courses: HashMap<RequestPlace, Vec<InlineStep>>,
    results: HashMap<(RequestPlace, u32), CallResult>,
    /// With the words that the request has.
    restarts: HashMap<RequestPlace, String>,
    changed: HashMap<(Phase, u32), RecordedChanges>,
    closed: HashMap<(Phase, u32), ClosedConversation>,
    last: Option<(Phase, u32)>,
}

impl ConversationHistory {
    /// Takes in one event.
    pub fn apply(&mut self, event: Event) {
        match event {
            Event::ConversationOpened {
                phase,
                retry_count,
                files,
                ..
            } => {
                self.opened.insert((phase, retry_count), files);
                self.changed
                    .insert((phase, retry_count), RecordedChanges::default());
            }
            Event::ToolCalled {
                place,
                call,
                tool_name,
                arguments,
                ..
            } => {
                self.begun.insert((place, call));
                self.tools.insert((place, call), tool_name.clone());
                let step = InlineStep::Call {
                    number: call,
                    tool: tool_name,
                    arguments,
                };
                self.courses.entry(place).or_default().push(step);
            }
            Event::ToolReturned {
                place,
                call,
                tool_name,
                ran,
                is_error,
                output,
                screen,
                changed,
                ..
            } => {
                self.changed
                    .entry((place.phase, place.retry_count))
                    .or_default()
                    .add(changed);
                self.tools.insert((place, call), tool_name);
                self.results.insert(
                    (place, call),
                    CallResult {
                        ran,
                        is_error,
                        output,
                        screen,
                    },
                );
            }
            Event::EnvironmentsRestarted {
                place,
                words,
                changed,
                ..
            } => {
                self.changed
                    .entry((place.phase, place.retry_count))
                    .or_default()
                    .add(changed);
                self.restarts.insert(place, words);
                self.courses
                    .entry(place)
                    .or_default()
                    .push(InlineStep::Restart);
            }
            Event::ConversationClosed {
                phase,
                retry_count,
                words,
                killed,
                bound,
                ..
            } => {
                self.closed.insert(
                    (phase, retry_count),
                    ClosedConversation {
                        words,
                        killed,
                        bound,
                    },
                );
                self.last = Some((phase, retry_count));
            }
            _ => {}
        }
    }

    /// Returns the files with which the conversation of a phase began.
    pub fn files(&self, phase: Phase, retry_count: u32) -> Option<&BTreeMap<String, String>> {
        self.opened.get(&(phase, retry_count))
    }

    /// Whether a call had begun.
    pub fn has_begun(&self, place: RequestPlace, call: u32) -> bool {
        self.begun.contains(&(place, call))
    }

    /// Whether some call began and has no result: what it did is not known, and no replay does it.
    pub fn has_unknown_outcomes(&self) -> bool {
        self.begun
            .iter()
            .any(|call| !self.results.contains_key(call))
    }

    /// Returns what happened while the answer at this place was being made, in order.
    pub fn inline_steps(&self, place: RequestPlace) -> &[InlineStep] {
        self.courses.get(&place).map_or(&[], Vec::as_slice)
    }

    /// Returns the number of a call at this place that the log does not know.
    pub fn next_number(&self, place: RequestPlace) -> u32 {
        let known = self.tools.keys().filter(|(of, _)| *of == place);
        known.map(|(_, number)| number + 1).max().unwrap_or(0)
    }

    /// Returns the tool that a call named.
    pub fn tool(&self, place: RequestPlace, call: u32) -> Option<&str> {
        self.tools.get(&(place, call)).map(String::as_str)
    }

    /// Returns what a call came to.
    pub fn result(&self, place: RequestPlace, call: u32) -> Option<&CallResult> {
        self.results.get(&(place, call))
    }

    /// Returns the words with which the request at this place tells of a restart, if it does; empty ones where an
    /// older version did not record them.
    pub fn restart(&self, place: RequestPlace) -> Option<&str> {
        self.restarts.get(&place).map(String::as_str)
    }

    /// Returns what calls changed since the conversation of a phase began, as far as that was recorded.
    pub fn changed(&self, phase: Phase, retry_count: u32) -> Option<&RecordedChanges> {
        self.changed.get(&(phase, retry_count))
    }

    /// Returns how the conversation of a phase ended, if it did.
    pub fn closed(&self, phase: Phase, retry_count: u32) -> Option<&ClosedConversation> {
        self.closed.get(&(phase, retry_count))
    }

    /// Returns how the last conversation ended.
    pub fn last_closed(&self) -> Option<&ClosedConversation> {
        self.closed.get(&self.last?)
    }
}
