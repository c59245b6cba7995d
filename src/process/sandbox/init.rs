//! Starts a sandboxed command, in full mode below an init: the first process of a PID namespace. The init mounts the
//! tree, starts the command and reaps; when it exits, the kernel kills the rest of the namespace. It reports to its
//! supervisor over a socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::{fs, process};

use rustix::io::{Errno, retry_on_intr};
use rustix::process::{DumpableBehavior, Pid, Signal, WaitOptions, set_dumpable_behavior};
use rustix::process::{set_parent_process_death_signal, wait, waitpid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::job::JobEnd;
use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::mounts;
use crate::process::sandbox::namespaces::{NamespaceOwner, loopback_up};
use crate::process::sandbox::policy::{SandboxMode, SandboxPolicy};
use crate::process::sandbox::restrict::restrict;
use crate::process::sandbox::syscalls::{ForkSide, NamespaceFlags, close_all_but, fork};
use crate::process::wire::{self, Reply};
use crate::process::{process_tree, stdio};

/// Replaces the process by the command; returns only if that fails, with the reason.
pub(crate) type BecomeCommand<'a> = &'a mut dyn FnMut() -> JobEnd;

/// What happens once the command has exited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterCommand {
    /// The rest of its process tree is killed.
    End,
    /// Its descendants go on until they exit or are killed.
    Linger,
}

/// A command that has started.
pub(crate) struct StartedCommand {
    /// The child of the supervisor: the command, or the init of its PID namespace.
    pub(crate) child: Pid,
    /// Set if the command is in a PID namespace.
    pub(crate) inner: Option<InnerCommand>,
}

/// A command in a PID namespace.
pub(crate) struct InnerCommand {
    /// Its number there.
    pid: u32,
    /// The socket on which its init reports its end.
    pub(crate) init: UnixStream,
}

impl StartedCommand {
    /// A command without a PID namespace.
    pub(crate) fn alone(child: Pid) -> StartedCommand {
        StartedCommand { child, inner: None }
    }

    /// The command's pid outside.
    pub(crate) fn command_pid(&self) -> Option<Pid> {
        match &self.inner {
            None => Some(self.child),
            Some(inner) => process_tree::child_by_inner_number(self.child, inner.pid),
        }
    }

    /// Those of some processes that exist, each as its number inside and outside.
    pub(crate) fn outer_pids(&self, pids: &[u32]) -> Vec<(u32, u32)> {
        match self.inner {
            None => pids.iter().map(|pid| (*pid, *pid)).collect(),
            Some(_) => process_tree::by_inner_number(self.child, pids),
        }
    }
}

/// Starts a sandboxed command, in new namespaces or in `shared` ones.
pub(crate) fn start(
    policy: &SandboxPolicy,
    shared: &[OwnedFd],
    after: AfterCommand,
    become_command: BecomeCommand<'_>,
) -> Result<StartedCommand, JobEnd> {
    if policy.mode == SandboxMode::Reduced {
        return start_command(policy, become_command).map(StartedCommand::alone);
    }
    let (ours, supervisor) = UnixStream::pair().map_err(no_init)?;
    let flags = match shared {
        [] => own_namespaces(policy),
        _ => NamespaceFlags::NONE,
    };
    let owner = NamespaceOwner::of_this_process();
    let forked = match fork(flags).map_err(no_namespaces)? {
        ForkSide::Parent(pid) => pid,
        ForkSide::Child => {
            drop(ours);
            let init = SandboxInit {
                policy,
                supervisor,
                after,
            };
            init.begin(shared, owner, become_command)
        }
    };
    drop(supervisor);
    let child = match shared {
        [] => forked,
        _ => pid(receive_pid(&ours)?)?,
    };
    let inner = Some(InnerCommand {
        pid: receive_pid(&ours)?,
        init: ours,
    });
    Ok(StartedCommand { child, inner })
}

