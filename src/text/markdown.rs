//! Foreign text in Markdown.

/// Text on one line that Markdown shows as it is.
pub(crate) fn escaped_line(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars() {
        match character {
            '<' => shown += "&lt;",
            '>' => shown += "&gt;",
            '&' => shown += "&amp;",
            '@' => shown += "&#64;",
            '|' | '`' | '*' | '_' | '[' | ']' | '\\' | '~' | '#' | '!' => {
                shown.push('\\');
                shown.push(character);
            }
            _ => shown.push(character),
        }
    }
    shown
}

/// Text on one line, without blanks around its words.
pub(crate) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
