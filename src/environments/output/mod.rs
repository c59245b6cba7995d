//! The output of a child as text: cleaned and bounded while it is read.
//!
//! `Cleaner` decodes UTF-8 and removes escape sequences, `Page` has the unfinished line and the lines above it,
//! `BoundedText` is the text of one answer: its beginning, its end, and the number of bytes dropped between them. One
//! pass; memory is a small multiple of the limit. The session decides when a command begins and ends.

mod bounded;
mod cleaner;
mod page;
#[cfg(test)]
mod tests;

use bounded::EndLimits;
use cleaner::Cleaner;
use page::Page;

/// The limit of one answer; of a longer one, half is kept from either end.
const ANSWER: EndLimits = EndLimits {
    head: 5_000_000,
    tail: 5_000_000,
};
/// What is kept of the output between two commands.
const BACKGROUND: EndLimits = EndLimits {
    head: 0,
    tail: 64 * 1024,
};

/// The output of a child since the last answer.
///
/// Between commands only the last 64 KiB are kept, and precede the output of the next command.
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
    /// Begins a command; its answer starts with `before`, which is not cleaned.
    pub fn begin(&mut self, before: &str) {
        let background = self.finish();
        self.page = Page::new(ANSWER);
        self.page.insert(before);
        self.page.insert(&background);
    }

    /// Adds bytes, split anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        self.cleaner.push(bytes, &mut self.page);
    }

    /// Takes the text of an answer while the command continues.
    ///
    /// An incomplete character or sequence stays for the next answer. An unfinished line is returned as it is, because
    /// it may be a question, and not again: if it is rewritten later, only the new text is returned.
    pub fn take(&mut self) -> String {
        self.page.take()
    }

    /// Takes the rest of a command that has ended; later output is background.
    pub fn finish(&mut self) -> String {
        self.cleaner.finish(&mut self.page);
        let text = self.page.take();
        self.page = Page::new(BACKGROUND);
        text
    }
}

/// Ends the last line with a newline, unless the text is empty.
pub(crate) fn on_own_line(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
