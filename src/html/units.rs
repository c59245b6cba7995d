//! Numbers and times as a reader sees them.

use chrono::DateTime;

/// A duration: `340 ms`, `2.4 s`, `3 min 20 s`, `2 h 5 min`.
pub(crate) fn duration(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{:.1} s", milliseconds as f64 / 1000.0),
        60_000..3_600_000 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

pub(crate) fn optional_duration(milliseconds: Option<u64>) -> String {
    milliseconds.map_or("-".to_owned(), duration)
}

pub(crate) fn usd(cost: Option<f64>) -> String {
    cost.map_or("-".to_owned(), |cost| format!("{cost:.4} USD"))
}

/// A time of a log without its date and without fractions of a second.
pub(crate) fn clock(time: &str) -> &str {
    let clock = time.split_once('T').map_or(time, |(_, clock)| clock);
    let whole = clock.split('.').next().unwrap_or(clock);
    whole.trim_end_matches('Z')
}

/// A time of a log with its date.
pub(crate) fn date_and_time(time: &str) -> String {
    match time.split_once('T') {
        Some((date, _)) => format!("{date} {} UTC", clock(time)),
        None => time.to_owned(),
    }
}

pub(crate) fn plural(count: usize, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// Milliseconds since 1970 of a time of a log.
pub(crate) fn timestamp(time: &str) -> Option<i64> {
    let parsed = DateTime::parse_from_rfc3339(time).ok()?;
    Some(parsed.timestamp_millis())
}

/// The milliseconds between two times of a log.
pub(crate) fn milliseconds(start: &str, end: &str) -> Option<u64> {
    u64::try_from(timestamp(end)? - timestamp(start)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_two_units_at_most() {
        let cases = [
            (0, "0 ms"),
            (999, "999 ms"),
            (1_000, "1.0 s"),
            (59_949, "59.9 s"),
            (200_000, "3 min 20 s"),
            (7_500_000, "2 h 5 min"),
        ];
        for (milliseconds, expected) in cases {
            assert_eq!(duration(milliseconds), expected);
        }
    }

    #[test]
    fn times_are_read_as_far_as_they_can_be() {
        assert_eq!(clock("2026-11-18T20:06:46.123Z"), "20:06:46");
        assert_eq!(clock("nonsense"), "nonsense");
        assert_eq!(
            date_and_time("2026-11-18T20:06:46Z"),
            "2026-11-18 20:06:46 UTC"
        );
        let between = |start, end| milliseconds(start, end);
        assert_eq!(
            between("2026-11-18T20:06:46Z", "2026-11-18T20:06:47.5Z"),
            Some(1500)
        );
        assert_eq!(
            between("2026-11-18T20:06:47Z", "2026-11-18T20:06:46Z"),
            None
        );
        assert_eq!(between("x", "2026-11-18T20:06:46Z"), None);
    }
}
