//! What the driver tells over the channel, line by line: that it is ready, and the end of a command.
//!
//! A command can write to the channel, too. What is no record of the command that is awaited is passed over, and what
//! never becomes a line is forgotten.

/// How many variables the screen shows.
pub const MOST_VARIABLES: usize = 100;
/// No record is longer; the driver cuts every name.
const LONGEST: usize = 1 << 20;

/// How a command ended, and what the screen shows of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandEnd {
    pub status: i32,
    directory: String,
    variables: Vec<(String, String)>,
}

impl CommandEnd {
    /// Returns the screen's section.
    pub fn section(&self) -> String {
        let mut section = format!(
            "Working directory: {}\n\nVariables (by recent use):",
            self.directory
        );
        for (name, kind) in self.variables.iter().take(MOST_VARIABLES) {
            section += &format!("\n  {name}: {kind}");
        }
        section
    }
}

/// The records as they come in.
#[derive(Debug, Default)]
pub struct PythonRecords {
    line: Vec<u8>,
    is_ready: bool,
    number: u64,
    end: Option<CommandEnd>,
}

impl PythonRecords {
    /// Waits from now on for the end of this command.
    pub fn await_end(&mut self, number: u64) {
        self.number = number;
        self.end = None;
    }

    /// Takes in bytes, torn anywhere.
    pub fn push(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            if LONGEST < self.line.len() + part.len() {
                self.line.clear();
            }
            self.line.extend(part);
            if self.line.pop_if(|byte| *byte == b'\n').is_some() {
                let line = std::mem::take(&mut self.line);
                self.hear(&line);
            }
        }
    }

    /// Whether the driver has said that it is there.
    pub fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether the end that is awaited has come.
    pub fn has_end(&self) -> bool {
        self.end.is_some()
    }

    /// Takes the end that was awaited.
    pub fn take_end(&mut self) -> Option<CommandEnd> {
        self.end.take()
    }

    fn hear(&mut self, line: &[u8]) {
        self.is_ready |= line == b"ready";
        if let Some((number, end)) = decode(line).filter(|(number, _)| *number == self.number) {
            (self.is_ready, self.end) = (true, Some(end));
            // Told twice, it is heard once.
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

/// Returns a name as text that stays on its line.
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

    use super::{LONGEST, PythonRecords};

    fn section(bytes: &[u8], number: u64) -> Option<String> {
        let mut records = PythonRecords::default();
        records.await_end(number);
        records.push(bytes);
        records.take_end().map(|end| end.section())
    }

    #[test]
    fn an_end_tells_the_screen() {
        let told = section(b"\nend\x007\x000\0/p\0a\0int\0b\0st\x1br\n", 7).unwrap();
        assert_eq!(
            told,
            "Working directory: /p\n\nVariables (by recent use):\n  a: int\n  b: st\u{fffd}r"
        );
    }

    #[test]
    fn only_the_awaited_end_counts() {
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
    fn an_end_that_is_told_twice_is_heard_once() {
        let mut records = PythonRecords::default();
        records.await_end(1);
        records.push(b"\nend\x001\x000\0/p\n");
        assert!(records.take_end().is_some());
        records.push(b"\nend\x001\x000\0/p\n");
        assert!(!records.has_end());
    }

    #[test]
    fn garbage_without_end_is_forgotten() {
        let mut records = PythonRecords::default();
        (0..40).for_each(|_| records.push(&vec![b'x'; LONGEST / 10]));
        assert!(records.line.len() <= LONGEST);
        records.await_end(2);
        records.push(b"\nend\x002\x001\0/p\n");
        assert_eq!(records.take_end().unwrap().status, 1);
    }

    proptest! {
        #[test]
        fn torn_anywhere_it_is_the_same(noise in prop::collection::vec(any::<u8>(), 0..40), at in 0..60_usize) {
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
