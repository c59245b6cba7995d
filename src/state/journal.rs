//! The run's log: one JSON object a line, appended, never rewritten; resume and replay read it back.
//!
//! It is not an observer: a run that cannot write it must stop. `read.rs` reads it back; opening for a resume cuts off
//! what follows the last line that could be read, so that the next line is appended to a whole one. What is cut off is
//! kept beside the log.

mod read;

use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, fsync, openat, statat, unlinkat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::events::Event;
use crate::secrets::Secrets;
use crate::state::run::{now, timestamp};

pub use crate::state::journal::read::{JournalRead, read_lines};

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

/// What had to be done about a damaged log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JournalRepair {
    /// The numbers of unreadable lines in the middle, which stay where they are.
    pub skipped: Vec<u64>,
    pub cut: Option<CutTail>,
}

/// A tail that could not be read, and the file in `logs/` that keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTail {
    pub dropped_bytes: u64,
    pub dropped: String,
    pub kept_as: String,
}

#[derive(Serialize)]
struct JournalLine<'a> {
    ts: String,
    run_id: &'a str,
    seq: u64,
    #[serde(flatten)]
    event: &'a Event,
}

impl Journal {
    /// Opens the log of a run in `logs`, making it where there is none, and hands every event in it to `visit`, with its line's number.
    pub fn open(
        logs: BorrowedFd<'_>,
        logs_path: &Path,
        run_id: &str,
        secrets: &Secrets,
        visit: &mut dyn FnMut(u64, Event),
    ) -> Result<(Journal, Option<JournalRepair>)> {
        let name = file_name(run_id);
        let path = logs_path.join(&name);
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let fd = openat(
            logs,
            name.as_str(),
            flags | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o644),
        )
        .map_err(|error| Error::io("open", &path, error))?;
        rustix::fs::fsync(logs).map_err(|error| Error::io("sync", logs_path, error))?;
        let file = File::from(fd);
        let read = read_lines(&file, Some(run_id), visit)
            .map_err(|error| Error::io("read", &path, error))?;
        let mut journal = Journal {
            logs: logs
                .try_clone_to_owned()
                .map_err(|error| Error::io("open", logs_path, error))?,
            file,
            path,
            run_id: run_id.to_owned(),
            seq: read.lines,
            length: read.whole_bytes,
            secrets: secrets.clone(),
        };
        let mended = JournalRepair {
            skipped: read.skipped,
            cut: journal.repair()?,
        };
        Ok((
            journal,
            (mended != JournalRepair::default()).then_some(mended),
        ))
    }

    /// Writes an event down. Where it held a secret, the event as it was written is returned, for whoever is told of it.
    pub fn append(&mut self, event: &Event) -> Result<Option<Event>> {
        let mut text = self.line(event)?;
        let redacted = self
            .secrets
            .is_in(&text)
            .then(|| self.redacted(event))
            .transpose()?;
        if let Some(event) = &redacted {
            text = self.line(event)?;
        }
        text.push('\n');
        if let Err(error) = self.file.write_all(text.as_bytes()) {
            // Half a line would be mended by the next run; without it the log is whole at once.
            let _ = self.file.set_len(self.length);
            return Err(Error::io("write", &self.path, error));
        }
        self.seq += 1;
        self.length += text.len() as u64;
        Ok(redacted)
    }

    fn line(&self, event: &Event) -> Result<String> {
        let line = JournalLine {
            ts: timestamp(),
            run_id: &self.run_id,
            seq: self.seq + 1,
            event,
        };
        serde_json::to_string(&line)
            .map_err(|error| Error::Bug(format!("an event cannot be written as JSON: {error}")))
    }

    /// Returns an event without the secrets in it.
    pub fn redacted(&self, event: &Event) -> Result<Event> {
        let failed = |error| {
            Error::Bug(format!(
                "an event cannot be written without its secrets: {error}"
            ))
        };
        let mut value = serde_json::to_value(event).map_err(failed)?;
        let name = value["event"].take();
        self.secrets.redact_value(&mut value);
        value["event"] = name;
        Event::deserialize(value).map_err(failed)
    }

    /// Makes everything written so far survive a power cut.
    pub fn sync(&mut self) -> Result<()> {
        if !self.stands() {
            let gone = std::io::Error::other(
                "the log was deleted, moved or changed while the run was going on",
            );
            return Err(Error::io("keep", &self.path, gone));
        }
        self.file
            .sync_data()
            .map_err(|error| Error::io("sync", &self.path, error))
    }

    /// Whether the log is what a resume would find: under its name, and nothing but what was written here.
    fn stands(&self) -> bool {
        let named = statat(
            &self.logs,
            file_name(&self.run_id),
            AtFlags::SYMLINK_NOFOLLOW,
        );
        let (Ok(named), Ok(own)) = (named, fstat(&self.file)) else {
            return false;
        };
        (named.st_dev, named.st_ino) == (own.st_dev, own.st_ino)
            && u64::try_from(own.st_size) == Ok(self.length)
    }

    /// Returns how many lines the log has.
    pub fn lines(&self) -> u64 {
        self.seq
    }

    /// Cuts off what follows the last line that could be read, once that is safe in a file of its own.
    fn repair(&mut self) -> Result<Option<CutTail>> {
        let io = |action, path: &Path| {
            let path = path.to_owned();
            move |error| Error::Io {
                action,
                path,
                source: error,
            }
        };
        let end = self
            .file
            .seek(SeekFrom::End(0))
            .map_err(io("read", &self.path))?;
        if end == self.length {
            return Ok(None);
        }
        let mut tail = vec![0; TAIL_SHOWN.min((end - self.length) as usize)];
        self.file
            .read_exact_at(&mut tail, self.length)
            .map_err(io("read", &self.path))?;
        let kept_as = self.keep_tail()?;
        self.file
            .set_len(self.length)
            .map_err(io("mend", &self.path))?;
        self.file.sync_all().map_err(io("sync", &self.path))?;
        let dropped = tail.escape_ascii().to_string();
        Ok(Some(CutTail {
            dropped_bytes: end - self.length,
            dropped,
            kept_as,
        }))
    }

    /// Copies the tail to a new file beside the log, durably; returns its name.
    fn keep_tail(&mut self) -> Result<String> {
        let (name, mut copy) = self.create_beside()?;
        let copied = self
            .file
            .seek(SeekFrom::Start(self.length))
            .and_then(|_| std::io::copy(&mut self.file, &mut copy))
            .and_then(|_| copy.sync_all())
            .and_then(|()| Ok(fsync(&self.logs)?));
        copied.map_err(|error| {
            let _ = unlinkat(&self.logs, name.as_str(), AtFlags::empty());
            Error::io("write", &self.path.with_file_name(&name), error)
        })?;
        Ok(name)
    }

    fn create_beside(&self) -> Result<(String, File)> {
        let stem = format!(
            "{}.cut-{}",
            file_name(&self.run_id),
            now().format("%Y%m%dT%H%M%S%.3fZ")
        );
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut name = stem.clone();
        for number in 2.. {
            match openat(&self.logs, name.as_str(), flags, Mode::from_raw_mode(0o644)) {
                Err(Errno::EXIST) => name = format!("{stem}-{number}"),
                Err(errno) => {
                    return Err(Error::io("create", &self.path.with_file_name(&name), errno));
                }
                Ok(fd) => return Ok((name, File::from(fd))),
            }
        }
        Err(Error::Bug(
            "no name is left for a file beside the log".into(),
        ))
    }
}

