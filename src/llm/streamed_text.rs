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

/// How many bytes an event adds to the answer: text, thinking, or the input of a tool. `None` if it adds nothing.
pub(crate) fn streamed_bytes(event: &str) -> Option<u64> {
    let bytes = added_bytes(&serde_json::from_str(event).ok()?);
    (0 < bytes).then_some(bytes)
}

fn added_bytes(event: &Value) -> u64 {
    if let Some(inner) = event.get("event").filter(|inner| inner.is_object()) {
        return added_bytes(inner);
    }
    let Some(choice) = event["choices"].get(0) else {
        return sum(&event["delta"], &["text", "thinking", "partial_json"]);
    };
    let delta = &choice["delta"];
    let calls = delta["tool_calls"].as_array().into_iter().flatten();
    let of_calls: u64 = calls
        .map(|call| sum(&call["function"], &["name", "arguments"]))
        .sum();
    sum(delta, &["content", "reasoning_content", "reasoning"]) + of_calls
}

fn sum(object: &Value, fields: &[&str]) -> u64 {
    let texts = fields.iter().filter_map(|field| object[*field].as_str());
    texts.map(|text| text.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_of_text_thinking_and_tool_input_are_counted() {
        let check = |event: &str, expected: Option<u64>| {
            assert_eq!(streamed_bytes(event), expected, "{event}");
        };
        check(
            r#"{"type":"content_block_delta","delta":{"text":"ab"}}"#,
            Some(2),
        );
        check(r#"{"event":{"delta":{"thinking":"abc"}}}"#, Some(3));
        check(r#"{"delta":{"partial_json":"{"}}"#, Some(1));
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"arguments":"{}"}}]}}]}"#;
        check(call, Some(2));
        check(
            r#"{"choices":[{"delta":{"content":"x","reasoning":"yz"}}]}"#,
            Some(3),
        );
        check(r#"{"type":"ping"}"#, None);
        check("no JSON", None);
    }

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
