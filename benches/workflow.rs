//! Overhead of the workflow loop. Run it with `cargo bench --bench workflow`; it takes some minutes.
//!
//! Nothing is asserted. Each row compares a measurement with a baseline that is measured in alternation, and shows both
//! medians, the median of their ratios, the median and the 10th percentile of their differences, and the target. Root,
//! workspace and temporary files are in /dev/shm ("memory"), where a sync costs nothing, and on an ext4 with a journal
//! ("disk"): an image that is mounted for the bench, or the build directory where that is not possible. The states are
//! scripts that start no process of their own. The rows:
//!
//! - *transition*: one transition of an agent, as (a run of 1,001 - a run of 1) / 1,000. Baselines: `sh` that starts
//!   `bash` with the same script in a loop; and the necessary work, which starts the same script through the same
//!   supervisor and sandbox, in namespaces that exist already, and appends and syncs one line. "processor": CPU time,
//!   which is less affected by other load.
//! - *flat*: a transition in a run of 1,001 against one in a run of 11.
//! - *alive*: a transition where many agents are alive against one where two are, two at a time, as the difference of
//!   runs in which each agent makes few or many transitions.
//! - *agent*: an agent that begins, makes one transition and ends, against a transition.
//! - *peak*, *threads*: the orchestrator's own peak memory in MB (VmHWM) and the most threads that it had, read every
//!   millisecond until its end, with 200 agents, eight at a time, against one agent.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a bench fails by panicking, prints its result, and sets its own scene"
)]

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::sandbox::{
    PolicyPlan, ResourceLimits, SandboxMode, sandbox_policy,
};
use orchestrator::internals::process::{self, CallerEnv, Job, JobChannels, JobEnd, Launcher};
use tempfile::TempDir;

mod support;

use support::{Pairs, cost};

/// The column of names in the table.
const NAME_WIDTH: usize = 54;
const BINARY: &str = env!("CARGO_BIN_EXE_orchestrator");
const RUNS: usize = 5;
const MANY: usize = 1000;
const FEW: usize = 10;
/// Transitions of a measurement with several agents.
const SHARED: usize = 400;
/// What a step adds to the log.
const LOG_SIZE: usize = 1500;
const HEAD: &str = "                                                     baseline measured   ratio    more     p10  aim";

/// Goes to itself until it has made `steps` transitions; the counter of each agent is a file.
const WORK: &str = r#"read -r steps < steps
count=0
[[ -e count.$ORCHESTRATOR_AGENT_ID ]] && read -r count < "count.$ORCHESTRATOR_AGENT_ID"
echo $((++count)) > "count.$ORCHESTRATOR_AGENT_ID"
if ((count < steps)); then echo '<reset>WORK</reset>'; else echo '<result>done</result>'; fi
"#;
const FAN_OUT: &str = r#"read -r agents < agents
for ((i = 0; i < agents; i++)); do echo '<fork join="END">WORK</fork>'; done
"#;
const END: &str = "echo '<result>done</result>'\n";

fn main() {
    println!("ms{HEAD}");
    let image = Image::mount(Path::new(env!("CARGO_TARGET_TMPDIR")));
    let disk = image
        .as_ref()
        .map_or(env!("CARGO_TARGET_TMPDIR").into(), Image::path);
    let places = [("memory", PathBuf::from("/dev/shm")), ("disk", disk)];
    let places = places.iter().filter(|(_, place)| place.is_dir());
    for (name, place) in places.clone() {
        for sandbox in [Sandbox::Full, Sandbox::Off] {
            transitions(&format!("{}, {name}", sandbox.name()), place, sandbox);
            agents(&format!("{}, {name}", sandbox.name()), place, sandbox, 200);
        }
        agents(&format!("no sandbox, {name}"), place, Sandbox::Off, 2000);
    }
    println!("\nMB{HEAD}");
    for sandbox in [Sandbox::Full, Sandbox::Off] {
        peak(sandbox, &places.clone().next().unwrap().1);
    }
}

/// The difference of two measurements, per transition.
fn per_transition(many: [f64; 2], few: [f64; 2], transitions: usize) -> [f64; 2] {
    [0, 1].map(|unit| (many[unit] - few[unit]) / transitions as f64)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sandbox {
    Full,
    Off,
}

impl Sandbox {
    fn name(self) -> &'static str {
        match self {
            Sandbox::Full => "full",
            Sandbox::Off => "no sandbox",
        }
    }
}

