//! What a server says instead of an answer, in one vocabulary and in words that can be shown.
//!
//! Goes by the status and by error codes, never by wording, except for hints. Error bodies of both dialects, and of
//! neither, are understood everywhere: compatible servers mix them.

use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::llm::error::{
    LlmError, PermanentError, PermanentErrorKind, Spent, says_context_too_long,
};
use crate::state::run::now;
use crate::text::invisible::escaped;
use crate::text::shorten::first_chars;

/// How much of something unexpected is shown.
const EXCERPT: usize = 200;

/// What an excerpt is made of: a character has four bytes at the most.
pub const EXCERPT_BYTES: usize = 4 * EXCERPT;

/// How much of a message that a server meant for people is shown.
pub const MESSAGE: usize = 1000;

/// Returns what an answer with a status other than 2xx means.
pub fn refusal(status: u16, headers: &HeaderMap, body: &[u8]) -> LlmError {
    let parsed = parse(body);
    let message = format!("HTTP {status}{}: {}", kind(&parsed), said(&parsed, body));
    match status {
        401..=403 => LlmError::Unauthorized { message },
        400.. if is_without_credit(status, &parsed) => LlmError::Unauthorized { message },
        429 if is_spend_limit(&parsed) => LlmError::LimitReached { message },
        408 | 409 | 429 | 500.. => LlmError::Transient {
            message,
            retry_after: retry_after(headers),
            spent: Spent::Nothing,
        },
        300..=399 => LlmError::permanent(redirected(status, headers)),
        _ => LlmError::Permanent(PermanentError {
            kind: match status {
                _ if says_context_too_long(&message) => PermanentErrorKind::ContextTooLong,
                413 => PermanentErrorKind::RequestTooLarge,
                _ => PermanentErrorKind::Other,
            },
            message: message + hint(status, &parsed),
        }),
    }
}

/// Reads an error body; some servers put it into a list of one.
fn parse(body: &[u8]) -> Value {
    match serde_json::from_slice(body).unwrap_or_default() {
        Value::Array(mut bodies) if bodies.len() == 1 => bodies.remove(0),
        parsed => parsed,
    }
}

/// Whether an error body speaks of a field of the request: as its parameter, at its place, or in words.
pub fn names(body: &[u8], field: &str) -> bool {
    let parsed = parse(body);
    let places = parsed["detail"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|detail| detail["loc"].as_array());
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let text = said(&parsed, body);
    let is_alone = |(at, _): (usize, &str)| {
        let before = text[..at].bytes().next_back();
        let after = text[at + field.len()..].bytes().next();
        !before.is_some_and(is_word) && !after.is_some_and(is_word)
    };
    parsed["error"]["param"] == field
        || places.flatten().any(|place| place == field)
        || text.match_indices(field).any(is_alone)
}

/// Returns the readable part of an error body, or of an error event: its message, else its beginning.
pub fn said(parsed: &Value, body: &[u8]) -> String {
    let error = &parsed["error"];
    let message = [
        &error["message"],
        error,
        &parsed["message"],
        &parsed["detail"],
    ]
    .into_iter()
    .find_map(Value::as_str);
    match message {
        Some(message) => clean(message, MESSAGE),
        None if body.is_empty() => "no text".into(),
        None => excerpt(body),
    }
}

/// Returns the first characters of something unexpected, on one line, control characters escaped.
pub fn excerpt(bytes: &[u8]) -> String {
    clean(
        &String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]),
        EXCERPT,
    )
}

/// Returns the first characters of a text, on one line, control characters escaped.
pub fn clean(text: &str, limit: usize) -> String {
    escaped(first_chars(text.trim(), limit))
}

fn kind(parsed: &Value) -> String {
    let kind = codes(parsed).next().map(|kind| clean(kind, EXCERPT));
    kind.map_or_else(String::new, |kind| format!(" ({kind})"))
}

fn codes(parsed: &Value) -> impl Iterator<Item = &str> {
    let error = &parsed["error"];
    [
        &error["type"],
        &error["code"],
        &error["details"]["error_code"],
    ]
    .into_iter()
    .filter_map(Value::as_str)
}

/// Whether the account has no money left. Anthropic says it in words alone, with a 400.
fn is_without_credit(status: u16, parsed: &Value) -> bool {
    let bare = [&parsed["error"], &parsed["code"]]
        .into_iter()
        .filter_map(Value::as_str);
    let by_code = codes(parsed)
        .chain(bare)
        .any(|code| code.contains("insufficient_quota") || code.starts_with("billing"));
    by_code || (status == 400 && says_no_credit(&said(parsed, b"")))
}

/// Whether these words of a provider mean an account without money.
pub fn says_no_credit(text: &str) -> bool {
    const WORDS: [&str; 4] = [
        "credit balance is too low",
        "insufficient credit",
        "insufficient balance",
        "out of credit",
    ];
    let text = text.to_lowercase();
    WORDS.iter().any(|words| text.contains(words))
}

