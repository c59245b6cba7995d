//! The wire format of `serve`: one JSON object per line each way.

use std::fmt;
use std::io::{self, Write};
use std::str::Utf8Error;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::environments::registry::{ControlAction, UrgentAction};
use crate::environments::{Response, ScreenSection};
use crate::server::lines::LONGEST_LINE;

/// Longer timeouts count as this many seconds.
const LONGEST_TIMEOUT: f64 = 1e9;
/// Far above what any request has. Parsed, a value takes many times the memory of its text.
const MOST_VALUES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq)]
pub struct ServeRequest {
    pub id: Option<Value>,
    pub environment: String,
    pub timeout: Option<Duration>,
    pub action: ServeAction,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeAction {
    Command(String),
    Control(ControlAction),
}

impl ServeRequest {
    /// What the request does at once to a command that is running.
    pub fn urgent(&self) -> Option<UrgentAction> {
        match self.action {
            ServeAction::Control(ControlAction::Interrupt) => Some(UrgentAction::Interrupt),
            ServeAction::Control(ControlAction::Restart) => Some(UrgentAction::Restart),
            ServeAction::Control(ControlAction::Wait) | ServeAction::Command(_) => None,
        }
    }
}

/// A line that is not a request, with its id if it has one.
#[derive(Debug, Clone, PartialEq)]
pub struct MalformedRequest {
    pub id: Option<Value>,
    pub problem: RequestProblem,
}

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestProblem {
    TooLong,
    TooManyValues,
    NotUtf8(Utf8Error),
    NotJson(String),
    NotObject,
    InvalidId,
    Missing(&'static str),
    NotString(&'static str),
    UnknownType(String),
    UnknownAction(String),
    InvalidTimeout,
}

impl fmt::Display for RequestProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Failed to parse command: ")?;
        match self {
            Self::TooLong => write!(f, "the line is longer than {LONGEST_LINE} bytes"),
            Self::TooManyValues => write!(f, "the line has more than {MOST_VALUES} values"),
            Self::NotUtf8(error) => write!(f, "not UTF-8: {error}"),
            Self::NotJson(error) => write!(f, "invalid JSON: {error}"),
            Self::NotObject => f.write_str("a JSON object is needed"),
            Self::InvalidId => f.write_str("id must be a string or a number"),
            Self::Missing(name) => write!(f, "{name} is missing"),
            Self::NotString(name) => write!(f, "{name} must be a string"),
            Self::UnknownType(name) => write!(
                f,
                r#"unknown type {name:?}; expected "command" or "control""#
            ),
            Self::UnknownAction(name) => write!(
                f,
                r#"unknown action {name:?}; expected "wait", "interrupt" or "restart""#
            ),
            Self::InvalidTimeout => f.write_str("timeout must be a number of seconds, at least 0"),
        }
    }
}

impl std::error::Error for RequestProblem {}

/// Parses one line.
pub(crate) fn parse(line: &[u8]) -> Result<ServeRequest, MalformedRequest> {
    if has_too_many_values(line) {
        return Err(MalformedRequest {
            id: None,
            problem: RequestProblem::TooManyValues,
        });
    }
    parse_request(line).map_err(|problem| MalformedRequest {
        id: id_of(line),
        problem,
    })
}

/// The id of a line that is an object but not a request. Strings in it may not be valid Unicode.
fn id_of(line: &[u8]) -> Option<Value> {
    #[derive(Deserialize)]
    struct RequestId {
        #[serde(default)]
        id: Option<Value>,
    }
    let RequestId { id } = serde_json::from_slice(line).ok()?;
    id.filter(|id| id.is_string() || id.is_number())
}

/// Whether a line has more than `MOST_VALUES` values, not counting what is inside strings.
fn has_too_many_values(line: &[u8]) -> bool {
    let (mut count, mut rest) = (0, line);
    // A value takes at least one byte.
    while MOST_VALUES < count + rest.len() {
        let Some((byte, after)) = rest.split_first() else {
            break;
        };
        rest = if *byte == b'"' {
            after_string(after)
        } else {
            after
        };
        count += usize::from(matches!(byte, b',' | b'[' | b'{'));
    }
    MOST_VALUES < count
}

/// What follows a string, given what follows its opening quote.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some(found) = memchr::memchr2(b'"', b'\\', rest) {
        let is_end = rest[found] == b'"';
        rest = rest
            .get(found + if is_end { 1 } else { 2 }..)
            .unwrap_or_default();
        if is_end {
            return rest;
        }
    }
    &[]
}

