//! Overhead of the environments, measured through the pipes of `serve` as a client does. Run
//! it with `cargo bench --bench environments`; it takes about a minute.
//!
//! Nothing is asserted. Each row compares a measurement with a baseline that is measured in alternation: both medians
//! and the median of their ratios; both 10th percentiles and their ratio, which are less affected by other load; and
//! the target. Every measurement includes the JSON of request and answer and all three screens; the baselines have
//! neither. The rows:
//!
//! - *bash true*: against the same command with an `echo` behind it, written to a bare bash and read back from its
//!   pipe; and, where Python has the package `pexpect`, against its `replwrap` without the 50 ms that it sleeps before
//!   it sends. Blocks of round trips alternate: an agent sends its commands to one server, and one that alternates with
//!   another program finds every cache and processor cold.
//! - *bash /bin/true*: a program that does nothing, against the same in a bare bash; also while a background job runs.
//! - *python 1+1*: against a loop of `exec` in a bare interpreter, in blocks, too.
//! - *9 MB*: the output of one command, `cat` of a file and `seq`, which generates its lines; the baseline reads it
//!   from the pipe of a bare bash.
//! - *1 GB*: the same for output above the limit, in MB per second; more is better. Below it the server's own
//!   peak memory in MB (VmHWM), after the flood against before. `-- --flood-gb 10` makes it ten times as long.
//! - *screen*: `true` where the editor shows five views of 1,000 lines against `true` without views.
//! - *search*: the editor's search over 5,000 cached files against `rg`, where that is on PATH.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde_json::json;
use tempfile::TempDir;

const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
const ROUND_TRIPS: usize = 50;
const BLOCKS: usize = 20;
const OUTPUTS: usize = 40;
const FLOODS: usize = 3;
const SCREENS: usize = 200;
const SEARCHES: usize = 40;

const PYTHON_LOOP: &str = "import sys\nnames = {}\nfor line in sys.stdin.buffer: exec(compile(line, 'line', 'single'), names)";
const PEXPECT_LOOP: &str = "\
import sys, time
from pexpect import replwrap
shell = replwrap.bash()
shell.child.delaybeforesend = None
for _ in sys.stdin:
    begun = time.perf_counter()
    shell.run_command('true')
    print((time.perf_counter() - begun) * 1000, flush=True)
";
const FLOOD: &str = "yes 'a line of a flood, as long as lines of programs usually are' | head -c";

fn main() {
    let folder = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR")).unwrap();
    println!(
        "{:<34}|       median           |  10th percentile       |",
        ""
    );
    println!(
        "{:<34}| base  measured   ratio | base  measured   ratio | aim",
        "ms"
    );
    bash(folder.path());
    programs(folder.path());
    python(folder.path());
    outputs(folder.path());
    screens(folder.path());
    searches(folder.path());
    flood(folder.path());
}

/// Samples of a baseline and of the measurement, taken in alternation.
#[derive(Default)]
struct Pairs(Vec<(f64, f64)>);

impl Pairs {
    fn add(&mut self, baseline: f64, measured: f64) {
        self.0.push((baseline, measured));
    }

    fn add_all(&mut self, baseline: &[f64], measured: &[f64]) {
        let pairs = baseline.iter().zip(measured);
        self.0
            .extend(pairs.map(|(baseline, measured)| (*baseline, *measured)));
    }

    fn print(&self, name: &str, aim: &str) {
        let mut row = format!("{name:<34}");
        for share in [0.5, 0.1] {
            let [baseline, measured] = [
                self.quantile(share, |pair| pair.0),
                self.quantile(share, |pair| pair.1),
            ];
            let ratio = if share < 0.5 {
                measured / baseline
            } else {
                self.quantile(share, |pair| pair.1 / pair.0)
            };
            let _ = write!(row, "|{baseline:>7.3}{measured:>9.3}{ratio:>8.2}");
        }
        println!("{row}| {aim}");
    }

    fn quantile(&self, share: f64, value: fn(&(f64, f64)) -> f64) -> f64 {
        let mut sorted: Vec<f64> = self.0.iter().map(value).collect();
        sorted.sort_by(f64::total_cmp);
        sorted[((sorted.len() - 1) as f64 * share).round() as usize]
    }
}

/// The times of one block of round trips.
fn block(round_trip: impl FnMut() -> f64) -> Vec<f64> {
    std::iter::repeat_with(round_trip)
        .take(ROUND_TRIPS)
        .collect()
}

/// Elapsed milliseconds.
fn cost(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1000.0
}

