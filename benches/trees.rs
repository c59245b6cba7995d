//! Cost of large trees of the user's files. Run it with `cargo bench --bench trees`.
//!
//! Nothing is asserted. `TREE_FILES` sets the number of files (20,000; 200,000 is the other number of interest). Rows,
//! in milliseconds, first on the disk of the target folder, then in `/dev/shm`, where not every change of a file changes
//! its times, so that contents are compared:
//!
//! - *copy in*: protected files are placed and made durable, against `cp -r` and `sync -f`. The aim is 1.3.
//! - *first snapshot*: all of them are stored, against the same.
//! - *comparing*: a round with protected files, against one in which the same files are only copied; the aim is that it
//!   takes at most 50 ms more for 20,000 files.
//! - *round*: the round with protected files, against `find` with the metadata of each file, which is the least that a
//!   walk costs. A round has two.
//! - *memory*: the peak of the run in MB; the aim is 200 for 200,000 files.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

#[path = "support/run.rs"]
mod run;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use orchestrator::internals::snapshots::SnapshotTaker;
use orchestrator::internals::trees::TreeCopy;
use run::{peak, times};
use support::{Pairs, cost};
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
const FILES_IN_EACH: usize = 100;
const ROUNDS: usize = 8;
const COPIES: usize = 3;
const WIDTH: usize = 30;

fn main() {
    let files = std::env::var("TREE_FILES").ok();
    let files = files.map_or(20_000, |files| files.parse().unwrap());
    println!("{files} files                   baseline measured   ratio    more     p10  aim");
    for place in [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"] {
        println!("{place}");
        let folder = TempDir::with_prefix_in("bench-", place).unwrap();
        let given = folder.path().join("given");
        make_files(&given, files);
        copies(folder.path(), &given);
        rounds(folder.path(), &given);
    }
}

/// Everything that happens once in a run.
fn copies(folder: &Path, given: &Path) {
    let [mut placed, mut stored] = [Pairs::default(), Pairs::default()];
    for _ in 0..COPIES {
        let copy = folder.join("copy");
        let [plain, _] = cost(|| {
            run(Command::new("cp").arg("-r").arg(given).arg(&copy));
            run(Command::new("sync").arg("-f").arg(&copy));
        });
        fs::remove_dir_all(&copy).unwrap();
        let Project { root } = Project::new(folder, given, "protect");
        let tree = TreeCopy::open(&root, &root.join("spec.yaml")).unwrap();
        let [placing, _] = cost(|| tree.copy_in().unwrap());
        placed.add(plain, placing);
        let mut taker = SnapshotTaker::open(&root).unwrap();
        let [storing, _] = cost(|| assert_ne!(taker.take().unwrap(), 0));
        stored.add(plain, storing);
        fs::remove_dir_all(&root).unwrap();
    }
    placed.print(WIDTH, "copy in / cp -r, sync", "1.3");
    stored.print(WIDTH, "first snapshot / cp -r, sync", "");
}

/// What each round costs.
fn rounds(folder: &Path, given: &Path) {
    let [copied, protected] = ["copy", "protect"].map(|role| Project::new(folder, given, role));
    copied.run();
    let peak = protected.run();
    let walk = || {
        let mut find = Command::new("find");
        find.arg(given).args(["-printf", "%s %T@ %C@ %i\\n"]);
        let [elapsed, _] = cost(|| run(&mut find));
        elapsed
    };
    let [mut comparing, mut whole] = [Pairs::default(), Pairs::default()];
    for (plain, round) in copied.rounds().into_iter().zip(protected.rounds()) {
        comparing.add(plain, round);
        whole.add(walk(), round);
    }
    comparing.print(WIDTH, "comparing: protected / copied", "50 more");
    whole.print(WIDTH, "round / find", "");
    println!("{:<WIDTH$}{peak:>18.1}", "memory, MB");
}

fn run(command: &mut Command) {
    let status = command.stdout(Stdio::null()).status().unwrap();
    assert!(status.success());
}

fn make_files(folder: &Path, files: usize) {
    for number in 0..files / FILES_IN_EACH {
        let folder = folder.join(format!("f{number}"));
        fs::create_dir_all(&folder).unwrap();
        for file in 0..FILES_IN_EACH {
            let text = format!("{number} {file} {:260}\n", "");
            fs::write(folder.join(format!("{file}.txt")), &text[..260]).unwrap();
        }
    }
}

/// A project whose check does nothing and fails, and whose template changes one file in each round.
struct Project {
    root: PathBuf,
}

impl Project {
    fn new(folder: &Path, given: &Path, role: &str) -> Project {
        let root = folder.join(role);
        for round in 0..=ROUNDS {
            let answer = root.join(format!("template/{round}"));
            fs::create_dir_all(&answer).unwrap();
            fs::write(answer.join("answer.txt"), format!("{round}\n")).unwrap();
        }
        let given = given.display();
        let spec = format!(
            "name: bench\ndescription: Write the answer.\nbaseline: false\nstuck_after: 0\nmax_retries: {ROUNDS}\n\
             workspace: {{{role}: [{{from: {given}, to: given}}]}}\nchecks: [{{name: never, command: ['false']}}]\n\
             generator: {{provider: template, template: template/}}\n"
        );
        fs::write(root.join("spec.yaml"), spec).unwrap();
        Project { root }
    }

    /// Runs to the end; returns the peak of memory in MB.
    fn run(&self) -> f64 {
        let mut command = Command::new(BINARY);
        command
            .args(["run", "--spec", "spec.yaml"])
            .current_dir(&self.root)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.root)
            .env("TMPDIR", &self.root)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let (peak, status) = peak(&mut command);
        assert_eq!(status.code(), Some(1));
        peak
    }

    /// The milliseconds from one TESTING to the next, but for the first round, which reads what the run took in.
    fn rounds(&self) -> Vec<f64> {
        let times = times(&self.root, |line| line["to_state"] == "TESTING");
        let between = times
            .windows(2)
            .map(|pair| (pair[1] - pair[0]).num_milliseconds() as f64);
        between.skip(1).collect()
    }
}
