//! Runs a job until its whole process tree is gone.
//!
//! One thread waits for the end, a signal, output and the limits, and reads both streams.

use std::borrow::Cow;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::cancel::{self, CancelToken, WakeReason};
use crate::error::{Error, Result};
use crate::process::capture::{KeptBytes, READ_SIZE, StreamCapture};
use crate::process::job::{Finished, Job, JobEnd};
use crate::process::launch::{Launcher, Supervisor};
use crate::process::sandbox::limits::{INTERVAL, LimitWatch};
use crate::process::sandbox::policy::SandboxPolicy;
use crate::process::wire::{ChildInput, Start};

/// How the output of a job is watched while it runs.
pub struct OutputWatch<'a> {
    /// Ends the job after so long without any output on stdout or stderr; `None`: never.
    pub idle_timeout: Option<Duration>,
    /// Ends the job once stdout has more bytes than this. Up to that stdout is kept whole, as the head of `Captured`.
    pub stdout_limit: usize,
    /// Gets each piece of stdout as it is read, up to the limit, on the thread that runs the job. While it works, nothing
    /// else is noticed: no output, no timeout, no signal.
    pub on_stdout: &'a mut dyn FnMut(&[u8]),
}

/// What a job has beside its command.
#[derive(Clone, Copy)]
pub struct JobChannels<'a> {
    /// A descriptor that the command inherits, with its number in `REPORT_VARIABLE`.
    pub report: Option<BorrowedFd<'a>>,
    /// Gets each piece of stdout and stderr as it is read; like `on_stdout` of [`OutputWatch`].
    pub printed: &'a dyn Fn(&[u8]),
}

impl JobChannels<'_> {
    /// No report; the output is only kept.
    pub const NONE: JobChannels<'static> = JobChannels {
        report: None,
        printed: &|_| {},
    };
}

/// Runs a job. When this returns, in whatever way, no process of its tree is left.
///
/// A program that cannot start, fails or times out is a `Finished`; a signal to the orchestrator is `Error::Stopped`.
pub fn run(
    launcher: &Launcher,
    job: &Job,
    channels: JobChannels<'_>,
    cancel: &CancelToken,
) -> Result<Finished> {
    let streams = JobStreams {
        report: channels.report,
        stdout: KeptBytes::BOTH_ENDS,
        watch: OutputWatch {
            idle_timeout: None,
            stdout_limit: usize::MAX,
            on_stdout: &mut |piece| (channels.printed)(piece),
        },
        on_stderr: channels.printed,
    };
    run_with(launcher, job, streams, cancel)
}

/// Runs a job like `run`, and watches its output; `JobEnd::Idle` and `JobEnd::OutputLimit` are further ends.
///
/// A job that printed too much ends with `OutputLimit` even if it has exited before it could be killed.
pub fn run_watched(
    launcher: &Launcher,
    job: &Job,
    watch: OutputWatch<'_>,
    cancel: &CancelToken,
) -> Result<Finished> {
    let streams = JobStreams {
        report: None,
        stdout: KeptBytes {
            head: watch.stdout_limit,
            tail: 0,
        },
        watch,
        on_stderr: &|_| {},
    };
    run_with(launcher, job, streams, cancel)
}

/// What a job inherits, and what becomes of its output.
struct JobStreams<'a> {
    report: Option<BorrowedFd<'a>>,
    stdout: KeptBytes,
    watch: OutputWatch<'a>,
    on_stderr: &'a dyn Fn(&[u8]),
}

fn run_with(
    launcher: &Launcher,
    job: &Job,
    streams: JobStreams<'_>,
    cancel: &CancelToken,
) -> Result<Finished> {
    if let Some(signal) = cancel.requested() {
        return Err(Error::Stopped(signal));
    }
    let failed = |action| move |source| Error::io(action, &launcher.program, source);
    let mut running = SupervisedJob::start(launcher, job, streams).map_err(failed("start"))?;
    let waited = running.wait(launcher.policy.as_ref(), cancel);
    if !matches!(waited, Ok(WaitEnd::Reported)) {
        running.supervisor.end_now();
    }
    let reported = running.supervisor.receive_end();
    let took = running.begun.elapsed();
    let status = running.supervisor.reap(reported.is_some());
    running.drain_output();
    Ok(Finished {
        ended: running.end(waited.map_err(failed("wait for"))?, reported, status)?,
        stdout: running.stdout.finish(),
        stderr: running.stderr.finish(),
        took,
    })
}

/// Why a job is no longer waited for.
enum WaitEnd {
    /// Its supervisor has reported the end, or is gone.
    Reported,
    /// It exceeded a limit of its sandbox: which, and by how much.
    Limit(String),
    /// It has to be killed, for this reason.
    Kill(JobEnd),
    /// A signal cancelled the command.
    Stopped(cancel::Signal),
}

struct SupervisedJob<'a> {
    supervisor: Supervisor,
    stdout: StreamCapture,
    stderr: StreamCapture,
    watch: OutputWatch<'a>,
    on_stderr: &'a dyn Fn(&[u8]),
    buffer: Vec<u8>,
    begun: Instant,
    deadline: Option<Instant>,
    last_output: Instant,
}

