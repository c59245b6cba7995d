//! The fields of a mapping as a table: the reader takes the names that it knows from it, the schema everything.
//!
//! A form is the JSON Schema of a value. It is written beside the function that reads the value, and uses
//! the same constants.

use serde_json::{Map, Value, json};

/// Part of a text that no value can have: no path, argument or variable holds NUL.
const NUL: &str = "\\u0000";

/// A field: its name, what values it has, what it means. A form may have a description of its own instead of `meaning`.
#[derive(Clone, Copy)]
pub(super) struct FieldRule {
    pub name: &'static str,
    form: fn() -> Value,
    meaning: &'static str,
    is_required: bool,
    default: Option<fn() -> Value>,
    examples: Option<fn() -> Value>,
}

impl FieldRule {
    pub(super) const fn new(
        name: &'static str,
        form: fn() -> Value,
        meaning: &'static str,
    ) -> FieldRule {
        FieldRule {
            name,
            form,
            meaning,
            is_required: false,
            default: None,
            examples: None,
        }
    }

    pub(super) const fn required(self) -> FieldRule {
        FieldRule {
            is_required: true,
            ..self
        }
    }

    pub(super) const fn default(self, default: fn() -> Value) -> FieldRule {
        FieldRule {
            default: Some(default),
            ..self
        }
    }

    /// Examples of values, as a JSON list.
    pub(super) const fn examples(self, examples: fn() -> Value) -> FieldRule {
        FieldRule {
            examples: Some(examples),
            ..self
        }
    }

    fn schema(&self) -> Value {
        let mut schema = Map::from_iter([("description".to_owned(), Value::from(self.meaning))]);
        if let Value::Object(form) = (self.form)() {
            schema.extend(form);
        }
        let default = self
            .default
            .map(|default| ("default".to_owned(), default()));
        let examples = self.examples.map(|list| ("examples".to_owned(), list()));
        schema.extend(default.into_iter().chain(examples));
        Value::Object(schema)
    }
}

/// A mapping with these fields and no others.
pub(super) fn mapping(fields: &[FieldRule]) -> Value {
    let properties = fields
        .iter()
        .map(|field| (field.name.to_owned(), field.schema()));
    let mut schema = Map::from_iter([
        ("type".to_owned(), json!("object")),
        ("properties".to_owned(), Value::Object(properties.collect())),
        ("additionalProperties".to_owned(), json!(false)),
    ]);
    let required: Vec<&str> = fields
        .iter()
        .filter(|field| field.is_required)
        .map(|field| field.name)
        .collect();
    if !required.is_empty() {
        schema.insert("required".to_owned(), json!(required));
    }
    Value::Object(schema)
}

/// A schema with further keywords.
pub(super) fn with(schema: Value, more: Value) -> Value {
    match (schema, more) {
        (Value::Object(mut schema), Value::Object(more)) => {
            schema.extend(more);
            Value::Object(schema)
        }
        (schema, _) => schema,
    }
}

/// Form of `Node::text`.
pub(super) fn text() -> Value {
    text_without(NUL)
}

/// Form of `Node::nonempty_text`.
pub(super) fn nonempty_text() -> Value {
    with(text(), json!({"pattern": "\\S"}))
}

/// Text in which this pattern is not found.
pub(super) fn text_without(pattern: &str) -> Value {
    json!({"type": "string", "not": {"pattern": pattern}})
}

/// Form of `Node::boolean`.
pub(super) fn boolean() -> Value {
    json!({"type": "boolean"})
}

/// Form of `Node::integer`.
pub(super) fn integer() -> Value {
    json!({"type": "integer"})
}

/// Form of `Node::integer_in`.
pub(super) fn integer_in(least: u64, most: u64) -> Value {
    json!({"type": "integer", "minimum": least, "maximum": most})
}

/// Form of `Node::list`.
pub(super) fn list(item: Value) -> Value {
    json!({"type": "array", "items": item})
}

/// Form of `Node::choice`.
pub(super) fn choice<T>(choices: &[(&str, T)]) -> Value {
    let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
    json!({"enum": names})
}