/// Creates namespaces with their mounts and returns their descriptors; no process stays in them.
pub(crate) fn make_namespaces(policy: &SandboxPolicy) -> Result<Vec<OwnedFd>, SandboxFailure> {
    let (ours, theirs) = UnixStream::pair().map_err(no_descriptors)?;
    let owner = NamespaceOwner::of_this_process();
    let forked = fork(own_namespaces(policy)).map_err(|error| {
        SandboxFailure::new(SandboxLayer::Namespaces, "create namespaces", error)
    })?;
    let maker = match forked {
        ForkSide::Parent(pid) => pid,
        ForkSide::Child => {
            drop(ours);
            hold_namespaces(policy, owner, &theirs)
        }
    };
    drop(theirs);
    let opened = open_namespaces(policy, maker, &ours);
    // The maker exits at EOF. It is reaped here, before this process exits.
    drop(ours);
    let _ = retry_on_intr(|| waitpid(Some(maker), WaitOptions::empty()));
    opened
}

/// Opens the namespaces of a process once it has prepared them.
fn open_namespaces(
    policy: &SandboxPolicy,
    maker: Pid,
    from: &UnixStream,
) -> Result<Vec<OwnedFd>, SandboxFailure> {
    if let Reply::Ended(JobEnd::SandboxFailed(failure)) =
        wire::receive(from).map_err(no_descriptors)?
    {
        return Err(failure);
    }
    let names = ["user", "mnt", "ipc"]
        .into_iter()
        .chain((!policy.network).then_some("net"));
    let open = |name| fs::File::open(format!("/proc/{maker}/ns/{name}")).map(OwnedFd::from);
    names
        .map(open)
        .collect::<io::Result<Vec<OwnedFd>>>()
        .map_err(no_descriptors)
}

fn no_descriptors(error: io::Error) -> SandboxFailure {
    SandboxFailure::new(SandboxLayer::Namespaces, "open the namespaces", error)
}

/// Prepares the namespaces of this process, reports, and exits when the other side has opened them.
fn hold_namespaces(policy: &SandboxPolicy, owner: NamespaceOwner, supervisor: &UnixStream) -> ! {
    let reply = match prepare(policy, owner) {
        Ok(()) => Reply::Done,
        Err(failure) => Reply::Ended(JobEnd::SandboxFailed(failure)),
    };
    let _ = wire::send(supervisor, &reply);
    let mut supervisor = supervisor;
    while supervisor
        .read(&mut [0])
        .is_err_and(|error| error.kind() == io::ErrorKind::Interrupted)
    {}
    leave()
}

fn own_namespaces(policy: &SandboxPolicy) -> NamespaceFlags {
    if policy.network {
        NamespaceFlags::ALL
    } else {
        NamespaceFlags::ALL.and(NamespaceFlags::NETWORK)
    }
}

fn no_namespaces(error: io::Error) -> JobEnd {
    JobEnd::SandboxFailed(SandboxFailure::new(
        SandboxLayer::Namespaces,
        "create namespaces",
        error,
    ))
}

fn no_init(error: io::Error) -> JobEnd {
    JobEnd::SandboxFailed(SandboxFailure::new(
        SandboxLayer::Namespaces,
        "start the init",
        error,
    ))
}

fn pid(number: u32) -> Result<Pid, JobEnd> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    pid.ok_or_else(|| no_init(io::ErrorKind::InvalidData.into()))
}

/// Receives the number of a process that has started, or why none has.
fn receive_pid(from: &UnixStream) -> Result<u32, JobEnd> {
    match wire::receive(from).map_err(no_init)? {
        Reply::Started(pid) => Ok(pid),
        Reply::Ended(ended) => Err(ended),
        _ => Err(no_init(io::ErrorKind::InvalidData.into())),
    }
}

fn send_pid(to: &UnixStream, pid: Pid) -> io::Result<()> {
    wire::send(to, &Reply::Started(process_tree::number(pid)))
}

/// Makes the OOM killer prefer sandboxed processes to those of the user.
fn raise_oom_score() {
    let file = fs::File::options()
        .write(true)
        .open("/proc/self/oom_score_adj");
    // Without it the kernel makes its own choice.
    let _ = file.and_then(|mut file| file.write_all(b"1000"));
}

/// Sets up new namespaces from inside.
fn prepare(policy: &SandboxPolicy, owner: NamespaceOwner) -> Result<(), SandboxFailure> {
    owner.map()?;
    if !policy.network {
        loopback_up()?;
    }
    mounts::build(policy)
}

/// The init of a PID namespace, or the process that forks it.
struct SandboxInit<'a> {
    policy: &'a SandboxPolicy,
    supervisor: UnixStream,
    after: AfterCommand,
}