/// One agent that makes many transitions.
fn transitions(name: &str, place: &Path, sandbox: Sandbox) {
    let project = Project::new(place, "WORK.sh", sandbox);
    let mut floor = Floor::new(&project, sandbox);
    let [mut shell, mut own, mut processor, mut flat] = [(); 4].map(|()| Pairs::default());
    for _ in 0..RUNS {
        let bash = project.shell_loop(SHARED);
        let [clock, cpu] = floor.per_transition(SHARED);
        let one = project.chain(1);
        let few = (0..5).map(|_| per_transition(project.chain(1 + FEW), project.chain(1), FEW)[0]);
        let few = few.sum::<f64>() / 5.0;
        let many = per_transition(project.chain(1 + MANY), one, MANY);
        shell.add(bash, many[0]);
        own.add(clock, many[0]);
        processor.add(cpu, many[1]);
        flat.add(few, many[0]);
    }
    shell.print(NAME_WIDTH, &format!("transition, {name} / sh loop"), "");
    own.print(NAME_WIDTH, &format!("transition, {name} / floor"), "");
    processor.print(
        NAME_WIDTH,
        &format!("transition, {name} / floor, processor"),
        "",
    );
    flat.print(
        NAME_WIDTH,
        &format!("flat, {name}: 1,000 / 10"),
        "ratio < 1.2",
    );
}

/// Several agents that are alive at the same time, two of them running.
fn agents(name: &str, place: &Path, sandbox: Sandbox, count: usize) {
    let project = Project::new(place, "START.sh", sandbox);
    let [mut alive, mut processor, mut agent] = [(); 3].map(|()| Pairs::default());
    let each = (SHARED / count).max(1);
    for _ in 0..RUNS.min(2000 / count) {
        let few = project.fan_out(2, 1, 2);
        let two = per_transition(project.fan_out(2, 1 + SHARED / 2, 2), few, SHARED);
        let many = project.fan_out(count, 1, 2);
        let more = project.fan_out(count, 1 + each, 2);
        let more = per_transition(more, many, count * each);
        alive.add(two[0], more[0]);
        processor.add(two[1], more[1]);
        agent.add(two[0], per_transition(many, few, count - 2)[0]);
    }
    let aim = if count <= 200 { "ratio < 1.5" } else { "" };
    alive.print(NAME_WIDTH, &format!("alive, {name}: {count} / 2"), aim);
    processor.print(
        NAME_WIDTH,
        &format!("alive, {name}: {count} / 2, processor"),
        aim,
    );
    agent.print(
        NAME_WIDTH,
        &format!("agent, {name}: 1 of {count} / transition"),
        "",
    );
}

fn peak(sandbox: Sandbox, place: &Path) {
    let project = Project::new(place, "START.sh", sandbox);
    let [mut memory, mut threads] = [(); 2].map(|()| Pairs::default());
    for _ in 0..3 {
        let (one, many) = (project.peaks(1, 8), project.peaks(200, 8));
        memory.add(one[0] / 1024.0, many[0] / 1024.0);
        threads.add(one[1], many[1]);
    }
    let name = sandbox.name();
    memory.print(NAME_WIDTH, &format!("peak, {name}: 200 agents / 1"), "");
    threads.print(NAME_WIDTH, &format!("threads, {name}: 200 agents / 1"), "");
}

/// A root with a workflow of scripts.
struct Project {
    folder: TempDir,
    start: &'static str,
    sandbox: Sandbox,
}

impl Project {
    fn new(place: &Path, start: &'static str, sandbox: Sandbox) -> Project {
        let folder = TempDir::with_prefix_in("bench-", place).unwrap();
        let flow = folder.path().join("root/flow");
        fs::create_dir_all(&flow).unwrap();
        for (name, text) in [("START.sh", FAN_OUT), ("WORK.sh", WORK), ("END.sh", END)] {
            fs::write(flow.join(name), text).unwrap();
        }
        Project {
            folder,
            start,
            sandbox,
        }
    }

    fn root(&self) -> PathBuf {
        self.folder.path().join("root")
    }

    /// A root as before the first run, whose agents will make so many transitions. The workspace stays the same
    /// directory, since the namespaces of the baseline have it mounted.
    fn renew(&self, agents: usize, steps: usize) -> PathBuf {
        let workspace = self.root().join("workspace");
        let _ = fs::remove_dir_all(self.root().join("logs"));
        fs::create_dir_all(&workspace).unwrap();
        for entry in fs::read_dir(&workspace).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        fs::write(workspace.join("agents"), format!("{agents}\n")).unwrap();
        fs::write(workspace.join("steps"), format!("{steps}\n")).unwrap();
        workspace
    }

