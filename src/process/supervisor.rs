//! The supervisor: this binary under a hidden command, between the orchestrator and a command.
//!
//! It receives a sandbox and a command on its stdin, a socket, and starts the command with exactly what was sent. The
//! sandbox is set up as soon as it is known; the command may come later. As a subreaper it adopts the command's orphans. It kills the whole process tree when the command has exited, when it is
//! asked to, and when the orchestrator is gone, which it sees as EOF. It has one thread, so that it may fork.

mod command;

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, kill_process_group};
use rustix::process::{set_child_subreaper, set_parent_process_death_signal, setsid, wait};
use rustix::stdio::stdin;
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::process::job::JobEnd;
use crate::process::process_tree;
use crate::process::sandbox::escape::try_to_escape;
use crate::process::sandbox::init::{self, AfterCommand, StartedCommand};
use crate::process::sandbox::policy::SandboxPolicy;
use crate::process::wire::{self, Purpose, Reply, Request, Setup};

/// Time between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_millis(500);
/// How often an interrupt is repeated for forks of a shell that have not yet become another program.
const INTERRUPT_ROUNDS: usize = 25;
/// Orphans raise no SIGCHLD when they are re-parented to this process, so it polls for them.
const ORPHAN_INTERVAL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 2_000_000,
};

/// Runs as a supervisor, and returns its exit code.
pub fn main() -> u8 {
    match supervise() {
        Ok(()) => 0,
        Err(_) => 70,
    }
}

fn supervise() -> io::Result<()> {
    setsid()?;
    set_child_subreaper(Some(getpid()))?;
    // The command may stop its supervisor, but not beyond the orchestrator's exit.
    set_parent_process_death_signal(Some(Signal::CONT))?;
    let control = UnixStream::from(stdin().try_clone_to_owned()?);
    let mut sigchld = sigchld_stream()?;
    ignore_signals()?;
    seal_descriptors()?;
    let setup: Setup<'_> = wire::receive(&control)?;
    let namespaces = (0..setup.namespaces)
        .map(|_| wire::receive_descriptor(&control))
        .collect::<io::Result<Vec<_>>>()?;
    let after = match setup.purpose {
        Purpose::Check | Purpose::Probe(_) => AfterCommand::End,
        Purpose::Environment => AfterCommand::Linger,
        Purpose::MakeNamespaces => {
            return send_namespaces(require(setup.policy.as_deref())?, &control);
        }
    };
    let ended = match start(&setup, &namespaces, after, &control)? {
        Ok(started) => watch(&started, &control, &mut sigchld, after),
        Err(ended) => {
            reap_failed_start();
            ended
        }
    };
    wire::send(&control, &Reply::Ended(ended))
}

fn require(policy: Option<&SandboxPolicy>) -> io::Result<&SandboxPolicy> {
    policy.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Creates namespaces, and sends their number and descriptors.
fn send_namespaces(policy: &SandboxPolicy, control: &UnixStream) -> io::Result<()> {
    match init::make_namespaces(policy) {
        Err(failure) => wire::send(control, &Reply::Ended(JobEnd::SandboxFailed(failure))),
        Ok(namespaces) => {
            wire::send(control, &Reply::Namespaces(namespaces.len()))?;
            namespaces
                .iter()
                .try_for_each(|namespace| wire::send_descriptor(control, namespace.as_fd()))
        }
    }
}

/// A stream that is readable when a child has exited.
fn sigchld_stream() -> io::Result<UnixStream> {
    let (read, write) = UnixStream::pair()?;
    read.set_nonblocking(true)?;
    signal_hook::low_level::pipe::register(SIGCHLD, write)?;
    Ok(read)
}

/// Ignores the usual signals by handlers that do nothing. Unlike SIG_IGN a handler is not inherited: the command starts
/// with the defaults, even if the orchestrator was started under `nohup` or in the background.
fn ignore_signals() -> io::Result<()> {
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        signal_hook::flag::register(number, Arc::new(AtomicBool::new(false)))?;
    }
    Ok(())
}

