//! The keeper: this binary under a hidden command, between the orchestrator and what it runs.
//!
//! It takes one job from its standard input, starts the command with nothing but what the job gives, adopts whatever
//! the command leaves behind, and ends with the whole tree: when the command is done, when it is asked to, and when the
//! orchestrator is gone, which the end of the same stream tells. It has one thread, and it is the place where limits on
//! everything below it are laid on itself before the command starts.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, chdir, getpid};
use rustix::process::{
    kill_process, kill_process_group, set_child_subreaper, set_parent_process_death_signal, setsid,
    wait,
};
use rustix::stdio::stdin;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::process::job::{Job, JobEnd};
use crate::process::program::interpreter_of;
use crate::process::report_channel::REPORT_VARIABLE;
use crate::process::sandbox::escape::try_to_escape;
use crate::process::sandbox::init::{self, AfterCommand};
use crate::process::sandbox::policy::SandboxPolicy;
use crate::process::wire::{ChildInput, Task, TaskMessage};
use crate::process::{check_env, process_tree, stdio, wire};

/// How long everybody has to end after being asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How often an interrupt looks after a process that is just starting.
const MINDED_ROUNDS: usize = 25;

/// Keeps one job from its start to the end of its tree, and returns the exit code of the keeper itself.
pub fn main() -> u8 {
    match supervise() {
        Ok(()) => 0,
        Err(_) => 70,
    }
}

fn supervise() -> io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // The command may stop its keeper, but not for longer than the orchestrator lives.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let mut control = UnixStream::from(stdin().try_clone_to_owned()?);
    let mut children = on_child_signals()?;
    swallow_signals()?;
    seal_descriptors()?;
    let order =
        TaskMessage::decode(&wire::receive(&mut control)?).ok_or(io::ErrorKind::InvalidData)?;
    match order.task {
        Task::MakeNamespaces => make_namespaces(&order, &control),
        Task::Keep | Task::Try => run_job(&order, &mut control, &mut children),
    }
}

fn run_job(
    order: &TaskMessage,
    control: &mut UnixStream,
    children: &mut UnixStream,
) -> io::Result<()> {
    let namespaces = (0..order.namespaces)
        .map(|_| wire::receive_descriptor(control))
        .collect::<io::Result<Vec<_>>>()?;
    let (job, input, reports) =
        wire::decode_job(&wire::receive(&mut *control)?).ok_or(io::ErrorKind::InvalidData)?;
    let descriptor = match input {
        ChildInput::Empty => None,
        ChildInput::Channel | ChildInput::Duplex => Some(wire::receive_descriptor(control)?),
    };
    let report = if reports {
        Some(wire::receive_descriptor(control)?)
    } else {
        None
    };
    let given = CommandInput {
        input,
        descriptor,
        report,
    };
    let started = match &order.policy {
        None => start(&job, given),
        Some(policy) => start_sandboxed(policy, order.task, &namespaces, &job, given),
    };
    let ended = match started {
        Ok(kept) => watch(kept, control, children, input),
        Err(ended) => ended,
    };
    wire::send(control, &wire::encode_ended(&ended))
}

/// Makes namespaces, tells how many there are, and sends them.
fn make_namespaces(order: &TaskMessage, control: &UnixStream) -> io::Result<()> {
    let policy = order.policy.as_ref().ok_or(io::ErrorKind::InvalidData)?;
    match init::make_namespaces(policy) {
        Err(failure) => wire::send(control, &wire::encode_ended(&JobEnd::NoWalls(failure))),
        Ok(namespaces) => {
            let count = namespaces.len() as i32;
            wire::send(control, &wire::encode_ended(&JobEnd::Exited(count)))?;
            namespaces
                .iter()
                .try_for_each(|namespace| wire::send_descriptor(control, namespace.as_fd()))
        }
    }
}

/// Returns a stream that has something to read when a child has ended.
fn on_child_signals() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

