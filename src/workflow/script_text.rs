//! What of a script can reach its output: comments are left out, and `\"` is a quote.
//!
//! This is not a parser of bash. Quotes and here-documents are followed so far that a `#` in them is not taken for a
//! comment; where that fails, only lines that begin with `#` are comments.

use std::collections::HashMap;
use std::ops::Range;

/// The text of a script to look for tags in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ScriptText {
    pub(super) text: String,
    /// Where a backslash was left out, in bytes of `text`.
    removed: Vec<usize>,
}

impl ScriptText {
    pub(super) fn new(script: &str) -> ScriptText {
        let mut kept = ScriptText {
            text: String::with_capacity(script.len()),
            removed: Vec::new(),
        };
        let mut at = 0;
        for comment in comments(script) {
            kept.push(&script[at..comment.start]);
            let blanks = std::iter::repeat_n(' ', comment.len());
            kept.text.extend(blanks);
            at = comment.end;
        }
        kept.push(&script[at..]);
        kept
    }

    fn push(&mut self, text: &str) {
        for (index, part) in text.split("\\\"").enumerate() {
            if 0 < index {
                self.removed.push(self.text.len());
                self.text.push('"');
            }
            self.text.push_str(part);
        }
    }

    /// The position in the script of a position in the text.
    pub(super) fn original(&self, at: usize) -> usize {
        at + self.removed.partition_point(|removed| *removed < at)
    }
}

/// How far a scan of a script has come.
struct ScriptScanner<'a> {
    bytes: &'a [u8],
    at: usize,
    /// The open quote; `$` for `$'`.
    quote: Option<u8>,
    /// The ends of the here-documents that begin after this line.
    heredocs: Vec<HeredocEnd>,
    lines: ScriptLines<'a>,
    comments: Vec<Range<usize>>,
}

/// The lines of a script by their content: where each begins, and where the next one does.
struct ScriptLines<'a> {
    plain: HashMap<&'a [u8], Vec<Range<usize>>>,
    /// Without the tabs before them.
    indented: HashMap<&'a [u8], Vec<Range<usize>>>,
}

impl<'a> ScriptLines<'a> {
    fn new(bytes: &'a [u8]) -> ScriptLines<'a> {
        let mut lines = ScriptLines {
            plain: HashMap::new(),
            indented: HashMap::new(),
        };
        let mut start = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let range = start..start + line.len();
            let content = line.strip_suffix(b"\n").unwrap_or(line);
            let content = content.strip_suffix(b"\r").unwrap_or(content);
            let tabs = content.iter().take_while(|byte| **byte == b'\t').count();
            let add = |map: &mut HashMap<_, Vec<_>>, content| {
                map.entry(content).or_default().push(range.clone());
            };
            add(&mut lines.plain, content);
            add(&mut lines.indented, &content[tabs..]);
            start = range.end;
        }
        lines
    }

    /// Behind the first line from here on that ends a here-document.
    fn after(&self, end: &HeredocEnd, at: usize) -> Option<usize> {
        let map = match end.is_indented {
            true => &self.indented,
            false => &self.plain,
        };
        let same = map.get(end.word.as_slice())?;
        let next = same.partition_point(|line| line.start < at);
        Some(same.get(next)?.end)
    }
}

struct HeredocEnd {
    word: Vec<u8>,
    /// `<<-`: tabs before it are ignored.
    is_indented: bool,
}

fn comments(script: &str) -> Vec<Range<usize>> {
    let mut scanner = ScriptScanner {
        bytes: script.as_bytes(),
        at: 0,
        quote: None,
        heredocs: Vec::new(),
        lines: ScriptLines::new(script.as_bytes()),
        comments: Vec::new(),
    };
    while scanner.at < scanner.bytes.len() {
        scanner.step();
    }
    match scanner.quote {
        None => scanner.comments,
        Some(_) => comment_lines(script),
    }
}

/// The lines that begin with `#`.
fn comment_lines(script: &str) -> Vec<Range<usize>> {
    let mut at = 0;
    let lines = script.split_inclusive('\n').map(|line| {
        at += line.len();
        (at - line.len(), line)
    });
    lines
        .filter(|(_, line)| line.trim_start().starts_with('#'))
        .map(|(start, line)| start..start + line.trim_end().len())
        .collect()
}

