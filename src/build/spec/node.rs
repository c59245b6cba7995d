//! A spec's text as a tree in which every value knows its place, whatever the format was.
//!
//! The questions asked of it (`text`, `whole`, `fields`) coerce nothing: `"5"` is no number and `5` is no text. What
//! the fields mean is said in `validate.rs`.

use std::ops::Range;

use super::diagnostic::Diagnostic;

/// A value and the byte where it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// In bytes.
    pub span: Range<usize>,
    pub value: NodeValue,
}

/// What a value can be in YAML and JSON alike. A whole number beyond `i128` is the nearest one inside.
#[derive(Debug, Clone, PartialEq)]
pub enum NodeValue {
    Null,
    Bool(bool),
    Whole(i128),
    Fraction(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<NodeEntry>),
}

impl NodeValue {
    /// Returns the whole number that a word spells in decimal digits, the nearest possible one if it is too large.
    pub fn whole(word: &str) -> Option<NodeValue> {
        let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let limit = if word.starts_with('-') {
            i128::MIN
        } else {
            i128::MAX
        };
        Some(NodeValue::Whole(word.parse().unwrap_or(limit)))
    }
}

/// A key of a mapping, where it stands, and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeEntry {
    pub key_span: Range<usize>,
    pub key: String,
    pub value: Node,
}

/// The fields of a mapping whose names are all known.
pub struct NodeFields<'a> {
    span: &'a Range<usize>,
    entries: &'a [NodeEntry],
}

impl Node {
    /// Returns a refusal of this value.
    pub fn refuse(&self, what: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.span.clone(), what)
    }

    /// Returns the name of the field whose value or key stands at a byte, as in `checks[1].command[0]`; the outermost,
    /// where a mapping begins with its first key. Empty for the whole.
    pub fn field_at(&self, at: usize) -> Option<String> {
        if self.span.start == at {
            return Some(String::new());
        }
        let joined = |name: String, inner: String| match inner.is_empty() || inner.starts_with('[')
        {
            true => name + &inner,
            false => format!("{name}.{inner}"),
        };
        match &self.value {
            NodeValue::List(items) => {
                let mut all = items.iter().enumerate();
                all.find_map(|(index, item)| Some(joined(format!("[{index}]"), item.field_at(at)?)))
            }
            NodeValue::Map(entries) => {
                entries
                    .iter()
                    .find_map(|entry| match entry.value.field_at(at) {
                        Some(inner) => Some(joined(brief(&entry.key), inner)),
                        None => (entry.key_span.start == at).then(String::new),
                    })
            }
            _ => None,
        }
    }

    /// Returns the text; NUL is refused, since no path, argument or variable can hold it.
    pub fn text(&self) -> Result<&str, Diagnostic> {
        match &self.value {
            NodeValue::Text(text) if text.contains('\0') => {
                Err(self.refuse("text with a NUL character"))
            }
            NodeValue::Text(text) => Ok(text),
            NodeValue::Bool(_) | NodeValue::Whole(_) | NodeValue::Fraction(_) => {
                Err(self.expected("text").with_help("quotes make it text"))
            }
            _ => Err(self.expected("text")),
        }
    }

    /// Returns the text, which has more than blanks.
    pub fn some_text(&self) -> Result<&str, Diagnostic> {
        match self.text()? {
            text if text.trim().is_empty() => Err(self.refuse("must not be empty")),
            text => Ok(text),
        }
    }

    /// Returns the boolean.
    pub fn boolean(&self) -> Result<bool, Diagnostic> {
        match self.value {
            NodeValue::Bool(value) => Ok(value),
            _ => Err(self.expected("true or false")),
        }
    }

    /// Returns the whole number; `5.0` is none.
    pub fn whole(&self) -> Result<i128, Diagnostic> {
        match self.value {
            NodeValue::Whole(number) => Ok(number),
            _ => Err(self.expected("a whole number")),
        }
    }

    /// Returns the whole number if it lies between the bounds, which are the target type's or narrower.
    pub fn whole_in<T: TryFrom<i128>>(&self, least: i128, most: i128) -> Result<T, Diagnostic> {
        let number = self.whole()?;
        match T::try_from(number) {
            _ if number < least => {
                Err(self.refuse(format!("must be at least {least}, found {number}")))
            }
            Ok(value) if number <= most => Ok(value),
            _ => Err(self.refuse(format!("must be at most {most}, found {number}"))),
        }
    }

    /// Returns the number, whole or not; it is finite.
    pub fn number(&self) -> Result<f64, Diagnostic> {
        match self.value {
            NodeValue::Whole(number) => Ok(number as f64),
            NodeValue::Fraction(number) if number.is_finite() => Ok(number),
            _ => Err(self.expected("a number")),
        }
    }

    /// Returns the items of a list.
    pub fn list(&self) -> Result<&[Node], Diagnostic> {
        match &self.value {
            NodeValue::List(items) => Ok(items),
            _ => Err(self.expected("a list")),
        }
    }

    /// Returns the entries of a mapping with free keys.
    pub fn entries(&self) -> Result<&[NodeEntry], Diagnostic> {
        match &self.value {
            NodeValue::Map(entries) => Ok(entries),
            _ => Err(self.expected("a mapping of fields")),
        }
    }

    /// Returns the fields of a mapping, or the refusal of the first whose name is not allowed.
    pub fn fields(&self, allowed: &[&str]) -> Result<NodeFields<'_>, Diagnostic> {
        let entries = self.entries()?;
        match entries
            .iter()
            .find(|entry| !allowed.contains(&entry.key.as_str()))
        {
            Some(entry) => Err(unknown("field", &entry.key_span, &entry.key, allowed)),
            None => Ok(NodeFields {
                span: &self.span,
                entries,
            }),
        }
    }

    /// Returns what stands beside this word in a table of choices.
    pub fn choice<T: Copy>(&self, what: &str, choices: &[(&str, T)]) -> Result<T, Diagnostic> {
        let word = self.text()?;
        let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
        let found = choices.iter().find(|(name, _)| *name == word);
        found
            .map(|(_, choice)| *choice)
            .ok_or_else(|| unknown(what, &self.span, word, &words))
    }

    fn expected(&self, what: &str) -> Diagnostic {
        self.refuse(format!("expected {what}, found {}", self.described()))
    }

    fn described(&self) -> String {
        match &self.value {
            NodeValue::Null => "nothing".to_owned(),
            NodeValue::Bool(value) => value.to_string(),
            NodeValue::Whole(number) => number.to_string(),
            NodeValue::Fraction(number) => format!("{number:?}"),
            NodeValue::Text(text) => format!("the text \"{}\"", brief(text)),
            NodeValue::List(_) => "a list".to_owned(),
            NodeValue::Map(_) => "a mapping".to_owned(),
        }
    }
}

