//! Watches resources that the kernel does not limit for a whole process tree.
//!
//! Each check is cheap: a `statvfs`, and a few numbers of each process. Files are counted only if those show activity, in
//! a thread that rests far longer than it works. No event signals that a limit is exceeded, so this polls.

pub(crate) mod group;
mod growth;
mod usage;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::statvfs;
use rustix::process::Pid;
use rustix::time::{ClockId, clock_gettime};

use crate::process::sandbox::limits::growth::Growth;
use crate::process::sandbox::limits::usage::ProcessUsage;
use crate::process::sandbox::policy::{ResourceLimits, SandboxPolicy};

/// The time between two checks.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);
/// The pause after a count, as a multiple of its duration; the shorter one if a limit seems exceeded.
const REST: u32 = 20;
const SHORT_REST: u32 = 3;
/// How long the last count may take; the longer one if a limit seems exceeded.
const PATIENCE: Duration = Duration::from_millis(100);
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// Watches process trees that share a workspace.
#[derive(Debug)]
pub(crate) struct LimitWatch {
    limits: ResourceLimits,
    workspace: PathBuf,
    /// The real directory of the private directories, if the kernel does not limit their size.
    private: Option<PathBuf>,
    begun: SystemTime,
    at_start: Option<DiskSpace>,
    counting: Option<GrowthCount>,
    /// When the last count ended, its duration, and the CPU time of the trees when it began.
    last_count: (Instant, Duration, u64),
    /// Whether a count was made after the last activity: CPU time has a resolution that can hide the last of it.
    is_settled: bool,
    /// The CPU time of each tree at the last check.
    cpu: Vec<u64>,
}

/// A limit that was exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BrokenLimit {
    /// The limit and the number.
    pub message: String,
    /// The index of the tree that exceeded it, or most likely did.
    pub tree: usize,
}

/// Usage of a file system.
#[derive(Debug, Clone, Copy)]
struct DiskSpace {
    used: u64,
    free: u64,
    files: u64,
}

/// A count in progress; dropping it ends the count early.
#[derive(Debug)]
struct GrowthCount {
    result: Receiver<(Growth, Growth)>,
    begun: Instant,
    cpu: u64,
    is_wanted: Arc<AtomicBool>,
}

impl Drop for GrowthCount {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::Relaxed);
    }
}

impl LimitWatch {
    /// Begins a watch: growth from now on counts.
    pub(crate) fn begin(policy: &SandboxPolicy) -> LimitWatch {
        let workspace = policy.write.first().cloned().unwrap_or_default();
        LimitWatch {
            limits: policy.limits,
            at_start: space(&workspace),
            workspace,
            private: policy.private.clone(),
            begun: file_clock(),
            counting: None,
            last_count: (Instant::now(), Duration::ZERO, 0),
            is_settled: true,
            cpu: Vec::new(),
        }
    }

    /// Checks the process trees of supervisors, and returns a limit that is exceeded.
    pub(crate) fn check(&mut self, supervisors: &[Pid]) -> Option<BrokenLimit> {
        let now = space(&self.workspace);
        let usages: Vec<ProcessUsage> = supervisors
            .iter()
            .map(|supervisor| usage::of_tree(*supervisor))
            .collect();
        let busiest = self.busiest(&usages);
        let of_disk = self.reserve(now).or_else(|| self.growth(now, &usages));
        let of_disk = of_disk.map(|message| BrokenLimit {
            message,
            tree: busiest,
        });
        of_disk
            .or_else(|| self.memory(supervisors, &usages))
            .or_else(|| self.tasks(&usages))
    }

    /// Returns a disk limit that is exceeded after the children have ended: a fast one fits between two checks.
    pub(crate) fn check_after_end(&mut self) -> Option<String> {
        let now = space(&self.workspace);
        if let Some(message) = self.reserve(now) {
            return Some(message);
        }
        let patience = if self.seems_broken(now) {
            LONG_PATIENCE
        } else {
            PATIENCE
        };
        self.start_count(0);
        let (workspace, private) = self.counting.take()?.result.recv_timeout(patience).ok()?;
        self.exceeded(workspace, private, now)
    }

