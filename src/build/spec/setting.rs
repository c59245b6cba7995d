//! Fields of a spec that are given beside its file: `--set KEY=VALUE`, and the variables of a fleet.

use std::fmt;
use std::ops::Range;

use serde_json::{Map, Value};

use crate::source::diagnostic::Diagnostic;
use crate::source::node::{Node, NodeEntry, NodeValue};
use crate::source::yaml::parse_yaml;

/// A field by its dotted path, such as `generator.temperature`, and the value that replaces the one in the file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SpecSetting {
    pub path: String,
    pub value: Value,
}

/// A `KEY=VALUE` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InvalidSetting {
    #[error("expected KEY=VALUE, such as generator.temperature=0.2")]
    NoPath,
    #[error("the value is not YAML: {0}")]
    NotYaml(String),
}

impl SpecSetting {
    /// Reads `KEY=VALUE`; the value is YAML.
    pub(crate) fn parse(text: &str) -> Result<SpecSetting, InvalidSetting> {
        let (path, value) = text.split_once('=').ok_or(InvalidSetting::NoPath)?;
        let is_path = path
            .split('.')
            .all(|name| !name.is_empty() && !name.contains(char::is_whitespace));
        if !is_path {
            return Err(InvalidSetting::NoPath);
        }
        Ok(SpecSetting {
            path: path.to_owned(),
            value: yaml_value(value)?,
        })
    }
}

/// As it can be written on the command line.
impl fmt::Display for SpecSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = self
            .value
            .as_str()
            .filter(|text| yaml_value(text).is_ok_and(|value| value.as_str() == Some(text)));
        match plain {
            Some(text) => write!(f, "{}={text}", self.path),
            None => write!(f, "{}={}", self.path, self.value),
        }
    }
}

/// A YAML text as a JSON value; an empty one is null.
pub(crate) fn yaml_value(text: &str) -> Result<Value, InvalidSetting> {
    let parsed = parse_yaml(text);
    match (parsed.tree, parsed.mistakes.into_iter().next()) {
        (Some(tree), None) => Ok(to_json(&tree)),
        (_, Some(mistake)) => Err(InvalidSetting::NotYaml(mistake.message)),
        (None, None) => Ok(Value::Null),
    }
}

/// Where the values of settings are said to be: behind the end of the text, one place for each.
#[derive(Debug, Clone, Copy)]
pub(super) struct SettingPlaces {
    end: usize,
}

impl SettingPlaces {
    pub(super) fn behind(text: &str) -> SettingPlaces {
        SettingPlaces {
            end: text.len() + 1,
        }
    }

    fn span(self, index: usize) -> Range<usize> {
        self.end + index..self.end + index
    }

    /// The setting that a place belongs to.
    pub(super) fn setting<'a>(
        self,
        settings: &'a [SpecSetting],
        span: &Range<usize>,
    ) -> Option<&'a SpecSetting> {
        settings.get(span.start.checked_sub(self.end)?)
    }

    /// Puts the settings into the tree, in their order. Returns what cannot be set.
    pub(super) fn apply(self, tree: &mut Node, settings: &[SpecSetting]) -> Vec<Diagnostic> {
        let mut mistakes = Vec::new();
        for (index, setting) in settings.iter().enumerate() {
            let names: Vec<&str> = setting.path.split('.').collect();
            let value = from_json(&setting.value, &self.span(index));
            if let Err(message) = replace(tree, &names, value) {
                mistakes.push(Diagnostic::new(self.span(index), message));
            }
        }
        mistakes
    }
}

fn replace(node: &mut Node, names: &[&str], value: Node) -> Result<(), String> {
    let [name, rest @ ..] = names else {
        *node = value;
        return Ok(());
    };
    if node.value == NodeValue::Null {
        node.value = NodeValue::Map(Vec::new());
    }
    match &mut node.value {
        NodeValue::Map(entries) => {
            let known = entries.iter().position(|entry| entry.key == *name);
            let index = known.unwrap_or_else(|| {
                entries.push(new_entry(name, &value.span));
                entries.len() - 1
            });
            replace(&mut entries[index].value, rest, value)
        }
        NodeValue::List(items) => {
            let count = items.len();
            let item = name
                .parse()
                .ok()
                .and_then(|index: usize| items.get_mut(index));
            let item = item.ok_or_else(|| {
                format!(
                    "cannot set `{name}`: expected the number of an item, 0 to less than {count}"
                )
            })?;
            replace(item, rest, value)
        }
        _ => Err(format!("cannot set `{name}`: it is not inside a mapping")),
    }
}

