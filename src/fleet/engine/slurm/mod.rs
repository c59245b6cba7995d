//! Slurm: tasks are job arrays, and their queue is that of the cluster. Job numbers are not remembered, since a restarted
//! controller gives them out again; a fleet's jobs are found by their names.

mod commands;
mod portion;
mod queue_text;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cancel::{CancelToken, Signal, WakeReason};
use crate::error::{Error, Result};
use crate::fleet::engine::slurm::commands::{CommandFailure, SlurmCommands};
use crate::fleet::engine::slurm::portion::{
    index_list, job_name, next_portion, offset_of, offsets,
};
use crate::fleet::engine::slurm::queue_text::{ListedTask, QUEUE_FORMAT, listed_tasks};
use crate::fleet::engine::{
    Engine, EngineQueue, EngineTask, EngineWait, QueueReading, QueuedTask, StartFailure,
};
use crate::fleet::folder::{FleetFolder, SLURM_LOG};
use crate::fleet::ledger::Ledger;
use crate::fleet::plan::FleetPlan;
use crate::llm::provider::ProviderFacts;
use crate::text::quote::shell_word;

/// How long the queue is left alone after a change, and at the most.
const SHORTEST_WAIT: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// In which time a second Ctrl+C cancels.
const SECOND_INTERRUPT: Duration = Duration::from_secs(5);
const PRINTED_BYTES: u64 = 4096;

/// What a caller gives to the commands.
pub(crate) struct SlurmCaller {
    pub(crate) variables: Vec<(OsString, OsString)>,
    /// Those that the plan's entries ask.
    pub(crate) providers: Vec<&'static ProviderFacts>,
}

/// A Slurm that answers, and this program as its tasks start it.
pub(crate) struct SlurmSettings {
    commands: SlurmCommands,
    program: String,
    cancel: CancelToken,
}

impl SlurmSettings {
    /// Finds the commands and asks the queue once.
    pub(crate) fn check(
        folder: &FleetFolder,
        caller: &SlurmCaller,
        cancel: &CancelToken,
    ) -> Result<SlurmSettings> {
        let program = own_program()?;
        let commands = SlurmCommands::find(&caller.variables, &caller.providers, &folder.path)?;
        match commands.squeue("fleet", QUEUE_FORMAT, cancel) {
            Ok(_) => Ok(SlurmSettings {
                commands,
                program,
                cancel: cancel.clone(),
            }),
            Err(CommandFailure::Stopped(signal)) => Err(Error::Stopped(signal)),
            Err(CommandFailure::Said(text)) => Err(Error::Usage(format!(
                "cannot ask Slurm for its queue: {text}\n\
                 help: `scontrol ping` says whether the controller is up; SLURM_CONF names another configuration\n\
                 help: without a cluster: --engine local"
            ))),
        }
    }
}

/// Refuses a directory and arguments of `sbatch` with which no task would be found. Slurm is not asked.
pub(crate) fn refuse_plan(folder: &FleetFolder, sbatch: &[String]) -> Result<()> {
    refuse_path(&folder.path)?;
    refuse_arguments(sbatch)
}

/// Refuses a directory that Slurm would not take as it is: in paths it replaces `%` and `\`.
fn refuse_path(path: &Path) -> Result<()> {
    let why = match path.to_str() {
        None => "it is not UTF-8",
        Some(text) if text.contains('%') => "Slurm replaces the `%` in it",
        Some(text) if text.contains('\\') => "Slurm replaces the `\\` in it",
        Some(_) => return Ok(()),
    };
    Err(Error::Usage(format!(
        "cannot use {} with --engine slurm: {why}\nhelp: name another directory: --out DIR",
        path.display()
    )))
}

/// Options of `sbatch` that the fleet sets, or without which it would not find its tasks.
const OWN_OPTIONS: [(&str, &str); 9] = [
    ("--array", "-a"),
    ("--chdir", "-D"),
    ("--clusters", "-M"),
    ("--export", ""),
    ("--job-name", "-J"),
    ("--no-requeue", ""),
    ("--test-only", ""),
    ("--wait", "-W"),
    ("--wrap", ""),
];

