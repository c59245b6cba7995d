//! Kernel, clock, root and sandbox.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use rustix::fs::{Access, access, statvfs};
use rustix::system::uname;

use crate::cli::decision::refuse_foreign_files;
use crate::cli::doctor::obstacle::Obstacle;
use crate::cli::env::{CliEnv, own_launcher};
use crate::cli::run_config::refuse_colon;
use crate::error::{Error, Result};
use crate::process::sandbox::probe;
use crate::snapshots::pending_apply::refuse_unfinished_apply;
use crate::state::store::{LOGS, LoadedState, Root, STATE_FILE};

/// With less than this a run is likely to end early.
pub(super) const LITTLE_SPACE: u64 = 1 << 30;
/// With less than this no log can be written.
const NO_SPACE: u64 = 1 << 20;
/// How far a clock may be behind a file.
const TOLERANCE: Duration = Duration::from_secs(24 * 60 * 60);
/// 2026-01-01: no clock was earlier when this program was built.
const EARLIEST: u64 = 1_767_225_600;
/// 2100-01-01.
const LATEST: u64 = 4_102_444_800;

pub(super) struct KernelState {
    pub(super) release: String,
    pub(super) machine: String,
}

impl KernelState {
    pub(super) fn find() -> KernelState {
        let names = uname();
        KernelState {
            release: names.release().to_string_lossy().into_owned(),
            machine: names.machine().to_string_lossy().into_owned(),
        }
    }
}

pub(super) struct ClockState {
    pub(super) now: String,
    /// Why it is likely wrong.
    pub(super) problem: Option<String>,
}

impl ClockState {
    /// Compares the clock with what cannot be in the future.
    pub(super) fn find(root: &Path) -> ClockState {
        let now = SystemTime::now();
        let why = clock_problem(now, &[&root.join(STATE_FILE), Path::new("/proc/self/exe")]);
        ClockState {
            now: utc(now),
            problem: why
                .map(|why| format!("{why}; with a wrong clock connections to a provider fail")),
        }
    }
}

/// Why a time is likely wrong; the files were changed before it.
fn clock_problem(now: SystemTime, files: &[&Path]) -> Option<String> {
    let since = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    if !(EARLIEST..LATEST).contains(&since.as_secs()) {
        return Some("it cannot be right".to_owned());
    }
    files.iter().find_map(|path| {
        let changed = fs::metadata(path).and_then(|found| found.modified()).ok()?;
        let is_ahead = now + TOLERANCE < changed;
        is_ahead.then(|| {
            format!(
                "it is before {}, when {} was changed",
                utc(changed),
                path.display()
            )
        })
    })
}

fn utc(time: SystemTime) -> String {
    DateTime::<Utc>::from(time)
        .format("%Y-%m-%d %H:%M:%S UTC")
        .to_string()
}

pub(super) struct RootState {
    pub(super) path: String,
    pub(super) free_bytes: Option<u64>,
    pub(super) is_writable: bool,
    pub(super) obstacle: Option<Obstacle>,
}

impl RootState {
    pub(super) fn find(root: &Path) -> RootState {
        let space = statvfs(root).ok();
        let free_bytes = space.map(|space| space.f_bavail.saturating_mul(space.f_frsize));
        let unwritable = unwritable(root, free_bytes);
        RootState {
            path: root.components().collect::<PathBuf>().display().to_string(),
            free_bytes,
            is_writable: unwritable.is_none(),
            obstacle: unwritable.or_else(|| occupied(root)),
        }
    }
}

/// Why nothing can be written in a root.
fn unwritable(root: &Path, free_bytes: Option<u64>) -> Option<Obstacle> {
    let obstacle = |message: String, help: &str| {
        Some(Obstacle {
            message,
            help: help.to_owned(),
        })
    };
    if let Err(error) = usable_root(root) {
        return obstacle(
            error.to_string(),
            "name another root: orchestrator --root DIR doctor",
        );
    }
    if let Err(error) = access(root, Access::WRITE_OK | Access::EXEC_OK) {
        let message = format!("cannot write in the root {}: {error}", root.display());
        return obstacle(
            message,
            "name another root with --root DIR, or change its permissions",
        );
    }
    let free = free_bytes.filter(|free| *free < NO_SPACE)?;
    let message = format!(
        "cannot write in the root {}: {free} bytes are free",
        root.display()
    );
    obstacle(
        message,
        "make space on this disk, or name another root with --root DIR",
    )
}

/// What prevents a run in a root that can be written.
fn occupied(path: &Path) -> Option<Obstacle> {
    let root = Root::open(path).ok()?;
    match root.lock_holder() {
        Some(holder) => Some(Obstacle {
            message: format!(
                "the root {} is in use by process {}",
                path.display(),
                holder.pid
            ),
            help: "wait for it: orchestrator status".to_owned(),
        }),
        None => refuse_files(&root).err().map(|error| Obstacle::of(&error)),
    }
}

/// Refuses what is in a root that no run could go on from, and none could begin beside.
fn refuse_files(root: &Root) -> Result<()> {
    refuse_unfinished_apply(root)?;
    match root.load()? {
        LoadedState::Corrupt(problem) | LoadedState::CorruptWorkflow(problem) => Err(Error::Usage(
            format!("{STATE_FILE} is corrupt: {problem}\nhelp: orchestrator reset"),
        )),
        LoadedState::Nothing => refuse_foreign_files(root),
        LoadedState::Build(_) | LoadedState::Workflow(_) => Ok(()),
    }
}

fn usable_root(root: &Path) -> Result<()> {
    refuse_colon(root)?;
    Root::open(root)?.refuse_links(&["workspace", LOGS])
}

pub(super) struct SandboxState {
    /// `None`: no mode works.
    pub(super) mode: Option<&'static str>,
    pub(super) missing: Option<String>,
    pub(super) fix: Option<String>,
    pub(super) obstacle: Option<Obstacle>,
}

impl SandboxState {
    pub(super) fn find(env: &CliEnv) -> Result<SandboxState> {
        match probe::find(&own_launcher(), &env.temporary(), false) {
            Ok(found) => Ok(SandboxState {
                mode: Some(found.mode.name()),
                missing: Some(found.limitations().to_owned()).filter(|text| !text.is_empty()),
                fix: found.fix(),
                obstacle: None,
            }),
            Err(Error::Stopped(signal)) => Err(Error::Stopped(signal)),
            Err(error) => Ok(SandboxState {
                mode: None,
                missing: Some(error.to_string()),
                fix: None,
                obstacle: Some(Obstacle {
                    message: error.to_string(),
                    help: "orchestrator run --no-sandbox starts programs without one".into(),
                }),
            }),
        }
    }
}
