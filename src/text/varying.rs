//! What differs between two executions of the same program by its nature: durations, dates, addresses, temporary paths.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::Regex;

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
        // The usage reported with a broken limit.
        (r"(grew (?:by|to)|fell to|there were) [\d.]+ (?:[KMG]iB|bytes|files|processes)".to_owned(), "$1 <number>"),
        (
            r"\b(?:\d+h ?)?(?:\d+m ?)?\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ns|µs|us|ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?)\b".to_owned(),
            "<duration>",
        ),
        (r"duration_ms:? [\d.]+".to_owned(), "<duration>"),
        (r"\b\d+ bytes\b".to_owned(), "<size>"),
        // A summary is centred in its line, so the number of these depends on its length.
        (r"={3,}(?:\[\d+\])?".to_owned(), "==="),
    ];
    // ASCII classes: those of Unicode take milliseconds to compile.
    rules
        .into_iter()
        .filter_map(|(pattern, word)| Some((Regex::new(&format!("(?-u){pattern}")).ok()?, word)))
        .collect()
});

/// Compiles the patterns, which takes about two milliseconds, ahead of their use.
pub(crate) fn compile_patterns() {
    LazyLock::force(&VARYING);
}

/// The text with placeholders for durations, dates, times, addresses and temporary paths.
pub(crate) fn without_varying_text(text: &str) -> String {
    let mut text = Cow::Borrowed(text);
    for (pattern, word) in VARYING.iter() {
        if let Cow::Owned(changed) = pattern.replace_all(&text, *word) {
            text = changed.into();
        }
    }
    text.into_owned()
}

#[cfg(test)]
mod tests {
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
            (
                "Tue Nov 17 03:16:07 UTC 2026",
                "Wed Nov 18 23:16:07 UTC 2026",
            ),
            ("/tmp/abc/x.py:3", "/tmp/def1/y/x.py:3"),
            (
                "at /home/a/.cache/orchestrator/0123456789abcdef/x",
                "at /root/.cache/orchestrator/fedcba9876543210/x",
            ),
            (
                "at /run/orchestrator-1000/0123456789abcdef/tmp/x",
                "at /tmp/orchestrator-0/fedcba9876543210/tmp/x",
            ),
            ("duration_ms 0.5", "duration_ms 1.25"),
            (
                "memory in use grew to 210.3 MiB, the limit",
                "memory in use grew to 1.2 GiB, the limit",
            ),
            ("took 3 ms", "took 12 ms"),
            ("real 0m0.003s", "real 1m2.100s"),
            (
                "===== 1 failed in 9.99s =====",
                "==== 1 failed in 10.01s ====",
            ),
            (
                "===[89] 1 failed in 9.99s ===[88]",
                "===[88] 1 failed in 10.01s ===[88]",
            ),
            (
                "-rw-r--r-- 1 u u 3 Nov 17 03:16 a",
                "-rw-r--r-- 1 u u 3 Dec  1  2025 a",
            ),
            ("at 1794887973.25", "at 1794887999.5"),
            ("connect to 127.0.0.1:40123", "connect to 127.0.0.1:5321"),
        ];
        for (a, b) in pairs {
            assert_eq!(
                without_varying_text(a),
                without_varying_text(b),
                "{a} / {b}"
            );
        }
        for (a, b) in [
            ("3 passed", "4 passed"),
            ("line 3", "line 4"),
            ("expected 4 got 5", "expected 4 got 6"),
        ] {
            assert_ne!(without_varying_text(a), without_varying_text(b));
        }
    }
}