/// Lets the usual signals pass by the keeper. A handler, unlike "ignore", is not inherited: the command starts with the
/// defaults also where the orchestrator was started under `nohup` or in the background.
fn swallow_signals() -> io::Result<()> {
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Keeps every descriptor but the three from the command. Ours are closed at its start anyway; what the orchestrator got
/// from whoever started it (the pipe of a `make`, a file of a shell) is not.
#[expect(
    unsafe_code,
    reason = "a descriptor that is known by its number alone cannot be borrowed in another way"
)]
fn seal_descriptors() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .unwrap_or(0);
        if 2 < number {
            // SAFETY: it was listed a moment ago, and the one thread of this process closes nothing in between.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// What a command is started with: its input, and the end of a channel on which it reports.
struct CommandInput {
    input: ChildInput,
    descriptor: Option<OwnedFd>,
    report: Option<OwnedFd>,
}

/// A command in our hands.
struct SupervisedCommand {
    /// Our child: the command, or the first process of the namespace that it is in.
    child: Pid,
    /// Where the command is in a namespace: its number there, and the socket over which its end is told.
    inside: Option<(u32, UnixStream)>,
}

impl SupervisedCommand {
    /// Returns the command, as we number it.
    fn command(&self) -> Option<Pid> {
        match &self.inside {
            None => Some(self.child),
            Some((number, _)) => process_tree::child_by_inner_number(self.child, *number),
        }
    }

    /// Returns those of some processes that are there, as the command and as we number them.
    fn as_we_number(&self, processes: &[u32]) -> Vec<(u32, u32)> {
        match self.inside {
            None => processes
                .iter()
                .map(|process| (*process, *process))
                .collect(),
            Some(_) => process_tree::by_inner_number(self.child, processes),
        }
    }

    /// Returns how the command ended, if that was told.
    fn announce(&mut self) -> Option<JobEnd> {
        let (_, word) = self.inside.as_ref()?;
        let mut fds = [PollFd::from_borrowed_fd(word.as_fd(), PollFlags::IN)];
        let is_told = poll(
            &mut fds,
            Some(&Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            }),
        )
        .is_ok_and(|ready| 0 < ready);
        is_told.then(|| {
            wire::receive(word)
                .ok()
                .and_then(|message| wire::decode_ended(&message))
        })?
    }
}

/// Starts the command, or says why it cannot be.
fn start(job: &Job, given: CommandInput) -> Result<SupervisedCommand, JobEnd> {
    let (mut command, program, report) = command(job, given).map_err(JobEnd::CannotStart)?;
    let child = command
        .spawn()
        .map_err(|error| JobEnd::CannotStart(refusal(&job.command[0], &program, error)))?;
    drop((command, report));
    stdio::detach_output();
    Ok(SupervisedCommand {
        child: Pid::from_child(&child),
        inside: None,
    })
}

/// Starts the command behind walls, or says why it cannot be.
fn start_sandboxed(
    policy: &SandboxPolicy,
    task: Task,
    namespaces: &[OwnedFd],
    job: &Job,
    given: CommandInput,
) -> Result<SupervisedCommand, JobEnd> {
    let input = given.input;
    let mut given = Some(given);
    let mut become_command = || match task {
        Task::Try => try_to_escape(policy.mode, &job.command),
        Task::Keep | Task::MakeNamespaces => match given.take() {
            Some(given) => exec(job, given),
            None => JobEnd::CannotStart("it was started before".into()),
        },
    };
    let afterwards = if input == ChildInput::Empty {
        AfterCommand::End
    } else {
        AfterCommand::Linger
    };
    let walled = init::start(policy, namespaces, afterwards, &mut become_command)?;
    drop(given);
    stdio::detach_output();
    Ok(SupervisedCommand {
        child: walled.child,
        inside: walled.inside,
    })
}

/// Becomes the command, or says why not.
fn exec(job: &Job, given: CommandInput) -> JobEnd {
    match command(job, given) {
        Err(reason) => JobEnd::CannotStart(reason),
        Ok((mut command, program, _report)) => {
            JobEnd::CannotStart(refusal(&job.command[0], &program, command.exec()))
        }
    }
}