fn bash(project: &Path) {
    let (mut raw, mut server) = (Peer::bash(project), Peer::server(project));
    let has_pexpect = is_there(Command::new("python3").args(["-c", "import pexpect.replwrap"]));
    let mut pexpect =
        has_pexpect.then(|| Peer::start(Command::new("python3").args(["-c", PEXPECT_LOOP])));
    let [mut bare, mut usual] = [(); 2].map(|()| Pairs::default());
    server.command("bash", "true");
    for _ in 0..BLOCKS {
        let baseline = block(|| cost(|| drop(raw.shell("true"))));
        let measured = block(|| cost(|| drop(server.command("bash", "true"))));
        bare.add_all(&baseline, &measured);
        if let Some(pexpect) = &mut pexpect {
            let baseline = block(|| pexpect.ask("\n", "\n").trim().parse().unwrap());
            usual.add_all(&baseline, &measured);
        }
    }
    bare.print("bash true / bare bash", "measured <= 0.13");
    if pexpect.is_some() {
        usual.print("bash true / pexpect", "ratio < 1");
    }
}

fn programs(project: &Path) {
    let (mut raw, mut server, mut busy) = (
        Peer::bash(project),
        Peer::server(project),
        Peer::server(project),
    );
    server.command("bash", "true");
    busy.command("bash", "sleep 1000 &");
    let [mut alone, mut beside] = [(); 2].map(|()| Pairs::default());
    for _ in 0..BLOCKS {
        let baseline = block(|| cost(|| drop(raw.shell("/bin/true"))));
        let measured = block(|| cost(|| drop(server.command("bash", "/bin/true"))));
        alone.add_all(&baseline, &measured);
        let measured = block(|| cost(|| drop(busy.command("bash", "/bin/true"))));
        beside.add_all(&baseline, &measured);
    }
    alone.print("bash /bin/true / bare bash", "");
    beside.print("the same beside a background job", "");
}

