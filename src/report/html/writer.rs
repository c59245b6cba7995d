//! Writes HTML: escapes text, and bounds the size of the whole page.

use std::fmt::{Display, Write};

use crate::text::shorten::cut_middle;

/// What long texts of a page may take together, in bytes of HTML. Their frames come on top.
const ROOM: usize = 3_200_000;
const LEFT_OUT: &str = "(left out: the report has reached its maximum size; the log has it)";

/// A page that is being written.
pub(super) struct HtmlWriter {
    out: String,
    room: usize,
    regions: u32,
}

impl HtmlWriter {
    pub(super) fn new() -> HtmlWriter {
        HtmlWriter {
            out: String::new(),
            room: ROOM,
            regions: 0,
        }
    }

    /// Markup of ours.
    pub(super) fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// Formatted markup of ours; foreign text in it goes through `escape`.
    pub(super) fn put(&mut self, markup: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(markup);
    }

    /// A short text.
    pub(super) fn text(&mut self, text: &str) {
        self.out.push_str(&escape(text));
    }

    pub(super) fn heading(&mut self, level: u8, text: &str) {
        self.put(format_args!("<h{level}>{}</h{level}>\n", escape(text)));
    }

    /// A long text in a region that scrolls.
    pub(super) fn pre(&mut self, label: &str, text: &str) {
        self.begin_region(label, "scroll tall wrap");
        let text = self.bounded(text);
        self.put(format_args!("<pre>{text}</pre></div>\n"));
    }

    /// A patch with its added and removed lines marked.
    pub(super) fn patch(&mut self, label: &str, patch: &str) {
        self.begin_region(label, "scroll tall");
        self.raw("<pre>");
        let mut lines = String::new();
        let mut is_header = true;
        for line in patch.lines() {
            is_header &= !line.starts_with("@@");
            let class = match line.as_bytes().first() {
                _ if is_header => 'm',
                Some(b'@') => 'h',
                Some(b'+') => 'a',
                Some(b'-') => 'd',
                _ => 'c',
            };
            let _ = writeln!(lines, "<span class=\"{class}\">{}</span>", escape(line));
        }
        // A span is a block, which needs no line end beside its own.
        let lines = lines.replace("</span>\n", "</span>");
        match lines.len() <= self.room {
            true => self.take(&lines),
            false => self.raw(LEFT_OUT),
        }
        self.raw("</pre></div>\n");
    }

    /// The opening tag of a region that scrolls, which the keyboard reaches.
    pub(super) fn begin_region(&mut self, label: &str, class: &str) {
        self.regions += 1;
        let label = escape(&format!("{label} ({})", self.regions));
        self.put(format_args!(
            "<div class=\"{class}\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\">"
        ));
    }

    /// A table with a caption; `end_table` closes it.
    pub(super) fn begin_table(&mut self, caption: &str, columns: &[&str]) {
        self.begin_region(caption, "scroll");
        let caption = escape(caption);
        self.put(format_args!(
            "<table><caption>{caption}</caption><thead><tr>"
        ));
        for column in columns {
            self.put(format_args!("<th scope=\"col\">{}</th>", escape(column)));
        }
        self.raw("</tr></thead><tbody>\n");
    }

    pub(super) fn end_table(&mut self) {
        self.raw("</tbody></table></div>\n");
    }

    /// The first cell of a row.
    pub(super) fn row_head(&mut self, text: impl Display) {
        let text = escape(&text.to_string());
        self.put(format_args!("<tr><th scope=\"row\">{text}</th>"));
    }

    pub(super) fn cell(&mut self, class: &str, text: impl Display) {
        let text = escape(&text.to_string());
        self.put(format_args!("<td class=\"{class}\">{text}</td>"));
    }

    pub(super) fn begin_details(&mut self, summary: &str) {
        let summary = escape(summary);
        self.put(format_args!("<details><summary>{summary}</summary>\n"));
    }

    pub(super) fn end_details(&mut self) {
        self.raw("</details>\n");
    }

    /// A term and its description in a list.
    pub(super) fn term(&mut self, name: &str, value: &str) {
        let (name, value) = (escape(name), escape(value));
        self.put(format_args!("<dt>{name}</dt><dd>{value}</dd>\n"));
    }

    /// Whether there is still space for long texts.
    pub(super) fn has_room(&self) -> bool {
        self.room > 20_000
    }

    /// Counts bytes of frames against the space, too.
    pub(super) fn charge(&mut self, bytes: usize) {
        self.room = self.room.saturating_sub(bytes);
    }

    fn bounded(&mut self, text: &str) -> String {
        let shown = escape(text);
        if shown.len() <= self.room {
            self.room -= shown.len();
            return shown;
        }
        // An escaped character has six bytes at most.
        let shown = match self.room / 6 > 500 {
            true => escape(&cut_middle(text, self.room / 6)),
            false => LEFT_OUT.to_owned(),
        };
        self.room = self.room.saturating_sub(shown.len());
        shown
    }

    fn take(&mut self, markup: &str) {
        self.room = self.room.saturating_sub(markup.len());
        self.out.push_str(markup);
    }

    pub(super) fn finish(self) -> String {
        self.out
    }
}

/// Text as HTML and as the value of an attribute.
pub(super) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    for character in text.chars() {
        match character {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '"' => shown.push_str("&quot;"),
            '\'' => shown.push_str("&#39;"),
            other => shown.push(other),
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            escape("<a b=\"c\">'&"),
            "&lt;a b=&quot;c&quot;&gt;&#39;&amp;"
        );
    }

    #[test]
    fn long_texts_stay_within_the_room_of_a_page() {
        let mut page = HtmlWriter::new();
        for _ in 0..100 {
            page.pre("x", &"<".repeat(100_000));
            page.patch("x", &"+<\n".repeat(10_000));
        }
        assert!(page.finish().len() < ROOM + 200_000);
    }
}
