//! YAML to a tree with places: the only file that knows the YAML crate.
//!
//! Booleans are `true` and `false` alone, tags that we do not know, duplicate keys and second documents are refused,
//! and nesting, nodes and what aliases expand to are bounded, so that a small file cannot become a large tree.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Location, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::diagnostic::{Refusal, escape};
use super::node::{Entry, Node, Value};

const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 100_000;
const MAX_ALIASES: usize = 1_000;
const MAX_TEXT_BYTES: usize = 8 << 20;

/// Returns the tree, or the first error; an empty document is `Null`.
pub fn parse(text: &str) -> Result<Node, Refusal> {
    let tree: Spanned<Raw> = serde_yaml::from_str_with_options(text, options())
        .map_err(|error| refusal(text, &error))?;
    Ok(node(text, tree))
}

fn options() -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_total_scalar_bytes: MAX_TEXT_BYTES,
            max_aliases: MAX_ALIASES,
            max_merge_keys: MAX_ALIASES,
        },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: MAX_NODES },
        // Comments are of no use to us, and more than 32 in a row would be refused where they are kept.
        emit_comments: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn refusal(text: &str, error: &serde_yaml::Error) -> Refusal {
    let what = UserMessageFormatter.format_message(error);
    Refusal::new(
        error
            .location()
            .map_or(0, |location| offset(text, location)),
        escape(&what),
    )
}

fn offset(text: &str, location: Location) -> usize {
    if let Some(bytes) = location.span().byte_offset() {
        return usize::try_from(bytes).unwrap_or(text.len());
    }
    let before = usize::try_from(location.line().saturating_sub(1)).unwrap_or(usize::MAX);
    let column = usize::try_from(location.column().saturating_sub(1)).unwrap_or(usize::MAX);
    let begin: usize = text.split_inclusive('\n').take(before).map(str::len).sum();
    begin
        + text[begin..]
            .chars()
            .take(column)
            .map(char::len_utf8)
            .sum::<usize>()
}

/// What the YAML crate finds, before its numbers are looked up in the text.
enum Raw {
    Value(Value),
    List(Vec<Spanned<Raw>>),
    Map(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn node(text: &str, raw: Spanned<Raw>) -> Node {
    // What an alias or a merge brings is shown where it is written, not where it is used.
    let at = offset(text, raw.defined);
    let value = match raw.value {
        // Whole numbers beyond 64 bits arrive as fractions; the text says what they are.
        Raw::Value(Value::Fraction(number)) => {
            Value::whole(spelling(text, at)).unwrap_or(Value::Fraction(number))
        }
        Raw::Value(value) => value,
        Raw::List(items) => Value::List(items.into_iter().map(|item| node(text, item)).collect()),
        Raw::Map(entries) => Value::Map(
            entries
                .into_iter()
                .map(|(key, value)| entry(text, key, value))
                .collect(),
        ),
    };
    Node { at, value }
}

fn entry(text: &str, key: Spanned<String>, value: Spanned<Raw>) -> Entry {
    Entry {
        at: offset(text, key.defined),
        key: key.value,
        value: node(text, value),
    }
}

fn spelling(text: &str, at: usize) -> &str {
    let rest = text.get(at..).unwrap_or("");
    &rest[..rest
        .find(|c: char| c.is_whitespace() || ",]}".contains(c))
        .unwrap_or(rest.len())]
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Raw, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Whole(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Whole(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Fraction(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<Raw, E> {
        Ok(Raw::Value(Value::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Raw::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Map(entries))
    }
}
