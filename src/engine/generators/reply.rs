//! The answer format of files mode: blocks of whole files, and deletions, in any text around them.
//!
//! A pure parser of foreign text. It finds the blocks and says what is wrong with them as an answer; whether a name
//! is safe, and whether it fits the workspace, others say.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

use crate::safety::path::SafePath;

/// More blocks than this in one answer are no answer.
pub const MAX_BLOCKS: usize = 10_000;

/// One block of an answer, its path as the model wrote it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Block {
    Write { path: String, content: String },
    Delete { path: String },
}

impl Block {
    /// Returns the path as the model wrote it.
    pub fn path(&self) -> &str {
        match self {
            Block::Write { path, .. } | Block::Delete { path } => path,
        }
    }
}

/// What was found in an answer: all blocks, an unclosed one included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    pub blocks: Vec<Block>,
    /// The closing line that the last block lacks.
    pub unclosed: Option<String>,
}

/// Why an answer is not in the format, in words for the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
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
    /// File against folder in the workspace as it is.
    Conflict(String),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::CutOff => f.write_str(
                "the answer was cut off at the limit of output tokens (max_tokens), so none of it was used; \
                 answer with fewer or shorter files",
            ),
            Fault::NoBlock => f.write_str("the answer has no <file> or <delete> block"),
            Fault::TooMany => write!(f, "the answer has more than {MAX_BLOCKS} blocks"),
            Fault::Unclosed { path, end } => {
                write!(f, "the block of \"{path}\" is not closed: no line after it is exactly {end}")
            }
            Fault::Twice { first, second } if first == second => {
                write!(f, "\"{first}\" is named by more than one block")
            }
            Fault::Twice { first, second } => {
                write!(f, "\"{first}\" and \"{second}\" name the same file (or differ only in case)")
            }
            Fault::FileAndFolder { file, below } => {
                write!(f, "\"{file}\" is written as a file, but \"{below}\" needs it to be a folder")
            }
            Fault::Conflict(text) => f.write_str(text),
        }
    }
}

