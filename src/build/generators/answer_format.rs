//! The answer format of files mode: blocks of whole files, and deletions, in any text around them.
//!
//! A pure parser of foreign text. It finds the blocks and says what is wrong with them as an answer; whether a name
//! is safe, and whether it fits the workspace, others say.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::conversation::state::without_thinking;
use crate::workspace::safe_path::SafePath;

/// More blocks than this in one answer are no answer.
pub const MAX_BLOCKS: usize = 10_000;

/// One block of an answer, its path as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileBlock {
    Write { path: String, content: String },
    Delete { path: String },
}

impl FileBlock {
    /// Returns the path as the model wrote it.
    pub fn path(&self) -> &str {
        match self {
            FileBlock::Write { path, .. } | FileBlock::Delete { path } => path,
        }
    }
}

/// What was found in an answer: all blocks, an unclosed one included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedAnswer {
    pub blocks: Vec<FileBlock>,
    /// The closing line that the last block lacks.
    pub unclosed: Option<String>,
}

/// Why an answer is not in the format, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FormatFault {
    CutOff,
    NoBlock,
    TooMany,
    Unclosed {
        path: String,
        end: String,
    },
    Twice {
        first: String,
        second: String,
    },
    FileAndFolder {
        file: String,
        below: String,
    },
    /// A file to be written under the name of a folder.
    FolderName(String),
    /// File against folder in the workspace as it is.
    Conflict(String),
}

impl fmt::Display for FormatFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FormatFault::CutOff => f.write_str(
                "the answer was cut off at the limit of output tokens (max_tokens), so none of it was used; \
                 answer with fewer or shorter files",
            ),
            FormatFault::NoBlock => f.write_str("the answer has no <file> or <delete> block"),
            FormatFault::TooMany => write!(f, "the answer has more than {MAX_BLOCKS} blocks"),
            FormatFault::Unclosed { path, end } => {
                write!(f, "the block of \"{path}\" is not closed: no line after it is exactly {end}")
            }
            FormatFault::Twice { first, second } if first == second => {
                write!(f, "\"{first}\" is named by more than one block")
            }
            FormatFault::Twice { first, second } => {
                write!(f, "\"{first}\" and \"{second}\" name the same file (or differ only in case)")
            }
            FormatFault::FileAndFolder { file, below } => {
                write!(f, "\"{file}\" is written as a file, but \"{below}\" needs it to be a folder")
            }
            FormatFault::FolderName(path) => {
                write!(f, "\"{path}\" ends like a folder, but a <file> block writes a file; name the file")
            }
            FormatFault::Conflict(text) => f.write_str(text),
        }
    }
}

/// An attribute's value, in double or in single quotes: two groups, one of which matches.
const QUOTED: &str = r#"(?:"([^"]*)"|'([^']*)')"#;
#[expect(
    clippy::unwrap_used,
    reason = "the patterns are constants, and a test uses them"
)]
static OPENING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"^[ \t]*<file[ \t]+path={QUOTED}(?:[ \t]+end={QUOTED})?[ \t]*>[ \t]*$"
    ))
    .unwrap()
});
#[expect(
    clippy::unwrap_used,
    reason = "the patterns are constants, and a test uses them"
)]
static DELETION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(&format!(
        r"^[ \t]*<delete[ \t]+path={QUOTED}[ \t]*/>[ \t]*$"
    ))
    .unwrap()
});

/// The line that closes a block whose opening tag names no other.
const CLOSING: &str = "</file>";
const BLANKS: [char; 2] = [' ', '\t'];

const THINKING_END: &str = "</think>";

