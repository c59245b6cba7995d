//! `watch`: follows the log of a run with the view of `run`, from its beginning to its end. Takes no lock, changes nothing.

use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use serde::Deserialize;
use serde_json::Value;

use crate::cancel::{CancelToken, WakeReason};
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::known_run::SavedState;
use crate::cli::log_file::log_file;
use crate::cli::output::print_stderr;
use crate::cli::run_names::named_run;
use crate::error::{Error, Result};
use crate::events::Event;
use crate::events::bus::Bus;
use crate::observers::console::{Console, ConsoleOptions};
use crate::state::store::Root;

/// How much of a log is read at a time.
const PIECE: usize = 1 << 18;

/// Follows a run; without `run` the one in the root.
pub(super) fn main(env: &CliEnv, run: Option<&str>) -> Result<()> {
    let cancel = cancel_on_signals()?;
    let root = Root::open(&env.root)?;
    let run_id = match run {
        Some(run) => named_run(&root, run)?,
        None => current_run(&root).ok_or_else(|| no_run(&root))?,
    };
    let path = log_file(&root, &run_id);
    let failed = |error| Error::io("read", &path, error);
    let waker = LogWaker::new(&root, &path).map_err(failed)?;
    let file = File::open(&path).map_err(failed)?;
    let mut view = WatchView::new(env);
    let mut lines = LogLines::new(file);
    let end = follow(&root, &run_id, (&mut lines, &mut view), &waker, &cancel);
    view.finish();
    match end.map_err(failed)? {
        WatchEnd::Ended => {}
        WatchEnd::NotRunning => print_stderr(&format!(
            "the run {run_id} is not running\nhelp: `orchestrator status --run {run_id}` says how to go on"
        )),
        WatchEnd::Replaced => print_stderr("another run has begun in this root"),
        WatchEnd::Stopped(signal) => return Err(Error::Stopped(signal)),
    }
    Ok(())
}

fn current_run(root: &Root) -> Option<String> {
    let state = SavedState::of(root.load().ok()?)?;
    Some(state.run_id().to_owned())
}

fn no_run(root: &Root) -> Error {
    Error::Usage(format!(
        "there is no run in {}\nhelp: `orchestrator runs` lists the runs that have a log",
        root.path.display()
    ))
}

/// Why a run is no longer followed.
enum WatchEnd {
    /// Its process has recorded the end.
    Ended,
    /// No process works on it, and its log has no end.
    NotRunning,
    Replaced,
    Stopped(crate::cancel::Signal),
}

fn follow(
    root: &Root,
    run_id: &str,
    (lines, view): (&mut LogLines, &mut WatchView),
    waker: &LogWaker,
    cancel: &CancelToken,
) -> io::Result<WatchEnd> {
    loop {
        // Looked for before the log is read: a process that is gone has written its last line.
        let holder = root.lock_holder();
        let is_current = current_run(root).as_deref() == Some(run_id);
        lines.read_new(&mut |line| view.show(line))?;
        if view.has_ended {
            return Ok(WatchEnd::Ended);
        }
        let Some(holder) = holder else {
            return Ok(WatchEnd::NotRunning);
        };
        if !is_current {
            return Ok(WatchEnd::Replaced);
        }
        view.catch_up();
        if let WakeReason::Stopped(signal) = waker.wait(holder.pid, cancel)? {
            return Ok(WatchEnd::Stopped(signal));
        }
    }
}

/// Waits for a new line, a new state, or the end of a process.
struct LogWaker {
    inotify: OwnedFd,
}

impl LogWaker {
    fn new(root: &Root, log: &Path) -> io::Result<LogWaker> {
        let inotify = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        add_watch(&inotify, log, WatchFlags::MODIFY)?;
        // `state.json` is replaced by a rename.
        add_watch(&inotify, root.path.as_path(), WatchFlags::MOVED_TO)?;
        Ok(LogWaker { inotify })
    }

