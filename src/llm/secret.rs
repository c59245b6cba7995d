//! The key: it travels in one header and is shown nowhere else.
//!
//! A server may send it back, in an error text or in an answer; what comes back is cleaned here before anyone sees it.

use std::fmt;

use reqwest::header::HeaderValue;

const REDACTED: &str = "[redacted]";

/// Shorter keys are names (`none`, `ollama`, `test`) that protect nothing, and an answer may well contain the word.
const SHORTEST_IN_ANSWERS: usize = 16;

/// The beginning of a key is hidden from this length on.
const SHORTEST_CUT: usize = 8;

/// A key that cannot be printed by accident.
#[derive(Clone)]
pub struct ApiKey(String);

impl ApiKey {
    /// Returns the secret, or nothing for a blank text: an empty variable counts as unset.
    pub fn new(text: &str) -> Option<ApiKey> {
        Some(text.trim())
            .filter(|text| !text.is_empty())
            .map(|text| ApiKey(text.to_owned()))
    }

    /// Returns `text` with every occurrence of the secret replaced, one that was cut at the end of the text too.
    pub fn redact(&self, text: &str) -> String {
        let redacted = text.replace(&self.0, REDACTED);
        let cut = (SHORTEST_CUT..self.0.len())
            .rev()
            .filter_map(|length| self.0.get(..length));
        match cut
            .into_iter()
            .find_map(|start| redacted.strip_suffix(start))
        {
            Some(before) => format!("{before}{REDACTED}"),
            None => redacted,
        }
    }

    /// Returns a part of an answer with every occurrence replaced; an answer is worth more than a short key.
    pub(super) fn redact_answer(&self, text: &str) -> Option<String> {
        (self.0.len() >= SHORTEST_IN_ANSWERS && text.contains(&self.0))
            .then(|| text.replace(&self.0, REDACTED))
    }

    /// Returns the header that carries the secret, or nothing where no header can.
    pub(super) fn header(&self, prefix: &str) -> Option<HeaderValue> {
        let mut value = HeaderValue::from_str(&format!("{prefix}{}", self.0)).ok()?;
        value.set_sensitive(true);
        Some(value)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::ApiKey;

    #[test]
    fn a_secret_is_not_shown() {
        let secret = ApiKey::new(" sk-ant-0123456789 \n").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
        assert_eq!(
            format!("{:?}", secret.header("Bearer ").unwrap()),
            "Sensitive"
        );
        assert_eq!(
            secret.redact("a sk-ant-0123456789, sk-ant-0123456789"),
            "a [redacted], [redacted]"
        );
        assert_eq!(
            secret.redact_answer("x = 'sk-ant-0123456789'").as_deref(),
            Some("x = '[redacted]'")
        );
        assert_eq!(
            secret.redact("cut off: sk-ant-01234"),
            "cut off: [redacted]"
        );
    }

    #[test]
    fn a_word_as_a_key_does_not_spoil_answers() {
        let secret = ApiKey::new("calc").unwrap();
        assert_eq!(secret.redact_answer("calc.py"), None);
        assert_eq!(
            secret.redact("no such key: calc"),
            "no such key: [redacted]"
        );
    }

    #[test]
    fn what_no_header_can_carry_is_found_out() {
        assert!(ApiKey::new("  ").is_none());
        assert!(ApiKey::new("a\nb").unwrap().header("").is_none());
    }
}
