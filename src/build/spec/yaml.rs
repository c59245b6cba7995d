//! YAML to a tree with places: the only file that knows the YAML crate.
//!
//! Booleans are `true` and `false` alone, tags that we do not know, duplicate keys and second documents are refused,
//! and nesting, nodes and what aliases expand to are bounded, so that a small file cannot become a large tree.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Location, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::diagnostic::Diagnostic;
use super::node::{Node, NodeEntry, NodeValue};

const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 100_000;
const MAX_ALIASES: usize = 1_000;
const MAX_TEXT_BYTES: usize = 8 << 20;

/// Returns the tree, or the first error; an empty document is `Null`.
pub fn parse(text: &str) -> Result<Node, Diagnostic> {
    let tree: Spanned<YamlValue> = serde_yaml::from_str_with_options(text, options())
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

fn refusal(text: &str, error: &serde_yaml::Error) -> Diagnostic {
    let span = error
        .location()
        .map_or(0..0, |location| bytes(text, location));
    Diagnostic::new(span, UserMessageFormatter.format_message(error))
}

/// The bytes of a location; errors of syntax know characters only.
fn bytes(text: &str, location: Location) -> Range<usize> {
    let as_usize = |number: u64| usize::try_from(number).unwrap_or(text.len());
    let span = location.span();
    let start = span.byte_offset().map_or_else(
        || {
            let mut indices = text.char_indices().map(|(at, _)| at);
            indices.nth(as_usize(span.offset())).unwrap_or(text.len())
        },
        as_usize,
    );
    start..start + span.byte_len().map_or(0, as_usize)
}

/// What the YAML crate finds, before its numbers are looked up in the text.
enum YamlValue {
    Value(NodeValue),
    List(Vec<Spanned<YamlValue>>),
    Map(Vec<(Spanned<String>, Spanned<YamlValue>)>),
}

fn node(text: &str, raw: Spanned<YamlValue>) -> Node {
    // What an alias or a merge brings is shown where it is written, not where it is used.
    let span = bytes(text, raw.defined);
    let value = match raw.value {
        // Whole numbers beyond 64 bits arrive as fractions; the text says what they are.
        YamlValue::Value(NodeValue::Fraction(number)) => {
            NodeValue::whole(text.get(span.clone()).unwrap_or_default())
                .unwrap_or(NodeValue::Fraction(number))
        }
        YamlValue::Value(value) => value,
        YamlValue::List(items) => {
            NodeValue::List(items.into_iter().map(|item| node(text, item)).collect())
        }
        YamlValue::Map(entries) => NodeValue::Map(
            entries
                .into_iter()
                .map(|(key, value)| entry(text, key, value))
                .collect(),
        ),
    };
    Node { span, value }
}

fn entry(text: &str, key: Spanned<String>, value: Spanned<YamlValue>) -> NodeEntry {
    NodeEntry {
        key_span: bytes(text, key.defined),
        key: key.value,
        value: node(text, value),
    }
}

impl<'de> Deserialize<'de> for YamlValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<YamlValue, D::Error> {
        deserializer.deserialize_any(YamlVisitor)
    }
}

struct YamlVisitor;

impl<'de> Visitor<'de> for YamlVisitor {
    type Value = YamlValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Whole(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Whole(value.into())))
    }

    fn visit_f64<E>(self, value: f64) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Fraction(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Text(value.to_owned())))
    }

    fn visit_string<E>(self, value: String) -> Result<YamlValue, E> {
        Ok(YamlValue::Value(NodeValue::Text(value)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(YamlValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<YamlValue, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(YamlValue::Map(entries))
    }
}
