//! Finding and ending the descendants of this process.
//!
//! A descendant can leave its process group, its session and its parent, but not its line: as this process is a
//! subreaper, whoever loses a parent becomes its child. So killing whom one finds, again and again until nobody is left,
//! ends the tree, whatever it did to hide.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    pub(super) pid: Pid,
    pub(super) parent: Option<Pid>,
    group: Option<Pid>,
    pub(super) session: Option<Pid>,
}

/// Kills every descendant that can be seen now but the spared and theirs; returns those that are children of this
/// process, who want to be reaped.
///
/// Each is killed the moment it is found, with its group: the kernel lets no member of a group fork its way out of a
/// signal to the whole, while a list that is made first is old when it is used.
pub(super) fn kill_descendants(is_spared: impl Fn(&ProcessEntry) -> bool) -> Vec<Pid> {
    let me = getpid();
    let our_group = own().and_then(|own| own.group);
    let mut line = HashSet::from([me]);
    let mut children = Vec::new();
    for entry in processes() {
        if !entry.parent.is_some_and(|parent| line.contains(&parent)) || is_spared(&entry) {
            continue;
        }
        kill(&entry, our_group);
        line.insert(entry.pid);
        if entry.parent == Some(me) {
            children.push(entry.pid);
        }
    }
    children
}

/// Sends a signal to every descendant that can be seen now.
pub(super) fn signal_descendants(signal: Signal) {
    let mut line = HashSet::from([getpid()]);
    for entry in processes() {
        if entry.parent.is_some_and(|parent| line.contains(&parent)) {
            let _ = kill_process(entry.pid, signal);
            line.insert(entry.pid);
        }
    }
}

/// Sends SIGINT to a process and to its descendants, but not to those it runs in the background; returns its children
/// that are still the program it is itself.
///
/// A parent goes first, for a shell must know of the signal before the death of what it waits for tells; the end of a
/// pipeline goes before its beginning, which would end the rest in peace.
pub(super) fn interrupt_foreground(command: Pid, spared: &[u32]) -> Vec<Pid> {
    // A shell that stands still starts nobody who is not on the list.
    let _ = kill_process(command, Signal::STOP);
    let mut line = HashMap::from([(command, 0)]);
    let entries: Vec<ProcessEntry> = processes().collect();
    let children = || entries.iter().filter(|entry| entry.parent == Some(command));
    let youngest = children().map(|entry| number(entry.pid)).max();
    for entry in &entries {
        let is_spared = spared.contains(&number(entry.pid))
            || entry.parent == Some(command)
                && is_in_background(entry, youngest != Some(number(entry.pid)));
        let depth = entry.parent.and_then(|parent| line.get(&parent).copied());
        if let Some(depth) = depth.filter(|_| !is_spared) {
            line.insert(entry.pid, depth + 1);
        }
    }
    let shell = program(command);
    let is_fork =
        |pid: &Pid| line.contains_key(pid) && program(*pid).is_some_and(|own| Some(own) == shell);
    let forks = children().map(|entry| entry.pid).filter(is_fork).collect();
    let mut line: Vec<(Pid, u32)> = line.into_iter().collect();
    line.sort_unstable_by_key(|(pid, depth)| (*depth, Reverse(number(*pid))));
    for (pid, _) in line {
        let _ = kill_process(pid, Signal::INT);
    }
    let _ = kill_process(command, Signal::CONT);
    forks
}

pub(super) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Sends SIGINT once more to forks that have become another program since, and returns the others that live.
///
/// A fork of a shell forgets a signal that comes before it becomes what it was made for.
pub(super) fn interrupt_again(command: Pid, mut forks: Vec<Pid>) -> Vec<Pid> {
    let shell = program(command);
    forks.retain(|fork| {
        let now = program(*fork);
        if now.is_some() && now != shell {
            let _ = kill_process(*fork, Signal::INT);
        }
        now.is_some() && now == shell
    });
    forks
}

/// Returns the child of a process that has this number in its own namespace.
pub(super) fn child_by_inner_number(parent: Pid, number: u32) -> Option<Pid> {
    let mut children = processes()
        .filter(|entry| entry.parent == Some(parent))
        .map(|entry| entry.pid);
    children.find(|pid| inner_number(*pid) == Some(number))
}

/// Returns, of the descendants of a process, those that have one of these numbers in their own namespace: that one, and
/// ours.
pub(super) fn by_inner_number(ancestor: Pid, numbers: &[u32]) -> Vec<(u32, u32)> {
    if numbers.is_empty() {
        return Vec::new();
    }
    let mut rest: Vec<ProcessEntry> = processes().collect();
    let mut line = HashSet::from([ancestor]);
    // Where numbers have begun anew, a child may be listed before its parent.
    loop {
        let before = line.len();
        rest.retain(|entry| {
            !(entry.parent.is_some_and(|parent| line.contains(&parent)) && line.insert(entry.pid))
        });
        if line.len() == before {
            break;
        }
    }
    let found = line
        .into_iter()
        .filter_map(|pid| Some((inner_number(pid)?, number(pid))));
    found.filter(|(inner, _)| numbers.contains(inner)).collect()
}

