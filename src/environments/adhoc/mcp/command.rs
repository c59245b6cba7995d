//! Reads a command: the name of a tool, then its arguments as a JSON object, or nothing, or `?` for its description.

use serde_json::{Value, json};

/// What is asked of a server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum ToolLine {
    Call { tool: String, arguments: Value },
    Describe { tool: String },
}

/// Reads a command that is not blank. The error is for the agent.
pub(super) fn parse(command: &str) -> Result<ToolLine, String> {
    let begin = command.len() - command.trim_start().len();
    let rest = &command[begin..];
    let end = rest.find(|c: char| c.is_whitespace() || c == '{');
    let (tool, rest) = rest.split_at(end.unwrap_or(rest.len()));
    let json = rest.trim_start();
    if json.trim_end() == "?" {
        return Ok(ToolLine::Describe {
            tool: tool.to_owned(),
        });
    }
    let before = &command[..command.len() - json.len()];
    Ok(ToolLine::Call {
        tool: tool.to_owned(),
        arguments: arguments(tool, before, json)?,
    })
}

fn arguments(tool: &str, before: &str, json: &str) -> Result<Value, String> {
    if json.is_empty() {
        return Ok(json!({}));
    }
    let usage = format!("write {tool} {{\"name\": \"value\"}}, or {tool} alone");
    match serde_json::from_str(json) {
        Ok(arguments @ Value::Object(_)) => Ok(arguments),
        Ok(other) => Err(format!(
            "invalid arguments of {tool}: expected a JSON object, found {}; {usage}\n",
            kind(&other)
        )),
        Err(error) => {
            let (line, column) = position(before, json, &error);
            let text = error.to_string();
            let (problem, _) = text.rsplit_once(" at line ").unwrap_or((&text, ""));
            Err(format!(
                "invalid arguments of {tool}: line {line}, column {column}: {problem}; {usage}\n"
            ))
        }
    }
}

/// The line and the column of an error in the whole command, both from 1, in characters.
fn position(before: &str, json: &str, error: &serde_json::Error) -> (usize, usize) {
    let line = json.lines().nth(error.line().saturating_sub(1));
    let line = line.unwrap_or_default();
    let bytes = line.floor_char_boundary(error.column().saturating_sub(1));
    let column = line[..bytes].chars().count() + 1;
    let (lines, last) = match before.rsplit_once('\n') {
        Some((above, last)) => (above.matches('\n').count() + 1, last),
        None => (0, before),
    };
    let indent = match error.line() {
        0 | 1 => last.chars().count(),
        _ => 0,
    };
    (lines + error.line(), indent + column)
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_command_is_a_tool_and_its_arguments() {
        let parsed = |command: &str| match parse(command).unwrap() {
            ToolLine::Call { tool, arguments } => (tool, arguments),
            ToolLine::Describe { tool } => (tool, json!("?")),
        };
        assert_eq!(parsed("echo"), ("echo".into(), json!({})));
        assert_eq!(parsed(" a-b.c \n"), ("a-b.c".into(), json!({})));
        for command in ["add ?", " add\n?\n"] {
            assert_eq!(parsed(command), ("add".into(), json!("?")), "{command}");
        }
        let one = ("add".to_owned(), json!({"a": 1}));
        for command in ["add {\"a\": 1}", "add{\"a\":1}", "add\n{\n\"a\":\n1}\n"] {
            assert_eq!(parsed(command), one, "{command}");
        }
    }

    #[test]
    fn invalid_arguments_are_refused_with_their_place() {
        let place = |command: &str| {
            let problem = parse(command).unwrap_err();
            let (_, rest) = problem.split_once(": ").unwrap();
            rest.split_once(": ").unwrap().0.to_owned()
        };
        assert_eq!(place("add {\"a\" 1}"), "line 1, column 10");
        assert_eq!(place("add\n\n {\"é\": x}"), "line 3, column 8");
        assert_eq!(place("add {\n  \"a\": 1,\n}"), "line 3, column 1");
        assert_eq!(place("add {} {}"), "line 1, column 8");
        assert!(parse("add [1]").unwrap_err().contains("found an array"));
        assert!(parse("add {").unwrap_err().contains("line 1"));
    }

    proptest! {
        #[test]
        fn no_command_panics(command in "[a{}\"\\\\:,\\[\\] \n0é]{0,30}") {
            let _ = parse(&command);
        }
    }
}
