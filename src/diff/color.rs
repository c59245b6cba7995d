//! Patches for people at a terminal.

use crate::text::invisible::escaped;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[31m";
const GREEN: &str = "\x1b[32m";
const CYAN: &str = "\x1b[36m";
const RESET: &str = "\x1b[m";

/// What the next line of a patch belongs to.
enum PatchSection {
    Header,
    /// The lines of a hunk that are still expected on both sides.
    Hunk {
        old: usize,
        new: usize,
    },
    Binary,
}

/// A patch as a terminal may show it, with git's default colours if `is_colored`.
///
/// Control characters of the files do not reach the terminal: they are shown as escapes, and bytes that are not UTF-8
/// as U+FFFD. The result is for reading and cannot be applied.
pub(crate) fn terminal_text(patch: &[u8], is_colored: bool) -> String {
    let mut shown = String::with_capacity(patch.len() + patch.len() / 4);
    let mut section = PatchSection::Header;
    for line in patch.split_inclusive(|byte| *byte == b'\n') {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let text = visible(line);
        match section.color_of(line) {
            Some(color) if is_colored => push_colored(&mut shown, color, &text),
            _ => shown.push_str(&text),
        }
        shown.push('\n');
    }
    shown
}

/// The line without control characters; tabs stay.
fn visible(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let parts: Vec<String> = text.split('\t').map(escaped).collect();
    parts.join("\t")
}

/// Adds a coloured line. Of the header of a hunk only the positions are coloured.
fn push_colored(shown: &mut String, color: &str, text: &str) {
    let colored = match text.get(2..).and_then(|rest| rest.find("@@")) {
        Some(end) if color == CYAN => end + 4,
        _ => text.len(),
    };
    let (text, rest) = text.split_at(colored);
    shown.extend([color, text, RESET, rest]);
}

impl PatchSection {
    /// The colour of the next line; goes on to the section that it begins or ends.
    fn color_of(&mut self, line: &[u8]) -> Option<&'static str> {
        if let PatchSection::Hunk { old, new } = self
            && 0 < *old + *new
        {
            return hunk_line(line, old, new);
        }
        if line.starts_with(b"diff --git ") {
            *self = PatchSection::Header;
        } else if line == b"GIT binary patch" {
            *self = PatchSection::Binary;
        } else if let Some((old, new)) = hunk_size(line) {
            *self = PatchSection::Hunk { old, new };
            return Some(CYAN);
        }
        matches!(self, PatchSection::Header).then_some(BOLD)
    }
}

/// The colour of a line in a hunk, which is subtracted from the lines that are expected.
fn hunk_line(line: &[u8], old: &mut usize, new: &mut usize) -> Option<&'static str> {
    let (color, is_old, is_new) = match line.first() {
        Some(b'-') => (Some(RED), 1, 0),
        Some(b'+') => (Some(GREEN), 0, 1),
        Some(b'\\') => (None, 0, 0),
        _ => (None, 1, 1),
    };
    *old = old.saturating_sub(is_old);
    *new = new.saturating_sub(is_new);
    color
}

/// The numbers of old and new lines of a hunk, by its header.
fn hunk_size(line: &[u8]) -> Option<(usize, usize)> {
    let text = String::from_utf8_lossy(line);
    let (old, rest) = text.strip_prefix("@@ -")?.split_once(" +")?;
    let (new, _) = rest.split_once(" @@")?;
    let count = |position: &str| match position.split_once(',') {
        Some((_, count)) => count.parse().ok(),
        None => Some(1),
    };
    Some((count(old)?, count(new)?))
}
