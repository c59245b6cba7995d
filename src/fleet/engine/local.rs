//! The engine that is always there: tasks are children of the driver, at most so many at a time.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::fs::inotify::{CreateFlags, Reader, WatchFlags, add_watch, init};

use crate::cancel::{CancelToken, WakeReason};
use crate::error::{Error, Result};
use crate::fleet::engine::{
    EndedTask, Engine, EngineQueue, EngineTask, EngineWait, QueueReading, QueuedTask, StartFailure,
};
use crate::fleet::folder::{CANCELLED_FILE, FleetFolder};
use crate::process::own_process::OwnProcess;

/// When the directory begins to be watched. The kernel needs up to 15 ms to end a watch, which would be a good part of a
/// short fleet. `fleet cancel` interrupts tasks itself, and the driver looks for cancellations whenever one has ended; the
/// watch is for those that it cannot reach, in another container for example.
const WATCH_AFTER: Duration = Duration::from_secs(1);

/// Tasks as children of this process.
pub(crate) struct LocalEngine {
    program: PathBuf,
    folder: FleetFolder,
    jobs: usize,
    running: BTreeMap<usize, OwnProcess>,
    /// When the directory is to be watched; `None` once that was tried.
    watch_at: Option<Instant>,
    /// Readable when a file of the directory was replaced: `fleet cancel` does that. `None`: it is not watched.
    changes: Option<OwnedFd>,
}

impl LocalEngine {
    /// `program` is this one.
    pub(crate) fn new(program: PathBuf, folder: &FleetFolder, jobs: usize) -> LocalEngine {
        LocalEngine {
            program,
            folder: folder.clone(),
            jobs: jobs.max(1),
            running: BTreeMap::new(),
            watch_at: Some(Instant::now() + WATCH_AFTER),
            changes: None,
        }
    }

    /// Begins to watch the directory. The kernel refuses it where the user has too many watches; the fleet works without.
    fn watch(&mut self) {
        self.watch_at = None;
        let changes = init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK);
        self.changes = changes
            .ok()
            .filter(|changes| add_watch(changes, &self.folder.path, WatchFlags::MOVED_TO).is_ok());
    }

    /// Drains the changes of the directory; returns whether one of them was a cancellation.
    fn was_cancelled(&self) -> bool {
        let Some(changes) = &self.changes else {
            return false;
        };
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(changes, &mut buffer);
        let mut is_cancelled = false;
        while let Ok(event) = events.next() {
            let name = event.file_name().map(|name| name.to_bytes());
            is_cancelled |= name == Some(CANCELLED_FILE.as_bytes());
        }
        is_cancelled
    }

    /// Whether a task has ended.
    fn has_ended(&mut self) -> io::Result<bool> {
        for process in self.running.values_mut() {
            if process.ended()?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Engine for LocalEngine {
    fn read_queue(&mut self) -> Result<QueueReading> {
        let mut queue = EngineQueue::default();
        for (index, process) in &mut self.running {
            let ended = process
                .ended()
                .map_err(|error| Error::io("wait for", &self.program, error))?;
            match ended {
                None => drop(queue.tasks.insert(*index, QueuedTask::Running)),
                Some(status) => {
                    let by_signal = status.signal().map(|signal| 128 + signal);
                    let ended = EndedTask {
                        exit_code: status.code().or(by_signal),
                        printed: process.printed(),
                    };
                    queue.ended.insert(*index, ended);
                }
            }
        }
        self.running
            .retain(|index, _| queue.tasks.contains_key(index));
        Ok(QueueReading::Known(queue))
    }

    fn select(&self, ready: &[EngineTask], out: &EngineQueue) -> Vec<EngineTask> {
        let free = self.jobs.saturating_sub(out.tasks.len());
        ready.iter().take(free).cloned().collect()
    }

    fn start(&mut self, tasks: &[EngineTask]) -> std::result::Result<(), StartFailure> {
        for task in tasks {
            let arguments = [
                OsString::from("fleet"),
                "task".into(),
                "--driver".into(),
                std::process::id().to_string().into(),
                "--".into(),
                self.folder.path.clone().into(),
                task.index.to_string().into(),
            ];
            let process =
                OwnProcess::start(&self.program, &arguments).map_err(|error| StartFailure {
                    message: format!("cannot start {}: {error}", self.program.display()),
                })?;
            self.running.insert(task.index, process);
        }
        Ok(())
    }

    fn stop(&mut self, tasks: &[EngineTask]) {
        for task in tasks {
            if let Some(process) = self.running.get(&task.index) {
                process.interrupt();
            }
        }
    }

    /// Nothing waits: what is started runs.
    fn withdraw(&mut self, _tasks: &[EngineTask]) {}

    fn wait(&mut self, cancel: &CancelToken, until: Option<Instant>) -> io::Result<EngineWait> {
        let until = until.into_iter().chain(self.watch_at).min();
        loop {
            let watched = self.changes.iter().map(AsFd::as_fd);
            let tasks = self.running.values().map(OwnProcess::as_fd);
            let descriptors: Vec<BorrowedFd<'_>> = watched.chain(tasks).collect();
            match cancel.wait_any(&descriptors, until)? {
                WakeReason::Stopped(signal) => return Ok(EngineWait::Stopped(signal)),
                WakeReason::TimedOut => {
                    // What was cancelled before is seen now: the driver reads the file after a wait.
                    if self.watch_at.is_some_and(|at| at <= Instant::now()) {
                        self.watch();
                    }
                    return Ok(EngineWait::Over);
                }
                // Tasks replace the ledger, too, which changes nothing here.
                WakeReason::Ready if self.was_cancelled() || self.has_ended()? => {
                    return Ok(EngineWait::Over);
                }
                WakeReason::Ready => {}
            }
        }
    }

    fn interrupt(&mut self, _out: &EngineQueue, _say: &mut dyn FnMut(String)) {
        for process in self.running.values() {
            process.interrupt();
        }
        let Ok(never) = CancelToken::never() else {
            return;
        };
        while !self.running.is_empty() {
            let over = self.wait(&never, None);
            if over.is_err() || self.read_queue().is_err() {
                break;
            }
        }
    }

    /// Nothing is queued, and the driver waits for what runs.
    fn finish(&mut self) {}

    fn is_local(&self) -> bool {
        true
    }

    fn printed(&self) -> String {
        String::new()
    }
}
