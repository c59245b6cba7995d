//! The records that the driver sends over the channel, one per line: that it is ready, and the end of a command.
//!
//! A command can write to the channel, too: lines that are not a record of the current command are ignored, and
//! overlong ones are dropped.

/// How many variables the screen shows.
pub(crate) const MAX_VARIABLES: usize = 100;
/// No record is longer; the driver shortens names.
const MAX_LINE: usize = 1 << 20;

/// How a command ended, and what the screen shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    pub status: i32,
    directory: String,
    variables: Vec<(String, String)>,
}

impl CommandEnd {
    /// The text of the screen.
    pub fn section(&self) -> String {
        let mut section = format!(
            "Working directory: {}\n\nVariables (by recent use):",
            self.directory
        );
        for (name, kind) in self.variables.iter().take(MAX_VARIABLES) {
            section += &format!("\n  {name}: {kind}");
        }
        section
    }
}

/// Parses records from a stream of bytes.
#[derive(Debug, Default)]
pub struct PythonRecords {
    line: Vec<u8>,
    is_ready: bool,
    number: u64,
    end: Option<CommandEnd>,
}

impl PythonRecords {
    /// Expects the end of this command from now on.
    pub fn await_end(&mut self, number: u64) {
        self.number = number;
        self.end = None;
    }

    /// Adds bytes, split anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if MAX_LINE < self.line.len() + part.len() {
                self.line.clear();
            }
            self.line.extend(part);
            if self.line.pop_if(|byte| *byte == b'\n').is_some() {
                let line = std::mem::take(&mut self.line);
                self.apply(&line);
            }
        }
    }

    /// Whether the driver has started.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the expected end was received.
    pub fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Takes the expected end.
    pub fn take_end(&mut self) -> Option<CommandEnd> {
        self.end.take()
    }

    fn apply(&mut self, line: &[u8]) {
        self.is_ready |= line == b"ready";
        if let Some((number, end)) = decode(line).filter(|(number, _)| *number == self.number) {
            (self.is_ready, self.end) = (true, Some(end));
            // The driver may send it twice; the second one is ignored.
            self.number = number.wrapping_sub(1);
        }
    }
}

fn decode(line: &[u8]) -> Option<(u64, CommandEnd)> {
    let mut fields = line.split(|byte| *byte == 0).map(plain);
    if fields.next()? != "end" {
        return None;
    }
    let number = fields.next()?.parse().ok()?;
    let status = fields.next()?.parse().ok()?;
    let directory = fields.next()?;
    let variables = std::iter::from_fn(|| fields.next().zip(fields.next())).collect();
    Some((
        number,
        CommandEnd {
            status,
            directory,
            variables,
        },
    ))
}

/// A name without control characters.
fn plain(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{MAX_LINE, PythonRecords};

    fn section(bytes: &[u8], number: u64) -> Option<String> {
        let mut records = PythonRecords::default();
        records.await_end(number);
        records.push(bytes);
        records.take_end().map(|end| end.section())
    }

    #[test]
    fn an_end_has_the_screen() {
        let shown = section(b"\nend\x007\x000\0/p\0a\0int\0b\0st\x1br\n", 7).unwrap();
        assert_eq!(
            shown,
            "Working directory: /p\n\nVariables (by recent use):\n  a: int\n  b: st\u{fffd}r"
        );
    }

    #[test]
    fn only_the_expected_end_counts() {
        for noise in [
            "",
            "end",
            "end\n",
            "end\08\0\0/p\n",
            "end\x007\0x\0/p\n",
            "end\x007\x000\n",
            "ready\n",
            "x",
        ] {
            assert_eq!(section(noise.as_bytes(), 7), None, "{noise:?}");
        }
    }

    #[test]
    fn an_end_that_is_sent_twice_counts_once() {
        let mut records = PythonRecords::default();
        records.await_end(1);
        records.push(b"\nend\x001\x000\0/p\n");
        assert!(records.take_end().is_some());
        records.push(b"\nend\x001\x000\0/p\n");
        assert!(!records.has_end());
    }

    #[test]
    fn endless_garbage_is_dropped() {
        let mut records = PythonRecords::default();
        (0..40).for_each(|_| records.push(&vec![b'x'; MAX_LINE / 10]));
        assert!(records.line.len() <= MAX_LINE);
        records.await_end(2);
        records.push(b"\nend\x002\x001\0/p\n");
        assert_eq!(records.take_end().unwrap().status, 1);
    }

    proptest! {
        #[test]
        fn an_end_may_be_split_anywhere(noise in prop::collection::vec(any::<u8>(), 0..40), at in 0..60_usize) {
            let whole = [noise.as_slice(), b"\nend\x003\x000\0/p\0a\0int\n"].concat();
            let (head, tail) = whole.split_at(at.min(whole.len()));
            let mut records = PythonRecords::default();
            records.await_end(3);
            records.push(head);
            records.push(tail);
            prop_assert!(records.is_ready() && records.has_end());
        }
    }
}
