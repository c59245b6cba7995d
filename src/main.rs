//! argv in, exit code out.

use std::process::ExitCode;

use orchestrator::cli;
use orchestrator::process::{KEEPER_COMMAND, keeper};

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.get(1).is_some_and(|word| word == KEEPER_COMMAND) {
        return keeper::main().into();
    }
    cli::main(argv).into()
}
