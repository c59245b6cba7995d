//! The only room that starts children.
//!
//! A child never starts alone: a keeper, this binary under a hidden command, starts it, adopts everything it leaves
//! behind, and ends the whole tree when the child is done, its time is over, or the orchestrator is gone. What a child
//! may reach is not decided here, what it sees of its caller's environment is (`environment`).

pub mod cache;
pub mod capture;
pub mod check_env;
pub mod child;
pub mod env;
mod process_tree;
pub mod program;
pub mod report_channel;
pub mod sandbox;
pub mod scratch;
pub mod supervisor;
pub mod wire;

use std::ffi::OsString;
use std::io::{self, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid,
};

use crate::cancel::{CancelToken, WakeReason};
use crate::error::{Error, Result};
use crate::process::capture::{Captured, StreamReader};
use crate::process::sandbox::limits::{INTERVAL, LimitWatch};
use crate::process::sandbox::shared_namespaces::SharedNamespaces;
use crate::process::sandbox::{SandboxFailure, SandboxMode, SandboxPolicy};
use crate::process::wire::{Task, TaskMessage};

/// The word that makes this binary a keeper when it is the first argument.
pub const KEEPER_COMMAND: &str = "__keeper";

/// How long a keeper may take to end a tree, or anything else that should be done at once.
const GRACE: Duration = Duration::from_secs(10);

/// A program to run to its end.
#[derive(Debug, Clone)]
pub struct Job {
    pub command: Vec<OsString>,
    pub cwd: PathBuf,
    /// The whole environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    pub timeout: Duration,
}

/// How a job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    Exited(i32),
    Signalled(i32),
    TimedOut,
    /// It could not be started, and why.
    CannotStart(String),
    /// The walls that it should run behind could not be raised: it has not run.
    NoWalls(SandboxFailure),
    /// It was ended because it broke a limit: which, and by how much.
    Limit(String),
}

/// What is left of a job.
#[derive(Debug)]
pub struct Finished {
    pub ended: JobEnd,
    pub stdout: Captured,
    pub stderr: Captured,
    pub took: Duration,
}

/// The binary that becomes a keeper, and the walls around what it starts.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub program: PathBuf,
    /// Nothing: what it starts runs with the user's rights.
    pub policy: Option<SandboxPolicy>,
    /// Where several share a network and private places; nothing: each child has its own.
    pub namespaces: Option<Arc<SharedNamespaces>>,
}

impl Launcher {
    /// Returns a launcher of children that run with the user's rights.
    pub fn open(program: &Path) -> Launcher {
        Launcher {
            program: program.to_owned(),
            policy: None,
            namespaces: None,
        }
    }

    /// Returns a launcher of children that open terminals themselves. Without namespaces the user's are in the same place.
    pub fn with_terminals(&self) -> Launcher {
        let mut launcher = self.clone();
        if let Some(policy) = launcher
            .policy
            .as_mut()
            .filter(|policy| policy.mode == SandboxMode::Reduced)
        {
            policy
                .devices
                .extend(["/dev/ptmx", "/dev/pts"].map(PathBuf::from));
        }
        launcher
    }

    /// Returns a launcher of children behind walls, each behind its own.
    pub fn with_policy(&self, policy: SandboxPolicy) -> Launcher {
        Launcher {
            program: self.program.clone(),
            policy: Some(policy),
            namespaces: None,
        }
    }
}

/// Whether orphans come to this process, and the keepers that are at work for it.
static IS_ADOPTING: AtomicBool = AtomicBool::new(false);
static KEEPERS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Makes this process the one that inherits the children of a keeper that was killed, so that they can be ended.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    IS_ADOPTING.store(true, Ordering::SeqCst);
    Ok(())
}

/// Runs a job; when this returns, in whatever way, nothing of its process tree is left.
///
/// A program that cannot start, fails or runs out of time is a `Finished`; a signal to the orchestrator is
/// `Error::Stopped`.
pub fn run(launcher: &Launcher, job: &Job, cancel: &CancelToken) -> Result<Finished> {
    run_with(launcher, job, None, cancel)
}

/// Like `run`; the command gets the end of a channel, and its number in `REPORT_VARIABLE`.
pub fn run_with(
    launcher: &Launcher,
    job: &Job,
    report: Option<BorrowedFd<'_>>,
    cancel: &CancelToken,
) -> Result<Finished> {
    if let Some(signal) = cancel.requested() {
        return Err(Error::Stopped(signal));
    }
    let begun = Instant::now();
    let mut kept = SupervisedJob::start(launcher, job, report)
        .map_err(|source| Error::io("start", &launcher.program, source))?;
    let (woken, limit) = kept.wait(launcher, cancel, begun.checked_add(job.timeout));
    if !matches!(woken, Ok(WakeReason::Ready)) {
        kept.ask_for_the_end();
    }
    let told = wire::receive(&mut kept.control)
        .ok()
        .and_then(|message| wire::decode_ended(&message));
    let took = begun.elapsed();
    let keeper_status = reap(&mut kept.supervisor, told.is_some());
    let (stdout, stderr) = (kept.stdout.finish(), kept.stderr.finish());
    let ended = match (
        woken.map_err(|source| Error::io("wait for", &launcher.program, source))?,
        told,
    ) {
        (WakeReason::Stopped(signal), _) => return Err(Error::Stopped(signal)),
        (_, Some(JobEnd::NoWalls(failure))) => return Err(failure.into()),
        (_, Some(ended)) => ended,
        (WakeReason::TimedOut, None) => JobEnd::TimedOut,
        (WakeReason::Ready, None) => end_of_silent_supervisor(keeper_status)?,
    };
    Ok(Finished {
        ended: limit.map_or(ended, JobEnd::Limit),
        stdout,
        stderr,
        took,
    })
}

