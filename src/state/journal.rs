//! The run's log: one JSON object a line, appended, never rewritten; resume and replay read it back.
//!
//! It is no observer: who cannot write it must stop. Reading stops at the first line that is not whole, in order
//! and of this run; opening for a resume cuts off what follows it, so that the next line stands on firm ground.

use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::events::Event;
use crate::secrets::Secrets;
use crate::state::run::timestamp;

/// A line longer than any that this program writes.
const LINE_LIMIT: u64 = 512 << 20;
/// How much of a cut-off tail is shown in the note about it.
const TAIL_SHOWN: usize = 512;

/// The log of one run, open for appending.
#[derive(Debug)]
pub struct Journal {
    logs: OwnedFd,
    file: File,
    path: PathBuf,
    run_id: String,
    seq: u64,
    length: u64,
    secrets: Secrets,
}

/// A tail that was cut off because it could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mended {
    pub dropped_bytes: u64,
    pub dropped: String,
}

#[derive(Serialize)]
struct Line<'a> {
    ts: String,
    run_id: &'a str,
    seq: u64,
    #[serde(flatten)]
    event: &'a Event,
}

#[derive(Deserialize)]
struct Head {
    #[serde(rename = "ts")]
    _ts: String,
    run_id: String,
    seq: u64,
    #[serde(rename = "event")]
    _event: String,
}

impl Journal {
    /// Opens the log of a run in `logs`, making it where there is none, and hands every event in it to `visit`, with its line's number.
    pub fn open(
        logs: BorrowedFd<'_>,
        logs_path: &Path,
        run_id: &str,
        secrets: &Secrets,
        visit: &mut dyn FnMut(u64, Event),
    ) -> Result<(Journal, Option<Mended>)> {
        let name = file_name(run_id);
        let path = logs_path.join(&name);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = openat(logs, name.as_str(), flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o644))
            .map_err(|error| Error::io("open", &path, error))?;
        rustix::fs::fsync(logs).map_err(|error| Error::io("sync", logs_path, error))?;
        let file = File::from(fd);
        let read = read_lines(&file, Some(run_id), visit).map_err(|error| Error::io("read", &path, error))?;
        let mut journal = Journal {
            logs: logs.try_clone_to_owned().map_err(|error| Error::io("open", logs_path, error))?,
            file,
            path,
            run_id: run_id.to_owned(),
            seq: read.lines,
            length: read.whole_bytes,
            secrets: secrets.clone(),
        };
        let mended = journal.mend()?;
        Ok((journal, mended))
    }

    /// Writes an event down.
    pub fn append(&mut self, event: &Event) -> Result<()> {
        let line = Line { ts: timestamp(), run_id: &self.run_id, seq: self.seq + 1, event };
        let text = serde_json::to_string(&line)
            .map_err(|error| Error::Bug(format!("an event cannot be written as JSON: {error}")))?;
        let mut text = self.secrets.redact(&text).into_owned();
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Half a line would be mended by the next run; without it the log is whole at once.
            let _ = self.file.set_len(self.length);
            return Err(Error::io("write", &self.path, error));
        }
        self.seq += 1;
        self.length += text.len() as u64;
        Ok(())
    }

    /// Makes everything written so far survive a power cut.
    pub fn sync(&mut self) -> Result<()> {
        if !self.stands() {
            let gone = std::io::Error::other("the log was deleted, moved or changed while the run was going on");
            return Err(Error::io("keep", &self.path, gone));
        }
        self.file.sync_data().map_err(|error| Error::io("sync", &self.path, error))
    }

    /// Whether the log is what a resume would find: under its name, and nothing but what was written here.
    fn stands(&self) -> bool {
        let named = statat(&self.logs, file_name(&self.run_id), AtFlags::SYMLINK_NOFOLLOW);
        let (Ok(named), Ok(own)) = (named, fstat(&self.file)) else { return false };
        (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino) && u64::try_from(own.st_size) == Ok(self.length)
    }

    /// Returns how many lines the log has.
    pub fn lines(&self) -> u64 {
        self.seq
    }

    fn mend(&mut self) -> Result<Option<Mended>> {
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |error| Error::Io { action, path, source: error }
        };
        let end = self.file.seek(SeekFrom::End(0)).map_err(io("read", &self.path))?;
        if end == self.length {
            return Ok(None);
        }
        let mut tail = vec![0; TAIL_SHOWN.min((end - self.length) as usize)];
        std::os::unix::fs::FileExt::read_exact_at(&self.file, &mut tail, self.length)
            .map_err(io("read", &self.path))?;
        self.file.set_len(self.length).map_err(io("mend", &self.path))?;
        self.file.sync_all().map_err(io("sync", &self.path))?;
        Ok(Some(Mended { dropped_bytes: end - self.length, dropped: tail.escape_ascii().to_string() }))
    }
}

fn file_name(run_id: &str) -> String {
    format!("{run_id}.log")
}

/// What reading a log came to.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadUp {
    pub lines: u64,
    pub whole_bytes: u64,
}

