//! Reading back, repair of every kind of damage, redaction.

use std::os::fd::AsFd;

use serde_json::Value;

use super::*;
use crate::state::journal::read::JournalRead;
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
        let (journal, repair) = Journal::open(
            directory.as_fd(),
            self.folder.path(),
            &self.run_id,
            &secrets,
            &mut |_, e| events.push(e),
        )
        .unwrap();
        (journal, repair, events)
    }
}

fn progress(message: &str) -> Event {
    Event::ProgressMessage {
        agent_id: "main".into(),
        message: message.into(),
    }
}

#[test]
fn events_are_read_back_and_numbering_continues() {
    let logs = Logs::new();
    let (mut journal, _, _) = logs.open();
    journal.append(&progress("a")).unwrap();
    journal.append(&progress("b\n{\"event\":\"x\"}")).unwrap();
    let (mut journal, repair, events) = logs.open();
    assert_eq!(
        (repair, events),
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
fn an_unreadable_tail_is_cut_off() {
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
        let (_, repair, events) = logs.open();
        assert_eq!(events.len(), 2, "{name}");
        let cut = repair
            .and_then(|repair| repair.cut)
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
fn truncation_anywhere_keeps_the_complete_lines() {
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

/// A log of the messages 0 to 5, and the offset of each line.
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
fn a_damaged_byte_affects_only_its_line() {
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
            // No later line shows where the last one would end, so it is cut off.
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
fn numbering_continues_after_a_skipped_line() {
    let logs = Logs::new();
    let (mut whole, starts) = six_lines(&logs);
    whole[starts[2]] = b'x';
    std::fs::write(logs.path(), &whole).unwrap();
    let (mut journal, _, _) = logs.open();
    journal.append(&progress("6")).unwrap();
    let (journal, repair, events) = logs.open();
    assert_eq!((journal.lines(), events.len()), (7, 6));
    assert_eq!(
        repair,
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
fn reading_stops_at_two_unreadable_lines_in_a_row() {
    let logs = Logs::new();
    for lines in [[1, 2], [4, 5]] {
        let (mut whole, starts) = six_lines(&logs);
        lines
            .iter()
            .for_each(|line| whole[starts[*line] + 3] ^= 0x80);
        std::fs::write(logs.path(), &whole).unwrap();
        let (journal, repair, events) = logs.open();
        assert_eq!(
            (journal.lines() as usize, events.len()),
            (lines[0], lines[0])
        );
        let cut = repair.unwrap().cut.unwrap();
        assert_eq!(
            std::fs::read(logs.folder.path().join(cut.kept_as)).unwrap(),
            whole[starts[lines[0]]..]
        );
        std::fs::remove_file(logs.path()).unwrap();
    }
}

#[test]
fn an_event_of_a_newer_version_is_skipped() {
    let logs = Logs::new();
    let (mut journal, _, _) = logs.open();
    journal.append(&progress("a")).unwrap();
    let line = std::fs::read_to_string(logs.path()).unwrap();
    let newer = line
        .replace("ProgressMessage", "MoonRose")
        .replace("\"seq\":1", "\"seq\":2");
    std::fs::write(logs.path(), line + &newer).unwrap();
    let (journal, repair, events) = logs.open();
    assert_eq!((journal.lines(), repair, events.len()), (2, None, 1));
}

#[test]
fn a_secret_is_redacted() {
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
fn a_deleted_log_is_an_error() {
    let logs = Logs::new();
    let (mut journal, _, _) = logs.open();
    std::fs::remove_file(logs.path()).unwrap();
    assert!(journal.sync().is_err());
}
