//! A lenient pull parser for the XML of test reports: tags with attributes, and text between them.
//!
//! One pass, and no errors: captured output is cut in the middle and mixed with other text, which a conforming parser
//! rejects. Anything that is not markup is text. Entities are decoded once, so nothing expands; document types,
//! comments and processing instructions are skipped.

/// A tag or a text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum XmlPiece<'a> {
    Open {
        name: &'a str,
        attributes: &'a str,
        is_empty: bool,
    },
    Close {
        name: &'a str,
    },
    Text(&'a str),
    /// CDATA: text without entities.
    Verbatim(&'a str),
}

/// Iterates over the pieces of a document.
pub(super) struct XmlPieces<'a> {
    rest: &'a str,
}

/// The JUnit report in an output: everything from the line that opens it.
pub(super) fn junit_document(text: &str) -> Option<&str> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let opening = line.trim_start();
        if ["<testsuites", "<testsuite ", "<testsuite>"]
            .iter()
            .any(|tag| opening.starts_with(tag))
            || (opening.starts_with("<?xml") && text[start..].contains("<testsuite"))
        {
            return Some(&text[start..]);
        }
        if opening.starts_with("<?xml") {
            return None;
        }
        start += line.len();
    }
    None
}

pub(super) fn pieces(document: &str) -> XmlPieces<'_> {
    XmlPieces { rest: document }
}

/// The decoded value of an attribute.
pub(super) fn attribute(attributes: &str, name: &str) -> Option<String> {
    let mut rest = attributes;
    while let Some((key, after)) = rest.split_once('=') {
        let after = after.trim_start();
        let quote = after
            .chars()
            .next()
            .filter(|quote| matches!(quote, '"' | '\''))?;
        let (value, following) = after[1..].split_once(quote)?;
        if key.trim() == name {
            return Some(decoded(value));
        }
        rest = following;
    }
    None
}

/// The text with its entities decoded.
pub(super) fn decoded(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        result.push_str(&rest[..start]);
        rest = &rest[start..];
        match entity(rest) {
            Some((character, length)) => {
                result.push(character);
                rest = &rest[length..];
            }
            None => {
                result.push('&');
                rest = &rest[1..];
            }
        }
    }
    result + rest
}

/// No entity of interest is longer than `&#x10FFFF;`.
const LONGEST_ENTITY: usize = 10;

fn entity(text: &str) -> Option<(char, usize)> {
    let end = text
        .bytes()
        .take(LONGEST_ENTITY)
        .position(|byte| byte == b';')?;
    let name = &text[1..end];
    let character = match name {
        "lt" => '<',
        "gt" => '>',
        "amp" => '&',
        "quot" => '"',
        "apos" => '\'',
        _ => {
            let number = name.strip_prefix('#')?;
            let code = match number.strip_prefix(['x', 'X']) {
                Some(digits) => u32::from_str_radix(digits, 16).ok()?,
                None => number.parse().ok()?,
            };
            // Output has no control characters; a numeric entity must not add one.
            char::from_u32(code)
                .filter(|character| matches!(character, '\n' | '\t') || !character.is_control())?
        }
    };
    Some((character, end + 1))
}

impl<'a> Iterator for XmlPieces<'a> {
    type Item = XmlPiece<'a>;

    fn next(&mut self) -> Option<XmlPiece<'a>> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            let Some(inside) = self.rest.strip_prefix('<') else {
                let end = self.rest.find('<').unwrap_or(self.rest.len());
                return Some(XmlPiece::Text(self.split(end, 0)));
            };
            if let Some(content) = inside.strip_prefix("![CDATA[") {
                let end = content.find("]]>").unwrap_or(content.len());
                self.rest = content;
                return Some(XmlPiece::Verbatim(self.split(end, 3)));
            }
            let (skipped, terminator) = match inside {
                comment if comment.starts_with("!--") => {
                    (true, comment.find("-->").map(|end| end + 2))
                }
                other => (other.starts_with(['!', '?']), tag_end(other)),
            };
            self.rest = inside;
            let tag = self.split(terminator.unwrap_or(inside.len()), 1);
            if !skipped {
                return Some(piece(tag));
            }
        }
    }
}

