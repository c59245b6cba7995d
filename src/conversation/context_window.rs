//! The messages of a conversation, and how they are kept within the model's context.
//!
//! Everything here follows from the recorded exchanges, so that a resume and a replay send the same. Between two steps
//! nothing changes but the screens, which only the newest result has: what came before stays the same, byte for byte, so
//! that the provider's cache can serve it. A step shortens old results to one line each, then old turns.

use std::ops::Range;

use crate::llm::{ContentBlock, Message, Role, ToolOffer};

/// Bytes counted as one token.
const BYTES_PER_TOKEN: usize = 3;
/// Bytes of a block beside its text.
const BLOCK_OVERHEAD: usize = 24;
/// Characters of a command in a shortened line.
const SHOWN: usize = 80;
const FOLDED: &str = "[left out: ";
const EARLIER: &str = "# Earlier turns, in short";

/// The messages so far.
#[derive(Debug, Clone)]
pub(crate) struct ContextWindow {
    messages: Vec<Message>,
    /// Bytes of the system prompt and the tools.
    base_bytes: usize,
    context_tokens: usize,
}

impl ContextWindow {
    pub(crate) fn new(system: &str, tools: &[ToolOffer], context_tokens: usize) -> ContextWindow {
        let offered = |tool: &ToolOffer| {
            tool.name.len() + tool.description.len() + tool.schema.to_string().len()
        };
        let base_bytes = system.len() + tools.iter().map(offered).sum::<usize>();
        ContextWindow {
            messages: Vec::new(),
            base_bytes,
            context_tokens,
        }
    }

    /// Another model has another context.
    pub(crate) fn set_context(&mut self, tokens: usize) {
        self.context_tokens = tokens;
    }

    /// Adds a message, to the last one where it has the same role. A new result removes the screens of older ones.
    pub(crate) fn add(&mut self, message: Message) {
        if message
            .content
            .iter()
            .any(|block| matches!(block, ContentBlock::ToolResult { .. }))
        {
            self.results().for_each(|(_, screen)| screen.clear());
        }
        match self.messages.last_mut() {
            Some(last) if last.role == message.role => last.content.extend(message.content),
            _ if message.content.is_empty() => {}
            _ => self.messages.push(message),
        }
    }

    /// Shortens to 30 % of the context where more than 60 % is used.
    pub(crate) fn shrink(&mut self) {
        if self.bytes() / BYTES_PER_TOKEN > self.context_tokens * 6 / 10 {
            self.fold(
                self.context_tokens * 3 / 10 * BYTES_PER_TOKEN,
                self.context_tokens * 6 / 10 * BYTES_PER_TOKEN,
            );
        }
    }

    /// Shortens to half of the present size.
    pub(crate) fn halve(&mut self) {
        let half = self.bytes() / 2;
        self.fold(half, half);
    }

    /// The messages as they are sent, with the end of the stable prefix marked for caching.
    pub(crate) fn messages(&self) -> Vec<Message> {
        let mut messages = self.messages.clone();
        let users = messages
            .iter_mut()
            .filter(|message| message.role == Role::User);
        // The newest message loses its screen with the next request, so the stable prefix ends before it.
        if let Some(stable) = users.rev().nth(1)
            && let Some(ContentBlock::ToolResult { cache, .. } | ContentBlock::Text { cache, .. }) =
                stable.content.last_mut()
        {
            *cache = true;
        }
        messages
    }

    pub(crate) fn bytes(&self) -> usize {
        self.base_bytes
            + self
                .messages
                .iter()
                .flat_map(|message| &message.content)
                .map(size)
                .sum::<usize>()
    }

    fn results(&mut self) -> impl Iterator<Item = (&mut String, &mut String)> {
        self.messages
            .iter_mut()
            .flat_map(|message| &mut message.content)
            .filter_map(|block| match block {
                ContentBlock::ToolResult { text, screen, .. } => Some((text, screen)),
                _ => None,
            })
    }

