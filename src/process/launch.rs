//! Starts supervisors.
//!
//! A supervisor is this binary under a hidden command, with a socket as its stdin (`wire`). It starts the command and
//! kills the whole process tree when the command is done, when it is asked to, or when the socket closes. This file is
//! the orchestrator's side: spawning and reaping it.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, Signal, WaitOptions, getegid, getpid, kill_process, set_child_subreaper, waitpid,
};

use crate::error::{Error, Result};
use crate::process::job::JobEnd;
use crate::process::prepared::{self, PreparedSlot, PreparedSupervisor};
use crate::process::process_tree;
use crate::process::sandbox::policy::{SandboxMode, SandboxPolicy};
use crate::process::wire::{self, Purpose, Reply, Request, Setup, Start};

/// The first argument that makes this binary a supervisor.
pub const SUPERVISOR_COMMAND: &str = "__supervisor";

/// Timeout of every read and write on a supervisor's socket, and of ending the orphans of one that was killed.
pub(super) const GRACE: Duration = Duration::from_secs(10);

/// The binary that becomes a supervisor, and the sandbox of what it starts.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub program: PathBuf,
    /// `None`: children run with the user's rights.
    pub policy: Option<SandboxPolicy>,
    /// Namespaces that several children share. `None`: each child has its own.
    pub namespaces: Option<Arc<SharedNamespaces>>,
    prepared: PreparedSlot,
}

/// User, mount and IPC namespaces, and a network namespace unless the network is open, shared by several children. Each
/// child has a PID namespace of its own.
///
/// No process lives in them. The orchestrator holds them as descriptors; when those are closed, by its own exit at the
/// latest, the kernel removes the network, the mounts and the private directories.
#[derive(Debug)]
pub struct SharedNamespaces {
    descriptors: Vec<OwnedFd>,
}

impl Launcher {
    /// A launcher of children that run with the user's rights.
    pub fn open(program: &Path) -> Launcher {
        Launcher {
            program: program.to_owned(),
            policy: None,
            namespaces: None,
            prepared: PreparedSlot::default(),
        }
    }

    /// The same for children that open terminals. Without a mount namespace `/dev/pts` holds the user's terminals, too.
    pub fn with_terminals(&self) -> Launcher {
        let mut launcher = self.clone();
        if let Some(policy) = launcher
            .policy
            .as_mut()
            .filter(|policy| policy.mode == SandboxMode::Reduced)
        {
            policy
                .devices
                .extend(["/dev/ptmx", "/dev/pts"].map(PathBuf::from));
        }
        launcher
    }

    /// A launcher of sandboxed children, each in namespaces of its own.
    pub fn with_policy(&self, policy: SandboxPolicy) -> Launcher {
        Launcher {
            program: self.program.clone(),
            policy: Some(policy),
            namespaces: None,
            prepared: self.prepared.clone(),
        }
    }

    /// Starts the supervisor of the next check ahead of it, and sets its sandbox up meanwhile. `run` uses it if it is
    /// given a launcher with the same policy, of which no path was replaced since; otherwise it is ended. Call it after
    /// the last change of the workspace's protected files.
    ///
    /// Reduced mode has nothing to prepare: its rules name single files of the workspace.
    pub fn prepare(&self) {
        let mode = self.policy.as_ref().map(|policy| policy.mode);
        let has_own_sandbox = mode != Some(SandboxMode::Reduced) && self.namespaces.is_none();
        if !has_own_sandbox || self.prepared.fits(self) {
            return;
        }
        let files = prepared::identify(self.policy.as_ref());
        // If it cannot start now, `run` tries again, and reports why.
        if let Ok(supervisor) = self.start_supervisor() {
            let prepared = PreparedSupervisor::new(supervisor, self, files);
            self.prepared.put(prepared);
        }
    }

    /// The prepared supervisor if it fits. It may have been killed, or its sandbox, without being shown as such.
    pub(super) fn take_prepared(&self) -> Option<Supervisor> {
        self.prepared.take(self)
    }

