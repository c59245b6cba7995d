//! The lines of the protocol: one JSON object each way. These are its wire types, and nobody else's.

use std::io::{self, Write};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use crate::environments::registry::ControlAction;
use crate::environments::{Response, ScreenSection};

/// No timeout counts as more.
const LONGEST_TIMEOUT: f64 = 1e9;

/// More values than any request has; as a tree they would take many times the memory of their text.
const MOST_VALUES: usize = 1 << 20;

/// What an agent asks.
#[derive(Debug, Clone, PartialEq)]
pub struct ServeRequest {
    pub id: Option<Value>,
    pub environment: String,
    pub timeout: Option<Duration>,
    pub action: ServeAction,
}

/// What is wanted of the environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServeAction {
    Command(String),
    Control(ControlAction),
}

/// A line that is no request: its id, where it has one, and what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct MalformedRequest {
    pub id: Option<Value>,
    pub message: String,
}

/// The id of a line that is an object and yet no request: a text in it may have no meaning.
#[derive(Deserialize)]
struct RequestId {
    #[serde(default)]
    id: Option<Value>,
}

impl RequestId {
    fn id_of(line: &[u8]) -> Option<Value> {
        let RequestId { id } = serde_json::from_slice(line).ok()?;
        id.filter(|id| id.is_string() || id.is_number())
    }
}

/// Reads one line.
pub fn parse(line: &[u8]) -> Result<ServeRequest, MalformedRequest> {
    if is_intricate(line) {
        let message =
            format!("Failed to parse command: the line has more than {MOST_VALUES} values");
        return Err(MalformedRequest { id: None, message });
    }
    let refuse = |message: String| MalformedRequest {
        id: RequestId::id_of(line),
        message,
    };
    let text = std::str::from_utf8(line)
        .map_err(|error| refuse(format!("Failed to parse command: not UTF-8: {error}")))?;
    let value: Value = serde_json::from_str(text)
        .map_err(|error| refuse(format!("Failed to parse command: invalid JSON: {error}")))?;
    let Value::Object(mut fields) = value else {
        return Err(refuse(
            "Failed to parse command: a JSON object is needed".into(),
        ));
    };
    let id = match fields.remove("id") {
        None | Some(Value::Null) => None,
        Some(id @ (Value::String(_) | Value::Number(_))) => Some(id),
        Some(_) => {
            return Err(refuse(
                "Failed to parse command: id must be a string or a number".into(),
            ));
        }
    };
    let request = RequestFields {
        id: id.clone(),
        fields,
    };
    request.read().map_err(|message| MalformedRequest {
        id,
        message: format!("Failed to parse command: {message}"),
    })
}

/// Whether a line has too many values; what stands in its texts is none.
fn is_intricate(line: &[u8]) -> bool {
    let (mut count, mut rest) = (0, line);
    // What is shorter has fewer.
    while MOST_VALUES < count + rest.len() {
        let Some((byte, after)) = rest.split_first() else {
            break;
        };
        rest = if *byte == b'"' {
            after_text(after)
        } else {
            after
        };
        count += usize::from(matches!(byte, b',' | b'[' | b'{'));
    }
    MOST_VALUES < count
}

/// Returns what follows a text, given what follows its first quote.
fn after_text(mut rest: &[u8]) -> &[u8] {
    while let Some(found) = memchr::memchr2(b'"', b'\\', rest) {
        let is_over = rest[found] == b'"';
        rest = rest
            .get(found + if is_over { 1 } else { 2 }..)
            .unwrap_or_default();
        if is_over {
            return rest;
        }
    }
    &[]
}

struct RequestFields {
    id: Option<Value>,
    fields: serde_json::Map<String, Value>,
}

impl RequestFields {
    fn read(mut self) -> Result<ServeRequest, String> {
        let kind = self.text("type")?;
        if kind != "command" && kind != "control" {
            return Err(format!(
                "unknown type {kind:?}; there are \"command\" and \"control\""
            ));
        }
        let environment = self.text("environment")?;
        let action = match kind.as_str() {
            "command" => ServeAction::Command(self.text("command")?),
            _ => ServeAction::Control(self.action()?),
        };
        let timeout = self.timeout()?;
        Ok(ServeRequest {
            id: self.id,
            environment,
            timeout,
            action,
        })
    }

    fn text(&mut self, name: &str) -> Result<String, String> {
        match self.fields.remove(name) {
            Some(Value::String(text)) => Ok(text),
            Some(_) => Err(format!("{name} must be a string")),
            None => Err(format!("{name} is missing")),
        }
    }

