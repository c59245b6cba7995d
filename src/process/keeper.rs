//! The keeper: this binary under a hidden command, between the orchestrator and what it runs.
//!
//! It takes one job from its standard input, starts the command with nothing but what the job gives, adopts whatever
//! the command leaves behind, and ends with the whole tree: when the command is done, when it is asked to, and when the
//! orchestrator is gone, which the end of the same stream tells. It has one thread, and it is the place where limits on
//! everything below it are laid on itself before the command starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, chdir, getpid, ioctl_tiocsctty, kill_process_group};
use rustix::process::{set_child_subreaper, set_parent_process_death_signal, setsid, wait};
use rustix::stdio::{dup2_stderr, dup2_stdout, stdin};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::process::wire::Input;
use crate::process::{Ended, Job, environment, tree, wire};

/// How long everybody has to end after being asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How often an interrupt looks after a process that is just starting.
const MINDED_ROUNDS: usize = 25;

/// Keeps one job from its start to the end of its tree, and returns the exit code of the keeper itself.
pub fn main() -> u8 {
    match keep() {
        Ok(()) => 0,
        Err(_) => 70,
    }
}

fn keep() -> io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // The command may stop its keeper, but not for longer than the orchestrator lives.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let mut control = UnixStream::from(stdin().try_clone_to_owned()?);
    let mut children = on_child_signals()?;
    swallow_signals()?;
    seal_descriptors()?;
    let (job, input) = wire::decode_job(&wire::receive(&mut control)?).ok_or(io::ErrorKind::InvalidData)?;
    let descriptor = match input {
        Input::Empty => None,
        Input::Channel | Input::Duplex | Input::Terminal => Some(wire::receive_descriptor(&control)?),
    };
    let ended = match start(&job, input, descriptor) {
        Ok(command) => watch(command, &control, &mut children, input),
        Err(reason) => Ended::CannotStart(reason),
    };
    wire::send(control, &wire::encode_ended(&ended))
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
#[expect(unsafe_code, reason = "a descriptor that is known by its number alone cannot be borrowed in another way")]
fn seal_descriptors() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok()).unwrap_or(0);
        if 2 < number {
            // SAFETY: it was listed a moment ago, and the one thread of this process closes nothing in between.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Starts the command, or says in words why it cannot be.
#[expect(clippy::disallowed_methods, reason = "this is the door: here the command starts")]
fn start(job: &Job, input: Input, descriptor: Option<OwnedFd>) -> Result<Pid, String> {
    let name = job.command.first().filter(|name| !name.is_empty()).ok_or("the command is empty")?;
    chdir(&job.cwd).map_err(|errno| format!("cannot enter {}: {}", job.cwd.display(), words(errno.into())))?;
    let program = locate(job, name)?;
    let mut command = Command::new(&program);
    command.arg0(name).args(&job.command[1..]).env_clear();
    command.envs(job.env.iter().map(|(name, value)| (name, value)));
    let copy = |of: &OwnedFd| of.try_clone().map_err(|error| format!("no descriptor: {}", words(error)));
    match (input, descriptor) {
        (Input::Terminal, Some(terminal)) => {
            // The command stays in our group, the terminal's foreground: its Ctrl+C is one that passes us by.
            ioctl_tiocsctty(&terminal).map_err(|errno| format!("no terminal: {}", words(errno.into())))?;
            command.stdout(copy(&terminal)?).stderr(copy(&terminal)?).stdin(terminal);
        }
        (Input::Duplex, Some(channel)) => drop(command.process_group(0).stdout(copy(&channel)?).stdin(channel)),
        (_, Some(channel)) => drop(command.process_group(0).stdin(channel)),
        (_, None) => drop(command.process_group(0).stdin(Stdio::null())),
    }
    let child = command.spawn().map_err(|error| refusal(name, &program, error))?;
    drop(command);
    let_go_of_output();
    Ok(Pid::from_child(&child))
}

fn locate(job: &Job, name: &OsStr) -> Result<PathBuf, String> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    let path = job.env.iter().rfind(|(variable, _)| variable == "PATH").map(|(_, value)| value.clone());
    environment::find_program(&path.unwrap_or_else(OsString::new), name, &job.cwd)
        .ok_or_else(|| format!("{} is not on PATH", name.display()))
}

fn refusal(name: &OsStr, program: &Path, error: io::Error) -> String {
    let name = name.display();
    match Errno::from_io_error(&error) {
        _ if program.is_dir() => format!("{name} is a folder"),
        Some(Errno::NOENT) if fs::symlink_metadata(program).is_err() => format!("{name} does not exist"),
        Some(Errno::NOENT) => format!("{name} is there, but not the interpreter it asks for"),
        Some(Errno::ACCESS) => format!("{name} is not executable"),
        Some(Errno::NOEXEC) => format!("{name} is no program, and has no #! line"),
        Some(Errno::TOOBIG) => format!("the arguments and environment of {name} are too long"),
        None if error.kind() == io::ErrorKind::InvalidInput => format!("an argument of {name} contains a NUL byte"),
        _ => format!("{name} cannot be started: {}", words(error)),
    }
}

