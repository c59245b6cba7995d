//! The tool calls of an answer, put together from pieces whose labels differ from server to server.
//!
//! By the book a piece names its call by `index`, and the first one has the id. Some servers give every whole call the
//! index 0 and an id of its own (Ollama), some repeat the id and give no index, some give neither.

use std::collections::HashMap;

use serde_json::Value;

use crate::llm::endpoint::{AnswerSize, refuse_intricate, tool_use};
use crate::llm::message::ContentBlock;

/// What a call under way takes in memory beside its arguments.
const CALL_OVERHEAD: usize = 256;

/// The calls so far, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct CallDrafts {
    calls: Vec<CallDraft>,
    /// The newest call of each index and of each id.
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
    /// The call that the last piece belonged to.
    last: usize,
    /// The index of a further call that has none.
    next_index: u64,
}

#[derive(Debug, Default)]
struct CallDraft {
    index: u64,
    id: String,
    name: String,
    arguments: String,
    shape: JsonShape,
}

/// One entry of `tool_calls`.
struct CallPiece<'a> {
    index: Option<u64>,
    id: &'a str,
    name: &'a str,
    arguments: String,
}

impl CallDrafts {
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes the calls of a whole message: each entry is one.
    pub fn take_whole(&mut self, entries: &Value, kept: &mut AnswerSize) -> Result<(), String> {
        for entry in entries.as_array().into_iter().flatten() {
            let piece = CallPiece::read(entry);
            let at = self.begin(&piece);
            self.add(at, piece, kept)?;
        }
        Ok(())
    }

    /// Takes the pieces of calls in one event of a stream.
    pub fn take_pieces(&mut self, entries: &Value, kept: &mut AnswerSize) -> Result<(), String> {
        for (position, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let piece = CallPiece::read(entry);
            let at = match self.find(&piece, position) {
                Some(at) if self.calls[at].is_repeated_by(&piece) => continue,
                Some(at) => at,
                None => self.begin(&piece),
            };
            self.add(at, piece, kept)?;
        }
        Ok(())
    }

    /// Returns the call that a piece belongs to, if that has begun.
    fn find(&self, piece: &CallPiece<'_>, position: usize) -> Option<usize> {
        let of_id = || self.by_id.get(piece.id).copied();
        let at = match piece.index {
            Some(index) => {
                let at = *self.by_index.get(&index)?;
                let is_other = !piece.id.is_empty()
                    && !self.calls[at].id.is_empty()
                    && piece.id != self.calls[at].id;
                if is_other {
                    of_id().filter(|at| self.calls[*at].index == index)
                } else {
                    Some(at)
                }
            }
            None if !piece.id.is_empty() => of_id(),
            // Without any label a further entry of the same event is another call.
            None => Some(self.last).filter(|last| position == 0 && *last < self.calls.len()),
        }?;
        // Nor is a whole call, with a name and without an id, a piece of the one before it.
        let is_next = piece.id.is_empty() && !piece.name.is_empty() && !piece.arguments.is_empty();
        (!(is_next && self.calls[at].shape.is_whole())).then_some(at)
    }

    fn begin(&mut self, piece: &CallPiece<'_>) -> usize {
        let index = piece.index.unwrap_or(self.next_index);
        self.next_index = self.next_index.max(index.saturating_add(1));
        self.calls.push(CallDraft {
            index,
            ..CallDraft::default()
        });
        self.by_index.insert(index, self.calls.len() - 1);
        self.calls.len() - 1
    }

    fn add(
        &mut self,
        at: usize,
        piece: CallPiece<'_>,
        kept: &mut AnswerSize,
    ) -> Result<(), String> {
        self.last = at;
        let call = &mut self.calls[at];
        if call.name.is_empty() && call.id.is_empty() && call.arguments.is_empty() {
            kept.add(CALL_OVERHEAD)?;
        }
        if call.id.is_empty() && !piece.id.is_empty() {
            kept.add(2 * piece.id.len())?;
            call.id = piece.id.to_owned();
            self.by_id.insert(piece.id.to_owned(), at);
        }
        if call.name.is_empty() {
            kept.add(piece.name.len())?;
            call.name = piece.name.to_owned();
        }
        kept.add_words(&piece.arguments)?;
        call.shape.extend(&piece.arguments);
        call.arguments.push_str(&piece.arguments);
        Ok(())
    }

    /// Returns the calls as blocks, by their index, or refuses arguments that are too intricate.
    pub fn finish(&mut self) -> Result<Vec<ContentBlock>, String> {
        refuse_intricate(self.calls.iter().map(|call| call.arguments.as_str()))?;
        let mut calls = std::mem::take(self).calls;
        calls.sort_by_key(|call| call.index);
        Ok(calls
            .into_iter()
            .enumerate()
            .map(|(number, call)| call.finish(number))
            .collect())
    }
}

impl<'a> CallPiece<'a> {
    fn read(entry: &'a Value) -> CallPiece<'a> {
        let function = &entry["function"];
        CallPiece {
            index: entry["index"].as_u64(),
            id: entry["id"].as_str().unwrap_or_default(),
            name: function["name"].as_str().unwrap_or_default(),
            arguments: match &function["arguments"] {
                Value::String(text) => text.clone(),
                Value::Null => String::new(),
                other => other.to_string(),
            },
        }
    }
}

impl CallDraft {
    /// Whether a piece is this call once more: some servers end with it.
    fn is_repeated_by(&self, piece: &CallPiece<'_>) -> bool {
        self.shape.is_whole() && !piece.id.is_empty() && piece.arguments == self.arguments
    }

    /// Its result has to name the call, so one without an id gets one.
    fn finish(self, number: usize) -> ContentBlock {
        let id = if self.id.is_empty() {
            format!("call_{number}")
        } else {
            self.id
        };
        tool_use(&id, &self.name, &self.arguments)
    }
}

/// How far a JSON object has come, as its text arrives.
#[derive(Debug, Default)]
struct JsonShape {
    depth: usize,
    in_text: bool,
    escaped: bool,
    was_open: bool,
}

impl JsonShape {
    fn extend(&mut self, text: &str) {
        for byte in text.bytes() {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_text,
                b'"' => self.in_text = !self.in_text,
                b'{' | b'[' if !self.in_text => {
                    self.depth += 1;
                    self.was_open = true;
                }
                b'}' | b']' if !self.in_text => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_whole(&self) -> bool {
        self.was_open && self.depth == 0 && !self.in_text
    }
}
