//! YAML and JSON to a tree of values with positions: the only file that knows the YAML crate.
//!
//! JSON is checked by serde_json first and then read as the YAML that it is. Booleans are `true` and `false` alone;
//! unknown tags, duplicate keys and second documents are refused. Nesting, nodes and what aliases expand to are
//! bounded, so that a small file cannot become a large tree.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{
    DuplicateKeyPolicy, Location, MessageFormatter, NonFiniteFloatPolicy, Options, Spanned,
    UserMessageFormatter,
};

use super::diagnostic::Diagnostic;
use super::json_mistake::json_mistake;
use super::node::{Node, NodeEntry, NodeValue, brief};
use super::yaml_layout::tabbed;
use super::yaml_mistake::{SyntaxMistake, explain, unknown_tag};

const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 100_000;
const MAX_ALIASES: usize = 1_000;
const MAX_TEXT_BYTES: usize = 8 << 20;

/// How many mistakes of syntax are found in one text.
const MAX_MISTAKES: usize = 20;

/// A text as far as it can be read.
#[derive(Debug, Default)]
pub(crate) struct ParsedText {
    /// Of an empty document `Null`; `None` if the text cannot be read even without its mistakes.
    pub tree: Option<Node>,
    /// Mistakes of syntax.
    pub mistakes: Vec<Diagnostic>,
    /// Parts that were left out, with a mistake for each.
    repaired: Vec<Range<usize>>,
}

impl ParsedText {
    /// A text of which nothing can be read.
    pub(crate) fn unreadable(mistake: Diagnostic) -> ParsedText {
        ParsedText {
            mistakes: vec![mistake],
            ..ParsedText::default()
        }
    }

    /// The tree, if nothing was left out of it.
    pub(crate) fn whole_tree(&self) -> Option<&Node> {
        self.tree.as_ref().filter(|_| self.repaired.is_empty())
    }

    /// Whether a place in the tree is the user's, not that of a repair.
    pub(crate) fn is_original(&self, span: &Range<usize>) -> bool {
        let mut repaired = self.repaired.iter();
        !repaired.any(|part| part.start <= span.start && span.start <= part.end)
    }
}

/// Reads a YAML document, with all its mistakes as far as values with a mistake can be left out.
pub(crate) fn parse_yaml(text: &str) -> ParsedText {
    let mut parsed = ParsedText::default();
    let mut readable = text.to_owned();
    for _ in 0..MAX_MISTAKES {
        let error = match read_tree(&readable, DuplicateKeyPolicy::Error) {
            Ok(tree) => {
                parsed.tree = Some(tree);
                return parsed;
            }
            Err(error) => error,
        };
        if let serde_yaml::Error::DuplicateMappingKey { .. } = error {
            parsed.take_duplicates(&readable, yaml_mistake(&readable, &error).diagnostic);
            return parsed;
        }
        if let Some(tabbed) = tabbed(&readable, error_span(&readable, &error).start) {
            parsed.mistakes.extend(tabbed.mistakes);
            parsed.tree = read_tree(&tabbed.spaced, DuplicateKeyPolicy::LastWins).ok();
            return parsed;
        }
        let SyntaxMistake { diagnostic, repair } = yaml_mistake(&readable, &error);
        parsed.mistakes.push(diagnostic);
        let Some(repair) = repair.filter(|repair| repair.text.len() == repair.span.len()) else {
            return parsed;
        };
        readable.replace_range(repair.span.clone(), &repair.text);
        parsed.repaired.push(repair.span);
    }
    parsed
}

impl ParsedText {
    /// Reads a text in which keys are written twice.
    fn take_duplicates(&mut self, text: &str, first: Diagnostic) {
        self.tree = read_tree(text, DuplicateKeyPolicy::LastWins).ok();
        let mut found = Vec::new();
        if let Some(tree) = &self.tree {
            duplicates(text, tree, &mut found);
        }
        if found.is_empty() {
            found.push(first);
        }
        self.mistakes.extend(found);
    }
}

fn read_tree(text: &str, policy: DuplicateKeyPolicy) -> Result<Node, serde_yaml::Error> {
    let mut tree: Node = serde_yaml::from_str_with_options(text, options(policy))?;
    complete(text, &mut tree);
    Ok(tree)
}

/// The keys that a mapping has already.
fn duplicates(text: &str, node: &Node, found: &mut Vec<Diagnostic>) {
    match &node.value {
        NodeValue::List(items) => items.iter().for_each(|item| duplicates(text, item, found)),
        NodeValue::Map(entries) => {
            let mut known: HashMap<&str, &Range<usize>> = HashMap::new();
            for NodeEntry {
                key,
                key_span,
                value,
            } in entries
            {
                match known.get(key.as_str()) {
                    Some(first) => found.push(duplicate_key(text, key, key_span, first)),
                    None => _ = known.insert(key, key_span),
                }
                duplicates(text, value, found);
            }
        }
        _ => {}
    }
}

