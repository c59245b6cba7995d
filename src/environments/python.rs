//! A Python interpreter that stays.
//!
//! `python/driver.py` is the loop inside it: it gets frames over the channel, a command or word of an interrupt, and
//! tells the end of a command in one line, with the directory and the variables of the screen. Nothing is installed:
//! the driver itself comes over the channel first. What is printed comes through the pipe of the session.

pub mod record;

use std::ffi::{OsStr, OsString};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::Signal;

use self::record::{CommandEnd, MOST_VARIABLES, PythonRecords};
use crate::environments::session::{ChildSession, describe_end};
use crate::environments::{Environment, Response, ScreenSection, WaitLimit, WaitResult};
use crate::process::check_env::find_program;
use crate::process::child::StopMode;
use crate::process::{Job, Launcher};

const DRIVER: &str = include_str!("python/driver.py");
const READY: &str = "Python REPL (ready)";
const LOST: &str =
    "variables, imports and threads are lost; the next command starts a fresh interpreter";
/// The lines of the screen that are no variable.
const OTHER_LINES: usize = 3;
/// How long an interpreter that should listen may take to do so.
const PATIENCE: Duration = Duration::from_secs(10);

const COMMAND: u8 = b'c';
const INTERRUPT: u8 = b'i';

/// The environment `python`.
#[derive(Debug)]
pub struct PythonEnvironment {
    launcher: Launcher,
    project: PathBuf,
    env: Vec<(OsString, OsString)>,
    interpreter: Option<Interpreter>,
    /// What an interpreter that died between two commands has left to say.
    epitaph: String,
    section: String,
    last_end: String,
}

impl PythonEnvironment {
    /// Returns the environment of a project; its interpreter starts with the first command.
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
            epitaph: String::new(),
            section: READY.to_owned(),
            last_end: String::new(),
        }
    }

    fn start(&self) -> Result<Interpreter, String> {
        let value = |name: &str| {
            self.env
                .iter()
                .rfind(|(known, _)| known == name)
                .map(|(_, value)| value.as_os_str())
        };
        let path = value("PATH").unwrap_or_default();
        let program = find_program(path, OsStr::new("python3"), &self.project)
            .ok_or("python3 is not on PATH (what is in the project does not count)")?;
        let job = Job {
            command: vec![program.into(), "-c".into(), bootstrap().into()],
            cwd: self.project.clone(),
            // The driver adds it once its own imports are done, for it may lead into the project.
            env: self
                .env
                .iter()
                .filter(|(name, _)| name != "PYTHONPATH")
                .cloned()
                .collect(),
            timeout: Duration::MAX,
        };
        let refuse = |error: io::Error| format!("python3 cannot be started: {error}");
        let session = ChildSession::start(&self.launcher, &job).map_err(refuse)?;
        let mut interpreter = Interpreter {
            session,
            is_open: true,
            records: PythonRecords::default(),
            number: 0,
            is_running: false,
        };
        let search_path = value("PYTHONPATH")
            .map(|path| [b"=", path.as_bytes()].concat())
            .unwrap_or_default();
        interpreter
            .send(DRIVER.as_bytes())
            .and_then(|()| interpreter.send(&frame(&[&search_path])))
            .map_err(refuse)?;
        Ok(interpreter)
    }

    /// Notes the end of a command, and returns its response.
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

    /// Notes that the interpreter is gone, and returns what is to be said.
    fn died(&mut self) -> String {
        let Some(mut interpreter) = self.interpreter.take() else {
            return String::new();
        };
        let how = describe_end(&interpreter.session.child.end(StopMode::Now));
        self.section = format!("{READY} (ended: {how})");
        self.last_end = format!("python ended, {how}");
        on_own_line(interpreter.session.finish()) + &format!("[python ended: {how}; {LOST}]\n")
    }

    /// Finds out whether the interpreter died while nothing ran.
    fn drain_idle(&mut self) {
        let idle = self
            .interpreter
            .as_mut()
            .filter(|interpreter| !interpreter.is_running);
        if idle.is_some_and(|interpreter| interpreter.session.child.ended().is_some()) {
            self.epitaph = self.died();
        }
    }
}

impl Environment for PythonEnvironment {
    fn begin(&mut self, command: &str) -> Option<Response> {
        self.drain_idle();
        if self
            .interpreter
            .as_mut()
            .is_some_and(|interpreter| interpreter.begin(command, "").is_err())
        {
            // It was dead, and nobody had told yet.
            self.epitaph = self.died();
        }
        if self.interpreter.is_some() {
            return None;
        }
        let before = std::mem::take(&mut self.epitaph);
        match self.start() {
            Ok(mut interpreter) => {
                let begun = interpreter.begin(command, &before);
                self.interpreter = Some(interpreter);
                begun.err().map(|_| Response::failed(self.died()))
            }
            Err(problem) => Some(Response::failed(before + &problem + "\n")),
        }
    }