/// Sets close-on-exec on every descriptor above stderr. Ours have it; those that the orchestrator inherited (the pipe of
/// a `make`, a file of a shell) may not.
#[expect(
    unsafe_code,
    reason = "a descriptor that is known by its number alone cannot be borrowed safely"
)]
fn seal_descriptors() -> io::Result<()> {
    for entry in fs::read_dir("/proc/self/fd")? {
        let number = entry?
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
            .unwrap_or(0);
        if 2 < number {
            // SAFETY: it was just listed, and the only thread of this process closes nothing in between.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        }
    }
    Ok(())
}

/// Starts the command, or returns why it has not started.
fn start(
    setup: &Setup<'_>,
    namespaces: &[OwnedFd],
    after: AfterCommand,
    control: &UnixStream,
) -> io::Result<Result<StartedCommand, JobEnd>> {
    let Some(policy) = setup.policy.as_deref() else {
        let (job, streams) = command::receive(control)?;
        let started = command::spawn(&job, streams).map(StartedCommand::alone);
        return Ok(started.map_err(JobEnd::from));
    };
    let mut become_command = || match &setup.purpose {
        Purpose::Probe(targets) => try_to_escape(policy.mode, targets),
        _ => match command::receive(control) {
            Ok((job, streams)) => command::exec(&job, streams).into(),
            Err(error) => JobEnd::CannotStart(format!("no command was received: {error}")),
        },
    };
    Ok(init::start(policy, namespaces, after, &mut become_command))
}

/// Reaps the processes of a start that failed; they exit once they have reported it.
fn reap_failed_start() {
    while !matches!(wait(WaitOptions::empty()), Err(errno) if errno != Errno::INTR) {}
}

/// Waits until the command exits or is to be ended, and returns once its whole process tree is gone.
fn watch(
    started: &StartedCommand,
    control: &UnixStream,
    sigchld: &mut UnixStream,
    after: AfterCommand,
) -> JobEnd {
    let mut ended = None;
    let mut next = AfterEvent::Wait;
    while ended.is_none() && next == AfterEvent::Wait {
        next = wait_for_event(started, control, sigchld);
        reap(started, &mut ended);
    }
    if after == AfterCommand::Linger && next != AfterEvent::EndNow {
        terminate_gracefully(started, sigchld);
    }
    // A status from here on is the effect of our own signals.
    while reap(started, &mut None) == TreeStatus::Alive {
        if started.inner.is_some() {
            let _ = kill_process(started.child, Signal::KILL);
        } else {
            process_tree::kill_descendants(|_| false);
        }
        wait_briefly(sigchld);
    }
    ended.unwrap_or(JobEnd::TimedOut)
}

/// Sends SIGTERM to every descendant, and waits until they have exited or the grace period is over.
fn terminate_gracefully(started: &StartedCommand, sigchld: &mut UnixStream) {
    let deadline = Instant::now() + GRACE;
    process_tree::signal_descendants(Signal::TERM);
    while reap(started, &mut None) == TreeStatus::Alive && Instant::now() < deadline {
        wait_briefly(sigchld);
    }
}

/// What to do after an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AfterEvent {
    Wait,
    EndSoon,
    EndNow,
}

/// Waits until a child or the command has exited, or a request arrives, which is carried out.
fn wait_for_event(
    started: &StartedCommand,
    control: &UnixStream,
    sigchld: &mut UnixStream,
) -> AfterEvent {
    let has_request = {
        let init = started.inner.as_ref().map(|inner| &inner.init);
        let streams = [Some(control), Some(&*sigchld), init];
        let mut fds: Vec<_> = streams
            .into_iter()
            .flatten()
            .map(|stream| PollFd::from_borrowed_fd(stream.as_fd(), PollFlags::IN))
            .collect();
        match poll(&mut fds, None) {
            Ok(_) => !fds[0].revents().is_empty(),
            Err(errno) => errno != Errno::INTR,
        }
    };
    drain(sigchld);
    if has_request {
        handle_request(started, control, sigchld)
    } else {
        AfterEvent::Wait
    }
}

