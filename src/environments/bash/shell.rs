//! A running bash: sends commands to its loop, applies the records that the loop sends, interrupts.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::environments::bash::message;
use crate::environments::bash::record::{BackgroundJob, BashRecord, BashRecords, ShellReport};
use crate::environments::channel::ChannelEvent;
use crate::environments::session::{ChildSession, SessionStartError, describe_end};
use crate::process::child::StopMode;

/// The screen of a shell in which no command has ended.
pub(super) const READY: &str = "Bash shell (ready)";
/// How many characters of a job's command are shown.
const MAX_JOB: usize = 80;
/// The status of a command that SIGINT ended.
const INTERRUPTED: i32 = 130;
/// How long an interrupt waits for bash to enter the loop after an earlier one.
const ENTER_PATIENCE: Duration = Duration::from_millis(50);
/// How long a shell may take to start.
const START_PATIENCE: Duration = Duration::from_secs(10);

/// A running shell, and the state of the exchange with its loop.
#[derive(Debug)]
pub(super) struct Shell {
    pub(super) session: ChildSession,
    records: BashRecords,
    /// The last report of the loop.
    report: ShellReport,
    /// Whether a command has ended in this shell.
    is_used: bool,
    command: Option<BashCommand>,
    /// Whether a line that enters the loop was sent and not yet read. Nothing else may be sent meanwhile, because the
    /// prompt would read it.
    is_entering: bool,
    /// Whether an interrupt was sent after that line.
    is_interrupted_again: bool,
}

/// The running command.
#[derive(Debug)]
struct BashCommand {
    text: String,
    /// Whether it left the loop, by `break`.
    has_left_loop: bool,
    status: Option<i32>,
}

/// Why a wait returned.
pub(super) enum BashWait {
    Ended(i32),
    Died,
    Woken,
    TimedOut,
}

impl Shell {
    /// A shell that has entered the loop.
    pub(super) fn new(session: ChildSession) -> Result<Shell, SessionStartError> {
        let mut shell = Shell {
            session,
            records: BashRecords::default(),
            report: ShellReport::default(),
            is_used: false,
            command: None,
            is_entering: true,
            is_interrupted_again: false,
        };
        shell.session.begin("");
        let sent = shell.session.send(message::start().as_bytes());
        let deadline = Instant::now().checked_add(START_PATIENCE);
        while shell.is_entering && sent.is_ok() {
            let ready = shell.session.wait(deadline, None);
            if !shell.receive()
                && (ready == ChannelEvent::TimedOut || shell.session.child.ended().is_some())
            {
                break;
            }
        }
        // Bash complains that it has no terminal.
        let printed = shell.session.finish();
        if shell.is_entering {
            let how = describe_end(&shell.session.child.end(StopMode::Now));
            return Err(SessionStartError::NotReady {
                program: "bash",
                printed,
                how,
            });
        }
        shell.report.status = 0;
        Ok(shell)
    }

    pub(super) fn is_running(&self) -> bool {
        self.command.is_some()
    }

    pub(super) fn begin(&mut self, text: &str, before: &str) -> io::Result<()> {
        self.session.begin(before);
        let message = message::command(text, &self.report);
        let text = text.to_owned();
        self.command = Some(BashCommand {
            text,
            has_left_loop: false,
            status: None,
        });
        self.session.send(&message)
    }

