//! Whether a process holds the lock of a root, found without taking it.
//!
//! `run` takes the lock without waiting, so a test that took it, also for a moment and shared, could make a `run` that
//! starts in that moment fail. The kernel lists all locks in `/proc/locks`; reading the list disturbs nothing. It does
//! not list locks of processes outside of the reader's pid namespace: a run outside of a container is not seen from
//! inside it.

use std::path::Path;

use rustix::fs::{Stat, fstat, major, minor};

use crate::state::store::{Root, is_alive, read_holder};

/// How often the list is read: the kernel gives it in pieces, and an entry can be missed between two of them.
const READINGS: usize = 3;

/// The process that works in a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LockHolder {
    pub(crate) pid: u32,
    /// When it took the lock, if it has written that already.
    pub(crate) since: Option<String>,
}

impl Root {
    /// The process that holds the lock of this root.
    pub(crate) fn lock_holder(&self) -> Option<LockHolder> {
        let file = self.open_lock_file()?;
        let stat = fstat(&file).ok()?;
        let noted = read_holder(&file);
        let is_noted_alive = is_alive(&noted);
        for _ in 0..READINGS {
            let Ok(list) = std::fs::read_to_string("/proc/locks") else {
                // Without the list, the process that the file names is the best that is known.
                let pid = noted_pid(&noted).filter(|_| is_noted_alive)?;
                return Some(holder(pid, &noted));
            };
            if let Some(pid) = locking_process(&list, &stat, noted_pid(&noted)) {
                let is_there = Path::new("/proc").join(pid.to_string()).exists();
                return is_there.then(|| holder(pid, &noted));
            }
            if !is_noted_alive {
                break;
            }
        }
        None
    }
}

/// The time in the lock file belongs to the holder, also where its pid is that of another pid namespace.
fn holder(pid: u32, noted: &str) -> LockHolder {
    let since = noted.split_once(" since ").map(|(_, time)| time.trim());
    LockHolder {
        pid,
        since: since.map(str::to_owned),
    }
}

/// The process in the pid field of a lock file.
fn noted_pid(noted: &str) -> Option<u32> {
    noted.strip_prefix("pid ")?.split(' ').next()?.parse().ok()
}

/// The process that holds a lock on a file, by a list in the format of `/proc/locks`. Some file systems report another
/// device number there than `stat` does; then the pid that the file names has to match.
fn locking_process(list: &str, stat: &Stat, noted: Option<u32>) -> Option<u32> {
    let device = format!("{:02x}:{:02x}", major(stat.st_dev), minor(stat.st_dev));
    list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // `->` marks a process that waits for the lock.
        let [_, "FLOCK", _, "WRITE", pid, file, ..] = words[..] else {
            return None;
        };
        let (on, inode) = file.rsplit_once(':')?;
        let pid: u32 = pid.parse().ok()?;
        let is_it = inode == stat.st_ino.to_string() && (on == device || noted == Some(pid));
        is_it.then_some(pid)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_is_found_without_disturbing_a_lock() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path()).unwrap();
        assert_eq!(root.lock_holder(), None);
        let lock = root.lock().unwrap();
        let holder = root.lock_holder().unwrap();
        assert_eq!(holder.pid, std::process::id());
        assert!(holder.since.unwrap().starts_with("20"));
        drop(lock);
        // The file still names this process, which is alive.
        assert_eq!(root.lock_holder(), None);
        drop(root.lock().unwrap());
    }

    #[test]
    fn a_lock_is_recognised_by_its_file_and_its_process() {
        let file = tempfile::tempfile().unwrap();
        let stat = fstat(&file).unwrap();
        let device = format!("{:02x}:{:02x}", major(stat.st_dev), minor(stat.st_dev));
        let inode = stat.st_ino;
        let line = |kind: &str, pid: u32, device: &str| {
            format!("7: {kind} {pid} {device}:{inode} 0 EOF\n")
        };
        let check = |list: String, expected: Option<u32>| {
            assert_eq!(locking_process(&list, &stat, Some(12)), expected, "{list}");
        };
        let flock = "FLOCK  ADVISORY  WRITE";
        check(line(flock, 11, &device), Some(11));
        check(line(flock, 12, "ff:ff"), Some(12));
        check(line(flock, 11, "ff:ff"), None);
        check(line("POSIX  ADVISORY  WRITE", 11, &device), None);
        check(line("-> FLOCK  ADVISORY  WRITE", 11, &device), None);
        check(
            line(flock, 11, &device).replace(&inode.to_string(), "1"),
            None,
        );
        check("\n7:\nFLOCK\n7: FLOCK ADVISORY WRITE x y\n".into(), None);
    }
}
