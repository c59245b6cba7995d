//! Writes HTML: escapes text, and bounds the size of the page.

use std::fmt::{Display, Write};

use crate::text::shorten::cut_middle;

const LEFT_OUT: &str = "(left out: the page has reached its maximum size)";
/// The frames of a row, a paragraph or a folded part.
const FRAME: usize = 1_000;
/// A text above either of these scrolls in its frame.
const SHORT_BYTES: usize = 400;
const SHORT_LINES: usize = 8;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Column<'a> {
    Text(&'a str),
    Number(&'a str),
}

/// Whether a part that can be folded is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fold {
    Closed,
    /// Closed on the screen, open on paper.
    Printed,
    Open,
}

/// A page that is being written. Long texts are shortened, and then left out, as the page reaches its size.
pub(crate) struct HtmlWriter {
    out: String,
    limit: usize,
}

impl HtmlWriter {
    /// A page of `limit` bytes. Beyond it come only frames: the caller asks `has_room` before each part of a long list.
    pub(crate) fn new(limit: usize) -> HtmlWriter {
        HtmlWriter {
            out: String::new(),
            limit,
        }
    }

    /// How many bytes are left.
    pub(crate) fn room(&self) -> usize {
        self.limit.saturating_sub(self.out.len())
    }

    /// Whether another part of a list may begin.
    pub(crate) fn has_room(&self) -> bool {
        self.room() > FRAME
    }

    /// Writes a part of the page within one of `shares` equal shares of the space that is left.
    pub(crate) fn within_share(&mut self, shares: usize, write: impl FnOnce(&mut HtmlWriter)) {
        let whole = self.limit;
        self.limit = self.out.len() + self.room() / shares.max(1);
        write(self);
        self.limit = whole;
    }

    /// Markup of ours.
    pub(crate) fn raw(&mut self, markup: &str) {
        self.out.push_str(markup);
    }

    /// Formatted markup of ours; foreign text in it goes through `escape`.
    pub(crate) fn put(&mut self, markup: std::fmt::Arguments<'_>) {
        let _ = self.out.write_fmt(markup);
    }

    /// A text, shortened where the space is short.
    pub(crate) fn text(&mut self, text: &str) {
        let shown = self.bounded(text);
        self.out.push_str(&shown);
    }

    pub(crate) fn heading(&mut self, level: u8, text: &str) {
        self.put(format_args!("<h{level}>{}</h{level}>\n", escape(text)));
    }

    pub(crate) fn paragraph(&mut self, class: &str, text: &str) {
        self.put(format_args!("<p{}>", class_attribute(class)));
        self.text(text);
        self.raw("</p>\n");
    }

    /// A term and its description in a list.
    pub(crate) fn term(&mut self, name: &str, value: &str) {
        self.put(format_args!("<dt>{}</dt><dd>", escape(name)));
        self.text(value);
        self.raw("</dd>\n");
    }

