//! Text of a log as a report has it: keys redacted, escape sequences removed, invisible characters visible, bounded.

use crate::secrets::Secrets;
use crate::text::invisible::{escaped, printable};
use crate::text::shorten::{cut_chars, cut_middle};

const NAME_CHARACTERS: usize = 300;

/// Bounds and cleans what a model, a check or a user wrote.
pub(crate) struct ForeignText<'a> {
    secrets: &'a Secrets,
}

impl ForeignText<'_> {
    pub(crate) fn new(secrets: &Secrets) -> ForeignText<'_> {
        ForeignText { secrets }
    }

    /// A text of several lines, its head and tail within `limit` bytes.
    pub(crate) fn block(&self, text: &str, limit: usize) -> String {
        let text = self.secrets.redact(text);
        // Cut first, so that a large text is not cleaned as a whole; what is cleaned may be longer.
        let clean = printable(&cut_middle(&text, 2 * limit));
        match text.len() <= 2 * limit {
            true => cut_middle(&clean, limit),
            false => cut_middle(&printable(&cut_middle(&text, limit)), 2 * limit),
        }
    }

    /// Lines of a file, within `limit` bytes before invisible characters are escaped. Nothing of a line is hidden: escape
    /// sequences are shown, too.
    pub(crate) fn source(&self, text: &str, limit: usize) -> String {
        let text = cut_middle(&self.secrets.redact(text), limit);
        let mut shown = String::with_capacity(text.len());
        for part in text.split_inclusive(['\n', '\t']) {
            let plain = part.trim_end_matches(['\n', '\t']);
            shown += &escaped(plain);
            shown += &part[plain.len()..];
        }
        shown
    }

    /// A name or a sentence on one line.
    pub(crate) fn line(&self, text: &str) -> String {
        let text = self.secrets.redact(text);
        cut_chars(
            &escaped(&cut_chars(&text, NAME_CHARACTERS, "…")),
            2 * NAME_CHARACTERS,
            "…",
        )
    }

    /// The first `most` names of a list.
    pub(crate) fn lines(&self, names: &[String], most: usize) -> Vec<String> {
        names
            .iter()
            .take(most)
            .map(|name| self.line(name))
            .collect()
    }
}
