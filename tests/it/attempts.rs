//! Attempts are kept: snapshots after each round and before anything is emptied, `attempts`, `restore`, the best one.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::project::{Project, RUN, answer_spec, checked_by};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

const TESTS: &str = "import unittest, calc\nclass T(unittest.TestCase):\n    def test_1(self):\n        self.assertGreaterEqual(calc.LEVEL, 1, 'CAUSE-1')\n    \
    def test_2(self):\n        self.assertGreaterEqual(calc.LEVEL, 2, 'CAUSE-2')\n    def test_3(self):\n        self.assertGreaterEqual(calc.LEVEL, 3, 'CAUSE-3')\n";

fn level(number: u32) -> Reply {
    reply::files(&[("calc.py", &format!("LEVEL = {number}\n"))])
}

/// A project whose attempts pass so many of three tests each; its run has failed unless one passes all.
fn levels(numbers: &[u32], flags: &[&str]) -> (Project, Server) {
    let server = Server::start(numbers.iter().map(|number| level(*number)));
    let spec = format!(
        "name: levels\ndescription: Raise the level.\nworkspace: {{protect: [tests/]}}\nmax_retries: {}\nchecks:\n  - name: unit\n    \
         command: [python3, -m, unittest, discover, -s, tests]\n",
        numbers.len() - 1
    );
    let project = Project::with(spec, &server).file("specs/tests/test_levels.py", TESTS);
    let ran = project.run(&[RUN, flags].concat());
    let expected = if numbers.contains(&3) { 0 } else { 1 };
    assert_eq!(ran.code, Some(expected), "{}", ran.transcript());
    (project, server)
}

fn rows(project: &Project, run: &[&str]) -> Vec<Value> {
    let ran = project
        .run(&[&["attempts", "--json"], run].concat())
        .exits(0);
    serde_json::from_str(&ran.stdout).unwrap_or_else(|error| panic!("{error}\n{}", ran.stdout))
}

#[test]
fn each_round_has_a_row_with_its_files_tests_cause_and_usage() {
    let (project, _server) = levels(&[1, 2, 0], &[]);
    let rows = rows(&project, &[]);
    let numbers: Vec<_> = rows
        .iter()
        .map(|row| row["number"].as_u64().unwrap())
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
    let phases: Vec<_> = rows
        .iter()
        .map(|row| row["phase"].as_str().unwrap())
        .collect();
    assert_eq!(phases, ["GENERATING", "PATCHING", "PATCHING"]);
    let passed: Vec<_> = rows
        .iter()
        .map(|row| row["tests"]["passed"].as_u64().unwrap())
        .collect();
    assert_eq!(passed, [1, 2, 0]);
    for row in &rows {
        assert_eq!(row["files"], serde_json::json!(["calc.py"]));
        assert_eq!(
            (&row["usage"]["llm_calls"], &row["usage"]["input_tokens"]),
            (&1.into(), &100.into())
        );
        assert!(row["cause"].as_str().unwrap().contains("CAUSE-"), "{row}");
        assert!(chrono::DateTime::parse_from_rfc3339(row["time"].as_str().unwrap()).is_ok());
    }
    let table = project.run(&["attempts"]).exits(0).stdout;
    for words in [
        "1 of 3", "2 of 3", "0 of 3", "CAUSE-1", "CAUSE-2", "CAUSE-3", "120",
    ] {
        assert!(table.contains(words), "no {words}\n{table}");
    }
    assert!(!table.contains('\u{1b}'));
    let kept = project.events("SnapshotKept");
    assert_eq!(kept.len(), 3);
    assert_eq!(kept[1]["round"]["tests"]["passed"], 2);
}

#[test]
fn without_a_run_it_says_so_and_an_unknown_one_is_a_usage_error() {
    let project = Project::new();
    project.run(&["attempts"]).exits(0).says_on_stdout("no run");
    assert_eq!(project.run(&["attempts", "--json"]).exits(0).stdout, "[]\n");
    assert!(!project.exists("logs"));
    project
        .run(&["attempts", "1234abcd"])
        .exits(64)
        .says("1234abcd");
    project.run(&["restore", "1"]).exits(64);
    project.run(&["diff"]).exits(64);
    let (project, _server) = levels(&[1, 3], &[]);
    project
        .run(&["restore", "7"])
        .exits(64)
        .says("there are 1, 2");
    project.run(&["restore", "x"]).exits(64);
}