    /// Entries of a list, each with a word in front and a name as code.
    pub(crate) fn names<'a>(&mut self, entries: impl Iterator<Item = (&'a str, &'a str)>) {
        self.raw("<ul class=\"plain\">\n");
        for (word, name) in entries {
            self.put(format_args!("<li>{} <code>", escape(word)));
            self.text(name);
            self.raw("</code></li>\n");
        }
        self.raw("</ul>\n");
    }

    /// A text of several lines; a long one scrolls.
    pub(crate) fn pre(&mut self, label: &str, text: &str) {
        let is_short = text.len() <= SHORT_BYTES && text.lines().count() <= SHORT_LINES;
        match is_short {
            true => self.raw("<div class=\"scroll wrap\">"),
            false => self.begin_scroll(label, "scroll tall wrap"),
        }
        self.raw("<pre>");
        // A parser drops a newline at the beginning.
        self.raw("\n");
        self.text(text);
        self.raw("</pre></div>\n");
    }

    /// The opening tag of a part that scrolls, which the keyboard reaches; `</div>` ends it.
    pub(crate) fn begin_scroll(&mut self, label: &str, class: &str) {
        let label = escape(label);
        self.put(format_args!(
            "<div class=\"{class}\" role=\"group\" tabindex=\"0\" aria-label=\"{label}\">"
        ));
    }

    /// A table with a caption; `end_table` closes it.
    pub(crate) fn begin_table(&mut self, caption: &str, columns: &[Column<'_>]) {
        self.begin_scroll(caption, "scroll");
        let caption = escape(caption);
        self.put(format_args!(
            "<table><caption>{caption}</caption><thead><tr>"
        ));
        for column in columns {
            let (class, name) = match column {
                Column::Text(name) => ("", name),
                Column::Number(name) => (" class=\"n\"", name),
            };
            self.put(format_args!("<th scope=\"col\"{class}>{name}</th>"));
        }
        self.raw("</tr></thead><tbody>\n");
    }

    pub(crate) fn end_table(&mut self) {
        self.raw("</tbody></table></div>\n");
    }

    /// Begins a row with its first cell.
    pub(crate) fn row_head(&mut self, text: impl Display) {
        self.raw("<tr><th scope=\"row\">");
        self.text(&text.to_string());
        self.raw("</th>");
    }

    /// Begins a row whose first cell is a link within the page.
    pub(crate) fn row_link(&mut self, id: &str, text: &str) {
        let (id, text) = (escape(id), escape(text));
        self.put(format_args!(
            "<tr><th scope=\"row\"><a href=\"#{id}\">{text}</a></th>"
        ));
    }

    pub(crate) fn cell(&mut self, class: &str, text: impl Display) {
        self.put(format_args!("<td{}>", class_attribute(class)));
        self.text(&text.to_string());
        self.raw("</td>");
    }

    pub(crate) fn end_row(&mut self) {
        self.raw("</tr>\n");
    }

    pub(crate) fn begin_details(&mut self, summary: &str, fold: Fold) {
        let attribute = match fold {
            Fold::Closed => "",
            Fold::Printed => " class=\"printed\"",
            Fold::Open => " open",
        };
        self.put(format_args!("<details{attribute}><summary>"));
        self.text(summary);
        self.raw("</summary>\n");
    }

    pub(crate) fn end_details(&mut self) {
        self.raw("</details>\n");
    }

    fn bounded(&self, text: &str) -> String {
        let room = self.room();
        let shown = escape(text);
        if shown.len() <= room {
            return shown;
        }
        // Escaping makes all parts of a text longer by about the same.
        let fits = text.len().saturating_mul(room) / shown.len() / 10 * 9;
        let cut = escape(&cut_middle(text, fits));
        match 200 < fits && cut.len() <= room {
            true => cut,
            false => LEFT_OUT.to_owned(),
        }
    }

    pub(crate) fn finish(self) -> String {
        self.out
    }
}

fn class_attribute(class: &str) -> String {
    match class {
        "" => String::new(),
        _ => format!(" class=\"{class}\""),
    }
}

/// Text as HTML and as the value of an attribute.
pub(crate) fn escape(text: &str) -> String {
    let mut shown = String::with_capacity(text.len() + text.len() / 8);
    push_escaped(&mut shown, text);
    shown
}

/// Adds text as HTML.
pub(crate) fn push_escaped(shown: &mut String, text: &str) {
    let mut plain = 0;
    for (place, byte) in text.bytes().enumerate() {
        let entity = match byte {
            b'&' => "&amp;",
            b'<' => "&lt;",
            b'>' => "&gt;",
            b'"' => "&quot;",
            b'\'' => "&#39;",
            _ => continue,
        };
        shown.push_str(&text[plain..place]);
        shown.push_str(entity);
        plain = place + 1;
    }
    shown.push_str(&text[plain..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = 500_000;

    #[test]
    fn markup_becomes_text() {
        assert_eq!(
            escape("<a b=\"c\">'&ä漢'"),
            "&lt;a b=&quot;c&quot;&gt;&#39;&amp;ä漢&#39;"
        );
    }

    #[test]
    fn long_texts_stay_within_the_size_of_a_page() {
        let mut page = HtmlWriter::new(LIMIT);
        for _ in 0..100 {
            page.pre("x", &"<".repeat(100_000));
            page.paragraph("", &"words and \"more\" words\n".repeat(1_000));
        }
        let page = page.finish();
        assert!(LIMIT / 2 < page.len() && page.len() < LIMIT + 100_000);
        assert!(page.contains("bytes are missing here") && page.contains(LEFT_OUT));
    }

    #[test]
    fn a_large_part_leaves_space_for_the_next_one() {
        let mut page = HtmlWriter::new(LIMIT);
        for left in (1..=10).rev() {
            page.within_share(left, |page| page.pre("x", &"word ".repeat(LIMIT)));
        }
        let page = page.finish();
        assert_eq!(page.matches("bytes are missing here").count(), 10);
        assert!(page.len() < LIMIT, "{}", page.len());
    }
}
