//! A program on a pseudo-terminal that is its controlling terminal, driven by `expectrl`.
//!
//! `expect` of that crate spins; here each look at the output waits for more of it first, with a deadline.

use std::os::fd::AsFd;
use std::process::{Command, Stdio};

use expectrl::process::unix::WaitStatus;
use expectrl::session::OsSession;
use expectrl::{ControlCode, Eof, Expect, Needle, Regex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const DEADLINE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};
/// Returns to the first column and erases the line.
const ERASE: &str = "\r\u{1b}[K";

pub(crate) struct Terminal {
    session: OsSession,
    /// All output so far.
    seen: String,
}

impl Terminal {
    /// Starts a command on a new terminal of 80 columns.
    pub(crate) fn start(mut command: Command) -> Terminal {
        command
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit());
        Terminal {
            session: OsSession::spawn(command).unwrap(),
            seen: String::new(),
        }
    }

    pub(crate) fn resize(&mut self, columns: u16) {
        let process = self.session.get_process_mut();
        process.set_window_size(columns, 24).unwrap();
    }

    pub(crate) fn send(&mut self, key: ControlCode) {
        self.session.send(key).unwrap();
    }

    pub(crate) fn send_line(&mut self, line: &str) {
        self.session.send_line(line).unwrap();
    }

    /// Waits until output that follows the last match has a match of the pattern; returns the output up to its end.
    pub(crate) fn until(&mut self, pattern: &str) -> String {
        self.wait_for(pattern, || Regex(pattern))
    }

    /// Waits until the program ends; returns its exit code and all output.
    pub(crate) fn wait(mut self) -> (i32, String) {
        self.wait_for("the end of the output", || Eof);
        match self.session.get_process().wait().unwrap() {
            WaitStatus::Exited(_, code) => (code, self.seen),
            other => panic!("{other:?}\n{:?}", self.seen),
        }
    }

    fn wait_for<N: Needle>(&mut self, what: &str, needle: impl Fn() -> N) -> String {
        loop {
            let found = match self.session.check(needle()) {
                Ok(found) => String::from_utf8_lossy(found.as_bytes()).into_owned(),
                Err(error) => panic!("waited for {what}: {error}\n{:?}", self.seen),
            };
            if !found.is_empty() {
                self.seen += &found;
                return found;
            }
            let stream = self.session.get_stream().as_fd();
            let mut polled = [PollFd::from_borrowed_fd(stream, PollFlags::IN)];
            let ready = poll(&mut polled, Some(&DEADLINE)).unwrap();
            assert!(
                0 < ready,
                "waited in vain for {what}; before it:\n{:?}",
                self.seen
            );
        }
    }
}

/// The text of the last line of the terminal, as it is after all this output.
pub(crate) fn last_line(seen: &str) -> &str {
    let line = seen.rsplit('\n').next().unwrap_or_default();
    line.rsplit(ERASE).next().unwrap_or_default()
}
