//! An incremental parser of server-sent events.
//!
//! Follows the HTML standard, with two deviations: an event has a maximum size, and bytes that are not UTF-8 are an
//! error, since a replaced character in generated code would go unnoticed.

use std::fmt;

/// The most that one event may hold.
pub(super) const MAX_EVENT: usize = 16 * 1024 * 1024;

pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Why the rest of a stream cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseError {
    TooLarge,
    NotUtf8,
}

impl std::error::Error for SseError {}

impl fmt::Display for SseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SseError::TooLarge => write!(
                f,
                "one event of the stream is larger than {MAX_EVENT} bytes"
            ),
            SseError::NotUtf8 => f.write_str("the stream is not UTF-8"),
        }
    }
}

/// The state of a stream between two chunks.
#[derive(Debug, Default)]
pub struct SseParser {
    /// The current line.
    line: Vec<u8>,
    event: Option<Vec<u8>>,
    /// The data lines of the current event, joined.
    data: Option<Vec<u8>>,
    /// The last byte was a carriage return: a line feed that follows belongs to it.
    after_return: bool,
    past_first_line: bool,
}

impl SseParser {
    pub fn new() -> SseParser {
        SseParser::default()
    }

    /// Parses the next bytes and calls `on_event` with the name and data of each event that they complete.
    pub fn push(
        &mut self,
        bytes: &[u8],
        on_event: &mut dyn FnMut(Option<&str>, &str),
    ) -> Result<(), SseError> {
        let mut rest = bytes;
        while !rest.is_empty() {
            if std::mem::take(&mut self.after_return) && rest[0] == b'\n' {
                rest = &rest[1..];
                continue;
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.check_room(rest.len())?;
                self.line.extend_from_slice(rest);
                break;
            };
            self.after_return = rest[end] == b'\r';
            self.end_line(&rest[..end], on_event)?;
            rest = &rest[end + 1..];
        }
        Ok(())
    }

    fn check_room(&self, more: usize) -> Result<(), SseError> {
        let held = self.line.len()
            + self.data.as_ref().map_or(0, Vec::len)
            + self.event.as_ref().map_or(0, Vec::len);
        if held + more > MAX_EVENT {
            Err(SseError::TooLarge)
        } else {
            Ok(())
        }
    }

    fn end_line(
        &mut self,
        end: &[u8],
        on_event: &mut dyn FnMut(Option<&str>, &str),
    ) -> Result<(), SseError> {
        self.check_room(end.len())?;
        let mut whole = std::mem::take(&mut self.line);
        let mut line = end;
        if !whole.is_empty() {
            whole.extend_from_slice(end);
            line = &whole;
        }
        if !std::mem::replace(&mut self.past_first_line, true) {
            line = line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line);
        }
        if line.is_empty() {
            return self.dispatch(on_event);
        }
        self.field(line);
        Ok(())
    }

    /// A comment is a field with an empty name, and ignored like every unknown field.
    fn field(&mut self, line: &[u8]) {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = colon.map_or((line, &line[line.len()..]), |at| {
            (&line[..at], &line[at + 1..])
        });
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match (name, &mut self.data) {
            (b"event", _) => self.event = Some(value.to_vec()),
            (b"data", Some(data)) => {
                data.push(b'\n');
                data.extend_from_slice(value);
            }
            (b"data", none) => *none = Some(value.to_vec()),
            _ => {}
        }
    }

    fn dispatch(&mut self, on_event: &mut dyn FnMut(Option<&str>, &str)) -> Result<(), SseError> {
        let event = self.event.take();
        let Some(data) = self.data.take() else {
            return Ok(());
        };
        let data = std::str::from_utf8(&data).map_err(|_| SseError::NotUtf8)?;
        let event = event.as_deref().map(String::from_utf8_lossy);
        on_event(event.as_deref(), data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_EVENT, SseError, SseParser};

    type Events = Vec<(Option<String>, String)>;

    fn parse<'a>(chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<Events, SseError> {
        let (mut parser, mut events) = (SseParser::new(), Vec::new());
        for chunk in chunks {
            parser.push(chunk, &mut |event, data| {
                events.push((event.map(str::to_owned), data.to_owned()))
            })?;
        }
        Ok(events)
    }

    fn check(stream: &str, expected: &[(&str, &str)]) {
        let expected: Events = expected
            .iter()
            .map(|(event, data)| {
                (
                    Some(*event)
                        .filter(|event| !event.is_empty())
                        .map(str::to_owned),
                    data.to_string(),
                )
            })
            .collect();
        assert_eq!(
            parse([stream.as_bytes()]).unwrap(),
            expected,
            "whole: {stream:?}"
        );
        assert_eq!(
            parse(stream.as_bytes().chunks(1)).unwrap(),
            expected,
            "byte by byte: {stream:?}"
        );
    }

    #[test]
    fn events_are_parsed() {
        check("data: a\n\n", &[("", "a")]);
        check("data:a\n\ndata:  b\n\n", &[("", "a"), ("", " b")]);
        check("event: ping\ndata: {}\n\n", &[("ping", "{}")]);
        check("data: a\r\ndata: b\r\n\r\n", &[("", "a\nb")]);
        check(
            "data: a\rdata: b\r\rdata: c\r\r",
            &[("", "a\nb"), ("", "c")],
        );
        check("\u{feff}data: a\n\n", &[("", "a")]);
        check("data: \u{feff}ä€😀\n\n", &[("", "\u{feff}ä€😀")]);
        check(
            ": comment\n\n:\n\nid: 7\nretry: 1\nodd\ndata: a\n\n",
            &[("", "a")],
        );
        check(
            "data\n\ndata:\n\ndata:\ndata:\n\n",
            &[("", ""), ("", ""), ("", "\n")],
        );
        check("event: lost\n\ndata: a\n\n", &[("", "a")]);
        check("data: a: b\n\n", &[("", "a: b")]);
        check("dataset: a\n data: b\n\n", &[]);
        check("data: tail\n", &[]);
        check("", &[]);
    }

    #[test]
    fn an_event_has_a_maximum_size() {
        let line = [b"data: ".as_slice(), &vec![b'x'; MAX_EVENT], b"\n\n"].concat();
        assert_eq!(parse(line.chunks(65536)), Err(SseError::TooLarge));
        let lines = b"data: 0123456789\n".repeat(MAX_EVENT / 10);
        assert_eq!(parse(lines.chunks(65536)), Err(SseError::TooLarge));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_an_error() {
        assert_eq!(
            parse([b"data: \xff\n\n".as_slice()]),
            Err(SseError::NotUtf8)
        );
        assert_eq!(
            parse([b": \xff\n\ndata: a\n\n".as_slice()]).map(|events| events.len()),
            Ok(1)
        );
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            stream in proptest::collection::vec(
                prop_oneof![
                    Just("data: "), Just("event:"), Just("\n"), Just("\r"), Just("\r\n"), Just(":"), Just("ä😀"),
                    Just("\u{feff}"), Just("{}"), Just("data:x\n\n"),
                ],
                0..60,
            ),
            cuts in proptest::collection::vec(0usize..200, 0..12),
        ) {
            let stream = stream.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            prop_assert_eq!(parse(cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]])), parse([stream.as_slice()]));
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(bytes.chunks(3));
        }
    }
}
