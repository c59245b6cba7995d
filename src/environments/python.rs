//! A persistent Python interpreter.
//!
//! `python/driver.py` is the loop inside it: it reads frames from the channel (a command, or the notice of an interrupt)
//! and reports the end of a command in one line, with the directory and the variables for the screen. Nothing is
//! installed: the driver itself is sent over the channel first. Output goes through the pipe of the session.

pub(crate) mod record;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use self::record::{CommandEnd, MAX_VARIABLES, PythonRecords};
use crate::environments::channel::ChannelEvent;
use crate::environments::output::on_own_line;
use crate::environments::repeat_timer::RepeatTimer;
use crate::environments::session::{ChildSession, SessionStartError, describe_end};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::process::check_env::find_program;
use crate::process::child::StopMode;
use crate::process::{Job, Launcher};

const DRIVER: &str = include_str!("python/driver.py");
const READY: &str = "Python REPL (ready)";
const LOST: &str =
    "variables, imports and threads are lost; the next command starts a fresh interpreter";
/// The lines of the screen that are not variables.
const OTHER_LINES: usize = 3;
/// How long the driver may take to start before an interrupt is given up.
const READY_PATIENCE: Duration = Duration::from_secs(10);

const COMMAND: u8 = b'c';
const INTERRUPT: u8 = b'i';

/// The environment `python`.
#[derive(Debug)]
pub struct PythonEnvironment {
    launcher: Launcher,
    project: PathBuf,
    env: Vec<(OsString, OsString)>,
    interpreter: Option<Interpreter>,
    /// The report on an interpreter that died between two commands, for the next answer.
    death_report: String,
    section: String,
    last_end: String,
}

impl PythonEnvironment {
    /// The interpreter starts with the first command.
    pub fn new(
        launcher: Launcher,
        project: PathBuf,
        env: Vec<(OsString, OsString)>,
    ) -> PythonEnvironment {
        PythonEnvironment {
            launcher,
            project,
            env,
            interpreter: None,
            death_report: String::new(),
            section: READY.to_owned(),
            last_end: String::new(),
        }
    }

    fn variable(&self, name: &str) -> Option<&OsStr> {
        let found = self.env.iter().rfind(|(known, _)| known == name)?;
        Some(&found.1)
    }

    fn start(&self) -> Result<Interpreter, SessionStartError> {
        let path = self.variable("PATH").unwrap_or_default();
        let program = find_program(path, OsStr::new("python3"), &self.project).ok_or(
            SessionStartError::NotFound(
                "python3 is not on PATH (one in the project does not count)",
            ),
        )?;
        let job = Job {
            command: vec![program.into(), "-c".into(), bootstrap().into()],
            cwd: self.project.clone(),
            // The driver adds it after its own imports, because it may point into the project.
            env: self
                .env
                .iter()
                .filter(|(name, _)| name != "PYTHONPATH")
                .cloned()
                .collect(),
            timeout: Duration::MAX,
        };
        let failed = |source: io::Error| SessionStartError::Spawn {
            program: "python3",
            source,
        };
        let mut session = ChildSession::start(&self.launcher, &job).map_err(failed)?;
        let search_path = self
            .variable("PYTHONPATH")
            .map(|path| [b"=", path.as_bytes()].concat())
            .unwrap_or_default();
        session
            .send(DRIVER.as_bytes())
            .and_then(|()| session.send(&frame(&[&search_path])))
            .map_err(failed)?;
        Ok(Interpreter {
            session,
            records: PythonRecords::default(),
            number: 0,
            is_running: false,
            reminder: None,
        })
    }

    /// Records the end of a command, and returns its response.
    fn ended(&mut self, end: CommandEnd, output: String) -> Response {
        self.section = end.section();
        self.last_end = match end.status {
            0 => "nothing was raised".to_owned(),
            status => format!("it raised, exit status {status}"),
        };
        Response {
            output,
            success: end.status == 0,
            running: false,
        }
    }

    /// Records that the interpreter has ended; returns the text of the answer.
    fn died(&mut self) -> String {
        let Some(mut interpreter) = self.interpreter.take() else {
            return String::new();
        };
        let how = describe_end(&interpreter.session.child.end(StopMode::Now));
        self.section = format!("{READY} (ended: {how})");
        self.last_end = format!("python ended, {how}");
        on_own_line(interpreter.session.finish()) + &format!("[python ended: {how}; {LOST}]\n")
    }

    /// Checks whether the interpreter died while no command ran.
    fn check_idle(&mut self) {
        let idle = self
            .interpreter
            .as_mut()
            .filter(|interpreter| !interpreter.is_running);
        if idle.is_some_and(|interpreter| interpreter.session.child.ended().is_some()) {
            self.death_report = self.died();
        }
    }
}