/// Carries out one request. EOF, or a message that cannot be decoded, ends everything.
fn handle_request(
    started: &StartedCommand,
    control: &UnixStream,
    sigchld: &mut UnixStream,
) -> AfterEvent {
    let reply = match wire::receive(control) {
        Ok(Request::Signal(number)) => {
            let signal = Signal::from_named_raw(number);
            if let Some((signal, command)) = signal.zip(started.command_pid()) {
                let _ = kill_process(command, signal);
            }
            Reply::Done
        }
        Ok(Request::SignalGroup(number)) => {
            let signal = Signal::from_named_raw(number);
            if let Some((signal, command)) = signal.zip(started.command_pid()) {
                let _ = kill_process_group(command, signal);
            }
            Reply::Done
        }
        Ok(Request::Interrupt { spared }) => {
            if let Some(command) = started.command_pid() {
                let spared = started.outer_pids(&spared);
                let spared: Vec<u32> = spared.into_iter().map(|(_, outer)| outer).collect();
                interrupt(command, &spared, sigchld);
            }
            Reply::Done
        }
        Ok(Request::ListLive(pids)) => {
            let mut live = started.outer_pids(&pids);
            live.retain(|(_, outer)| process_tree::is_alive(*outer));
            Reply::Live(live.into_iter().map(|(inner, _)| inner).collect())
        }
        Ok(Request::EndSoon) => return AfterEvent::EndSoon,
        Err(_) => return AfterEvent::EndNow,
    };
    let _ = wire::send(control, &reply);
    AfterEvent::Wait
}

/// Interrupts what runs in the foreground, and repeats it for forks that were just starting a program.
fn interrupt(command: Pid, spared: &[u32], sigchld: &mut UnixStream) {
    let mut forks = process_tree::interrupt_foreground(command, spared);
    for _ in 0..INTERRUPT_ROUNDS {
        if forks.is_empty() {
            return;
        }
        wait_briefly(sigchld);
        forks = process_tree::interrupt_again(command, forks);
    }
}

/// Waits for SIGCHLD, at most `ORPHAN_INTERVAL`.
fn wait_briefly(sigchld: &mut UnixStream) {
    let mut fds = [PollFd::from_borrowed_fd(sigchld.as_fd(), PollFlags::IN)];
    let _ = poll(&mut fds, Some(&ORPHAN_INTERVAL));
    drain(sigchld);
}

fn drain(sigchld: &mut UnixStream) {
    while sigchld.read(&mut [0; 64]).is_ok_and(|count| 0 < count) {}
}

#[derive(PartialEq, Eq)]
enum TreeStatus {
    Alive,
    Gone,
}

/// Reaps the children that have exited, and records how the command ended.
fn reap(started: &StartedCommand, ended: &mut Option<JobEnd>) -> TreeStatus {
    if ended.is_none() {
        *ended = reported_end(started);
    }
    loop {
        match wait(WaitOptions::NOHANG) {
            // An init that reports nothing was killed, and the command with it.
            Ok(Some((pid, status))) if pid == started.child => {
                *ended = ended
                    .take()
                    .or_else(|| reported_end(started))
                    .or(Some(status.into()));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return TreeStatus::Alive,
            Err(_) => return TreeStatus::Gone,
        }
    }
}

/// The command's end, if its init has reported it. Does not wait.
fn reported_end(started: &StartedCommand) -> Option<JobEnd> {
    let init = &started.inner.as_ref()?.init;
    let mut fds = [PollFd::from_borrowed_fd(init.as_fd(), PollFlags::IN)];
    if !poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| 0 < ready) {
        return None;
    }
    match wire::receive(init) {
        Ok(Reply::Ended(ended)) => Some(ended),
        _ => None,
    }
}
