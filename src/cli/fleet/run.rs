//! `fleet run`, `fleet plan` and `fleet resume`: plan, then drive.

use std::path::PathBuf;

use crate::cancel::CancelToken;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::fleet::arguments::{FleetResumeArguments, FleetRunArguments};
use crate::cli::fleet::entries::{PlannedEntries, planned_entries};
use crate::cli::fleet::host::RunHost;
use crate::cli::fleet::progress::FleetConsole;
use crate::cli::fleet::summary::{budget_text, entries_text, summarize};
use crate::cli::output::{print_stderr, write_stdout};
use crate::error::{Error, Result};
use crate::fleet::driver::{Driver, DriverEnd, DriverSettings};
use crate::fleet::engine::local::LocalEngine;
use crate::fleet::engine::slurm::{SlurmCaller, SlurmEngine, SlurmSettings, refuse_plan};
use crate::fleet::engine::{Engine, EngineName};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::Ledger;
use crate::fleet::plan::{FleetArguments, FleetEntry, FleetPlan, SlurmResources, kept_path};
use crate::fleet::task_result::{TaskOutcome, TaskResult};
use crate::fleet::tracked_entry::DriverEntry;
use crate::llm::provider::ProviderFacts;
use crate::report::fleet::model::FleetSummary;
use crate::state::reason::Reason;
use crate::state::store::Root;

/// What a command does with the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlanUse {
    /// Only write it.
    Write,
    /// Write it and start its tasks.
    Drive,
}

/// What a command asks for.
struct FleetRequest {
    folder: FleetFolder,
    arguments: FleetArguments,
    /// `--budget` of this command.
    budget: Option<f64>,
    plan_use: PlanUse,
    retries_failed: bool,
    detaches: bool,
    dry_run: bool,
    quiet: bool,
    json: bool,
}

/// Runs `fleet run` or `fleet plan` and returns its exit code.
pub(super) fn main(arguments: FleetRunArguments, plan_use: PlanUse, env: &CliEnv) -> Result<u8> {
    let folder = FleetFolder::new(&env.absolute(&arguments.out));
    folder.refuse_foreign()?;
    let specs = arguments.specs.iter();
    let specs = specs.map(|spec| kept_path(&env.absolute(&PathBuf::from(spec)), &folder));
    let request = FleetRequest {
        arguments: FleetArguments {
            specs: specs.collect(),
            engine: arguments.engine.name(),
            jobs: arguments.jobs,
            budget: arguments.budget,
            repeat: arguments.repeat,
            matrix: arguments.matrix,
            set: arguments.set.iter().map(ToString::to_string).collect(),
            slurm: SlurmResources {
                cpus: arguments.slurm.cpus,
                mem: arguments.slurm.mem,
                time_limit: arguments.slurm.time_limit,
                sbatch: arguments.slurm.sbatch,
            },
            no_sandbox: arguments.no_sandbox,
        },
        folder,
        budget: arguments.budget,
        plan_use,
        retries_failed: false,
        detaches: arguments.slurm.detach,
        dry_run: arguments.output.dry_run,
        quiet: arguments.output.quiet,
        json: arguments.output.json,
    };
    execute(request, env)
}

/// Runs `fleet resume` and returns its exit code.
pub(super) fn resume(arguments: &FleetResumeArguments, env: &CliEnv) -> Result<u8> {
    let folder = FleetFolder::new(&env.absolute(&arguments.directory));
    let mut recorded = FleetPlan::load_existing(&folder)?.arguments;
    recorded.budget = arguments.budget.or(recorded.budget);
    recorded.jobs = arguments.jobs.or(recorded.jobs);
    recorded.engine = arguments.engine.map_or(recorded.engine, |word| word.name());
    execute(
        FleetRequest {
            folder,
            arguments: recorded,
            budget: arguments.budget,
            plan_use: PlanUse::Drive,
            retries_failed: arguments.failed,
            detaches: arguments.detach,
            dry_run: false,
            quiet: arguments.quiet,
            json: arguments.json,
        },
        env,
    )
}