impl Environment for PythonEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        self.check_idle();
        if self
            .interpreter
            .as_mut()
            .is_some_and(|interpreter| interpreter.begin(command, "").is_err())
        {
            // It died after the check.
            self.death_report = self.died();
        }
        if self.interpreter.is_some() {
            return None;
        }
        let before = std::mem::take(&mut self.death_report);
        match self.start() {
            Ok(mut interpreter) => {
                let begun = interpreter.begin(command, &before);
                self.interpreter = Some(interpreter);
                begun.err().map(|_| Response::failed(self.died()))
            }
            Err(error) => Some(Response::failed(format!("{before}{error}\n"))),
        }
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        let Some(interpreter) = self.interpreter.as_mut() else {
            return WaitResult::Ended(Response::default());
        };
        match interpreter.wait_for(PythonRecords::has_end, until.deadline, Some(until.wake)) {
            PythonWait::Done => match interpreter.finish() {
                Some((end, output)) => WaitResult::Ended(self.ended(end, output)),
                None => WaitResult::Woken,
            },
            PythonWait::Died => WaitResult::Ended(Response::failed(self.died())),
            PythonWait::Woken => WaitResult::Woken,
            PythonWait::TimedOut => WaitResult::Late,
        }
    }

    fn take_output(&mut self) -> String {
        self.interpreter
            .as_ref()
            .map(|interpreter| interpreter.session.take())
            .unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        self.interpreter
            .as_ref()
            .is_some_and(|interpreter| interpreter.is_running)
    }

    fn interrupt(&mut self) {
        if let Some(interpreter) = self
            .interpreter
            .as_mut()
            .filter(|interpreter| interpreter.is_running)
        {
            interpreter.interrupt();
        }
    }

    fn restart(&mut self) {
        self.shutdown();
        self.death_report.clear();
        self.section = READY.to_owned();
    }

    fn last_end(&self) -> String {
        self.last_end.clone()
    }

    fn screen(&mut self) -> ScreenSection {
        self.check_idle();
        ScreenSection {
            content: self.section.clone(),
            max_lines: MAX_VARIABLES + OTHER_LINES,
        }
    }

    fn shutdown(&mut self) {
        if let Some(mut interpreter) = self.interpreter.take() {
            interpreter.session.child.end(StopMode::Soon);
        }
    }
}

/// A running interpreter, and the state of the exchange with its driver.
#[derive(Debug)]
struct Interpreter {
    session: ChildSession,
    records: PythonRecords,
    /// The number of the last command.
    number: u64,
    is_running: bool,
    /// When the interpreter is reminded of an interrupt.
    reminder: Option<RepeatTimer>,
}

/// Why a wait returned.
enum PythonWait {
    Done,
    Died,
    Woken,
    TimedOut,
}

impl Interpreter {
    fn begin(&mut self, command: &str, before: &str) -> io::Result<()> {
        self.session.begin(before);
        self.number += 1;
        self.records.await_end(self.number);
        self.is_running = true;
        self.reminder = None;
        self.session.send(&frame(&[
            &[COMMAND],
            &self.number.to_le_bytes(),
            command.as_bytes(),
        ]))
    }

    /// The end of the command if it was reported, and its output.
    fn finish(&mut self) -> Option<(CommandEnd, String)> {
        let end = self.records.take_end()?;
        self.is_running = false;
        Some((end, self.session.finish()))
    }

    /// Sends the notice first and then the signal. The driver checks for the notice after it has given SIGINT to the
    /// command: a signal that arrives before that is not lost, and one that arrives after the command has no effect.
    fn interrupt(&mut self) {
        let notice = frame(&[&[INTERRUPT], &self.number.to_le_bytes()]);
        let _ = self.session.send(&notice);
        // Before the driver runs, the signal would kill the interpreter.
        let deadline = Instant::now().checked_add(READY_PATIENCE);
        let waited = self.wait_for(PythonRecords::is_ready, deadline, None);
        if matches!(waited, PythonWait::Done) && !self.records.has_end() {
            self.session.child.signal_group(Signal::INT);
            self.reminder = Some(RepeatTimer::begin());
        }
    }

    /// The handler of a signal only makes a note, which the interpreter reads between two instructions: if SIGINT arrives
    /// after the last one and before a system call blocks, `KeyboardInterrupt` is raised when that returns. Another signal,
    /// which is ignored, makes it return.
    fn remind(&mut self, reminder: RepeatTimer) {
        self.session.child.signal(Signal::URG);
        self.reminder = Some(reminder.next());
    }

    /// Applies the records that the driver has sent; returns whether anything was received.
    fn receive(&mut self) -> bool {
        let bytes = self.session.receive();
        self.records.push(bytes);
        !bytes.is_empty()
    }

    /// Receives records until `is_done`.
    fn wait_for(
        &mut self,
        is_done: fn(&PythonRecords) -> bool,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
    ) -> PythonWait {
        loop {
            if is_done(&self.records) {
                return PythonWait::Done;
            }
            let due = self
                .reminder
                .and_then(|reminder| reminder.due_before(deadline));
            let ready = self.session.wait(due.or(deadline), wake);
            if self.receive() {
                continue;
            }
            let is_over = self.session.child.ended().is_some();
            match (ready, self.reminder) {
                // Records that were sent before the death count.
                _ if is_over && self.receive() => {}
                _ if is_over => return PythonWait::Died,
                (ChannelEvent::Woken, _) => return PythonWait::Woken,
                (ChannelEvent::TimedOut, Some(reminder)) if due.is_some() => self.remind(reminder),
                (ChannelEvent::TimedOut, _) => return PythonWait::TimedOut,
                (ChannelEvent::Ready | ChannelEvent::Output, _) => {}
            }
        }
    }
}

fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(length + 4);
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    parts.iter().for_each(|part| frame.extend(*part));
    frame
}

/// The program that reads the driver and executes it. It imports only what is built into every interpreter.
fn bootstrap() -> String {
    let size = DRIVER.len();
    format!(
        "import posix\ndriver = b''\nwhile len(driver) < {size}:\n    part = posix.read(0, {size} - len(driver))\n    \
         if not part: posix._exit(1)\n    driver += part\nexec(compile(driver, '<driver>', 'exec'), \
         {{'__builtins__': dict(vars(__builtins__)), '__name__': '<driver>'}})"
    )
}