impl<'a> SupervisedJob<'a> {
    fn start(
        launcher: &Launcher,
        job: &Job,
        streams: JobStreams<'a>,
    ) -> io::Result<SupervisedJob<'a>> {
        let begun = Instant::now();
        let (stdout, stdout_end) = StreamCapture::start(streams.stdout)?;
        let (stderr, stderr_end) = StreamCapture::start(KeptBytes::BOTH_ENDS)?;
        let supervisor = launcher.supervisor()?;
        let start = Start {
            job: Cow::Borrowed(job),
            input: ChildInput::Empty,
            has_report: streams.report.is_some(),
        };
        let inherited: Vec<_> = [stdout_end.as_fd(), stderr_end.as_fd()]
            .into_iter()
            .chain(streams.report)
            .collect();
        // Without a whole command the supervisor exits; the missing report is handled like any other.
        if supervisor.start(&start, &inherited).is_err() {
            supervisor.end_now();
        }
        Ok(SupervisedJob {
            supervisor,
            stdout,
            stderr,
            watch: streams.watch,
            on_stderr: streams.on_stderr,
            buffer: vec![0; READ_SIZE],
            begun,
            deadline: begun.checked_add(job.timeout),
            last_output: begun,
        })
    }

    /// Reads the output until the job has ended or has to be ended.
    fn wait(
        &mut self,
        policy: Option<&SandboxPolicy>,
        cancel: &CancelToken,
    ) -> io::Result<WaitEnd> {
        let mut limits = policy.map(LimitTimer::begin);
        loop {
            let due = limits.as_ref().map(|limits| limits.due);
            let until = due.into_iter().chain(self.deadlines()).min();
            if let WakeReason::Stopped(signal) = cancel.wait_any(&self.descriptors(), until)? {
                return Ok(WaitEnd::Stopped(signal));
            }
            if self.supervisor.has_reported() {
                let broken = limits.and_then(|mut limits| limits.watch.check_after_end());
                return Ok(broken.map_or(WaitEnd::Reported, WaitEnd::Limit));
            }
            self.read_output();
            if let Some(ended) = self.overdue() {
                return Ok(WaitEnd::Kill(ended));
            }
            let pid = self.supervisor.pid();
            if let Some(broken) = limits.as_mut().and_then(|limits| limits.check(pid)) {
                return Ok(WaitEnd::Limit(broken));
            }
        }
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        [self.stdout.as_fd(), self.stderr.as_fd()]
            .into_iter()
            .flatten()
            .chain([self.supervisor.as_fd()])
            .collect()
    }

    /// When the job's time is over, and when it was silent for too long.
    fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.deadline.into_iter().chain(self.idle_deadline())
    }

    fn idle_deadline(&self) -> Option<Instant> {
        self.last_output.checked_add(self.watch.idle_timeout?)
    }

    fn read_output(&mut self) {
        let of_stdout = self.stdout.read(&mut self.buffer, self.watch.on_stdout);
        let on_stderr = self.on_stderr;
        let of_stderr = self
            .stderr
            .read(&mut self.buffer, &mut |piece| on_stderr(piece));
        if 0 < of_stdout + of_stderr {
            self.last_output = Instant::now();
        }
    }

    fn drain_output(&mut self) {
        self.stdout.drain(&mut self.buffer, self.watch.on_stdout);
        self.stderr.drain(&mut self.buffer, &mut |_| {});
    }

    /// Why the job has to be killed now.
    fn overdue(&self) -> Option<JobEnd> {
        let now = Instant::now();
        let is_past = |deadline: Option<Instant>| deadline.is_some_and(|at| at <= now);
        if self.has_printed_too_much() {
            Some(JobEnd::OutputLimit)
        } else if is_past(self.deadline) {
            Some(JobEnd::TimedOut)
        } else {
            is_past(self.idle_deadline()).then_some(JobEnd::Idle)
        }
    }

    fn has_printed_too_much(&self) -> bool {
        (self.watch.stdout_limit as u64) < self.stdout.total()
    }

    fn end(
        &self,
        waited: WaitEnd,
        reported: Option<JobEnd>,
        status: Option<ExitStatus>,
    ) -> Result<JobEnd> {
        match (waited, reported) {
            (WaitEnd::Stopped(signal), _) => Err(Error::Stopped(signal)),
            (_, Some(JobEnd::SandboxFailed(failure))) => Err(failure.into()),
            (WaitEnd::Limit(limit), _) => Ok(JobEnd::Limit(limit)),
            _ if self.has_printed_too_much() => Ok(JobEnd::OutputLimit),
            (WaitEnd::Kill(reason), None | Some(JobEnd::TimedOut)) => Ok(reason),
            (_, Some(ended)) => Ok(ended),
            (WaitEnd::Reported, None) => end_without_report(status),
        }
    }
}

/// A supervisor that was killed counts as its job killed; one that exits without a report is a bug.
fn end_without_report(status: Option<ExitStatus>) -> Result<JobEnd> {
    match status {
        Some(status) if status.signal().is_none() => Err(Error::Bug(format!(
            "a supervisor ended without a report: {status}"
        ))),
        _ => Ok(JobEnd::Signalled(Signal::KILL.as_raw())),
    }
}

/// The limits of a sandbox, checked at intervals.
struct LimitTimer {
    watch: LimitWatch,
    due: Instant,
}

impl LimitTimer {
    fn begin(policy: &SandboxPolicy) -> LimitTimer {
        LimitTimer {
            watch: LimitWatch::begin(policy),
            due: Instant::now() + INTERVAL,
        }
    }

    /// Returns the limit that is exceeded, if it is time for a check.
    fn check(&mut self, supervisor: Pid) -> Option<String> {
        if Instant::now() < self.due {
            return None;
        }
        let broken = self.watch.check(&[supervisor]);
        self.due = Instant::now() + INTERVAL;
        broken.map(|broken| broken.message)
    }
}
