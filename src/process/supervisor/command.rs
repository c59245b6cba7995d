//! Turns a job into a process: looks its program up, sets its streams and environment, and starts it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs, io};

use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd, write};
use rustix::process::{Pid, chdir};

use crate::process::job::{Job, JobEnd};
use crate::process::program::interpreter_of;
use crate::process::report_channel::REPORT_VARIABLE;
use crate::process::wire::{ChildInput, Start};
use crate::process::{check_env, wire};

/// What a command inherits.
pub(super) struct CommandStreams {
    stdout: OwnedFd,
    stderr: OwnedFd,
    input: ChildInput,
    /// Its stdin, unless that is empty.
    channel: Option<OwnedFd>,
    /// Its end of the report channel.
    report: Option<OwnedFd>,
    /// Gets a byte just before the command begins.
    begin_mark: Option<OwnedFd>,
}

/// Receives a command and what it inherits.
pub(super) fn receive(control: &UnixStream) -> io::Result<(Job, CommandStreams)> {
    let start: Start<'static> = wire::receive(control)?;
    let receive_if = |is_sent: bool| {
        is_sent
            .then(|| wire::receive_descriptor(control))
            .transpose()
    };
    let streams = CommandStreams {
        stdout: wire::receive_descriptor(control)?,
        stderr: wire::receive_descriptor(control)?,
        input: start.input,
        channel: receive_if(start.input != ChildInput::Empty)?,
        report: receive_if(start.has_report)?,
        begin_mark: receive_if(start.has_begin_mark)?,
    };
    Ok((start.job.into_owned(), streams))
}

/// Starts the command as a child; this process is then in the job's directory.
pub(super) fn spawn(job: &Job, streams: CommandStreams) -> Result<Pid, StartError> {
    let mut prepared = PreparedCommand::new(job, streams)?;
    prepared.mark_begin();
    let child = prepared
        .command
        .spawn()
        .map_err(|error| prepared.refused(job, error))?;
    Ok(Pid::from_child(&child))
}

/// Replaces this process by the command; returns only if that fails.
pub(super) fn exec(job: &Job, streams: CommandStreams) -> StartError {
    match PreparedCommand::new(job, streams) {
        Err(error) => error,
        Ok(mut prepared) => {
            prepared.mark_begin();
            let error = prepared.command.exec();
            prepared.refused(job, error)
        }
    }
}

struct PreparedCommand {
    command: Command,
    program: PathBuf,
    /// Kept open until the command has inherited it.
    _report: Option<OwnedFd>,
    begin_mark: Option<OwnedFd>,
}

impl PreparedCommand {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where a command starts"
    )]
    fn new(job: &Job, streams: CommandStreams) -> Result<PreparedCommand, StartError> {
        let name = job
            .command
            .first()
            .filter(|name| !name.is_empty())
            .ok_or(StartError::EmptyCommand)?;
        chdir(&job.cwd).map_err(|errno| StartError::Directory(job.cwd.clone(), errno.into()))?;
        let program = locate(job, name)?;
        let mut command = Command::new(&program);
        command.arg0(name).args(&job.command[1..]).process_group(0);
        command
            .env_clear()
            .envs(job.env.iter().map(|(name, value)| (name, value)));
        command.stdout(streams.stdout).stderr(streams.stderr);
        match streams.channel {
            Some(channel) => {
                if streams.input == ChildInput::Duplex {
                    command.stdout(channel.try_clone().map_err(StartError::Descriptor)?);
                }
                command.stdin(channel);
            }
            None => drop(command.stdin(Stdio::null())),
        }
        let report = streams
            .report
            .map(|report| inheritable(&report))
            .transpose()
            .map_err(|errno| StartError::Descriptor(errno.into()))?;
        if let Some(report) = &report {
            command.env(REPORT_VARIABLE, report.as_raw_fd().to_string());
        }
        Ok(PreparedCommand {
            command,
            program,
            _report: report,
            begin_mark: streams.begin_mark,
        })
    }

    /// Shows the orchestrator that the command begins.
    fn mark_begin(&self) {
        if let Some(mark) = &self.begin_mark {
            // It fails if the orchestrator is gone, and with it the need to know.
            let _ = write(mark, b".");
        }
    }

    fn refused(&self, job: &Job, error: io::Error) -> StartError {
        StartError::Refused {
            name: job.command[0].clone(),
            program: self.program.clone(),
            error,
        }
    }
}

/// Returns a copy that survives exec, with a number that shells and scripts do not use.
fn inheritable(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    const FIRST_NUMBER: i32 = 100;
    let copy = fcntl_dupfd_cloexec(descriptor, FIRST_NUMBER)?;
    fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

fn locate(job: &Job, name: &OsStr) -> Result<PathBuf, StartError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let path = job
        .env
        .iter()
        .rfind(|(variable, _)| variable == "PATH")
        .map(|(_, value)| value.as_os_str());
    check_env::find_program(path.unwrap_or_default(), name, &job.cwd)
        .ok_or_else(|| StartError::NotOnPath(name.to_owned()))
}

/// Why a command cannot start.
#[derive(Debug)]
pub(super) enum StartError {
    EmptyCommand,
    /// The job's directory cannot be entered.
    Directory(PathBuf, io::Error),
    NotOnPath(OsString),
    /// A descriptor cannot be duplicated.
    Descriptor(io::Error),
    /// The kernel refused to execute it.
    Refused {
        name: OsString,
        program: PathBuf,
        error: io::Error,
    },
}

impl std::error::Error for StartError {}

impl From<StartError> for JobEnd {
    fn from(error: StartError) -> JobEnd {
        JobEnd::CannotStart(error.to_string())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::EmptyCommand => f.write_str("the command is empty"),
            StartError::Directory(cwd, error) => {
                write!(f, "cannot enter {}: {}", cwd.display(), message(error))
            }
            StartError::NotOnPath(name) => write!(f, "{} is not on PATH", name.display()),
            StartError::Descriptor(error) => write!(f, "no descriptor: {}", message(error)),
            StartError::Refused {
                name,
                program,
                error,
            } => f.write_str(&refusal(name, program, error)),
        }
    }
}

fn refusal(name: &OsStr, program: &Path, error: &io::Error) -> String {
    let name = name.display();
    match Errno::from_io_error(error) {
        _ if program.is_dir() => format!("{name} is a folder"),
        Some(Errno::NOENT) if fs::symlink_metadata(program).is_err() => {
            format!("{name} does not exist")
        }
        Some(Errno::NOENT) => match interpreter_of(program) {
            Some(interpreter) => {
                format!(
                    "{name} is there, but the interpreter it asks for is not: {:?}",
                    interpreter.to_string_lossy()
                )
            }
            None => format!("{name} is there, but not the interpreter it asks for"),
        },
        Some(Errno::ACCESS) => format!("{name} is not executable"),
        Some(Errno::NOEXEC) => format!("{name} is no program, and has no #! line"),
        Some(Errno::TOOBIG) => format!("the arguments and environment of {name} are too long"),
        None if error.kind() == io::ErrorKind::InvalidInput => {
            format!("an argument of {name} contains a NUL byte")
        }
        _ => format!("{name} cannot be started: {}", message(error)),
    }
}

/// The system's message without the error number.
fn message(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}
