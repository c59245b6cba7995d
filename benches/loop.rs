//! Overhead of the build loop. Run it with `cargo bench --bench loop`; it takes about a minute.
//!
//! Nothing is asserted. Machines and disks are noisy: each row compares a measurement with a baseline that is measured
//! in alternation, and shows both medians, the median of their ratios, the median and the 10th percentile of their
//! differences, and the target difference. The rows:
//!
//! - *cold start*, *status*: start and end of the binary, against `/bin/true`; `status` in a root with a
//!   finished run.
//! - `supervisor`: `process::run` of `/bin/true` under the supervisor, against plain spawning and waiting.
//! - *iteration*: patch and test once, with prepared answers (template) or with a model on a loopback socket (http),
//!   as (a run of 50 retries - a run of 1 retry) / 49. The baseline does only the necessary work: it starts and
//!   waits for the same check, makes the same request, and writes and syncs the same files. The difference is our
//!   overhead. "no sync": the same baseline without syncs, which shows the cost of durability. "processor": CPU
//!   time, which is less affected by other load. "memory": everything in /dev/shm, where a sync costs nothing.
//! - *growth*: the last ten iterations of a run of 50 retries against the first ten, by the timestamps of the log.
//! - *peak*: the orchestrator's own peak memory in MB (VmHWM, read every millisecond until its end), with 50 retries
//!   against 1; the difference is the growth over 49 iterations.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::{self, Job, JobChannels, Launcher};
use serde_json::json;
use tempfile::TempDir;

#[path = "support/model.rs"]
mod model;
#[path = "support/run.rs"]
mod run;
mod support;

use model::{Server, streamed};
use run::{peak, state, times};
use support::{Pairs, cost};

/// The column of names in the table.
const NAME_WIDTH: usize = 46;
const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
const CHECK: &str = "/bin/false";
const STARTS: usize = 100;
const RUNS: usize = 5;
const MANY: usize = 50;
/// Sizes of `state.json` and of the log lines of a check, a request or an answer.
const STATE_SIZE: usize = 1000;
const LOG_SIZE: usize = 1800;
const HEAD: &str =
    "                                             baseline measured   ratio    more     p10  aim";

