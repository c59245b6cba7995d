//! Overhead of the supervisor and the sandbox: a check that does nothing (`/bin/true`) against a plain start of it. Run it
//! with `cargo bench --bench sandbox`; it takes some seconds.
//!
//! Nothing is asserted. Everything is measured in alternation, so that other load affects all alike; each row shows both
//! medians, the median of the ratios, the median and the 10th percentile of the differences, and the CPU time as a
//! multiple of that of a plain start, which is less affected by other load. The rows:
//!
//! - *plain*: a second plain start, which shows the noise.
//! - *supervisor*: `process::run` without a sandbox; *prepared*: with a supervisor that was started ahead.
//! - *full*, *reduced*: with the sandbox of a project in this folder; *prepared*: with a sandbox that was set up ahead, as
//!   while a model answers. The CPU time of a prepared one is that of its whole life.
//! - *member*: a child in shared namespaces, whose mount tree and network exist already.
//! - *probe*: the probe of the system, once per run.
//! - *policy*: computing the policy of a project, once per run.
//! - *python full*: an interpreter that does nothing in the full sandbox, against one without a sandbox.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

mod support;

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::sandbox::{
    PolicyPlan, ResourceLimits, SandboxMode, probe, sandbox_policy,
};
use orchestrator::internals::process::{
    self, CallerEnv, Job, JobChannels, JobEnd, Launcher, find_program,
};
use support::{Pairs, cost};

const ROUNDS: usize = 200;
/// Long enough for a sandbox to be set up.
const AHEAD: Duration = Duration::from_millis(30);

fn main() {
    let place = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = place.path().canonicalize().unwrap();
    let open = Launcher::open(Path::new(env!("CARGO_BIN_EXE_orchestrator")));
    let base = CallerEnv::new(env::vars_os());
    let policy = |mode: SandboxMode| {
        sandbox_policy(&PolicyPlan {
            mode,
            workspace: &place,
            root: None,
            base: &base,
            read: &[],
            originals: &[],
            freeze: &[],
            private: (mode == SandboxMode::Reduced).then_some(place.as_path()),
            devices: &[],
            network: false,
            limits: ResourceLimits::default(),
        })
    };
    let [full, reduced] =
        [SandboxMode::Full, SandboxMode::Reduced].map(|mode| open.with_policy(policy(mode)));
    let member = open
        .with_shared_namespaces(policy(SandboxMode::Full))
        .unwrap();
    let run = |launcher: &Launcher| start(launcher, &place, &["/bin/true"]);
    let ahead = |launcher: &Launcher| {
        let prepared = cost(|| {
            launcher.prepare();
            thread::sleep(AHEAD);
        });
        let [elapsed, cpu] = cost(|| run(launcher));
        [elapsed, prepared[1] + cpu]
    };
    let python = find_program(base.path(), "python3".as_ref(), &place)
        .map(|path| path.display().to_string());
    let mut rows: Vec<Row> = Vec::new();
    for _ in 0..ROUNDS {
        let floor = cost(plain);
        add(&mut rows, "plain", floor, cost(plain));
        add(&mut rows, "supervisor", floor, cost(|| run(&open)));
        add(&mut rows, "supervisor, prepared", floor, ahead(&open));
        add(&mut rows, "full", floor, cost(|| run(&full)));
        add(&mut rows, "full, prepared", floor, ahead(&full));
        add(&mut rows, "reduced", floor, cost(|| run(&reduced)));
        add(&mut rows, "member", floor, cost(|| run(&member)));
        let found = cost(|| drop(probe::find(&open, &env::temp_dir(), false).unwrap()));
        add(&mut rows, "probe", floor, found);
        let computed = cost(|| drop(policy(SandboxMode::Full)));
        add(&mut rows, "policy", floor, computed);
        if let Some(python) = &python {
            let words = [python.as_str(), "-I", "-S", "-c", "pass"];
            let [without, within] =
                [&open, &full].map(|launcher| cost(|| start(launcher, &place, &words)));
            add(&mut rows, "python full / without", without, within);
        }
    }
    println!(
        "ms                     baseline measured   ratio    more     p10  CPU, ratio of sums"
    );
    for row in &rows {
        let ratio = row.cpu.1 / row.cpu.0;
        row.elapsed.print(22, row.name, &format!("{ratio:.1}"));
    }
}

/// Times of something, and of its baseline.
struct Row {
    name: &'static str,
    elapsed: Pairs,
    /// Sums: the kernel counts CPU time in hundredths of a second.
    cpu: (f64, f64),
}

fn add(rows: &mut Vec<Row>, name: &'static str, baseline: [f64; 2], measured: [f64; 2]) {
    let index = rows.iter().position(|row| row.name == name);
    let index = index.unwrap_or_else(|| {
        rows.push(Row {
            name,
            elapsed: Pairs::default(),
            cpu: (0.0, 0.0),
        });
        rows.len() - 1
    });
    let row = &mut rows[index];
    row.elapsed.add(baseline[0], measured[0]);
    row.cpu = (row.cpu.0 + baseline[1], row.cpu.1 + measured[1]);
}

fn plain() {
    let mut command = Command::new("/bin/true");
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
}

fn start(launcher: &Launcher, place: &Path, words: &[&str]) {
    let job = Job {
        command: words.iter().map(Into::into).collect(),
        cwd: place.to_owned(),
        env: Vec::new(),
        timeout: Duration::from_secs(60),
    };
    let finished = process::run(
        launcher,
        &job,
        JobChannels::NONE,
        &CancelToken::never().unwrap(),
    )
    .unwrap();
    assert_eq!(finished.ended, JobEnd::Exited(0));
}
