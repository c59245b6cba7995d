//! Maps error responses of servers to [`LlmError`], with a message that can be shown.
//!
//! Decides by status and error codes, and by phrases only where servers have no code. Error bodies of all APIs are
//! understood everywhere: compatible servers mix them.

use reqwest::header::HeaderMap;
use serde_json::Value;

use crate::llm::error::{
    LlmError, PermanentError, PermanentErrorKind, Spent, says_context_too_long,
};
use crate::llm::retry_after::retry_after;
use crate::text::invisible::escaped;
use crate::text::shorten::first_chars;

/// The length of an excerpt, in characters.
const EXCERPT: usize = 200;

/// So many bytes are enough for an excerpt.
pub(super) const EXCERPT_BYTES: usize = 4 * EXCERPT;

/// The length of a server's error message, in characters.
pub(super) const MAX_MESSAGE: usize = 1000;

/// Returns the error of a response with a status other than 2xx.
pub(super) fn error_of_response(status: u16, headers: &HeaderMap, body: &[u8]) -> LlmError {
    let parsed = parse(body);
    let message = format!(
        "HTTP {status}{}: {}",
        shown_code(&parsed),
        error_message(&parsed, body)
    );
    match status {
        401..=403 => LlmError::Unauthorized { message },
        400.. if has_no_credit(status, &parsed) => LlmError::Unauthorized { message },
        429 if is_spend_limit(&parsed) => LlmError::LimitReached { message },
        408 | 409 | 429 | 500.. => LlmError::Transient {
            message,
            retry_after: retry_after(headers),
            spent: Spent::Nothing,
        },
        300..=399 => LlmError::permanent(redirect_message(status, headers)),
        _ => LlmError::Permanent(PermanentError {
            kind: match status {
                _ if says_context_too_long(&message) => PermanentErrorKind::ContextTooLong,
                413 => PermanentErrorKind::RequestTooLarge,
                400..=499 if is_unknown_model(status, &parsed) => PermanentErrorKind::UnknownModel,
                404 | 405 => PermanentErrorKind::UnknownPath,
                _ => PermanentErrorKind::Other,
            },
            message: message + hint(status, &parsed),
        }),
    }
}

/// Parses an error body; some servers put it into a list of one element.
fn parse(body: &[u8]) -> Value {
    match serde_json::from_slice(body).unwrap_or_default() {
        Value::Array(mut bodies) if bodies.len() == 1 => bodies.remove(0),
        parsed => parsed,
    }
}

/// Whether an error body names a field of the request: as its parameter, as its location, or in the message.
pub(super) fn names_field(body: &[u8], field: &str) -> bool {
    let parsed = parse(body);
    let locations = parsed["detail"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|detail| detail["loc"].as_array());
    let is_word_byte = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let text = error_message(&parsed, body);
    let is_whole_word = |(at, _): (usize, &str)| {
        let before = text[..at].bytes().next_back();
        let after = text[at + field.len()..].bytes().next();
        !before.is_some_and(is_word_byte) && !after.is_some_and(is_word_byte)
    };
    parsed["error"]["param"] == field
        || locations.flatten().any(|location| location == field)
        || text.match_indices(field).any(is_whole_word)
}

/// Returns the message of an error body or event, else an excerpt of it.
pub(super) fn error_message(parsed: &Value, body: &[u8]) -> String {
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
        Some(message) => one_line(message, MAX_MESSAGE),
        None if body.is_empty() => "no text".into(),
        None => excerpt(body),
    }
}

/// Returns the beginning of something unexpected, see [`one_line`].
pub(super) fn excerpt(bytes: &[u8]) -> String {
    one_line(
        &String::from_utf8_lossy(&bytes[..bytes.len().min(EXCERPT_BYTES)]),
        EXCERPT,
    )
}

/// Returns the first characters of a text on one line, with control characters escaped.
pub(super) fn one_line(text: &str, limit: usize) -> String {
    escaped(first_chars(text.trim(), limit))
}

fn shown_code(parsed: &Value) -> String {
    let code = codes(parsed).next().map(|code| one_line(code, EXCERPT));
    code.map_or_else(String::new, |code| format!(" ({code})"))
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

/// Whether the account has no credit left. Anthropic has no code for it, only a message with a 400.
fn has_no_credit(status: u16, parsed: &Value) -> bool {
    let bare = [&parsed["error"], &parsed["code"]]
        .into_iter()
        .filter_map(Value::as_str);
    let by_code = codes(parsed)
        .chain(bare)
        .any(|code| code.contains("insufficient_quota") || code.starts_with("billing"));
    by_code || (status == 400 && says_no_credit(&error_message(parsed, b"")))
}

/// Whether an error message means an account without credit.
pub(super) fn says_no_credit(text: &str) -> bool {
    const PHRASES: [&str; 4] = [
        "credit balance is too low",
        "insufficient credit",
        "insufficient balance",
        "out of credit",
    ];
    let text = text.to_lowercase();
    PHRASES.iter().any(|phrase| text.contains(phrase))
}

/// Whether the server does not have the model. Some servers have a code for it, the others a sentence.
fn is_unknown_model(status: u16, parsed: &Value) -> bool {
    const PHRASES: [&str; 4] = [
        "no such model",
        "not a valid model",
        "invalid model name",
        "unknown model",
    ];
    let text = error_message(parsed, b"").to_lowercase();
    codes(parsed).any(|code| code == "model_not_found")
        || (status == 404 && text.contains("model"))
        || PHRASES.iter().any(|phrase| text.contains(phrase))
}

/// Whether a monthly limit is reached that the user has set at the provider.
fn is_spend_limit(parsed: &Value) -> bool {
    codes(parsed).any(|code| code.contains("spend_limit"))
}

fn redirect_message(status: u16, headers: &HeaderMap) -> String {
    let to = headers
        .get("location")
        .map_or_else(|| "nowhere".into(), |value| excerpt(value.as_bytes()));
    format!(
        "HTTP {status}: the server redirects to {to}; redirects are not followed, set generator.base_url"
    )
}

/// Returns what the user can set, where the model does not accept a parameter.
fn hint(status: u16, parsed: &Value) -> &'static str {
    if status != 400 {
        return "";
    }
    let param = parsed["error"]["param"].as_str().unwrap_or_default();
    let message = error_message(parsed, b"").to_lowercase();
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use reqwest::header::{HeaderMap, HeaderName, HeaderValue};

    use super::{error_of_response, excerpt, names_field};
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
        error_of_response(status, &HeaderMap::new(), body.as_bytes())
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
    fn an_account_without_credit_and_a_spend_limit_are_recognised() {
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
        let error = error_of_response(
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
    fn a_field_is_named_by_parameter_location_or_message() {
        let check = |body: &str, expected| {
            assert_eq!(
                names_field(body.as_bytes(), "max_tokens"),
                expected,
                "{body}"
            )
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
    fn an_excerpt_is_short_and_escaped() {
        assert_eq!(
            excerpt(b"\x1b[31mred\x00\xff"),
            "\\u{1b}[31mred\\u{0}\u{fffd}"
        );
        assert_eq!(excerpt("ä".repeat(1000).as_bytes()), "ä".repeat(200));
    }

    proptest! {
        #[test]
        fn no_error_body_panics(status in 300u16..1000, body in any::<Vec<u8>>(), when in "[ -~]{0,40}") {
            let _ = error_of_response(status, &headers(&[("retry-after", &when), ("date", &when)]), &body);
        }
    }
}
