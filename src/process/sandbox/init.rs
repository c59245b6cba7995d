//! The first process of a namespace: it puts the tree together, starts the command, reaps, and by its end ends the
//! rest. What happens it tells the keeper over a socket of their own.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::{fs, process};

use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior};
use rustix::process::{set_parent_process_death_signal, wait};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::job::JobEnd;
use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::mounts;
use crate::process::sandbox::namespaces::{NamespaceOwner, loopback_up};
use crate::process::sandbox::policy::{SandboxMode, SandboxPolicy};
use crate::process::sandbox::restrict::restrict;
use crate::process::sandbox::syscalls::{ForkSide, NamespaceFlags, close_all_but, fork};
use crate::process::{stdio, wire};

/// Becomes the command: returns only where it cannot, with the reason.
pub(crate) type BecomeCommand<'a> = &'a mut dyn FnMut() -> JobEnd;

/// What happens once the command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCommand {
    /// Everything ends.
    End,
    /// What it has left behind goes on until it ends by itself or is ended.
    Linger,
}

/// A command behind walls, as its keeper sees it.
pub(crate) struct SandboxedCommand {
    /// The child of the keeper: the init of the namespace, or the command itself.
    pub(crate) child: Pid,
    /// The command's number inside, and the socket over which its end is told; nothing where it is the child itself.
    pub(crate) inside: Option<(u32, UnixStream)>,
}

/// Starts a command behind walls, in namespaces of its own or in those that are given.
pub(crate) fn start(
    policy: &SandboxPolicy,
    shared: &[OwnedFd],
    afterwards: AfterCommand,
    become_command: BecomeCommand<'_>,
) -> Result<SandboxedCommand, JobEnd> {
    if policy.mode == SandboxMode::Reduced {
        let child = start_command(policy, become_command)?;
        return Ok(SandboxedCommand {
            child,
            inside: None,
        });
    }
    let (ours, theirs) = UnixStream::pair().map_err(no_init)?;
    let flags = if shared.is_empty() {
        own_namespaces(policy)
    } else {
        NamespaceFlags::NONE
    };
    let owner = NamespaceOwner::of_this_process();
    match fork(flags).map_err(no_namespaces)? {
        ForkSide::Child => {
            drop(ours);
            be_first_to_end();
            match shared.is_empty() {
                true => be_init(policy, &theirs, afterwards, become_command, || {
                    prepare(policy, owner)
                }),
                false => join(shared, &theirs, || {
                    be_init(policy, &theirs, afterwards, become_command, || {
                        mounts::own_proc(policy)
                    })
                }),
            }
        }
        ForkSide::Parent(child) => {
            drop(theirs);
            let child = if shared.is_empty() {
                child
            } else {
                pid(hear(&ours)?)?
            };
            let command = hear(&ours)?;
            Ok(SandboxedCommand {
                child,
                inside: Some((command, ours)),
            })
        }
    }
}

/// Makes namespaces with a tree in them, and returns them; no process stays there.
pub(crate) fn make_namespaces(policy: &SandboxPolicy) -> Result<Vec<OwnedFd>, SandboxFailure> {
    let failure = |error: io::Error| {
        SandboxFailure::new(SandboxLayer::Namespaces, "keep the namespaces", error)
    };
    let (mut ours, theirs) = UnixStream::pair().map_err(failure)?;
    let owner = NamespaceOwner::of_this_process();
    let flags = own_namespaces(policy);
    let maker = match fork(flags)
        .map_err(|error| SandboxFailure::new(SandboxLayer::Namespaces, "make namespaces", error))?
    {
        ForkSide::Parent(pid) => pid,
        ForkSide::Child => {
            drop(ours);
            let made = prepare(policy, owner).map_err(JobEnd::NoWalls);
            let _ = wire::send(
                &theirs,
                &wire::encode_ended(&made.err().unwrap_or(JobEnd::Exited(0))),
            );
            // Until all of it is in other hands.
            while (&theirs)
                .read(&mut [0])
                .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
            {}
            leave()
        }
    };
    drop(theirs);
    let told = wire::receive(&mut ours).map_err(failure)?;
    if let Some(JobEnd::NoWalls(failure)) = wire::decode_ended(&told) {
        return Err(failure);
    }
    let names = ["user", "mnt", "ipc"]
        .into_iter()
        .chain((!policy.network).then_some("net"));
    let open = |name| fs::File::open(format!("/proc/{maker}/ns/{name}")).map(OwnedFd::from);
    names
        .map(open)
        .collect::<io::Result<Vec<OwnedFd>>>()
        .map_err(failure)
}

fn own_namespaces(policy: &SandboxPolicy) -> NamespaceFlags {
    if policy.network {
        NamespaceFlags::ALL
    } else {
        NamespaceFlags::ALL.and(NamespaceFlags::NETWORK)
    }
}

fn no_namespaces(error: io::Error) -> JobEnd {
    JobEnd::NoWalls(SandboxFailure::new(
        SandboxLayer::Namespaces,
        "make namespaces",
        error,
    ))
}

fn no_init(error: io::Error) -> JobEnd {
    JobEnd::NoWalls(SandboxFailure::new(
        SandboxLayer::Namespaces,
        "talk to the first process",
        error,
    ))
}

