//! Transition tags in the output of a model or a script.
//!
//! One pass over the text: a tag is one of eight words, with attributes in quotes and a closing tag of the same name.
//! A closing tag pairs with the nearest open one of its name; the outermost pairs count, everything else is text. What
//! the tags mean is up to `transition.rs`. `PrintScanner` finds prints while a text still grows.

use std::fmt;
use std::ops::Range;

/// A stream whose last tag is still incomplete after so many bytes is not followed any further.
const MAX_PENDING: usize = 64 << 10;
const PRINT: &str = "print";

/// What a transition tag asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum TagName {
    Goto,
    Reset,
    Function,
    Call,
    Fork,
    Result,
    Ask,
}

impl TagName {
    pub(crate) const ALL: [TagName; 7] = [
        TagName::Goto,
        TagName::Reset,
        TagName::Function,
        TagName::Call,
        TagName::Fork,
        TagName::Result,
        TagName::Ask,
    ];

    pub(crate) fn word(self) -> &'static str {
        match self {
            TagName::Goto => "goto",
            TagName::Reset => "reset",
            TagName::Function => "function",
            TagName::Call => "call",
            TagName::Fork => "fork",
            TagName::Result => "result",
            TagName::Ask => "ask",
        }
    }

    pub(crate) fn of_word(word: &str) -> Option<TagName> {
        TagName::ALL.into_iter().find(|name| name.word() == word)
    }
}

impl fmt::Display for TagName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A balanced transition tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tag {
    pub(crate) name: TagName,
    /// In their order; a name may occur twice.
    pub(crate) attributes: Vec<(String, String)>,
    pub(crate) content: String,
    /// Of the opening tag, in bytes.
    pub(crate) opening: Range<usize>,
}

impl Tag {
    pub(crate) fn attribute(&self, name: &str) -> Option<&str> {
        let mut found = self.attributes.iter().filter(|(known, _)| known == name);
        found.next().map(|(_, value)| value.as_str())
    }
}

/// The tags and prints of a text, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct TaggedText {
    pub(crate) tags: Vec<Tag>,
    pub(crate) prints: Vec<String>,
}

/// A recognised word: a transition tag, or a print.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TagWord {
    Transition(TagName),
    Print,
}

impl TagWord {
    fn word(self) -> &'static str {
        match self {
            TagWord::Transition(name) => name.word(),
            TagWord::Print => PRINT,
        }
    }

    const ALL: [TagWord; 8] = [
        TagWord::Transition(TagName::Goto),
        TagWord::Transition(TagName::Reset),
        TagWord::Transition(TagName::Function),
        TagWord::Transition(TagName::Call),
        TagWord::Transition(TagName::Fork),
        TagWord::Transition(TagName::Result),
        TagWord::Transition(TagName::Ask),
        TagWord::Print,
    ];
}

#[derive(Debug, PartialEq, Eq)]
enum TagToken {
    Opening {
        word: TagWord,
        attributes: Vec<(String, String)>,
        end: usize,
    },
    Closing {
        word: TagWord,
        end: usize,
    },
    Text,
    /// The text ends before it can be decided.
    Incomplete,
}

/// Reads the tags of a text that is complete.
pub(crate) fn read_tags(text: &str) -> TaggedText {
    let mut tagged = TaggedText::default();
    for (tag, content) in tag_pairs(text) {
        let content = text[content].to_owned();
        match tag.word {
            TagWord::Print => tagged.prints.push(content),
            TagWord::Transition(name) => tagged.tags.push(Tag {
                name,
                attributes: tag.attributes,
                content,
                opening: tag.opening,
            }),
        }
    }
    tagged
}

/// An opening tag, and where it is.
struct OpenTag {
    word: TagWord,
    attributes: Vec<(String, String)>,
    opening: Range<usize>,
}