fn main() {
    println!("ms{HEAD}");
    let [disk, memory] = [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"].map(Path::new);
    starts(disk);
    for (name, place) in [("disk", disk), ("memory", memory)]
        .into_iter()
        .filter(|(_, place)| place.is_dir())
    {
        iterations(&format!("template, {name}"), place, None);
        iterations(
            &format!("http, {name}"),
            place,
            Some(&Server::start(answer())),
        );
    }
    println!("\nMB{HEAD}");
    peaks("template", disk, None);
    peaks("http", disk, Some(&Server::start(answer())));
}

/// Cold start, `status` and the supervisor, each against a plain `/bin/true`.
fn starts(place: &Path) {
    let project = Project::new(place, None);
    project.run(1);
    let launcher = Launcher::open(Path::new(BINARY));
    let (command, timeout) = (vec!["/bin/true".into()], Duration::from_secs(60));
    let job = Job {
        command,
        cwd: project.root(),
        env: Vec::new(),
        timeout,
    };
    let stop = CancelToken::never().unwrap();
    let [mut version, mut status, mut supervisor] = [(); 3].map(|()| Pairs::default());
    for _ in 0..STARTS {
        let [floor, _] = cost(|| finish(&mut Command::new("/bin/true")));
        version.add(
            floor,
            cost(|| finish(&mut project.command(&["--version"])))[0],
        );
        status.add(floor, cost(|| finish(&mut project.command(&["status"])))[0]);
        supervisor.add(
            floor,
            cost(|| drop(process::run(&launcher, &job, JobChannels::NONE, &stop).unwrap()))[0],
        );
    }
    version.print(NAME_WIDTH, "cold start (--version) / true", "more < 5");
    status.print(NAME_WIDTH, "status / true", "more < 5");
    supervisor.print(NAME_WIDTH, "supervisor around true / true", "");
}

fn finish(command: &mut Command) {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

/// One iteration of the loop against its baseline, and the last ones of a run against the first.
fn iterations(name: &str, place: &Path, server: Option<&Server>) {
    let project = Project::new(place, server);
    // The first run warms up and gives the server an example of a request.
    project.run(1);
    let mut floor = Floor::new(place, server);
    let [mut own, mut with_syncs, mut processor, mut growth] = [(); 4].map(|()| Pairs::default());
    for _ in 0..RUNS {
        let (unsynced, synced) = (floor.per_iteration(false), floor.per_iteration(true));
        let many = cost(|| project.run(MANY));
        let (first, last) = project.first_and_last();
        growth.add(first, last);
        let one = cost(|| project.run(1));
        let [clock, cpu] = [0, 1].map(|unit| (many[unit] - one[unit]) / (MANY - 1) as f64);
        own.add(synced[0], clock);
        with_syncs.add(unsynced[0], clock);
        processor.add(synced[1], cpu);
    }
    own.print(
        NAME_WIDTH,
        &format!("iteration, {name} / floor"),
        "more < 2",
    );
    with_syncs.print(
        NAME_WIDTH,
        &format!("iteration, {name} / floor, no sync"),
        "",
    );
    processor.print(
        NAME_WIDTH,
        &format!("iteration, {name} / floor, processor"),
        "",
    );
    growth.print(NAME_WIDTH, &format!("growth, {name}: 41-50 / 1-10"), "");
}

fn peaks(name: &str, place: &Path, server: Option<&Server>) {
    let project = Project::new(place, server);
    let mut peaks = Pairs::default();
    for _ in 0..3 {
        peaks.add(project.peak(1), project.peak(MANY));
    }
    peaks.print(
        NAME_WIDTH,
        &format!("peak, {name}: 50 retries / 1"),
        "measured < 20",
    );
}

/// A root whose check never passes, so that a run takes exactly as many iterations as it has retries.
struct Project {
    folder: TempDir,
    url: String,
}

impl Project {
    fn new(place: &Path, server: Option<&Server>) -> Project {
        let folder = TempDir::with_prefix_in("bench-", place).unwrap();
        let root = folder.path().join("root");
        for round in 0..=MANY {
            let answer = root.join(format!("template/{round}"));
            fs::create_dir_all(&answer).unwrap();
            fs::write(answer.join("answer.txt"), format!("{round}\n")).unwrap();
        }
        let generator = server.map_or(
            "{provider: template, template: template/}",
            |_| "{provider: anthropic}",
        );
        let check = format!("checks: [{{name: never, command: [{CHECK}]}}]");
        let spec = format!(
            "name: bench\ndescription: Write the answer.\n{check}\ngenerator: {generator}\n"
        );
        fs::write(root.join("spec.yaml"), spec).unwrap();
        Project {
            folder,
            url: server
                .map(|server| format!("http://{}", server.address))
                .unwrap_or_default(),
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(BINARY);
        command
            .args(arguments)
            .current_dir(self.root())
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        command
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path());
        command
            .env("ANTHROPIC_API_KEY", "sk-bench-q7Rk2ZpLx0")
            .env("ANTHROPIC_BASE_URL", &self.url);
        command
    }

    fn build(&self, retries: usize) -> Command {
        self.command(&[
            "run",
            "--spec",
            "spec.yaml",
            "--no-resume",
            "--max-retries",
            &retries.to_string(),
        ])
    }

    fn run(&self, retries: usize) {
        finish(&mut self.build(retries));
        assert_eq!(
            state(&self.root())["retry_count"],
            retries,
            "{}",
            state(&self.root())
        );
    }

    /// The peak memory of a run.
    fn peak(&self, retries: usize) -> f64 {
        let mut command = self.build(retries);
        peak(command.stdout(Stdio::null()).stderr(Stdio::null())).0
    }

    /// The time of an iteration in the first ten and in the last ten of the last run with many retries.
    fn first_and_last(&self) -> (f64, f64) {
        let begun = times(&self.root(), |line| {
            line["event"] == "TransitionOccurred" && line["to_state"] == "TESTING"
        });
        let mean = |from: usize| (begun[from + 10] - begun[from]).num_milliseconds() as f64 / 10.0;
        (mean(0), mean(MANY - 10))
    }
}

/// The necessary work of an iteration.
struct Floor {
    folder: TempDir,
    journal: File,
    /// A connection to the model that is kept open, and the request that goes over it.
    line: Option<(TcpStream, Vec<u8>)>,
}

impl Floor {
    fn new(place: &Path, server: Option<&Server>) -> Floor {
        let folder = TempDir::with_prefix_in("floor-", place).unwrap();
        fs::create_dir(folder.path().join("workspace")).unwrap();
        let journal = OpenOptions::new()
            .append(true)
            .create(true)
            .open(folder.path().join("log"))
            .unwrap();
        Floor {
            folder,
            journal,
            line: server.map(Server::connect),
        }
    }

    fn per_iteration(&mut self, syncs: bool) -> [f64; 2] {
        cost(|| (1..MANY).for_each(|_| self.iterate(syncs))).map(|sum| sum / (MANY - 1) as f64)
    }

    /// Sends the request and stores the answer, where there is a model; writes a file, saves the state, checks, saves again.
    fn iterate(&mut self, syncs: bool) {
        if self.line.is_some() {
            self.append(syncs);
            self.ask();
            self.append(syncs);
            self.replace("state.json", STATE_SIZE, syncs);
        }
        self.replace("workspace/answer.txt", 3, syncs);
        self.replace("state.json", STATE_SIZE, syncs);
        finish(&mut Command::new(CHECK));
        self.append(false);
        self.replace("state.json", STATE_SIZE, syncs);
    }

    fn ask(&mut self) {
        if let Some((stream, request)) = &mut self.line {
            stream.write_all(request).unwrap();
            stream.read_exact(&mut answer()).unwrap();
        }
    }

    fn append(&mut self, syncs: bool) {
        self.journal.write_all(&[b'x'; LOG_SIZE]).unwrap();
        assert!(!syncs || self.journal.sync_data().is_ok());
    }

    /// Replaces a file whole: a temporary file, its sync, a rename, the sync of the folder.
    fn replace(&self, name: &str, size: usize, syncs: bool) {
        let path = self.folder.path().join(name);
        let temporary = path.with_extension("tmp");
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&vec![b'x'; size]).unwrap();
        if syncs {
            file.sync_all().unwrap();
        }
        fs::rename(&temporary, &path).unwrap();
        if syncs {
            File::open(path.parent().unwrap())
                .unwrap()
                .sync_all()
                .unwrap();
        }
    }
}

/// The answer of the model: one file.
fn answer() -> Vec<u8> {
    let text = "<file path=\"answer.txt\">\n42\n</file>\n";
    let block = json!({"type": "text", "text": ""});
    let delta = json!({"type": "text_delta", "text": text});
    let message = json!({"usage": {"input_tokens": 9, "output_tokens": 1}});
    streamed(&[
        json!({"type": "message_start", "message": message}),
        json!({"type": "content_block_start", "index": 0, "content_block": block}),
        json!({"type": "content_block_delta", "index": 0, "delta": delta}),
        json!({"type": "content_block_stop", "index": 0}),
        json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}}),
        json!({"type": "message_stop"}),
    ])
}
