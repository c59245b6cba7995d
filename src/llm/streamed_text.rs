//! The text in an event of a stream, whichever API sent it.

use serde_json::Value;

/// The text that an event (JSON) adds to the answer, if it adds any.
pub(crate) fn streamed_text(event: &str) -> Option<String> {
    text_of(&serde_json::from_str(event).ok()?)
}

fn text_of(event: &Value) -> Option<String> {
    // A client that wraps the events of its server.
    if let Some(inner) = event.get("event").filter(|inner| inner.is_object()) {
        return text_of(inner);
    }
    let delta = match event["choices"].get(0) {
        Some(choice) => &choice["delta"]["content"],
        None => &event["delta"]["text"],
    };
    delta.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_found_in_the_events_of_every_api() {
        let check = |event: &str, expected: Option<&str>| {
            assert_eq!(streamed_text(event).as_deref(), expected, "{event}");
        };
        let delta =
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"ab"}}"#;
        check(delta, Some("ab"));
        check(
            &format!(r#"{{"type":"stream_event","event":{delta}}}"#),
            Some("ab"),
        );
        check(r#"{"choices":[{"delta":{"content":"x"}}]}"#, Some("x"));
        check(r#"{"choices":[{"delta":{}}]}"#, None);
        check(
            r#"{"type":"content_block_delta","delta":{"partial_json":"{"}}"#,
            None,
        );
        check(r#"{"type":"ping"}"#, None);
        check("no JSON", None);
    }
}