fn parse_request(line: &[u8]) -> Result<ServeRequest, RequestProblem> {
    let text = std::str::from_utf8(line).map_err(RequestProblem::NotUtf8)?;
    let value: Value =
        serde_json::from_str(text).map_err(|error| RequestProblem::NotJson(error.to_string()))?;
    let Value::Object(fields) = value else {
        return Err(RequestProblem::NotObject);
    };
    let mut fields = RequestFields(fields);
    let id = fields.id()?;
    let kind = fields.string("type")?;
    let has_command = match kind.as_str() {
        "command" => true,
        "control" => false,
        _ => return Err(RequestProblem::UnknownType(kind)),
    };
    let environment = fields.string("environment")?;
    let action = if has_command {
        ServeAction::Command(fields.string("command")?)
    } else {
        ServeAction::Control(fields.action()?)
    };
    Ok(ServeRequest {
        id,
        environment,
        timeout: fields.timeout()?,
        action,
    })
}

struct RequestFields(serde_json::Map<String, Value>);

impl RequestFields {
    fn id(&mut self) -> Result<Option<Value>, RequestProblem> {
        match self.0.remove("id") {
            None | Some(Value::Null) => Ok(None),
            Some(id @ (Value::String(_) | Value::Number(_))) => Ok(Some(id)),
            Some(_) => Err(RequestProblem::InvalidId),
        }
    }

    fn string(&mut self, name: &'static str) -> Result<String, RequestProblem> {
        match self.0.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(RequestProblem::NotString(name)),
            None => Err(RequestProblem::Missing(name)),
        }
    }

    fn action(&mut self) -> Result<ControlAction, RequestProblem> {
        match self.string("action")?.as_str() {
            "wait" => Ok(ControlAction::Wait),
            "interrupt" => Ok(ControlAction::Interrupt),
            "restart" => Ok(ControlAction::Restart),
            other => Err(RequestProblem::UnknownAction(other.to_owned())),
        }
    }

    fn timeout(&self) -> Result<Option<Duration>, RequestProblem> {
        match self.0.get("timeout") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                let seconds = value.as_f64().filter(|seconds| *seconds >= 0.0);
                let seconds = seconds.ok_or(RequestProblem::InvalidTimeout)?;
                Ok(Some(Duration::from_secs_f64(seconds.min(LONGEST_TIMEOUT))))
            }
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum ServeReply<'a> {
    Response {
        id: Option<&'a Value>,
        response: &'a Response,
        screens: &'a [(String, ScreenSection)],
    },
    Error {
        id: Option<&'a Value>,
        problem: &'a RequestProblem,
    },
}

impl ServeReply<'_> {
    /// Writes the reply as one line.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            ServeReply::Response {
                id,
                response,
                screens,
            } => {
                begin(out, "response", *id)?;
                write_response(out, response)?;
                write_screens(out, screens)
            }
            ServeReply::Error { id, problem } => {
                begin(out, "error", *id)?;
                write_string(out, r#","message":"#, &problem.to_string())
            }
        }?;
        out.write_all(b"}\n")
    }
}

