//! Detaches this process from streams that a command has inherited.

use std::fs::File;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

/// Points stdin, stdout and stderr to `/dev/null`. A failure is harmless: no reader waits for EOF alone.
pub(super) fn detach_all() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null);
        let _ = dup2_stdout(&null);
        let _ = dup2_stderr(&null);
    }
}