/// Finds the blocks of an answer.
pub fn parse(text: &str) -> ParsedAnswer {
    let text = without_thinking(text);
    let lines = ClosingLines::find(text);
    let mut reply = ParsedAnswer::default();
    // Blocks before this one were only thought of.
    let mut first = 0;
    let mut at = 0;
    while let Some(line) = line_at(text, at) {
        at = line.next;
        if !line.text.contains('<') {
            continue;
        } else if let Some(tag) = OpeningTag::read(line.text) {
            let closing = lines.closing(tag.end, line.next);
            let content = &text[line.next..closing.map_or(text.len(), |(start, _)| start)];
            let content = if is_markdown(tag.path) {
                content
            } else {
                without_fence(content)
            };
            reply.blocks.push(FileBlock::Write {
                path: tag.path.to_owned(),
                content: content.to_owned(),
            });
            reply.unclosed = closing.is_none().then(|| tag.end.to_owned());
            at = closing.map_or(text.len(), |(_, next)| next);
        } else if let Some(found) = DELETION.captures(line.text) {
            reply.blocks.push(FileBlock::Delete {
                path: attribute(&found, 1).unwrap_or_default().to_owned(),
            });
        } else if line.text.trim() == THINKING_END {
            // Some servers keep the opening tag to themselves.
            first = reply.blocks.len();
        }
    }
    if first < reply.blocks.len() {
        reply.blocks.drain(..first);
    }
    reply
}

/// A line without its end, and where the next one begins.
struct AnswerLine<'a> {
    text: &'a str,
    start: usize,
    next: usize,
}

fn line_at(text: &str, start: usize) -> Option<AnswerLine<'_>> {
    let rest = text.get(start..).filter(|rest| !rest.is_empty())?;
    let length = rest.find('\n').map_or(rest.len(), |end| end + 1);
    let line = rest[..length].strip_suffix('\n').unwrap_or(rest);
    Some(AnswerLine {
        text: line.strip_suffix('\r').unwrap_or(line),
        start,
        next: start + length,
    })
}

fn lines(text: &str) -> impl Iterator<Item = AnswerLine<'_>> {
    let mut at = 0;
    std::iter::from_fn(move || line_at(text, at).inspect(|line| at = line.next))
}

/// The attributes of a line that opens a block.
struct OpeningTag<'a> {
    path: &'a str,
    end: &'a str,
}

impl<'a> OpeningTag<'a> {
    fn read(line: &'a str) -> Option<OpeningTag<'a>> {
        let found = OPENING.captures(line)?;
        let end = attribute(&found, 3)
            .filter(|end| !end.is_empty())
            .unwrap_or(CLOSING);
        Some(OpeningTag {
            path: attribute(&found, 1).unwrap_or_default(),
            end,
        })
    }
}

/// Returns the value of an attribute by the first of its two groups.
fn attribute<'a>(found: &Captures<'a>, group: usize) -> Option<&'a str> {
    found
        .get(group)
        .or_else(|| found.get(group + 1))
        .map(|value| value.as_str())
}

/// Where the lines are that can close a block: found once, so that no answer takes long to read.
#[derive(Default)]
struct ClosingLines<'a> {
    by_word: HashMap<&'a str, CandidateLines>,
    /// Opening tags that stand at the very beginning of their line.
    openings: Vec<usize>,
}

/// Lines by where they begin and where the next one does, in their order.
#[derive(Default)]
struct CandidateLines {
    exact: Vec<(usize, usize)>,
    /// Those with blanks around the word.
    blank: Vec<(usize, usize)>,
}

