//! Overhead of agent mode. Run it with `cargo bench --bench agent`; it takes about a minute.
//!
//! Nothing is asserted. Each row compares a measurement with a baseline that is measured in alternation, and shows both
//! medians, the median of their ratios, the median and the 10th percentile of their differences, and the target. The rows:
//!
//! - *turn*: a turn with one call of bash (`true`), as (a run of 110 turns - a run of 10) / 100, with a model on a loopback
//!   socket. The baseline does only the necessary work: it makes the same request, runs the same command in a
//!   living bash, and appends two pairs of lines to a file, with a sync after each pair. The difference is our own time.
//!   "processor": CPU time, which is less affected by other load. "memory": everything in /dev/shm, where a sync
//!   costs nothing.
//! - *growth*: turns 491-500 of a run against turns 1-10, by the timestamps of the log. The request of the last turns is
//!   some twenty times as long.
//! - *peak*: the orchestrator's own peak memory in MB (VmHWM, read every millisecond until its end), against a run of 10
//!   turns that print nothing. Of a check and of a call 10 MB of output are kept; an answer of 1 MB is in the conversation.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

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
const RUNS: usize = 5;
const FEW: usize = 10;
const MANY: usize = 110;
const LONG: usize = 500;
/// Sizes of the two lines that a sync covers: an answer and the start of its call, a result and the next request.
const LINES_SIZE: usize = 900;
const HEAD: &str =
    "                                             baseline measured   ratio    more     p10  aim";
const FLOOD: &str = "yes 'a line of a flood, as long as lines usually are' | head -c 1000000000";

