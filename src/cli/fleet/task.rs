//! `fleet task`: runs one entry in its root. It may be started again, anywhere, also twice at once: the lock of the root
//! lets one work, and the others then find the entry done.

use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cancel::CancelToken;
use crate::cli::arguments::RunArguments;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::fleet::arguments::FleetTaskArguments;
use crate::cli::fleet::root_facts::RootFacts;
use crate::cli::fleet::variables::run_arguments;
use crate::cli::outcome::RunOutcome;
use crate::cli::output::{print_stderr, write_stdout};
use crate::cli::run::execute_locked;
use crate::cli::run_config::RunConfig;
use crate::error::{Error, Result};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::{Ledger, Micros, TaskBudget};
use crate::fleet::plan::{FleetEntry, FleetPlan, real_path};
use crate::fleet::task_result::{TaskFacts, TaskResult, result_object};
use crate::process::own_process::end_with_parent;
use crate::state::reason::Reason;
use crate::state::run::timestamp;
use crate::state::store::{LoadedState, Lock, Root, host_name};

/// What a task ends with: the object on stdout, and the exit code.
struct TaskEnd {
    object: Value,
    exit_code: u8,
    /// What went wrong, if the run itself has not shown it.
    error: Option<String>,
}

/// Runs the command and returns its exit code.
pub(super) fn main(arguments: &FleetTaskArguments, env: &CliEnv) -> u8 {
    let is_shown = std::io::stderr().is_terminal();
    let end = cancel_on_signals()
        .and_then(|cancel| {
            follow_driver(arguments)?;
            run_task(arguments, env, cancel)
        })
        .unwrap_or_else(|error| TaskEnd::of(RunOutcome::refused(&error), is_shown));
    if let Some(error) = &end.error {
        print_stderr(&format!("error: {error}"));
    }
    let _ = write_stdout(&format!("{}\n", end.object));
    end.exit_code
}

/// Ends this task with the driver that started it.
fn follow_driver(arguments: &FleetTaskArguments) -> Result<()> {
    let Some(driver) = arguments.driver else {
        return Ok(());
    };
    match end_with_parent(driver) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Stopped(crate::cancel::Signal::Terminate)),
        Err(error) => Err(Error::Bug(format!("cannot follow the driver: {error}"))),
    }
}

impl TaskEnd {
    fn of(outcome: RunOutcome, is_shown: bool) -> TaskEnd {
        let exit_code = outcome.exit_code();
        let is_error = matches!(exit_code, 2 | 64..=79);
        let error =
            (is_error && !(is_shown && outcome.is_shown())).then(|| outcome.message().to_owned());
        TaskEnd {
            object: serde_json::to_value(&outcome).unwrap_or_default(),
            exit_code,
            error,
        }
    }
}

/// An entry, its root, and what is to be run in it.
struct Task {
    folder: FleetFolder,
    entry: FleetEntry,
    arguments: RunArguments,
    spec: PathBuf,
    started_at: String,
}

fn run_task(arguments: &FleetTaskArguments, env: &CliEnv, cancel: CancelToken) -> Result<TaskEnd> {
    let mut task = Task::find(arguments, env)?;
    let root = task.folder.create_root(&task.entry.name)?;
    let env = env.in_root(&root);
    let config = task.config(&env, &cancel);
    task.refuse_if_cancelled()?;
    let root = Root::open(&root)?;
    let wait = Duration::from_secs(arguments.wait_lock);
    let lock = root.lock_until(Instant::now() + wait, &cancel)?;
    // Waiting for another task is not part of this one.
    task.started_at = timestamp();
    match (config, task.recorded_end()?) {
        // What was asked for then is over, and stays so.
        (Err(error), Some(_)) if error.reason() == Reason::SpecChanged => {
            Ok(TaskEnd::of(RunOutcome::refused(&error), false))
        }
        (_, Some(end)) => Ok(end),
        (Err(error), None) => task.refuse(&error, &lock),
        (Ok(config), None) => {
            // `fleet cancel` stops the task that has the lock, not those that wait for it.
            task.refuse_if_cancelled()?;
            task.run(config, &env, (root, lock), cancel)
        }
    }
}

impl Task {
    fn find(arguments: &FleetTaskArguments, env: &CliEnv) -> Result<Task> {
        let folder = FleetFolder::new(&env.absolute(&arguments.directory));
        let plan = FleetPlan::load_existing(&folder)?;
        let entry = plan.find_task(&arguments.entry).ok_or_else(|| {
            let count = plan.entries.len();
            Error::Usage(format!(
                "the fleet has no entry {:?}\nhelp: it has {count}, see `orchestrator fleet status {}`",
                arguments.entry,
                folder.path.display()
            ))
        })?;
        let run = run_arguments(&entry.variables)
            .map_err(|error| Error::Spec(format!("{}: {error}", entry.name)))?;
        let entry = entry.clone();
        Ok(Task {
            arguments: RunArguments {
                no_sandbox: plan.arguments.no_sandbox,
                quiet: true,
                ..run
            },
            spec: real_path(&entry.spec, &folder),
            folder,
            entry,
            started_at: timestamp(),
        })
    }