#[test]
fn an_attempt_is_brought_back_exactly_and_what_was_there_is_kept() {
    let script = "mkdir -p made/deep && ln -sf ../answer.txt made/link && printf x > made/deep/x && chmod 750 made/deep/x; grep -qx 42 answer.txt";
    let server = Server::start([reply::answer("40"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    project.run(RUN).exits(0);
    let second = project.workspace_files();
    fs::remove_dir_all(project.path("workspace/made")).unwrap();
    project.write("workspace/made", "a file now\n");
    project.write("workspace/NOTES.txt", "mine\n");
    symlink("/etc/passwd", project.path("workspace/out")).unwrap();
    project
        .run(&["restore", "1"])
        .exits(0)
        .says_on_stdout("is kept: attempt 3");
    assert_eq!(project.workspace("answer.txt"), "40\n");
    assert!(!project.exists("workspace/NOTES.txt") && !project.exists("workspace/out"));
    let mode = fs::metadata(project.path("workspace/made/deep/x"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o750);
    project.run(&["restore", "2"]).exits(0);
    assert_eq!(project.workspace_files(), second);
    // Both were known, so nothing was added.
    assert_eq!(rows(&project, &[]).len(), 3);
    project.run(&["restore", "3"]).exits(0);
    assert_eq!(project.workspace("NOTES.txt"), "mine\n");
    assert_eq!(project.workspace("made"), "a file now\n");
    let link = fs::read_link(project.path("workspace/out")).unwrap();
    assert_eq!(link.to_str(), Some("/etc/passwd"));
    assert_eq!(project.events("SnapshotRestored").len(), 3);
    project.run(RUN).exits(1).says("workspace changed");
    project.nothing_left();
}

#[test]
fn restore_is_refused_while_a_run_works() {
    let server = Server::start([reply::answer("41"), reply::answer("42").held()]);
    let project = Project::with(answer_spec(), &server);
    let running = project.start(RUN);
    server.wait_for(2);
    let before = project.workspace_files();
    project.run(&["restore", "1"]).exits(75);
    assert_eq!(rows(&project, &[]).len(), 1);
    assert_eq!(project.run(&["diff", "1"]).exits(0).stdout, "");
    assert_eq!(project.workspace_files(), before);
    running.signal(Signal::INT);
    running.wait();
    server.release();
}

/// Empties the workspace of a run with changes of the user's in it, and expects that they come back.
fn check_kept(empty: impl FnOnce(&Project)) {
    let (project, _server) = levels(&[1, 2], &[]);
    let first = project.state_text("run_id");
    project.write("workspace/NOTES.txt", "mine\n");
    empty(&project);
    assert!(!project.exists("workspace/NOTES.txt"));
    let rows = rows(&project, &[&first]);
    assert_eq!(rows.len(), 3);
    assert!(
        rows[2]["kept"].is_string() && rows[2]["tests"].is_null(),
        "{}",
        rows[2]
    );
    project.run(&["restore", "3", "--run", &first]).exits(0);
    assert_eq!(project.workspace("NOTES.txt"), "mine\n");
    assert_eq!(project.workspace("calc.py"), "LEVEL = 2\n");
    let log = project.read(&format!("logs/{first}.log"));
    assert!(log.contains("\"SnapshotKept\"") && log.contains("\"number\":3"));
}

#[test]
fn the_workspace_is_kept_before_it_is_emptied() {
    check_kept(|project| {
        project
            .run(&["reset"])
            .exits(0)
            .says_on_stdout("restore 3 --run");
    });
    let good = || Server::start([level(3)]);
    check_kept(|project| {
        let ran = project
            .run_with(&good(), &[RUN, &["--no-resume"]].concat())
            .exits(0);
        assert!(
            ran.stderr.contains("restore 3 --run"),
            "{}",
            ran.transcript()
        );
    });
    check_kept(|project| {
        let spec = project.read("specs/spec.yaml").replace("Raise", "Lift");
        project.write("specs/spec.yaml", spec);
        project.run_with(&good(), RUN).exits(0);
    });
    check_kept(|project| {
        let log = project.log_path();
        project.run(&[RUN, &["--replay", &log]].concat()).exits(1);
    });
}

#[test]
fn an_unchanged_workspace_is_not_kept_again() {
    let (project, _server) = levels(&[1, 2], &[]);
    let first = project.state_text("run_id");
    project
        .run(&["reset"])
        .exits(0)
        .says_on_stdout("restore 2 --run");
    assert_eq!(rows(&project, &[&first]).len(), 2);
    // After a reset the run comes back with its files.
    project.run(&["restore", "2"]).exits(0);
    assert_eq!(project.state_text("run_id"), first);
    assert_eq!(project.workspace("calc.py"), "LEVEL = 2\n");
}

#[test]
fn hidden_files_are_in_no_snapshot_even_after_a_kill() {
    let server = Server::start([reply::answer("42")]);
    let spec = answer_spec()
        + "  - name: held\n    command: [sh, -c, 'touch ran; test ! -e go && sleep 1000; true']\n    hidden: true\n    files: [secret/]\n    timeout: 600\n";
    let project = Project::with(spec, &server).file("specs/secret/key.txt", "hidden\n");
    let mut running = project.start(RUN);
    running.until("the hidden check has begun", || {
        project.exists("workspace/ran")
    });
    assert!(project.exists("workspace/secret/key.txt"));
    running.signal(Signal::KILL);
    running.wait();
    let first = project.state_text("run_id");
    project.run(&["reset"]).exits(0);
    for row in rows(&project, &[&first]) {
        assert!(!row["files"].to_string().contains("secret"), "{row}");
    }
    let objects = fs::read_dir(project.path("logs/objects")).unwrap();
    for object in objects {
        let content = fs::read(object.unwrap().path()).unwrap();
        assert_ne!(content, b"hidden\n");
    }
}

#[test]
fn equal_files_are_stored_once_per_root() {
    let data: String = (0..200_000).map(|number| format!("{number}\n")).collect();
    let server = Server::start([
        reply::answer("40"),
        reply::answer("41"),
        reply::answer("42"),
        reply::answer("42"),
    ]);
    let spec = answer_spec() + "workspace: {copy: [data.txt]}\n";
    let project = Project::with(spec, &server).file("specs/data.txt", &data);
    project.run(RUN).exits(0);
    project.run(&[RUN, &["--no-resume"]].concat()).exits(0);
    let mut sizes: BTreeMap<u64, usize> = BTreeMap::new();
    for object in fs::read_dir(project.path("logs/objects")).unwrap() {
        *sizes
            .entry(object.unwrap().metadata().unwrap().len())
            .or_default() += 1;
    }
    assert_eq!(sizes[&(data.len() as u64)], 1, "{sizes:?}");
}

#[test]
fn what_is_not_stored_is_said_and_stays() {
    let script = "mkdir -p target/debug node_modules/x && echo x > target/debug/big && echo y > node_modules/x/y; grep -qx 42 answer.txt";
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(checked_by(script), &server);
    let ran = project.run(RUN).exits(0);
    assert!(
        ran.stderr
            .contains("not stored in snapshots, only named: node_modules/, target/"),
        "{}",
        ran.transcript()
    );
    assert_eq!(ran.stderr.matches("not stored in snapshots").count(), 1);
    project
        .run(&["attempts"])
        .exits(0)
        .says_on_stdout("not stored, only named: node_modules/, target/");
    project
        .run(&["restore", "1"])
        .exits(0)
        .says_on_stdout("target/ is not part of snapshots");
    assert_eq!(project.workspace("target/debug/big"), "x\n");
    assert_eq!(project.workspace("answer.txt"), "41\n");
}

#[test]
fn the_oldest_snapshots_go_first_and_never_those_of_the_newest_run() {
    let server = Server::start((0..6).map(|number| reply::answer(&number.to_string())));
    let project = Project::with(
        answer_spec() + "max_retries: 2\nsnapshots: {keep: 2}\n",
        &server,
    );
    project.run(RUN).exits(1);
    let first = project.state_text("run_id");
    assert_eq!(rows(&project, &[]).len(), 3);
    project.run(&[RUN, &["--no-resume"]].concat()).exits(1);
    assert_eq!(rows(&project, &[]).len(), 3);
    project.run(&["restore", "1", "--run", &first]).exits(64);
    let objects = fs::read_dir(project.path("logs/objects")).unwrap().count();
    // Three contents and three lists, and the empty list of what was taken in.
    assert_eq!(objects, 7);
    for number in ["1", "2", "3"] {
        project.run(&["restore", number]).exits(0);
    }
}

#[test]
fn the_best_attempt_is_named_and_can_be_left_in_the_workspace() {
    let (project, _server) = levels(&[1, 2, 2, 0], &[]);
    assert_eq!(project.workspace("calc.py"), "LEVEL = 0\n");
    let ended = &project.events("WorkflowCompleted")[0]["message"];
    let message = ended.as_str().unwrap();
    for words in [
        "best: attempt 3 (2 of 3 tests passed)",
        "orchestrator diff 3",
        "orchestrator restore 3",
    ] {
        assert!(message.contains(words), "no {words}\n{message}");
    }
    let (project, _server) = levels(&[1, 2, 0], &["--keep-best"]);
    assert_eq!(project.workspace("calc.py"), "LEVEL = 2\n");
    assert_eq!(rows(&project, &[]).len(), 3);
    assert_eq!(project.events("SnapshotRestored")[0]["number"], 2);
    // Asked for again, it is there already; asked for later, it comes.
    project.run(&[RUN, &["--keep-best"]].concat()).exits(1);
    assert_eq!(project.events("SnapshotRestored").len(), 1);
    project.write("workspace/calc.py", "mine\n");
    project.run(&[RUN, &["--keep-best"]].concat()).exits(1);
    assert_eq!(project.workspace("calc.py"), "LEVEL = 2\n");
    assert_eq!(rows(&project, &[]).len(), 4);
    project
        .run(&["status"])
        .exits(0)
        .says_on_stdout("best         attempt 2 (2 of 3 tests passed)");
}