    fn wait(&mut self, until: WaitLimit<'_>) -> WaitResult {
        let Some(interpreter) = self.interpreter.as_mut() else {
            return WaitResult::Ended(Response::default());
        };
        match interpreter.listen(until.deadline, Some(until.wake), PythonRecords::has_end) {
            PythonWait::It => match interpreter.finish() {
                Some((end, output)) => WaitResult::Ended(self.ended(end, output)),
                None => WaitResult::Woken,
            },
            PythonWait::Death => WaitResult::Ended(Response::failed(self.died())),
            PythonWait::Wake => WaitResult::Woken,
            PythonWait::Nothing => WaitResult::Late,
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
        self.epitaph.clear();
        self.section = READY.to_owned();
    }

    fn last_end(&self) -> String {
        self.last_end.clone()
    }

    fn screen(&mut self) -> ScreenSection {
        self.drain_idle();
        ScreenSection {
            content: self.section.clone(),
            max_lines: MOST_VARIABLES + OTHER_LINES,
        }
    }

    fn shutdown(&mut self) {
        if let Some(mut interpreter) = self.interpreter.take() {
            interpreter.session.child.end(StopMode::Soon);
        }
    }
}

/// A living interpreter, and how far the talk with its driver has come.
#[derive(Debug)]
struct Interpreter {
    session: ChildSession,
    /// Whether more can come over the channel.
    is_open: bool,
    records: PythonRecords,
    /// Of the last command.
    number: u64,
    is_running: bool,
}

/// What listening ended with.
enum PythonWait {
    It,
    Death,
    Wake,
    Nothing,
}

impl Interpreter {
    fn begin(&mut self, command: &str, before: &str) -> io::Result<()> {
        self.session.begin(before);
        self.number += 1;
        self.records.await_end(self.number);
        self.is_running = true;
        self.send(&frame(&[
            &[COMMAND],
            &self.number.to_le_bytes(),
            command.as_bytes(),
        ]))
    }

    /// Returns the end that was told, and what was printed before it.
    fn finish(&mut self) -> Option<(CommandEnd, String)> {
        let end = self.records.take_end()?;
        self.is_running = false;
        Some((end, self.session.finish()))
    }

    /// Sends word first and then the signal. The driver looks for the word when it has made SIGINT the command's: a
    /// signal that came too early for it is not lost, and one that comes too late hits nobody.
    fn interrupt(&mut self) {
        let _ = self.send(&frame(&[&[INTERRUPT], &self.number.to_le_bytes()]));
        // Before the driver runs, the signal would kill.
        let deadline = Instant::now().checked_add(PATIENCE);
        if matches!(
            self.listen(deadline, None, |records| records.is_ready()),
            PythonWait::It
        ) && !self.records.has_end()
        {
            self.session.child.signal_group(Signal::INT);
        }
    }

    /// Reads what the driver tells until `is_it`, the deadline, a wake, or death.
    fn listen(
        &mut self,
        deadline: Option<Instant>,
        wake: Option<BorrowedFd<'_>>,
        is_it: impl Fn(&PythonRecords) -> bool,
    ) -> PythonWait {
        loop {
            if is_it(&self.records) {
                return PythonWait::It;
            }
            let ready = self.poll(PollFlags::IN, wake, deadline);
            // What was told before the death counts.
            if self.read() {
                continue;
            }
            match ready {
                PollResult::Over => return PythonWait::Death,
                PollResult::Wake => return PythonWait::Wake,
                PollResult::Nothing => return PythonWait::Nothing,
                PollResult::Channel => {}
            }
        }
    }

    /// Reads what is there; returns whether something was.
    fn read(&mut self) -> bool {
        let mut bytes = [0; 64 * 1024];
        let count = match self.session.channel.read(&mut bytes) {
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
                ) =>
            {
                return false;
            }
            other => other.unwrap_or(0),
        };
        self.is_open = 0 < count;
        self.records.push(bytes.get(..count).unwrap_or_default());
        self.is_open
    }

    /// Sends all of it. Who should listen and does not take anything for a while is taken for dead.
    fn send(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.session.channel.write(bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.poll(PollFlags::OUT, None, Instant::now().checked_add(PATIENCE))
                        != PollResult::Channel
                    {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn poll(
        &self,
        channel: PollFlags,
        wake: Option<BorrowedFd<'_>>,
        deadline: Option<Instant>,
    ) -> PollResult {
        let over = self.session.child.over();
        // Who is not there is replaced by one who is.
        let watched = if self.is_open {
            self.session.channel.as_fd()
        } else {
            over
        };
        let fds = [
            (over, PollFlags::IN),
            (watched, channel),
            (wake.unwrap_or(over), PollFlags::IN),
        ];
        let mut fds = fds.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags));
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        match (
            poll(&mut fds, left.as_ref()),
            fds.map(|fd| !fd.revents().is_empty()),
        ) {
            (Ok(0), _) => PollResult::Nothing,
            (Ok(_), [true, ..]) => PollResult::Over,
            (Ok(_), [.., true]) => PollResult::Wake,
            _ => PollResult::Channel,
        }
    }
}

/// What a poll found.
#[derive(PartialEq, Eq)]
enum PollResult {
    Channel,
    Over,
    Wake,
    Nothing,
}

fn frame(parts: &[&[u8]]) -> Vec<u8> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut frame = Vec::with_capacity(length + 4);
    frame.extend(u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes());
    parts.iter().for_each(|part| frame.extend(*part));
    frame
}

/// Returns the program that reads the driver and becomes it. All it imports is part of every interpreter.
fn bootstrap() -> String {
    let size = DRIVER.len();
    format!(
        "import posix\ndriver = b''\nwhile len(driver) < {size}:\n    part = posix.read(0, {size} - len(driver))\n    \
         if not part: posix._exit(1)\n    driver += part\nexec(compile(driver, '<driver>', 'exec'), \
         {{'__builtins__': dict(vars(__builtins__)), '__name__': '<driver>'}})"
    )
}

fn on_own_line(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