fn begin(out: &mut impl Write, kind: &str, id: Option<&Value>) -> io::Result<()> {
    write!(out, r#"{{"type":"{kind}""#)?;
    id.map_or(Ok(()), |id| write!(out, r#","id":{id}"#))
}

fn write_response(out: &mut impl Write, response: &Response) -> io::Result<()> {
    let Response {
        output,
        success,
        running,
    } = response;
    write_string(out, r#","response":{"output":"#, output)?;
    write!(
        out,
        r#","success":{success}{}}}"#,
        if *running { r#","running":true"# } else { "" }
    )
}

fn write_screens(out: &mut impl Write, screens: &[(String, ScreenSection)]) -> io::Result<()> {
    let mut before = r#","screen":{"#;
    for (name, ScreenSection { content, max_lines }) in screens {
        write_string(out, before, name)?;
        write_string(out, r#":{"content":"#, content)?;
        write!(out, r#","max_lines":{max_lines}}}"#)?;
        before = ",";
    }
    out.write_all(if screens.is_empty() {
        br#","screen":{}"#
    } else {
        b"}"
    })
}

/// Writes `before`, then `text` as a JSON string.
///
/// Megabytes may need no escapes except for newlines, so plain text is found block by block: without an early exit the
/// compiler vectorizes the test of a block.
fn write_string(out: &mut impl Write, before: &str, text: &str) -> io::Result<()> {
    const BLOCK: usize = 16;
    out.write_all(before.as_bytes())?;
    out.write_all(b"\"")?;
    let is_plain = |block: &&[u8]| {
        !block
            .iter()
            .fold(false, |found, byte| found | needs_escape(*byte))
    };
    let mut rest = text.as_bytes();
    loop {
        let blocks = rest.chunks_exact(BLOCK).take_while(is_plain).count() * BLOCK;
        let more = rest[blocks..].iter().position(|byte| needs_escape(*byte));
        let (plain, escaped) = rest.split_at(more.map_or(rest.len(), |more| blocks + more));
        out.write_all(plain)?;
        let Some((escaped, after)) = escaped.split_first() else {
            return out.write_all(b"\"");
        };
        write_escape(out, *escaped)?;
        rest = after;
    }
}

fn needs_escape(byte: u8) -> bool {
    (byte < b' ') | (byte == b'"') | (byte == b'\\')
}

fn write_escape(out: &mut impl Write, byte: u8) -> io::Result<()> {
    match byte {
        b'\n' => out.write_all(br"\n"),
        b'\t' => out.write_all(br"\t"),
        b'\r' => out.write_all(br"\r"),
        b'"' => out.write_all(br#"\""#),
        b'\\' => out.write_all(br"\\"),
        other => write!(out, r"\u{other:04x}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn malformed(line: &str) -> MalformedRequest {
        parse(line.as_bytes()).unwrap_err()
    }

    #[test]
    fn requests_are_read() {
        let command = parse(
            br#"{"type":"command","environment":"bash","command":"ls","timeout":1.5,"id":7}"#,
        )
        .unwrap();
        assert_eq!(command.action, ServeAction::Command("ls".into()));
        assert_eq!(
            (command.timeout, command.id),
            (Some(Duration::from_millis(1500)), Some(7.into()))
        );
        let control =
            parse(br#"{"type":"control","environment":"python","action":"wait","timeout":null}"#)
                .unwrap();
        assert_eq!(
            (control.action, control.timeout),
            (ServeAction::Control(ControlAction::Wait), None)
        );
        let long =
            parse(br#"{"type":"command","environment":"bash","command":"","timeout":1e300}"#)
                .unwrap();
        assert_eq!(long.timeout, Some(Duration::from_secs(1_000_000_000)));
    }

    #[test]
    fn a_malformed_request_is_refused_with_its_id() {
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
            assert!(
                malformed(line)
                    .problem
                    .to_string()
                    .starts_with("Failed to parse command"),
                "{line}"
            );
        }
        assert_eq!(malformed(r#"{"id":"a","type":"x"}"#).id, Some("a".into()));
        assert!(
            parse(b"{\"type\":\"command\",\"environment\":\"bash\",\"command\":\"\xff\"}").is_err()
        );
        assert!(parse("[".repeat(200_000).as_bytes()).is_err());
    }

    #[test]
    fn a_line_of_very_many_values_is_refused_but_not_one_long_string() {
        let command = |text: &str, more: &str| {
            parse(
                format!(
                    r#"{{"type":"command","environment":"bash","command":"{text}","x":[{more}0]}}"#
                )
                .as_bytes(),
            )
        };
        let many = "0,".repeat(MOST_VALUES);
        assert_eq!(
            command("", &many).unwrap_err().problem,
            RequestProblem::TooManyValues
        );
        assert!(command(&many, "").is_ok());
        assert!(command(&format!(r#"\\\"{many}\""#), &many[..99_998]).is_ok());
        assert!(command(&many, &many[..many.len() - 20]).is_ok());
    }

    fn written(reply: ServeReply<'_>) -> String {
        let mut line = Vec::new();
        reply.write(&mut line).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn replies_are_lines_of_json() {
        let screens = [("a\"b", "x\n"), ("c", "")]
            .map(|(name, text)| (name.to_owned(), ScreenSection::new(text)));
        let response = Response {
            output: "\u{1b}\t".into(),
            success: false,
            running: true,
        };
        let head = r#"{"type":"response","id":7,"response":{"output":"\u001b\t","success":false,"running":true},"#;
        let tail = r#""screen":{"a\"b":{"content":"x\n","max_lines":50},"c":{"content":"","max_lines":50}}}"#;
        let reply = ServeReply::Response {
            id: Some(&7.into()),
            response: &response,
            screens: &screens,
        };
        assert_eq!(written(reply), format!("{head}{tail}\n"));
        let error = ServeReply::Error {
            id: Some(&"é".into()),
            problem: &RequestProblem::UnknownType("a\\".into()),
        };
        assert_eq!(
            written(error),
            "{\"type\":\"error\",\"id\":\"é\",\"message\":\"Failed to parse command: unknown type \\\"a\\\\\\\\\\\"; expected \\\"command\\\" or \\\"control\\\"\"}\n"
        );
    }

    proptest! {
        #[test]
        fn a_written_string_parses_back(pieces in proptest::collection::vec("[a-z\\x00-\\x1f\"\\\\\\x7fé€]{0,40}", 0..6)) {
            let (text, mut field) = (pieces.concat(), Vec::new());
            write_string(&mut field, "", &text).unwrap();
            prop_assert_eq!(serde_json::from_slice::<String>(&field).unwrap(), text);
        }

        #[test]
        fn no_line_makes_the_parser_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
