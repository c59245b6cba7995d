//! Damaged logs: a bad line loses only that line, and a truncated tail is kept.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::agent_mode::{agent_spec, done, solve};
use crate::support::project::{Project, RUN, RUN_JSON, answer_spec};
use crate::support::reply::{self, bash};
use crate::support::server::Server;

/// The files of a run that paused after some answers.
struct Paused {
    project: Project,
    picture: std::collections::BTreeMap<String, Vec<u8>>,
    log: String,
    lines: Vec<Vec<u8>>,
}

impl Paused {
    fn new(spec: &str, replies: Vec<reply::Reply>) -> Paused {
        let server = Server::start(replies.into_iter().chain([reply::status(401)]));
        let project = Project::with(spec, &server);
        project.run(RUN_JSON).exits(4);
        let log = project.log_path();
        let lines = project
            .read(&log)
            .lines()
            .map(|line| line.as_bytes().to_vec())
            .collect();
        Paused {
            picture: project.files(),
            log,
            lines,
            project,
        }
    }

    /// The event names of the lines, from 0.
    fn events(&self) -> Vec<String> {
        let event = |line: &Vec<u8>| {
            serde_json::from_slice::<Value>(line).unwrap()["event"]
                .as_str()
                .unwrap()
                .to_owned()
        };
        self.lines.iter().map(event).collect()
    }

    /// Restores the root, with a flipped byte in each of these lines.
    fn with_damage(&self, damaged: &[usize]) {
        self.project.restore(&self.picture);
        let mut lines = self.lines.clone();
        for index in damaged {
            let middle = lines[*index].len() / 2;
            lines[*index][middle] ^= 0x80;
        }
        self.project
            .write(&self.log, [lines.join(&b'\n'), vec![b'\n']].concat());
    }

    /// The files that keep truncated tails.
    fn kept(&self) -> Vec<Vec<u8>> {
        let logs = fs::read_dir(self.project.path("logs")).unwrap().flatten();
        let cut = logs.filter(|entry| entry.file_name().to_string_lossy().contains(".log.cut-"));
        cut.map(|entry| fs::read(entry.path()).unwrap()).collect()
    }

    /// The positions of the answers in the readable lines of the log, none of them twice.
    fn answered_places(&self) -> BTreeSet<String> {
        let lines = readable(&fs::read(self.project.path(&self.log)).unwrap());
        let mut places = BTreeSet::new();
        for line in lines
            .into_iter()
            .filter(|line| line["event"] == "ModelAnswered")
        {
            let place = format!("{} {} {}", line["phase"], line["retry_count"], line["turn"]);
            assert!(places.insert(place), "answered twice: {line}");
        }
        places
    }
}

fn readable(log: &[u8]) -> Vec<Value> {
    log.split(|byte| *byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect()
}

#[test]
fn an_unreadable_line_of_a_conversation_repeats_no_request_and_no_call() {
    let paused = Paused::new(
        &agent_spec(""),
        ["one", "two", "three"]
            .map(|word| bash(&format!("echo {word} >> trace")))
            .into(),
    );
    let events = paused.events();
    for (index, event) in events.iter().enumerate().take(events.len() - 1) {
        paused.with_damage(&[index]);
        let server = Server::start([solve(), done()]);
        let ran = paused.project.run_with(&server, RUN_JSON);
        let what = format!("line {}, {event}", index + 1);
        assert_eq!(ran.code, Some(0), "{what}: {}", ran.transcript());
        assert_eq!(server.count(), 2, "{what}: an answer was bought again");
        assert_eq!(
            paused.project.workspace("trace"),
            "one\ntwo\nthree\n",
            "{what}"
        );
        assert_eq!(server.requests()[0].results().len(), 3, "{what}");
        let note = format!(
            "line {} of the log is unreadable and was skipped",
            index + 1
        );
        assert!(
            ran.result()["notes"]
                .as_array()
                .unwrap()
                .contains(&json!(note)),
            "{what}: {}",
            ran.transcript()
        );
        assert!(ran.stderr.contains(&note), "{what}: {}", ran.transcript());
        assert!(paused.kept().is_empty(), "{what}: nothing is cut off");
        paused.answered_places();
    }
}

#[test]
fn an_unreadable_line_is_reported_once_and_kept() {
    let paused = Paused::new(&agent_spec(""), vec![bash("echo one >> trace")]);
    paused.with_damage(&[1]);
    let damaged = fs::read(paused.project.path(&paused.log)).unwrap();
    let server = Server::start([reply::status(401), solve(), done()]);
    paused.project.run_with(&server, RUN).exits(4);
    let ran = paused.project.run_with(&server, RUN_JSON).exits(0);
    let log = fs::read(paused.project.path(&paused.log)).unwrap();
    assert!(
        log.starts_with(&damaged),
        "the log is appended to, never rewritten"
    );
    let notes = ran.result()["notes"].to_string();
    assert_eq!(
        notes.matches("line 2 of the log is unreadable").count(),
        1,
        "{notes}"
    );
    let seqs: Vec<u64> = readable(&log)
        .iter()
        .map(|line| line["seq"].as_u64().unwrap())
        .collect();
    let all: Vec<u64> = (1..=seqs.len() as u64 + 1)
        .filter(|seq| *seq != 2)
        .collect();
    assert_eq!(
        seqs, all,
        "no number is missing but that of the unreadable line"
    );
}

#[test]
fn an_unreadable_line_in_files_mode_repeats_no_readable_answer() {
    let paused = Paused::new(
        &answer_spec(),
        vec![reply::text("no block"), reply::text("none again")],
    );
    let events = paused.events();
    let answers = events
        .iter()
        .filter(|event| *event == "ModelAnswered")
        .count();
    assert_eq!(answers, 2);
    for (index, event) in events.iter().enumerate().take(events.len() - 1) {
        paused.with_damage(&[index]);
        let server = Server::start([reply::answer("42")]);
        let ran = paused.project.run_with(&server, RUN_JSON);
        let what = format!("line {}, {event}", index + 1);
        assert_eq!(ran.code, Some(0), "{what}: {}", ran.transcript());
        assert_eq!(server.count(), 1, "{what}: an answer was bought again");
        paused.answered_places();
    }
}

#[test]
fn a_truncated_tail_is_kept_beside_the_log() {
    let paused = Paused::new(
        &agent_spec(""),
        vec![bash("echo one >> trace"), bash("echo two >> trace")],
    );
    paused.with_damage(&[6, 7]);
    let damaged = fs::read(paused.project.path(&paused.log)).unwrap();
    let server = Server::start([bash("true"), bash("true"), solve(), done()]);
    paused.project.run_with(&server, RUN).exits(0);
    let kept = paused.kept();
    assert_eq!(kept.len(), 1);
    let log = fs::read(paused.project.path(&paused.log)).unwrap();
    let whole = damaged.len() - kept[0].len();
    assert_eq!(damaged[whole..], kept[0]);
    assert_eq!(damaged[..whole], log[..whole]);
    let mended = paused.project.events("LogMended");
    assert!(
        paused
            .project
            .exists(&format!("logs/{}", mended[0]["kept_as"].as_str().unwrap())),
        "{mended:?}"
    );
}