    /// Starts the supervisor of a check, which sets its sandbox up.
    pub(super) fn start_supervisor(&self) -> io::Result<Supervisor> {
        let supervisor = Supervisor::spawn(self)?;
        // One that is gone is noticed when it is used.
        let _ = supervisor.set_up(self, Purpose::Check);
        Ok(supervisor)
    }

    /// Creates a launcher of sandboxed children that share namespaces. Reduced mode has none.
    pub fn with_shared_namespaces(&self, policy: SandboxPolicy) -> Result<Launcher> {
        let namespaces = match policy.mode {
            SandboxMode::Reduced => None,
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => {
                Some(Arc::new(SharedNamespaces::make(self, &policy)?))
            }
        };
        Ok(Launcher {
            namespaces,
            ..self.with_policy(policy)
        })
    }
}

impl SharedNamespaces {
    /// Creates namespaces with the mounts of a policy.
    fn make(launcher: &Launcher, policy: &SandboxPolicy) -> Result<SharedNamespaces> {
        let launcher = launcher.with_policy(policy.clone());
        let mut supervisor = Supervisor::spawn(&launcher)
            .map_err(|error| Error::io("start", &launcher.program, error))?;
        let made = receive_namespaces(&supervisor, &launcher);
        supervisor.reap(true);
        made
    }
}

fn receive_namespaces(supervisor: &Supervisor, launcher: &Launcher) -> Result<SharedNamespaces> {
    let failed = |error| Error::io("start", &launcher.program, error);
    supervisor
        .set_up(launcher, Purpose::MakeNamespaces)
        .map_err(failed)?;
    match supervisor.receive().map_err(failed)? {
        Reply::Namespaces(count) => (0..count)
            .map(|_| wire::receive_descriptor(&supervisor.control))
            .collect::<io::Result<Vec<_>>>()
            .map(|descriptors| SharedNamespaces { descriptors })
            .map_err(failed),
        Reply::Ended(JobEnd::SandboxFailed(failure)) => Err(failure.into()),
        _ => Err(Error::Bug(
            "a supervisor made no namespaces and gave no reason".into(),
        )),
    }
}

/// A running supervisor, and our end of its socket.
#[derive(Debug)]
pub(super) struct Supervisor {
    process: Child,
    control: UnixStream,
}

/// Ends a supervisor that another thread owns.
pub(crate) struct SupervisorHandle {
    pub(crate) pid: Pid,
    control: UnixStream,
}

impl SupervisorHandle {
    /// Asks it to kill everything at once.
    pub(crate) fn end_now(&self) {
        end_now(self.pid, &self.control);
    }
}

/// Shuts the socket down, which cannot interleave with a request that another thread is sending.
fn end_now(pid: Pid, control: &UnixStream) {
    resume(pid);
    let _ = control.shutdown(Shutdown::Write);
}

/// Whether this process has a controlling terminal, whose keys send signals to it and its children.
fn has_terminal() -> bool {
    static HAS_TERMINAL: LazyLock<bool> = LazyLock::new(|| File::open("/dev/tty").is_ok());
    *HAS_TERMINAL
}

fn resume(pid: Pid) {
    let _ = kill_process(pid, Signal::CONT);
}

