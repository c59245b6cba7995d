//! Numbers, times and results as a reader sees them.

use crate::report::model::{ReportCheck, RunReport};

/// A duration: `340 ms`, `2.4 s`, `3 min 20 s`.
pub(super) fn duration(milliseconds: u64) -> String {
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1000.0),
        _ => {
            let seconds = milliseconds / 1000;
            format!("{} min {} s", seconds / 60, seconds % 60)
        }
    }
}

pub(super) fn optional_duration(milliseconds: Option<u64>) -> String {
    milliseconds.map_or("-".to_owned(), duration)
}

pub(super) fn usd(cost: Option<f64>) -> String {
    cost.map_or("-".to_owned(), |cost| format!("{cost:.4} USD"))
}

/// A time without its date.
pub(super) fn clock(time: &str) -> &str {
    let clock = time.split_once('T').map_or(time, |(_, clock)| clock);
    clock
        .split('.')
        .next()
        .unwrap_or(clock)
        .trim_end_matches('Z')
}

pub(super) fn date_and_time(time: &str) -> String {
    match time.split_once('T') {
        Some((date, _)) => format!("{date} {} UTC", clock(time)),
        None => time.to_owned(),
    }
}

pub(super) fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

pub(super) fn check_result(check: &ReportCheck) -> (&'static str, &'static str) {
    match (check.passed, check.flaky) {
        (true, false) => ("good", "passed"),
        (true, true) => ("warn", "passed, flaky"),
        (false, _) => ("bad", "failed"),
    }
}

/// The reason and the message of a run in a sentence.
pub(super) fn why(report: &RunReport) -> String {
    match (report.message.as_str(), report.reason.as_deref()) {
        ("", Some(reason)) => reason.to_owned(),
        ("", None) => "The log has no end: the run is under way, or its process was killed.".into(),
        (message, Some(reason)) => format!("{message} ({reason})"),
        (message, None) => message.to_owned(),
    }
}