impl ScriptScanner<'_> {
    fn step(&mut self) {
        let byte = self.bytes[self.at];
        match (self.quote, byte) {
            (None | Some(b'"' | b'$'), b'\\') => self.at += 1,
            (Some(b'\'' | b'$'), b'\'') | (Some(b'"'), b'"') => self.quote = None,
            (Some(_), _) => {}
            (None, b'\'') if self.before() == Some(b'$') => self.quote = Some(b'$'),
            (None, b'\'' | b'"') => self.quote = Some(byte),
            (None, b'#') if self.begins_word() => return self.comment(),
            (None, b'<') if self.bytes[self.at..].starts_with(b"<<<") => self.at += 2,
            (None, b'<') if self.bytes[self.at..].starts_with(b"<<") => return self.heredoc(),
            (None, b'\n') => return self.skip_heredocs(),
            (None, _) => {}
        }
        self.at += 1;
    }

    fn before(&self) -> Option<u8> {
        self.bytes[..self.at].last().copied()
    }

    fn begins_word(&self) -> bool {
        let before = self.before();
        before.is_none_or(|byte| byte.is_ascii_whitespace() || b";|&()".contains(&byte))
    }

    fn line_end(&self, from: usize) -> usize {
        let length = memchr::memchr(b'\n', &self.bytes[from..]);
        length.map_or(self.bytes.len(), |length| from + length)
    }

    fn comment(&mut self) {
        let end = self.line_end(self.at);
        self.comments.push(self.at..end);
        self.at = end;
    }

    /// Notes the delimiter of a here-document.
    fn heredoc(&mut self) {
        self.at += 2;
        let is_indented = self.bytes.get(self.at) == Some(&b'-');
        self.at += usize::from(is_indented);
        let count = |bytes: &[u8], is_part: fn(&u8) -> bool| {
            bytes.iter().take_while(|byte| is_part(byte)).count()
        };
        self.at += count(&self.bytes[self.at..], |byte| b" \t".contains(byte));
        let length = count(&self.bytes[self.at..], |byte| {
            !byte.is_ascii_whitespace() && !b";|&<>()".contains(byte)
        });
        let mut word = self.bytes[self.at..self.at + length].to_vec();
        word.retain(|byte| !b"'\"\\".contains(byte));
        self.at += length;
        if !word.is_empty() {
            self.heredocs.push(HeredocEnd { word, is_indented });
        }
    }

    /// Goes to the line after the here-documents that begin here. One without an end was something else.
    fn skip_heredocs(&mut self) {
        self.at += 1;
        for end in std::mem::take(&mut self.heredocs) {
            self.at = self.lines.after(&end, self.at).unwrap_or(self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn comments_are_left_out() {
        for (script, kept) in [
            ("echo a # b", "echo a"),
            ("# a\necho b", "echo b"),
            ("echo a;#b", "echo a;"),
            ("echo a#b $# ${#x}", "echo a#b $# ${#x}"),
            ("echo '# a' \"# b\" \\# c", "echo '# a' \"# b\" \\# c"),
            ("echo \"a 'b\" # c' d", "echo \"a 'b\""),
            ("echo $'a\\'# b' # c", "echo $'a\\'# b'"),
            ("# don't\necho a # it's", "echo a"),
            ("cat <<E\n# a\nE\n# b", "cat <<E\n# a\nE"),
            ("cat <<-'E' # b\n\t# a'\n\tE\n# c", "cat <<-'E' # a' E"),
            ("cat <<A <<B\n#1\nA\n#2\nB\n#3", "cat <<A <<B\n#1\nA\n#2\nB"),
            ("cat <<<E\n# a", "cat <<<E"),
            ("echo $((1<<2))\n# a", "echo $((1<<2))"),
            (
                "echo it's # a\n# b\necho c # d",
                "echo it's # a\necho c # d",
            ),
        ] {
            let text = ScriptText::new(script).text;
            let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words(&text), words(kept), "{script}");
            assert_eq!(
                text.lines().count(),
                script.lines().count(),
                "{script}: {text}"
            );
        }
    }

    #[test]
    fn an_escaped_quote_is_a_quote() {
        let script = "echo \"<call return=\\\"B\\\">C</call>\" # \\\"";
        let kept = ScriptText::new(script);
        assert_eq!(kept.text.trim(), "echo \"<call return=\"B\">C</call>\"");
        for word in ["<call", "return=", "C</call>"] {
            let at = kept.text.find(word).unwrap();
            assert!(script[kept.original(at)..].starts_with(word), "{word}");
        }
    }

    proptest! {
        #[test]
        fn every_position_is_in_the_script(script in "[a#'\"\\\\<E\n\t$ ä-]{0,40}") {
            let kept = ScriptText::new(&script);
            for at in 0..=kept.text.len() {
                prop_assert!(kept.original(at) <= script.len());
            }
        }
    }
}
