//! Cost of the snapshots of a workspace with 20,000 files. Run it with `cargo bench --bench snapshots`.
//!
//! Nothing is asserted. A template changes one file in each round, and its check fails. The rows, in milliseconds:
//!
//! - *round*: from one TESTING to the next, by the timestamps of the log, against the same round without its snapshot.
//!   What the snapshot costs there is taken to be everything from the output of the check to the snapshot's line, which
//!   is more than the snapshot; so the ratio is an upper bound. The aim is 1.3. With a check that does nothing, and
//!   with one that reads every file once, as a compiler or a test runner does.
//! - *first*: the library alone stores all files, against writing and syncing them.
//! - *unchanged*, *one changed*: later snapshots, against `find` with the metadata of each file, which is the least that
//!   a walk costs.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use chrono::{DateTime, FixedOffset};
use orchestrator::internals::snapshots::SnapshotTaker;
use serde_json::{Value, json};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
const FOLDERS: usize = 200;
const FILES_IN_EACH: usize = 100;
const ROUNDS: usize = 12;

fn main() {
    println!("ms                                            baseline measured   ratio  aim");
    let place = Path::new(env!("CARGO_TARGET_TMPDIR"));
    for (name, script) in [
        ("check: nothing", "false"),
        ("check: reads all", "cat */*.txt > /dev/null; false"),
    ] {
        let project = Project::new(place, script);
        project.run();
        let (mut without, mut with) = (Vec::new(), Vec::new());
        for round in project.rounds() {
            without.push(round.whole - round.snapshot);
            with.push(round.whole);
        }
        print(&format!("round, {name}"), &mut without, &mut with, "1.3");
    }
    library(place);
}

/// The snapshots alone.
fn library(place: &Path) {
    let folder = TempDir::with_prefix_in("bench-", place).unwrap();
    let workspace = folder.path().join("workspace");
    let begun = Instant::now();
    make_files(&workspace);
    Command::new("sync")
        .arg("-f")
        .arg(&workspace)
        .status()
        .unwrap();
    let writing = milliseconds(begun);
    let walk = || {
        let begun = Instant::now();
        let mut find = Command::new("find");
        find.arg(&workspace).args(["-printf", "%s %T@ %C@ %i\\n"]);
        find.stdout(Stdio::null()).status().unwrap();
        milliseconds(begun)
    };
    let mut walks: Vec<f64> = (0..ROUNDS).map(|_| walk()).collect();
    let mut taker = SnapshotTaker::open(folder.path()).unwrap();
    let mut take = || {
        let begun = Instant::now();
        taker.take().unwrap();
        milliseconds(begun)
    };
    print(
        "first / writing the files",
        &mut [writing],
        &mut [take()],
        "",
    );
    take();
    let mut unchanged: Vec<f64> = (0..ROUNDS).map(|_| take()).collect();
    print("unchanged / find", &mut walks, &mut unchanged, "");
    let changed = (0..ROUNDS).map(|round| {
        fs::write(workspace.join("f0/0.txt"), format!("round {round}")).unwrap();
        take()
    });
    print(
        "one changed / find",
        &mut walks,
        &mut changed.collect::<Vec<_>>(),
        "",
    );
}

fn milliseconds(begun: Instant) -> f64 {
    begun.elapsed().as_secs_f64() * 1000.0
}

fn print(name: &str, baseline: &mut [f64], measured: &mut [f64], aim: &str) {
    let [baseline, measured] = [baseline, measured].map(median);
    let ratio = measured / baseline;
    println!("{name:<46}{baseline:>8.1}{measured:>9.1}{ratio:>8.2}  {aim}");
}

fn median(samples: &mut [f64]) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn make_files(folder: &Path) {
    for number in 0..FOLDERS {
        let folder = folder.join(format!("f{number}"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES_IN_EACH {
            let text = format!("{number} {file}\n").repeat(20);
            fs::write(folder.join(format!("{file}.txt")), text).unwrap();
        }
    }
}

/// The times of a round.
struct RoundTimes {
    whole: f64,
    snapshot: f64,
}

struct Project {
    folder: TempDir,
}

impl Project {
    fn new(place: &Path, check: &str) -> Project {
        let folder = TempDir::with_prefix_in("bench-", place).unwrap();
        let root = folder.path().join("root");
        make_files(&root.join("starter"));
        for round in 0..=ROUNDS {
            let answer = root.join(format!("template/{round}/f7"));
            fs::create_dir_all(&answer).unwrap();
            fs::write(answer.join("7.txt"), format!("{round}\n")).unwrap();
        }
        let command = json!(["sh", "-c", check]);
        let spec = format!(
            "name: bench\ndescription: Write the answer.\nbaseline: false\nstuck_after: 0\nmax_retries: {ROUNDS}\n\
             workspace: {{copy: [{{from: starter, to: .}}]}}\nchecks: [{{name: never, command: {command}}}]\n\
             generator: {{provider: template, template: template/}}\n"
        );
        fs::write(root.join("spec.yaml"), spec).unwrap();
        Project { folder }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn run(&self) {
        let mut command = Command::new(BINARY);
        command
            .args(["run", "--spec", "spec.yaml"])
            .current_dir(self.root())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        assert_eq!(command.status().unwrap().code(), Some(1));
    }

    /// The rounds of the run but the first, which reads what the run took in.
    fn rounds(&self) -> Vec<RoundTimes> {
        let state: Value =
            serde_json::from_slice(&fs::read(self.root().join("state.json")).unwrap()).unwrap();
        let log = format!("logs/{}.log", state["run_id"].as_str().unwrap());
        let text = fs::read_to_string(self.root().join(log)).unwrap();
        let (mut begun, mut output, mut snapshot) = (None, None, 0.0);
        let mut rounds = Vec::new();
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            let time = DateTime::parse_from_rfc3339(line["ts"].as_str().unwrap()).unwrap();
            match line["event"].as_str().unwrap() {
                "ScriptOutput" => output = Some(time),
                "SnapshotKept" => snapshot = output.map_or(0.0, |output| between(output, time)),
                "TransitionOccurred" if line["to_state"] == "TESTING" => {
                    if let Some(begun) = begun {
                        let whole = between(begun, time);
                        rounds.push(RoundTimes { whole, snapshot });
                    }
                    begun = Some(time);
                }
                _ => {}
            }
        }
        rounds.split_off(1)
    }
}

fn between(from: DateTime<FixedOffset>, to: DateTime<FixedOffset>) -> f64 {
    (to - from).num_milliseconds() as f64
}