/// Refuses arguments of `sbatch` with which tasks would not be found again.
fn refuse_arguments(arguments: &[String]) -> Result<()> {
    let own = arguments.iter().find(|argument| {
        let name = argument.split('=').next().unwrap_or_default();
        OWN_OPTIONS
            .iter()
            .any(|(long, short)| name == *long || (!short.is_empty() && name.starts_with(short)))
    });
    match own {
        None => Ok(()),
        Some(own) => Err(Error::Usage(format!(
            "invalid --sbatch {own}: the fleet decides that itself\nhelp: leave it out"
        ))),
    }
}

/// The path of this program, which has to be the same on all machines.
fn own_program() -> Result<String> {
    let link = Path::new("/proc/self/exe");
    let path = link
        .read_link()
        .map_err(|error| Error::io("read", link, error))?;
    match path.to_str() {
        Some(text) if path.is_file() => Ok(text.to_owned()),
        _ => Err(Error::Usage(format!(
            "cannot start tasks: {} was replaced or deleted since this command began\nhelp: type it again",
            path.display()
        ))),
    }
}

/// The jobs of a fleet.
pub(crate) struct SlurmEngine {
    settings: SlurmSettings,
    folder: FleetFolder,
    plan: FleetPlan,
    /// The last reading of the queue; `None`: it was not read, or is not known.
    listed: Option<Vec<ListedTask>>,
    /// How long to wait before the next reading.
    interval: Duration,
    /// For commands that a signal does not end, so that it is known what they did.
    never: CancelToken,
}

impl SlurmEngine {
    pub(crate) fn new(
        settings: SlurmSettings,
        folder: &FleetFolder,
        plan: &FleetPlan,
    ) -> Result<SlurmEngine> {
        let never = CancelToken::never()
            .map_err(|error| Error::Bug(format!("cannot make a token: {error}")))?;
        Ok(SlurmEngine {
            settings,
            folder: folder.clone(),
            plan: plan.clone(),
            listed: None,
            interval: SHORTEST_WAIT,
            never,
        })
    }

    fn name(&self, offset: usize) -> String {
        job_name(&self.plan.fleet_id, offset)
    }

    fn names(&self) -> Vec<String> {
        offsets(self.plan.entries.len())
            .map(|offset| self.name(offset))
            .collect()
    }

    /// Reads the queue. Tasks that Slurm will never start are cancelled, and not in it.
    fn list(&mut self) -> std::result::Result<(), CommandFailure> {
        let before = self.listed.take();
        let mut tasks = Vec::new();
        for offset in offsets(self.plan.entries.len()) {
            let commands = &self.settings.commands;
            let name = self.name(offset);
            let text = commands.squeue(&name, QUEUE_FORMAT, &self.settings.cancel)?;
            tasks.extend(listed_tasks(&text, offset));
        }
        let (held, listed): (Vec<ListedTask>, Vec<ListedTask>) =
            tasks.into_iter().partition(ListedTask::never_starts);
        self.cancel_listed(&held, None);
        self.interval = match before.as_ref() == Some(&listed) {
            true => (self.interval * 3 / 2).min(LONGEST_WAIT),
            false => SHORTEST_WAIT,
        };
        self.listed = Some(listed);
        Ok(())
    }

    /// Cancels tasks by the numbers of their jobs, and by the name in case a number has been given out again. Those that
    /// are gone already are an error of `scancel` that does not matter; those that remain are read again.
    fn cancel_listed(&self, tasks: &[ListedTask], state: Option<&str>) {
        let mut jobs: BTreeMap<(usize, u64), BTreeSet<usize>> = BTreeMap::new();
        for task in tasks {
            let places = jobs.entry((task.offset, task.job)).or_default();
            places.insert(task.place);
        }
        for ((offset, job), places) in jobs {
            let one = places.first().filter(|_| places.len() == 1);
            let tasks = match one {
                Some(place) => format!("{job}_{place}"),
                None => format!("{job}_[{}]", index_list(places)),
            };
            let state = state.map(|state| format!("--state={state}"));
            let more: Vec<String> = state.into_iter().chain([tasks]).collect();
            let commands = &self.settings.commands;
            let _ = commands.scancel(&self.name(offset), &more, &self.never);
        }
    }