/// The outermost pairs of tags, each with the place of its content.
fn tag_pairs(text: &str) -> Vec<(OpenTag, Range<usize>)> {
    let mut open: Vec<OpenTag> = Vec::new();
    // By the end of their opening tag; a pair that contains others replaces them.
    let mut pairs: Vec<(OpenTag, Range<usize>)> = Vec::new();
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'<', &text.as_bytes()[at..]) {
        let start = at + found;
        at = start + 1;
        match token_at(text, start) {
            TagToken::Opening {
                word,
                attributes,
                end,
            } => {
                at = end;
                open.push(OpenTag {
                    word,
                    attributes,
                    opening: start..end,
                });
            }
            TagToken::Closing { word, end } => {
                at = end;
                if let Some(index) = open.iter().rposition(|tag| tag.word == word) {
                    let tag = open.swap_remove(index);
                    open.truncate(index);
                    let is_outside =
                        |(inner, _): &(OpenTag, _)| inner.opening.start < tag.opening.end;
                    let kept = pairs
                        .iter()
                        .rposition(is_outside)
                        .map_or(0, |last| last + 1);
                    pairs.truncate(kept);
                    let content = tag.opening.end..start;
                    pairs.push((tag, content));
                }
            }
            TagToken::Text | TagToken::Incomplete => {}
        }
    }
    pairs
}

/// Reads the tag that begins at a `<`.
fn token_at(text: &str, start: usize) -> TagToken {
    let bytes = text.as_bytes();
    let is_closing = bytes.get(start + 1) == Some(&b'/');
    let name_start = start + 1 + usize::from(is_closing);
    let rest = &text[name_start..];
    let Some(word) = TagWord::ALL
        .into_iter()
        .find(|word| rest.starts_with(word.word()))
    else {
        let may_become = rest.len() < "function".len()
            && TagWord::ALL
                .iter()
                .any(|word| word.word().starts_with(rest));
        return if may_become {
            TagToken::Incomplete
        } else {
            TagToken::Text
        };
    };
    let after = name_start + word.word().len();
    match bytes.get(after) {
        None => TagToken::Incomplete,
        Some(b'>') if is_closing => TagToken::Closing {
            word,
            end: after + 1,
        },
        Some(_) if is_closing => TagToken::Text,
        Some(b'>' | b' ' | b'\t' | b'\r' | b'\n') => opening(text, word, after),
        Some(_) => TagToken::Text,
    }
}

/// Reads the attributes of an opening tag, from behind its name on.
fn opening(text: &str, word: TagWord, mut at: usize) -> TagToken {
    let bytes = text.as_bytes();
    let mut attributes = Vec::new();
    loop {
        let blanks = bytes[at..]
            .iter()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
        at += blanks;
        match bytes.get(at) {
            None => return TagToken::Incomplete,
            Some(b'>') => {
                return TagToken::Opening {
                    word,
                    attributes,
                    end: at + 1,
                };
            }
            // An attribute needs a blank before it.
            Some(_) if blanks == 0 => return TagToken::Text,
            Some(_) => {}
        }
        let name = bytes[at..]
            .iter()
            .take_while(|byte| is_name_byte(**byte))
            .count();
        let quote = match (bytes.get(at + name), bytes.get(at + name + 1)) {
            _ if name == 0 => return TagToken::Text,
            (None, _) | (Some(b'='), None) => return TagToken::Incomplete,
            (Some(b'='), Some(quote @ (b'"' | b'\''))) => *quote,
            _ => return TagToken::Text,
        };
        let value = at + name + 2;
        let Some(length) = memchr::memchr(quote, &bytes[value..]) else {
            return TagToken::Incomplete;
        };
        attributes.push((
            text[at..at + name].to_owned(),
            text[value..value + length].to_owned(),
        ));
        at = value + length + 1;
    }
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b':') || !byte.is_ascii()
}

