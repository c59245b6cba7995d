//! Removes a Markdown fence around the whole content of a block.

use crate::build::generators::answer_format::lines::{AnswerLine, lines};

pub(super) fn is_markdown(path: &str) -> bool {
    let extension = path
        .rsplit('/')
        .next()
        .and_then(|name| name.rsplit_once('.'))
        .map_or("", |(_, extension)| extension);
    [
        "md", "markdown", "mdown", "mkd", "mkdn", "mdx", "qmd", "rmd",
    ]
    .iter()
    .any(|known| extension.eq_ignore_ascii_case(known))
}

/// Content that is one Markdown fence, without the fence and blank lines around it; other content unchanged.
pub(super) fn without_fence(content: &str) -> &str {
    let is_blank = |line: &AnswerLine<'_>| line.text.trim().is_empty();
    let mut lines = lines(content).skip_while(is_blank);
    let Some((opening, fence)) = lines
        .next()
        .and_then(|line| Some((line.next, MarkdownFence::opened_by(line.text)?)))
    else {
        return content;
    };
    match lines.find(|line| fence.is_closed_by(line.text)) {
        Some(closing) if lines.all(|line| is_blank(&line)) => &content[opening..closing.start],
        _ => content,
    }
}

/// The character of a fence, and how many of them.
struct MarkdownFence {
    mark: char,
    length: usize,
}

impl MarkdownFence {
    fn opened_by(line: &str) -> Option<MarkdownFence> {
        let (mark, length, info) = MarkdownFence::read(line)?;
        (!info.contains(mark)).then_some(MarkdownFence { mark, length })
    }

    fn is_closed_by(&self, line: &str) -> bool {
        let closes = |(mark, length, rest): (char, usize, &str)| {
            mark == self.mark && length >= self.length && rest.trim().is_empty()
        };
        MarkdownFence::read(line).is_some_and(closes)
    }

    /// The character, its count, and the rest of the line.
    fn read(line: &str) -> Option<(char, usize, &str)> {
        let bare = line.trim_start_matches(' ');
        let mark = bare
            .chars()
            .next()
            .filter(|mark| matches!(mark, '`' | '~'))?;
        let rest = bare.trim_start_matches(mark);
        let length = bare.len() - rest.len();
        (length >= 3 && line.len() - bare.len() <= 3).then_some((mark, length, rest))
    }
}