    fn command(&self, jobs: usize) -> Command {
        let mut command = Command::new(BINARY);
        let flow = Path::new("flow").join(self.start);
        command
            .args(["run", "--no-resume", "--quiet", "--workflow"])
            .arg(flow);
        command.args(["--jobs", &jobs.to_string()]);
        if self.sandbox == Sandbox::Off {
            command.arg("--no-sandbox");
        }
        command
            .current_dir(self.root())
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        command
            .env("HOME", self.folder.path())
            .env("TMPDIR", self.folder.path());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// A run of one agent.
    fn chain(&self, steps: usize) -> [f64; 2] {
        self.renew(0, steps);
        cost(|| assert!(self.command(1).status().unwrap().success()))
    }

    /// A run of an agent with workers.
    fn fan_out(&self, agents: usize, steps: usize, jobs: usize) -> [f64; 2] {
        self.renew(agents, steps);
        cost(|| assert!(self.command(jobs).status().unwrap().success()))
    }

    /// The time of a script that `sh` starts in a loop.
    fn shell_loop(&self, steps: usize) -> f64 {
        let workspace = self.renew(0, steps);
        let text =
            format!("i=0; while [ $i -lt {steps} ]; do bash \"$0\" > /dev/null; i=$((i+1)); done");
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", &text])
            .arg(self.root().join("flow/WORK.sh"));
        shell
            .current_dir(workspace)
            .env_clear()
            .env("PATH", "/usr/bin:/bin");
        shell
            .env("ORCHESTRATOR_AGENT_ID", "main")
            .stdin(Stdio::null());
        cost(|| assert!(shell.status().unwrap().success()))[0] / steps as f64
    }

    /// The peak memory of a run in kB, and the most threads that it had.
    fn peaks(&self, agents: usize, jobs: usize) -> [f64; 2] {
        self.renew(agents, 3);
        let mut child = self.command(jobs).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peaks = [0.0_f64; 2];
        while child.try_wait().unwrap().is_none() {
            let text = fs::read_to_string(&status).unwrap_or_default();
            for (peak, name) in peaks.iter_mut().zip(["VmHWM:", "Threads:"]) {
                let value = text.lines().find_map(|line| line.strip_prefix(name));
                let number = value.map(|value| value.trim().trim_end_matches(" kB"));
                let number: f64 = number.map_or(0.0, |number| number.parse().unwrap());
                *peak = number.max(*peak);
            }
            thread::sleep(Duration::from_millis(1));
        }
        peaks
    }
}

/// The necessary work of a transition.
struct Floor<'a> {
    project: &'a Project,
    launcher: Launcher,
    journal: File,
}

impl Floor<'_> {
    fn new(project: &Project, sandbox: Sandbox) -> Floor<'_> {
        Floor {
            project,
            launcher: launcher(project, sandbox),
            journal: File::create(project.folder.path().join("log")).unwrap(),
        }
    }

    fn per_transition(&mut self, steps: usize) -> [f64; 2] {
        let workspace = self.project.renew(0, steps);
        let env = [("PATH", "/usr/bin:/bin"), ("ORCHESTRATOR_AGENT_ID", "main")];
        let job = Job {
            command: vec!["bash".into(), workspace.join("WORK.sh").into()],
            cwd: workspace.clone(),
            env: env
                .map(|(name, value)| (name.into(), value.into()))
                .to_vec(),
            timeout: Duration::from_secs(60),
        };
        fs::copy(self.project.root().join("flow/WORK.sh"), &job.command[1]).unwrap();
        let cancel = CancelToken::never().unwrap();
        let work = || {
            for _ in 0..steps {
                let finished =
                    process::run(&self.launcher, &job, JobChannels::NONE, &cancel).unwrap();
                assert_eq!(finished.ended, JobEnd::Exited(0));
                self.journal.write_all(&[b'x'; LOG_SIZE]).unwrap();
                self.journal.sync_data().unwrap();
            }
        };
        cost(work).map(|sum| sum / steps as f64)
    }
}

/// Starts programs as an agent does.
fn launcher(project: &Project, sandbox: Sandbox) -> Launcher {
    let open = Launcher::open(Path::new(BINARY));
    if sandbox == Sandbox::Off {
        return open;
    }
    let workspace = project.renew(0, 1);
    let policy = sandbox_policy(&PolicyPlan {
        mode: SandboxMode::Full,
        workspace: &workspace.canonicalize().unwrap(),
        root: None,
        base: &CallerEnv::new([("PATH".into(), "/usr/bin:/bin".into())]),
        read: &[],
        originals: &[],
        freeze: &[],
        private: None,
        devices: &[],
        network: false,
        limits: ResourceLimits::default(),
    });
    open.with_shared_namespaces(policy).unwrap()
}

/// A journaled file system in a file. Unmounted on drop.
struct Image {
    folder: TempDir,
}

impl Image {
    /// `None` where this process may not mount.
    fn mount(place: &Path) -> Option<Image> {
        let image = Image {
            folder: TempDir::with_prefix_in("image-", place).unwrap(),
        };
        let file = image.folder.path().join("image");
        File::create(&file).unwrap().set_len(1 << 30).unwrap();
        fs::create_dir(image.path()).unwrap();
        let is_done = |command: &mut Command| {
            let status = command.stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        let is_made = is_done(Command::new("mkfs.ext4").arg("-q").arg(&file));
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&file).arg(image.path());
        (is_made && is_done(&mut mount)).then_some(image)
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = Command::new("umount")
            .arg(self.path())
            .stderr(Stdio::null())
            .status();
    }
}
