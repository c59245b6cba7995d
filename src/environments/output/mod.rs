//! What a child printed, as text: cleaned while it comes, bounded however much comes.
//!
//! `Cleaner` makes characters of bytes and takes the terminal's language out, `Page` has the line that is still being
//! written and the lines above it, `BoundedText` is the text of one answer: its beginning, its end, and a count of what fell
//! out between them. The cost is one pass, and memory is a few times what may be kept. When a command begins and ends
//! is for its session to say.

mod bounded;
mod cleaner;
mod page;
#[cfg(test)]
mod tests;

use bounded::{BoundedText, EndLimits};
use cleaner::Cleaner;
use page::Page;

/// The most of one answer that comes whole; of more, half of it from either end.
const ANSWER: EndLimits = EndLimits {
    head: 5_000_000,
    tail: 5_000_000,
};
/// What is kept of the time between two commands.
const BACKGROUND: EndLimits = EndLimits {
    head: 0,
    tail: 64 * 1024,
};

/// What a living child printed since the last answer.
///
/// Outside of a command only the last 64 KiB are kept, and stand before the output of the next one.
#[derive(Debug)]
pub struct ChildOutput {
    cleaner: Cleaner,
    page: Page,
}

impl Default for ChildOutput {
    fn default() -> ChildOutput {
        ChildOutput {
            cleaner: Cleaner::default(),
            page: Page::new(BACKGROUND),
        }
    }
}

impl ChildOutput {
    /// Begins a command; its answer starts with `before`, which is text already.
    pub fn begin(&mut self, before: &str) {
        let background = self.finish();
        self.page = Page::new(ANSWER);
        self.page.insert(before);
        self.page.insert(&background);
    }

    /// Adds bytes as they were read, torn anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.cleaner.push(bytes, &mut self.page);
    }

    /// Takes the text of an answer while the command goes on.
    ///
    /// A torn character or sequence stays for the next answer. An unfinished line is given as it stands, for it may be
    /// a question, and never again: what rewrites it later is given alone.
    pub fn take(&mut self) -> String {
        self.page.take()
    }

    /// Takes all that is left of a command that has ended; what comes now is background.
    pub fn finish(&mut self) -> String {
        self.cleaner.finish(&mut self.page);
        let text = self.page.take();
        self.page = Page::new(BACKGROUND);
        text
    }

    /// Returns whether there is nothing to give out yet.
    pub fn is_empty(&self) -> bool {
        self.page.is_empty()
    }
}

/// Returns the text as an answer may hold it: whole, or its two ends around a line with the number of bytes dropped.
pub fn cut(text: &str) -> String {
    let mut kept = BoundedText::new(ANSWER);
    kept.push(text);
    kept.take()
}
