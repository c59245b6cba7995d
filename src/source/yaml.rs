//! YAML and JSON to a tree of values with positions: the only file that knows the YAML crate.
//!
//! JSON is checked by serde_json first and then read as the YAML that it is. Booleans are `true` and `false` alone;
//! unknown tags, duplicate keys and second documents are refused. Nesting, nodes and what aliases expand to are
//! bounded, so that a small file cannot become a large tree.

use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Location, MessageFormatter, Options, Spanned, UserMessageFormatter};

use super::diagnostic::Diagnostic;
use super::node::{Node, NodeEntry, NodeValue, brief};

const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 100_000;
const MAX_ALIASES: usize = 1_000;
const MAX_TEXT_BYTES: usize = 8 << 20;

/// The tree of a YAML document; an empty one is `Null`.
pub(crate) fn parse_yaml(text: &str) -> Result<Node, Diagnostic> {
    let mut tree: Node = serde_yaml::from_str_with_options(text, options())
        .map_err(|error| yaml_mistake(text, &error))?;
    restore_large_integers(text, &mut tree);
    Ok(tree)
}

/// The tree of a JSON text.
pub(crate) fn parse_json(text: &str) -> Result<Node, Diagnostic> {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => parse_yaml(text),
        Err(error) => Err(json_mistake(text, &error)),
    }
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
        // Kept comments would be refused where there are more than 32 in a row.
        emit_comments: false,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

fn yaml_mistake(text: &str, error: &serde_yaml::Error) -> Diagnostic {
    let span = error
        .location()
        .map_or(0..0, |location| match bytes(location) {
            Some(span) => span,
            // Errors of syntax count characters.
            None => {
                let mut indices = text.char_indices().map(|(at, _)| at);
                let at = usize::try_from(location.span().offset()).ok();
                let at = at.and_then(|at| indices.nth(at)).unwrap_or(text.len());
                at..at
            }
        });
    Diagnostic::new(span, UserMessageFormatter.format_message(error))
}

fn json_mistake(text: &str, error: &serde_json::Error) -> Diagnostic {
    let lines = text.split_inclusive('\n').map(str::len);
    let line_start: usize = lines.take(error.line().saturating_sub(1)).sum();
    let at = line_start + error.column().saturating_sub(1);
    let message = error.to_string();
    let what = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(what, _)| what);
    Diagnostic::new(at..at, format!("this is not JSON: {}", brief(what)))
}

/// Integers beyond 64 bits arrive as floats; the text has their digits.
fn restore_large_integers(text: &str, node: &mut Node) {
    match &mut node.value {
        NodeValue::Float(_) => {
            let spelled = text.get(node.span.clone()).and_then(NodeValue::decimal);
            node.value = spelled.unwrap_or_else(|| node.value.clone());
        }
        NodeValue::List(items) => items
            .iter_mut()
            .for_each(|item| restore_large_integers(text, item)),
        NodeValue::Map(entries) => entries
            .iter_mut()
            .for_each(|entry| restore_large_integers(text, &mut entry.value)),
        _ => {}
    }
}

fn bytes(location: Location) -> Option<Range<usize>> {
    let start = usize::try_from(location.span().byte_offset()?).ok()?;
    let length = usize::try_from(location.span().byte_len()?).ok()?;
    Some(start..start + length)
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Node, D::Error> {
        let Spanned { value, defined, .. } = Spanned::deserialize(deserializer)?;
        // What an alias or a merge brings is shown where it is written, not where it is used.
        let span = bytes(defined).unwrap_or_default();
        Ok(Node { span, value })
    }
}

impl<'de> Deserialize<'de> for NodeValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<NodeValue, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = NodeValue;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<NodeValue, E> {
        Ok(NodeValue::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<NodeValue, E> {
        Ok(NodeValue::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<NodeValue, E> {
        Ok(NodeValue::Integer(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<NodeValue, E> {
        Ok(NodeValue::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<NodeValue, E> {
        Ok(NodeValue::Text(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<NodeValue, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(NodeValue::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<NodeValue, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = access.next_entry::<Spanned<String>, Node>()? {
            entries.push(NodeEntry {
                key_span: bytes(key.defined).unwrap_or_default(),
                key: key.value,
                value,
            });
        }
        Ok(NodeValue::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Node, NodeValue, parse_json};

    /// The values of a tree, each of which is spelled at its span.
    fn value(text: &str, node: &Node) -> Value {
        match &node.value {
            NodeValue::Null => Value::Null,
            NodeValue::Bool(value) => json!(value),
            NodeValue::Integer(number) => json!(i64::try_from(*number).unwrap()),
            NodeValue::Float(number) => json!(number),
            NodeValue::Text(value) => {
                let spelled: String = serde_json::from_str(&text[node.span.clone()]).unwrap();
                assert_eq!(spelled, *value);
                json!(value)
            }
            NodeValue::List(items) => items.iter().map(|item| value(text, item)).collect(),
            NodeValue::Map(entries) => {
                let field = |entry: &super::NodeEntry| {
                    let spelled: String =
                        serde_json::from_str(&text[entry.key_span.clone()]).unwrap();
                    assert_eq!(spelled, entry.key);
                    (spelled, value(text, &entry.value))
                };
                Value::Object(entries.iter().map(field).collect())
            }
        }
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            (-1e9..1e9).prop_map(|number: f64| json!(number + 0.5)),
            r#"[ a-z:#\-{}\[\],"'\\\n\t&*!|>%@~<\u{1}ä😀]{0,12}"#.prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 30, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                proptest::collection::btree_map("[a-z:#&*\\-? ]{0,5}", inner, 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn json_is_read_like_serde_json_reads_it(expected in any_json()) {
            for text in [expected.to_string(), serde_json::to_string_pretty(&expected).unwrap()] {
                for text in [text.replace("\n  ", "\n\t"), text] {
                    let tree = parse_json(&text).unwrap_or_else(|mistake| panic!("{text}\n{mistake:?}"));
                    prop_assert_eq!(value(&text, &tree), expected.clone(), "{}", text);
                }
            }
        }
    }
}
