//! Lines of a text with their offsets.

/// A line without its ending, its offset, and that of the next line.
pub(super) struct AnswerLine<'a> {
    pub(super) text: &'a str,
    pub(super) start: usize,
    pub(super) next: usize,
}

pub(super) fn line_at(text: &str, start: usize) -> Option<AnswerLine<'_>> {
    let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
    let length = rest.find('\n').map_or(rest.len(), |end| end + 1);
    let line = rest[..length].strip_suffix('\n').unwrap_or(rest);
    Some(AnswerLine {
        text: line.strip_suffix('\r').unwrap_or(line),
        start,
        next: start + length,
    })
}

pub(super) fn lines(text: &str) -> impl Iterator<Item = AnswerLine<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || line_at(text, at).inspect(|line| at = line.next))
}
