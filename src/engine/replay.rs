//! A run again from its log, offline: every request is compared with the recorded one and gets its answer.
//!
//! Compared is what is said, after what varies by nature (durations, addresses, dates, temporary paths, the root's
//! own path) has been made equal; a difference that is left is shown, first one first.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;
use rustix::fs::OFlags;
use serde_json::Value;

use crate::engine::agent::talks::Talks;
use crate::engine::memory::{Memory, Recorded};
use crate::engine::spec::read::open_file;
use crate::error::{Error, Result};
use crate::events::Place;
use crate::state::journal::read_lines;
use crate::state::reason::Reason;

/// How much of a line that differs is shown.
const SHOWN: usize = 160;
/// How much of that comes before the difference.
const SHOWN_BEFORE: usize = 60;

/// A recorded run to answer from.
#[derive(Debug)]
pub struct Replay {
    memory: Memory,
    /// Paths that stand for the root: of the recorded run and of this one.
    roots: Vec<String>,
}

impl Replay {
    /// Reads a log; one that is no log of a run with answers is refused.
    pub fn load(path: &Path, root: &Path) -> Result<Replay> {
        let file = open_file(path, OFlags::empty())
            .map_err(|error| Error::Usage(format!("cannot open the log {}: {error}", path.display())))?;
        let mut memory = Memory::default();
        let read = read_lines(&file, None, &mut |seq, event| memory.hear_line(seq, event))
            .map_err(|error| Error::Usage(format!("cannot read the log {}: {error}", path.display())))?;
        if read.lines == 0 {
            return Err(Error::Spec(format!("{}:1:1: this is no log of a run", path.display())));
        }
        let mut roots: Vec<String> = memory.root().map(str::to_owned).into_iter().collect();
        roots.extend([root, &true_path(root)].map(|root| root.display().to_string()));
        roots =
            roots.iter().map(|root| root.trim_end_matches('/').to_owned()).filter(|root| !root.is_empty()).collect();
        roots.sort_by_key(|root| std::cmp::Reverse(root.len()));
        Ok(Replay { memory, roots })
    }

    /// Returns the recorded answer to a request, or fails with what differs.
    pub fn answer(&self, place: Place, request: &Value) -> Result<Recorded> {
        let at = format!("{}, retry {}, turn {}", place.phase, place.retry_count, place.turn);
        let mismatch = |text: String| Error::Failed(Reason::ReplayMismatch, text);
        let Some(recorded) = self.memory.answer(place) else {
            return Err(mismatch(format!("the log has no answer for this request ({at})")));
        };
        let asked = self.memory.request(place).map_or(&Value::Null, |asked| &asked.said);
        match self.difference(asked, request) {
            Some(difference) => {
                Err(mismatch(format!("the request differs from the recorded one ({at}): {difference}")))
            }
            None => Ok(recorded.clone()),
        }
    }

    /// Whether the log has an answer for a place.
    pub fn has_answer(&self, place: Place) -> bool {
        self.memory.answer(place).is_some()
    }

    /// Returns what the log knows of conversations.
    pub fn talks(&self) -> &Talks {
        self.memory.talks()
    }

    /// Returns the first line in which two texts differ by more than by nature, both shown.
    pub fn first_difference(&self, recorded: &str, now: &str) -> Option<String> {
        first_difference(&self.plain(recorded.to_owned()), &self.plain(now.to_owned()))
    }

    fn difference(&self, recorded: &Value, request: &Value) -> Option<String> {
        first_difference(&self.said(recorded), &self.said(request))
    }

    /// Everything that a request says, one text, with what varies made equal.
    fn said(&self, request: &Value) -> String {
        let mut text = String::new();
        for part in ["system", "tools", "messages"] {
            text += &format!("[{part}]\n");
            strings(&request[part], &mut text);
        }
        self.plain(text)
    }

    fn plain(&self, mut text: String) -> String {
        for root in &self.roots {
            text = text.replace(root.as_str(), "<root>");
        }
        normalised(&text)
    }
}

fn first_difference(old: &str, new: &str) -> Option<String> {
    let (mut old, mut new) = (old.lines(), new.lines());
    for number in 1.. {
        match (old.next(), new.next()) {
            (None, None) => return None,
            (old, new) if old == new => {}
            (old, new) => {
                let from =
                    old.zip(new).map_or(0, |(old, new)| difference_begins(old, new).saturating_sub(SHOWN_BEFORE));
                let show = |line: Option<&str>| line.map_or("(its end)".into(), |line| shortened(line, from));
                return Some(format!("line {number}: recorded {}, now {}", show(old), show(new)));
            }
        }
    }
    None
}

/// Returns a path with its links resolved, where it can be.
pub fn true_path(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Returns how many characters two lines have in common before they differ.
fn difference_begins(old: &str, new: &str) -> usize {
    old.chars().zip(new.chars()).take_while(|(old, new)| old == new).count()
}

fn shortened(line: &str, from: usize) -> String {
    let before = if from > 0 { "…" } else { "" };
    let cut: String = line.chars().skip(from).take(SHOWN).collect();
    let after = if line.chars().nth(from + SHOWN).is_some() { "…" } else { "" };
    format!("{before}{cut:?}{after}")
}

/// Every string inside a value, in order, a line each at least.
fn strings(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => {
            out.push_str(text);
            out.push('\n');
        }
        Value::Array(items) => items.iter().for_each(|item| strings(item, out)),
        Value::Object(fields) => fields.values().for_each(|field| strings(field, out)),
        other => out.push_str(&format!("{other}\n")),
    }
}

