//! Assembles the tool calls of an answer from pieces that servers label differently.
//!
//! In the specification a piece names its call by `index`, and the first piece has the id. Some servers send every call
//! whole, with index 0 and its own id (Ollama), some repeat the id and send no index, some send neither.

use std::collections::HashMap;

use serde_json::Value;

use crate::llm::assembly::{AnswerSize, AssemblyError, check_arguments, tool_use};
use crate::llm::json::StringScanner;
use crate::llm::message::ContentBlock;

/// The memory that an unfinished call takes beside its arguments.
const CALL_OVERHEAD: usize = 256;

/// The unfinished calls, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct CallDrafts {
    calls: Vec<CallDraft>,
    /// The newest call of each index and of each id.
    by_index: HashMap<u64, usize>,
    by_id: HashMap<String, usize>,
    /// The call of the last piece.
    last: usize,
    /// The index of the next call that comes without one.
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
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// Takes the calls of a whole message, one for each entry.
    pub(super) fn take_whole(
        &mut self,
        entries: &Value,
        size: &mut AnswerSize,
    ) -> Result<(), AssemblyError> {
        for entry in entries.as_array().into_iter().flatten() {
            let piece = CallPiece::read(entry);
            let at = self.begin(&piece);
            self.add(at, piece, size)?;
        }
        Ok(())
    }

    /// Takes the pieces of calls in one event of a stream.
    pub(super) fn take_pieces(
        &mut self,
        entries: &Value,
        size: &mut AnswerSize,
    ) -> Result<(), AssemblyError> {
        for (position, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let piece = CallPiece::read(entry);
            let at = match self.find(&piece, position) {
                Some(at) if self.calls[at].is_repeated_by(&piece) => continue,
                Some(at) => at,
                None => self.begin(&piece),
            };
            self.add(at, piece, size)?;
        }
        Ok(())
    }

    /// Returns the unfinished call that a piece belongs to.
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
            // Without a label, each further entry of one event is another call.
            None => Some(self.last).filter(|last| position == 0 && *last < self.calls.len()),
        }?;
        // A piece with a name and arguments but no id is a new call, if the call before it is complete.
        let is_next = piece.id.is_empty() && !piece.name.is_empty() && !piece.arguments.is_empty();
        (!(is_next && self.calls[at].shape.is_complete())).then_some(at)
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
        size: &mut AnswerSize,
    ) -> Result<(), AssemblyError> {
        self.last = at;
        let call = &mut self.calls[at];
        if call.name.is_empty() && call.id.is_empty() && call.arguments.is_empty() {
            size.keep(CALL_OVERHEAD)?;
        }
        if call.id.is_empty() && !piece.id.is_empty() {
            size.keep(2 * piece.id.len())?;
            call.id = piece.id.to_owned();
            self.by_id.insert(piece.id.to_owned(), at);
        }
        if call.name.is_empty() {
            size.keep(piece.name.len())?;
            call.name = piece.name.to_owned();
        }
        size.keep_written(&piece.arguments)?;
        call.shape.extend(&piece.arguments);
        call.arguments.push_str(&piece.arguments);
        Ok(())
    }

    /// Returns the calls as blocks, in the order of their index.
    pub(super) fn finish(&mut self) -> Result<Vec<ContentBlock>, AssemblyError> {
        check_arguments(self.calls.iter().map(|call| call.arguments.as_str()))?;
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
    /// Whether a piece repeats this call: some servers send it whole at the end.
    fn is_repeated_by(&self, piece: &CallPiece<'_>) -> bool {
        self.shape.is_complete() && !piece.id.is_empty() && piece.arguments == self.arguments
    }

    /// A call without an id gets one: its result has to name the call.
    fn finish(self, number: usize) -> ContentBlock {
        let id = if self.id.is_empty() {
            format!("call_{number}")
        } else {
            self.id
        };
        tool_use(&id, &self.name, &self.arguments)
    }
}

/// Tracks whether the text of a JSON object is complete, as it arrives.
#[derive(Debug, Default)]
struct JsonShape {
    depth: usize,
    strings: StringScanner,
    was_open: bool,
}

impl JsonShape {
    fn extend(&mut self, text: &str) {
        for byte in text.bytes() {
            if !self.strings.is_outside(byte) {
                continue;
            }
            match byte {
                b'{' | b'[' => {
                    self.depth += 1;
                    self.was_open = true;
                }
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
        }
    }

    fn is_complete(&self) -> bool {
        self.was_open && self.depth == 0 && !self.strings.in_string()
    }
}
