//! argv in, exit code out.

use std::ffi::OsString;
use std::process::ExitCode;

use orchestrator::entry_points::{RELAY_COMMAND, SUPERVISOR_COMMAND, cli, relay, supervisor};

/// The commit this program was built from; empty if it is unknown.
#[cfg(git_checkout)]
const COMMIT: &str = git_version::git_version!(
    args = [
        "--always",
        "--exclude=*",
        "--abbrev=10",
        "--dirty=-modified"
    ],
    fallback = ""
);

/// The commit of the archive this program was built from; empty if it is unknown.
#[cfg(not(git_checkout))]
const COMMIT: &str = match option_env!("ORCHESTRATOR_COMMIT") {
    Some(commit) => commit,
    None => "",
};

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.get(1).is_some_and(|word| word == SUPERVISOR_COMMAND) {
        return supervisor().into();
    }
    if argv.get(1).is_some_and(|word| word == RELAY_COMMAND) {
        return relay(argv.get(2).map(OsString::as_os_str)).into();
    }
    cli(argv, COMMIT).into()
}