/// The name of the first tag that looks like one of another workflow program, such as `call-workflow`.
pub(crate) fn foreign_tag(text: &str) -> Option<String> {
    let mut at = 0;
    while let Some(found) = memchr::memchr(b'<', &text.as_bytes()[at..]) {
        at += found + 1;
        let name: String = text[at..]
            .chars()
            .take_while(|c| c.is_ascii_lowercase() || *c == '-')
            .take(40)
            .collect();
        if is_foreign_tag(&name) {
            return Some(name);
        }
    }
    None
}

/// Whether a tag has a name like one of a workflow program and is not one of ours.
pub(crate) fn is_foreign_tag(name: &str) -> bool {
    let base = name.strip_suffix("-workflow");
    base.is_some_and(|base| TagName::of_word(base).is_some())
}

/// Finds prints in a text as it grows, and returns each as soon as it is certain: no other tag is open before it.
#[derive(Debug, Default)]
pub(crate) struct PrintScanner {
    /// What could not be read yet: it begins with an incomplete tag.
    pending: String,
    open: Vec<TagWord>,
    /// The content so far of a print that no other tag contains.
    print: Option<String>,
    has_given_up: bool,
}

impl PrintScanner {
    /// Takes the next piece of the text; returns the prints that it completes.
    pub(crate) fn feed(&mut self, piece: &str) -> Vec<String> {
        let mut told = Vec::new();
        if self.has_given_up {
            return told;
        }
        self.pending.push_str(piece);
        let text = std::mem::take(&mut self.pending);
        let mut at = 0;
        while let Some(found) = memchr::memchr(b'<', &text.as_bytes()[at..]) {
            let start = at + found;
            self.keep(&text[at..start]);
            let (token, end) = match token_at(&text, start) {
                TagToken::Incomplete => {
                    self.pending = text[start..].to_owned();
                    self.has_given_up = MAX_PENDING < self.pending.len();
                    return told;
                }
                TagToken::Text => (None, start + 1),
                TagToken::Opening { word, end, .. } => (Some((word, true)), end),
                TagToken::Closing { word, end } => (Some((word, false)), end),
            };
            match token {
                Some((word, false)) if self.print.is_some() && self.closes_print(word) => {
                    told.extend(self.print.take());
                    self.open.clear();
                }
                Some((word, is_opening)) => {
                    let begins = is_opening && self.open.is_empty() && word == TagWord::Print;
                    self.keep(&text[start..end]);
                    if begins {
                        self.print = Some(String::new());
                    }
                    self.track(word, is_opening);
                }
                None => self.keep(&text[start..end]),
            }
            at = end;
        }
        self.keep(&text[at..]);
        told
    }

    /// Whether a closing tag closes the outermost print: no inner one is open.
    fn closes_print(&self, word: TagWord) -> bool {
        word == TagWord::Print && self.open.iter().filter(|open| **open == word).count() == 1
    }

    fn track(&mut self, word: TagWord, is_opening: bool) {
        if is_opening {
            self.open.push(word);
        } else if let Some(index) = self.open.iter().rposition(|open| *open == word) {
            self.open.truncate(index);
        }
    }

