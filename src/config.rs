//! What a command works with: plain data, made once by `cli` from flags and environment.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Everything a run takes from its surroundings.
#[derive(Debug, Clone)]
pub struct Config {
    /// The root, absolute.
    pub root: PathBuf,
    /// This program, for the hidden command under which children start.
    pub launcher: PathBuf,
    /// Where private directories of checks may be made.
    pub temporary: PathBuf,
    /// The caller's variables that children may be given something of.
    pub surroundings: BTreeMap<String, std::ffi::OsString>,
    /// Multiplies every delay before a retry.
    pub retry_scale: f64,
    /// Wins over the spec's.
    pub idle_timeout: Option<Duration>,
    pub secrets: Secrets,
    /// Journals stream pieces and writes debug files.
    pub debug: bool,
}

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