fn file_name(run_id: &str) -> String {
    format!("{run_id}.log")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use serde_json::Value;

    use super::*;
    use crate::state::run::new_run_id;

    struct Logs {
        folder: tempfile::TempDir,
        run_id: String,
    }

    impl Logs {
        fn new() -> Logs {
            Logs {
                folder: tempfile::tempdir().unwrap(),
                run_id: new_run_id(),
            }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join(format!("{}.log", self.run_id))
        }

        fn open(&self) -> (Journal, Option<JournalRepair>, Vec<Event>) {
            let directory = File::open(self.folder.path()).unwrap();
            let mut events = Vec::new();
            let secrets = Secrets::new(["sk-secret-12345".to_owned()]);
            let (journal, mended) = Journal::open(
                directory.as_fd(),
                self.folder.path(),
                &self.run_id,
                &secrets,
                &mut |_, e| events.push(e),
            )
            .unwrap();
            (journal, mended, events)
        }
    }

    fn progress(message: &str) -> Event {
        Event::ProgressMessage {
            agent_id: "main".into(),
            message: message.into(),
        }
    }

    #[test]
    fn events_are_read_back_and_numbered_on() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        journal.append(&progress("a")).unwrap();
        journal.append(&progress("b\n{\"event\":\"x\"}")).unwrap();
        let (mut journal, mended, events) = logs.open();
        assert_eq!(
            (mended, events),
            (None, vec![progress("a"), progress("b\n{\"event\":\"x\"}")])
        );
        journal.append(&progress("c")).unwrap();
        let text = std::fs::read_to_string(logs.path()).unwrap();
        let seqs: Vec<_> = text
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone())
            .collect();
        assert_eq!(seqs, [1, 2, 3]);
    }

    #[test]
    fn a_tail_that_cannot_be_read_is_cut_off() {
        type Change<'a> = &'a dyn Fn(Vec<u8>) -> Vec<u8>;
        let tails: [(&str, Change<'_>); 6] = [
            ("torn", &|data| [&data[..], b"{\"ts\":\"2026"].concat()),
            ("nul", &|data| [&data[..], &[0; 4096]].concat()),
            ("not utf-8", &|data| {
                [&data[..], b"{\"ts\":\"\xff\"}\n"].concat()
            }),
            ("garbage", &|data| [&data[..], b"garbage\n"].concat()),
            ("twice", &|data| {
                let last = data[..data.len() - 1]
                    .iter()
                    .rposition(|b| *b == b'\n')
                    .unwrap()
                    + 1;
                [&data[..], &data[last..]].concat()
            }),
            ("of another run", &|data| {
                let text = String::from_utf8(data.clone()).unwrap();
                let line = text
                    .lines()
                    .last()
                    .unwrap()
                    .replace("\"seq\":2", "\"seq\":3");
                let id = serde_json::from_str::<Value>(&line).unwrap()["run_id"]
                    .as_str()
                    .unwrap()
                    .to_owned();
                [
                    &data[..],
                    line.replace(&id, &new_run_id()).as_bytes(),
                    b"\n",
                ]
                .concat()
            }),
        ];
        for (name, change) in tails {
            let logs = Logs::new();
            let (mut journal, _, _) = logs.open();
            journal.append(&progress("a")).unwrap();
            journal.append(&progress("b")).unwrap();
            let whole = std::fs::read(logs.path()).unwrap();
            std::fs::write(logs.path(), change(whole.clone())).unwrap();
            let damaged = std::fs::read(logs.path()).unwrap();
            let (_, mended, events) = logs.open();
            assert_eq!(events.len(), 2, "{name}");
            let cut = mended
                .and_then(|mended| mended.cut)
                .unwrap_or_else(|| panic!("{name}"));
            assert_eq!(std::fs::read(logs.path()).unwrap(), whole, "{name}");
            let kept = std::fs::read(logs.folder.path().join(&cut.kept_as)).unwrap();
            assert_eq!([whole, kept].concat(), damaged, "{name}");
            assert!(
                cut.kept_as
                    .starts_with(&format!("{}.log.cut-", logs.run_id)),
                "{}",
                cut.kept_as
            );
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
            assert_eq!(
                events.len(),
                whole[..end].iter().filter(|b| **b == b'\n').count(),
                "{end}"
            );
        }
    }

    /// A log of the messages 0 to 5, and where each line begins.
    fn six_lines(logs: &Logs) -> (Vec<u8>, Vec<usize>) {
        let (mut journal, _, _) = logs.open();
        for name in 0..6 {
            journal.append(&progress(&name.to_string())).unwrap();
        }
        let whole = std::fs::read(logs.path()).unwrap();
        let ends = whole
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'\n')
            .map(|(at, _)| at + 1);
        (whole.clone(), std::iter::once(0).chain(ends).collect())
    }

    fn read_back(logs: &Logs) -> (JournalRead, Vec<Event>) {
        let mut events = Vec::new();
        let file = File::open(logs.path()).unwrap();
        let read = read_lines(&file, Some(&logs.run_id), &mut |_, event| {
            events.push(event)
        })
        .unwrap();
        (read, events)
    }

    #[test]
    fn a_flipped_byte_costs_its_own_line_and_no_other() {
        let logs = Logs::new();
        let (whole, starts) = six_lines(&logs);
        let all: Vec<Event> = (0..6).map(|name| progress(&name.to_string())).collect();
        for at in 0..whole.len() {
            let number = starts.iter().rposition(|start| *start <= at).unwrap();
            for replacement in [whole[at] ^ 0x80, b'\n', 0] {
                let mut damaged = whole.clone();
                damaged[at] = replacement;
                std::fs::write(logs.path(), &damaged).unwrap();
                let (read, events) = read_back(&logs);
                let place = format!("byte {at}, line {}, {replacement}", number + 1);
                if damaged == whole {
                    assert_eq!((read.skipped.len(), events), (0, all.clone()), "{place}");
                    continue;
                }
                // The last line has none behind it that would vouch for the rest: it is cut off.
                let (is_last, is_newline) = (number == 5, at + 1 == starts[number + 1]);
                let mut expected = all.clone();
                if is_last || !is_newline {
                    expected.remove(number);
                }
                assert_eq!(events, expected, "{place}");
                assert_eq!(read.lines, if is_last { 5 } else { 6 }, "{place}");
                assert_eq!(
                    read.whole_bytes,
                    if is_last { starts[5] } else { whole.len() } as u64,
                    "{place}"
                );
                let skipped = if is_last || is_newline {
                    vec![]
                } else {
                    vec![number as u64 + 1]
                };
                assert_eq!(read.skipped, skipped, "{place}");
            }
        }
    }

    #[test]
    fn a_log_with_a_skipped_line_is_numbered_on() {
        let logs = Logs::new();
        let (mut whole, starts) = six_lines(&logs);
        whole[starts[2]] = b'x';
        std::fs::write(logs.path(), &whole).unwrap();
        let (mut journal, _, _) = logs.open();
        journal.append(&progress("6")).unwrap();
        let (journal, mended, events) = logs.open();
        assert_eq!((journal.lines(), events.len()), (7, 6));
        assert_eq!(
            mended,
            Some(JournalRepair {
                skipped: vec![3],
                cut: None
            })
        );
        assert!(
            std::fs::read(logs.path()).unwrap().starts_with(&whole),
            "nothing is rewritten"
        );
    }

    #[test]
    fn two_unreadable_lines_in_a_row_end_the_reading() {
        let logs = Logs::new();
        for lines in [[1, 2], [4, 5]] {
            let (mut whole, starts) = six_lines(&logs);
            lines
                .iter()
                .for_each(|line| whole[starts[*line] + 3] ^= 0x80);
            std::fs::write(logs.path(), &whole).unwrap();
            let (journal, mended, events) = logs.open();
            assert_eq!(
                (journal.lines() as usize, events.len()),
                (lines[0], lines[0])
            );
            let cut = mended.unwrap().cut.unwrap();
            assert_eq!(
                std::fs::read(logs.folder.path().join(cut.kept_as)).unwrap(),
                whole[starts[lines[0]]..]
            );
            std::fs::remove_file(logs.path()).unwrap();
        }
    }

    #[test]
    fn an_event_of_a_newer_version_is_passed_over() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        journal.append(&progress("a")).unwrap();
        let line = std::fs::read_to_string(logs.path()).unwrap();
        let newer = line
            .replace("ProgressMessage", "MoonRose")
            .replace("\"seq\":1", "\"seq\":2");
        std::fs::write(logs.path(), line + &newer).unwrap();
        let (journal, mended, events) = logs.open();
        assert_eq!((journal.lines(), mended, events.len()), (2, None, 1));
    }

    #[test]
    fn a_key_is_not_written() {
        let logs = Logs::new();
        let (mut journal, _, _) = logs.open();
        journal
            .append(&progress("the key is sk-secret-12345!"))
            .unwrap();
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