/// A limit that the user has set at the provider, and that ends with its month.
fn is_spend_limit(parsed: &Value) -> bool {
    codes(parsed).any(|code| code.contains("spend_limit"))
}

fn redirected(status: u16, headers: &HeaderMap) -> String {
    let to = headers
        .get("location")
        .map_or_else(|| "nowhere".into(), |value| excerpt(value.as_bytes()));
    format!(
        "HTTP {status}: the server redirects to {to}; redirects are not followed, set generator.base_url"
    )
}

/// What the user can set where the model does not take what was asked for.
fn hint(status: u16, parsed: &Value) -> &'static str {
    if status != 400 {
        return "";
    }
    let param = parsed["error"]["param"].as_str().unwrap_or_default();
    let message = said(parsed, b"").to_lowercase();
    if param == "reasoning_effort" && message.contains("tools") {
        "; set generator.effort to none, or generator.mode to files"
    } else if param == "reasoning_effort" || message.contains("effort") {
        "; change or drop generator.effort"
    } else if message.contains("tool")
        && (message.contains("not support") || message.contains("unsupported"))
    {
        "; this model takes no tools: set generator.mode to files"
    } else if message.contains("temperature") {
        "; drop generator.temperature"
    } else {
        ""
    }
}

fn retry_after(headers: &HeaderMap) -> Option<Duration> {
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
    // Measured on the server's clock where it tells it, since ours may be wrong.
    let now = text("date").and_then(http_date).unwrap_or_else(now);
    Some(
        until
            .signed_duration_since(now)
            .to_std()
            .unwrap_or_default(),
    )
}

/// Reads a date of HTTP in each of its three forms. The day of the week says nothing new, and is wrong at times.
fn http_date(text: &str) -> Option<DateTime<Utc>> {
    let naive = |text: &str, format: &str| {
        NaiveDateTime::parse_from_str(text, format)
            .ok()
            .map(|time| time.and_utc())
    };
    let dated = text.split_once(',').map_or(text, |(_, date)| date).trim();
    let in_words = || DateTime::parse_from_rfc2822(dated).ok().map(Into::into);
    let with_dashes = || naive(dated, "%d-%b-%y %H:%M:%S GMT");
    let of_c = || naive(dated.split_once(' ')?.1.trim(), "%b %e %H:%M:%S %Y");
    let of_machines = || DateTime::parse_from_rfc3339(dated).ok().map(Into::into);
    in_words()
        .or_else(with_dashes)
        .or_else(of_c)
        .or_else(of_machines)
}

