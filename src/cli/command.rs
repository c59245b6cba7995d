//! The command line as a whole: the commands of `arguments` with their examples, and the version with its commit.

use std::ffi::OsString;

use clap::{Command, CommandFactory, FromArgMatches};

use crate::cli::arguments::CliArguments;

/// For each command, lines of examples, each with what it is for below it, as the help shows them.
const EXAMPLES: &str = include_str!("examples.txt");

/// The command line with the examples in its help.
pub(super) fn command() -> Command {
    with_all_examples(CliArguments::command(), "")
}

/// Adds the examples of a command and of those below it; `path` is its name with those above, such as `fleet run`.
fn with_all_examples(command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|subcommand| subcommand.get_name().to_owned())
        .collect();
    let command = with_examples(command, path);
    names.iter().fold(command, |command, name| {
        let below = format!("{path} {name}").trim_start().to_owned();
        command.mut_subcommand(name, |subcommand| with_all_examples(subcommand, &below))
    })
}

/// Puts the examples of a command before the rest of the text below its options.
fn with_examples(command: Command, name: &str) -> Command {
    let Some(examples) = examples_of(name) else {
        return command;
    };
    let mut text = format!("Examples:\n{examples}");
    if let Some(after) = command.get_after_help() {
        text += &format!("\n\n{after}");
    }
    command.after_help(text)
}

/// The examples of a command; those of the program itself have an empty name.
fn examples_of(name: &str) -> Option<&'static str> {
    let heading = format!("orchestrator {name}");
    let mut sections = EXAMPLES.split("\n\n");
    sections.find_map(|section| {
        let (of, examples) = section.split_once(":\n")?;
        (of == heading.trim_end()).then(|| examples.trim_end())
    })
}

/// Parses the command line.
pub(super) fn parse(argv: &[OsString], commit: &str) -> Result<CliArguments, clap::Error> {
    let matches = command()
        .version(version(commit))
        .try_get_matches_from(argv)?;
    CliArguments::from_arg_matches(&matches)
}

/// The version, with the commit if it is known.
fn version(commit: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    match commit {
        "" => version.to_owned(),
        commit => format!("{version} (commit {commit})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_has_the_commit_if_it_is_known() {
        let package = env!("CARGO_PKG_VERSION");
        assert_eq!(version(""), package);
        assert_eq!(
            version("0a1b2c3d4e"),
            format!("{package} (commit 0a1b2c3d4e)")
        );
    }

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }
}