impl<'a> NodeFields<'a> {
    /// Returns the value of a field, if it was given.
    pub fn optional(&self, key: &str) -> Option<&'a Node> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Returns the value of a field that must be given.
    pub fn required(&self, key: &str) -> Result<&'a Node, Diagnostic> {
        self.optional(key)
            .ok_or_else(|| Diagnostic::new(self.span.clone(), format!("missing field `{key}`")))
    }

    /// Returns a field with the place of its name.
    pub fn entry(&self, key: &str) -> Option<&'a NodeEntry> {
        self.entries.iter().find(|entry| entry.key == key)
    }
}

fn unknown(what: &str, span: &Range<usize>, word: &str, allowed: &[&str]) -> Diagnostic {
    let guess =
        similar(word, allowed).map_or(String::new(), |name| format!("did you mean `{name}`? "));
    Diagnostic::new(span.clone(), format!("unknown {what} `{}`", brief(word)))
        .with_help(format!("{guess}allowed: {}", allowed.join(", ")))
}

/// The beginning of a text of the user's, short enough for a message.
pub fn brief(text: &str) -> String {
    let head: String = text.chars().take(60).collect();
    let more = if head.len() < text.len() { "…" } else { "" };
    format!("{head}{more}")
}

/// The allowed name that a mistyped word most likely means: at most two edits away, fewer for short names.
fn similar<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let word: String = word.chars().take(40).collect();
    let distances = allowed
        .iter()
        .map(|name| (strsim::osa_distance(&word, name), *name));
    let near = distances.filter(|(distance, name)| *distance <= 2.min(name.len() / 3));
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::similar;

    #[test]
    fn names_within_two_edits_are_similar() {
        for (word, name, is_similar) in [
            ("chekcs", "checks", true),
            ("max_retry", "max_retries", false),
            ("max_retrys", "max_retries", true),
            ("discription", "description", true),
            ("colour", "copy", false),
            ("nme", "name", true),
            ("base", "name", false),
            ("x", "to", false),
            ("", "to", false),
        ] {
            assert_eq!(
                similar(word, &[name]).is_some(),
                is_similar,
                "{word} {name}"
            );
        }
        assert_eq!(similar("tmeout", &["timeouts", "timeout"]), Some("timeout"));
    }
}
