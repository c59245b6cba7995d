//! Reads a log back, up to its last whole line.
//!
//! A log can be damaged in two ways. A power cut or a full disk spoils its tail: reading stops there. A bad sector or a
//! flipped bit spoils a line in the middle: where the next line is whole and continues the numbers, the bad one is
//! skipped and everything behind it still counts.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};

use serde::Deserialize;
use serde_json::Value;

use crate::events::Event;

/// A line longer than any that this program writes.
const LINE_LIMIT: u64 = 512 << 20;
/// How every line begins. Inside a line these bytes do not occur in any text, whose quotes are escaped.
const START: &[u8] = b"{\"ts\":\"";
/// One damaged byte makes at most two unreadable pieces: it may have become a newline.
const MOST_PIECES: u32 = 2;

/// A whole line of the run.
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

/// What reading a log came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct JournalRead {
    /// The number of the last line that was read.
    pub lines: u64,
    /// Where that line ends.
    pub whole_bytes: u64,
    /// The numbers of lines that could not be read and were skipped.
    pub skipped: Vec<u64>,
}

/// The lines read so far.
struct JournalReader<'a> {
    run_id: Option<String>,
    read: JournalRead,
    visit: &'a mut dyn FnMut(u64, Event),
}

/// Reads a log to its last whole line; `run_id` is taken from the first line where none is given.
///
/// A line that repeats the one before (a tail written twice) counts as unreadable.
pub fn read_lines(
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
        if pieces > MOST_PIECES {
            return Ok(reader.read);
        }
    }
}

impl JournalReader<'_> {
    /// Takes a line that continues the numbers. After damage one number may be missing, that of the damaged line.
    fn take(&mut self, line: &[u8], is_after_damage: bool) -> bool {
        let Some(line) = self.whole(line) else {
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

    /// Takes two lines whose newline became another byte.
    fn take_joined(&mut self, line: &[u8]) -> bool {
        let starts = line
            .windows(START.len())
            .enumerate()
            .skip(1)
            .filter(|(_, bytes)| *bytes == START);
        let mut cuts = starts.map(|(at, _)| (&line[..at - 1], &line[at..]));
        let next = self.read.lines + 1;
        let both = cuts.find_map(|(one, two)| {
            let (one, two) = (self.whole(one)?, self.whole(two)?);
            ((one.seq, two.seq) == (next, next + 1)).then_some([one, two])
        });
        let Some(both) = both else { return false };
        both.into_iter().for_each(|line| self.accept(line));
        true
    }

    /// Returns a line that is whole and of this run.
    fn whole(&self, line: &[u8]) -> Option<LoggedLine> {
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
        // An event that a newer version wrote is skipped, not a fault of the log.
        if let Ok(event) = Event::deserialize(line.value) {
            (self.visit)(line.seq, event);
        }
    }
}