    fn refuse_if_cancelled(&self) -> Result<()> {
        match self.folder.cancelled()?.contains(&self.entry.name) {
            true => {
                let text = format!("{} was cancelled", self.entry.name);
                Err(Error::Paused(Reason::Cancelled, text))
            }
            false => Ok(()),
        }
    }

    /// The settings of the run; refused where the spec is not the one that was planned.
    fn config(&self, env: &CliEnv, cancel: &CancelToken) -> Result<RunConfig> {
        let mut config = RunConfig::read(&self.arguments, &self.spec, env, cancel)?;
        if config.inputs.hash != self.entry.spec_hash {
            return Err(Error::Failed(
                Reason::SpecChanged,
                format!(
                    "{} has changed since it was planned\nhelp: `orchestrator fleet resume {}` plans it again",
                    self.spec.display(),
                    self.folder.path.display()
                ),
            ));
        }
        let is_shown = std::io::stderr().is_terminal();
        config.output.is_silent = !is_shown;
        config.output.quiet = !is_shown;
        Ok(config)
    }

    /// The recorded end of an entry that is over. Any other result is of an earlier start and goes.
    fn recorded_end(&self) -> Result<Option<TaskEnd>> {
        let path = self.folder.result_file(&self.entry.name);
        let Some(object) = self.folder.read_json::<Value>(&path)? else {
            return Ok(None);
        };
        let result = TaskResult::load(&self.folder, &self.entry.name)?;
        match result.filter(|result| result.is_over(&self.entry)) {
            Some(result) => Ok(Some(TaskEnd {
                object,
                exit_code: result.exit_code,
                error: None,
            })),
            None => {
                let removed = std::fs::remove_file(&path);
                removed.map_err(|error| Error::io("delete", &path, error))?;
                Ok(None)
            }
        }
    }

    fn run(
        &self,
        mut config: RunConfig,
        env: &CliEnv,
        (root, lock): (Root, Lock),
        cancel: CancelToken,
    ) -> Result<TaskEnd> {
        config.continues = self.continues(&root);
        let spent = RootFacts::read(&root.path)?.spent;
        let ledger = Ledger::of(&self.folder);
        let budget = TaskBudget::new(ledger, &self.entry.name, spent, cancel.clone());
        let budget = Arc::new(budget);
        config.shared_budget = Some(budget.clone());
        let is_shown = !config.output.is_silent;
        let outcome = execute_locked(config, env, root, cancel)
            .unwrap_or_else(|error| RunOutcome::refused(&error));
        self.finish(outcome, &budget, is_shown, &lock)
    }

    /// Whether the failed run that is to be continued is still the one of the root.
    fn continues(&self, root: &Root) -> bool {
        match (&self.entry.continues, root.load()) {
            (Some(continues), Ok(LoadedState::Build(state))) => {
                state.run_id == *continues && state.phase.is_terminal()
            }
            _ => false,
        }
    }

    /// Settles what was spent and writes the result, if the run has one.
    fn finish(
        &self,
        outcome: RunOutcome,
        budget: &TaskBudget,
        is_shown: bool,
        _lock: &Lock,
    ) -> Result<TaskEnd> {
        let needs_usd = budget.needs().map(Micros::usd);
        let needs_usd = needs_usd.filter(|_| outcome.is_paused_by(Reason::Budget));
        let mut end = TaskEnd::of(outcome, is_shown);
        if !has_result(&end) {
            return Ok(end);
        }
        end.object = result_object(end.object, &self.facts(needs_usd));
        self.write_result(&end.object)?;
        Ok(end)
    }

    fn refuse(&self, error: &Error, _lock: &Lock) -> Result<TaskEnd> {
        let mut end = TaskEnd::of(RunOutcome::refused(error), false);
        if has_result(&end) {
            end.object = result_object(end.object, &self.facts(None));
            self.write_result(&end.object)?;
        }
        Ok(end)
    }

    fn write_result(&self, object: &Value) -> Result<()> {
        let spent = RootFacts::read(&self.folder.root(&self.entry.name))?.spent_usd();
        let ledger = Ledger::of(&self.folder);
        ledger.settle(&self.entry.name, Micros::from_usd(spent))?;
        let path = self.folder.result_file(&self.entry.name);
        self.folder.write_json(&path, object)
    }

    fn facts(&self, needs_usd: Option<f64>) -> TaskFacts {
        TaskFacts {
            spec_hash: self.entry.spec_hash.clone(),
            needs_usd,
            host: host_name(),
            started_at: self.started_at.clone(),
            ended_at: timestamp(),
        }
    }
}

/// Whether what a task ended with is a result. After a signal, a bug or an I/O error the next start goes on.
fn has_result(end: &TaskEnd) -> bool {
    let outcome = end.object["outcome"].as_str().unwrap_or_default();
    let is_end = matches!(outcome, "SUCCESS" | "FAILED" | "PAUSED" | "REFUSED");
    let internal = [Reason::InternalError, Reason::IoError, Reason::RootLocked];
    is_end
        && !internal
            .iter()
            .any(|reason| reason.exit_code() == end.exit_code)
}