    fn wait(&self, pid: u32, cancel: &CancelToken) -> io::Result<WakeReason> {
        let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
        // A process of another pid namespace has none; its end is noticed with the next line or state.
        let process = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let mut descriptors: Vec<BorrowedFd<'_>> = vec![self.inotify.as_fd()];
        descriptors.extend(process.as_ref().map(AsFd::as_fd));
        let woken = cancel.wait_any(&descriptors, None)?;
        let mut events = [0; 4096];
        while rustix::io::read(&self.inotify, &mut events).is_ok_and(|read| 0 < read) {}
        Ok(woken)
    }
}

/// The complete lines of a log that grows.
struct LogLines {
    file: File,
    /// The beginning of a line that is not complete.
    rest: Vec<u8>,
}

impl LogLines {
    fn new(file: File) -> LogLines {
        LogLines {
            file,
            rest: Vec::new(),
        }
    }

    /// Reads what was added; a line that cannot be parsed is skipped.
    fn read_new(&mut self, show: &mut dyn FnMut(WatchedLine)) -> io::Result<()> {
        let mut piece = vec![0; PIECE];
        loop {
            let read = self.file.read(&mut piece)?;
            if read == 0 {
                return Ok(());
            }
            self.rest.extend(&piece[..read]);
            let Some(end) = self.rest.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let lines: Vec<u8> = self.rest.drain(..=end).collect();
            lines
                .split(|byte| *byte == b'\n')
                .filter_map(WatchedLine::parse)
                .for_each(&mut *show);
        }
    }
}

/// An event with its time.
struct WatchedLine {
    time: DateTime<Utc>,
    event: Event,
}

impl WatchedLine {
    fn parse(line: &[u8]) -> Option<WatchedLine> {
        let value: Value = serde_json::from_slice(line).ok()?;
        let time = DateTime::parse_from_rfc3339(value["ts"].as_str()?).ok()?;
        Some(WatchedLine {
            time: time.with_timezone(&Utc),
            event: Event::deserialize(value).ok()?,
        })
    }
}

/// The console of a run that another process drives.
struct WatchView {
    bus: Bus,
    console: Option<Console>,
    color: bool,
    has_dumb_terminal: bool,
    started: Option<DateTime<Utc>>,
    has_ended: bool,
}

impl WatchView {
    fn new(env: &CliEnv) -> WatchView {
        WatchView {
            bus: Bus::default(),
            console: None,
            color: env.has_color(io::stderr().is_terminal()),
            has_dumb_terminal: env.has_dumb_terminal(),
            started: None,
            has_ended: false,
        }
    }

    fn show(&mut self, line: WatchedLine) {
        if let Event::WorkflowStarted { start_state, .. } = &line.event {
            self.started = Some(line.time);
            self.attach(start_state.is_some());
        }
        self.set_time(line.time);
        self.bus.emit(&line.event);
        // A run that goes on after a pause or an interrupt has a further start.
        self.has_ended = match line.event {
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => true,
            Event::WorkflowStarted { .. } => false,
            _ => self.has_ended,
        };
    }

    fn attach(&mut self, is_workflow: bool) {
        if self.console.is_some() {
            return;
        }
        let mut options = ConsoleOptions::stderr(false);
        (options.color, options.sees_streams) = (self.color, false);
        if self.has_dumb_terminal {
            options.terminal = None;
        }
        self.console = Some(match is_workflow {
            true => Console::attach_workflow(&mut self.bus, options),
            false => Console::attach(&mut self.bus, options),
        });
    }

    /// Shows times as they were at that moment of the run.
    fn set_time(&self, time: DateTime<Utc>) {
        if let (Some(console), Some(started)) = (&self.console, self.started) {
            let elapsed = (time - started).to_std().unwrap_or(Duration::ZERO);
            console.set_elapsed(elapsed);
        }
    }

    /// Shows times as they are now.
    fn catch_up(&self) {
        self.set_time(Utc::now());
    }

    fn finish(&mut self) {
        drop(self.console.take());
    }
}