/// Returns an error of the system without its number.
fn words(error: io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Leaves both streams to the command: they end when the last of its tree does. Where that fails nothing is lost, for
/// nobody waits for their end alone.
fn let_go_of_output() {
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = dup2_stdout(&nothing);
        let _ = dup2_stderr(&nothing);
    }
}

/// What the orchestrator wants.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wish {
    None,
    EndSoon,
    EndNow,
}

/// Waits for the command's end or the wish to end it, and returns once the whole tree is gone.
fn watch(command: Pid, control: &UnixStream, children: &mut UnixStream, input: Input) -> Ended {
    let mut ended = None;
    let mut wish = Wish::None;
    while ended.is_none() && wish == Wish::None {
        wish = wait_for(command, control, children);
        reap(command, &mut ended);
    }
    // What lives in an environment may put its things in order; a check that is over has nothing left to do.
    if input != Input::Empty && wish != Wish::EndNow {
        give_grace(command, children);
    }
    // From here on the command's status is of our own making.
    while reap(command, &mut None) == Tree::Alive {
        tree::kill_descendants(|_| false);
        wait_briefly(children);
    }
    ended.unwrap_or(Ended::TimedOut)
}

/// Asks everybody to end, and waits for half a second at the most until they have.
fn give_grace(command: Pid, children: &mut UnixStream) {
    let deadline = Instant::now() + GRACE;
    tree::signal_descendants(Signal::TERM);
    while reap(command, &mut None) == Tree::Alive && Instant::now() < deadline {
        wait_briefly(children);
    }
}

/// Waits until a child has ended or the orchestrator wants something; returns what.
fn wait_for(command: Pid, control: &UnixStream, children: &mut UnixStream) -> Wish {
    let mut fds = [control, children].map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN));
    let is_asked = match poll(&mut fds, None) {
        Ok(_) => !fds[0].revents().is_empty(),
        Err(errno) => errno != Errno::INTR,
    };
    empty(children);
    if is_asked { hear(command, control, children) } else { Wish::None }
}

/// Hears one wish; the end of the stream is the wish to end.
fn hear(command: Pid, mut control: &UnixStream, children: &mut UnixStream) -> Wish {
    let mut byte = [0];
    match control.read_exact(&mut byte).map(|()| byte[0]) {
        Ok(wire::SIGNAL_GROUP) => {
            let signal = control.read_exact(&mut byte).ok().and_then(|()| Signal::from_named_raw(byte[0].into()));
            let _ = signal.map(|signal| kill_process_group(command, signal));
            let _ = wire::send(control, &[]);
            Wish::None
        }
        Ok(wire::INTERRUPT) => {
            let spared = wire::receive(control).map(|message| wire::decode_pids(&message)).unwrap_or_default();
            interrupt(command, &spared, children);
            let _ = wire::send(control, &[]);
            Wish::None
        }
        Ok(wire::END_SOON) => Wish::EndSoon,
        _ => Wish::EndNow,
    }
}

/// Interrupts what runs in the foreground, and for a moment minds those that were just starting.
fn interrupt(command: Pid, spared: &[u32], children: &mut UnixStream) {
    let mut forks = tree::interrupt_foreground(command, spared);
    for _ in 0..MINDED_ROUNDS {
        if forks.is_empty() {
            return;
        }
        wait_briefly(children);
        forks = tree::interrupt_again(command, forks);
    }
}

/// Waits for the end of a child, but not long: who comes to us by losing a parent does not announce it.
fn wait_briefly(children: &mut UnixStream) {
    let mut fds = [PollFd::from_borrowed_fd(children.as_fd(), PollFlags::IN)];
    let _ = poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 2_000_000 }));
    empty(children);
}

fn empty(children: &mut UnixStream) {
    while children.read(&mut [0; 64]).is_ok_and(|count| 0 < count) {}
}

#[derive(PartialEq, Eq)]
enum Tree {
    Alive,
    Gone,
}

/// Reaps whoever has ended, notes how the command did, and returns whether anybody is left.
fn reap(command: Pid, ended: &mut Option<Ended>) -> Tree {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == command => *ended = Some(end_of(status)),
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return Tree::Alive,
            Err(_) => return Tree::Gone,
        }
    }
}

fn end_of(status: WaitStatus) -> Ended {
    match status.terminating_signal() {
        Some(number) => Ended::Signalled(number),
        None => Ended::Exited(status.exit_status().unwrap_or_default()),
    }
}
