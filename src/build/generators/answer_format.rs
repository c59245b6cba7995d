//! The answer format of files mode: blocks of whole files, and deletions, in any text around them.
//!
//! A pure parser of foreign text. It finds the blocks; `fault.rs` has what is wrong with them as an answer. Whether a
//! path is safe and fits the workspace is checked elsewhere.

pub(crate) mod fault;
mod fence;
mod lines;
mod tags;
#[cfg(test)]
mod tests;

use fence::{is_markdown, without_fence};
use lines::line_at;
pub(crate) use tags::compile_patterns;
use tags::{ClosingLines, OpeningTag, deleted_path};

use crate::conversation::state::without_thinking;

const THINKING_END: &str = "</think>";

/// One block of an answer, its path as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileBlock {
    Write { path: String, content: String },
    Delete { path: String },
}

impl FileBlock {
    pub fn path(&self) -> &str {
        match self {
            FileBlock::Write { path, .. } | FileBlock::Delete { path } => path,
        }
    }
}

/// The blocks of an answer, an unclosed one included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedAnswer {
    pub blocks: Vec<FileBlock>,
    /// The closing line that is missing after the last block.
    pub unclosed: Option<String>,
}

/// Finds the blocks of an answer.
pub fn parse(text: &str) -> ParsedAnswer {
    let text = without_thinking(text);
    let lines = ClosingLines::find(text);
    let mut reply = ParsedAnswer::default();
    // Blocks before this index are part of the thinking.
    let mut first = 0;
    let mut at = 0;
    while let Some(line) = line_at(text, at) {
        at = line.next;
        if !line.text.contains('<') {
            continue;
        } else if let Some(tag) = OpeningTag::read(line.text) {
            let closing = lines.closing(tag.end, line.next);
            let content = &text[line.next..closing.map_or(text.len(), |(start, _)| start)];
            let content = if is_markdown(tag.path) {
                content
            } else {
                without_fence(content)
            };
            reply.blocks.push(FileBlock::Write {
                path: tag.path.to_owned(),
                content: content.to_owned(),
            });
            reply.unclosed = closing.is_none().then(|| tag.end.to_owned());
            at = closing.map_or(text.len(), |(_, next)| next);
        } else if let Some(path) = deleted_path(line.text) {
            reply.blocks.push(FileBlock::Delete {
                path: path.to_owned(),
            });
        } else if line.text.trim() == THINKING_END {
            // Some servers drop the opening tag.
            first = reply.blocks.len();
        }
    }
    if first < reply.blocks.len() {
        reply.blocks.drain(..first);
    }
    reply
}