    /// Shortens from the oldest on until at most `target` bytes are left. The newest turn, which the model has not seen yet,
    /// stays whole unless it alone is more than `limit`.
    fn fold(&mut self, target: usize, limit: usize) {
        let newest = self
            .messages
            .iter()
            .rposition(|message| message.role == Role::Assistant)
            .unwrap_or(0);
        self.fold_results(1..newest, target);
        let mut bytes = self.bytes();
        while target < bytes && 3 < self.messages.len() {
            bytes -= self.fold_turn();
        }
        let last = self.messages.len().saturating_sub(1);
        self.fold_results(last.max(1)..self.messages.len(), limit);
    }

    /// Shortens results to one line each until at most `target` bytes are left; the newest one stays whole.
    fn fold_results(&mut self, indices: Range<usize>, target: usize) {
        let mut bytes = self.bytes();
        let newest = self.newest_result();
        for index in indices {
            for position in 0..self.messages[index].content.len() {
                if bytes <= target || newest == Some((index, position)) {
                    return;
                }
                bytes -= self.fold_result(index, position);
            }
        }
    }

    fn newest_result(&self) -> Option<(usize, usize)> {
        let is_result = |block: &ContentBlock| matches!(block, ContentBlock::ToolResult { .. });
        let messages = self.messages.iter().enumerate().rev();
        messages
            .filter_map(|(index, message)| {
                Some((index, message.content.iter().rposition(is_result)?))
            })
            .next()
    }

    /// Shortens a result to one line; returns the bytes saved.
    fn fold_result(&mut self, index: usize, position: usize) -> usize {
        let calls = self.messages[index - 1].content.clone();
        let ContentBlock::ToolResult { id, text, .. } = &mut self.messages[index].content[position]
        else {
            return 0;
        };
        let call = calls
            .iter()
            .find(|block| matches!(block, ContentBlock::ToolUse { id: of, .. } if of == id));
        let line = format!(
            "{FOLDED}{} bytes of {}]",
            text.len(),
            call.map(told).unwrap_or_default()
        );
        if text.starts_with(FOLDED) || text.len() <= line.len() {
            return 0;
        }
        let spared = text.len() - line.len();
        *text = line;
        spared
    }

    /// Replaces the oldest turn, an answer and its results, by lines at the end of the opening.
    fn fold_turn(&mut self) -> usize {
        let before = self.bytes();
        let end =
            (2..self.messages.len()).find(|index| self.messages[*index].role == Role::Assistant);
        let turn: Vec<Message> = self
            .messages
            .drain(1..end.unwrap_or(self.messages.len()))
            .collect();
        let lines: String = turn
            .iter()
            .flat_map(|message| &message.content)
            .filter_map(told_of_turn)
            .collect();
        if let Some(opening) = self.messages.first_mut() {
            match opening.content.last_mut() {
                Some(ContentBlock::Text { text, .. }) if text.starts_with(EARLIER) => {
                    *text += &lines
                }
                _ => opening
                    .content
                    .push(ContentBlock::text(format!("{EARLIER}\n{lines}"))),
            }
        }
        before.saturating_sub(self.bytes())
    }
}

fn size(block: &ContentBlock) -> usize {
    BLOCK_OVERHEAD
        + match block {
            ContentBlock::Text { text, .. } => text.len(),
            ContentBlock::ToolUse {
                id, name, input, ..
            } => id.len() + name.len() + input.to_string().len(),
            ContentBlock::ToolResult {
                id, text, screen, ..
            } => id.len() + text.len() + screen.len(),
            ContentBlock::Opaque { value } => value.to_string().len(),
        }
}

/// A call in one line.
fn told(call: &ContentBlock) -> String {
    let ContentBlock::ToolUse { name, input, .. } = call else {
        return String::new();
    };
    let what = input["command"]
        .as_str()
        .or(input["action"].as_str())
        .unwrap_or_default();
    format!("{name}: {}", brief(what))
}

fn told_of_turn(block: &ContentBlock) -> Option<String> {
    match block {
        ContentBlock::ToolUse { .. } => Some(format!("- {}\n", told(block))),
        ContentBlock::Text { text, .. } if !text.trim().is_empty() => {
            Some(format!("- said: {}\n", brief(text)))
        }
        _ => None,
    }
}

fn brief(text: &str) -> String {
    let line = text.trim().lines().next().unwrap_or_default();
    let cut: String = line.chars().take(SHOWN).collect();
    if cut.len() < text.trim().len() {
        cut + "…"
    } else {
        cut
    }
}

#[cfg(test)]
mod tests;
