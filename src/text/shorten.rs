//! Shortens text: to its head, or to its head and tail. Cuts fall between characters.

use crate::text::invisible::escaped;

/// The first `limit` characters.
pub(crate) fn first_chars(text: &str, limit: usize) -> &str {
    text.char_indices()
        .nth(limit)
        .map_or(text, |(end, _)| &text[..end])
}

/// As much of the start of the text as fits `limit` bytes.
pub(crate) fn first_bytes(text: &str, limit: usize) -> &str {
    &text[..text.floor_char_boundary(limit)]
}

/// The first `limit` characters, followed by `mark` where some are missing.
pub(crate) fn cut_chars(text: &str, limit: usize, mark: &str) -> String {
    marked(text, first_chars(text, limit), mark)
}

/// At most `limit` characters: where there are more, the beginning, three dots, and the end.
pub(crate) fn cut_inside(text: &str, limit: usize) -> String {
    let count = text.chars().count();
    let Some(room) = limit.checked_sub(3).filter(|_| limit < count) else {
        return first_chars(text, limit).to_owned();
    };
    let head = first_chars(text, room / 2);
    let before_tail = first_chars(text, count - (room - room / 2));
    format!("{head}...{}", &text[before_tail.len()..])
}

/// The first `limit` names, and how many more there are: `a, b and 3 more`.
pub(crate) fn first_names(names: &[impl AsRef<str>], limit: usize) -> String {
    let shown: Vec<&str> = names.iter().take(limit).map(AsRef::as_ref).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(limit) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The first `limit` bytes, followed by `mark` where some are missing.
pub(crate) fn cut_bytes(text: &str, limit: usize, mark: &str) -> String {
    marked(text, first_bytes(text, limit), mark)
}

fn marked(text: &str, head: &str, mark: &str) -> String {
    if head.len() < text.len() {
        format!("{head}{mark}")
    } else {
        text.to_owned()
    }
}

/// At most `limit` bytes: the head, a line with the size of what is missing, and the tail.
pub fn cut_middle(text: &str, limit: usize) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    // The note is longest where everything is missing; a newline may be needed before it.
    let Some(room) = limit.checked_sub(missing_note(text).len() + 1) else {
        return first_bytes(text, limit).to_owned();
    };
    let head = head_within(text, room / 2);
    let tail = tail_within(&text[head.len()..], room - room / 2);
    let missing = &text[head.len()..text.len() - tail.len()];
    let border = if head.is_empty() || head.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    format!("{head}{border}{}{tail}", missing_note(missing))
}

fn missing_note(missing: &str) -> String {
    match missing.bytes().filter(|byte| *byte == b'\n').count() {
        0 => format!("[... {} bytes are missing here ...]\n", missing.len()),
        lines => format!(
            "[... {} bytes ({lines} lines) are missing here ...]\n",
            missing.len()
        ),
    }
}

/// Prefers to cut between lines, but gives up at most a quarter of the size for it: lines can be long.
fn head_within(text: &str, room: usize) -> &str {
    let head = first_bytes(text, room);
    match head.rfind('\n') {
        Some(end) if head.len() - end <= room / 4 => &head[..=end],
        _ => head,
    }
}

fn tail_within(text: &str, room: usize) -> &str {
    let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(room))..];
    match tail.find('\n') {
        Some(end) if end < room / 4 => &tail[end + 1..],
        _ => tail,
    }
}

/// A text in pieces of whole lines, so that a large one can be changed without a second copy of all of it.
pub(crate) fn line_pieces(text: &str) -> impl Iterator<Item = &str> {
    const LEAST: usize = 64 << 10;
    let mut rest = text;
    std::iter::from_fn(move || {
        let from = LEAST.min(rest.len());
        let end = memchr::memchr(b'\n', &rest.as_bytes()[from..]);
        let (piece, after) = rest.split_at(end.map_or(rest.len(), |end| from + end + 1));
        rest = after;
        (!piece.is_empty()).then_some(piece)
    })
}

/// The text on one line, backslashes doubled so that its escapes are unambiguous, cut to `limit` bytes.
pub(crate) fn one_line(text: &str, limit: usize) -> String {
    cut_bytes(&escaped(&text.replace('\\', "\\\\")), limit, "...")
}

#[cfg(test)]
mod tests {
    #[test]
    fn pieces_end_with_their_lines() {
        let text = "é\n".repeat(100_000) + &"x".repeat(200_000) + "\n\nend";
        let pieces: Vec<&str> = super::line_pieces(&text).collect();
        assert!(pieces.len() > 3 && pieces.concat() == text);
        let whole = &pieces[..pieces.len() - 1];
        assert!(whole.iter().all(|piece| piece.ends_with('\n')));
        assert_eq!(super::line_pieces("").count(), 0);
    }

    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    use super::*;

    #[test]
    fn a_mark_follows_what_is_cut() {
        assert_eq!(cut_chars("äöü", 2, "..."), "äö...");
        assert_eq!(cut_chars("äöü", 3, "..."), "äöü");
        assert_eq!(cut_bytes("äöü", 3, "…"), "ä…");
        assert_eq!(cut_bytes("äöü", 6, "…"), "äöü");
        assert_eq!(cut_inside("äöüäöüäöü", 8), "äö...äöü");
        assert_eq!(cut_inside("äöüäöüäöü", 9), "äöüäöüäöü");
        assert_eq!(cut_inside("äöü", 2), "äö");
    }

    #[test]
    fn the_middle_is_cut_at_line_borders_and_counted() {
        let text: String = (1..=1000)
            .map(|number| format!("line {number}\n"))
            .collect();
        let cut = cut_middle(&text, 200);
        assert!(
            cut.starts_with("line 1\nline 2\n") && cut.ends_with("line 999\nline 1000\n"),
            "{cut}"
        );
        let note = cut.lines().find(|line| line.starts_with("[...")).unwrap();
        let kept = cut.lines().filter(|line| line.starts_with("line ")).count();
        let bytes = text.len() - (cut.len() - note.len() - 1);
        assert_eq!(
            note,
            format!(
                "[... {bytes} bytes ({} lines) are missing here ...]",
                1000 - kept
            )
        );
        assert_eq!(cut_middle("short", 5), "short");
    }

    #[test]
    fn one_long_line_is_cut_within_it() {
        let cut = cut_middle(&"é".repeat(5000), 1000);
        assert!(cut.len() <= 1000 && 900 < cut.len(), "{}", cut.len());
        assert!(
            cut.contains("\n[... ") && cut.contains(" bytes are missing here ...]\né"),
            "{cut}"
        );
        assert_eq!(cut_middle("ééééé", 5), "éé");
    }

    proptest! {
        #[test]
        fn a_cut_respects_its_limit(text in "(\\PC|\n){0,400}", limit in 0usize..600) {
            let cut = cut_middle(&text, limit);
            prop_assert!(cut.len() <= limit);
            prop_assert_eq!(cut == text, text.len() <= limit);
        }
    }

    #[test]
    fn a_name_is_one_line_of_limited_length() {
        assert_eq!(
            one_line("a\nb\u{1b}[1m\u{202e}\t\\ü", 100),
            "a\\nb\\u{1b}[1m\\u{202e}\\t\\\\ü"
        );
        assert_eq!(one_line("aéb", 2), "a...");
    }
}