    /// Waits for the end of the command.
    pub(super) fn wait(
        &mut self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> BashWait {
        loop {
            if let Some(status) = self.take_end() {
                return BashWait::Ended(status);
            }
            let ready = self.session.wait(deadline, wake);
            if self.receive() {
                continue;
            }
            let is_over = self.session.child.ended().is_some();
            match ready {
                // Records that were sent before the death count.
                _ if is_over && self.receive() => {}
                _ if is_over => return BashWait::Died,
                ChannelEvent::Woken => return BashWait::Woken,
                ChannelEvent::TimedOut => return BashWait::TimedOut,
                ChannelEvent::Ready | ChannelEvent::Output => {}
            }
        }
    }

    /// The status of a command that has ended, once no interrupt is pending.
    fn take_end(&mut self) -> Option<i32> {
        let status = self
            .command
            .as_ref()
            .filter(|_| !self.is_entering)?
            .status?;
        self.command = None;
        self.report.status = status;
        self.is_used = true;
        Some(status)
    }

    /// Applies the records that the loop has sent; returns whether anything was received.
    fn receive(&mut self) -> bool {
        let bytes = self.session.receive();
        let is_empty = bytes.is_empty();
        self.records.push(bytes);
        while let Some(record) = self.records.take() {
            self.apply(record);
        }
        !is_empty
    }

    fn apply(&mut self, record: BashRecord) {
        match record {
            BashRecord::NotBegun => self.set_status(INTERRUPTED),
            BashRecord::Ended(report) => {
                self.set_status(report.status);
                self.report = report;
            }
            BashRecord::Entered(report) => {
                let command = self.command.as_ref();
                let has_left_loop = command.is_some_and(|command| command.has_left_loop);
                self.set_status(match has_left_loop {
                    true => report.status,
                    false => INTERRUPTED,
                });
                self.report = report;
                self.has_entered();
            }
            BashRecord::Skipped => self.has_entered(),
            BashRecord::LeftLoop => {
                if let Some(command) = self.command.as_mut() {
                    command.has_left_loop = true;
                }
                if !self.is_entering {
                    self.is_entering = true;
                    // If it cannot be sent, the next wait finds the shell dead.
                    let _ = self.session.send(message::enter().as_bytes());
                }
            }
        }
    }

    /// Sets the status of the command; the first one counts.
    fn set_status(&mut self, status: i32) {
        if let Some(command) = self.command.as_mut() {
            command.status.get_or_insert(status);
        }
    }

    fn has_entered(&mut self) {
        self.is_entering = false;
        if std::mem::take(&mut self.is_interrupted_again) {
            self.enter_again();
        }
    }

    pub(super) fn interrupt(&mut self) {
        // It may have ended already. A bash that is entering the loop must not be interrupted.
        self.receive();
        let deadline = Instant::now().checked_add(ENTER_PATIENCE);
        while self.is_entering
            && self.session.wait(deadline, None) == ChannelEvent::Ready
            && self.receive()
        {}
        let has_ended = |command: &BashCommand| command.status.is_some();
        if !self.command.as_ref().is_some_and(has_ended) {
            self.interrupt_now();
        }
    }

    /// Announces the interrupt and sends it. The loop ignores SIGINT and checks for the announcement after it has stopped
    /// to do so: a signal that comes before that is not lost, and one that comes after the command has no effect.
    fn interrupt_now(&mut self) {
        let jobs: Vec<u32> = self.report.jobs.iter().map(|job| job.pid).collect();
        if self.is_entering {
            self.session.child.interrupt_foreground(&jobs);
            self.is_interrupted_again = true;
            return;
        }
        self.is_entering = true;
        // If something cannot be sent, the next wait finds the shell dead.
        let (announcement, line) = message::enter_or_skip();
        let _ = self.session.send(announcement.as_bytes());
        self.session.child.interrupt_foreground(&jobs);
        let _ = self.session.send(line.as_bytes());
    }

    /// Sends the line that enters the loop, after an interrupt.
    fn enter_again(&mut self) {
        self.is_entering = true;
        let (header, line) = message::enter_or_skip();
        let _ = self.session.send((header + &line).as_bytes());
    }

    pub(super) fn has_errexit(&self) -> bool {
        let text = self
            .command
            .as_ref()
            .map(|command| command.text.as_str())
            .unwrap_or_default();
        let mut words = text
            .split_ascii_whitespace()
            .skip_while(|word| *word != "set")
            .skip(1);
        let is_meant =
            |word: &str| word.contains("errexit") || word.starts_with('-') && word.contains('e');
        self.report.options.contains('e') || words.any(is_meant)
    }

    pub(super) fn section(&mut self) -> String {
        if !self.is_used {
            return READY.to_owned();
        }
        let mut section = format!(
            "Working directory: {}\nLast exit code: {}\n",
            self.report.cwd, self.report.status
        );
        let pids: Vec<u32> = self.report.jobs.iter().map(|job| job.pid).collect();
        let alive = self.session.child.live_processes(&pids);
        let jobs: Vec<String> = self
            .report
            .jobs
            .iter()
            .filter(|job| alive.contains(&job.pid))
            .map(shown)
            .collect();
        if !jobs.is_empty() {
            section += &format!("Background jobs: {}\n", jobs.join(", "));
        }
        section
    }
}

fn shown(job: &BackgroundJob) -> String {
    let command = job.command.replace(char::is_control, " ");
    format!(
        "[{}] {} {}",
        job.number,
        job.pid,
        command.chars().take(MAX_JOB).collect::<String>()
    )
}
