//! Finds the sandbox mode that this system supports, by trying.
//!
//! A supervisor sandboxes a built-in program that tries to escape (`escape`). Full mode is tried first, then the mode
//! without the layer that failed. Nothing is concluded from versions or settings; those only help to suggest a fix.

use std::net::TcpListener;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::process::job::JobEnd;
use crate::process::launch::{Launcher, Supervisor};
use crate::process::sandbox::escape::EscapeTargets;
use crate::process::sandbox::failure::{SandboxFailure, SandboxLayer};
use crate::process::sandbox::messages;
use crate::process::sandbox::policy::{ResourceLimits, SandboxMode, SandboxPolicy};
use crate::process::wire::Purpose;

/// The mode that this system supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    pub mode: SandboxMode,
    /// What is not enforced, and why; empty if nothing is missing.
    limitations: String,
}

impl ProbeResult {
    /// The line for the user; `opened` is what the user has opened.
    pub fn line(&self, opened: &str) -> String {
        let fix = match self.mode {
            SandboxMode::Reduced => format!(". Fix: {}", messages::fix()),
            SandboxMode::Full | SandboxMode::FullWithoutLandlock => String::new(),
        };
        format!(
            "sandbox: {}{opened}{}{fix}",
            self.mode.name(),
            self.limitations
        )
    }

    /// What is not enforced, and why, as a sentence; empty if nothing is missing.
    pub(crate) fn limitations(&self) -> &str {
        self.limitations.trim_start_matches([' ', '—', ';'])
    }

    /// What gives this system a better mode, ready to paste.
    pub(crate) fn fix(&self) -> Option<String> {
        match self.mode {
            SandboxMode::Full => None,
            SandboxMode::FullWithoutLandlock => Some(messages::landlock_fix().to_owned()),
            SandboxMode::Reduced => Some(messages::fix()),
        }
    }

    /// Whether the line is shown even with `--quiet`.
    pub fn is_noteworthy(&self) -> bool {
        self.mode != SandboxMode::Full
    }
}

/// Returns the best mode that works; `Error::NoSandbox` if none does.
///
/// `temporary` is a directory outside the sandbox.
pub fn find(launcher: &Launcher, temporary: &Path, network: bool) -> Result<ProbeResult> {
    let found = |mode, limitations| Ok(ProbeResult { mode, limitations });
    let full = match attempt(launcher, temporary, network, SandboxMode::Full)? {
        Ok(()) => return found(SandboxMode::Full, messages::full()),
        Err(failure) => failure,
    };
    let second = if full.layer == SandboxLayer::Landlock {
        SandboxMode::FullWithoutLandlock
    } else {
        SandboxMode::Reduced
    };
    match (second, attempt(launcher, temporary, network, second)?) {
        (SandboxMode::Reduced, Ok(())) => found(second, messages::reduced(&full, network)),
        (_, Ok(())) => found(second, messages::without_landlock(&full)),
        (_, Err(failure)) => Err(Error::NoSandbox(messages::none(&full, &failure))),
    }
}

/// Tries one mode.
fn attempt(
    launcher: &Launcher,
    temporary: &Path,
    network: bool,
    mode: SandboxMode,
) -> Result<std::result::Result<(), SandboxFailure>> {
    let broken = |error| Error::io("start", &launcher.program, error);
    let folder = tempfile::Builder::new()
        .prefix("orchestrator-probe-")
        .tempdir_in(temporary)
        .map_err(|error| Error::io("make a directory in", temporary, error))?;
    let outside = folder.path().canonicalize().map_err(broken)?;
    // With an open network the listener may be reached.
    let listener = match network {
        true => None,
        false => TcpListener::bind(("127.0.0.1", 0)).ok(),
    };
    let targets = EscapeTargets {
        marker: outside.join("escaped"),
        listener: listener
            .as_ref()
            .and_then(|listener| listener.local_addr().ok()),
    };
    let launcher = launcher.with_policy(probe_policy(mode, network, &outside));
    let ended = run_probe(&launcher, &targets).map_err(broken)?;
    Ok(match ended {
        _ if targets.marker.exists() => Err(escaped("a file outside could be written")),
        Some(JobEnd::Exited(0)) => Ok(()),
        Some(JobEnd::SandboxFailed(failure)) => Err(failure),
        Some(JobEnd::CannotStart(what)) => Err(escaped(&what)),
        Some(JobEnd::Exited(_) | JobEnd::Signalled(_) | JobEnd::TimedOut)
        | Some(JobEnd::Idle | JobEnd::OutputLimit | JobEnd::Limit(_))
        | None => Err(escaped("the program in the sandbox ended without a report")),
    })
}

fn run_probe(launcher: &Launcher, targets: &EscapeTargets) -> std::io::Result<Option<JobEnd>> {
    let mut supervisor = Supervisor::spawn(launcher)?;
    let ended = supervisor
        .set_up(launcher, Purpose::Probe(targets.clone()))
        .ok()
        .and_then(|()| supervisor.receive_end());
    supervisor.reap(ended.is_some());
    Ok(ended)
}

fn escaped(what: &str) -> SandboxFailure {
    SandboxFailure {
        layer: SandboxLayer::Namespaces,
        what: what.to_owned(),
    }
}

/// The smallest policy: nothing that differs between runs.
fn probe_policy(mode: SandboxMode, network: bool, outside: &Path) -> SandboxPolicy {
    let (tmp, home) = match mode {
        SandboxMode::Reduced => (outside.join("tmp"), outside.join("home")),
        SandboxMode::Full | SandboxMode::FullWithoutLandlock => {
            ("/tmp".into(), "/home/orchestrator".into())
        }
    };
    SandboxPolicy {
        mode,
        write: Vec::new(),
        freeze: Vec::new(),
        reopen: Vec::new(),
        read: [PathBuf::from("/usr")]
            .into_iter()
            .filter(|path| path.is_dir())
            .collect(),
        links: Vec::new(),
        hide: Vec::new(),
        home,
        tmp,
        private: None,
        devices: Vec::new(),
        network,
        limits: ResourceLimits::default(),
    }
}
