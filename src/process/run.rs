//! Runs a job until its whole process tree is gone.

use std::borrow::Cow;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Instant;

use rustix::process::Signal;

use crate::cancel::{CancelToken, WakeReason};
use crate::error::{Error, Result};
use crate::process::capture::StreamReader;
use crate::process::job::{Finished, Job, JobEnd};
use crate::process::launch::{Launcher, Supervisor};
use crate::process::sandbox::limits::{INTERVAL, LimitWatch};
use crate::process::wire::{ChildInput, Task};

/// Runs a job. When this returns, in whatever way, no process of its tree is left.
///
/// A program that cannot start, fails or times out is a `Finished`; a signal to the orchestrator is `Error::Stopped`.
/// The command inherits the descriptor `report`, with its number in `REPORT_VARIABLE`.
pub fn run(
    launcher: &Launcher,
    job: &Job,
    report: Option<BorrowedFd<'_>>,
    cancel: &CancelToken,
) -> Result<Finished> {
    if let Some(signal) = cancel.requested() {
        return Err(Error::Stopped(signal));
    }
    let begun = Instant::now();
    let mut running = SupervisedJob::start(launcher, job, report)
        .map_err(|source| Error::io("start", &launcher.program, source))?;
    let (woken, limit) = running.wait(launcher, cancel, begun.checked_add(job.timeout));
    if !matches!(woken, Ok(WakeReason::Ready)) {
        running.supervisor.end_now();
    }
    let reported = running.supervisor.receive_end();
    let took = begun.elapsed();
    let status = running.supervisor.reap(reported.is_some());
    let (stdout, stderr) = (running.stdout.finish(), running.stderr.finish());
    let ended = match (
        woken.map_err(|source| Error::io("wait for", &launcher.program, source))?,
        reported,
    ) {
        (WakeReason::Stopped(signal), _) => return Err(Error::Stopped(signal)),
        (_, Some(JobEnd::SandboxFailed(failure))) => return Err(failure.into()),
        (_, Some(ended)) => ended,
        (WakeReason::TimedOut, None) => JobEnd::TimedOut,
        (WakeReason::Ready, None) => end_without_report(status)?,
    };
    Ok(Finished {
        ended: limit.map_or(ended, JobEnd::Limit),
        stdout,
        stderr,
        took,
    })
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

struct SupervisedJob {
    supervisor: Supervisor,
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
        let supervisor = Supervisor::spawn(launcher, stdout_end, stderr_end)?;
        let task = Task::Run {
            job: Cow::Borrowed(job),
            input: ChildInput::Empty,
            has_report: report.is_some(),
        };
        // Without a whole task the supervisor exits; the missing report is handled like any other.
        if supervisor
            .send_task(launcher, task, report.as_slice())
            .is_err()
        {
            supervisor.end_now();
        }
        Ok(SupervisedJob {
            supervisor,
            stdout,
            stderr,
        })
    }

    /// Waits for the end, a signal or the deadline, and checks the limits meanwhile; returns the one that was exceeded.
    fn wait(
        &self,
        launcher: &Launcher,
        cancel: &CancelToken,
        deadline: Option<Instant>,
    ) -> (io::Result<WakeReason>, Option<String>) {
        let mut watch = launcher.policy.as_ref().map(LimitWatch::begin);
        loop {
            let next_check = watch
                .as_ref()
                .and_then(|_| Instant::now().checked_add(INTERVAL));
            let woken = cancel.wait(
                Some(self.supervisor.as_fd()),
                deadline.into_iter().chain(next_check).min(),
            );
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if is_late || !matches!(woken, Ok(WakeReason::TimedOut)) {
                let has_ended = matches!(woken, Ok(WakeReason::Ready));
                return (
                    woken,
                    watch
                        .filter(|_| has_ended)
                        .and_then(|mut watch| watch.check_after_end()),
                );
            }
            let broken = watch
                .as_mut()
                .and_then(|watch| watch.check(&[self.supervisor.pid()]));
            if let Some(broken) = broken {
                return (woken, Some(broken.message));
            }
        }
    }
}
