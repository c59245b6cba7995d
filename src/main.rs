//! argv in, exit code out.

use std::ffi::OsString;
use std::process::ExitCode;

use orchestrator::cli;
use orchestrator::llm::mcp::{RELAY_COMMAND, relay};
use orchestrator::process::{SUPERVISOR_COMMAND, supervisor};

fn main() -> ExitCode {
    let argv: Vec<_> = std::env::args_os().collect();
    if argv.get(1).is_some_and(|word| word == SUPERVISOR_COMMAND) {
        return supervisor::main().into();
    }
    if argv.get(1).is_some_and(|word| word == RELAY_COMMAND) {
        return relay::main(argv.get(2).map(OsString::as_os_str)).into();
    }
    cli::main(argv).into()
}