    /// Cancels tasks by the last reading, or all of a portion by its name.
    fn cancel(&mut self, tasks: &[EngineTask], state: Option<&str>) {
        self.interval = SHORTEST_WAIT;
        if self.listed.is_none() && self.list().is_err() {
            return;
        }
        let chosen: BTreeSet<usize> = tasks.iter().map(|task| task.index).collect();
        let listed = self.listed.iter().flatten();
        let listed = listed.filter(|task| chosen.contains(&task.index()));
        self.cancel_listed(&listed.cloned().collect::<Vec<_>>(), state);
    }

    /// Cancels all jobs of the fleet. Returns what went wrong.
    fn cancel_all(&self) -> std::result::Result<(), CommandFailure> {
        let mut names = self.names().into_iter();
        names.try_for_each(|name| self.settings.commands.scancel(&name, &[], &self.never))
    }

    /// Submits tasks of one portion as an array.
    fn submit(&self, offset: usize, indices: &[usize]) -> std::result::Result<(), StartFailure> {
        let arguments = self.submission(offset, indices);
        let submitted = self.settings.commands.sbatch(arguments, &self.never);
        submitted.map_err(|failure| StartFailure {
            message: failure.text(),
        })
    }

    /// The arguments of `sbatch`.
    fn submission(&self, offset: usize, indices: &[usize]) -> Vec<OsString> {
        let directory = self.folder.path.to_string_lossy();
        let resources = &self.plan.arguments.slurm;
        let cpus = resources.cpus.map(|n| format!("--cpus-per-task={n}"));
        let mem = resources.mem.as_ref().map(|size| format!("--mem={size}"));
        let time = resources
            .time_limit
            .map(|s| format!("--time={}", s.div_ceil(60)));
        let list = index_list(indices.iter().map(|index| index - offset));
        let limit = self.plan.arguments.jobs.map(|jobs| format!("%{jobs}"));
        // Tasks print their result for other engines; the log is for what prevents one.
        let line = format!(
            "exec {} fleet task {} $(({offset}+SLURM_ARRAY_TASK_ID)) > /dev/null",
            shell_word(&self.settings.program),
            shell_word(&directory)
        );
        let mut arguments = vec![
            "--parsable".to_owned(),
            "--export=ALL".to_owned(),
            "--requeue".to_owned(),
            format!("--job-name={}", self.name(offset)),
            format!("--chdir={directory}"),
            format!("--output={SLURM_LOG}"),
            "--open-mode=append".to_owned(),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
        ];
        arguments.extend([cpus, mem, time].into_iter().flatten());
        arguments.extend(resources.sbatch.iter().cloned());
        arguments.push(format!("--array={list}{}", limit.unwrap_or_default()));
        arguments.extend(["--wrap".to_owned(), line]);
        arguments.into_iter().map(OsString::from).collect()
    }
}

impl Engine for SlurmEngine {
    fn read_queue(&mut self) -> Result<QueueReading> {
        if let Err(failure) = self.list() {
            return Ok(QueueReading::Unknown(failure.text()));
        }
        let mut queue = EngineQueue::default();
        for task in self.listed.iter().flatten() {
            let state = queue.tasks.entry(task.index());
            let state = state.or_insert_with(|| task.state.clone());
            // Two copies: one runs, one waits.
            if task.state == QueuedTask::Running {
                *state = QueuedTask::Running;
            }
        }
        Ok(QueueReading::Known(queue))
    }

    fn select(&self, ready: &[EngineTask], out: &EngineQueue) -> Vec<EngineTask> {
        let jobs = self.plan.arguments.jobs.map(|jobs| jobs as usize);
        next_portion(ready, out, jobs)
    }

