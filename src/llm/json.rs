//! JSON from outside, bounded: a text of many tiny values would become a tree many times its size.

use std::fmt;

use serde_json::Value;

/// The most values in one text, or in all arguments of one answer.
const MAX_VALUES: usize = 1 << 18;

#[derive(Debug)]
pub(super) enum JsonError {
    TooManyValues,
    Invalid(serde_json::Error),
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JsonError::TooManyValues => write!(f, "more than {MAX_VALUES} values"),
            JsonError::Invalid(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for JsonError {}

pub(super) fn parse(json: &[u8]) -> Result<Value, JsonError> {
    check_value_count([json])?;
    serde_json::from_slice(json).map_err(JsonError::Invalid)
}

/// Refuses texts that hold too many values together.
pub(super) fn check_value_count<'a>(
    texts: impl IntoIterator<Item = &'a [u8]>,
) -> Result<(), JsonError> {
    let count: usize = texts.into_iter().map(max_values).sum();
    match count > MAX_VALUES {
        true => Err(JsonError::TooManyValues),
        false => Ok(()),
    }
}

/// Returns an upper bound of the memory that the tree of a text takes.
pub(super) fn max_memory(json: &str) -> usize {
    json.len() + max_values(json.as_bytes()) * size_of::<Value>()
}

/// Returns an upper bound of the number of values in a text.
fn max_values(json: &[u8]) -> usize {
    let mut strings = StringScanner::default();
    let is_start = |byte: &&u8| strings.is_outside(**byte) && matches!(byte, b',' | b'[' | b'{');
    json.iter().filter(is_start).count()
}

/// Tracks which bytes of a JSON text are outside of strings.
#[derive(Debug, Default)]
pub(super) struct StringScanner {
    in_string: bool,
    escaped: bool,
}

impl StringScanner {
    /// Takes the next byte; returns whether it is outside of strings and not a quote.
    pub(super) fn is_outside(&mut self, byte: u8) -> bool {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = self.in_string,
            b'"' => self.in_string = !self.in_string,
            _ => return !self.in_string,
        }
        false
    }

    pub(super) fn in_string(&self) -> bool {
        self.in_string
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_outside_of_strings_counts_as_a_value() {
        let check = |json: &str, count| assert_eq!(max_values(json.as_bytes()), count, "{json}");
        check("", 0);
        check("1", 0);
        check("[1, 2, {}]", 4);
        check(r#"["a,[{", "b\",\\", 1]"#, 3);
        check(r#"\"[,""#, 0);
    }

    #[test]
    fn a_text_with_too_many_values_is_refused() {
        let many = format!("[{}1]", "1,".repeat(MAX_VALUES));
        assert!(matches!(
            parse(many.as_bytes()),
            Err(JsonError::TooManyValues)
        ));
        let half = &many.as_bytes()[..many.len() / 2];
        assert!(check_value_count([half]).is_ok());
        assert!(check_value_count([half, half, b"[["]).is_err());
    }
}
