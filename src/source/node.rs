//! A spec's text as a tree in which every value has its position, for YAML and JSON alike.
//!
//! The readers (`text`, `integer`, `list`) convert nothing: `"5"` is not a number and `5` is not text. What the fields
//! mean is up to `validate.rs`.

use std::ops::Range;

use super::diagnostic::Diagnostic;
use super::yaml_mistake::quoted;
use crate::text::shorten::cut_chars;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    /// In bytes.
    pub span: Range<usize>,
    pub value: NodeValue,
    /// As it is written, of numbers, booleans and null.
    pub spelled: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeValue {
    Null,
    Bool(bool),
    /// Saturated where it is beyond `i128`.
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<NodeEntry>),
}

/// A key of a mapping and its value.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NodeEntry {
    pub key_span: Range<usize>,
    pub key: String,
    pub value: Node,
}

impl Node {
    /// A mistake in this value.
    pub(crate) fn mistake(&self, message: impl Into<String>) -> Diagnostic {
        Diagnostic::new(self.span.clone(), message)
    }

    /// The field whose value or key starts at a byte, as in `checks[1].command[0]`: the outermost one, where a mapping
    /// starts with its first key. Empty for the whole tree.
    pub(crate) fn field_at(&self, at: usize) -> Option<String> {
        if self.span.start == at {
            return Some(String::new());
        }
        match &self.value {
            NodeValue::List(items) => {
                let mut items = items.iter().enumerate();
                items.find_map(|(index, item)| {
                    Some(field_path(format!("[{index}]"), &item.field_at(at)?))
                })
            }
            NodeValue::Map(entries) => {
                entries
                    .iter()
                    .find_map(|entry| match entry.value.field_at(at) {
                        Some(inner) => Some(field_path(brief(&entry.key), &inner)),
                        None => (entry.key_span.start == at).then(String::new),
                    })
            }
            _ => None,
        }
    }

    /// NUL is refused, since no path, argument or variable can hold it.
    pub(crate) fn text(&self) -> Result<&str, Diagnostic> {
        match &self.value {
            NodeValue::Text(text) if text.contains('\0') => {
                Err(self.mistake("text with a NUL character"))
            }
            NodeValue::Text(text) => Ok(text),
            NodeValue::Bool(_) | NodeValue::Integer(_) | NodeValue::Float(_) => {
                let value = format!("\"{}\"", brief(&self.spelled));
                Err(self
                    .expected("text")
                    .with_help("quotes make it text")
                    .with_instead(value))
            }
            NodeValue::Map(entries) => Err(self.with_quotes_around(entries)),
            _ => Err(self.expected("text")),
        }
    }

    /// A text in a list that has a `: ` and is read as a mapping.
    fn with_quotes_around(&self, entries: &[NodeEntry]) -> Diagnostic {
        let mistake = self.expected("text");
        let [NodeEntry { key, value, .. }] = entries else {
            return mistake;
        };
        let value = match &value.value {
            NodeValue::Text(text) => text.as_str(),
            _ => value.spelled.as_str(),
        };
        let text = quoted(&brief(&format!("{key}: {value}")));
        mistake
            .with_help("quote text that has a `: `")
            .with_instead(text)
    }