/// Returns the command with its streams, where its program is, and what it inherits beside them; this process is then in
/// the job's directory.
#[expect(
    clippy::disallowed_methods,
    reason = "this is the door: here the command starts"
)]
fn command(job: &Job, given: CommandInput) -> Result<(Command, PathBuf, Option<OwnedFd>), String> {
    let CommandInput {
        input,
        descriptor,
        report,
    } = given;
    let name = job
        .command
        .first()
        .filter(|name| !name.is_empty())
        .ok_or("the command is empty")?;
    chdir(&job.cwd).map_err(|errno| {
        format!(
            "cannot enter {}: {}",
            job.cwd.display(),
            words(errno.into())
        )
    })?;
    let program = locate(job, name)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(&job.command[1..]).env_clear();
    command.envs(job.env.iter().map(|(name, value)| (name, value)));
    let copy = |of: &OwnedFd| {
        of.try_clone()
            .map_err(|error| format!("no descriptor: {}", words(error)))
    };
    match (input, descriptor) {
        (ChildInput::Duplex, Some(channel)) => drop(
            command
                .process_group(0)
                .stdout(copy(&channel)?)
                .stdin(channel),
        ),
        (_, Some(channel)) => drop(command.process_group(0).stdin(channel)),
        (_, None) => drop(command.process_group(0).stdin(Stdio::null())),
    }
    let report = report
        .map(|report| inheritable(&report))
        .transpose()
        .map_err(|errno| words(errno.into()))?;
    if let Some(report) = &report {
        command.env(REPORT_VARIABLE, report.as_raw_fd().to_string());
    }
    Ok((command, program, report))
}

/// Returns a copy that a program keeps, with a number that shells and scripts do not use.
fn inheritable(descriptor: &OwnedFd) -> Result<OwnedFd, Errno> {
    const FIRST_NUMBER: i32 = 100;
    let copy = fcntl_dupfd_cloexec(descriptor, FIRST_NUMBER)?;
    fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

fn locate(job: &Job, name: &OsStr) -> Result<PathBuf, String> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let path = job
        .env
        .iter()
        .rfind(|(variable, _)| variable == "PATH")
        .map(|(_, value)| value.clone());
    check_env::find_program(&path.unwrap_or_else(OsString::new), name, &job.cwd)
        .ok_or_else(|| format!("{} is not on PATH", name.display()))
}

fn refusal(name: &OsStr, program: &Path, error: io::Error) -> String {
    let name = name.display();
    match Errno::from_io_error(&error) {
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
        _ => format!("{name} cannot be started: {}", words(error)),
    }
}

/// Returns an error of the system without its number.
fn words(error: io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// What the orchestrator wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SupervisorRequest {
    None,
    EndSoon,
    EndNow,
}

/// Waits for the command's end or the wish to end it, and returns once the whole tree is gone.
fn watch(
    mut kept: SupervisedCommand,
    control: &UnixStream,
    children: &mut UnixStream,
    input: ChildInput,
) -> JobEnd {
    let mut ended = None;
    let mut action = SupervisorRequest::None;
    while ended.is_none() && action == SupervisorRequest::None {
        action = wait_for(&kept, control, children);
        reap(&mut kept, &mut ended);
    }
    // What lives in an environment may put its things in order; a check that is over has nothing left to do.
    if input != ChildInput::Empty && action != SupervisorRequest::EndNow {
        wait_for_grace_period(&mut kept, children);
    }
    // From here on the command's status is of our own making.
    while reap(&mut kept, &mut None) == TreeStatus::Alive {
        if kept.inside.is_some() {
            let _ = kill_process(kept.child, Signal::KILL);
        } else {
            process_tree::kill_descendants(|_| false);
        }
        wait_briefly(children);
    }
    ended.unwrap_or(JobEnd::TimedOut)
}

/// Asks everybody to end, and waits for half a second at the most until they have.
fn wait_for_grace_period(kept: &mut SupervisedCommand, children: &mut UnixStream) {
    let deadline = Instant::now() + GRACE;
    process_tree::signal_descendants(Signal::TERM);
    while reap(kept, &mut None) == TreeStatus::Alive && Instant::now() < deadline {
        wait_briefly(children);
    }
}