static VARYING: LazyLock<Vec<(Regex, &str)>> = LazyLock::new(|| {
    const WEEKDAY: &str = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)";
    const MONTH: &str = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)";
    let rules = [
        (r"(?:/[\w.+@-]+)*/orchestrator(?:-\d+)?/[0-9a-f]{16}(?:/[\w.+@-]+)*".to_owned(), "<tmp>"),
        (r"(?:/private)?/(?:tmp|var/tmp|var/folders)(?:/[\w.+@-]+)+".to_owned(), "<tmp>"),
        (
            r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?)?".to_owned(),
            "<date>",
        ),
        (format!(r"{WEEKDAY},? (?:{MONTH} +\d+|\d+ {MONTH})[ \d:]*(?:[A-Z]{{3,4}})?(?: \d{{4}})?"), "<date>"),
        (format!(r"\b{MONTH} +\d{{1,2}}(?:,? +(?:\d{{4}}|\d\d:\d\d(?::\d\d)?))\b"), "<date>"),
        (r"\b\d{1,2}([/.])\d{1,2}[/.]\d{4}\b".to_owned(), "<date>"),
        // Seconds since 1970, of the years around now.
        (r"\b1[6-9]\d{8}(?:\.\d+)?\b".to_owned(), "<date>"),
        (r"\b\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\b".to_owned(), "<time>"),
        (r"(\b(?:127\.0\.0\.1|localhost)|\[::1\]):\d+\b".to_owned(), "<address>"),
        (r"\b0x[0-9a-fA-F]+\b".to_owned(), "<address>"),
        // What was in use when a limit was broken.
        (r"(grew (?:by|to)|fell to|there were) [\d.]+ (?:[KMG]iB|bytes|files|processes)".to_owned(), "$1 <number>"),
        (
            r"\b(?:\d+h ?)?(?:\d+m ?)?\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ns|µs|us|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b".to_owned(),
            "<duration>",
        ),
        (r"duration_ms:? [\d.]+".to_owned(), "<duration>"),
        (r"\b\d+ bytes\b".to_owned(), "<size>"),
        // A summary is centred in its line, so its length decides how many there are.
        (r"={3,}(?:\[\d+\])?".to_owned(), "==="),
    ];
    rules.into_iter().filter_map(|(pattern, word)| Some((Regex::new(&pattern).ok()?, word))).collect()
});

/// Returns a text with durations, dates, times, addresses and temporary paths made equal.
fn normalised(text: &str) -> String {
    VARYING.iter().fold(text.to_owned(), |text, (pattern, word)| pattern.replace_all(&text, *word).into_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_patterns_compile() {
        assert_eq!(VARYING.len(), 15);
    }

    #[test]
    fn what_varies_by_nature_is_equal() {
        let pairs = [
            ("Ran 3 tests in 0.031s", "Ran 3 tests in 0.104s"),
            ("passed in 61.02s (0:01:01)", "passed in 62.90s (0:01:02)"),
            ("<f at 0x7f12ab>", "<f at 0x55aa01>"),
            ("2026-11-17T03:16:07Z x", "2025-01-02T13:00:59.123+00:00 x"),
            ("Tue Nov 17 03:16:07 UTC 2026", "Wed Nov 18 23:16:07 UTC 2026"),
            ("/tmp/abc/x.py:3", "/tmp/def1/y/x.py:3"),
            ("at /home/a/.cache/orchestrator/0123456789abcdef/x", "at /root/.cache/orchestrator/fedcba9876543210/x"),
            ("at /run/orchestrator-1000/0123456789abcdef/tmp/x", "at /tmp/orchestrator-0/fedcba9876543210/tmp/x"),
            ("duration_ms 0.5", "duration_ms 1.25"),
            ("memory in use grew to 210.3 MiB, the limit", "memory in use grew to 1.2 GiB, the limit"),
            ("took 3 ms", "took 12 ms"),
            ("real 0m0.003s", "real 1m2.100s"),
            ("===== 1 failed in 9.99s =====", "==== 1 failed in 10.01s ===="),
            ("===[89] 1 failed in 9.99s ===[88]", "===[88] 1 failed in 10.01s ===[88]"),
            ("-rw-r--r-- 1 u u 3 Nov 17 03:16 a", "-rw-r--r-- 1 u u 3 Dec  1  2025 a"),
            ("at 1794887973.25", "at 1794887999.5"),
            ("connect to 127.0.0.1:40123", "connect to 127.0.0.1:5321"),
        ];
        for (a, b) in pairs {
            assert_eq!(normalised(a), normalised(b), "{a} / {b}");
        }
        for (a, b) in [("3 passed", "4 passed"), ("line 3", "line 4"), ("expected 4 got 5", "expected 4 got 6")] {
            assert_ne!(normalised(a), normalised(b));
        }
    }

    #[test]
    fn the_first_difference_is_shown() {
        let replay = Replay { memory: Memory::default(), roots: vec!["/a/root".into()] };
        let request = |text: &str| json!({"model": "x", "system": "s", "messages": [{"content": text}]});
        assert_eq!(replay.difference(&request("in /a/root/x\n1s"), &request("in <root>/x\n2s")), None);
        let difference = replay.difference(&request("one\ntwo"), &request("one\nthree")).unwrap();
        assert!(difference.contains("\"two\"") && difference.contains("\"three\""), "{difference}");
        let difference = replay.difference(&request("one\ntwo"), &request("one")).unwrap();
        assert!(difference.contains("\"two\""), "{difference}");
    }
}
