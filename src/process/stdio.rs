//! Detaches this process from streams that it has passed on to a command.

use std::fs::File;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Points stdout and stderr to `/dev/null`, so that they reach EOF when the last process of the command's tree closes
/// them. A failure is harmless: no reader waits for EOF alone.
pub(super) fn detach_output() {
    if let Ok(null) = File::options().write(true).open("/dev/null") {
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}

/// Points stdin, stdout and stderr to `/dev/null`.
pub(super) fn detach_all() {
    detach_output();
    if let Ok(null) = File::open("/dev/null") {
        let _ = dup2_stdin(&null);
    }
}