fn execute(request: FleetRequest, env: &CliEnv) -> Result<u8> {
    refuse_flags(&request)?;
    let cancel = cancel_on_signals()?;
    let folder = &request.folder;
    let before = FleetPlan::load(folder)?;
    let planned = planned_entries(&request.arguments, folder, before.as_ref(), env, &cancel)?;
    if request.dry_run {
        return show_entries(&request, before, &planned).map(|()| 0);
    }
    let slurm = match (request.plan_use, request.arguments.engine) {
        (PlanUse::Drive, EngineName::Slurm) => {
            Some(slurm_settings(&request, &planned, &cancel, env)?)
        }
        (PlanUse::Write, _) | (_, EngineName::Local) => None,
    };
    let _lock = folder.create()?;
    // Another driver may have written it since.
    let before = FleetPlan::load(folder)?;
    let mut console = FleetConsole::new(request.quiet, env);
    let plan = write_plan(&request, before, &planned, &cancel)?;
    for note in &planned.notes {
        console.note(note.clone());
    }
    if request.plan_use == PlanUse::Write {
        let summary = summarize(folder, &plan)?;
        return conclude(&request, summary, console, None).map(|_| 0);
    }
    folder.forget_cancelled()?;
    let host = RunHost::new(folder.clone(), console);
    let mut engine: Box<dyn Engine> = match slurm {
        None => {
            let jobs = request.arguments.jobs;
            let jobs = jobs.map_or_else(cpus, |jobs| jobs as usize);
            Box::new(LocalEngine::new("/proc/self/exe".into(), folder, jobs))
        }
        Some(settings) => Box::new(SlurmEngine::new(settings, folder, &plan)?),
    };
    let (end, console) = drive(
        &request,
        (&plan, &planned),
        &mut *engine,
        (host, cancel),
        env,
    )?;
    let summary = summarize(folder, &plan)?;
    conclude(&request, summary, console, Some(end))
}

