//! Completes a cause that a report has cut, from what the check printed.

use crate::text::shorten::first_bytes;

const NOTE: &str = "[... ";
const NOTE_END: &str = "missing here ...]";
/// How many cuts are completed.
const MAX_CUTS: usize = 4;
/// How much of the text around a cut is looked for.
const CONTEXT: usize = 200;

/// The cause with what is missing in it, as far as the streams of the check have it.
pub(super) fn uncut(cause: &str, streams: &[&str]) -> String {
    let mut whole = cause.to_owned();
    for _ in 0..MAX_CUTS {
        let completed = streams.iter().find_map(|stream| complete(&whole, stream));
        match completed {
            Some(longer) => whole = longer,
            None => break,
        }
    }
    whole
}

/// Replaces the first note about missing bytes by these.
fn complete(cause: &str, stream: &str) -> Option<String> {
    let (before, rest) = cause.split_at(cause.find(NOTE)?);
    let (note, after) = rest.split_once('\n')?;
    let note = note.strip_suffix(NOTE_END)?;
    let missing: usize = note[NOTE.len()..].split(' ').next()?.parse().ok()?;
    let before = before.strip_suffix('\n').unwrap_or(before);
    let head = last_bytes(before.lines().last()?, CONTEXT);
    let tail = first_bytes(after.lines().next()?, CONTEXT);
    if head.trim().is_empty() || tail.trim().is_empty() {
        return None;
    }
    let start = stream.find(head)? + head.len();
    let is_end = |end: &usize| {
        stream
            .get(*end..)
            .is_some_and(|rest| rest.starts_with(tail))
    };
    // With the end of the line before the cut, or without it; lines may also have been indented.
    let exact = [start + missing, start + missing + 1];
    let exact = exact.into_iter().find(is_end);
    let end = exact.or_else(|| Some(start + stream.get(start..)?.find(tail)?))?;
    Some(format!("{before}{}{after}", stream.get(start..end)?))
}

/// At most `limit` bytes from the end.
fn last_bytes(text: &str, limit: usize) -> &str {
    &text[text.ceil_char_boundary(text.len().saturating_sub(limit))..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::shorten::cut_middle;

    fn numbers(separator: &str) -> String {
        let numbers: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
        format!("AssertionError: {} END", numbers.join(separator))
    }

    #[test]
    fn what_a_report_left_out_is_found_in_the_stream() {
        for separator in [" ", ",", "\n", " line\n", "é\n"] {
            let message = numbers(separator);
            let stream = format!("Traceback\n{message}\n\nFAILED (failures=1)\n");
            for limit in [300, 1024, 2048] {
                let cut = cut_middle(&message, limit);
                assert!(cut.contains(NOTE_END));
                assert_eq!(
                    uncut(&cut, &["", &stream]),
                    message,
                    "{separator:?} {limit}"
                );
            }
        }
    }

    #[test]
    fn a_cause_that_cannot_be_completed_stays() {
        let cut = cut_middle(&numbers(" "), 300);
        for cause in [
            "",
            "no cut",
            "[... ",
            "[... x bytes are missing here ...]\n",
            &cut,
        ] {
            assert_eq!(uncut(cause, &["other", ""]), cause);
        }
    }
}