/// Whether a process is there and has not ended.
pub(super) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The number of a process in the innermost namespace that it is in.
fn inner_number(pid: Pid) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix("NSpid:"))?
        .split_whitespace()
        .last()?
        .parse()
        .ok()
}

fn program(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{pid}/exe")).ok()
}

/// Whether a child of a shell was started with `&`, as far as that can be seen.
///
/// A shell without job control has it ignore SIGINT. Some programs put that back to the default at their start; they
/// still have the empty stdin that it gave them, which in the foreground only the last one to start has by its own wish.
fn is_in_background(entry: &ProcessEntry, has_younger: bool) -> bool {
    let of_process = |name: &str| format!("/proc/{}/{name}", entry.pid);
    let read = |name: &str| fs::read_to_string(of_process(name)).unwrap_or_default();
    let field = |text: &str, name: &str, radix: u32| {
        let value = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_default()
            .trim()
            .to_owned();
        u64::from_str_radix(&value, radix).unwrap_or(u64::MAX)
    };
    let ignores = field(&read("status"), "SigIgn:", 16) & (1 << (Signal::INT.as_raw() - 1)) != 0;
    let is_empty = || {
        let is_null =
            fs::read_link(of_process("fd/0")).is_ok_and(|target| target == Path::new("/dev/null"));
        is_null && field(&read("fdinfo/0"), "flags:", 8) & 3 == 0
    };
    ignores || has_younger && is_empty()
}

fn kill(entry: &ProcessEntry, our_group: Option<Pid>) {
    // A group of a descendant holds descendants alone, for it cannot cross a session's border; ours holds us too.
    if let Some(group) = entry.group.filter(|group| Some(*group) != our_group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = kill_process(entry.pid, Signal::KILL);
}

/// This process as `/proc` shows it; its group and session are nobody where their leaders are outside this namespace.
pub(super) fn own() -> Option<ProcessEntry> {
    parse(&beginning("/proc/self/stat").ok()?)
}

pub(super) fn processes() -> impl Iterator<Item = ProcessEntry> {
    let names = fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name());
    let pids = names.filter_map(|name| name.to_str()?.parse::<u32>().ok());
    pids.filter_map(|pid| parse(&beginning(&format!("/proc/{pid}/stat")).ok()?))
}

/// Reads as much of a file as holds what is asked of it: a scan is a race.
fn beginning(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 256];
    let count = File::open(path)?.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Reads `pid (name) state parent group session …`; the name is the process's own choice and may hold `) (`.
fn parse(stat: &[u8]) -> Option<ProcessEntry> {
    let name_start = stat.iter().position(|byte| *byte == b'(')?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    // Of a process that is about to vanish group and session are -1: none.
    let pid = |text: &[u8]| {
        Pid::from_raw(
            str::from_utf8(text)
                .ok()?
                .trim()
                .parse::<u32>()
                .ok()?
                .try_into()
                .ok()?,
        )
    };
    let mut fields = stat
        .get(name_end + 1..)?
        .split(|byte| *byte == b' ')
        .skip(2)
        .map(pid);
    let mut next = || fields.next();
    Some(ProcessEntry {
        pid: pid(&stat[..name_start])?,
        parent: next()?,
        group: next()?,
        session: next()?,
    })
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, getpid, getppid};

    use super::{ProcessEntry, own, parse, processes};

    #[test]
    fn a_hostile_name_is_no_obstacle() {
        let entry = parse(b"12 (a) Z 1 1 (b) S 7 8 9 0 -1 4194304").unwrap();
        let pid = |number| Pid::from_raw(number);
        assert_eq!(
            entry,
            ProcessEntry {
                pid: pid(12).unwrap(),
                parent: pid(7),
                group: pid(8),
                session: pid(9)
            }
        );
    }

    #[test]
    fn a_vanishing_process_has_no_group() {
        let entry = parse(b"12 (a) Z 7 -1 -1 0 -1 4194304").unwrap();
        assert_eq!(
            (entry.parent, entry.group, entry.session),
            (Pid::from_raw(7), None, None)
        );
    }

    #[test]
    fn noise_is_nobody() {
        for noise in [
            "",
            "1",
            "1 (",
            "1 )",
            ") (",
            "1 (a)",
            "1 (a) S",
            "1 (a) S x y z",
            "0 (a) S 1 1 1",
            "-",
        ] {
            assert_eq!(
                parse(noise.as_bytes()).filter(|entry| entry.parent.is_some()),
                None,
                "{noise}"
            );
        }
    }

    #[test]
    fn this_process_is_found() {
        let me = processes().find(|entry| entry.pid == getpid()).unwrap();
        assert_eq!((me.parent, Some(me)), (getppid(), own()));
    }
}
