//! Flags and environment become plain data here and nowhere else; the result is printed here and nowhere else.
//!
//! A command is a file: `run.rs`, `status.rs`, `reset.rs`, `lint.rs`. `ending.rs` is how a run's end is said,
//! `surroundings.rs` what is taken from the environment, `target.rs` whether a path is a spec or a workflow.

mod arguments;
mod env;
mod lint;
mod outcome;
mod output;
mod programs;
mod reset;
mod run;
mod run_config;
mod sandbox;
mod serve;
mod status;
mod target;
mod wiring;

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};

use clap::Parser;
use clap::error::ErrorKind;

use crate::cli::arguments::{CliArguments, CliCommand, LintArguments};
use crate::cli::env::CliEnv;
use crate::cli::outcome::RunOutcome;
use crate::cli::output::{complain, write_stdout};
use crate::cli::target::not_there_yet;
use crate::error::{Error, Result};

/// Runs the command line to its exit code. A bug of ours ends it too, and is said as such.
pub fn main(argv: Vec<OsString>) -> u8 {
    std::panic::set_hook(Box::new(|panic| {
        complain(&format!("a bug in orchestrator: {panic}"))
    }));
    guarded(&argv, || dispatch(&argv))
}

/// Runs a command; where it panics, the one object and the exit code of a bug are its result.
fn guarded(argv: &[OsString], command: impl FnOnce() -> u8) -> u8 {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| {
        let bug = Error::Bug("it panicked; the run goes on with the same command".into());
        if wants_json(argv) {
            RunOutcome::refused(&bug, None).print_json()
        } else {
            bug.exit_code()
        }
    })
}

fn dispatch(argv: &[OsString]) -> u8 {
    let arguments = match CliArguments::try_parse_from(argv) {
        Ok(arguments) => arguments,
        Err(error) => return refuse_command_line(&error, argv),
    };
    let env = CliEnv::from_process(arguments.root);
    match arguments.command {
        CliCommand::Run(mut run) => {
            let json = run.json;
            match run.resolve_path() {
                Ok(()) => run::main(&run, &env).print(json),
                Err(error) => RunOutcome::refused(&error, None).print(json),
            }
        }
        CliCommand::Status { json } => said(status::main(&env, json)),
        CliCommand::Reset => said(reset::main(&env)),
        CliCommand::Lint(LintArguments { path, spec, json }) => lint::main(&env, path, spec, json),
        CliCommand::Serve(serve) => serve::main(&serve, &env),
        CliCommand::Diagram { .. } => said(Err(not_there_yet("diagram"))),
    }
}

/// Prints what a command came to and returns its exit code.
fn said(result: Result<String>) -> u8 {
    match result {
        Ok(text) if write_stdout(&text) => 0,
        Ok(_) => Error::Bug(String::new()).exit_code().max(74),
        Err(error) => {
            complain(&format!("error: {error}"));
            error.exit_code()
        }
    }
}

fn refuse_command_line(error: &clap::Error, argv: &[OsString]) -> u8 {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return if write_stdout(&error.render().to_string()) {
            0
        } else {
            74
        };
    }
    let text = error.render().to_string();
    complain(text.trim_end());
    if wants_json(argv) {
        let first = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ")
            .to_owned();
        return RunOutcome::refused(&Error::Usage(first), None).print_json();
    }
    Error::Usage(text).exit_code()
}

/// Whether the result of this command line is one JSON object, whatever becomes of it.
fn wants_json(argv: &[OsString]) -> bool {
    command_word(argv).is_some_and(|word| word == "run") && argv.iter().any(|word| word == "--json")
}

/// Returns the first word that is no option and no option's value.
fn command_word(argv: &[OsString]) -> Option<&OsString> {
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_string_lossy() {
            option if option == "--root" => drop(words.next()),
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
    fn a_bug_is_an_exit_code_of_its_own() {
        assert_eq!(guarded(&[], || 3), 3);
        assert_eq!(
            guarded(&["orchestrator".into(), "status".into()], || panic!("boom")),
            70
        );
    }

    #[test]
    fn the_command_is_found_behind_the_root() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&words("o --root x run --json")));
        assert!(wants_json(&words("o run --bad --json")));
        assert!(!wants_json(&words("o status --json")));
    }
}