    /// Text with more than blanks.
    pub(crate) fn nonempty_text(&self) -> Result<&str, Diagnostic> {
        match self.text()? {
            text if text.trim().is_empty() => Err(self.mistake("must not be empty")),
            text => Ok(text),
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool, Diagnostic> {
        match self.value {
            NodeValue::Bool(value) => Ok(value),
            NodeValue::Text(ref text) => {
                let mistake = self.expected("true or false");
                Err(match text.to_lowercase().as_str() {
                    "yes" | "on" | "y" | "true" => mistake.with_instead("true"),
                    "no" | "off" | "n" | "false" => mistake.with_instead("false"),
                    _ => mistake,
                })
            }
            _ => Err(self.expected("true or false")),
        }
    }

    /// `5.0` is not an integer.
    pub(crate) fn integer(&self) -> Result<i128, Diagnostic> {
        match self.value {
            NodeValue::Integer(number) => Ok(number),
            _ => Err(self.without_quotes(self.expected("a whole number"))),
        }
    }

    /// An integer between bounds, which are those of the target type or narrower.
    pub(crate) fn integer_in<T: TryFrom<i128>>(
        &self,
        least: i128,
        most: i128,
    ) -> Result<T, Diagnostic> {
        let number = self.integer()?;
        match T::try_from(number) {
            _ if number < least => Err(self.mistake(format!(
                "must be at least {least}, found {}",
                self.written()
            ))),
            Ok(value) if number <= most => Ok(value),
            _ => Err(self.mistake(format!("must be at most {most}, found {}", self.written()))),
        }
    }

    /// A number as it is written.
    pub(crate) fn written(&self) -> String {
        brief(&self.spelled)
    }

    /// A finite number, integer or not.
    pub(crate) fn number(&self) -> Result<f64, Diagnostic> {
        match self.value {
            NodeValue::Integer(number) => Ok(number as f64),
            NodeValue::Float(number) if number.is_finite() => Ok(number),
            _ => Err(self.without_quotes(self.expected("a number"))),
        }
    }

    pub(crate) fn list(&self) -> Result<&[Node], Diagnostic> {
        match &self.value {
            NodeValue::List(items) => Ok(items),
            NodeValue::Text(text) => Err(with_dash(self.expected("a list"), text)),
            NodeValue::Map(entries) => {
                let first = entries.first().map_or("", |entry| entry.key.as_str());
                Err(with_dash(self.expected("a list"), first))
            }
            _ => Err(self.expected("a list")),
        }
    }

    /// A list with a bounded number of items.
    pub(crate) fn list_of_at_most(&self, most: usize, what: &str) -> Result<&[Node], Diagnostic> {
        match self.list()? {
            items if items.len() <= most => Ok(items),
            _ => Err(self.mistake(format!("there are more than {most} {what}"))),
        }
    }

    pub(crate) fn entries(&self) -> Result<&[NodeEntry], Diagnostic> {
        match &self.value {
            NodeValue::Map(entries) => Ok(entries),
            NodeValue::Text(text) => Err(with_colon(self.expected("a mapping of fields"), text)),
            NodeValue::List(items) => {
                let mistake = self.expected("a mapping of fields");
                Err(match items.first().map(|item| &item.value) {
                    Some(NodeValue::Map(entries)) => without_dash(mistake, entries),
                    _ => mistake,
                })
            }
            _ => Err(self.expected("a mapping of fields")),
        }
    }

    /// The value beside this word in a table of choices.
    pub(crate) fn choice<T: Copy>(
        &self,
        what: &str,
        choices: &[(&str, T)],
    ) -> Result<T, Diagnostic> {
        let word = self.text()?;
        if let Some((_, choice)) = choices.iter().find(|(name, _)| *name == word) {
            return Ok(*choice);
        }
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        Err(unknown_name(what, &self.span, word, &names))
    }

    /// A number with something around it is written alone.
    fn without_quotes(&self, mistake: Diagnostic) -> Diagnostic {
        let NodeValue::Text(text) = &self.value else {
            return mistake;
        };
        match (number_in(text.trim()), bare_number(text)) {
            (Some(number), _) => mistake.with_help("without quotes").with_instead(number),
            (None, Some(number)) => mistake.with_help("the number alone").with_instead(number),
            (None, None) => mistake,
        }
    }

    fn expected(&self, what: &str) -> Diagnostic {
        let found = match &self.value {
            NodeValue::Null => "nothing".to_owned(),
            NodeValue::Bool(value) => value.to_string(),
            NodeValue::Integer(_) | NodeValue::Float(_) => brief(&self.spelled),
            NodeValue::Text(text) => format!("the text \"{}\"", brief(text)),
            NodeValue::List(_) => "a list".to_owned(),
            NodeValue::Map(_) => "a mapping".to_owned(),
        };
        self.mistake(format!("expected {what}, found {found}"))
    }
}

impl NodeValue {
    /// The integer that a word spells in decimal digits.
    pub(crate) fn decimal(word: &str) -> Option<NodeValue> {
        let digits = word.strip_prefix(['-', '+']).unwrap_or(word);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let limit = match word.starts_with('-') {
            true => i128::MIN,
            false => i128::MAX,
        };
        Some(NodeValue::Integer(word.parse().unwrap_or(limit)))
    }
}

/// The text if it is a number.
fn number_in(text: &str) -> Option<&str> {
    let is_number = text.parse::<f64>().is_ok_and(f64::is_finite);
    is_number.then_some(text)
}

/// The number in a text such as `$5`, `5 USD`, `3,` or `“1”`.
pub(crate) fn bare_number(text: &str) -> Option<&str> {
    let text = text.trim_end_matches("USD").trim();
    number_in(text.trim_matches(|c: char| "$€“”‘’\"',".contains(c) || c.is_whitespace()))
}

/// Fields that are written as the items of a list.
fn without_dash(mistake: Diagnostic, entries: &[NodeEntry]) -> Diagnostic {
    let Some(NodeEntry { key, value, .. }) = entries.first() else {
        return mistake;
    };
    let value = match &value.value {
        NodeValue::Text(text) => text.as_str(),
        _ if value.spelled.is_empty() => "…",
        _ => value.spelled.as_str(),
    };
    mistake.with_help(format!(
        "fields, not a list: `{}: {}`",
        brief(key),
        brief(value)
    ))
}

/// Says that a list item needs a blank after its dash.
fn with_dash(mistake: Diagnostic, text: &str) -> Diagnostic {
    let item = text
        .split_whitespace()
        .next()
        .and_then(|word| word.strip_prefix('-'));
    match item.filter(|item| !item.is_empty()) {
        Some(item) => mistake.with_help(format!("a blank after the dash: `- {}`", brief(item))),
        None => mistake,
    }
}

/// Says that a field needs a blank after its colon.
fn with_colon(mistake: Diagnostic, text: &str) -> Diagnostic {
    match text.split_once(':') {
        Some((key, value)) if !key.contains(' ') && !value.is_empty() => {
            // The lines below, which are part of this text, have a colon, too.
            let words = value.split(' ').take_while(|word| !word.contains(':'));
            let value = words.collect::<Vec<_>>().join(" ");
            mistake.with_help(format!(
                "a blank after the colon: `{}: {}`",
                brief(key),
                brief(&value)
            ))
        }
        _ => match text.split_once(" = ") {
            Some((key, value)) if !key.contains(' ') => {
                let value = value.split(' ').next().unwrap_or_default();
                mistake.with_help(format!(
                    "a colon instead of `=`: `{}: {}`",
                    brief(key),
                    brief(value)
                ))
            }
            _ => mistake,
        },
    }
}

fn field_path(name: String, inner: &str) -> String {
    match inner.is_empty() || inner.starts_with('[') {
        true => name + inner,
        false => format!("{name}.{inner}"),
    }
}

/// The mistake of a name that is not among the allowed ones.
pub(crate) fn unknown_name(
    what: &str,
    span: &Range<usize>,
    word: &str,
    allowed: &[&str],
) -> Diagnostic {
    if let Some((key, value)) = word
        .split_once(':')
        .filter(|(key, _)| allowed.contains(key))
    {
        let mistake = Diagnostic::new(span.clone(), format!("unknown {what} `{}`", brief(word)));
        return mistake.with_help(format!(
            "a blank after the colon: `{key}: {}`",
            brief(value)
        ));
    }
    if let Some(blank) = word.chars().find(|c| c.is_whitespace() && *c != ' ') {
        let name = word.trim();
        let message = format!(
            "the blank U+{:04X} before `{}`",
            u32::from(blank),
            brief(name)
        );
        return Diagnostic::new(span.clone(), message)
            .with_help(format!("indent with spaces: `  {}: …`", brief(name)));
    }
    let guess = similar_name(word, allowed)
        .map_or(String::new(), |name| format!("did you mean `{name}`? "));
    Diagnostic::new(span.clone(), format!("unknown {what} `{}`", brief(word)))
        .with_help(format!("{guess}allowed: {}", allowed.join(", ")))
}

/// The beginning of a text of the user's, short enough for a message.
pub(crate) fn brief(text: &str) -> String {
    cut_chars(text, 60, "…")
}

/// The allowed name that a mistyped word most likely means: at most two edits away, fewer for short names.
pub(crate) fn similar_name<'a>(word: &str, allowed: &[&'a str]) -> Option<&'a str> {
    let lower = |text: &str| -> String { text.to_lowercase().chars().take(40).collect() };
    let word = lower(word);
    let distances = allowed
        .iter()
        .map(|name| (strsim::osa_distance(&word, &lower(name)), *name));
    let similar = distances.filter(|(distance, name)| *distance <= 2.min(name.len() / 3));
    similar
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::similar_name;

    #[test]
    fn names_within_two_edits_are_similar() {
        for (word, name, is_similar) in [
            ("chekcs", "checks", true),
            ("max_retry", "max_retries", false),
            ("max_retrys", "max_retries", true),
            ("discription", "description", true),
            ("colour", "copy", false),
            ("nme", "name", true),
            ("NAME", "name", true),
            ("base", "name", false),
            ("x", "to", false),
            ("", "to", false),
        ] {
            assert_eq!(
                similar_name(word, &[name]).is_some(),
                is_similar,
                "{word} {name}"
            );
        }
        let guess = similar_name("tmeout", &["timeouts", "timeout"]);
        assert_eq!(guess, Some("timeout"));
    }
}