    fn action(&mut self) -> Result<ControlAction, String> {
        match self.text("action")?.as_str() {
            "wait" => Ok(ControlAction::Wait),
            "interrupt" => Ok(ControlAction::Interrupt),
            "restart" => Ok(ControlAction::Restart),
            other => Err(format!(
                "unknown action {other:?}; there are \"wait\", \"interrupt\" and \"restart\""
            )),
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
#[derive(Debug, Clone, Copy)]
pub enum ServeReply<'a> {
    Response {
        id: Option<&'a Value>,
        response: &'a Response,
        screens: &'a [(String, ScreenSection)],
    },
    Error {
        id: Option<&'a Value>,
        message: &'a str,
    },
}

impl ServeReply<'_> {
    /// Writes it, and a newline.
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
            ServeReply::Error { id, message } => {
                begin(out, "error", *id)?;
                write_field(out, r#","message":"#, message)
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
    write_field(out, r#","response":{"output":"#, output)?;
    write!(
        out,
        r#","success":{success}{}}}"#,
        if *running { r#","running":true"# } else { "" }
    )
}

fn write_screens(out: &mut impl Write, screens: &[(String, ScreenSection)]) -> io::Result<()> {
    let mut before = r#","screen":{"#;
    for (name, ScreenSection { content, max_lines }) in screens {
        write_field(out, before, name)?;
        write_field(out, r#":{"content":"#, content)?;
        write!(out, r#","max_lines":{max_lines}}}"#)?;
        before = ",";
    }
    out.write_all(if screens.is_empty() {
        br#","screen":{}"#
    } else {
        b"}"
    })
}

/// Writes a string behind what comes before it.
///
/// Megabytes may need no escape but for their newlines, so what can stay is found block by block: without an early exit
/// the compiler makes a few wide instructions of it.
fn write_field(out: &mut impl Write, before: &str, text: &str) -> io::Result<()> {
    const BLOCK: usize = 16;
    out.write_all(before.as_bytes())?;
    out.write_all(b"\"")?;
    let is_plain = |block: &&[u8]| {
        !block
            .iter()
            .fold(false, |found, byte| found | is_escaped(*byte))
    };
    let mut rest = text.as_bytes();
    loop {
        let blocks = rest.chunks_exact(BLOCK).take_while(is_plain).count() * BLOCK;
        let more = rest[blocks..].iter().position(|byte| is_escaped(*byte));
        let (plain, escaped) = rest.split_at(more.map_or(rest.len(), |more| blocks + more));
        out.write_all(plain)?;
        let Some((escaped, after)) = escaped.split_first() else {
            return out.write_all(b"\"");
        };
        write_escape(out, *escaped)?;
        rest = after;
    }
}

fn is_escaped(byte: u8) -> bool {
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

    fn wrong(line: &str) -> MalformedRequest {
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
            assert!(
                wrong(line).message.starts_with("Failed to parse command"),
                "{line}"
            );
        }
        assert_eq!(wrong(r#"{"id":"a","type":"x"}"#).id, Some("a".into()));
        assert!(
            parse(b"{\"type\":\"command\",\"environment\":\"bash\",\"command\":\"\xff\"}").is_err()
        );
        assert!(parse("[".repeat(200_000).as_bytes()).is_err());
    }

    #[test]
    fn a_line_of_very_many_values_is_refused_and_one_long_text_is_not() {
        let command = |text: &str, more: &str| {
            parse(
                format!(
                    r#"{{"type":"command","environment":"bash","command":"{text}","x":[{more}0]}}"#
                )
                .as_bytes(),
            )
        };
        let many = "0,".repeat(MOST_VALUES);
        assert!(command("", &many).unwrap_err().message.contains("values"));
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
            message: "a\\",
        };
        assert_eq!(
            written(error),
            "{\"type\":\"error\",\"id\":\"é\",\"message\":\"a\\\\\"}\n"
        );
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(pieces in proptest::collection::vec("[a-z\\x00-\\x1f\"\\\\\\x7fé€]{0,40}", 0..6)) {
            let (text, mut field) = (pieces.concat(), Vec::new());
            write_field(&mut field, "", &text).unwrap();
            prop_assert_eq!(serde_json::from_slice::<String>(&field).unwrap(), text);
        }

        #[test]
        fn no_line_makes_it_panic(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&line);
        }
    }
}