    /// The tree that used most CPU time since the last check.
    fn busiest(&mut self, usages: &[ProcessUsage]) -> usize {
        let before = std::mem::replace(
            &mut self.cpu,
            usages.iter().map(|usage| usage.cpu).collect(),
        );
        let work =
            |index: usize| self.cpu[index].saturating_sub(before.get(index).copied().unwrap_or(0));
        (0..usages.len())
            .max_by_key(|index| work(*index))
            .unwrap_or(0)
    }

    /// Free space must not fall below the reserve; if it was below at the start, not below half of that.
    fn reserve(&self, now: Option<DiskSpace>) -> Option<String> {
        let (start, now) = self.at_start.zip(now)?;
        let least = if self.limits.reserve <= start.free {
            self.limits.reserve
        } else {
            start.free / 2
        };
        let message = || {
            format!(
                "free disk space fell to {}, and {} have to stay free",
                size(now.free),
                size(least)
            )
        };
        (now.free < least).then(message)
    }

    fn memory(&self, supervisors: &[Pid], usages: &[ProcessUsage]) -> Option<BrokenLimit> {
        let limit = self.limits.memory;
        if usages.iter().map(|usage| usage.memory).sum::<u64>() <= limit {
            return None;
        }
        // The sum counts shared memory for each process.
        let exact: Vec<u64> = supervisors
            .iter()
            .map(|supervisor| usage::exact_memory(*supervisor))
            .collect();
        let sum = exact.iter().sum();
        let tree = (0..exact.len())
            .max_by_key(|index| exact[*index])
            .unwrap_or(0);
        (limit < sum).then(|| BrokenLimit {
            message: broken("memory in use grew to", &size(sum), &size(limit), "memory"),
            tree,
        })
    }

    fn tasks(&self, usages: &[ProcessUsage]) -> Option<BrokenLimit> {
        let (sum, limit) = (
            usages.iter().map(|usage| usage.tasks).sum::<u64>(),
            self.limits.processes,
        );
        let tree = (0..usages.len())
            .max_by_key(|index| usages[*index].tasks)
            .unwrap_or(0);
        (limit < sum).then(|| BrokenLimit {
            message: broken(
                "there were",
                &format!("{sum} processes and threads"),
                &limit.to_string(),
                "processes",
            ),
            tree,
        })
    }

    fn growth(&mut self, now: Option<DiskSpace>, usages: &[ProcessUsage]) -> Option<String> {
        let counted = self
            .counting
            .as_ref()
            .and_then(|counting| counting.result.try_recv().ok());
        if counted.is_some()
            && let Some(done) = self.counting.take()
        {
            self.last_count = (Instant::now(), done.begun.elapsed(), done.cpu);
        }
        let broken =
            counted.and_then(|(workspace, private)| self.exceeded(workspace, private, now));
        if broken.is_none() {
            self.count_if_active(now, usages.iter().map(|usage| usage.cpu).sum());
        }
        broken
    }

    /// The disk limit that this growth exceeds.
    fn exceeded(
        &self,
        workspace: Growth,
        private: Growth,
        now: Option<DiskSpace>,
    ) -> Option<String> {
        // Changed files grew by at most the space that was taken since the start and is not in new files.
        let taken = self.taken(now).map_or(u64::MAX, |(bytes, _)| bytes);
        let grown = workspace.new_bytes
            + workspace
                .changed_bytes
                .min(taken.saturating_sub(workspace.new_bytes));
        let inside = private.new_bytes + private.changed_bytes;
        let limits = &self.limits;
        if limits.disk < grown {
            return Some(broken(
                "the workspace grew by",
                &size(grown),
                &size(limits.disk),
                "disk",
            ));
        }
        if limits.files < workspace.new_files {
            let number = format!("{} files", workspace.new_files);
            return Some(broken(
                "the workspace grew by",
                &number,
                &limits.files.to_string(),
                "files",
            ));
        }
        let message = || {
            format!(
                "/tmp and home grew to {}, the limit is {}",
                size(inside),
                size(limits.private)
            )
        };
        (limits.private < inside).then(message)
    }

