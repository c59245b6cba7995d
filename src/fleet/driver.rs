//! The driver: compares plan, results and the engine's queue, and starts what is missing, until nothing can go on.
//!
//! It keeps nothing on disk: killed at any moment, the next one goes on. It reads the queue before the results, so that a
//! task that ends in between is never taken for lost.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, Signal};
use crate::error::{Error, Result};
use crate::fleet::engine::{
    EndedTask, Engine, EngineQueue, EngineTask, EngineWait, QueueReading, QueuedTask,
};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::{Ledger, LedgerState, Micros};
use crate::fleet::pauses::{GateState, ProviderGates};
use crate::fleet::plan::FleetEntry;
use crate::fleet::task_result::{TaskOutcome, TaskResult};
use crate::fleet::tracked_entry::{DriverEntry, Standing, TrackedEntry};
use crate::state::reason::Reason;

/// How often an entry may be lost in a row without a new recorded answer.
const MAX_LOSSES: u32 = 3;
/// How often an entry may be paused by a provider that does not answer.
const MAX_PAUSES: u32 = 5;
/// When something is tried again that another process or the engine prevents, and how often it is said.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// What only the caller can do: it knows how a run is stored.
pub(crate) trait DriverHost {
    /// How many answers the logs of an entry's root have.
    fn recorded_answers(&self, name: &str) -> u64;

    /// Writes the result of an entry that was lost too often, and settles what it has spent. Returns `false` where a
    /// process has the lock of its root.
    fn give_up(&self, entry: &FleetEntry, printed: &str) -> Result<bool>;

    fn show(&mut self, event: DriverEvent<'_>);

    /// When it wants to show the progress again, because it was shown too recently.
    fn next_draw(&self) -> Option<Instant>;
}

/// What the user may want to see.
pub(crate) enum DriverEvent<'a> {
    Ended {
        entry: &'a FleetEntry,
        result: &'a TaskResult,
    },
    Note(String),
    Progress(DriverProgress),
}

/// Counts of entries, for a line that is redrawn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct DriverProgress {
    pub(crate) entries: usize,
    /// Those that this driver will not start again.
    pub(crate) ended: usize,
    /// Those of them that ended since it began.
    pub(crate) ended_now: usize,
    pub(crate) succeeded: usize,
    pub(crate) failed: usize,
    pub(crate) paused: usize,
    pub(crate) running: usize,
    pub(crate) pending: usize,
    pub(crate) reserved: Micros,
    pub(crate) budget: Option<Micros>,
}

/// How the driver ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DriverEnd {
    /// Nothing can go on.
    Done,
    /// The first tasks are started.
    Detached,
    Stopped(Signal),
}

/// The settings of a driver.
pub(crate) struct DriverSettings {
    pub(crate) folder: FleetFolder,
    /// The factor of all delays.
    pub(crate) scale: f64,
    /// Leave once the first tasks are started.
    pub(crate) detaches: bool,
}

pub(crate) struct Driver<'a> {
    settings: DriverSettings,
    ledger: Ledger,
    engine: &'a mut dyn Engine,
    host: &'a mut dyn DriverHost,
    cancel: CancelToken,
    entries: Vec<TrackedEntry>,
    gates: ProviderGates,
    cancelled: BTreeSet<String>,
    ended_before: usize,
    /// When the engine may be asked again after a failure, and what it said.
    refused: Option<(Instant, String)>,
    /// Since when the queue is unknown, and when that was said last.
    unknown: Option<Instant>,
    /// Since when nothing runs although something waits; `None` once that was said.
    idle: Option<Instant>,
    idle_was_said: bool,
}