fn new_entry(name: &str, span: &Range<usize>) -> NodeEntry {
    NodeEntry {
        key_span: span.clone(),
        key: name.to_owned(),
        value: from_json(&Value::Null, span),
    }
}

fn from_json(value: &Value, span: &Range<usize>) -> Node {
    let (value, spelled) = match value {
        Value::Null => (NodeValue::Null, "null".to_owned()),
        Value::Bool(value) => (NodeValue::Bool(*value), value.to_string()),
        Value::Number(number) => {
            let text = number.to_string();
            let float = || NodeValue::Float(number.as_f64().unwrap_or(f64::INFINITY));
            (NodeValue::decimal(&text).unwrap_or_else(float), text)
        }
        Value::String(text) => (NodeValue::Text(text.clone()), text.clone()),
        Value::Array(items) => {
            let items = items.iter().map(|item| from_json(item, span));
            (NodeValue::List(items.collect()), String::new())
        }
        Value::Object(fields) => {
            let entries = fields.iter().map(|(name, value)| NodeEntry {
                value: from_json(value, span),
                ..new_entry(name, span)
            });
            (NodeValue::Map(entries.collect()), String::new())
        }
    };
    Node {
        span: span.clone(),
        value,
        spelled,
    }
}

fn to_json(node: &Node) -> Value {
    match &node.value {
        NodeValue::Null => Value::Null,
        NodeValue::Bool(value) => Value::Bool(*value),
        NodeValue::Integer(number) => match i64::try_from(*number) {
            Ok(number) => number.into(),
            Err(_) => (*number as f64).into(),
        },
        NodeValue::Float(number) => (*number).into(),
        NodeValue::Text(text) => Value::String(text.clone()),
        NodeValue::List(items) => items.iter().map(to_json).collect(),
        NodeValue::Map(entries) => {
            let fields = entries
                .iter()
                .map(|entry| (entry.key.clone(), to_json(&entry.value)));
            Value::Object(fields.collect::<Map<_, _>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_setting_has_a_path_and_a_yaml_value() {
        for (text, path, value) in [
            ("a=1", "a", json!(1)),
            ("a.b=0.5", "a.b", json!(0.5)),
            ("a.b=x=y", "a.b", json!("x=y")),
            ("a=[p, 'q']", "a", json!(["p", "q"])),
            ("a={usd: 2}", "a", json!({"usd": 2})),
            ("a=", "a", json!(null)),
            ("a=yes", "a", json!("yes")),
            ("a='5'", "a", json!("5")),
        ] {
            let expected = SpecSetting {
                path: path.into(),
                value,
            };
            assert_eq!(SpecSetting::parse(text), Ok(expected.clone()), "{text}");
            let written = SpecSetting::parse(&expected.to_string());
            assert_eq!(written, Ok(expected), "{text}");
        }
        for text in ["", "a", "=1", "a..b=1", "a b=1", ".a=1"] {
            assert_eq!(
                SpecSetting::parse(text),
                Err(InvalidSetting::NoPath),
                "{text}"
            );
        }
        assert!(SpecSetting::parse("a=[1").is_err());
    }

    #[test]
    fn values_replace_those_in_the_tree() {
        let check = |text: &str, setting: &str, expected: Value| {
            let mut tree = parse_yaml(text).tree.unwrap();
            let setting = SpecSetting::parse(setting).unwrap();
            let mistakes = SettingPlaces::behind(text).apply(&mut tree, &[setting]);
            assert_eq!((to_json(&tree), mistakes), (expected, Vec::new()));
        };
        check("a: 1", "a=2", json!({"a": 2}));
        check("a: 1", "b.c=x", json!({"a": 1, "b": {"c": "x"}}));
        check("a: {b: 1, c: 2}", "a.b=3", json!({"a": {"b": 3, "c": 2}}));
        check("a: [{b: 1}]", "a.0.b=3", json!({"a": [{"b": 3}]}));
        check("a:", "a.b=3", json!({"a": {"b": 3}}));
        let refused = |text: &str, setting: &str| {
            let mut tree = parse_yaml(text).tree.unwrap();
            let setting = [SpecSetting::parse(setting).unwrap()];
            let places = SettingPlaces::behind(text);
            let mistakes = places.apply(&mut tree, &setting);
            let found = places.setting(&setting, &mistakes[0].span);
            assert_eq!((mistakes.len(), found), (1, setting.first()), "{text}");
        };
        refused("a: 1", "a.b=2");
        refused("a: [1]", "a.1=2");
        refused("a: [1]", "a.x=2");
    }
}
