//! Reads a log up to its last complete line.
//!
//! A log can be damaged in two ways. A power cut or a full disk damages its tail: reading stops there. A bad sector or
//! a flipped bit damages a line in the middle: if the next line is complete and continues the sequence numbers, the
//! damaged one is skipped.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use serde::Deserialize;
use serde_json::Value;

use crate::events::Event;

/// A line longer than any that this program writes.
const LINE_LIMIT: u64 = 512 << 20;
/// How every line begins. These bytes do not occur inside a line, because quotes in texts are escaped.
const START: &[u8] = b"{\"ts\":\"";
/// One damaged byte makes at most two unreadable pieces, if it became a newline.
const MAX_PIECES: u32 = 2;

/// A complete line of a log.
#[derive(Deserialize)]
struct LoggedLine {
    #[serde(rename = "ts")]
    _ts: String,
    run_id: String,
    seq: u64,
    #[serde(rename = "event")]
    _event: String,
    #[serde(skip)]
    value: Value,
}

/// The result of reading a log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct JournalRead {
    /// The sequence number of the last readable line.
    pub lines: u64,
    /// The offset at which that line ends.
    pub whole_bytes: u64,
    /// The sequence numbers of the lines that were skipped.
    pub skipped: Vec<u64>,
}

struct JournalReader<'a> {
    run_id: Option<String>,
    read: JournalRead,
    visit: &'a mut dyn FnMut(u64, Event),
}

/// Reads a log up to its last complete line; without `run_id` that of the first line is expected in all.
///
/// A line that repeats the one before (a tail written twice) counts as unreadable.
pub(crate) fn read_lines(
    file: &File,
    run_id: Option<&str>,
    visit: &mut dyn FnMut(u64, Event),
) -> std::io::Result<JournalRead> {
    let mut input = BufReader::with_capacity(1 << 16, file);
    input.seek(SeekFrom::Start(0))?;
    let mut reader = JournalReader {
        run_id: run_id.map(str::to_owned),
        read: JournalRead::default(),
        visit,
    };
    let (mut line, mut end, mut pieces) = (Vec::new(), 0, 0);
    loop {
        line.clear();
        end += Read::take(&mut input, LINE_LIMIT).read_until(b'\n', &mut line)? as u64;
        if line.last() != Some(&b'\n') {
            return Ok(reader.read);
        }
        if reader.take(&line, pieces > 0) || reader.take_joined(&line) {
            pieces = 0;
            reader.read.whole_bytes = end;
            continue;
        }
        pieces += 1;
        if pieces > MAX_PIECES {
            return Ok(reader.read);
        }
    }
}

impl JournalReader<'_> {
    /// Accepts a line that continues the sequence. After damage one number may be missing, that of the damaged line.
    fn take(&mut self, line: &[u8], is_after_damage: bool) -> bool {
        let Some(line) = self.parse(line) else {
            return false;
        };
        let next = self.read.lines + 1;
        if line.seq == next + 1 && is_after_damage {
            self.read.skipped.push(next);
        } else if line.seq != next {
            return false;
        }
        self.accept(line);
        true
    }

    /// Accepts two lines whose newline became another byte.
    fn take_joined(&mut self, line: &[u8]) -> bool {
        let starts = line
            .windows(START.len())
            .enumerate()
            .skip(1)
            .filter(|(_, bytes)| *bytes == START);
        let mut cuts = starts.map(|(at, _)| (&line[..at - 1], &line[at..]));
        let next = self.read.lines + 1;
        let both = cuts.find_map(|(one, two)| {
            let (one, two) = (self.parse(one)?, self.parse(two)?);
            ((one.seq, two.seq) == (next, next + 1)).then_some([one, two])
        });
        let Some(both) = both else { return false };
        both.into_iter().for_each(|line| self.accept(line));
        true
    }

    /// Parses a complete line of this run.
    fn parse(&self, line: &[u8]) -> Option<LoggedLine> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let line = LoggedLine::deserialize(&value).ok()?;
        self.run_id
            .as_ref()
            .is_none_or(|id| *id == line.run_id)
            .then_some(LoggedLine { value, ..line })
    }

    fn accept(&mut self, line: LoggedLine) {
        self.read.lines = line.seq;
        self.run_id.get_or_insert(line.run_id);
        // An unknown event was written by a newer version; it is not damage.
        if let Ok(event) = Event::deserialize(line.value) {
            (self.visit)(line.seq, event);
        }
    }
}
