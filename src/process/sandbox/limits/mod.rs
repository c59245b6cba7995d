//! Watches what children use up, where no limit of the kernel counts it for a whole tree.
//!
//! Every look is cheap: a question to the file system, and a few numbers of each process. Only where those say that
//! something was done are the files counted, in a thread of its own that rests far longer than it works. Nobody tells
//! when a limit is broken, so this is the one place that asks in turns.

pub mod group;
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

/// How often one looks.
pub const INTERVAL: Duration = Duration::from_millis(250);
/// A count rests this many times longer than it took, and less where a limit seems to be broken.
const REST: u32 = 20;
const SHORT_REST: u32 = 3;
/// How long the last count may take, and where a limit seems to be broken.
const PATIENCE: Duration = Duration::from_millis(100);
const LONG_PATIENCE: Duration = Duration::from_secs(60);

/// The watch over some trees of processes that share a workspace.
#[derive(Debug)]
pub struct LimitWatch {
    limits: ResourceLimits,
    workspace: PathBuf,
    /// The real directory of the private places, where the kernel does not bound their size.
    private: Option<PathBuf>,
    begun: SystemTime,
    at_start: Option<DiskSpace>,
    counting: Option<GrowthCount>,
    /// When the last count ended, how long it took, and what the trees had worked by its beginning.
    last_count: (Instant, Duration, u64),
    /// Whether there was a count since they were last seen to work: work is told in steps that hide the last of it.
    is_settled: bool,
    /// What each tree had worked at the last look.
    worked: Vec<u64>,
}

/// A limit that is broken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenLimit {
    /// The limit and the number, in words.
    pub words: String,
    /// Which of the trees it was, or most likely was.
    pub culprit: usize,
}

/// What a file system has left, and what is in use of it.
#[derive(Debug, Clone, Copy)]
struct DiskSpace {
    used: u64,
    free: u64,
    files: u64,
}

/// A count under way; it ends early when this is dropped.
#[derive(Debug)]
struct GrowthCount {
    result: Receiver<(Growth, Growth)>,
    begun: Instant,
    worked: u64,
    is_wanted: Arc<AtomicBool>,
}

impl Drop for GrowthCount {
    fn drop(&mut self) {
        self.is_wanted.store(false, Ordering::Relaxed);
    }
}

impl LimitWatch {
    /// Begins a watch: what grows from now on counts.
    pub fn begin(policy: &SandboxPolicy) -> LimitWatch {
        let workspace = policy.write.first().cloned().unwrap_or_default();
        LimitWatch {
            limits: policy.limits,
            at_start: space(&workspace),
            workspace,
            private: policy.private.clone(),
            begun: now_of_files(),
            counting: None,
            last_count: (Instant::now(), Duration::ZERO, 0),
            is_settled: true,
            worked: Vec::new(),
        }
    }

    /// Looks at everything below `keepers` and returns which limit is broken, if one is.
    pub fn look(&mut self, supervisors: &[Pid]) -> Option<BrokenLimit> {
        let now = space(&self.workspace);
        let usages: Vec<ProcessUsage> = supervisors
            .iter()
            .map(|supervisor| usage::of_tree(*supervisor))
            .collect();
        let busiest = self.busiest(&usages);
        let of_space = self.reserve(now).or_else(|| self.growth(now, &usages));
        let of_space = of_space.map(|words| BrokenLimit {
            words,
            culprit: busiest,
        });
        of_space
            .or_else(|| self.memory(supervisors, &usages))
            .or_else(|| self.tasks(&usages))
    }

    /// Returns which limit of space is broken once the children have ended: what is quick is done between two looks.
    pub fn look_back(&mut self) -> Option<String> {
        let now = space(&self.workspace);
        if let Some(words) = self.reserve(now) {
            return Some(words);
        }
        let patience = if self.seems_broken(now) {
            LONG_PATIENCE
        } else {
            PATIENCE
        };
        self.count(0);
        let (workspace, private) = self.counting.take()?.result.recv_timeout(patience).ok()?;
        self.judge(workspace, private, now)
    }

    /// Which tree has worked most since the last look.
    fn busiest(&mut self, usages: &[ProcessUsage]) -> usize {
        let before = std::mem::replace(
            &mut self.worked,
            usages.iter().map(|usage| usage.worked).collect(),
        );
        let work = |index: usize| {
            self.worked[index].saturating_sub(before.get(index).copied().unwrap_or(0))
        };
        (0..usages.len())
            .max_by_key(|index| work(*index))
            .unwrap_or(0)
    }

