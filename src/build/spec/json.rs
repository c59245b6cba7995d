//! JSON to a tree with places.
//!
//! serde_json alone decides what is JSON, and unescapes and measures every scalar; it tells no positions of values,
//! so a walker goes over the text that it has accepted and notes where each one stands.

use std::collections::HashSet;

use super::diagnostic::Diagnostic;
use super::node::{Node, NodeEntry, NodeValue, brief};

/// Returns the tree, or the first error of syntax, or a key that is there twice.
pub fn parse(text: &str) -> Result<Node, Diagnostic> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => JsonWalker { text, at: 0 }.value(),
        Err(error) => Err(syntax(text, &error)),
    }
}

fn syntax(text: &str, error: &serde_json::Error) -> Diagnostic {
    let line: usize = text
        .split_inclusive('\n')
        .take(error.line().saturating_sub(1))
        .map(str::len)
        .sum();
    let message = error.to_string();
    let what = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(what, _)| what);
    let at = line + error.column().saturating_sub(1);
    Diagnostic::new(at..at, format!("this is not JSON: {}", brief(what)))
}

/// Walks over text that is known to be JSON; nesting is bounded by serde_json's own limit.
struct JsonWalker<'a> {
    text: &'a str,
    at: usize,
}

impl JsonWalker<'_> {
    fn value(&mut self) -> Result<Node, Diagnostic> {
        let next = self.peek();
        let at = self.at;
        let value = match next {
            Some(b'{') => self.map()?,
            Some(b'[') => self.list()?,
            Some(b'"') => NodeValue::Text(self.string()?),
            _ => self.word()?,
        };
        Ok(Node {
            span: at..self.at,
            value,
        })
    }

    fn map(&mut self) -> Result<NodeValue, Diagnostic> {
        let mut entries = Vec::new();
        let mut seen = HashSet::new();
        self.at += 1;
        while self.more(b'}') {
            let at = self.at;
            let key = self.string()?;
            if !seen.insert(key.clone()) {
                return Err(Diagnostic::new(
                    at..self.at,
                    format!("duplicate key `{}`", brief(&key)),
                ));
            }
            self.more(b':');
            let key_span = at..self.at;
            entries.push(NodeEntry {
                key_span,
                key,
                value: self.value()?,
            });
        }
        Ok(NodeValue::Map(entries))
    }

    fn list(&mut self) -> Result<NodeValue, Diagnostic> {
        let mut items = Vec::new();
        self.at += 1;
        while self.more(b']') {
            items.push(self.value()?);
        }
        Ok(NodeValue::List(items))
    }

    /// Passes a separator, or the end, where there is one; returns whether something stands before the end.
    fn more(&mut self, end: u8) -> bool {
        let next = self.peek();
        if next == Some(b',') || next == Some(end) {
            self.at += 1;
        }
        next.is_some() && next != Some(end) && self.peek().is_some()
    }

    /// Passes blanks and returns the byte that follows.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        self.at += rest
            .iter()
            .position(|byte| !byte.is_ascii_whitespace())
            .unwrap_or(rest.len());
        self.text.as_bytes().get(self.at).copied()
    }

    fn string(&mut self) -> Result<String, Diagnostic> {
        let begin = self.at;
        let mut escaped = false;
        let inside = self.text.as_bytes()[begin..]
            .iter()
            .skip(1)
            .position(|byte| {
                let ends = *byte == b'"' && !escaped;
                escaped = *byte == b'\\' && !escaped;
                ends
            });
        self.at = inside.map_or(self.text.len(), |length| begin + length + 2);
        serde_json::from_str(&self.text[begin..self.at])
            .map_err(|_| Diagnostic::new(begin..self.at, "this is not a JSON string"))
    }

    fn word(&mut self) -> Result<NodeValue, Diagnostic> {
        let rest = &self.text[self.at..];
        let word = &rest[..rest
            .find(|c: char| c.is_ascii_whitespace() || ",]}".contains(c))
            .unwrap_or(rest.len())];
        let begin = self.at;
        self.at += word.len();
        match word {
            "null" => Ok(NodeValue::Null),
            "true" => Ok(NodeValue::Bool(true)),
            "false" => Ok(NodeValue::Bool(false)),
            _ => NodeValue::whole(word)
                .or_else(|| word.parse().ok().map(NodeValue::Fraction))
                .ok_or_else(|| Diagnostic::new(begin..self.at, "this is not JSON")),
        }
    }
}