impl Supervisor {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place where a supervisor starts"
    )]
    pub(super) fn spawn(launcher: &Launcher) -> io::Result<Supervisor> {
        let (control, theirs) = UnixStream::pair()?;
        control.set_read_timeout(Some(GRACE))?;
        control.set_write_timeout(Some(GRACE))?;
        let mut command = Command::new(&launcher.program);
        command
            .arg0("orchestrator")
            .arg(SUPERVISOR_COMMAND)
            .env_clear()
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        if has_terminal() {
            // Setting the group that it has anyway makes the standard library use fork instead of vfork. A child that
            // Ctrl+Z stops before its exec would suspend a parent in vfork beyond the reach of signals.
            command.gid(getegid().as_raw());
        }
        // Held across the spawn: `end_orphans` must not take it for an orphan.
        let mut supervisors = live_supervisors();
        let process = command.spawn()?;
        supervisors.push(Pid::from_child(&process));
        Ok(Supervisor { process, control })
    }

    pub(super) fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    /// Readable once the supervisor has reported, or is gone.
    pub(super) fn as_fd(&self) -> BorrowedFd<'_> {
        self.control.as_fd()
    }

    /// Whether it has reported, or is gone. Does not wait.
    pub(super) fn has_reported(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| 0 < ready)
    }

    /// Sends its purpose, the sandbox and the namespaces to join. It sets the sandbox up at once.
    pub(super) fn set_up(&self, launcher: &Launcher, purpose: Purpose) -> io::Result<()> {
        let namespaces = launcher
            .namespaces
            .as_ref()
            .map(|shared| shared.descriptors.as_slice())
            .unwrap_or_default();
        let setup = Setup {
            purpose,
            policy: launcher.policy.as_ref().map(Cow::Borrowed),
            namespaces: namespaces.len(),
        };
        wire::send(&self.control, &setup)?;
        self.send_descriptors(namespaces.iter().map(AsFd::as_fd))
    }

    /// Sends the command, and what it inherits.
    pub(super) fn start(&self, start: &Start<'_>, inherited: &[BorrowedFd<'_>]) -> io::Result<()> {
        wire::send(&self.control, start)?;
        self.send_descriptors(inherited.iter().copied())
    }

    fn send_descriptors<'a>(
        &self,
        mut descriptors: impl Iterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<()> {
        descriptors.try_for_each(|descriptor| wire::send_descriptor(&self.control, descriptor))
    }

    /// Sends a request. The command may have stopped its supervisor, so that one is continued first.
    pub(super) fn request(&self, request: &Request) -> io::Result<()> {
        resume(self.pid());
        wire::send(&self.control, request)
    }

    pub(super) fn receive(&self) -> io::Result<Reply> {
        wire::receive(&self.control)
    }

    /// Waits for the end of the command; `None` if the supervisor did not report it.
    pub(super) fn receive_end(&self) -> Option<JobEnd> {
        match self.receive() {
            Ok(Reply::Ended(ended)) => Some(ended),
            _ => None,
        }
    }

    /// Asks it to kill everything at once.
    pub(super) fn end_now(&self) {
        end_now(self.pid(), &self.control);
    }

    /// A handle for another thread.
    pub(super) fn handle(&self) -> io::Result<SupervisorHandle> {
        Ok(SupervisorHandle {
            pid: self.pid(),
            control: self.control.try_clone()?,
        })
    }

    /// Reaps it. If it has not reported the end, its process tree is killed from here.
    pub(super) fn reap(&mut self, has_reported: bool) -> Option<ExitStatus> {
        let _ = self.process.kill();
        let status = self.process.wait().ok();
        let pid = self.pid();
        live_supervisors().retain(|live| *live != pid);
        if !has_reported {
            end_orphans();
        }
        status
    }
}

static IS_SUBREAPER: AtomicBool = AtomicBool::new(false);
static LIVE_SUPERVISORS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Makes this process a subreaper: it inherits the children of a supervisor that was killed, and can kill them.
pub fn adopt_orphans() -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    IS_SUBREAPER.store(true, Ordering::SeqCst);
    Ok(())
}

fn live_supervisors() -> MutexGuard<'static, Vec<Pid>> {
    LIVE_SUPERVISORS
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
}

/// Kills and reaps what killed supervisors have left to this process.
///
/// What a supervisor starts is never in our session, so processes in our session are not touched. The lock keeps new
/// supervisors from starting meanwhile.
#[expect(
    clippy::disallowed_methods,
    reason = "nothing signals that an adopted process is gone for good"
)]
fn end_orphans() {
    let deadline = Instant::now() + GRACE;
    let (supervisors, session) = (
        live_supervisors(),
        process_tree::own().and_then(|own| own.session),
    );
    while IS_SUBREAPER.load(Ordering::SeqCst) && Instant::now() < deadline {
        let orphans = process_tree::kill_descendants(|entry| {
            entry.session == session || supervisors.contains(&entry.pid)
        });
        if orphans.is_empty() {
            return;
        }
        for orphan in orphans {
            let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
        }
        thread::sleep(Duration::from_millis(1));
    }
}