impl SandboxInit<'_> {
    fn begin(
        &self,
        shared: &[OwnedFd],
        owner: NamespaceOwner,
        become_command: BecomeCommand<'_>,
    ) -> ! {
        raise_oom_score();
        match shared {
            [] => self.run(become_command, || prepare(self.policy, owner)),
            _ => self.join(shared, become_command),
        }
    }

    /// Joins existing namespaces, and forks the init into PID and mount namespaces of its own.
    fn join(&self, shared: &[OwnedFd], become_command: BecomeCommand<'_>) -> ! {
        let enter = |namespace: &OwnedFd| {
            move_into_link_name_space(namespace.as_fd(), None::<LinkNameSpaceType>)
        };
        let entered = shared.iter().try_for_each(enter).map_err(io::Error::from);
        let forked = entered
            .and_then(|()| fork(NamespaceFlags::MEMBER))
            .map_err(no_namespaces);
        let sent = match forked {
            Ok(ForkSide::Child) => self.run(become_command, || mounts::own_proc(self.policy)),
            Ok(ForkSide::Parent(init)) => send_pid(&self.supervisor, init).map_err(no_init),
            Err(ended) => Err(ended),
        };
        if let Err(ended) = sent {
            let _ = wire::send(&self.supervisor, &Reply::Ended(ended));
        }
        leave()
    }

    /// Runs as the init until the command's process tree may end.
    fn run(
        &self,
        become_command: BecomeCommand<'_>,
        prepare: impl FnOnce() -> Result<(), SandboxFailure>,
    ) -> ! {
        let prepared = die_with_supervisor()
            .and_then(|()| prepare())
            .map_err(JobEnd::SandboxFailed);
        match prepared.and_then(|()| start_command(self.policy, become_command)) {
            Ok(command) => self.reap_until_end(command),
            Err(ended) => drop(wire::send(&self.supervisor, &Reply::Ended(ended))),
        }
        leave()
    }

    /// Reaps until the command has exited and, if its descendants may linger, no process is left.
    fn reap_until_end(&self, command: Pid) {
        // A supervisor that is gone exited before it could kill us.
        if send_pid(&self.supervisor, command).is_err() {
            return;
        }
        stdio::detach_all();
        close_all_but(self.supervisor.as_raw_fd().unsigned_abs());
        loop {
            match wait(WaitOptions::empty()) {
                Ok(Some((pid, status))) if pid == command => {
                    let _ = wire::send(&self.supervisor, &Reply::Ended(status.into()));
                    if self.after == AfterCommand::End {
                        return;
                    }
                }
                Ok(_) | Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }
}

fn die_with_supervisor() -> Result<(), SandboxFailure> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|errno| {
        SandboxFailure::new(
            SandboxLayer::Namespaces,
            "tie the init to its supervisor",
            errno,
        )
    })
}

/// Forks the process that restricts itself and becomes the command; returns once it has.
fn start_command(policy: &SandboxPolicy, become_command: BecomeCommand<'_>) -> Result<Pid, JobEnd> {
    let cannot = |error: io::Error| {
        JobEnd::SandboxFailed(SandboxFailure::new(SandboxLayer::Rights, "fork", error))
    };
    let (report, theirs) = UnixStream::pair().map_err(cannot)?;
    // No process inside may read the memory of its init.
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|errno| cannot(errno.into()))?;
    match fork(NamespaceFlags::NONE).map_err(cannot)? {
        ForkSide::Child => {
            drop(report);
            if policy.mode == SandboxMode::Reduced {
                raise_oom_score();
            }
            let ended = restrict(policy)
                .map_err(JobEnd::SandboxFailed)
                .err()
                .unwrap_or_else(become_command);
            let _ = wire::send(&theirs, &Reply::Ended(ended));
            leave()
        }
        ForkSide::Parent(command) => {
            drop(theirs);
            // The socket closes on exec: EOF means that the command has started.
            match wire::receive(&report) {
                Ok(Reply::Ended(ended)) => Err(ended),
                _ => Ok(command),
            }
        }
    }
}

/// Exits a forked process.
#[expect(
    clippy::disallowed_methods,
    clippy::exit,
    reason = "returning would continue a copy of the supervisor"
)]
fn leave() -> ! {
    process::exit(0)
}
