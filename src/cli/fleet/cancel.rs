//! `fleet cancel`: stops entries until the next `fleet run` or `fleet resume`.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};

use crate::cancel::CancelToken;
use crate::cli::env::{CliEnv, cancel_on_signals};
use crate::cli::fleet::summary::{entries_text, summarize};
use crate::error::{Error, Result};
use crate::fleet::engine::EngineName;
use crate::fleet::engine::slurm::{SlurmCaller, SlurmEngine, SlurmSettings};
use crate::fleet::engine::{Engine, EngineTask};
use crate::fleet::folder::FleetFolder;
use crate::fleet::ledger::Ledger;
use crate::fleet::plan::FleetPlan;
use crate::report::fleet::model::EntryState;
use crate::state::store::Root;

/// Returns what is printed.
pub(super) fn main(env: &CliEnv, directory: &Path, names: &[String]) -> Result<String> {
    let folder = FleetFolder::new(&env.absolute(directory));
    let plan = FleetPlan::load_existing(&folder)?;
    let chosen = chosen_entries(&folder, &plan, names)?;
    let names: Vec<String> = chosen.iter().map(|task| task.name.clone()).collect();
    let cancel = cancel_on_signals()?;
    {
        let _lock = Ledger::of(&folder).lock(&cancel)?;
        folder.cancel(&names)?;
    }
    match plan.arguments.engine {
        EngineName::Local => chosen.iter().for_each(|task| interrupt(&folder, task)),
        EngineName::Slurm => cancel_jobs(env, &folder, &plan, (&chosen, &cancel))?,
    }
    Ok(format!("cancelled {}\n", entries_text(chosen.len())))
}

/// The named entries, else all, without those that are over.
fn chosen_entries(
    folder: &FleetFolder,
    plan: &FleetPlan,
    names: &[String],
) -> Result<Vec<EngineTask>> {
    for name in names {
        if plan.find(name).is_none() {
            return Err(Error::Usage(format!(
                "the fleet has no entry {name:?}\nhelp: `orchestrator fleet status {}` lists them",
                folder.path.display()
            )));
        }
    }
    let asked: Vec<&str> = names
        .iter()
        .filter_map(|name| plan.find(name))
        .map(|entry| entry.name.as_str())
        .collect();
    let summary = summarize(folder, plan)?;
    let entries = summary.entries.iter().enumerate();
    let chosen = entries.filter(|(_, entry)| {
        let is_over = matches!(entry.state, EntryState::Over | EntryState::LeftOut);
        !is_over && (asked.is_empty() || asked.contains(&entry.name.as_str()))
    });
    Ok(chosen
        .map(|(index, entry)| EngineTask {
            index,
            name: entry.name.clone(),
        })
        .collect())
}

/// Interrupts the process that has the lock of an entry's root on this machine.
fn interrupt(folder: &FleetFolder, task: &EngineTask) {
    let holder = Root::open(&folder.root(&task.name)).ok();
    let holder = holder.and_then(|root| root.lock_holder());
    let pid = holder.and_then(|holder| Pid::from_raw(holder.pid.cast_signed()));
    if let Some(pid) = pid {
        let _ = kill_process(pid, Signal::INT);
    }
}

fn cancel_jobs(
    env: &CliEnv,
    folder: &FleetFolder,
    plan: &FleetPlan,
    (tasks, cancel): (&[EngineTask], &CancelToken),
) -> Result<()> {
    let caller = SlurmCaller {
        variables: env.variables().collect(),
        providers: Vec::new(),
    };
    let settings = SlurmSettings::check(folder, &caller, cancel)?;
    SlurmEngine::new(settings, folder, plan)?.stop(tasks);
    Ok(())
}