    fn start(&mut self, tasks: &[EngineTask]) -> std::result::Result<(), StartFailure> {
        self.interval = SHORTEST_WAIT;
        let mut portions: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for task in tasks {
            let indices = portions.entry(offset_of(task.index)).or_default();
            indices.push(task.index);
        }
        let mut portions = portions.iter();
        portions.try_for_each(|(offset, indices)| self.submit(*offset, indices))
    }

    fn stop(&mut self, tasks: &[EngineTask]) {
        self.cancel(tasks, None);
    }

    fn withdraw(&mut self, tasks: &[EngineTask]) {
        self.cancel(tasks, Some("PENDING"));
    }

    fn wait(&mut self, cancel: &CancelToken, until: Option<Instant>) -> io::Result<EngineWait> {
        let now = Instant::now();
        let due = now + self.interval;
        let until = until.map_or(due, |until| until.clamp(now + SHORTEST_WAIT, due));
        match cancel.wait(None, Some(until))? {
            WakeReason::Ready | WakeReason::TimedOut => Ok(EngineWait::Over),
            WakeReason::Stopped(signal) => Ok(EngineWait::Stopped(signal)),
        }
    }

    /// What is queued goes on, unless there is a second Ctrl+C.
    fn interrupt(&mut self, out: &EngineQueue, say: &mut dyn FnMut(String)) {
        if self.listed.is_some() && out.tasks.is_empty() {
            return;
        }
        let again = CancelToken::on_signals();
        say(self.interrupted_line(out));
        let is_key = self.settings.cancel.requested() == Some(Signal::Interrupt);
        let Some(again) = again.ok().filter(|_| is_key) else {
            return;
        };
        if !matches!(again.sleep(SECOND_INTERRUPT), Ok(WakeReason::Stopped(_))) {
            return;
        }
        let entries = self.plan.entries.iter().filter(|entry| !entry.left_out);
        let names: Vec<String> = entries.map(|entry| entry.name.clone()).collect();
        let noted = self
            .folder
            .cancel(&names)
            .map_err(|error| error.to_string());
        let cancelled = self.cancel_all().map_err(|failure| failure.text());
        say(match noted.and(cancelled) {
            Ok(()) => "cancelled; `fleet resume` starts the rest again".to_owned(),
            Err(why) => format!("cannot cancel: {why}"),
        });
    }

    /// What is still queued is of entries that are over.
    fn finish(&mut self) {
        if self
            .listed
            .as_ref()
            .is_some_and(|listed| !listed.is_empty())
        {
            let _ = self.cancel_all();
        }
    }

    fn is_local(&self) -> bool {
        false
    }

    fn printed(&self) -> String {
        end_of_file(&self.folder.file(SLURM_LOG)).unwrap_or_default()
    }
}

impl SlurmEngine {
    /// `2 queued and 8 running tasks go on, with $0.0400 reserved in all; ...`.
    fn interrupted_line(&self, out: &EngineQueue) -> String {
        let running = out.tasks.values();
        let running = running.filter(|task| **task == QueuedTask::Running).count();
        let tasks = match self.listed {
            Some(_) => format!(
                "{} queued and {running} running tasks",
                out.tasks.len() - running
            ),
            None => "queued and running tasks".to_owned(),
        };
        let reserved = Ledger::of(&self.folder).read();
        let reserved = reserved.map_or(0.0, |ledger| ledger.sum().usd());
        let folder = shell_word(&self.folder.path.to_string_lossy());
        format!(
            "{tasks} go on, with ${reserved:.4} reserved in all; \
             `orchestrator fleet resume {folder}` waits for them, \
             `orchestrator fleet cancel {folder}` or Ctrl+C within {} s cancels them",
            SECOND_INTERRUPT.as_secs()
        )
    }
}

/// The last bytes of a file.
fn end_of_file(path: &PathBuf) -> io::Result<String> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(PRINTED_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(PRINTED_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
