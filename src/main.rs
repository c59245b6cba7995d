use std::process::ExitCode;

use orchestrator::process::{KEEPER_COMMAND, keeper};

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|word| word == KEEPER_COMMAND) {
        return ExitCode::from(keeper::main());
    }
    ExitCode::SUCCESS
}
