//! Watches resources that the kernel does not limit for a whole process tree.
//!
//! Each check is cheap: a `statvfs`, and a few numbers of each process. Files are counted only if those show activity and
//! the file system does not rule out that a limit is near, in a thread that rests far longer than it works. No event
//! signals that a limit is exceeded, so this polls.

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
/// Bytes and files that others may free on the file system while a child takes as many, unnoticed.
const FREED_BYTES: u64 = 4 << 30;
const FREED_FILES: u64 = 400_000;

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
    /// `None` if the file system does not count them; such a one may count blocks late, too.
    files: Option<u64>,
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
        if !self.needs_count(now) {
            return None;
        }
        self.start_count(0, now);
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
        let taken = self.taken_bytes(now).unwrap_or(u64::MAX);
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

    /// Bytes taken on the file system since the start, by any process.
    fn taken_bytes(&self, now: Option<DiskSpace>) -> Option<u64> {
        let (start, now) = self.at_start.zip(now)?;
        Some(now.used.saturating_sub(start.used))
    }

    /// Files created on the file system since the start, by any process.
    fn taken_files(&self, now: Option<DiskSpace>) -> Option<u64> {
        let (start, now) = self.at_start.zip(now)?;
        Some(now.files?.saturating_sub(start.files?))
    }

    /// Whether enough was taken since the start to exceed a limit of the workspace.
    fn seems_broken(&self, now: Option<DiskSpace>) -> bool {
        self.taken_bytes(now)
            .is_some_and(|bytes| self.limits.disk < bytes)
            || self
                .taken_files(now)
                .is_some_and(|files| self.limits.files < files)
    }

    /// Whether so little was taken since the start that no limit of the workspace can be exceeded, even if others freed
    /// something meanwhile. A large workspace is not counted then.
    fn is_far_below(&self, now: Option<DiskSpace>) -> bool {
        let is_below = |taken: Option<u64>, freed: u64, limit: u64| {
            taken.is_some_and(|taken| taken.saturating_add(freed) < limit)
        };
        is_below(self.taken_bytes(now), FREED_BYTES, self.limits.disk)
            && is_below(self.taken_files(now), FREED_FILES, self.limits.files)
    }

    fn needs_count(&self, now: Option<DiskSpace>) -> bool {
        self.private.is_some() || !self.is_far_below(now)
    }

    fn count_if_active(&mut self, now: Option<DiskSpace>, cpu: u64) {
        let (ended, took, cpu_before) = self.last_count;
        let seems_broken = self.seems_broken(now);
        let rest = took * if seems_broken { SHORT_REST } else { REST };
        // A large file can be created without measurable CPU time.
        let is_idle = cpu == cpu_before && !seems_broken;
        let is_due = !(is_idle && self.is_settled) && rest <= ended.elapsed();
        if self.counting.is_none() && is_due && self.needs_count(now) {
            self.is_settled = is_idle;
            self.start_count(cpu, now);
        }
    }

    fn start_count(&mut self, cpu: u64, now: Option<DiskSpace>) {
        let (send, result) = channel();
        let is_wanted = Arc::new(AtomicBool::new(true));
        let counting = GrowthCount {
            result,
            begun: Instant::now(),
            cpu,
            is_wanted: Arc::clone(&is_wanted),
        };
        let workspace = (!self.is_far_below(now)).then(|| self.workspace.clone());
        let (private, begun) = (self.private.clone(), self.begun);
        let work = move || {
            let count = |path: Option<PathBuf>| {
                path.map(|path| growth::count(&path, begun, &is_wanted))
                    .unwrap_or_default()
            };
            let (of_workspace, of_private) = (count(workspace), count(private));
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
        files: (found.f_files != 0).then(|| found.f_files.saturating_sub(found.f_ffree)),
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
    use std::path::PathBuf;
    use std::time::{Duration, Instant, SystemTime};

    use super::{DiskSpace, LimitWatch, size};
    use crate::process::sandbox::policy::ResourceLimits;

    const GIB: u64 = 1 << 30;

    fn watch(limits: ResourceLimits, private: Option<PathBuf>) -> LimitWatch {
        LimitWatch {
            limits,
            workspace: PathBuf::new(),
            private,
            begun: SystemTime::UNIX_EPOCH,
            at_start: Some(space(100 * GIB, Some(5_000_000))),
            counting: None,
            last_count: (Instant::now(), Duration::ZERO, 0),
            is_settled: true,
            cpu: Vec::new(),
        }
    }

    fn space(used: u64, files: Option<u64>) -> DiskSpace {
        DiskSpace {
            used,
            free: 500 * GIB,
            files,
        }
    }

    #[test]
    fn a_workspace_is_counted_only_if_a_limit_may_be_near() {
        let usual = ResourceLimits::default();
        let needs = |limits, now| watch(limits, None).needs_count(now);
        let files = Some(5_000_000);
        assert!(!needs(usual, Some(space(100 * GIB, files))));
        assert!(!needs(usual, Some(space(95 * GIB, Some(4_000_000)))));
        assert!(!needs(usual, Some(space(105 * GIB, Some(5_500_000)))));
        assert!(needs(usual, Some(space(106 * GIB, files))));
        assert!(needs(usual, Some(space(100 * GIB, Some(5_600_000)))));
        // Without numbers nothing is ruled out.
        assert!(needs(usual, Some(space(100 * GIB, None))));
        assert!(needs(usual, None));
        // Below these limits others could free as much unnoticed.
        let small = [(GIB, usual.files), (usual.disk, 1000)];
        for (disk, files_limit) in small {
            let limits = ResourceLimits {
                disk,
                files: files_limit,
                ..usual
            };
            assert!(needs(limits, Some(space(100 * GIB, files))));
        }
        assert!(watch(usual, Some("private".into())).needs_count(Some(space(100 * GIB, files))));
    }

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