/// A keeper that was killed counts as its job killed; one that left without a word is no keeper.
fn end_of_silent_supervisor(status: Option<ExitStatus>) -> Result<JobEnd> {
    match status {
        Some(status) if status.signal().is_none() => Err(Error::Bug(format!(
            "a keeper ended without a word: {status}"
        ))),
        _ => Ok(JobEnd::Signalled(Signal::KILL.as_raw())),
    }
}

/// A job in the hands of its keeper.
struct SupervisedJob {
    supervisor: Child,
    control: UnixStream,
    stdout: StreamReader,
    stderr: StreamReader,
}

impl SupervisedJob {
    fn start(
        launcher: &Launcher,
        job: &Job,
        report: Option<BorrowedFd<'_>>,
    ) -> io::Result<SupervisedJob> {
        let (stdout, stdout_end) = StreamReader::start()?;
        let (stderr, stderr_end) = StreamReader::start()?;
        let (supervisor, control) =
            spawn_supervisor(launcher, stdout_end.into(), stderr_end.into())?;
        let sent = task_message(&control, launcher, Task::Keep)
            .and_then(|()| {
                wire::send(
                    &control,
                    &wire::encode_job(job, wire::ChildInput::Empty, report.is_some()),
                )
            })
            .and_then(|()| report.map_or(Ok(()), |report| wire::send_descriptor(&control, report)));
        // One that has no job, or half of one, is of no use; its silence is found at once.
        if sent.is_err() {
            let _ = control.shutdown(Shutdown::Both);
        }
        Ok(SupervisedJob {
            supervisor,
            control,
            stdout,
            stderr,
        })
    }

    /// Waits for the end, a signal or the deadline, and meanwhile looks whether a limit is broken; then returns which.
    fn wait(
        &self,
        launcher: &Launcher,
        cancel: &CancelToken,
        deadline: Option<Instant>,
    ) -> (io::Result<WakeReason>, Option<String>) {
        let mut watch = launcher.policy.as_ref().map(LimitWatch::begin);
        loop {
            let next_look = watch
                .as_ref()
                .and_then(|_| Instant::now().checked_add(INTERVAL));
            let woken = cancel.wait(
                Some(self.control.as_fd()),
                deadline.into_iter().chain(next_look).min(),
            );
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if is_late || !matches!(woken, Ok(WakeReason::TimedOut)) {
                let has_ended = matches!(woken, Ok(WakeReason::Ready));
                return (
                    woken,
                    watch
                        .filter(|_| has_ended)
                        .and_then(|mut watch| watch.look_back()),
                );
            }
            let broken = watch
                .as_mut()
                .and_then(|watch| watch.look(&[Pid::from_child(&self.supervisor)]));
            if let Some(broken) = broken {
                return (woken, Some(broken.words));
            }
        }
    }

    fn ask_for_the_end(&mut self) {
        // The job may have stopped its keeper.
        let _ = kill_process(Pid::from_child(&self.supervisor), Signal::CONT);
        let _ = self.control.write_all(&[wire::END_NOW]);
    }
}

/// Starts a keeper and returns it with the socket over which it hears and tells.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the door: here a keeper starts"
)]
fn spawn_supervisor(
    launcher: &Launcher,
    stdout: Stdio,
    stderr: Stdio,
) -> io::Result<(Child, UnixStream)> {
    let (control, theirs) = UnixStream::pair()?;
    control.set_read_timeout(Some(GRACE))?;
    control.set_write_timeout(Some(GRACE))?;
    let mut command = Command::new(&launcher.program);
    command.arg0("orchestrator").arg(KEEPER_COMMAND).env_clear();
    command
        .stdin(OwnedFd::from(theirs))
        .stdout(stdout)
        .stderr(stderr);
    let mut supervisors = live_supervisors();
    let supervisor = command.spawn()?;
    supervisors.push(Pid::from_child(&supervisor));
    Ok((supervisor, control))
}

/// Tells a keeper what it is for, and behind which walls.
fn task_message(control: &UnixStream, launcher: &Launcher, task: Task) -> io::Result<()> {
    let namespaces = launcher
        .namespaces
        .as_ref()
        .map(|namespaces| namespaces.namespaces())
        .unwrap_or_default();
    let order = TaskMessage {
        task,
        policy: launcher.policy.clone(),
        namespaces: namespaces.len() as u8,
    };
    wire::send(control, &order.encode())?;
    namespaces
        .iter()
        .try_for_each(|namespace| wire::send_descriptor(control, namespace.as_fd()))
}

/// Reaps a keeper; where it has not told the end, its tree is ended from here.
fn reap(supervisor: &mut Child, has_told: bool) -> Option<ExitStatus> {
    let _ = supervisor.kill();
    let status = supervisor.wait().ok();
    live_supervisors().retain(|pid| *pid != Pid::from_child(supervisor));
    if !has_told {
        end_orphans();
    }
    status
}

fn live_supervisors() -> MutexGuard<'static, Vec<Pid>> {
    KEEPERS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends and reaps what dead keepers have left to this process.
///
/// What a keeper starts is never in our session; what is, is somebody else's. The lock holds off new keepers meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "nobody tells when an adopted process is gone for good"
)]
fn end_orphans() {
    let deadline = Instant::now() + GRACE;
    let (supervisors, session) = (
        live_supervisors(),
        process_tree::own().and_then(|own| own.session),
    );
    while IS_ADOPTING.load(Ordering::SeqCst) && Instant::now() < deadline {
        let orphans = process_tree::kill_descendants(|entry| {
            entry.session == session || supervisors.contains(&entry.pid)
        });
        if orphans.is_empty() {
            return;
        }
        for orphan in orphans {
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
        thread::sleep(Duration::from_millis(1));
    }
}
