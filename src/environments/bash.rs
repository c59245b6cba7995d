//! A bash that stays.
//!
//! It is interactive but for the prompt: the files in `bash/` are a loop that runs as its prompt command, gets commands
//! over the channel and tells there when one has ended, with the directory and the jobs of the screen. What is printed
//! comes through the pipe of the session and means nothing here. An interrupt throws bash out of the loop, back to its
//! prompt; so a line that leads into it again follows every interrupt, and one of the two takes it.

mod message;
pub mod record;

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use self::record::{BackgroundJob, BashRecord, BashRecords, ShellReport};
use crate::environments::session::{ChildSession, SessionEvent, describe_end};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::process::child::StopMode;
use crate::process::{Job, JobEnd, Launcher};

const READY: &str = "Bash shell (ready)";
const LOST: &str = "variables, functions and background processes are lost; the next command starts a fresh shell in the project";
const ERREXIT: &str = "set -e makes every failure end the shell, use ( set -e; … ) instead; ";
/// How much of a job's command is shown.
const MAX_JOB: usize = 80;
/// The status of a command that an interrupt has ended.
const INTERRUPTED: i32 = 130;
/// How long an interrupt that follows another waits for its effect.
const ENTERING: Duration = Duration::from_millis(50);
/// How long a shell may take to start.
const PATIENCE: Duration = Duration::from_secs(10);

/// The environment `bash`.
#[derive(Debug)]
pub struct BashEnvironment {
    launcher: Launcher,
    project: PathBuf,
    env: Vec<(OsString, OsString)>,
    shell: Option<Shell>,
    /// What a shell that died between two commands has left to say.
    epitaph: String,
    /// How the last shell ended, if it did so by itself.
    end_of_shell: Option<String>,
    last_end: String,
}

impl BashEnvironment {
    /// Returns the environment of a project; its shell starts with the first command.
    pub fn new(
        launcher: Launcher,
        project: PathBuf,
        env: Vec<(OsString, OsString)>,
    ) -> BashEnvironment {
        BashEnvironment {
            launcher,
            project,
            env,
            shell: None,
            epitaph: String::new(),
            end_of_shell: None,
            last_end: String::new(),
        }
    }

    fn start(&self) -> Result<Shell, String> {
        let words = [
            "bash",
            "--norc",
            "--noprofile",
            "--noediting",
            "+H",
            "+o",
            "history",
            "-i",
        ];
        let job = Job {
            command: words.map(OsString::from).to_vec(),
            cwd: self.project.clone(),
            env: self.env.clone(),
            timeout: Duration::MAX,
        };
        let session = ChildSession::start(&self.launcher, &job)
            .map_err(|error| format!("bash cannot be started: {error}"))?;
        Shell::new(session)
    }

    /// Notes that the shell is gone; returns how it went, and what is to be said.
    fn died(&mut self) -> (JobEnd, String) {
        let Some(mut shell) = self.shell.take() else {
            return (JobEnd::TimedOut, String::new());
        };
        let ended = shell.session.child.end(StopMode::Now);
        let how = describe_end(&ended);
        let hint = if shell.has_errexit() && ended != JobEnd::Exited(0) {
            ERREXIT
        } else {
            ""
        };
        self.end_of_shell = Some(how.clone());
        self.last_end = format!("bash ended, {how}");
        let mut output = shell.session.finish();
        if !output.is_empty() && !output.ends_with('\n') {
            output.push('\n');
        }
        (
            ended,
            output + &format!("[bash ended: {how}; {hint}{LOST}]\n"),
        )
    }

    /// Finds out whether the shell died while nothing ran.
    fn drain_idle(&mut self) {
        let idle = self.shell.as_mut().filter(|shell| !shell.is_running());
        if idle.is_some_and(|shell| shell.session.child.ended().is_some()) {
            self.epitaph = self.died().1;
        }
    }

    fn ended(&mut self, status: i32, output: String) -> Response {
        self.last_end = format!("exit status {status}");
        Response {
            output,
            success: status == 0,
            running: false,
        }
    }
}

