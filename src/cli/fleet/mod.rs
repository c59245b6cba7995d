//! `fleet`: many specs, each in a root of its own. Plans, drives, shows; `task` runs one entry.

pub(super) mod arguments;
mod cancel;
mod entries;
mod host;
mod progress;
mod report;
mod root_facts;
mod run;
mod selection;
mod status;
mod summary;
mod task;
mod variables;

use crate::cli::env::CliEnv;
use crate::cli::fleet::arguments::FleetCommand;
use crate::cli::fleet::run::PlanUse;
use crate::cli::output::{print_error, write_stdout};
use crate::error::Result;
use crate::report::fleet::model::FleetSummary;

/// Runs the command and returns its exit code.
pub(super) fn main(command: FleetCommand, env: &CliEnv) -> u8 {
    let done = match command {
        FleetCommand::Task(arguments) => return task::main(&arguments, env),
        FleetCommand::Run(arguments) => {
            let json = arguments.output.json;
            with_object(run::main(arguments, PlanUse::Drive, env), json)
        }
        FleetCommand::Plan(arguments) => {
            let json = arguments.output.json;
            with_object(run::main(arguments, PlanUse::Write, env), json)
        }
        FleetCommand::Resume(arguments) => {
            with_object(run::resume(&arguments, env), arguments.json)
        }
        FleetCommand::Status { directory, json } => printed(status::main(env, &directory, json)),
        FleetCommand::Report {
            directory,
            out,
            json,
        } => printed(report::main(env, &directory, out.as_deref(), json)),
        FleetCommand::Cancel { directory, names } => printed(cancel::main(env, &directory, &names)),
    };
    done.unwrap_or_else(|error| print_error(&error))
}

/// A command that is refused has an object, too.
fn with_object(done: Result<u8>, json: bool) -> Result<u8> {
    if let Some(error) = done.as_ref().err().filter(|_| json) {
        FleetSummary::refused(error)
            .json()
            .and_then(|text| write_stdout(&text))?;
    }
    done
}

fn printed(text: Result<String>) -> Result<u8> {
    text.and_then(|text| write_stdout(&text)).map(|()| 0)
}