fn duplicate_key(text: &str, key: &str, span: &Range<usize>, first: &Range<usize>) -> Diagnostic {
    let line = |at: usize| memchr::memchr_iter(b'\n', &text.as_bytes()[..at]).count() + 1;
    let (key, above, own) = (brief(key), line(first.start), line(span.start));
    let message = format!("duplicate key `{key}`: it is on line {above} already");
    let help = match above == own {
        true => "remove one of them".to_owned(),
        false => format!("keep one `{key}: …`, that of line {above} or of line {own}"),
    };
    Diagnostic::new(span.clone(), message).with_help(help)
}

/// Reads a JSON text.
pub(crate) fn parse_json(text: &str) -> ParsedText {
    match serde_json::from_str::<serde_json::Value>(text) {
        Ok(_) => parse_yaml(text),
        Err(error) => ParsedText::unreadable(json_mistake(text, &error)),
    }
}

fn options(policy: DuplicateKeyPolicy) -> Options {
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
        duplicate_keys: policy,
        // Refused where they are used, with the name of the field.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        strict_booleans: true,
        reject_unsupported_tags: true,
        with_snippet: false,
    }
}

/// What an error is about, in bytes.
fn error_span(text: &str, error: &serde_yaml::Error) -> Range<usize> {
    let Some(location) = error.location() else {
        return 0..0;
    };
    bytes(location).unwrap_or_else(|| {
        // Errors of syntax count characters.
        let mut indices = text.char_indices().map(|(at, _)| at);
        let at = usize::try_from(location.span().offset()).ok();
        let at = at.and_then(|at| indices.nth(at)).unwrap_or(text.len());
        at..at
    })
}

fn yaml_mistake(text: &str, error: &serde_yaml::Error) -> SyntaxMistake {
    let span = error_span(text, error);
    let message = UserMessageFormatter.format_message(error).into_owned();
    let plain = |message: String, help: &str| SyntaxMistake {
        diagnostic: Diagnostic::new(span.clone(), message).with_help(help),
        repair: None,
    };
    match error {
        serde_yaml::Error::MultipleDocuments { .. } => plain(
            "a second document begins here, and a file has one".to_owned(),
            "remove the line `---` or `...` above, or what follows it",
        ),
        serde_yaml::Error::UnsupportedTag { .. } => unknown_tag(text, span.start)
            .unwrap_or_else(|| plain(message, "quote text that begins with `!`: `\"!…\"`")),
        serde_yaml::Error::Budget { .. } => plain(message, "make the file smaller"),
        _ => explain(text, span.start, message),
    }
}

/// Adds what only the text says: how a value is spelled, where a list or mapping ends. Integers beyond 64 bits arrive as
/// floats; the text has their digits.
fn complete(text: &str, node: &mut Node) {
    let spelled = text.get(node.span.clone()).unwrap_or_default();
    match &mut node.value {
        NodeValue::Null | NodeValue::Bool(_) | NodeValue::Integer(_) => {
            node.spelled = spelled.to_owned();
        }
        NodeValue::Float(_) => {
            node.value = NodeValue::decimal(spelled).unwrap_or_else(|| node.value.clone());
            node.spelled = spelled.to_owned();
        }
        NodeValue::Text(_) => {}
        NodeValue::List(items) => {
            items.iter_mut().for_each(|item| complete(text, item));
            let end = items.iter().map(|item| item.span.end).max();
            node.span.end = collection_end(text, &node.span, end);
        }
        NodeValue::Map(entries) => {
            entries
                .iter_mut()
                .for_each(|entry| complete(text, &mut entry.value));
            let ends = entries
                .iter()
                .map(|entry| entry.value.span.end.max(entry.key_span.end));
            node.span.end = collection_end(text, &node.span, ends.max());
        }
    }
}

/// Where a list or mapping ends, whose last part ends at `inner`.
fn collection_end(text: &str, span: &Range<usize>, inner: Option<usize>) -> usize {
    // What an alias brings can be elsewhere.
    let inner = inner.filter(|end| span.end <= *end).unwrap_or(span.end);
    let closing = match text.as_bytes().get(span.start) {
        Some(b'[') => ']',
        Some(b'{') => '}',
        _ => return inner,
    };
    let rest = text.get(inner..).unwrap_or_default();
    let between = rest.trim_start_matches([' ', '\t', '\r', '\n', ',']);
    match between.starts_with(closing) {
        true => inner + (rest.len() - between.len()) + 1,
        false => inner,
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
        let spelled = String::new();
        Ok(Node {
            span,
            value,
            spelled,
        })
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
                    let parsed = parse_json(&text);
                    let tree = parsed.tree.unwrap_or_else(|| panic!("{text}\n{:?}", parsed.mistakes));
                    prop_assert_eq!(value(&text, &tree), expected.clone(), "{}", text);
                }
            }
        }
    }
}
