//! Quotes words for a POSIX shell, and scalars for YAML.

/// Quotes a word for a POSIX shell where it needs quotes.
pub(crate) fn shell_word(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Plain scalars that some YAML reader does not take for text.
const YAML_WORDS: [&str; 12] = [
    "true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan", "~",
];

/// Quotes text as a YAML scalar where it needs quotes.
pub(crate) fn yaml_scalar(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    let name = text.trim_start_matches(['.', '/', '_']);
    let is_name = name.is_empty() || name.starts_with(|c: char| c.is_ascii_alphabetic());
    let is_word = text.is_empty() || YAML_WORDS.contains(&text.to_ascii_lowercase().as_str());
    match is_name && !is_word && text.chars().all(is_plain) {
        true => text.to_owned(),
        false => serde_json::Value::from(text).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{shell_word, yaml_scalar};

    #[test]
    fn only_words_that_a_shell_would_change_are_quoted() {
        for (word, quoted) in [
            ("specs/ä.yaml", "specs/ä.yaml"),
            ("--a=b,c:d+e@f%", "--a=b,c:d+e@f%"),
            ("", "''"),
            ("a b", "'a b'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
        ] {
            assert_eq!(shell_word(word), quoted);
        }
    }

    #[test]
    fn only_scalars_that_yaml_would_change_are_quoted() {
        for (text, quoted) in [
            ("/opt/a-b_c.d+", "/opt/a-b_c.d+"),
            ("./.venv/bin", "./.venv/bin"),
            (".", "."),
            ("../", "../"),
            ("", "\"\""),
            ("5", "\"5\""),
            (".5", "\".5\""),
            ("No", "\"No\""),
            ("-a", "\"-a\""),
            ("a: b", "\"a: b\""),
            ("*.csv", "\"*.csv\""),
            ("a\"\\\n", "\"a\\\"\\\\\\n\""),
        ] {
            assert_eq!(yaml_scalar(text), quoted);
        }
    }
}