impl<'a> ClosingLines<'a> {
    fn find(text: &'a str) -> ClosingLines<'a> {
        let mut found = ClosingLines::default();
        for line in lines(text).filter(|line| line.text.contains("<file")) {
            if let Some(tag) = OpeningTag::read(line.text) {
                found.by_word.entry(tag.end).or_default();
                found
                    .openings
                    .extend(line.text.starts_with('<').then_some(line.start));
            }
        }
        for line in lines(text) {
            let place = (line.start, line.next);
            if let Some(candidates) = found.by_word.get_mut(line.text) {
                candidates.exact.push(place);
            } else if let Some(candidates) = found.by_word.get_mut(line.text.trim_matches(BLANKS)) {
                candidates.blank.push(place);
            }
        }
        found
    }

    /// Returns the line that closes a block whose content begins at `from`: the exact one, or the first with blanks
    /// around it where there is none before the next block begins.
    fn closing(&self, word: &str, from: usize) -> Option<(usize, usize)> {
        let candidates = self.by_word.get(word)?;
        let first = |lines: &[(usize, usize)]| {
            lines
                .get(lines.partition_point(|(start, _)| *start < from))
                .copied()
        };
        let (exact, blank) = (first(&candidates.exact), first(&candidates.blank));
        let (Some((exact_start, _)), Some((_, after_blank))) = (exact, blank) else {
            return exact.or(blank);
        };
        let opening = self
            .openings
            .get(self.openings.partition_point(|start| *start < after_blank));
        if opening.is_some_and(|opening| *opening < exact_start) {
            blank
        } else {
            exact
        }
    }
}

fn is_markdown(path: &str) -> bool {
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

/// Returns a content that is one whole Markdown fence without the fence; blank lines around it go with it.
fn without_fence(content: &str) -> &str {
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

/// What a fence is made of: so many of these characters.
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

    /// Returns the mark, how often it stands there, and what follows.
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

impl ParsedAnswer {
    /// Returns what is wrong with the answer as such; `paths` are those of the blocks, in order.
    pub fn fault(&self, paths: &[SafePath], cut_off: bool) -> Option<FormatFault> {
        if cut_off {
            return Some(FormatFault::CutOff);
        }
        if self.blocks.is_empty() {
            return Some(FormatFault::NoBlock);
        }
        if self.blocks.len() > MAX_BLOCKS {
            return Some(FormatFault::TooMany);
        }
        if let (Some(end), Some(last)) = (&self.unclosed, self.blocks.last()) {
            return Some(FormatFault::Unclosed {
                path: last.path().to_owned(),
                end: end.clone(),
            });
        }
        self.folder_name().or_else(|| self.collision(paths))
    }

    /// A deletion may name a folder like this; a file has a name.
    fn folder_name(&self) -> Option<FormatFault> {
        let mut written = self
            .blocks
            .iter()
            .filter(|block| matches!(block, FileBlock::Write { .. }))
            .map(FileBlock::path);
        let named = written.find(|path| path.ends_with('/') || path.ends_with("/."));
        named.map(|path| FormatFault::FolderName(path.to_owned()))
    }

    fn collision(&self, paths: &[SafePath]) -> Option<FormatFault> {
        let mut seen: HashMap<String, &SafePath> = HashMap::new();
        for path in paths {
            if let Some(first) = seen.insert(path.folded(), path) {
                return Some(FormatFault::Twice {
                    first: first.to_string(),
                    second: path.to_string(),
                });
            }
        }
        let written: HashMap<String, &SafePath> = self
            .blocks
            .iter()
            .zip(paths)
            .filter(|(block, _)| matches!(block, FileBlock::Write { .. }))
            .map(|(_, path)| (path.folded(), path))
            .collect();
        written.iter().find_map(|(key, below)| {
            let parents = key.match_indices('/').map(|(at, _)| &key[..at]);
            let file = parents.into_iter().find_map(|parent| written.get(parent))?;
            Some(FormatFault::FileAndFolder {
                file: file.to_string(),
                below: below.to_string(),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(path: &str, content: &str) -> FileBlock {
        FileBlock::Write {
            path: path.into(),
            content: content.into(),
        }
    }

    fn check(text: &str, blocks: &[FileBlock]) {
        assert_eq!(
            parse(text),
            ParsedAnswer {
                blocks: blocks.to_vec(),
                unclosed: None
            },
            "{text:?}"
        );
    }

    #[test]
    fn blocks_in_any_text() {
        check("", &[]);
        check("hello\n", &[]);
        check("<file path=\"a\">\nx\n</file>\n", &[write("a", "x\n")]);
        check("<file path=\"a\">\nx\n</file>", &[write("a", "x\n")]);
        check("<file path=\"a\">\n</file>\n", &[write("a", "")]);
        check("<file path=\"a\">\n\n</file>\n", &[write("a", "\n")]);
        check(
            "so:\n```\n<file path=\"a\">\nx\n</file>\n```\n",
            &[write("a", "x\n")],
        );
        check(
            "<file path=\"a\">\r\nx\r\n</file>\r\n",
            &[write("a", "x\r\n")],
        );
        check(
            "<file path=\"a\">\nx\ry\n</file>\n",
            &[write("a", "x\ry\n")],
        );
        check(
            "<file path=\"a\">\n</file> x\n </file>\n</FILE>\n</file>\n",
            &[write("a", "</file> x\n </file>\n</FILE>\n")],
        );
        check(
            "<file path=\"a\" end=\"END\">\n</file>\nEND\n",
            &[write("a", "</file>\n")],
        );
        check(
            "<delete path=\"a\"/>\n<delete path=\"b\" />",
            &[
                FileBlock::Delete { path: "a".into() },
                FileBlock::Delete { path: "b".into() },
            ],
        );
        check(
            "<file path=\"a\">\n<delete path=\"b\"/>\n<file path=\"c\">\n</file>\n",
            &[write("a", "<delete path=\"b\"/>\n<file path=\"c\">\n")],
        );
        check(
            "see <file path=\"a\"> here\n<file path=\"a\">x</file>\n<file path=\"a\"> x\n<file>\n</file>\n",
            &[],
        );
    }

    #[test]
    fn blanks_around_the_closing_line_close_where_no_line_is_exact() {
        let two = [write("a", "x\n"), write("b", "y\n")];
        for close in [" </file>", "</file> ", "\t</file>\t", " </file>\r"] {
            check(&format!("<file path=\"a\">\nx\n{close}\n"), &two[..1]);
            check(
                &format!("<file path=\"a\">\nx\n{close}\n<file path=\"b\">\ny\n{close}"),
                &two,
            );
            check(
                &format!("<file path=\"a\">\nx\n{close}\n<file path=\"b\">\ny\n</file>\n"),
                &two,
            );
            check(
                &format!("<file path=\"a\">\nx\n</file>\n<file path=\"b\">\ny\n{close}\n"),
                &two,
            );
        }
        check("<file path=\"a\" end=\"E\">\nx\n E \n", &two[..1]);
        check("<file path=\"a\">\nx\n </file>\n </file>\n", &two[..1]);
        let nested = "  <file path=\"x\">\n  </file>\n  <file path=\"y\">\n  </file>\n";
        check(
            &format!("<file path=\"a.md\">\n{nested}</file>\n"),
            &[write("a.md", nested)],
        );
    }

    #[test]
    fn attributes_may_be_in_single_quotes() {
        check("<file path='a'>\nx\n</file>\n", &[write("a", "x\n")]);
        check(
            "<file path='a\"b' end=\"E\">\nx\nE\n",
            &[write("a\"b", "x\n")],
        );
        check(
            "<file path=\"it's\" end='E'>\nx\nE\n",
            &[write("it's", "x\n")],
        );
        check(
            "<delete path='a'/>\n",
            &[FileBlock::Delete { path: "a".into() }],
        );
        check("<file path='a\">\nx\n</file>\n", &[]);
    }

    #[test]
    fn a_whole_fence_is_taken_off() {
        let content = |path: &str, content: &str| match parse(&format!(
            "<file path=\"{path}\">\n{content}</file>\n"
        )) {
            ParsedAnswer {
                blocks,
                unclosed: None,
            } => match &blocks[..] {
                [FileBlock::Write { content, .. }] => content.clone(),
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        };
        for fenced in [
            "```\nx\n```\n",
            "```python\nx\n```\n",
            "```python title=a\nx\n```  \n",
            "~~~\nx\n~~~~\n",
            "````\nx\n````\n",
            "\n```\nx\n```\n\n",
            "  ```\nx\n  ```\n",
        ] {
            assert_eq!(content("a.py", fenced), "x\n", "{fenced:?}");
            assert_eq!(content("d/a.MD", fenced), fenced, "{fenced:?}");
        }
        assert_eq!(content("a.py", "```\r\nx\r\n```\r\n"), "x\r\n");
        assert_eq!(content("a.py", "```\n```\n"), "");
        assert_eq!(
            content("a.py", "````\n```\nx\n```\n````\n"),
            "```\nx\n```\n"
        );
        for kept in [
            "x\n```\ny\n```\n",
            "```\nx\n```\ny\n",
            "```\nx\n",
            "```\nx\n```\n```\ny\n```\n",
            "```\nx\n~~~\n",
            "``\nx\n``\n",
            "```x``` \ny\n```\n",
            "\"\"\"\n```\nx\n```\n\"\"\"\n",
            "",
        ] {
            assert_eq!(content("a.py", kept), kept, "{kept:?}");
        }
    }

    #[test]
    fn thinking_before_an_answer_is_dropped() {
        let (sketch, answer) = (
            "<file path=\"a\">\n...\n</file>\n",
            "<file path=\"a\">\nx\n</file>\n",
        );
        let expected = [write("a", "x\n")];
        check(
            &format!("<think>\n{sketch}hm\n</think>\n\n{answer}"),
            &expected,
        );
        check(&format!(" \n<think></think>{answer}"), &expected);
        check(
            &format!("<think>\n<file path=\"b\">\nhalf\n</think>\n{answer}"),
            &expected,
        );
        check(
            &format!("I think\n{sketch}\n</think>\n\n{answer}"),
            &expected,
        );
        check(&format!("I think\n</think>\n{answer}"), &expected);
        // Not in front, not closed, or part of a file: none of these is thinking before an answer.
        check(&format!("{answer}<think>\n</think>\n"), &expected);
        check(&format!("<think>\n{answer}"), &expected);
        check(
            "<file path=\"a\">\n<think>\n</think>\n</file>\n",
            &[write("a", "<think>\n</think>\n")],
        );
        assert_eq!(without_thinking("<think>a</think> b"), " b");
    }

    #[test]
    fn an_unclosed_block_is_known() {
        let reply =
            parse("<file path=\"a\">\nx\n</file>\n<file path=\"b\" end=\"E\">\ny\n</file>\n");
        assert_eq!(
            reply.blocks,
            [write("a", "x\n"), write("b", "y\n</file>\n")]
        );
        assert_eq!(reply.unclosed.as_deref(), Some("E"));
        assert_eq!(
            parse("<file path=\"a\">").unclosed.as_deref(),
            Some("</file>")
        );
    }

    fn fault(text: &str) -> Option<FormatFault> {
        let reply = parse(text);
        let paths: Vec<_> = reply
            .blocks
            .iter()
            .map(|block| SafePath::parse(block.path()).unwrap())
            .collect();
        reply.fault(&paths, false)
    }

    #[test]
    fn faults() {
        let block = |path: &str| format!("<file path=\"{path}\">\nx\n</file>\n");
        assert_eq!(fault(&block("a")), None);
        assert_eq!(fault("words"), Some(FormatFault::NoBlock));
        assert!(matches!(
            fault("<file path=\"a\">\nx"),
            Some(FormatFault::Unclosed { .. })
        ));
        assert!(matches!(
            fault(&(block("a") + &block("./a"))),
            Some(FormatFault::Twice { .. })
        ));
        assert!(matches!(
            fault(&(block("a") + &block("A"))),
            Some(FormatFault::Twice { .. })
        ));
        assert!(matches!(
            fault(&(block("a") + "<delete path=\"a\"/>")),
            Some(FormatFault::Twice { .. })
        ));
        assert!(matches!(
            fault(&(block("a") + &block("a/b/c"))),
            Some(FormatFault::FileAndFolder { .. })
        ));
        assert!(matches!(
            fault(&(block("a/b/c") + &block("A/B"))),
            Some(FormatFault::FileAndFolder { .. })
        ));
        assert_eq!(fault(&(block("a/b") + "<delete path=\"a\"/>")), None);
        assert_eq!(
            fault(&block("a/")),
            Some(FormatFault::FolderName("a/".into()))
        );
        assert_eq!(
            fault(&block("a/b/.")),
            Some(FormatFault::FolderName("a/b/.".into()))
        );
        assert_eq!(fault(&(block("b") + "<delete path=\"a/\"/>")), None);
        assert_eq!(
            parse(&block("a")).fault(&[SafePath::parse("a").unwrap()], true),
            Some(FormatFault::CutOff)
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(<file path=\"|<file path='|\">|'>|</file>|<delete path=\"|\"/>|end=\"E\"|E|a|/|\\.|\r|\n| |```|<think>|</think>){0,40}") {
            let _ = parse(&text);
        }

        #[test]
        fn what_is_written_is_read_back(contents in proptest::collection::vec("([a-zé<>/\"\r]{0,12}\n){0,5}", 1..5)) {
            let mut text = String::from("words\n");
            let mut expected = Vec::new();
            for (number, content) in contents.iter().enumerate() {
                let path = format!("f{number}");
                text += &format!("<file path=\"{path}\" end=\"THE-END\">\n{content}THE-END\n");
                expected.push(write(&path, content));
            }
            prop_assert_eq!(parse(&text), ParsedAnswer { blocks: expected, unclosed: None });
        }
    }
}