impl<'a> Driver<'a> {
    pub(crate) fn new(
        settings: DriverSettings,
        entries: Vec<DriverEntry>,
        engine: &'a mut dyn Engine,
        host: &'a mut dyn DriverHost,
        cancel: CancelToken,
    ) -> Driver<'a> {
        let tracked = entries.into_iter().map(|entry| TrackedEntry {
            entry,
            standing: Standing::Unknown,
            result_before: None,
            needs: None,
            is_paused: false,
            losses: 0,
            answers: 0,
            pauses: 0,
            not_before: None,
        });
        Driver {
            ledger: Ledger::of(&settings.folder),
            gates: ProviderGates::new(settings.scale),
            entries: tracked.collect(),
            settings,
            engine,
            host,
            cancel,
            cancelled: BTreeSet::new(),
            ended_before: 0,
            refused: None,
            unknown: None,
            idle: None,
            idle_was_said: false,
        }
    }

    /// Works until nothing can go on, or a signal stops it.
    pub(crate) fn run(&mut self) -> Result<DriverEnd> {
        let mut is_first = true;
        loop {
            let mut queue = match self.engine.read_queue()? {
                QueueReading::Known(queue) => queue,
                QueueReading::Unknown(why) => {
                    if self.cancel.requested().is_none() {
                        self.say_unknown(&why);
                    }
                    match self.wait(Some(Instant::now() + self.delay()))? {
                        EngineWait::Over => continue,
                        EngineWait::Stopped(signal) => return Ok(self.stopped(signal, None)),
                    }
                }
            };
            self.unknown = None;
            // After the queue: `fleet cancel` notes what it stops before it does.
            let cancelled = self.settings.folder.cancelled()?;
            let cancelled_before = std::mem::replace(&mut self.cancelled, cancelled);
            self.read_results(&mut queue)?;
            if std::mem::take(&mut is_first) {
                self.ended_before = self.progress(&queue, &LedgerState::default()).ended;
            }
            self.obey_cancellations(&queue, &cancelled_before);
            self.withdraw_from_closed_providers(&queue);
            let next = self.start_ready(&mut queue)?;
            let ledger = self.ledger.read()?;
            let progress = self.progress(&queue, &ledger);
            self.host.show(DriverEvent::Progress(progress));
            if self.settings.detaches && !queue.tasks.is_empty() {
                return Ok(DriverEnd::Detached);
            }
            if queue.tasks.is_empty() && next.is_none() {
                self.engine.finish();
                return Ok(DriverEnd::Done);
            }
            self.say_idle(&queue);
            let until = next.into_iter().chain(self.host.next_draw()).min();
            if let EngineWait::Stopped(signal) = self.wait(until)? {
                return Ok(self.stopped(signal, Some(&queue)));
            }
        }
    }

    /// Waits for the engine, until a time at the most.
    fn wait(&mut self, until: Option<Instant>) -> Result<EngineWait> {
        let waited = self.engine.wait(&self.cancel, until);
        waited.map_err(|error| Error::io("wait in", &self.settings.folder.path, error))
    }

    fn delay(&self) -> Duration {
        RETRY_DELAY.mul_f64(self.settings.scale)
    }

    fn stopped(&mut self, signal: Signal, queue: Option<&EngineQueue>) -> DriverEnd {
        let nothing = EngineQueue::default();
        let host = &mut *self.host;
        let mut say = |line| host.show(DriverEvent::Note(line));
        self.engine.interrupt(queue.unwrap_or(&nothing), &mut say);
        DriverEnd::Stopped(signal)
    }

    fn say_unknown(&mut self, why: &str) {
        let now = Instant::now();
        if self.unknown.is_none_or(|said| said + RETRY_DELAY <= now) {
            self.unknown = Some(now);
            let line = format!("the queue is not known: {why}; waiting");
            self.host.show(DriverEvent::Note(line));
        }
    }

    /// Says once what queued tasks wait for, when nothing has run for a minute.
    fn say_idle(&mut self, queue: &EngineQueue) {
        let runs = queue
            .tasks
            .values()
            .any(|task| *task == QueuedTask::Running);
        if runs || queue.tasks.is_empty() {
            self.idle = None;
            return;
        }
        let now = Instant::now();
        let since = *self.idle.get_or_insert(now);
        if self.idle_was_said || now < since + RETRY_DELAY {
            return;
        }
        self.idle_was_said = true;
        let reasons: BTreeSet<&str> = queue
            .tasks
            .values()
            .filter_map(|task| match task {
                QueuedTask::Pending(reason) => Some(reason.as_str()),
                QueuedTask::Running => None,
            })
            .collect();
        let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
        let line = format!("nothing has run for a minute; queued tasks wait for: {reasons}");
        self.host.show(DriverEvent::Note(line));
    }

    /// Follows every entry that is not ended from the queue and its result. Then the queue has only tasks of entries that
    /// are not ended.
    fn read_results(&mut self, queue: &mut EngineQueue) -> Result<()> {
        for position in 0..self.entries.len() {
            let index = self.entries[position].entry.index;
            if queue.tasks.contains_key(&index) {
                self.follow_queued(position)?;
                continue;
            }
            let tracked = &mut self.entries[position];
            match tracked.standing {
                Standing::Unknown => {
                    let name = &tracked.entry.entry.name;
                    let result = TaskResult::load(&self.settings.folder, name)?;
                    tracked.begin(result.as_ref());
                }
                Standing::Out => self.follow_end(position, queue.ended.get(&index))?,
                Standing::Waiting | Standing::Succeeded | Standing::Failed | Standing::Left => {}
            }
        }
        let entries = self.entries.iter();
        let out = entries.filter(|tracked| tracked.standing == Standing::Out);
        let out: BTreeSet<usize> = out.map(|tracked| tracked.entry.index).collect();
        queue.tasks.retain(|index, _| out.contains(index));
        Ok(())
    }

    /// A task is in the queue. An engine may have several copies of it, and lists one that has ended for a while: the
    /// result decides.
    fn follow_queued(&mut self, position: usize) -> Result<()> {
        let tracked = &mut self.entries[position];
        match tracked.standing {
            Standing::Succeeded | Standing::Failed | Standing::Left => return Ok(()),
            Standing::Unknown | Standing::Waiting | Standing::Out => {}
        }
        let is_first = tracked.standing == Standing::Unknown;
        tracked.standing = Standing::Out;
        if self.engine.is_local() {
            return Ok(());
        }
        let entry = &tracked.entry.entry;
        let result = TaskResult::load(&self.settings.folder, &entry.name)?;
        match result.filter(|result| result.is_over(entry)) {
            Some(result) if is_first => tracked.begin(Some(&result)),
            Some(result) => self.take_result(position, &result),
            None => {}
        }
        Ok(())
    }

    /// A task is not in the queue any longer.
    fn follow_end(&mut self, position: usize, ended: Option<&EndedTask>) -> Result<()> {
        let name = self.entries[position].entry.entry.name.clone();
        let result = TaskResult::load(&self.settings.folder, &name)?;
        let tracked = &mut self.entries[position];
        let is_new =
            |result: &TaskResult| tracked.result_before.as_ref() != Some(&result.task.ended_at);
        match result.filter(is_new) {
            Some(result) => {
                self.take_result(position, &result);
                Ok(())
            }
            None if self.cancelled.contains(&name) => {
                tracked.standing = Standing::Left;
                Ok(())
            }
            None => self.lose(position, ended),
        }
    }

    /// A task has written a result.
    fn take_result(&mut self, position: usize, result: &TaskResult) {
        let now = Instant::now();
        let tracked = &mut self.entries[position];
        tracked.losses = 0;
        let provider = tracked.entry.provider.clone();
        let mut refused = None;
        match result.outcome {
            TaskOutcome::Success | TaskOutcome::Failed if result.is_over(&tracked.entry.entry) => {
                self.gates.open(&provider);
                tracked.standing = match result.outcome {
                    TaskOutcome::Success => Standing::Succeeded,
                    _ => Standing::Failed,
                };
            }
            // Of a spec that has changed since it was started.
            TaskOutcome::Success | TaskOutcome::Failed => tracked.wait_again(result),
            TaskOutcome::Refused => tracked.standing = Standing::Failed,
            TaskOutcome::Paused => {
                tracked.is_paused = true;
                let reason = result.reason.as_str();
                if reason == Reason::ProviderUnauthorized.word() {
                    if self.gates.state(&provider, now) != GateState::Refused {
                        refused = Some(format!(
                            "{provider} refuses the key or the account: nothing more is started for it"
                        ));
                    }
                    self.gates.refuse(&provider);
                } else if reason == Reason::ProviderUnavailable.word() {
                    self.gates.close(&provider, now);
                    tracked.pauses += 1;
                }
                match tracked.pauses < MAX_PAUSES {
                    true => tracked.wait_again(result),
                    false => tracked.standing = Standing::Left,
                }
            }
        }
        let entry = &self.entries[position].entry.entry;
        self.host.show(DriverEvent::Ended { entry, result });
        if let Some(line) = refused {
            self.host.show(DriverEvent::Note(line));
        }
    }

    /// A task ended without a result.
    fn lose(&mut self, position: usize, ended: Option<&EndedTask>) -> Result<()> {
        let later = Instant::now() + self.delay();
        let tracked = &mut self.entries[position];
        tracked.standing = Standing::Waiting;
        let root_is_in_use = i32::from(Reason::RootLocked.exit_code());
        if ended.and_then(|ended| ended.exit_code) == Some(root_is_in_use) {
            tracked.not_before = Some(later);
            return Ok(());
        }
        let answers = self.host.recorded_answers(&tracked.entry.entry.name);
        tracked.losses = match tracked.answers < answers {
            true => 1,
            false => tracked.losses + 1,
        };
        tracked.answers = answers;
        let (name, losses) = (&tracked.entry.entry.name, tracked.losses);
        if losses < MAX_LOSSES {
            let line = format!("{name}: lost ({losses} of {MAX_LOSSES} in a row); started again");
            self.host.show(DriverEvent::Note(line));
            return Ok(());
        }
        let printed = match ended {
            Some(ended) => ended.printed.clone(),
            None => self.engine.printed(),
        };
        if !self.host.give_up(&tracked.entry.entry, &printed)? {
            tracked.not_before = Some(later);
            return Ok(());
        }
        tracked.standing = Standing::Failed;
        if let Some(result) = TaskResult::load(&self.settings.folder, name)? {
            let entry = &self.entries[position].entry.entry;
            self.host.show(DriverEvent::Ended {
                entry,
                result: &result,
            });
        }
        Ok(())
    }

    /// Stops the tasks that `fleet cancel` has named since the last time.
    fn obey_cancellations(&mut self, queue: &EngineQueue, before: &BTreeSet<String>) {
        let mut stopped = Vec::new();
        for tracked in &mut self.entries {
            let name = &tracked.entry.entry.name;
            if !self.cancelled.contains(name) {
                continue;
            }
            if !before.contains(name) && queue.tasks.contains_key(&tracked.entry.index) {
                stopped.push(tracked.task());
            }
            if tracked.standing == Standing::Waiting {
                tracked.standing = Standing::Left;
            }
        }
        if !stopped.is_empty() {
            self.engine.stop(&stopped);
        }
    }

    /// Takes queued tasks back whose provider does not answer.
    fn withdraw_from_closed_providers(&mut self, queue: &EngineQueue) {
        let now = Instant::now();
        let is_pending = |tracked: &&TrackedEntry| {
            let task = queue.tasks.get(&tracked.entry.index);
            matches!(task, Some(QueuedTask::Pending(_)))
                && self.gates.state(&tracked.entry.provider, now) != GateState::Open
        };
        let pending = self.entries.iter().filter(is_pending);
        let tasks: Vec<EngineTask> = pending.map(TrackedEntry::task).collect();
        if tasks.is_empty() {
            return;
        }
        self.engine.withdraw(&tasks);
        let withdrawn: BTreeSet<usize> = tasks.iter().map(|task| task.index).collect();
        for tracked in &mut self.entries {
            if withdrawn.contains(&tracked.entry.index) {
                tracked.standing = Standing::Waiting;
            }
        }
    }

    /// Starts what can be started, and adds it to the queue. Returns when more may be possible at the latest; `None`
    /// where nothing waits for a time.
    fn start_ready(&mut self, queue: &mut EngineQueue) -> Result<Option<Instant>> {
        let now = Instant::now();
        let ledger = self.ledger.read()?;
        let (ready, next) = self.ready(&ledger, now);
        if let Some((until, _)) = self.refused.as_ref().filter(|(until, _)| now < *until) {
            return Ok(Some(*until));
        }
        let tasks = self.engine.select(&ready, queue);
        if tasks.is_empty() {
            return Ok(next);
        }
        if let Err(failure) = self.engine.start(&tasks) {
            return self.refused_start(failure.message, queue, now).map(Some);
        }
        self.refused = None;
        let started: BTreeMap<usize, &EngineTask> =
            tasks.iter().map(|task| (task.index, task)).collect();
        for tracked in &mut self.entries {
            if started.contains_key(&tracked.entry.index) {
                tracked.standing = Standing::Out;
                let task = QueuedTask::Pending(String::new());
                queue.tasks.insert(tracked.entry.index, task);
            }
        }
        Ok(next)
    }

    /// The engine refuses tasks: an error where none is out, else it is tried again later.
    fn refused_start(
        &mut self,
        message: String,
        queue: &EngineQueue,
        now: Instant,
    ) -> Result<Instant> {
        if queue.tasks.is_empty() {
            let source = std::io::Error::other(message);
            return Err(Error::io(
                "start tasks in",
                &self.settings.folder.path,
                source,
            ));
        }
        let line = format!("tasks cannot be started: {message}; they are tried again");
        if self
            .refused
            .as_ref()
            .is_none_or(|(_, said)| *said != message)
        {
            self.host.show(DriverEvent::Note(line));
        }
        let until = now + self.delay();
        self.refused = Some((until, message));
        Ok(until)
    }

    /// The entries that can be started now, and when the next one can be.
    fn ready(&self, ledger: &LedgerState, now: Instant) -> (Vec<EngineTask>, Option<Instant>) {
        let mut left = ledger.left();
        let mut tasks = Vec::new();
        let mut next: Option<Instant> = None;
        for tracked in &self.entries {
            if tracked.standing != Standing::Waiting {
                continue;
            }
            let gate = self.gates.state(&tracked.entry.provider, now);
            let opens = match gate {
                GateState::Refused => continue,
                GateState::OpensAt(at) => Some(at),
                GateState::Open => None,
            };
            let later = opens.max(tracked.not_before.filter(|at| now < *at));
            if let Some(at) = later {
                next = Some(next.map_or(at, |next| next.min(at)));
                continue;
            }
            let needs = tracked.needs.unwrap_or_default();
            match left {
                Some(amount) if amount < needs => continue,
                _ => left = left.map(|amount| amount.minus(needs)),
            }
            tasks.push(tracked.task());
        }
        (tasks, next)
    }

    fn progress(&self, queue: &EngineQueue, ledger: &LedgerState) -> DriverProgress {
        let mut progress = DriverProgress {
            entries: self.entries.len(),
            reserved: ledger.sum(),
            budget: ledger.budget,
            ..DriverProgress::default()
        };
        for task in queue.tasks.values() {
            match task {
                QueuedTask::Running => progress.running += 1,
                QueuedTask::Pending(_) if self.engine.is_local() => progress.running += 1,
                QueuedTask::Pending(_) => progress.pending += 1,
            }
        }
        for tracked in &self.entries {
            match tracked.standing {
                Standing::Succeeded => progress.succeeded += 1,
                Standing::Failed => progress.failed += 1,
                Standing::Left => progress.paused += 1,
                Standing::Waiting => progress.paused += usize::from(tracked.is_paused),
                Standing::Unknown | Standing::Out => {}
            }
            let is_ended = matches!(
                tracked.standing,
                Standing::Succeeded | Standing::Failed | Standing::Left
            );
            progress.ended += usize::from(is_ended);
        }
        progress.ended_now = progress.ended.saturating_sub(self.ended_before);
        progress
    }
}
