//! Runs a job until its whole process tree is gone.
//!
//! One thread waits for the end, a signal, output and the limits, and reads both streams.

use std::borrow::Cow;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal};

use crate::cancel::{self, CancelToken, WakeReason};
use crate::error::{Error, Result};
use crate::process::capture::{Captured, KeptBytes, READ_SIZE, StreamCapture};
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
    mut streams: JobStreams<'_>,
    cancel: &CancelToken,
) -> Result<Finished> {
    if let Some(signal) = cancel.requested() {
        return Err(Error::Stopped(signal));
    }
    let failed = |action| move |source| Error::io(action, &launcher.program, source);
    loop {
        let pipes = JobPipes::open(&streams).map_err(failed("start"))?;
        let prepared = launcher.take_prepared();
        let is_prepared = prepared.is_some();
        let supervisor = match prepared {
            Some(prepared) => prepared,
            None => launcher.start_supervisor().map_err(failed("start"))?,
        };
        let running = SupervisedJob::start(supervisor, job, pipes, &mut streams);
        let ended = running.run(launcher, cancel)?;
        // One that was killed while it waited for its command is replaced; the slot is empty then.
        if !is_prepared || !ended.is_without_command() {
            return ended.finish();
        }
    }
}

/// The pipes between the orchestrator and a job.
struct JobPipes {
    stdout: (StreamCapture, PipeWriter),
    stderr: (StreamCapture, PipeWriter),
    /// Gets a byte just before the command begins.
    begin_mark: (PipeReader, PipeWriter),
}

impl JobPipes {
    fn open(streams: &JobStreams<'_>) -> io::Result<JobPipes> {
        Ok(JobPipes {
            stdout: StreamCapture::start(streams.stdout)?,
            stderr: StreamCapture::start(KeptBytes::BOTH_ENDS)?,
            begin_mark: io::pipe()?,
        })
    }
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

/// A job whose process tree is gone.
struct EndedJob {
    waited: WaitEnd,
    /// The end that its supervisor has reported.
    reported: Option<JobEnd>,
    /// The exit status of its supervisor.
    status: Option<ExitStatus>,
    has_begun: bool,
    has_printed_too_much: bool,
    stdout: Captured,
    stderr: Captured,
    took: Duration,
}

impl EndedJob {
    /// Whether its supervisor or sandbox failed, or was killed, before the command has begun.
    fn is_without_command(&self) -> bool {
        let has_failed = matches!(self.reported, None | Some(JobEnd::SandboxFailed(_)));
        has_failed && !self.has_begun && matches!(self.waited, WaitEnd::Reported)
    }

    fn finish(self) -> Result<Finished> {
        let ended = match (self.waited, self.reported) {
            (WaitEnd::Stopped(signal), _) => return Err(Error::Stopped(signal)),
            // Its init was killed before it could report that the command has started.
            (_, Some(JobEnd::SandboxFailed(_))) if self.has_begun => killed(),
            (_, Some(JobEnd::SandboxFailed(failure))) => return Err(failure.into()),
            (WaitEnd::Limit(limit), _) => JobEnd::Limit(limit),
            _ if self.has_printed_too_much => JobEnd::OutputLimit,
            (WaitEnd::Kill(reason), None | Some(JobEnd::TimedOut)) => reason,
            (_, Some(ended)) => ended,
            (WaitEnd::Reported, None) => end_without_report(self.status)?,
        };
        Ok(Finished {
            ended,
            stdout: self.stdout,
            stderr: self.stderr,
            took: self.took,
        })
    }
}

struct SupervisedJob<'s, 'a> {
    supervisor: Supervisor,
    streams: &'s mut JobStreams<'a>,
    stdout: StreamCapture,
    stderr: StreamCapture,
    /// Readable once the command has begun.
    begin_mark: PipeReader,
    buffer: Vec<u8>,
    begun: Instant,
    deadline: Option<Instant>,
    last_output: Instant,
}

impl<'s, 'a> SupervisedJob<'s, 'a> {
    fn start(
        supervisor: Supervisor,
        job: &Job,
        pipes: JobPipes,
        streams: &'s mut JobStreams<'a>,
    ) -> SupervisedJob<'s, 'a> {
        let begun = Instant::now();
        let (stdout, stdout_end) = pipes.stdout;
        let (stderr, stderr_end) = pipes.stderr;
        let (begin_mark, begin_mark_end) = pipes.begin_mark;
        let start = Start {
            job: Cow::Borrowed(job),
            input: ChildInput::Empty,
            has_report: streams.report.is_some(),
            has_begin_mark: true,
        };
        let inherited: Vec<_> = [stdout_end.as_fd(), stderr_end.as_fd()]
            .into_iter()
            .chain(streams.report)
            .chain([begin_mark_end.as_fd()])
            .collect();
        // Without a whole command the supervisor exits; the missing report is handled like any other.
        if supervisor.start(&start, &inherited).is_err() {
            supervisor.end_now();
        }
        SupervisedJob {
            supervisor,
            streams,
            stdout,
            stderr,
            begin_mark,
            buffer: vec![0; READ_SIZE],
            begun,
            deadline: begun.checked_add(job.timeout),
            last_output: begun,
        }
    }

    /// Waits for the end of the job, which it may have to cause.
    fn run(mut self, launcher: &Launcher, cancel: &CancelToken) -> Result<EndedJob> {
        let waited = self.wait(launcher.policy.as_ref(), cancel);
        if !matches!(waited, Ok(WaitEnd::Reported)) {
            self.supervisor.end_now();
        }
        let reported = self.supervisor.receive_end();
        let took = self.begun.elapsed();
        let status = self.supervisor.reap(reported.is_some());
        self.drain_output();
        Ok(EndedJob {
            waited: waited.map_err(|source| Error::io("wait for", &launcher.program, source))?,
            reported,
            status,
            has_begun: self.has_begun(),
            has_printed_too_much: self.has_printed_too_much(),
            stdout: self.stdout.finish(),
            stderr: self.stderr.finish(),
            took,
        })
    }

    /// Whether the process that becomes the command has got that far.
    fn has_begun(&self) -> bool {
        let mut fds = [PollFd::new(&self.begin_mark, PollFlags::IN)];
        let _ = poll(&mut fds, Some(&Timespec::default()));
        fds[0].revents().contains(PollFlags::IN)
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
        self.last_output
            .checked_add(self.streams.watch.idle_timeout?)
    }

    fn read_output(&mut self) {
        let of_stdout = self
            .stdout
            .read(&mut self.buffer, self.streams.watch.on_stdout);
        let on_stderr = self.streams.on_stderr;
        let of_stderr = self
            .stderr
            .read(&mut self.buffer, &mut |piece| on_stderr(piece));
        if 0 < of_stdout + of_stderr {
            self.last_output = Instant::now();
        }
    }

    fn drain_output(&mut self) {
        self.stdout
            .drain(&mut self.buffer, self.streams.watch.on_stdout);
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
        (self.streams.watch.stdout_limit as u64) < self.stdout.total()
    }
}

/// A supervisor that was killed counts as its job killed; one that exits without a report is a bug.
fn end_without_report(status: Option<ExitStatus>) -> Result<JobEnd> {
    match status {
        Some(status) if status.signal().is_none() => Err(Error::Bug(format!(
            "a supervisor ended without a report: {status}"
        ))),
        _ => Ok(killed()),
    }
}

fn killed() -> JobEnd {
    JobEnd::Signalled(Signal::KILL.as_raw())
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