#[expect(clippy::unwrap_used, reason = "the patterns are constants, and a test uses them")]
static OPENING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"^[ \t]*<file[ \t]+path="([^"]*)"(?:[ \t]+end="([^"]+)")?[ \t]*>[ \t]*$"#).unwrap());
#[expect(clippy::unwrap_used, reason = "the patterns are constants, and a test uses them")]
static DELETION: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"^[ \t]*<delete[ \t]+path="([^"]*)"[ \t]*/>[ \t]*$"#).unwrap());

/// Finds the blocks of an answer.
pub fn parse(text: &str) -> Reply {
    let mut reply = Reply::default();
    // The open block: its path, its closing line, where its content begins.
    let mut open: Option<(String, String, usize)> = None;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let start = at;
        at += line.len();
        let bare = line.strip_suffix('\n').unwrap_or(line);
        let bare = bare.strip_suffix('\r').unwrap_or(bare);
        if let Some((path, end, from)) = open.take() {
            if bare == end {
                reply.blocks.push(Block::Write { path, content: text[from..start].to_owned() });
            } else {
                open = Some((path, end, from));
            }
        } else if !bare.contains('<') {
            continue;
        } else if let Some(found) = OPENING.captures(bare) {
            let end = found.get(2).map_or("</file>", |word| word.as_str());
            open = Some((found[1].to_owned(), end.to_owned(), at));
        } else if let Some(found) = DELETION.captures(bare) {
            reply.blocks.push(Block::Delete { path: found[1].to_owned() });
        }
    }
    if let Some((path, end, from)) = open {
        reply.blocks.push(Block::Write { path, content: text[from.min(text.len())..].to_owned() });
        reply.unclosed = Some(end);
    }
    reply
}

impl Reply {
    /// Returns what is wrong with the answer as such; `paths` are those of the blocks, in order.
    pub fn fault(&self, paths: &[SafePath], cut_off: bool) -> Option<Fault> {
        if cut_off {
            return Some(Fault::CutOff);
        }
        if self.blocks.is_empty() {
            return Some(Fault::NoBlock);
        }
        if self.blocks.len() > MAX_BLOCKS {
            return Some(Fault::TooMany);
        }
        if let (Some(end), Some(last)) = (&self.unclosed, self.blocks.last()) {
            return Some(Fault::Unclosed { path: last.path().to_owned(), end: end.clone() });
        }
        self.collision(paths)
    }

    fn collision(&self, paths: &[SafePath]) -> Option<Fault> {
        let mut seen: HashMap<String, &SafePath> = HashMap::new();
        for path in paths {
            if let Some(first) = seen.insert(path.folded(), path) {
                return Some(Fault::Twice { first: first.to_string(), second: path.to_string() });
            }
        }
        let written: HashMap<String, &SafePath> = self
            .blocks
            .iter()
            .zip(paths)
            .filter(|(block, _)| matches!(block, Block::Write { .. }))
            .map(|(_, path)| (path.folded(), path))
            .collect();
        written.iter().find_map(|(key, below)| {
            let parents = key.match_indices('/').map(|(at, _)| &key[..at]);
            let file = parents.into_iter().find_map(|parent| written.get(parent))?;
            Some(Fault::FileAndFolder { file: file.to_string(), below: below.to_string() })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn write(path: &str, content: &str) -> Block {
        Block::Write { path: path.into(), content: content.into() }
    }

    fn check(text: &str, blocks: &[Block]) {
        assert_eq!(parse(text), Reply { blocks: blocks.to_vec(), unclosed: None }, "{text:?}");
    }

    #[test]
    fn blocks_in_any_text() {
        check("", &[]);
        check("hello\n", &[]);
        check("<file path=\"a\">\nx\n</file>\n", &[write("a", "x\n")]);
        check("<file path=\"a\">\nx\n</file>", &[write("a", "x\n")]);
        check("<file path=\"a\">\n</file>\n", &[write("a", "")]);
        check("<file path=\"a\">\n\n</file>\n", &[write("a", "\n")]);
        check("so:\n```\n<file path=\"a\">\nx\n</file>\n```\n", &[write("a", "x\n")]);
        check("<file path=\"a\">\r\nx\r\n</file>\r\n", &[write("a", "x\r\n")]);
        check("<file path=\"a\">\nx\ry\n</file>\n", &[write("a", "x\ry\n")]);
        check(
            "<file path=\"a\">\n</file> x\n </file>\n</FILE>\n</file>\n",
            &[write("a", "</file> x\n </file>\n</FILE>\n")],
        );
        check("<file path=\"a\" end=\"END\">\n</file>\nEND\n", &[write("a", "</file>\n")]);
        check(
            "<delete path=\"a\"/>\n<delete path=\"b\" />",
            &[Block::Delete { path: "a".into() }, Block::Delete { path: "b".into() }],
        );
        check(
            "<file path=\"a\">\n<delete path=\"b\"/>\n<file path=\"c\">\n</file>\n",
            &[write("a", "<delete path=\"b\"/>\n<file path=\"c\">\n")],
        );
        check("see <file path=\"a\"> here\n<file path=\"a\">x</file>\n<file path=\"a\"> x\n<file>\n</file>\n", &[]);
    }

    #[test]
    fn an_unclosed_block_is_known() {
        let reply = parse("<file path=\"a\">\nx\n</file>\n<file path=\"b\" end=\"E\">\ny\n</file>\n");
        assert_eq!(reply.blocks, [write("a", "x\n"), write("b", "y\n</file>\n")]);
        assert_eq!(reply.unclosed.as_deref(), Some("E"));
        assert_eq!(parse("<file path=\"a\">").unclosed.as_deref(), Some("</file>"));
    }

    fn fault(text: &str) -> Option<Fault> {
        let reply = parse(text);
        let paths: Vec<_> = reply.blocks.iter().map(|block| SafePath::parse(block.path()).unwrap()).collect();
        reply.fault(&paths, false)
    }

    #[test]
    fn faults() {
        let block = |path: &str| format!("<file path=\"{path}\">\nx\n</file>\n");
        assert_eq!(fault(&block("a")), None);
        assert_eq!(fault("words"), Some(Fault::NoBlock));
        assert!(matches!(fault("<file path=\"a\">\nx"), Some(Fault::Unclosed { .. })));
        assert!(matches!(fault(&(block("a") + &block("./a"))), Some(Fault::Twice { .. })));
        assert!(matches!(fault(&(block("a") + &block("A"))), Some(Fault::Twice { .. })));
        assert!(matches!(fault(&(block("a") + "<delete path=\"a\"/>")), Some(Fault::Twice { .. })));
        assert!(matches!(fault(&(block("a") + &block("a/b/c"))), Some(Fault::FileAndFolder { .. })));
        assert!(matches!(fault(&(block("a/b/c") + &block("A/B"))), Some(Fault::FileAndFolder { .. })));
        assert_eq!(fault(&(block("a/b") + "<delete path=\"a\"/>")), None);
        assert_eq!(parse(&block("a")).fault(&[SafePath::parse("a").unwrap()], true), Some(Fault::CutOff));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(<file path=\"|\">|</file>|<delete path=\"|\"/>|end=\"E\"|E|a|/|\\.|\r|\n| ){0,40}") {
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
            prop_assert_eq!(parse(&text), Reply { blocks: expected, unclosed: None });
        }
    }
}