/// A negative time is none, and one beyond all measure is the longest.
fn seconds(given: f64) -> Option<Duration> {
    (!given.is_nan()).then(|| Duration::try_from_secs_f64(given.max(0.0)).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::{excerpt, names, refusal, retry_after};
    use crate::llm::error::{LlmError, Spent};

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (
                HeaderName::from_static(name),
                HeaderValue::from_bytes(value.as_bytes()).unwrap(),
            )
        };
        pairs.iter().map(pair).collect()
    }

    fn refused(status: u16, body: &str) -> LlmError {
        refusal(status, &HeaderMap::new(), body.as_bytes())
    }

    fn message(error: LlmError) -> String {
        match error {
            LlmError::Transient {
                message,
                spent: Spent::Nothing,
                ..
            } => format!("transient {message}"),
            LlmError::Unauthorized { message } => format!("unauthorized {message}"),
            LlmError::LimitReached { message } => format!("limit {message}"),
            LlmError::Permanent(error) => format!("permanent {error}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn each_status_has_its_class() {
        for status in [401, 402, 403] {
            assert!(message(refused(status, "")).starts_with("unauthorized HTTP 40"));
        }
        for status in [408, 409, 429, 500, 502, 503, 504, 529, 599] {
            assert!(
                message(refused(status, "")).starts_with("transient "),
                "{status}"
            );
        }
        for status in [300, 302, 304, 400, 404, 405, 413, 422] {
            assert!(
                message(refused(status, "")).starts_with("permanent "),
                "{status}"
            );
        }
    }

    #[test]
    fn error_bodies_of_every_server_are_readable() {
        let check =
            |status, body, expected: &str| assert_eq!(message(refused(status, body)), expected);
        let overloaded =
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
        check(
            529,
            overloaded,
            "transient HTTP 529 (overloaded_error): Overloaded",
        );
        let loading =
            r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
        check(
            503,
            loading,
            "transient HTTP 503 (unavailable_error): Loading model",
        );
        let lite = r#"{"error":{"message":"litellm.RateLimitError","type":"throttling_error","code":"429"}}"#;
        check(
            429,
            lite,
            "transient HTTP 429 (throttling_error): litellm.RateLimitError",
        );
        check(
            404,
            r#"{"error":"model 'x' not found"}"#,
            "permanent HTTP 404: model 'x' not found",
        );
        check(
            404,
            r#"{"message":"no such path"}"#,
            "permanent HTTP 404: no such path",
        );
        check(
            404,
            r#"{"detail":"Not Found"}"#,
            "permanent HTTP 404: Not Found",
        );
        check(
            404,
            r#"[{"error":{"code":404,"message":"no such model"}}]"#,
            "permanent HTTP 404: no such model",
        );
        check(
            502,
            "<html>\n<h1>Bad</h1>",
            r"transient HTTP 502: <html>\n<h1>Bad</h1>",
        );
        check(
            400,
            r#"{"error":[1]}"#,
            r#"permanent HTTP 400: {"error":[1]}"#,
        );
        check(500, "", "transient HTTP 500: no text");
    }

    #[test]
    fn a_limit_of_the_account_is_told_apart() {
        let quota =
            r#"{"error":{"message":"x","type":"insufficient_quota","code":"insufficient_quota"}}"#;
        let spend = r#"{"error":{"type":"rate_limit_error","message":"x","details":{"error_code":"enforced_spend_limit_reached"}}}"#;
        assert!(message(refused(429, spend)).starts_with("limit "));
        let billing = r#"{"error":{"message":"x","code":"billing_hard_limit_reached"}}"#;
        let typed = r#"{"error":{"message":"x","type":"billing_error"}}"#;
        for (status, body) in [
            (429, quota),
            (400, quota),
            (403, quota),
            (503, quota),
            (400, billing),
            (429, typed),
        ] {
            assert!(
                message(refused(status, body)).starts_with("unauthorized "),
                "{status} {body}"
            );
        }
        let low = r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}"#;
        assert!(message(refused(400, low)).starts_with("unauthorized "));
        assert!(message(refused(404, low)).starts_with("permanent "));
        assert!(
            message(refused(400, r#"{"error":"insufficient_quota"}"#)).starts_with("unauthorized ")
        );
    }

    #[test]
    fn hints_name_the_field_to_set() {
        let check = |body, field| {
            let text = message(refused(400, body));
            assert!(text.contains(field), "{text}");
        };
        let both = r#"{"error":{"message":"Function tools with reasoning_effort are not supported for gpt-5.6-luna","param":"reasoning_effort"}}"#;
        check(both, "generator.effort");
        check(both, "generator.mode");
        check(
            r#"{"error":{"message":"model x does not support tools"}}"#,
            "generator.mode",
        );
        check(
            r#"{"error":{"message":"This model does not support the effort parameter."}}"#,
            "generator.effort",
        );
        check(
            r#"{"error":{"message":"temperature: Extra inputs are not permitted"}}"#,
            "generator.temperature",
        );
    }

    #[test]
    fn a_redirect_is_shown_and_not_followed() {
        let error = refusal(
            307,
            &headers(&[("location", "https://evil.example/\u{202e}x")]),
            b"",
        );
        assert_eq!(
            message(error),
            r"permanent HTTP 307: the server redirects to https://evil.example/\u{202e}x; redirects are not followed, set generator.base_url"
        );
    }

    #[test]
    fn a_field_is_named_by_parameter_place_or_word() {
        let check = |body: &str, expected| {
            assert_eq!(names(body.as_bytes(), "max_tokens"), expected, "{body}")
        };
        check(
            r#"{"error":{"message":"Unsupported parameter","param":"max_tokens"}}"#,
            true,
        );
        check(
            r#"{"error":{"message":"Unsupported parameter: 'max_tokens' is not supported."}}"#,
            true,
        );
        check(
            r#"{"error":{"message":"max_tokens: Extra inputs are not permitted"}}"#,
            true,
        );
        check(
            r#"{"detail":[{"type":"extra_forbidden","loc":["body","max_tokens"],"msg":"Extra inputs"}]}"#,
            true,
        );
        check("unknown field max_tokens", true);
        check(
            r#"{"error":{"message":"max_tokens_to_sample is needed","param":null}}"#,
            false,
        );
        check(
            r#"{"error":{"message":"use max_completion_tokens"}}"#,
            false,
        );
        check("", false);
    }

    #[test]
    fn every_way_to_say_when_is_understood() {
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

    #[test]
    fn an_excerpt_is_short_and_harmless() {
        assert_eq!(
            excerpt(b"\x1b[31mred\x00\xff"),
            "\\u{1b}[31mred\\u{0}\u{fffd}"
        );
        assert_eq!(excerpt("ä".repeat(1000).as_bytes()), "ä".repeat(200));
    }

    proptest! {
        #[test]
        fn no_error_body_panics(status in 300u16..1000, body in any::<Vec<u8>>(), when in "[ -~]{0,40}") {
            let _ = refusal(status, &headers(&[("retry-after", &when), ("date", &when)]), &body);
        }
    }
}