fn pid(number: u32) -> Result<Pid, JobEnd> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| no_init(io::ErrorKind::InvalidData.into()))
}

/// Hears the number of a process, or why there is none.
fn hear(from: &UnixStream) -> Result<u32, JobEnd> {
    let message = wire::receive(from).map_err(no_init)?;
    match wire::decode_ended(&message) {
        Some(ended) => Err(ended),
        None => wire::decode_pids(&message)
            .first()
            .copied()
            .ok_or_else(|| no_init(io::ErrorKind::InvalidData.into())),
    }
}

fn tell(to: &UnixStream, pid: Pid) -> io::Result<()> {
    wire::send(
        to,
        &wire::encode_pids(&[pid.as_raw_nonzero().get().unsigned_abs()]),
    )
}

/// Where memory is short, what runs behind walls goes before anything of the user's.
fn be_first_to_end() {
    let file = fs::File::options()
        .write(true)
        .open("/proc/self/oom_score_adj");
    // A system without that choice makes its own.
    let _ = file.and_then(|mut file| file.write_all(b"1000"));
}

/// Makes the inside of new namespaces.
fn prepare(policy: &SandboxPolicy, owner: NamespaceOwner) -> Result<(), SandboxFailure> {
    owner.map()?;
    if !policy.network {
        loopback_up()?;
    }
    mounts::build(policy)
}

/// Enters namespaces that are there, and forks into processes and mounts of its own.
fn join(shared: &[OwnedFd], supervisor: &UnixStream, be_init: impl FnOnce()) -> ! {
    let enter = |namespace: &OwnedFd| {
        move_into_link_name_space(namespace.as_fd(), None::<LinkNameSpaceType>)
    };
    let entered = shared.iter().try_for_each(enter).map_err(io::Error::from);
    let told = match entered
        .and_then(|()| fork(NamespaceFlags::MEMBER))
        .map_err(no_namespaces)
    {
        Ok(ForkSide::Child) => {
            be_init();
            Ok(())
        }
        Ok(ForkSide::Parent(init)) => tell(supervisor, init).map_err(no_init),
        Err(ended) => Err(ended),
    };
    if let Err(ended) = told {
        let _ = wire::send(supervisor, &wire::encode_ended(&ended));
    }
    leave()
}

/// Is the first process of its namespace, to the end.
fn be_init(
    policy: &SandboxPolicy,
    supervisor: &UnixStream,
    afterwards: AfterCommand,
    become_command: BecomeCommand<'_>,
    prepare: impl FnOnce() -> Result<(), SandboxFailure>,
) -> ! {
    let started = protect().and_then(|()| prepare()).map_err(JobEnd::NoWalls);
    match started.and_then(|()| start_command(policy, become_command)) {
        Ok(command) => look_after(command, supervisor, afterwards),
        Err(ended) => drop(wire::send(supervisor, &wire::encode_ended(&ended))),
    }
    leave()
}

/// Ends with the keeper.
fn protect() -> Result<(), SandboxFailure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| {
        SandboxFailure::new(SandboxLayer::Namespaces, "end with the keeper", errno)
    })
}

/// Reaps until the command has ended and, where something lingers, nobody is left.
fn look_after(command: Pid, supervisor: &UnixStream, afterwards: AfterCommand) {
    // A keeper that is gone by now ended before it could end us.
    if tell(supervisor, command).is_err() {
        return;
    }
    stdio::detach_all();
    close_all_but(supervisor.as_raw_fd().unsigned_abs());
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid == command => {
                let _ = wire::send(supervisor, &wire::encode_ended(&JobEnd::from(status)));
                if afterwards == AfterCommand::End {
                    return;
                }
            }
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

/// Forks the process that restricts itself and becomes the command; returns once it has.
fn start_command(policy: &SandboxPolicy, become_command: BecomeCommand<'_>) -> Result<Pid, JobEnd> {
    let cannot = |error: io::Error| {
        JobEnd::NoWalls(SandboxFailure::new(SandboxLayer::Rights, "fork", error))
    };
    let (report, theirs) = UnixStream::pair().map_err(cannot)?;
    // Nothing inside may look into its init.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|errno| cannot(errno.into()))?;
    match fork(NamespaceFlags::NONE).map_err(cannot)? {
        ForkSide::Child => {
            drop(report);
            if policy.mode == SandboxMode::Reduced {
                be_first_to_end();
            }
            let ended = restrict(policy)
                .map_err(JobEnd::NoWalls)
                .err()
                .unwrap_or_else(become_command);
            let _ = wire::send(&theirs, &wire::encode_ended(&ended));
            leave()
        }
        ForkSide::Parent(command) => {
            drop(theirs);
            // The socket closes when the command starts.
            match wire::receive(&report)
                .ok()
                .and_then(|message| wire::decode_ended(&message))
            {
                None => Ok(command),
                Some(ended) => Err(ended),
            }
        }
    }
}

/// Ends a forked process.
#[expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "the other way back is into a copy of the keeper"
)]
fn leave() -> ! {
    process::exit(0)
}
