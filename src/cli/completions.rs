//! `completions`: a script with which a shell completes the command line.

use clap_complete::Shell;

use crate::cli::arguments::CompletionShell;
use crate::cli::command::command;

/// The script for fish has no values of positional arguments.
const FISH_SHELLS: &str = "complete -c orchestrator -n \"__fish_orchestrator_using_subcommand completions\" -f -a \"bash zsh fish\"\n";

pub(super) fn main(shell: CompletionShell) -> String {
    let shell = match shell {
        CompletionShell::Bash => Shell::Bash,
        CompletionShell::Zsh => Shell::Zsh,
        CompletionShell::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "orchestrator", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Fish => script + FISH_SHELLS,
        _ => script,
    }
}
