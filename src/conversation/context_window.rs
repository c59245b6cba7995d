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
    /// Bytes of the system prompt, the tools and the messages.
    bytes: usize,
    context_tokens: usize,
    /// The message whose last block was marked for the request that is being sent.
    marked: Option<usize>,
}

impl ContextWindow {
    pub(crate) fn new(system: &str, tools: &[ToolOffer], context_tokens: usize) -> ContextWindow {
        let offered = |tool: &ToolOffer| {
            tool.name.len() + tool.description.len() + tool.schema.to_string().len()
        };
        ContextWindow {
            messages: Vec::new(),
            bytes: system.len() + tools.iter().map(offered).sum::<usize>(),
            context_tokens,
            marked: None,
        }
    }

    /// Another model has another context.
    pub(crate) fn set_context(&mut self, tokens: usize) {
        self.context_tokens = tokens;
    }

    /// Adds a message, to the last one where it has the same role. A new result removes the screens of older ones.
    pub(crate) fn add(&mut self, message: Message) {
        if message.content.iter().any(is_result) {
            self.clear_screens();
        }
        self.bytes += content_size(&message);
        match self.messages.last_mut() {
            Some(last) if last.role == message.role => last.content.extend(message.content),
            _ if message.content.is_empty() => {}
            _ => self.messages.push(message),
        }
    }

    /// Only the newest message with results has screens: every new one clears those before it.
    fn clear_screens(&mut self) {
        let mut newest_first = self.messages.iter_mut().rev();
        let Some(message) = newest_first.find(|message| message.content.iter().any(is_result))
        else {
            return;
        };
        for block in &mut message.content {
            if let ContentBlock::ToolResult { screen, .. } = block {
                self.bytes -= screen.len();
                *screen = String::new();
            }
        }
    }

    /// Shortens to 30 % of the context where more than 60 % is used.
    pub(crate) fn shrink(&mut self) {
        if self.bytes / BYTES_PER_TOKEN > self.context_tokens * 6 / 10 {
            self.fold(
                self.context_tokens * 3 / 10 * BYTES_PER_TOKEN,
                self.context_tokens * 6 / 10 * BYTES_PER_TOKEN,
            );
        }
    }

    /// Shortens to half of the present size.
    pub(crate) fn halve(&mut self) {
        let half = self.bytes / 2;
        self.fold(half, half);
    }

    /// Lends the messages as they are sent, with the end of the stable prefix marked for caching, until `give_back`.
    pub(crate) fn lend(&mut self) -> Vec<Message> {
        let users = self.messages.iter_mut().enumerate();
        let users = users.filter(|(_, message)| message.role == Role::User);
        // The newest message loses its screen with the next request, so the stable prefix ends before it.
        if let Some((index, stable)) = users.rev().nth(1)
            && let Some(cache) = cache_mark(stable)
            && !std::mem::replace(cache, true)
        {
            self.marked = Some(index);
        }
        std::mem::take(&mut self.messages)
    }

    /// Takes the messages back that `lend` returned.
    pub(crate) fn give_back(&mut self, messages: Vec<Message>) {
        self.messages = messages;
        let marked = self.marked.take();
        if let Some(message) = marked.and_then(|index| self.messages.get_mut(index))
            && let Some(cache) = cache_mark(message)
        {
            *cache = false;
        }
    }

    /// The messages as they are sent.
    #[cfg(test)]
    pub(crate) fn messages(&self) -> Vec<Message> {
        self.clone().lend()
    }

    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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
        self.fold_turns(target);
        let last = self.messages.len().saturating_sub(1);
        self.fold_results(last.max(1)..self.messages.len(), limit);
    }

    /// Shortens results to one line each until at most `target` bytes are left; the newest one stays whole.
    fn fold_results(&mut self, indices: Range<usize>, target: usize) {
        let newest = self.newest_result();
        for index in indices {
            for position in 0..self.messages[index].content.len() {
                if self.bytes <= target || newest == Some((index, position)) {
                    return;
                }
                self.fold_result(index, position);
            }
        }
    }

    fn newest_result(&self) -> Option<(usize, usize)> {
        let mut messages = self.messages.iter().enumerate().rev();
        messages.find_map(|(index, message)| {
            Some((index, message.content.iter().rposition(is_result)?))
        })
    }

    /// Shortens a result to one line.
    fn fold_result(&mut self, index: usize, position: usize) {
        let (before, from) = self.messages.split_at_mut(index);
        let (Some(calls), Some(message)) = (before.last(), from.first_mut()) else {
            return;
        };
        let ContentBlock::ToolResult { id, text, .. } = &mut message.content[position] else {
            return;
        };
        let call = calls
            .content
            .iter()
            .find(|block| matches!(block, ContentBlock::ToolUse { id: of, .. } if of == id));
        let line = format!(
            "{FOLDED}{} bytes of {}]",
            text.len(),
            call.map(told).unwrap_or_default()
        );
        if text.starts_with(FOLDED) || text.len() <= line.len() {
            return;
        }
        self.bytes -= text.len() - line.len();
        *text = line;
    }

    /// Replaces the oldest turns, each an answer and its results, by lines at the end of the opening, until at most `target`
    /// bytes are left.
    fn fold_turns(&mut self, target: usize) {
        let (mut left, mut end, mut lines) = (self.bytes, 1, String::new());
        let mut heading = self.earlier_heading();
        while target < left && end + 2 < self.messages.len() {
            let answers = (end + 1..self.messages.len())
                .find(|index| self.messages[*index].role == Role::Assistant);
            let turn = end..answers.unwrap_or(self.messages.len());
            end = turn.end;
            let turn = &self.messages[turn];
            let blocks = turn.iter().flat_map(|message| &message.content);
            let told: String = blocks.filter_map(told_of_turn).collect();
            let added = told.len() + std::mem::take(&mut heading);
            left -= turn
                .iter()
                .map(content_size)
                .sum::<usize>()
                .saturating_sub(added);
            lines += &told;
        }
        if 1 < end {
            let folded = self.messages.drain(1..end);
            self.bytes -= folded.map(|message| content_size(&message)).sum::<usize>();
            self.tell_earlier(&lines);
        }
    }

    /// Bytes that the first folded turn adds beside its lines.
    fn earlier_heading(&self) -> usize {
        match self
            .messages
            .first()
            .and_then(|opening| opening.content.last())
        {
            Some(ContentBlock::Text { text, .. }) if text.starts_with(EARLIER) => 0,
            _ => BLOCK_OVERHEAD + EARLIER.len() + 1,
        }
    }

    fn tell_earlier(&mut self, lines: &str) {
        let heading = self.earlier_heading();
        let Some(opening) = self.messages.first_mut() else {
            return;
        };
        self.bytes += heading + lines.len();
        match opening.content.last_mut() {
            Some(ContentBlock::Text { text, .. }) if heading == 0 => *text += lines,
            _ => opening
                .content
                .push(ContentBlock::text(format!("{EARLIER}\n{lines}"))),
        }
    }
}

fn is_result(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::ToolResult { .. })
}

/// The mark at the end of a message, where its last block may have one.
fn cache_mark(message: &mut Message) -> Option<&mut bool> {
    match message.content.last_mut()? {
        ContentBlock::ToolResult { cache, .. } | ContentBlock::Text { cache, .. } => Some(cache),
        ContentBlock::ToolUse { .. } | ContentBlock::Opaque { .. } => None,
    }
}

fn content_size(message: &Message) -> usize {
    message.content.iter().map(size).sum()
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
