//! The result of a tool as text.

use serde_json::Value;

/// The text of a result: its contents one below the other, or its structured content.
pub(super) fn text_of(result: &Value) -> String {
    let contents = result["content"].as_array();
    let mut text: String = contents.into_iter().flatten().map(on_own_line).collect();
    if text.is_empty()
        && let Some(structured) = result.get("structuredContent")
    {
        text = format!("{structured:#}\n");
    }
    text
}

fn on_own_line(content: &Value) -> String {
    let mut text = content_text(content);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn content_text(content: &Value) -> String {
    let field = |name: &str| content[name].as_str().unwrap_or_default();
    match field("type") {
        "text" => field("text").to_owned(),
        kind @ ("image" | "audio") => {
            format!("[{kind}: {}]", data(field("mimeType"), field("data")))
        }
        "resource" => resource(&content["resource"]),
        "resource_link" => match field("name") {
            "" => format!("[resource {}]", field("uri")),
            name => format!("[resource {}: {name}]", field("uri")),
        },
        other => format!("[content of type {other:?}, which cannot be shown]"),
    }
}

fn resource(resource: &Value) -> String {
    let field = |name: &str| resource[name].as_str().unwrap_or_default();
    match resource["text"].as_str() {
        Some(text) => format!("[resource {}]\n{text}", field("uri")),
        None => format!(
            "[resource {}: {}]",
            field("uri"),
            data(field("mimeType"), field("blob"))
        ),
    }
}

/// What is said of Base64: its type and the size of its content.
fn data(mime_type: &str, base64: &str) -> String {
    let kind = match mime_type {
        "" => "data",
        kind => kind,
    };
    let digits = base64.trim_end_matches('=').len();
    format!("{kind}, {} bytes", digits * 3 / 4)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_of_content_has_a_text() {
        let text = |content: Value| text_of(&json!({"content": content}));
        assert_eq!(
            text(json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b\n"}])),
            "a\nb\n"
        );
        assert_eq!(
            text(json!([{"type": "image", "mimeType": "image/png", "data": "aGVsbG8="}])),
            "[image: image/png, 5 bytes]\n"
        );
        assert_eq!(
            text(
                json!([{"type": "resource", "resource": {"uri": "file:///a", "text": "hello"}},
                {"type": "resource", "resource": {"uri": "x:y", "blob": "AAAA"}},
                {"type": "resource_link", "uri": "x:z", "name": "Z"}])
            ),
            "[resource file:///a]\nhello\n[resource x:y: data, 3 bytes]\n[resource x:z: Z]\n"
        );
        assert!(text(json!([{"type": "smell"}, 7])).contains("\"smell\""));
        assert_eq!(text(json!(null)), "");
        let structured = json!({"content": [], "structuredContent": {"a": 1}});
        assert_eq!(text_of(&structured), "{\n  \"a\": 1\n}\n");
    }
}