impl<'a> XmlPieces<'a> {
    /// Takes the text before `end`, and skips `skipped` more bytes.
    fn split(&mut self, end: usize, skipped: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest.get(skipped..).unwrap_or_default();
        taken
    }
}

fn tag_end(tag: &str) -> Option<usize> {
    let mut quote = None;
    tag.bytes().position(|byte| match (quote, byte) {
        (None, b'>') => true,
        (None, b'"' | b'\'') => {
            quote = Some(byte);
            false
        }
        (Some(open), close) if open == close => {
            quote = None;
            false
        }
        _ => false,
    })
}

fn piece(tag: &str) -> XmlPiece<'_> {
    if let Some(name) = tag.strip_prefix('/') {
        return XmlPiece::Close { name: name.trim() };
    }
    let (content, is_empty) = tag
        .strip_suffix('/')
        .map_or((tag, false), |content| (content, true));
    let (name, attributes) = content
        .split_once(char::is_whitespace)
        .unwrap_or((content, ""));
    XmlPiece::Open {
        name,
        attributes,
        is_empty,
    }
}

#[cfg(test)]
mod tests {
    use super::{XmlPiece, attribute, decoded, junit_document, pieces};
    use proptest::prelude::{prop_assert, proptest};

    #[test]
    fn a_document_is_parsed_into_pieces() {
        let document =
            "<?xml version=\"1.0\"?><a x=\"1>2\" y='3'><!-- <no/> -->t<![CDATA[<&]]><b/></a>";
        let walked: Vec<XmlPiece> = pieces(document).collect();
        let expected = [
            XmlPiece::Open {
                name: "a",
                attributes: "x=\"1>2\" y='3'",
                is_empty: false,
            },
            XmlPiece::Text("t"),
            XmlPiece::Verbatim("<&"),
            XmlPiece::Open {
                name: "b",
                attributes: "",
                is_empty: true,
            },
            XmlPiece::Close { name: "a" },
        ];
        assert_eq!(walked, expected);
    }

    #[test]
    fn attributes_and_entities_are_decoded() {
        let attributes = "name=\"a\" message='say &quot;1 &lt; 2&quot;&#10;&#x41;'";
        assert_eq!(
            attribute(attributes, "message").as_deref(),
            Some("say \"1 < 2\"\nA")
        );
        assert_eq!(attribute(attributes, "name").as_deref(), Some("a"));
        assert_eq!(attribute(attributes, "other"), None);
        assert_eq!(
            decoded("a & b &amp;amp; &nope; &#27; &#xffffffff; &"),
            "a & b &amp; &nope; &#27; &#xffffffff; &"
        );
    }

    #[test]
    fn a_report_is_found_after_other_output() {
        assert_eq!(
            junit_document("hello\n  <testsuite tests=\"1\"/>"),
            Some("  <testsuite tests=\"1\"/>")
        );
        assert_eq!(junit_document("a <testsuite tests=\"1\"/>"), None);
        assert_eq!(junit_document("<?xml version=\"1.0\"?>\n<html/>"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_to_its_end(text in "([<>/!\\[\\]\"'=&;?-]|CDATA|a|é| |\n){0,80}") {
            let total: usize = pieces(&text).map(|piece| match piece {
                XmlPiece::Open { attributes, .. } => { let _ = attribute(attributes, "a"); attributes.len() }
                XmlPiece::Close { name } => name.len(),
                XmlPiece::Text(text) | XmlPiece::Verbatim(text) => { let _ = decoded(text); text.len() }
            }).sum();
            prop_assert!(total <= text.len());
            let _ = junit_document(&text);
        }
    }
}