    /// Free space may not fall below the reserve; where it was below from the start, not below half of that.
    fn reserve(&self, now: Option<DiskSpace>) -> Option<String> {
        let (start, now) = self.at_start.zip(now)?;
        let least = if self.limits.reserve <= start.free {
            self.limits.reserve
        } else {
            start.free / 2
        };
        let words = || {
            format!(
                "free disk space fell to {}, and {} have to stay free",
                size(now.free),
                size(least)
            )
        };
        (now.free < least).then(words)
    }

    fn memory(&self, supervisors: &[Pid], usages: &[ProcessUsage]) -> Option<BrokenLimit> {
        let limit = self.limits.memory;
        if usages.iter().map(|usage| usage.memory).sum::<u64>() <= limit {
            return None;
        }
        // What processes share was counted for each of them.
        let exact: Vec<u64> = supervisors
            .iter()
            .map(|supervisor| usage::exact_memory(*supervisor))
            .collect();
        let sum = exact.iter().sum();
        let culprit = (0..exact.len())
            .max_by_key(|index| exact[*index])
            .unwrap_or(0);
        let words = || broken("memory in use grew to", &size(sum), &size(limit), "memory");
        (limit < sum).then(|| BrokenLimit {
            words: words(),
            culprit,
        })
    }

    fn tasks(&self, usages: &[ProcessUsage]) -> Option<BrokenLimit> {
        let (sum, limit) = (
            usages.iter().map(|usage| usage.tasks).sum::<u64>(),
            self.limits.processes,
        );
        let culprit = (0..usages.len())
            .max_by_key(|index| usages[*index].tasks)
            .unwrap_or(0);
        let words = || {
            broken(
                "there were",
                &format!("{sum} processes and threads"),
                &limit.to_string(),
                "processes",
            )
        };
        (limit < sum).then(|| BrokenLimit {
            words: words(),
            culprit,
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
            self.last_count = (Instant::now(), done.begun.elapsed(), done.worked);
        }
        let broken = counted.and_then(|(workspace, private)| self.judge(workspace, private, now));
        if broken.is_none() {
            self.count_where_something_was_done(now, usages.iter().map(|usage| usage.worked).sum());
        }
        broken
    }

    fn judge(&self, workspace: Growth, private: Growth, now: Option<DiskSpace>) -> Option<String> {
        // What was there before and has changed grew by no more than what is in use now and not in new files.
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
        let words = || {
            format!(
                "/tmp and home grew to {}, the limit is {}",
                size(inside),
                size(limits.private)
            )
        };
        (limits.private < inside).then(words)
    }

    /// What has been taken of the file system since the start, by whomever: bytes and files.
    fn taken(&self, now: Option<DiskSpace>) -> Option<(u64, u64)> {
        let (start, now) = self.at_start.zip(now)?;
        Some((
            now.used.saturating_sub(start.used),
            now.files.saturating_sub(start.files),
        ))
    }

    /// Whether so much has been taken since the start that it may have been more than the workspace may grow by.
    fn seems_broken(&self, now: Option<DiskSpace>) -> bool {
        self.taken(now)
            .is_some_and(|(bytes, files)| self.limits.disk < bytes || self.limits.files < files)
    }

    fn count_where_something_was_done(&mut self, now: Option<DiskSpace>, worked: u64) {
        let (ended, took, worked_before) = self.last_count;
        let seems_broken = self.seems_broken(now);
        let rest = took * if seems_broken { SHORT_REST } else { REST };
        // A file of any size is made in no time.
        let is_idle = worked == worked_before && !seems_broken;
        if self.counting.is_none() && !(is_idle && self.is_settled) && rest <= ended.elapsed() {
            self.is_settled = is_idle;
            self.count(worked);
        }
    }

    fn count(&mut self, worked: u64) {
        let (send, result) = channel();
        let is_wanted = Arc::new(AtomicBool::new(true));
        let counting = GrowthCount {
            result,
            begun: Instant::now(),
            worked,
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
        // Without a thread there is no count this time, and the reserve holds.
        if thread::Builder::new()
            .name("count".to_owned())
            .spawn(work)
            .is_ok()
        {
            self.counting = Some(counting);
        }
    }
}

/// The time as new files get it: it goes in steps of a few milliseconds.
fn now_of_files() -> SystemTime {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    let since_1970 = Duration::try_from(now).unwrap_or_default();
    SystemTime::UNIX_EPOCH + since_1970
}

fn space(place: &Path) -> Option<DiskSpace> {
    let found = statvfs(place).ok()?;
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

/// Returns a number of bytes in the largest unit that it fills, with a digit after the point where there is one.
pub fn size(bytes: u64) -> String {
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
    fn sizes_are_easy_to_read() {
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
