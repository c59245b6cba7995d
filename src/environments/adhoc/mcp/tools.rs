//! The tools of an MCP server as its screen lists them.

use serde_json::Value;

use crate::text::shorten::cut_chars;

/// How many characters of a description are shown, and of the type of a parameter.
const SHOWN_DESCRIPTION: usize = 400;
const SHOWN_TYPE: usize = 80;
/// How many values of an enumeration are shown.
const SHOWN_VALUES: usize = 8;

/// A tool of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct McpTool {
    pub name: String,
    /// How it is called, what it does, and its parameters: a line each.
    lines: Vec<String>,
}

impl McpTool {
    /// Reads an entry of the list; `None` for one without a name.
    pub(super) fn read(tool: &Value) -> Option<McpTool> {
        let name = tool["name"].as_str().filter(|name| !name.is_empty())?;
        let schema = &tool["inputSchema"];
        let parameters: Vec<(&String, &Value)> = schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
            .collect();
        let required = schema["required"].as_array();
        let is_required = |name: &str| {
            required.is_some_and(|names| names.iter().any(|required| required == name))
        };
        let mut lines = vec![signature(name, &parameters, is_required)];
        lines.extend(indented(description(tool)));
        for (name, parameter) in parameters {
            let text = description(parameter);
            lines.extend(indented(text.map(|text| format!("{name}: {text}"))));
        }
        Some(McpTool {
            name: name.to_owned(),
            lines,
        })
    }
}

/// All tools, each with how it is called, what it does, and what its parameters mean; if that is more than `limit` bytes, each
/// with how it is called; if that is too much as well, the names that fit.
pub(super) fn list(tools: &[McpTool], limit: usize) -> String {
    let text = |lines: &[&String]| {
        lines
            .iter()
            .map(|line| format!("{line}\n"))
            .collect::<String>()
    };
    let described: Vec<&String> = tools.iter().flat_map(|tool| &tool.lines).collect();
    let described = text(&described);
    if described.len() <= limit {
        return described;
    }
    let calls: Vec<&String> = tools.iter().filter_map(|tool| tool.lines.first()).collect();
    let mut shown = text(&calls);
    if limit < shown.len() {
        let mut room = limit;
        let fitting = tools.iter().take_while(|tool| {
            let needed = tool.name.len() + ", ".len();
            let fits = needed <= room;
            room = room.saturating_sub(needed);
            fits
        });
        let fitting = fitting.count();
        shown = names(&tools[..fitting]) + "\n";
        if fitting < tools.len() {
            shown += &format!("and {} more\n", tools.len() - fitting);
        }
    }
    shown + "TOOL ? describes one of them.\n"
}

/// The names of all tools.
pub(super) fn names(tools: &[McpTool]) -> String {
    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
    match names.is_empty() {
        true => "none".to_owned(),
        false => names.join(", "),
    }
}

fn signature(
    name: &str,
    parameters: &[(&String, &Value)],
    is_required: impl Fn(&str) -> bool,
) -> String {
    if parameters.is_empty() {
        return name.to_owned();
    }
    let parameter = |(name, schema): &(&String, &Value)| {
        let optional = if is_required(name) { "" } else { "?" };
        let kind = cut_chars(&type_of(schema), SHOWN_TYPE, "…");
        match schema.get("default").filter(|value| !value.is_null()) {
            Some(value) => format!("{name:?}{optional}: {kind} = {value}"),
            None => format!("{name:?}{optional}: {kind}"),
        }
    };
    let parameters: Vec<String> = parameters.iter().map(parameter).collect();
    format!("{name} {{{}}}", parameters.join(", "))
}

/// A short name of the type that a schema describes.
fn type_of(schema: &Value) -> String {
    if let Some(values) = schema["enum"].as_array() {
        let values = values.iter().take(SHOWN_VALUES).map(Value::to_string);
        return values.collect::<Vec<_>>().join("|");
    }
    for name in ["anyOf", "oneOf"] {
        if let Some(schemas) = schema[name].as_array() {
            let types = schemas.iter().take(SHOWN_VALUES).map(type_of);
            return types.collect::<Vec<_>>().join("|");
        }
    }
    match &schema["type"] {
        Value::String(kind) if kind == "array" => format!("[{}]", type_of(&schema["items"])),
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let kinds = kinds.iter().filter_map(Value::as_str);
            kinds.collect::<Vec<_>>().join("|")
        }
        _ => "any".to_owned(),
    }
}

fn description(schema: &Value) -> Option<String> {
    let text = schema["description"].as_str()?.trim();
    let text: Vec<&str> = text.split_whitespace().collect();
    (!text.is_empty()).then(|| cut_chars(&text.join(" "), SHOWN_DESCRIPTION, "…"))
}

fn indented(text: Option<String>) -> Option<String> {
    text.map(|text| format!("    {text}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_tool_is_listed_with_its_parameters() {
        let tool = McpTool::read(&json!({
            "name": "add",
            "description": "Adds\n  numbers.",
            "inputSchema": {
                "type": "object",
                "properties": {
                    "a": {"type": "number", "description": "the first"},
                    "b": {"type": ["number", "null"], "default": 3},
                    "how": {"enum": ["fast", "slow"]},
                    "more": {"type": "array", "items": {"anyOf": [{"type": "string"}, {}]}},
                },
                "required": ["a"],
            },
        }));
        let expected = "add {\"a\": number, \"b\"?: number|null = 3, \"how\"?: \"fast\"|\"slow\", \"more\"?: [string|any]}\n    \
                        Adds numbers.\n    a: the first\n";
        assert_eq!(list(&[tool.unwrap()], expected.len()), expected);
        assert_eq!(McpTool::read(&json!({"name": 5})), None);
        let bare = McpTool::read(&json!({"name": "now", "inputSchema": 7})).unwrap();
        assert_eq!(list(&[bare], 9), "now\n");
    }

    #[test]
    fn a_long_list_has_calls_or_names_alone() {
        let tool = |name: &str| {
            let schema = json!({"properties": {"a": {"description": "The first of them."}}});
            McpTool::read(&json!({"name": name, "description": "Adds.", "inputSchema": schema}))
                .unwrap()
        };
        let tools = [tool("add"), tool("sub"), tool("mul")];
        let end = "TOOL ? describes one of them.\n";
        let all = list(&tools, 1000);
        assert!(
            all.contains("The first of them.") && !all.contains(end),
            "{all}"
        );
        let calls = "add {\"a\"?: any}\nsub {\"a\"?: any}\nmul {\"a\"?: any}\n";
        assert_eq!(list(&tools, all.len() - 1), format!("{calls}{end}"));
        assert_eq!(
            list(&tools, calls.len() - 1),
            format!("add, sub, mul\n{end}")
        );
        assert_eq!(list(&tools, 10), format!("add, sub\nand 1 more\n{end}"));
    }
}