/// What tasks on Slurm need, before anything is written.
fn slurm_settings(
    request: &FleetRequest,
    planned: &PlannedEntries,
    cancel: &CancelToken,
    env: &CliEnv,
) -> Result<SlurmSettings> {
    let mut providers: Vec<_> = planned.entries.iter().filter_map(|e| e.provider).collect();
    providers.dedup_by_key(|provider| provider.name);
    let caller = SlurmCaller {
        variables: env.variables().collect(),
        providers,
    };
    SlurmSettings::check(&request.folder, &caller, cancel)
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Refuses what the engine cannot obey.
fn refuse_flags(request: &FleetRequest) -> Result<()> {
    let sbatch = &request.arguments.slurm.sbatch;
    if request.arguments.engine == EngineName::Slurm {
        return refuse_plan(&request.folder, sbatch);
    }
    let flag = match request.detaches {
        true => "--detach",
        false if !sbatch.is_empty() => "--sbatch",
        false => return Ok(()),
    };
    Err(Error::Usage(format!(
        "{flag} does not work with --engine local: its tasks end with this command\nhelp: use --engine slurm"
    )))
}

/// Prints the entries, or the state that the plan would have.
fn show_entries(
    request: &FleetRequest,
    before: Option<FleetPlan>,
    planned: &PlannedEntries,
) -> Result<()> {
    if request.json {
        let is_new = before.is_none();
        let plan = merged_plan(request, before, planned);
        let mut summary = summarize(&request.folder, &plan)?;
        summary.notes.clone_from(&planned.notes);
        summary.fleet_id = summary.fleet_id.filter(|_| !is_new);
        return write_stdout(&summary.json()?);
    }
    if !request.quiet {
        planned.notes.iter().for_each(|note| print_stderr(note));
    }
    let lines = planned.entries.iter().map(|planned| {
        let variables = serde_json::Value::Object(planned.entry.variables.clone());
        format!(
            "{}\t{}\t{variables}\n",
            planned.entry.name, planned.entry.spec
        )
    });
    write_stdout(&lines.collect::<String>())
}

/// Writes the plan before anything starts; the ledger is there first.
fn write_plan(
    request: &FleetRequest,
    before: Option<FleetPlan>,
    planned: &PlannedEntries,
    cancel: &CancelToken,
) -> Result<FleetPlan> {
    let folder = &request.folder;
    let ledger = Ledger::of(folder);
    if before.is_none() {
        ledger.create()?;
    }
    if let Some(budget) = request.budget {
        ledger.set_budget(budget, cancel)?;
    }
    let mut plan = merged_plan(request, before, planned);
    if request.retries_failed {
        continue_failed(folder, &mut plan)?;
    }
    plan.save(folder)?;
    Ok(plan)
}

fn merged_plan(
    request: &FleetRequest,
    before: Option<FleetPlan>,
    planned: &PlannedEntries,
) -> FleetPlan {
    let mut plan = before.unwrap_or_else(|| FleetPlan::new(request.arguments.clone()));
    plan.arguments = request.arguments.clone();
    let entries = planned.entries.iter();
    plan.merge(entries.map(|planned| planned.entry.clone()).collect());
    plan
}

/// Marks the failed entries that can be continued.
fn continue_failed(folder: &FleetFolder, plan: &mut FleetPlan) -> Result<()> {
    for entry in plan.entries.iter_mut().filter(|entry| !entry.left_out) {
        let result = TaskResult::load(folder, &entry.name)?;
        let Some(result) = result.filter(|result| result.outcome == TaskOutcome::Failed) else {
            continue;
        };
        if result.task.spec_hash != entry.spec_hash {
            continue;
        }
        match Reason::from_word(&result.reason) {
            // Its run is not over, so it is resumed.
            Some(Reason::Lost) => forget_result(folder, entry)?,
            Some(reason) if reason.is_continuable() => entry.continues = result.run_id,
            _ => {}
        }
    }
    Ok(())
}

/// Deletes the result of an entry, unless a process works on it.
fn forget_result(folder: &FleetFolder, entry: &FleetEntry) -> Result<()> {
    let _lock = match Root::open(&folder.root(&entry.name))?.lock() {
        Ok(lock) => lock,
        Err(Error::Locked(_)) => return Ok(()),
        Err(error) => return Err(error),
    };
    let path = folder.result_file(&entry.name);
    std::fs::remove_file(&path).map_err(|error| Error::io("delete", &path, error))
}

/// Runs the driver on an engine.
fn drive(
    request: &FleetRequest,
    (plan, planned): (&FleetPlan, &PlannedEntries),
    engine: &mut dyn Engine,
    (mut host, cancel): (RunHost, CancelToken),
    env: &CliEnv,
) -> Result<(DriverEnd, FleetConsole)> {
    let asked = planned.entries.iter();
    let providers: std::collections::HashMap<&str, Option<&'static ProviderFacts>> = asked
        .map(|planned| (planned.entry.name.as_str(), planned.provider))
        .collect();
    let entries = plan.entries.iter().enumerate();
    let entries = entries.filter(|(_, entry)| !entry.left_out);
    let entries = entries.map(|(index, entry)| {
        let provider = providers.get(entry.name.as_str()).copied().flatten();
        DriverEntry {
            index,
            entry: entry.clone(),
            provider: provider
                .map_or("template", |provider| provider.name)
                .to_owned(),
        }
    });
    let settings = DriverSettings {
        folder: request.folder.clone(),
        scale: env.retry_scale(),
        detaches: request.detaches,
    };
    let end = Driver::new(settings, entries.collect(), engine, &mut host, cancel).run()?;
    Ok((end, host.into_console()))
}

/// Prints the result and returns the exit code.
fn conclude(
    request: &FleetRequest,
    mut summary: FleetSummary,
    mut console: FleetConsole,
    end: Option<DriverEnd>,
) -> Result<u8> {
    console.erase();
    if request.plan_use == PlanUse::Drive {
        summary
            .money_note(&request.folder)
            .into_iter()
            .for_each(|note| console.note(note));
    }
    summary.notes = console.notes;
    match end {
        Some(DriverEnd::Stopped(signal)) => {
            summary.outcome = "INTERRUPTED";
            summary.exit_code = signal.exit_code();
        }
        Some(DriverEnd::Detached) => summary.exit_code = 0,
        Some(DriverEnd::Done) | None => {}
    }
    summary.find_next(&request.folder);
    let exit_code = summary.exit_code;
    if request.json {
        write_stdout(&summary.json()?)?;
        return Ok(exit_code);
    }
    let is_shown = request.plan_use == PlanUse::Drive && !request.quiet;
    if let Some(next) = summary.next.as_ref().filter(|_| is_shown) {
        print_stderr(&format!("next: {next}"));
    }
    write_stdout(&result_line(request, &summary))?;
    Ok(exit_code)
}

fn result_line(request: &FleetRequest, summary: &FleetSummary) -> String {
    let path = request.folder.path.display();
    let counts = &summary.counts;
    if request.plan_use == PlanUse::Write {
        return format!(
            "planned {} in {path}: {}\n",
            entries_text(counts.entries),
            counts.text()
        );
    }
    let money = match summary.budget_usd {
        Some(budget) => {
            let budget = budget_text(budget);
            format!(", ${:.4} of {budget} spent", summary.spent_usd)
        }
        None if 0.0 < summary.spent_usd => format!(", ${:.4} spent", summary.spent_usd),
        None => String::new(),
    };
    format!(
        "{}: {}{money} [fleet {path}]\n",
        summary.outcome,
        counts.text()
    )
}