    /// Bytes and files taken on the file system since the start, by any process.
    fn taken(&self, now: Option<DiskSpace>) -> Option<(u64, u64)> {
        let (start, now) = self.at_start.zip(now)?;
        Some((
            now.used.saturating_sub(start.used),
            now.files.saturating_sub(start.files),
        ))
    }

    /// Whether enough was taken since the start to exceed a limit of the workspace.
    fn seems_broken(&self, now: Option<DiskSpace>) -> bool {
        self.taken(now)
            .is_some_and(|(bytes, files)| self.limits.disk < bytes || self.limits.files < files)
    }

    fn count_if_active(&mut self, now: Option<DiskSpace>, cpu: u64) {
        let (ended, took, cpu_before) = self.last_count;
        let seems_broken = self.seems_broken(now);
        let rest = took * if seems_broken { SHORT_REST } else { REST };
        // A large file can be created without measurable CPU time.
        let is_idle = cpu == cpu_before && !seems_broken;
        if self.counting.is_none() && !(is_idle && self.is_settled) && rest <= ended.elapsed() {
            self.is_settled = is_idle;
            self.start_count(cpu);
        }
    }

    fn start_count(&mut self, cpu: u64) {
        let (send, result) = channel();
        let is_wanted = Arc::new(AtomicBool::new(true));
        let counting = GrowthCount {
            result,
            begun: Instant::now(),
            cpu,
            is_wanted: Arc::clone(&is_wanted),
        };
        let (workspace, private, begun) =
            (self.workspace.clone(), self.private.clone(), self.begun);
        let work = move || {
            let of_workspace = growth::count(&workspace, begun, &is_wanted);
            let of_private = private
                .map(|private| growth::count(&private, begun, &is_wanted))
                .unwrap_or_default();
            let _ = send.send((of_workspace, of_private));
        };
        // If the thread cannot start, this count is skipped; the reserve is still checked.
        if thread::Builder::new()
            .name("count".to_owned())
            .spawn(work)
            .is_ok()
        {
            self.counting = Some(counting);
        }
    }
}

/// The clock that the kernel uses for timestamps of files: coarser than `SystemTime::now`.
fn file_clock() -> SystemTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let since_1970 = Duration::try_from(now).unwrap_or_default();
    SystemTime::UNIX_EPOCH + since_1970
}

fn space(path: &Path) -> Option<DiskSpace> {
    let found = statvfs(path).ok()?;
    Some(DiskSpace {
        used: found
            .f_blocks
            .saturating_sub(found.f_bfree)
            .saturating_mul(found.f_frsize),
        free: found.f_bavail.saturating_mul(found.f_frsize),
        files: found.f_files.saturating_sub(found.f_ffree),
    })
}

fn broken(what: &str, number: &str, limit: &str, field: &str) -> String {
    format!("{what} {number}, the limit is {limit} (sandbox.limits.{field})")
}

/// Formats a number of bytes in its largest unit, with one decimal unless it is whole.
pub(crate) fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| *unit <= bytes) {
        Some((unit, name)) if bytes.is_multiple_of(unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => format!("{:.1} {name}", bytes as f64 / unit as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::size;

    #[test]
    fn sizes_have_the_largest_unit() {
        for (bytes, shown) in [
            (7, "7 bytes"),
            (1 << 10, "1 KiB"),
            (200 << 20, "200 MiB"),
            (10 << 30, "10 GiB"),
            ((10 << 30) + (300 << 20), "10.3 GiB"),
            (1500, "1.5 KiB"),
        ] {
            assert_eq!(size(bytes), shown);
        }
    }
}
