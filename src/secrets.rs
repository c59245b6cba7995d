//! Keys and tokens: values that must appear nowhere but in the one header they are for.

use std::borrow::Cow;

use serde_json::Value;

const REDACTED: &str = "[redacted]";
/// Words of the log's own form. A key that happens to be such a word must not make a line unreadable.
const OWN_WORDS: [&str; 12] = [
    "assistant",
    "tool_use",
    "tool_result",
    "end_turn",
    "max_tokens",
    "pause_turn",
    "anthropic",
    "claude-code",
    "template",
    "GENERATING",
    "PATCHING",
    "tests_passed",
];

/// Values that must appear nowhere.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Each value, and, where they differ, how it stands inside a JSON text.
    forms: Vec<String>,
}

impl Secrets {
    /// Shorter values are no secrets, and replacing them would spoil ordinary text.
    const SHORTEST: usize = 8;

    /// Returns the secrets among these values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Secrets {
        let values = values.into_iter().map(|value| value.trim().to_owned());
        let mut forms: Vec<String> = values
            .filter(|value| value.len() >= Self::SHORTEST)
            .collect();
        let escaped: Vec<String> = forms.iter().map(|value| inside_json(value)).collect();
        forms.extend(escaped);
        forms.sort();
        forms.dedup();
        // A value that is part of another must not leave the rest of it behind.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Secrets { forms }
    }

    /// Whether a secret stands in a text, also in one that is JSON.
    pub fn is_in(&self, text: &str) -> bool {
        self.forms.iter().any(|form| text.contains(form.as_str()))
    }

    /// Returns the text with every secret replaced.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.forms {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        text
    }

    /// Replaces every secret in the texts of a value, names of fields included.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) if OWN_WORDS.contains(&text.as_str()) => {}
            Value::String(text) => {
                if let Cow::Owned(redacted) = self.redact(text) {
                    *text = redacted;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.redact_value(item)),
            Value::Object(fields) => {
                fields
                    .iter_mut()
                    .for_each(|(_, field)| self.redact_value(field));
                let names: Vec<String> = fields
                    .keys()
                    .filter(|name| self.is_in(name))
                    .cloned()
                    .collect();
                for name in names {
                    let field = fields.remove(&name).unwrap_or_default();
                    fields.insert(self.redact(&name).into_owned(), field);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Returns how a text stands inside a JSON string.
fn inside_json(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.forms.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn secrets() -> Secrets {
        Secrets::new([
            "sk-\"quoted\\".to_owned(),
            "assistant".into(),
            "assistant-2\n".into(),
            "short".into(),
        ])
    }

    #[test]
    fn a_secret_is_found_also_where_json_escapes_it() {
        let value = json!({"text": "it is sk-\"quoted\\!", "short": ["short"]});
        assert!(secrets().is_in(&value.to_string()));
        assert!(!secrets().redact(&value.to_string()).contains("quoted"));
        assert!(!secrets().is_in(r#"{"text":"short"}"#));
    }

    #[test]
    fn a_value_keeps_its_form() {
        let mut value = json!({"role": "assistant", "content": ["an assistant", {"my assistant-2": "assistant-2"}]});
        secrets().redact_value(&mut value);
        assert_eq!(
            value,
            json!({"role": "assistant", "content": ["an [redacted]", {"my [redacted]": REDACTED}]})
        );
    }
}