/// Waits until a child or the command has ended or the orchestrator wants something; returns what.
fn wait_for(
    kept: &SupervisedCommand,
    control: &UnixStream,
    children: &mut UnixStream,
) -> SupervisorRequest {
    let is_asked = {
        let word = kept.inside.as_ref().map(|(_, word)| word);
        let streams = [Some(control), Some(&*children), word]
            .into_iter()
            .flatten();
        let mut fds: Vec<_> = streams
            .map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) => !fds[0].revents().is_empty(),
            Err(errno) => errno != Errno::INTR,
        }
    };
    empty(children);
    if is_asked {
        read_request(kept, control, children)
    } else {
        SupervisorRequest::None
    }
}

/// Hears one wish; the end of the stream is the wish to end.
fn read_request(
    kept: &SupervisedCommand,
    mut control: &UnixStream,
    children: &mut UnixStream,
) -> SupervisorRequest {
    let mut byte = [0];
    match control.read_exact(&mut byte).map(|()| byte[0]) {
        Ok(wire::SIGNAL_GROUP) => {
            let signal = control
                .read_exact(&mut byte)
                .ok()
                .and_then(|()| Signal::from_named_raw(byte[0].into()));
            let _ = signal
                .zip(kept.command())
                .map(|(signal, command)| kill_process_group(command, signal));
            let _ = wire::send(control, &[]);
            SupervisorRequest::None
        }
        Ok(wire::INTERRUPT) => {
            let spared = wire::receive(control)
                .map(|message| wire::decode_pids(&message))
                .unwrap_or_default();
            if let Some(command) = kept.command() {
                let spared: Vec<u32> = kept
                    .as_we_number(&spared)
                    .into_iter()
                    .map(|(_, ours)| ours)
                    .collect();
                interrupt(command, &spared, children);
            }
            let _ = wire::send(control, &[]);
            SupervisorRequest::None
        }
        Ok(wire::WHO_LIVES) => {
            let asked = wire::receive(control)
                .map(|message| wire::decode_pids(&message))
                .unwrap_or_default();
            let child = kept
                .as_we_number(&asked)
                .into_iter()
                .filter(|(_, ours)| process_tree::is_alive(*ours));
            let _ = wire::send(
                control,
                &wire::encode_pids(&child.map(|(theirs, _)| theirs).collect::<Vec<_>>()),
            );
            SupervisorRequest::None
        }
        Ok(wire::END_SOON) => SupervisorRequest::EndSoon,
        _ => SupervisorRequest::EndNow,
    }
}

/// Interrupts what runs in the foreground, and for a moment minds those that were just starting.
fn interrupt(command: Pid, spared: &[u32], children: &mut UnixStream) {
    let mut forks = process_tree::interrupt_foreground(command, spared);
    for _ in 0..MINDED_ROUNDS {
        if forks.is_empty() {
            return;
        }
        wait_briefly(children);
        forks = process_tree::interrupt_again(command, forks);
    }
}

/// Waits for the end of a child, but not long: who comes to us by losing a parent does not announce it.
fn wait_briefly(children: &mut UnixStream) {
    let mut fds = [PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN)];
    let _ = poll(
        &mut fds,
        Some(&Timespec {
            tv_sec: 0,
            tv_nsec: 2_000_000,
        }),
    );
    empty(children);
}

fn empty(children: &mut UnixStream) {
    while children.read(&mut [0; 64]).is_ok_and(|count| 0 < count) {}
}

#[derive(PartialEq, Eq)]
enum TreeStatus {
    Alive,
    Gone,
}

/// Reaps whoever has ended, notes how the command did, and returns whether anybody is left.
fn reap(kept: &mut SupervisedCommand, ended: &mut Option<JobEnd>) -> TreeStatus {
    if ended.is_none() {
        *ended = kept.announce();
    }
    loop {
        match wait(WaitOptions::NOHANG) {
            // The first process of a namespace that tells nothing was killed, and the command with it.
            Ok(Some((pid, status))) if pid == kept.child => {
                *ended = ended
                    .take()
                    .or_else(|| kept.announce())
                    .or(Some(JobEnd::from(status)));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return TreeStatus::Alive,
            Err(_) => return TreeStatus::Gone,
        }
    }
}