/// Whether an optional program is there.
fn is_there(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

fn python(project: &Path) {
    let mut raw = Peer::start(Command::new("python3").args(["-uc", PYTHON_LOOP]));
    let mut server = Peer::server(project);
    let mut pairs = Pairs::default();
    server.command("python", "1+1");
    for _ in 0..BLOCKS {
        let baseline = block(|| cost(|| drop(raw.ask("1+1\n", "2\n"))));
        let measured = block(|| cost(|| drop(server.command("python", "1+1"))));
        pairs.add_all(&baseline, &measured);
    }
    pairs.print("python 1+1 / bare python", "ratio <= 2");
}

fn outputs(project: &Path) {
    let lines: String = (0..112_500)
        .map(|number| format!("{number:>9} {:>69}\n", "what a program prints"))
        .collect();
    fs::write(project.join("nine"), lines).unwrap();
    for (name, command) in [("cat", "cat nine"), ("seq", "seq 100000000 100900000")] {
        let (mut raw, mut server) = (Peer::bash(project), Peer::server(project));
        let mut pairs = Pairs::default();
        server.command("bash", "true");
        for _ in 0..OUTPUTS {
            let (mut expected, mut got) = (0, 0);
            let baseline = cost(|| expected = raw.shell(command).len());
            pairs.add(
                baseline,
                cost(|| got = server.command("bash", command).len()),
            );
            assert!(expected < got, "{name} came cut: {got} of {expected}");
        }
        pairs.print(&format!("9 MB of {name} / bare bash"), "ratio <= 1.5");
    }
}

fn screens(project: &Path) {
    let (mut empty, mut full) = (Peer::server(project), Peer::server(project));
    for view in 0..5 {
        let lines: String = (0..2000)
            .map(|line| format!("    let value_{line} = compute(line, {view});\n"))
            .collect();
        fs::write(project.join(format!("{view}.rs")), lines).unwrap();
        full.command(
            "editor",
            &format!("view {view}.rs /value_500 / /value_1499 /"),
        );
    }
    let mut pairs = Pairs::default();
    empty.command("bash", "true");
    let shown = full.command("bash", "true").matches("let value_").count();
    assert_eq!(shown, 5000, "lines on the screen");
    for _ in 0..SCREENS {
        let baseline = cost(|| drop(empty.command("bash", "true")));
        pairs.add(baseline, cost(|| drop(full.command("bash", "true"))));
    }
    pairs.print("screen of 5 x 1000 lines / none", "1 ms more");
}

fn searches(project: &Path) {
    if !is_there(Command::new("rg").arg("--version")) {
        return println!("{:<34}| no rg on PATH", "search in 5,000 files / rg");
    }
    let tree = project.join("tree");
    for number in 0..5000 {
        let folder = tree.join(format!("{:02}/{}", number / 100, number / 10 % 10));
        fs::create_dir_all(&folder).unwrap();
        let mut text: String = (0..100)
            .map(|line| format!("fn function_{line}(input: &str) -> {number} {{\n"))
            .collect();
        if number % 10 == 0 {
            let _ = writeln!(text, "    needle_{number}();");
        }
        fs::write(folder.join(format!("{number}.rs")), text).unwrap();
    }
    let mut server = Peer::server(&tree);
    let found = server
        .command("editor", r#"search "needle_[0-9]+""#)
        .matches("needle_")
        .count();
    assert_eq!(found, 500, "matches");
    let mut pairs = Pairs::default();
    for _ in 0..SEARCHES {
        let baseline = cost(|| {
            drop(
                Command::new("rg")
                    .args(["-n", "needle_[0-9]+"])
                    .current_dir(&tree)
                    .output(),
            )
        });
        pairs.add(
            baseline,
            cost(|| drop(server.command("editor", r#"search "needle_[0-9]+""#))),
        );
    }
    pairs.print("search in 5,000 files / rg", "ratio < 1.5");
}

/// The size of the flood in GB, the argument behind `--flood-gb`.
fn flood_size() -> u64 {
    let mut arguments = std::env::args().skip_while(|argument| argument != "--flood-gb");
    arguments.nth(1).map_or(1, |size| size.parse().unwrap())
}

fn flood(project: &Path) {
    let size = flood_size();
    let command = format!("{FLOOD} {size}000000000");
    let [mut speed, mut peak] = [(); 2].map(|()| Pairs::default());
    for _ in 0..FLOODS {
        let baseline = cost(|| {
            let mut child = Command::new("bash")
                .args(["-c", &command])
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            let (mut pipe, mut chunk) = (child.stdout.take().unwrap(), [0; CHUNK]);
            while 0 < pipe.read(&mut chunk).unwrap() {}
            child.wait().unwrap();
        });
        let mut server = Peer::server(project);
        server.command("bash", "true");
        let before = server.peak();
        let measured = cost(|| drop(server.command("bash", &command)));
        let megabytes = size as f64 * 1e6;
        speed.add(megabytes / baseline, megabytes / measured);
        peak.add(before, server.peak());
    }
    println!(
        "\n{:<34}| base  measured   ratio | base  measured   ratio | aim",
        "MB/s"
    );
    speed.print(&format!("{size} GB flood / bare bash"), "");
    println!(
        "\n{:<34}| base  measured   ratio | base  measured   ratio | aim",
        "MB"
    );
    peak.print("peak of serve after it / before", "measured < 30");
}

/// A program with requests on its stdin and answers on its stdout.
struct Peer {
    child: Child,
    /// Dropped at the end, which gives the program EOF.
    input: Option<ChildStdin>,
    output: ChildStdout,
}

const CHUNK: usize = 64 * 1024;

impl Peer {
    fn start(command: &mut Command) -> Peer {
        let command = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Peer {
            child,
            input,
            output,
        }
    }

    fn bash(folder: &Path) -> Peer {
        Peer::start(
            Command::new("bash")
                .args(["--norc", "--noprofile"])
                .current_dir(folder),
        )
    }

    fn server(project: &Path) -> Peer {
        Peer::start(
            Command::new(BINARY)
                .arg("serve")
                .arg("--project-dir")
                .arg(project),
        )
    }

    /// Sends text and returns the answer up to `end`, after which nothing must follow.
    fn ask(&mut self, text: &str, end: &str) -> String {
        self.input
            .as_mut()
            .unwrap()
            .write_all(text.as_bytes())
            .unwrap();
        let (mut answer, mut chunk) = (Vec::new(), [0; CHUNK]);
        while !answer.ends_with(end.as_bytes()) {
            let count = self.output.read(&mut chunk).unwrap();
            assert!(0 < count, "it is gone");
            answer.extend_from_slice(&chunk[..count]);
        }
        String::from_utf8(answer).unwrap()
    }

    /// Runs a command in a bare shell.
    fn shell(&mut self, command: &str) -> String {
        self.ask(
            &format!("{command}; echo the-end-of-it\n"),
            "the-end-of-it\n",
        )
    }

    /// Runs a command in an environment of a server.
    fn command(&mut self, environment: &str, command: &str) -> String {
        let request = json!({"type": "command", "environment": environment, "command": command});
        let answer = self.ask(&format!("{request}\n"), "\n");
        assert!(
            answer.contains(r#""success":true"#),
            "{command}: {answer:.300}"
        );
        answer
    }

    /// The peak memory so far, in MB.
    fn peak(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let peak = status
            .lines()
            .find_map(|line| line.strip_prefix("VmHWM:"))
            .unwrap();
        peak.trim().trim_end_matches(" kB").parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.input = None;
        let _ = self.child.wait();
    }
}