impl Environment for BashEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        self.drain_idle();
        if self
            .shell
            .as_mut()
            .is_some_and(|shell| shell.begin(command, "").is_err())
        {
            // It was dead, and nobody had told yet.
            self.epitaph = self.died().1;
        }
        if self.shell.is_some() {
            return None;
        }
        let before = std::mem::take(&mut self.epitaph);
        match self.start() {
            Ok(mut shell) => {
                let begun = shell.begin(command, &before);
                self.shell = Some(shell);
                self.end_of_shell = None;
                begun.err().map(|_| Response::failed(self.died().1))
            }
            Err(problem) => Some(Response::failed(before + &problem + "\n")),
        }
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        let Some(shell) = self.shell.as_mut() else {
            return WaitResult::Ended(Response::default());
        };
        match shell.listen(until.deadline, Some(until.wake)) {
            BashWait::End(status) => {
                let output = shell.session.finish();
                WaitResult::Ended(self.ended(status, output))
            }
            BashWait::Death => {
                let (ended, output) = self.died();
                WaitResult::Ended(Response {
                    output,
                    success: ended == JobEnd::Exited(0),
                    running: false,
                })
            }
            BashWait::Wake => WaitResult::Woken,
            BashWait::Nothing => WaitResult::Late,
        }
    }

    fn take_output(&mut self) -> String {
        self.shell
            .as_ref()
            .map(|shell| shell.session.take())
            .unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        self.shell.as_ref().is_some_and(Shell::is_running)
    }

    fn interrupt(&mut self) {
        if let Some(shell) = self.shell.as_mut().filter(|shell| shell.is_running()) {
            shell.interrupt();
        }
    }

    fn restart(&mut self) {
        self.shutdown();
        self.epitaph.clear();
        self.end_of_shell = None;
    }

    fn last_end(&self) -> String {
        self.last_end.clone()
    }

    fn screen(&mut self) -> ScreenSection {
        self.drain_idle();
        ScreenSection::new(match (&mut self.shell, &self.end_of_shell) {
            (Some(shell), _) => shell.section(),
            (None, Some(how)) => format!("{READY} (ended: {how})"),
            (None, None) => READY.to_owned(),
        })
    }

    fn shutdown(&mut self) {
        if let Some(mut shell) = self.shell.take() {
            shell.session.child.end(StopMode::Soon);
        }
    }
}

/// A living shell, and how far the talk with its loop has come.
#[derive(Debug)]
struct Shell {
    session: ChildSession,
    records: BashRecords,
    /// The shell between its commands, as it was told last.
    report: ShellReport,
    /// Whether a command has ended in this shell.
    is_used: bool,
    command: Option<BashCommand>,
    /// Whether a line that enters the loop is under way: nothing else may be sent, for the prompt would read on into it.
    is_entering: bool,
    /// Whether an interrupt was sent after that line.
    is_interrupted_again: bool,
}

/// A command under way.
#[derive(Debug)]
struct BashCommand {
    text: String,
    has_begun: bool,
    /// Whether an interrupt waits for it to begin.
    is_unwanted: bool,
    has_fallen_out: bool,
    status: Option<i32>,
}

/// What listening ended with.
enum BashWait {
    End(i32),
    Death,
    Wake,
    Nothing,
}

impl Shell {
    /// Returns a shell that has entered the loop.
    fn new(session: ChildSession) -> Result<Shell, String> {
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
        let deadline = Instant::now().checked_add(PATIENCE);
        while shell.is_entering && sent.is_ok() {
            let ready = shell.session.wait(deadline, None);
            if !shell.hear()
                && (ready == SessionEvent::Nothing || shell.session.child.ended().is_some())
            {
                break;
            }
        }
        // It says that it has no terminal.
        let printed = shell.session.finish();
        if shell.is_entering {
            let how = describe_end(&shell.session.child.end(StopMode::Now));
            return Err(format!("{printed}bash cannot be started: {how}"));
        }
        shell.report.status = 0;
        Ok(shell)
    }

    fn is_running(&self) -> bool {
        self.command.is_some()
    }

