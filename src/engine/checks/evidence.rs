//! Counts the tests that a check executed, as its runner's own summary tells it.
//!
//! A pass needs evidence, so what is not clearly a summary is none: whole lines alone are looked at, every word of
//! them must be known, and ordinary prose is never a count. Tests that were skipped, ignored or deselected were not
//! executed. What follows from the counts is for the caller to say.

mod compiled;
mod javascript;
mod protocol;
mod python;
#[cfg(test)]
mod tests;

/// What a runner says of itself at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    pub runner: &'static str,
    pub executed: u32,
    /// Failures and errors the summary admits, whatever the exit code was.
    pub failed: u32,
}

/// Returns the counts of the runner whose summary is in the output, or nothing where none is recognised.
///
/// The most particular format goes first: a jest run may print the TAP of what it loads, nobody prints pytest's line.
pub fn summary(stdout: &str, stderr: &str) -> Option<Summary> {
    const FORMATS: [(&str, Reader); 12] = [
        ("pytest", python::pytest),
        ("unittest", python::unittest),
        ("nextest", compiled::nextest),
        ("cargo test", compiled::cargo),
        ("go test", compiled::go_json),
        ("go test", compiled::go),
        ("jest", javascript::jest),
        ("vitest", javascript::vitest),
        ("node", javascript::node),
        ("mocha", javascript::mocha),
        ("junit", protocol::junit),
        ("tap", protocol::tap),
    ];
    FORMATS.iter().find_map(|(runner, read)| {
        let counts = read(stdout).or_else(|| read(stderr))?;
        Some(Summary { runner, executed: counts.executed, failed: counts.failed })
    })
}

/// Reads one runner's summary out of one stream.
type Reader = fn(&str) -> Option<Counts>;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    executed: u32,
    failed: u32,
}

impl Counts {
    /// Adds what is `ok` or `failed` among items such as `3 passed`; refuses a list with a word that is not `known`.
    fn of(items: &[(u32, &str)], ok: &[&str], failed: &[&str], known: &[&str]) -> Option<Self> {
        let mut counts = Self::default();
        for (number, word) in items {
            if ok.contains(word) || failed.contains(word) {
                counts.executed = counts.executed.saturating_add(*number);
            } else if !known.contains(word) {
                return None;
            }
            if failed.contains(word) {
                counts.failed = counts.failed.saturating_add(*number);
            }
        }
        Some(counts)
    }

    fn plus(self, other: Self) -> Self {
        Self {
            executed: self.executed.saturating_add(other.executed),
            failed: self.failed.saturating_add(other.failed),
        }
    }
}

/// Reads `3 passed, 1 skipped`; nothing where an item is not a number and words.
fn items(list: &str, separator: char) -> Option<Vec<(u32, &str)>> {
    list.split(separator).map(|item| item.trim().split_once(' ').and_then(numbered)).collect()
}

fn numbered<'a>((number, word): (&str, &'a str)) -> Option<(u32, &'a str)> {
    Some((count(number)?, word.trim()))
}

/// A count as runners write it: digits alone, since `parse` would take a sign.
fn count(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Whether the text is a time such as `0.01s`, `4ms` or `2m`.
fn is_duration(text: &str) -> bool {
    let number = text.trim_end_matches(|character: char| character.is_ascii_alphabetic() || character == 'µ');
    matches!(&text[number.len()..], "s" | "ms" | "µs" | "us" | "ns" | "m" | "h") && number.parse::<f64>().is_ok()
}