    fn keep(&mut self, text: &str) {
        if let Some(print) = &mut self.print {
            print.push_str(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> String {
        let tagged = read_tags(text);
        let tags = tagged.tags.iter().map(|tag| {
            let attributes: String = tag
                .attributes
                .iter()
                .map(|(name, value)| format!(" {name}={value}"))
                .collect();
            format!("{}{attributes}: {}", tag.name, tag.content)
        });
        let prints = tagged.prints.iter().map(|text| format!("print: {text}"));
        tags.chain(prints).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn tags_are_recognised() {
        let cases = [
            ("<goto>B</goto>", "goto: B"),
            ("so <goto>\nB\n</goto> then", "goto: \nB\n"),
            (
                "<call\n  return=\"R\"\n  input='x \"y\"'\n>C</call>",
                "call return=R input=x \"y\": C",
            ),
            (
                "<goto input=\"a>b</goto>c\">B</goto>",
                "goto input=a>b</goto>c: B",
            ),
            ("<a><goto>B</goto></a>", "goto: B"),
            ("<goto> a <goto>B</goto>", "goto: B"),
            (
                "<result>x <goto>B</goto> y</result>",
                "result: x <goto>B</goto> y",
            ),
            ("<result>x <goto> y</result>", "result: x <goto> y"),
            ("<goto>B</goto> </goto > </result\n>", "goto: B"),
            ("<result>a <result x> b</result>", "result: a <result x> b"),
            ("<print>p</print><goto>B</goto>", "goto: B | print: p"),
            (
                "<print><goto>X</goto></print> <goto>B</goto>",
                "goto: B | print: <goto>X</goto>",
            ),
            (
                "<result>a <print>b</print></result>",
                "result: a <print>b</print>",
            ),
            (
                "<result> open <print>hello</print> <goto>B</goto>",
                "goto: B | print: hello",
            ),
            (
                "<fork next=\"N\" i=\"1\">W</fork><fork>V</fork>",
                "fork next=N i=1: W | fork: V",
            ),
            ("<goto>A</goto><result>x</result>", "goto: A | result: x"),
        ];
        for (text, expected) in cases {
            assert_eq!(shown(text), expected, "{text}");
        }
    }

    #[test]
    fn everything_else_is_text() {
        for text in [
            "<GOTO>B</GOTO>",
            "<goto>B</Goto>",
            "<goto>B",
            "< goto>B</goto>",
            "<gotos>B</gotos>",
            "<gotos>B</goto>",
            "<result-set>ok</result-set>",
            "<goto>B</goto >",
            "<goto input = \"x\">B</goto>",
            "<goto now>B</goto>",
            "<call return=R>C</call>",
            "<goto a=\"1\"b=\"2\">B</goto>",
            "<goto/>",
            "</goto>",
            "&lt;goto&gt;B&lt;/goto&gt;",
            "<goto input=\"x>B</goto>",
            "<",
            "",
        ] {
            assert_eq!(read_tags(text), TaggedText::default(), "{text}");
        }
    }

    #[test]
    fn tags_of_other_programs_are_named() {
        assert_eq!(
            foreign_tag("x <call-workflow return=\"B\">../o</call-workflow>").as_deref(),
            Some("call-workflow")
        );
        assert_eq!(
            foreign_tag("<result-set>x</result-set> <goto>B</goto>"),
            None
        );
    }

    fn streamed(text: &str, size: usize) -> Vec<String> {
        let mut scanner = PrintScanner::default();
        let characters: Vec<char> = text.chars().collect();
        let pieces = characters.chunks(size.max(1));
        pieces
            .flat_map(|piece| scanner.feed(&piece.iter().collect::<String>()))
            .collect()
    }

    #[test]
    fn prints_are_told_as_soon_as_they_are_certain() {
        for size in [1, 2, 7, 1000] {
            assert_eq!(streamed("a <print>one</print> b", size), ["one"], "{size}");
            assert!(streamed("<result> x <print>no</print>", size).is_empty());
            assert_eq!(
                streamed("<print>I could <goto>X</goto></print>", size),
                ["I could <goto>X</goto>"]
            );
            assert!(streamed("<goto input=\"<print>x</print>\">", size).is_empty());
        }
    }

    proptest! {
        /// The prints of a stream are the first prints of the whole text.
        #[test]
        fn a_stream_tells_the_first_prints(
            parts in prop::collection::vec(
                prop::sample::select(vec![
                    "<print>", "</print>", "<goto>", "</goto>", "<result a='", "'>", "</result>", "x", "<", " ",
                ]),
                0..30,
            ),
            size in 1usize..9,
        ) {
            let text = parts.concat();
            let told = streamed(&text, size);
            let all = read_tags(&text).prints;
            prop_assert!(all.starts_with(&told), "{text}: {told:?} of {all:?}");
        }

        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}") {
            let _ = (read_tags(&text), foreign_tag(&text), streamed(&text, 3));
        }
    }
}
