//! How long a server asks to wait: the headers `retry-after-ms` and `retry-after`.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, NaiveDateTime, Utc};
use reqwest::header::HeaderMap;

/// Returns the delay that the server asks for, if it does.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .map(str::trim)
    };
    if let Some(milliseconds) = text("retry-after-ms").and_then(|value| value.parse::<f64>().ok()) {
        return seconds(milliseconds / 1000.0);
    }
    let value = text("retry-after")?;
    if let Ok(given) = value.parse::<f64>() {
        return seconds(given);
    }
    let until = http_date(value)?;
    // Relative to the server's clock where it is known: ours may be wrong. `Utc::now` would panic before 1970.
    let now = text("date").and_then(http_date);
    let now = now.unwrap_or_else(|| SystemTime::now().into());
    Some(
        until
            .signed_duration_since(now)
            .to_std()
            .unwrap_or_default(),
    )
}

/// Parses the three date formats of HTTP, and RFC 3339. The day of the week is ignored: it may be wrong.
fn http_date(text: &str) -> Option<DateTime<Utc>> {
    let naive = |text: &str, format: &str| {
        NaiveDateTime::parse_from_str(text, format)
            .ok()
            .map(|time| time.and_utc())
    };
    let dated = text.split_once(',').map_or(text, |(_, date)| date).trim();
    let rfc_2822 = || DateTime::parse_from_rfc2822(dated).ok().map(Into::into);
    let rfc_850 = || naive(dated, "%d-%b-%y %H:%M:%S GMT");
    let asctime = || naive(dated.split_once(' ')?.1.trim(), "%b %e %H:%M:%S %Y");
    let rfc_3339 = || DateTime::parse_from_rfc3339(dated).ok().map(Into::into);
    rfc_2822()
        .or_else(rfc_850)
        .or_else(asctime)
        .or_else(rfc_3339)
}

/// A negative time counts as zero, one too large for a `Duration` as the longest.
fn seconds(given: f64) -> Option<Duration> {
    (!given.is_nan()).then(|| Duration::try_from_secs_f64(given.max(0.0)).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderName, HeaderValue};

    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn every_form_of_retry_after_is_understood() {
        let check = |pairs: &[(&'static str, &str)], expected: Option<f64>| {
            assert_eq!(
                retry_after(&headers(pairs)),
                expected.map(Duration::from_secs_f64),
                "{pairs:?}"
            );
        };
        check(&[], None);
        check(&[("retry-after", "7")], Some(7.0));
        check(&[("retry-after", " 1.5 ")], Some(1.5));
        check(&[("retry-after", "-3")], Some(0.0));
        check(&[("retry-after", "1000000000")], Some(1e9));
        check(&[("retry-after", "soon")], None);
        check(&[("retry-after", "NaN")], None);
        check(
            &[("retry-after-ms", "250"), ("retry-after", "7")],
            Some(0.25),
        );
        check(&[("retry-after-ms", "x"), ("retry-after", "7")], Some(7.0));
        let date = ("date", "Tue, 17 Nov 2026 10:00:00 GMT");
        check(
            &[date, ("retry-after", "Tue, 17 Nov 2026 10:00:20 GMT")],
            Some(20.0),
        );
        check(
            &[date, ("retry-after", "Tue, 17 Nov 2026 09:00:00 GMT")],
            Some(0.0),
        );
        check(
            &[("retry-after", "Fri, 31 Dec 1999 23:59:59 GMT")],
            Some(0.0),
        );
        for form in [
            "Tue, 17 Nov 2026 10:02:00 GMT",
            "Sun, 17 Nov 2026 10:02:00 GMT",
            "17 Nov 2026 10:02:00 GMT",
            "Tue, 17 Nov 2026 10:02:00 -0000",
            "Tue, 17 Nov 2026 12:02:00 +0200",
            "Tuesday, 17-Nov-26 10:02:00 GMT",
            "Tue Nov 17 10:02:00 2026",
            "2026-11-17T10:02:00Z",
        ] {
            check(&[date, ("retry-after", form)], Some(120.0));
            check(
                &[
                    ("date", form),
                    ("retry-after", "Tue, 17 Nov 2026 10:02:07 GMT"),
                ],
                Some(7.0),
            );
        }
        check(
            &[date, ("retry-after", "Sun Nov  1 10:02:00 2026")],
            Some(0.0),
        );
        for huge in ["1e300", "inf", "99999999999999999999999"] {
            assert_eq!(
                retry_after(&headers(&[("retry-after", huge)])),
                Some(Duration::MAX),
                "{huge}"
            );
        }
    }
}
