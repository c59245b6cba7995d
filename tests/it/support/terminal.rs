//! A program on a pseudo-terminal that is its controlling terminal, driven by `expectrl`, with the screen that `vt100` makes
//! of its output.
//!
//! `expect` of that crate spins; here each look at the output waits for more of it first, with a deadline.

use std::num::NonZeroU16;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use expectrl::process::unix::WaitStatus;
use expectrl::session::OsSession;
use expectrl::{ControlCode, Eof, Expect, Needle, Regex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// For each wait, however much output comes meanwhile: a live line is drawn every second.
const DEADLINE: Duration = Duration::from_secs(120);
const COLUMNS: u16 = 80;
const ROWS: u16 = 24;
/// Returns to the first column and erases the line.
const ERASE: &str = "\r\u{1b}[K";

pub(crate) struct Terminal {
    session: OsSession,
    /// All output so far.
    seen: String,
    /// What a terminal shows of it.
    screen: vt100::Parser,
}

impl Terminal {
    /// Starts a command on a new terminal of 80 columns.
    pub(crate) fn start(command: Command) -> Terminal {
        Terminal::with_columns(command, COLUMNS)
    }

    /// Starts a command on a new terminal of this width.
    pub(crate) fn with_columns(mut command: Command, columns: u16) -> Terminal {
        command
            .stdin(Stdio::inherit())
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit());
        let (rows, width) = size(columns);
        let mut terminal = Terminal {
            session: OsSession::spawn(command).unwrap(),
            seen: String::new(),
            screen: vt100::Parser::new(rows, width, 0),
        };
        terminal.resize(columns);
        terminal
    }

    pub(crate) fn resize(&mut self, columns: u16) {
        let process = self.session.get_process_mut();
        process.set_window_size(columns, ROWS).unwrap();
        let (rows, width) = size(columns);
        self.screen.set_size(rows, width);
    }

    /// The rows of the terminal after the output that was waited for, without the empty ones at the end.
    pub(crate) fn rows(&self) -> Vec<String> {
        let shown = self.screen.screen().contents();
        shown.lines().map(|row| row.trim_end().to_owned()).collect()
    }

    /// Whether the row of the cursor is the rest of a line that was too long.
    pub(crate) fn is_wrapped(&self) -> bool {
        let screen = self.screen.screen();
        let (row, _) = screen.cursor_position();
        row.checked_sub(1)
            .is_some_and(|above| screen.row_wrapped(above))
    }

    /// Has the terminal write what is typed, as real ones do.
    pub(crate) fn echo(&mut self) {
        let process = self.session.get_process_mut();
        process.set_echo(true, None).unwrap();
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
        let deadline = Instant::now() + DEADLINE;
        loop {
            let found = match self.session.check(needle()) {
                Ok(found) => String::from_utf8_lossy(found.as_bytes()).into_owned(),
                Err(error) => panic!("waited for {what}: {error}\n{:?}", self.seen),
            };
            if !found.is_empty() {
                self.seen += &found;
                self.screen.process(found.as_bytes());
                return found;
            }
            let stream = self.session.get_stream().as_fd();
            let mut polled = [PollFd::from_borrowed_fd(stream, PollFlags::IN)];
            let left = deadline.saturating_duration_since(Instant::now());
            let ready = poll(&mut polled, Some(&Timespec::try_from(left).unwrap())).unwrap();
            if ready == 0 || left.is_zero() {
                let rest = self.session.check(Regex("(?s).+"));
                let rest = rest.map(|rest| String::from_utf8_lossy(rest.as_bytes()).into_owned());
                panic!(
                    "waited in vain for {what} in {rest:?}; before it:\n{:?}",
                    self.seen
                );
            }
        }
    }
}

fn size(columns: u16) -> (NonZeroU16, NonZeroU16) {
    [ROWS, columns]
        .map(|count| NonZeroU16::new(count).unwrap())
        .into()
}

/// The output without the sequences that the program writes itself: those of the live area, and colours.
pub(crate) fn without_own_sequences(seen: &str) -> String {
    let mut parts = seen.split("\u{1b}[");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != ';');
        let end = end.unwrap_or(part.len());
        match part[end..].chars().next() {
            Some('K' | 'J' | 'A' | 'm') if end < 6 && &part[..end] != "2" => {
                text += &part[end + 1..]
            }
            _ => text.extend(["\u{1b}[", part]),
        }
    }
    text
}

/// The text of the last line of the terminal, as it is after all this output.
pub(crate) fn last_line(seen: &str) -> &str {
    let line = seen.rsplit('\n').next().unwrap_or_default();
    line.rsplit(ERASE).next().unwrap_or_default()
}
