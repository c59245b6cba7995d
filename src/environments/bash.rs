//! A persistent bash.
//!
//! It is an interactive shell whose prompt command is a loop (`bash/loop.sh`): the loop reads commands from the channel
//! and reports there when one has ended, with the directory and the jobs for the screen. Output goes through the pipe of
//! the session and is never interpreted. SIGINT returns bash from the loop to its prompt; therefore every interrupt is
//! followed by a line that enters the loop again, which either the prompt or the loop reads.

mod message;
pub(crate) mod record;
mod shell;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use self::shell::{BashWait, READY, Shell};
use crate::environments::output::on_own_line;
use crate::environments::session::{ChildSession, SessionStartError, describe_end};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::process::child::StopMode;
use crate::process::{Job, JobEnd, Launcher};

/// Interactive, without startup files, line editing and history.
const BASH: [&str; 8] = [
    "bash",
    "--norc",
    "--noprofile",
    "--noediting",
    "+H",
    "+o",
    "history",
    "-i",
];
const LOST: &str = "variables, functions and background processes are lost; the next command starts a fresh shell in the project";
const ERREXIT: &str = "set -e makes every failure end the shell, use ( set -e; … ) instead; ";

/// The environment `bash`.
#[derive(Debug)]
pub struct BashEnvironment {
    launcher: Launcher,
    project: PathBuf,
    env: Vec<(OsString, OsString)>,
    shell: Option<Shell>,
    /// The report on a shell that died between two commands, for the next answer.
    death_report: String,
    /// How the last shell ended, unless we ended it.
    end_of_shell: Option<String>,
    last_end: String,
}

impl BashEnvironment {
    /// The shell starts with the first command.
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
            death_report: String::new(),
            end_of_shell: None,
            last_end: String::new(),
        }
    }

    fn start(&self) -> Result<Shell, SessionStartError> {
        let job = Job {
            command: BASH.map(OsString::from).to_vec(),
            cwd: self.project.clone(),
            env: self.env.clone(),
            timeout: Duration::MAX,
        };
        match ChildSession::start(&self.launcher, &job) {
            Ok(session) => Shell::new(session),
            Err(source) => Err(SessionStartError::Spawn {
                program: "bash",
                source,
            }),
        }
    }

    /// Records that the shell has ended; returns how, and the text of the answer.
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
        let output = on_own_line(shell.session.finish());
        (
            ended,
            output + &format!("[bash ended: {how}; {hint}{LOST}]\n"),
        )
    }

    /// Checks whether the shell died while no command ran.
    fn check_idle(&mut self) {
        let idle = self.shell.as_mut().filter(|shell| !shell.is_running());
        if idle.is_some_and(|shell| shell.session.child.ended().is_some()) {
            self.death_report = self.died().1;
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
        self.check_idle();
        if self
            .shell
            .as_mut()
            .is_some_and(|shell| shell.begin(command, "").is_err())
        {
            // It died after the check.
            self.death_report = self.died().1;
        }
        if self.shell.is_some() {
            return None;
        }
        let before = std::mem::take(&mut self.death_report);
        match self.start() {
            Ok(mut shell) => {
                let begun = shell.begin(command, &before);
                self.shell = Some(shell);
                self.end_of_shell = None;
                begun.err().map(|_| Response::failed(self.died().1))
            }
            Err(error) => Some(Response::failed(format!("{before}{error}\n"))),
        }
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        let Some(shell) = self.shell.as_mut() else {
            return WaitResult::Ended(Response::default());
        };
        match shell.wait(until.deadline, Some(until.wake)) {
            BashWait::Ended(status) => {
                let output = shell.session.finish();
                WaitResult::Ended(self.ended(status, output))
            }
            BashWait::Died => {
                let (ended, output) = self.died();
                WaitResult::Ended(Response {
                    output,
                    success: ended == JobEnd::Exited(0),
                    running: false,
                })
            }
            BashWait::Woken => WaitResult::Woken,
            BashWait::TimedOut => WaitResult::Late,
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
        self.death_report.clear();
        self.end_of_shell = None;
    }

    fn last_end(&self) -> String {
        self.last_end.clone()
    }

    fn screen(&mut self) -> ScreenSection {
        self.check_idle();
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