fn main() {
    println!("ms{HEAD}");
    let [disk, memory] = [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"].map(Path::new);
    for (name, place) in [("disk", disk), ("memory", memory)]
        .into_iter()
        .filter(|(_, place)| place.is_dir())
    {
        turns(name, place);
    }
    println!("\nMB{HEAD}");
    peaks(disk);
}

/// A turn against its baseline, and the last turns of a long run against its first.
fn turns(name: &str, place: &Path) {
    let project = Project::new(place, "true");
    let script = Script::calling("true");
    // The first run warms up and gives the server an example of a request.
    project.run(MANY / 2, &script);
    let mut floor = Floor::new(place, &project.server);
    let [mut own, mut processor, mut growth] = [(); 3].map(|()| Pairs::default());
    for _ in 0..RUNS {
        let baseline = floor.per_turn(MANY - FEW);
        let many = cost(|| project.run(MANY, &script));
        let few = cost(|| project.run(FEW, &script));
        let [clock, cpu] = [0, 1].map(|unit| (many[unit] - few[unit]) / (MANY - FEW) as f64);
        own.add(baseline[0], clock);
        processor.add(baseline[1], cpu);
        project.run(LONG, &script);
        let (first, last) = project.first_and_last();
        growth.add(first, last);
    }
    own.print(NAME_WIDTH, &format!("turn, {name} / floor"), "more < 1");
    processor.print(NAME_WIDTH, &format!("turn, {name} / floor, processor"), "");
    let name = format!("growth, {name}: turns 491-500 / 1-10");
    growth.print(NAME_WIDTH, &name, "ratio < 1.5");
}

fn peaks(place: &Path) {
    let quiet = Project::new(place, "true");
    let loud = Project::new(place, &format!("{FLOOD}; true"));
    let says = Script {
        text: "a line of a long answer\n".repeat(1_000_000 / 24),
        ..Script::calling("true")
    };
    let print = |name: &str, project: &Project, turns: usize, script: &Script, aim: &str| {
        let mut peaks = Pairs::default();
        for _ in 0..3 {
            let baseline = quiet.peak(FEW, &Script::calling("true"));
            peaks.add(baseline, project.peak(turns, script));
        }
        peaks.print(NAME_WIDTH, &format!("peak, {name}"), aim);
    };
    print(
        "500 turns",
        &quiet,
        LONG,
        &Script::calling("true"),
        "measured < 20",
    );
    let large = Script::calling("seq 1 10000");
    print(
        "500 turns with 16 KB each",
        &quiet,
        LONG,
        &large,
        "measured < 20",
    );
    print("an answer of 1 MB", &quiet, 1, &says, "more < 10");
    print(
        "a call that prints 1 GB",
        &quiet,
        1,
        &Script::calling(FLOOD),
        "more < 20",
    );
    print(
        "a check that prints 1 GB",
        &loud,
        1,
        &Script::calling("true"),
        "more < 20",
    );
}

/// What the model does in every turn of a run.
#[derive(Clone)]
struct Script {
    command: String,
    text: String,
}

impl Script {
    fn calling(command: &str) -> Script {
        Script {
            command: command.into(),
            text: String::new(),
        }
    }

    /// The turns of a run, newest first: calls, one that makes the check pass, and the end.
    fn answers(&self, turns: usize) -> Vec<Vec<u8>> {
        let call = |number: usize, command: &str| {
            let input = json!({"command": command}).to_string();
            answer(&self.text, Some((number, &input)))
        };
        let calls = (0..turns).map(|number| call(number, &self.command));
        let mut answers: Vec<_> = calls.collect();
        answers.push(call(turns, "echo 42 > answer.txt"));
        answers.push(answer("It is done.", None));
        answers.reverse();
        answers
    }
}

/// A call of `true`.
fn repeated_answer() -> Vec<u8> {
    Script::calling("true").answers(1).pop().unwrap()
}

/// A root in agent mode.
struct Project {
    folder: TempDir,
    server: Server,
}

impl Project {
    fn new(place: &Path, check: &str) -> Project {
        let folder = TempDir::with_prefix_in("bench-", place).unwrap();
        let root = folder.path().join("root");
        fs::create_dir(&root).unwrap();
        let check = json!([{"name": "there", "command": ["sh", "-c", format!("{check} && test -f answer.txt")]}]);
        let generator = json!({"provider": "anthropic", "mode": "agent", "max_turns": LONG + 10});
        let spec = json!({
            "name": "bench",
            "description": "Write the answer.",
            "checks": check,
            "generator": generator,
        });
        fs::write(root.join("spec.yaml"), spec.to_string()).unwrap();
        // Without prepared answers it repeats a call, for the baseline.
        let server = Server::start(repeated_answer());
        Project { folder, server }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A run with so many turns before the last two.
    fn command(&self, turns: usize, script: &Script) -> Command {
        *self.server.answers.lock().unwrap() = script.answers(turns);
        let mut command = Command::new(BINARY);
        command
            .args(["run", "--spec", "spec.yaml", "--no-resume"])
            .current_dir(self.root())
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path())
            .env("ANTHROPIC_API_KEY", "sk-bench-q7Rk2ZpLx0")
            .env(
                "ANTHROPIC_BASE_URL",
                format!("http://{}", self.server.address),
            )
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    fn run(&self, turns: usize, script: &Script) {
        self.command(turns, script).status().unwrap();
        self.assert_done();
    }

    fn assert_done(&self) {
        let left = self.server.answers.lock().unwrap().len();
        let state = state(&self.root());
        assert_eq!((state["state"].as_str(), left), (Some("SUCCESS"), 0));
    }

    /// The peak memory of a run.
    fn peak(&self, turns: usize, script: &Script) -> f64 {
        let (peak, _) = peak(&mut self.command(turns, script));
        self.assert_done();
        peak
    }

    /// The time of a turn in the first ten and in the last ten of a long run.
    fn first_and_last(&self) -> (f64, f64) {
        let begun = times(&self.root(), |line| line["event"] == "ModelRequested");
        let mean = |from: usize| (begun[from + 10] - begun[from]).num_milliseconds() as f64 / 10.0;
        // The first call starts bash.
        (mean(1), mean(LONG - 10))
    }
}

/// The necessary work of a turn.
struct Floor {
    _folder: TempDir,
    journal: File,
    shell: Child,
    commands: ChildStdin,
    replies: BufReader<ChildStdout>,
    stream: TcpStream,
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl Floor {
    fn new(place: &Path, server: &Server) -> Floor {
        let folder = TempDir::with_prefix_in("floor-", place).unwrap();
        let journal = OpenOptions::new()
            .append(true)
            .create(true)
            .open(folder.path().join("log"))
            .unwrap();
        let (stream, request) = server.connect();
        let mut shell = Command::new("bash")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Floor {
            _folder: folder,
            journal,
            commands: shell.stdin.take().unwrap(),
            replies: BufReader::new(shell.stdout.take().unwrap()),
            shell,
            stream,
            request,
            answer: repeated_answer(),
        }
    }

    fn per_turn(&mut self, turns: usize) -> [f64; 2] {
        cost(|| (0..turns).for_each(|_| self.turn())).map(|sum| sum / turns as f64)
    }

    fn turn(&mut self) {
        self.stream.write_all(&self.request).unwrap();
        let mut answer = vec![0; self.answer.len()];
        self.stream.read_exact(&mut answer).unwrap();
        self.append();
        self.commands.write_all(b"true; echo\n").unwrap();
        self.replies.read_line(&mut String::new()).unwrap();
        self.append();
    }

    fn append(&mut self) {
        self.journal.write_all(&[b'x'; LINES_SIZE / 2]).unwrap();
        self.journal.write_all(&[b'x'; LINES_SIZE / 2]).unwrap();
        self.journal.sync_data().unwrap();
    }
}

impl Drop for Floor {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

/// A streamed answer with this text, and with a call of bash with these arguments.
fn answer(text: &str, call: Option<(usize, &str)>) -> Vec<u8> {
    let mut events = vec![
        json!({"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}}),
    ];
    if !text.is_empty() {
        let block = json!({"type": "text", "text": ""});
        events.push(json!({"type": "content_block_start", "index": 0, "content_block": block}));
        for piece in text.as_bytes().chunks(100).map(String::from_utf8_lossy) {
            let delta = json!({"type": "text_delta", "text": piece});
            events.push(json!({"type": "content_block_delta", "index": 0, "delta": delta}));
        }
    }
    if let Some((number, input)) = call {
        let block = json!({"type": "tool_use", "id": format!("call-{number}"), "name": "bash", "input": {}});
        events.push(json!({"type": "content_block_start", "index": 1, "content_block": block}));
        let delta = json!({"type": "input_json_delta", "partial_json": input});
        events.push(json!({"type": "content_block_delta", "index": 1, "delta": delta}));
    }
    let stop = if call.is_some() {
        "tool_use"
    } else {
        "end_turn"
    };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}}));
    events.push(json!({"type": "message_stop"}));
    streamed(&events)
}
