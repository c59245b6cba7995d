//! Keys and tokens: values that must appear nowhere but in the one header they are for.

use std::borrow::Cow;

/// Values that must appear nowhere.
#[derive(Clone, Default)]
pub struct Secrets(Vec<String>);

impl Secrets {
    /// Shorter values are no secrets, and replacing them would spoil ordinary text.
    const SHORTEST: usize = 8;

    /// Returns the secrets among these values.
    pub fn new(values: impl IntoIterator<Item = String>) -> Secrets {
        Secrets(values.into_iter().filter(|value| value.len() >= Self::SHORTEST).collect())
    }

    /// Returns the text with every secret replaced.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut text = Cow::Borrowed(text);
        for secret in &self.0 {
            if text.contains(secret.as_str()) {
                text = Cow::Owned(text.replace(secret.as_str(), "[redacted]"));
            }
        }
        text
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secrets({})", self.0.len())
    }
}
