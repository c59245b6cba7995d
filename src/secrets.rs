//! Keys and tokens: values that must appear nowhere but in the one header they are for.
//!
//! A server may send a key back, in an error text or in an answer, so texts from outside are redacted as well.

use std::borrow::Cow;
use std::fmt;

use reqwest::header::HeaderValue;
use serde_json::Value;

const REDACTED: &str = "[redacted]";

/// Words of the log's format. A key that equals such a word must not make a line unreadable.
const LOG_WORDS: [&str; 12] = [
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

/// The key of a provider. `Debug` does not show it.
#[derive(Clone)]
pub(crate) struct ApiKey(String);

impl ApiKey {
    /// Shorter keys are placeholders (`none`, `ollama`, `test`): they protect nothing, and an answer may contain the word.
    const MIN_LENGTH_IN_ANSWERS: usize = 16;

    /// The shortest beginning of the key that is redacted at the end of a text.
    const MIN_CUT_LENGTH: usize = 8;

    /// Returns the key, or `None` for a blank text: an empty variable counts as unset.
    pub(crate) fn new(text: &str) -> Option<ApiKey> {
        Some(text.trim())
            .filter(|text| !text.is_empty())
            .map(|text| ApiKey(text.to_owned()))
    }

    /// Redacts every occurrence, also one that the end of the text cuts off.
    pub(crate) fn redact(&self, text: &str) -> String {
        let redacted = text.replace(&self.0, REDACTED);
        let mut beginnings = (Self::MIN_CUT_LENGTH..self.0.len())
            .rev()
            .filter_map(|length| self.0.get(..length));
        match beginnings.find_map(|beginning| redacted.strip_suffix(beginning)) {
            Some(before) => format!("{before}{REDACTED}"),
            None => redacted,
        }
    }

    /// Redacts every occurrence in a part of an answer; `None` where there is none, or the key is a placeholder.
    pub(crate) fn redact_answer(&self, text: &str) -> Option<String> {
        (self.0.len() >= Self::MIN_LENGTH_IN_ANSWERS && text.contains(&self.0))
            .then(|| text.replace(&self.0, REDACTED))
    }

    /// Returns the header value with the key, or `None` where the key holds characters that no header can.
    pub(crate) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ApiKey")
    }
}

/// Values that must not appear in the log, in files or on the screen.
#[derive(Clone, Default)]
pub struct Secrets {
    /// Each value, and its escaped form in a JSON string where that differs. Longest first.
    forms: Vec<String>,
}

impl Secrets {
    /// Shorter values are not secrets, and redacting them would damage ordinary text.
    const MIN_LENGTH: usize = 8;

    /// Returns the secrets among these values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Secrets {
        let values = values.into_iter().map(|value| value.trim().to_owned());
        let mut forms: Vec<String> = values
            .filter(|value| value.len() >= Self::MIN_LENGTH)
            .collect();
        let escaped: Vec<String> = forms.iter().map(|value| json_escaped(value)).collect();
        forms.extend(escaped);
        forms.sort();
        forms.dedup();
        // A value that is part of another must not leave the rest of it behind.
        forms.sort_by_key(|form| std::cmp::Reverse(form.len()));
        Secrets { forms }
    }

    /// Whether a text contains a secret, plain or escaped as in JSON.
    pub fn is_in(&self, text: &str) -> bool {
        self.forms.iter().any(|form| text.contains(form.as_str()))
    }

    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.forms {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), REDACTED));
            }
        }
        text
    }

    /// Redacts the strings of a value, names of fields included.
    pub fn redact_value(&self, value: &mut Value) {
        match value {
            Value::String(text) if LOG_WORDS.contains(&text.as_str()) => {}
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

fn json_escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    fn words_of_the_log_format_are_not_redacted() {
        let mut value = json!({"role": "assistant", "content": ["an assistant", {"my assistant-2": "assistant-2"}]});
        secrets().redact_value(&mut value);
        assert_eq!(
            value,
            json!({"role": "assistant", "content": ["an [redacted]", {"my [redacted]": REDACTED}]})
        );
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = ApiKey::new(" sk-ant-0123456789 \n").unwrap();
        assert_eq!(format!("{key:?}"), "ApiKey");
        assert_eq!(format!("{:?}", key.header("Bearer ").unwrap()), "Sensitive");
        assert_eq!(
            key.redact("a sk-ant-0123456789, sk-ant-0123456789"),
            "a [redacted], [redacted]"
        );
        assert_eq!(
            key.redact_answer("x = 'sk-ant-0123456789'").as_deref(),
            Some("x = '[redacted]'")
        );
        assert_eq!(key.redact("cut off: sk-ant-01234"), "cut off: [redacted]");
    }

    #[test]
    fn a_placeholder_key_is_not_redacted_in_answers() {
        let key = ApiKey::new("calc").unwrap();
        assert_eq!(key.redact_answer("calc.py"), None);
        assert_eq!(key.redact("no such key: calc"), "no such key: [redacted]");
    }

    #[test]
    fn a_key_that_no_header_can_hold_has_no_header() {
        assert!(ApiKey::new("  ").is_none());
        assert!(ApiKey::new("a\nb").unwrap().header("").is_none());
    }
}
