//! The command line: arguments and environment become plain data here; results are printed here.
//!
//! One file or folder per command (`init`, `doctor`, `run`, `watch`, `status`, `runs`, `report`, `apply`, `reset`, `serve`, `lint`,
//! `schema`, `diagram`, `completions`, `man`). `arguments` has the flags, `command` the whole command line with its `examples`, `env`
//! reads the environment. Of a run, `run_config` has the settings, `decision` whether it is new, resumed or over, `wiring`
//! builds it, `outcome` is its result.

mod apply;
mod apply_text;
mod arguments;
mod attempts;
mod best_attempt;
mod command;
mod completions;
mod decision;
mod diagram;
mod diff;
mod doctor;
mod env;
mod fleet;
mod fresh_start;
mod init;
mod known_run;
mod lint;
mod log_file;
mod man;
mod missing_target;
mod outcome;
mod output;
mod paths;
mod programs;
mod quick_program;
mod report;
mod reset;
mod restore;
mod resume_command;
mod run;
mod run_config;
mod run_facts;
mod run_names;
mod runs;
pub(crate) mod sandbox;
mod serve;
mod status;
mod step_summary;
mod table;
mod target;
mod uncut;
mod watch;
mod wiring;
mod workflow;
pub(crate) mod workflow_sandbox;
mod workflow_status;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::error::ErrorKind;

use crate::build::spec::schema::schema_text;
use crate::cli::arguments::{CliCommand, LintArguments};
use crate::cli::env::CliEnv;
use crate::cli::outcome::RunOutcome;
use crate::cli::output::{print_error, print_stderr, write_stdout};
use crate::error::{Error, Result};

/// Runs the command line to its exit code; `commit` is that of the program, or empty. A panic ends it with 70.
pub fn main(argv: Vec<OsString>, commit: &str) -> u8 {
    std::panic::set_hook(Box::new(|panic| {
        print_stderr(&format!("a bug in orchestrator: {panic}"))
    }));
    catch_panic(&argv, || dispatch(&argv, commit))
}

fn catch_panic(argv: &[OsString], command: impl FnOnce() -> u8) -> u8 {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| {
        let bug = Error::Bug("it panicked; run the same command again to resume".into());
        if wants_json(argv) {
            refusal(&bug, argv).print_json()
        } else {
            bug.exit_code()
        }
    })
}

fn dispatch(argv: &[OsString], commit: &str) -> u8 {
    let arguments = match command::parse(argv, commit) {
        Ok(arguments) => arguments,
        Err(error) => return refuse_command_line(&error, argv),
    };
    let env = CliEnv::from_process(arguments.root, arguments.color);
    match arguments.command {
        CliCommand::Run(run) => {
            let outcome = run::main(&run, &env);
            step_summary::append(&env, &outcome);
            outcome.print(run.json)
        }
        CliCommand::Attempts { run, json } => {
            print_result(attempts::main(&env, run.as_deref(), json))
        }
        CliCommand::Diff(arguments) => match diff::main(&env, &arguments) {
            Ok(()) => 0,
            Err(error) => print_error(&error),
        },
        CliCommand::Restore { number, run } => {
            print_result(restore::main(&env, number, run.as_deref()))
        }
        CliCommand::Status { run, json } => print_result(status::main(&env, run.as_deref(), json)),
        CliCommand::Watch { run } => match watch::main(&env, run.as_deref()) {
            Ok(()) => 0,
            Err(error) => print_error(&error),
        },
        CliCommand::Report(arguments) => print_result(report::main(&env, &arguments)),
        CliCommand::Runs { json } => print_result(runs::main(&env, json)),
        CliCommand::Fleet(command) => fleet::main(command, &env),
        CliCommand::Reset => print_result(reset::main(&env)),
        CliCommand::Apply { check } => apply::main(&env, check),
        CliCommand::Lint(LintArguments { path, spec, json }) => lint::main(&env, path, spec, json),
        CliCommand::Serve(serve) => serve::main(&serve, &env),
        CliCommand::Init { directory, spec } => {
            print_result(init::main(&env, directory.as_deref(), spec.as_deref()))
        }
        CliCommand::Doctor { json } => doctor::main(&env, commit, json),
        CliCommand::Schema => print_result(Ok(schema_text())),
        CliCommand::Diagram { path } => print_result(diagram::main(&path)),
        CliCommand::Completions { shell } => print_result(Ok(completions::main(shell))),
        CliCommand::Man(arguments) => print_result(man::main(&arguments)),
    }
}

/// Prints the result of a command and returns its exit code.
fn print_result(result: Result<String>) -> u8 {
    match result.and_then(|text| write_stdout(&text)) {
        Ok(()) => 0,
        Err(error) => print_error(&error),
    }
}

fn refuse_command_line(error: &clap::Error, argv: &[OsString]) -> u8 {
    let text = error.render().to_string();
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return print_result(Ok(text));
    }
    print_stderr(text.trim_end());
    let first_line = text.lines().next().unwrap_or_default();
    let usage = Error::Usage(first_line.trim_start_matches("error: ").to_owned());
    if wants_json(argv) {
        return refusal(&usage, argv).print_json();
    }
    usage.exit_code()
}

/// The result of a command line that ran nothing, in the form of what it names.
fn refusal(error: &Error, argv: &[OsString]) -> RunOutcome {
    let is_workflow = |word: &OsString| word.to_string_lossy().starts_with("--workflow");
    match argv.iter().any(is_workflow) {
        true => RunOutcome::refused(error).of_workflow(),
        false => RunOutcome::refused(error),
    }
}

/// Whether this command line asks for its result as one JSON object, whether or not it is valid.
fn wants_json(argv: &[OsString]) -> bool {
    command_name(argv).is_some_and(|name| name == "run") && argv.iter().any(|word| word == "--json")
}

/// The first word that is neither an option nor an option's value.
fn command_name(argv: &[OsString]) -> Option<&OsString> {
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_string_lossy() {
            option if option == "--root" || option == "--color" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_exits_with_70() {
        assert_eq!(catch_panic(&[], || 3), 3);
        assert_eq!(
            catch_panic(&["orchestrator".into(), "status".into()], || panic!("boom")),
            70
        );
    }

    #[test]
    fn json_is_recognised_in_any_run_command_line() {
        let argv = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&argv("o --root x run --json")));
        assert!(wants_json(&argv("o run --bad --json")));
        assert!(!wants_json(&argv("o status --json")));
    }
}