    fn begin(&mut self, text: &str, before: &str) -> io::Result<()> {
        self.session.begin(before);
        let message = message::command(text, &self.report);
        let text = text.to_owned();
        self.command = Some(BashCommand {
            text,
            has_begun: false,
            is_unwanted: false,
            has_fallen_out: false,
            status: None,
        });
        self.session.send(&message)
    }

    /// Waits for the end of the command.
    fn listen(&mut self, deadline: Option<Instant>, wake: Option<BorrowedFd<'_>>) -> BashWait {
        loop {
            if let Some(status) = self.take_end() {
                return BashWait::End(status);
            }
            let ready = self.session.wait(deadline, wake);
            let is_over = self.session.child.ended().is_some();
            // What was told before the death counts.
            if self.hear() {
                continue;
            }
            match ready {
                _ if is_over => return BashWait::Death,
                SessionEvent::Wake => return BashWait::Wake,
                SessionEvent::Nothing => return BashWait::Nothing,
                SessionEvent::Something => {}
            }
        }
    }

    /// Returns the status of a command that is over, and with it all talk about interrupts.
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

    /// Takes note of what was told; returns whether anything was.
    fn hear(&mut self) -> bool {
        let told = self.session.receive();
        self.records.push(&told);
        while let Some(record) = self.records.take() {
            self.note(record);
        }
        !told.is_empty()
    }

    fn note(&mut self, record: BashRecord) {
        match record {
            BashRecord::Begun => {
                let Some(command) = self.command.as_mut() else {
                    return;
                };
                command.has_begun = true;
                if command.is_unwanted {
                    self.interrupt_now();
                }
            }
            BashRecord::Ended(report) => {
                self.note_status(report.status);
                self.report = report;
            }
            BashRecord::Entered(report) => {
                let has_fallen_out = self
                    .command
                    .as_ref()
                    .is_some_and(|command| command.has_fallen_out);
                self.note_status(if has_fallen_out {
                    report.status
                } else {
                    INTERRUPTED
                });
                self.report = report;
                self.has_entered();
            }
            BashRecord::Skipped => self.has_entered(),
            BashRecord::FellOut => {
                if let Some(command) = self.command.as_mut() {
                    command.has_fallen_out = true;
                }
                if !self.is_entering {
                    self.is_entering = true;
                    // Where it cannot be sent, the shell is about to be found dead.
                    let _ = self.session.send(message::enter().as_bytes());
                }
            }
        }
    }

    /// Notes how the command has ended; the first word on that counts.
    fn note_status(&mut self, status: i32) {
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

    fn interrupt(&mut self) {
        // It may have ended already, or be about to: bash that enters the loop is not to be disturbed.
        self.hear();
        let deadline = Instant::now().checked_add(ENTERING);
        while self.is_entering
            && self.session.wait(deadline, None) == SessionEvent::Something
            && self.hear()
        {}
        match self.command.as_mut() {
            Some(command) if command.status.is_some() => {}
            // A signal in the midst of reading the command would leave the rest of it to the prompt.
            Some(command) if !command.has_begun => command.is_unwanted = true,
            _ => self.interrupt_now(),
        }
    }

    fn interrupt_now(&mut self) {
        let jobs: Vec<u32> = self.report.jobs.iter().map(|job| job.pid).collect();
        self.session.child.interrupt_foreground(&jobs);
        match self.is_entering {
            true => self.is_interrupted_again = true,
            false => self.enter_again(),
        }
    }

    /// Sends the line that enters the loop, behind an interrupt.
    fn enter_again(&mut self) {
        self.is_entering = true;
        let _ = self.session.send(message::enter_or_skip().as_bytes());
    }

    fn has_errexit(&self) -> bool {
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

    fn section(&mut self) -> String {
        if !self.is_used {
            return READY.to_owned();
        }
        let mut section = format!(
            "Working directory: {}\nLast exit code: {}\n",
            self.report.cwd, self.report.status
        );
        let told: Vec<u32> = self.report.jobs.iter().map(|job| job.pid).collect();
        let child = self.session.child.live_processes(&told);
        let jobs: Vec<String> = self
            .report
            .jobs
            .iter()
            .filter(|job| child.contains(&job.pid))
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