/// Reads a log to its last whole line; `run_id` is taken from the first line where none is given.
///
/// A line that repeats the one before (a tail written twice) ends the reading like a torn one.
pub fn read_lines(file: &File, run_id: Option<&str>, visit: &mut dyn FnMut(u64, Event)) -> std::io::Result<ReadUp> {
    let mut reader = BufReader::with_capacity(1 << 16, file);
    reader.seek(SeekFrom::Start(0))?;
    let mut run_id = run_id.map(str::to_owned);
    let mut read = ReadUp::default();
    let mut line = Vec::new();
    loop {
        line.clear();
        let length = std::io::Read::take(&mut reader, LINE_LIMIT).read_until(b'\n', &mut line)?;
        if length == 0 || line.last() != Some(&b'\n') {
            return Ok(read);
        }
        let Ok(head) = serde_json::from_slice::<Head>(&line) else { return Ok(read) };
        if head.seq != read.lines + 1 || run_id.as_ref().is_some_and(|id| *id != head.run_id) {
            return Ok(read);
        }
        run_id.get_or_insert(head.run_id);
        read.lines += 1;
        read.whole_bytes += length as u64;
        // An event that a newer version wrote is skipped, not a fault of the log.
        if let Ok(event) = serde_json::from_slice::<Value>(&line).and_then(Event::deserialize) {
            visit(read.lines, event);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;
    use crate::state::run::new_run_id;

    struct Logs {
        folder: tempfile::TempDir,
        run_id: String,
    }

    impl Logs {
        fn new() -> Logs {
            Logs { folder: tempfile::tempdir().unwrap(), run_id: new_run_id() }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join(format!("{}.log", self.run_id))
        }

        fn open(&self) -> (Journal, Option<Mended>, Vec<Event>) {
            let directory = File::open(self.folder.path()).unwrap();
            let mut events = Vec::new();
            let secrets = Secrets::new(["sk-secret-12345".to_owned()]);
            let (journal, mended) =
                Journal::open(directory.as_fd(), self.folder.path(), &self.run_id, &secrets, &mut |_, e| {
                    events.push(e)
                })
                .unwrap();
            (journal, mended, events)
        }
    }

    fn progress(message: &str) -> Event {
        Event::ProgressMessage { agent_id: "main".into(), message: message.into() }
    }

    #[test]
    fn events_are_read_back_and_numbered_on() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        journal.append(&progress("a")).unwrap();
        journal.append(&progress("b\n{\"event\":\"x\"}")).unwrap();
        let (mut journal, mended, events) = logs.open();
        assert_eq!((mended, events), (None, vec![progress("a"), progress("b\n{\"event\":\"x\"}")]));
        journal.append(&progress("c")).unwrap();
        let text = std::fs::read_to_string(logs.path()).unwrap();
        let seqs: Vec<_> =
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone()).collect();
        assert_eq!(seqs, [1, 2, 3]);
    }

    #[test]
    fn a_tail_that_cannot_be_read_is_cut_off() {
        type Change<'a> = &'a dyn Fn(Vec<u8>) -> Vec<u8>;
        let tails: [(&str, Change<'_>); 6] = [
            ("torn", &|data| [&data[..], b"{\"ts\":\"2026"].concat()),
            ("nul", &|data| [&data[..], &[0; 4096]].concat()),
            ("not utf-8", &|data| [&data[..], b"{\"ts\":\"\xff\"}\n"].concat()),
            ("garbage", &|data| [&data[..], b"garbage\n"].concat()),
            ("twice", &|data| {
                let last = data[..data.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() + 1;
                [&data[..], &data[last..]].concat()
            }),
            ("of another run", &|data| {
                let text = String::from_utf8(data.clone()).unwrap();
                let line = text.lines().last().unwrap().replace("\"seq\":2", "\"seq\":3");
                let id = serde_json::from_str::<Value>(&line).unwrap()["run_id"].as_str().unwrap().to_owned();
                [&data[..], line.replace(&id, &new_run_id()).as_bytes(), b"\n"].concat()
            }),
        ];
        for (name, change) in tails {
            let logs = Logs::new();
            let (mut journal, _, _) = logs.open();
            journal.append(&progress("a")).unwrap();
            journal.append(&progress("b")).unwrap();
            let whole = std::fs::read(logs.path()).unwrap();
            std::fs::write(logs.path(), change(whole.clone())).unwrap();
            let (_, mended, events) = logs.open();
            assert_eq!(events.len(), 2, "{name}");
            assert!(mended.is_some(), "{name}");
            assert_eq!(std::fs::read(logs.path()).unwrap(), whole, "{name}");
        }
    }

    #[test]
    fn every_torn_end_leaves_whole_lines() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        for name in ["a", "b", "c"] {
            journal.append(&progress(name)).unwrap();
        }
        let whole = std::fs::read(logs.path()).unwrap();
        for end in 0..whole.len() {
            std::fs::write(logs.path(), &whole[..end]).unwrap();
            let (_, _, events) = logs.open();
            assert_eq!(events.len(), whole[..end].iter().filter(|b| **b == b'\n').count(), "{end}");
        }
    }

    #[test]
    fn an_event_of_a_newer_version_is_passed_over() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        journal.append(&progress("a")).unwrap();
        let line = std::fs::read_to_string(logs.path()).unwrap();
        let newer = line.replace("ProgressMessage", "MoonRose").replace("\"seq\":1", "\"seq\":2");
        std::fs::write(logs.path(), line + &newer).unwrap();
        let (journal, mended, events) = logs.open();
        assert_eq!((journal.lines(), mended, events.len()), (2, None, 1));
    }

    #[test]
    fn a_key_is_not_written() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        journal.append(&progress("the key is sk-secret-12345!")).unwrap();
        let text = std::fs::read_to_string(logs.path()).unwrap();
        assert!(!text.contains("sk-secret"), "{text}");
        assert!(text.contains("[redacted]"), "{text}");
    }

    #[test]
    fn a_log_that_was_deleted_is_noticed() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        std::fs::remove_file(logs.path()).unwrap();
        assert!(journal.sync().is_err());
    }
}
