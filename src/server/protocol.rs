//! The lines of the protocol: one JSON object each way. These are its wire types, and nobody else's.

use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use crate::environments::registry::Action;
use crate::environments::{Response, ScreenSection};

/// No timeout counts as more.
const LONGEST_TIMEOUT: f64 = 1e9;

/// What an agent asks.
#[derive(Debug, Clone, PartialEq)]
pub struct Request {
    pub id: Option<Value>,
    pub environment: String,
    pub timeout: Option<Duration>,
    pub wish: Wish,
}

/// What is wanted of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wish {
    Command(String),
    Control(Action),
}

/// A line that is no request: its id, where it has one, and what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Malformed {
    pub id: Option<Value>,
    pub message: String,
}

/// The id of a line that is an object and yet no request: a text in it may have no meaning.
#[derive(Deserialize)]
struct Named {
    #[serde(default)]
    id: Option<Value>,
}

impl Named {
    fn id_of(line: &[u8]) -> Option<Value> {
        let Named { id } = serde_json::from_slice(line).ok()?;
        id.filter(|id| id.is_string() || id.is_number())
    }
}

/// Reads one line.
pub fn parse(line: &[u8]) -> Result<Request, Malformed> {
    let refuse = |message: String| Malformed { id: Named::id_of(line), message };
    let text =
        std::str::from_utf8(line).map_err(|error| refuse(format!("Failed to parse command: not UTF-8: {error}")))?;
    let value: Value = serde_json::from_str(text)
        .map_err(|error| refuse(format!("Failed to parse command: invalid JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err(refuse("Failed to parse command: a JSON object is needed".into()));
    };
    let id = match fields.remove("id") {
        None | Some(Value::Null) => None,
        Some(id @ (Value::String(_) | Value::Number(_))) => Some(id),
        Some(_) => return Err(refuse("Failed to parse command: id must be a string or a number".into())),
    };
    let request = Fields { id: id.clone(), fields };
    request.read().map_err(|message| Malformed { id, message: format!("Failed to parse command: {message}") })
}

struct Fields {
    id: Option<Value>,
    fields: serde_json::Map<String, Value>,
}

impl Fields {
    fn read(mut self) -> Result<Request, String> {
        let kind = self.text("type")?;
        if kind != "command" && kind != "control" {
            return Err(format!("unknown type {kind:?}; there are \"command\" and \"control\""));
        }
        let environment = self.text("environment")?;
        let wish = match kind.as_str() {
            "command" => Wish::Command(self.text("command")?),
            _ => Wish::Control(self.action()?),
        };
        let timeout = self.timeout()?;
        Ok(Request { id: self.id, environment, timeout, wish })
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        match self.fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("{name} must be a string")),
            None => Err(format!("{name} is missing")),
        }
    }

    fn action(&mut self) -> Result<Action, String> {
        match self.text("action")?.as_str() {
            "wait" => Ok(Action::Wait),
            "interrupt" => Ok(Action::Interrupt),
            "restart" => Ok(Action::Restart),
            other => Err(format!("unknown action {other:?}; there are \"wait\", \"interrupt\" and \"restart\"")),
        }
    }

    fn timeout(&self) -> Result<Option<Duration>, String> {
        match self.fields.get("timeout") {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Number(number)) => {
                let seconds = number.as_f64().filter(|seconds| *seconds >= 0.0);
                let seconds = seconds.ok_or("timeout must be a number of seconds from 0 on")?;
                Ok(Some(Duration::from_secs_f64(seconds.min(LONGEST_TIMEOUT))))
            }
            Some(_) => Err("timeout must be a number of seconds from 0 on".into()),
        }
    }
}

/// What is answered.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum Reply<'a> {
    Response {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a Value>,
        response: Inner<'a>,
        screen: Screens<'a>,
    },
    Error {
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<&'a Value>,
        message: &'a str,
    },
}

/// A response as it is written.
#[derive(Serialize)]
pub struct Inner<'a> {
    output: &'a str,
    success: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    running: bool,
}

impl<'a> From<&'a Response> for Inner<'a> {
    fn from(response: &'a Response) -> Inner<'a> {
        Inner { output: &response.output, success: response.success, running: response.running }
    }
}

/// The screens as they are written: an object by name.
pub struct Screens<'a>(pub &'a [(String, ScreenSection)]);

#[derive(Serialize)]
struct Section<'a> {
    content: &'a str,
    max_lines: usize,
}

impl Serialize for Screens<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, ScreenSection { content, max_lines }) in self.0 {
            map.serialize_entry(name, &Section { content, max_lines: *max_lines })?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrong(line: &str) -> Malformed {
        parse(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn requests_are_read() {
        let command = parse(br#"{"type":"command","environment":"bash","command":"ls","timeout":1.5,"id":7}"#).unwrap();
        assert_eq!(command.wish, Wish::Command("ls".into()));
        assert_eq!((command.timeout, command.id), (Some(Duration::from_millis(1500)), Some(7.into())));
        let control = parse(br#"{"type":"control","environment":"python","action":"wait","timeout":null}"#).unwrap();
        assert_eq!((control.wish, control.timeout), (Wish::Control(Action::Wait), None));
        let long = parse(br#"{"type":"command","environment":"bash","command":"","timeout":1e300}"#).unwrap();
        assert_eq!(long.timeout, Some(Duration::from_secs(1_000_000_000)));
    }

    #[test]
    fn what_is_no_request_is_refused_with_its_id() {
        for line in [
            "",
            "x",
            "[]",
            "1",
            "null",
            "{}",
            "{\"type\":\"command\"}",
            r#"{"type":"command","environment":"bash"}"#,
            r#"{"type":"command","environment":"bash","command":7}"#,
            r#"{"type":"command","environment":"bash","command":"x","timeout":-1}"#,
            r#"{"type":"command","environment":"bash","command":"x","timeout":"1"}"#,
            r#"{"type":"control","environment":"bash","action":"dance"}"#,
            r#"{"type":"command","environment":"bash","command":"\ud800"}"#,
        ] {
            assert!(wrong(line).message.starts_with("Failed to parse command"), "{line}");
        }
        assert_eq!(wrong(r#"{"id":"a","type":"x"}"#).id, Some("a".into()));
        assert!(parse(b"{\"type\":\"command\",\"environment\":\"bash\",\"command\":\"\xff\"}").is_err());
        assert!(parse("[".repeat(200_000).as_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn no_line_makes_it_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
