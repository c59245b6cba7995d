//! Finds and kills the descendants of this process.
//!
//! A descendant can leave its process group, its session and its parent, but not the tree: this process is a subreaper,
//! so orphans are re-parented to it. Killing every descendant that `/proc` shows, until none is left, ends the tree.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process, kill_process_group};

/// SIGINT in the sets of signals that `/proc` shows.
const INTERRUPT_BIT: u64 = 1 << (Signal::INT.as_raw() - 1);

/// How long a shell may take to replace a handler, which takes a microsecond while it gets the CPU.
const HANDLER_PATIENCE: Duration = Duration::from_millis(100);

/// A process as `/proc` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessEntry {
    pub(super) pid: Pid,
    pub(super) parent: Option<Pid>,
    group: Option<Pid>,
    pub(super) session: Option<Pid>,
}

/// Kills every visible descendant except the spared ones and theirs; returns those to reap, the children of this
/// process.
///
/// Each is killed as soon as it is found, together with its process group: no member can escape a signal to the whole
/// group by forking, while a list made beforehand would be outdated.
pub(super) fn kill_descendants(is_spared: impl Fn(&ProcessEntry) -> bool) -> Vec<Pid> {
    let me = getpid();
    let our_group = own().and_then(|own| own.group);
    let mut tree = HashSet::from([me]);
    let mut children = Vec::new();
    for entry in processes() {
        if !entry.parent.is_some_and(|parent| tree.contains(&parent)) || is_spared(&entry) {
            continue;
        }
        kill(&entry, our_group);
        tree.insert(entry.pid);
        if entry.parent == Some(me) {
            children.push(entry.pid);
        }
    }
    children
}

/// Sends a signal to every visible descendant.
pub(super) fn signal_descendants(signal: Signal) {
    let mut tree = HashSet::from([getpid()]);
    for entry in processes() {
        if entry.parent.is_some_and(|parent| tree.contains(&parent)) {
            let _ = kill_process(entry.pid, signal);
            tree.insert(entry.pid);
        }
    }
}

/// Sends SIGINT to a process and its descendants, but not to those that it runs in the background; returns its children
/// that still run the same program, forks of a shell.
///
/// Parents come first: a shell must get the signal before it sees its child die. Pipeline members get it from last to
/// first: if the first exited, the others would read EOF and exit with 0.
pub(super) fn interrupt_foreground(command: Pid, spared: &[u32]) -> Vec<Pid> {
    // A stopped shell starts no process that the list misses.
    stop(command);
    let mut depths = HashMap::from([(command, 0)]);
    let entries: Vec<ProcessEntry> = processes().collect();
    let children = || entries.iter().filter(|entry| entry.parent == Some(command));
    let youngest = children().map(|entry| number(entry.pid)).max();
    for entry in &entries {
        let is_spared = spared.contains(&number(entry.pid))
            || entry.parent == Some(command)
                && is_in_background(entry, youngest != Some(number(entry.pid)));
        let depth = entry.parent.and_then(|parent| depths.get(&parent).copied());
        if let Some(depth) = depth.filter(|_| !is_spared) {
            depths.insert(entry.pid, depth + 1);
        }
    }
    let shell = program(command);
    let is_fork =
        |pid: &Pid| depths.contains_key(pid) && program(*pid).is_some_and(|own| Some(own) == shell);
    let forks = children().map(|entry| entry.pid).filter(is_fork).collect();
    let mut ordered: Vec<(Pid, u32)> = depths.into_iter().collect();
    ordered.sort_unstable_by_key(|(pid, depth)| (*depth, Reverse(number(*pid))));
    for (pid, _) in ordered {
        let _ = kill_process(pid, Signal::INT);
    }
    let _ = kill_process(command, Signal::CONT);
    forks
}

/// Stops a shell, but not while it replaces its handler of SIGINT by another: for a moment the signal has its default
/// action then, which is the death of the shell. Other programs may have it for good; they are stopped a little later.
fn stop(shell: Pid) {
    let begun = Instant::now();
    loop {
        let _ = kill_process(shell, Signal::STOP);
        // The signal is pending: no further code runs, even if the process is not shown as stopped.
        let status = fs::read_to_string(format!("/proc/{shell}/status")).unwrap_or_default();
        let handled = status_field(&status, "SigIgn:", 16) | status_field(&status, "SigCgt:", 16);
        if handled & INTERRUPT_BIT != 0 || HANDLER_PATIENCE < begun.elapsed() {
            return;
        }
        let _ = kill_process(shell, Signal::CONT);
        std::thread::yield_now();
    }
}

/// A number in `status` or `fdinfo`; all bits if there is none.
fn status_field(text: &str, name: &str, radix: u32) -> u64 {
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    u64::from_str_radix(value.unwrap_or_default().trim(), radix).unwrap_or(u64::MAX)
}

pub(super) fn number(pid: Pid) -> u32 {
    pid.as_raw_nonzero().get().unsigned_abs()
}

/// Repeats SIGINT for forks that have executed another program since, and returns the others that are alive.
///
/// A fork of a shell loses a signal that arrives before it calls exec.
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

/// The child of a process that has this number in its own PID namespace.
pub(super) fn child_by_inner_number(parent: Pid, number: u32) -> Option<Pid> {
    let mut children = processes()
        .filter(|entry| entry.parent == Some(parent))
        .map(|entry| entry.pid);
    children.find(|pid| inner_number(self::number(*pid)) == Some(number))
}

/// The descendants of a process that have one of these numbers in their own PID namespace, as inner and outer number.
pub(super) fn by_inner_number(ancestor: Pid, numbers: &[u32]) -> Vec<(u32, u32)> {
    let listed = by_lists_of_children(number(ancestor), numbers);
    if listed.len() == numbers.len() {
        return listed;
    }
    let mut rest: Vec<ProcessEntry> = processes().collect();
    let mut tree = HashSet::from([ancestor]);
    // After the pids have wrapped around, a child can be listed before its parent.
    loop {
        let before = tree.len();
        rest.retain(|entry| {
            !(entry.parent.is_some_and(|parent| tree.contains(&parent)) && tree.insert(entry.pid))
        });
        if tree.len() == before {
            break;
        }
    }
    let found = tree
        .into_iter()
        .filter_map(|pid| Some((inner_number(number(pid))?, number(pid))));
    found.filter(|(inner, _)| numbers.contains(inner)).collect()
}

/// The same without a look at every process of the machine. A list that changes while it is read may lack a process.
fn by_lists_of_children(ancestor: u32, numbers: &[u32]) -> Vec<(u32, u32)> {
    let mut found = BTreeMap::new();
    let mut waiting = VecDeque::from([ancestor]);
    while found.len() < numbers.len()
        && let Some(process) = waiting.pop_front()
    {
        for child in children(process) {
            if let Some(inner) = inner_number(child).filter(|inner| numbers.contains(inner)) {
                found.insert(inner, child);
            }
            waiting.push_back(child);
        }
    }
    found.into_iter().collect()
}

/// The children of a process; none where the kernel has no such list.
pub(super) fn children(process: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{process}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a process exists and is not a zombie.
pub(super) fn is_alive(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ")
        .is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The number of a process in its innermost PID namespace.
fn inner_number(pid: u32) -> Option<u32> {
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

/// Whether a child of a shell was started with `&`; a guess.
///
/// A shell without job control makes it ignore SIGINT and gives it `/dev/null` as stdin. Some programs reset SIGINT but
/// keep that stdin. In the foreground only the youngest child can have `/dev/null`, by a redirection.
fn is_in_background(entry: &ProcessEntry, has_younger: bool) -> bool {
    let of_process = |name: &str| format!("/proc/{}/{name}", entry.pid);
    let read = |name: &str| fs::read_to_string(of_process(name)).unwrap_or_default();
    let ignores = status_field(&read("status"), "SigIgn:", 16) & INTERRUPT_BIT != 0;
    let is_empty = || {
        let is_null =
            fs::read_link(of_process("fd/0")).is_ok_and(|target| target == Path::new("/dev/null"));
        is_null && status_field(&read("fdinfo/0"), "flags:", 8) & 3 == 0
    };
    ignores || has_younger && is_empty()
}

fn kill(entry: &ProcessEntry, our_group: Option<Pid>) {
    // A process group cannot span sessions, so that of a descendant holds only descendants; our own holds us, too.
    if let Some(group) = entry.group.filter(|group| Some(*group) != our_group) {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = kill_process(entry.pid, Signal::KILL);
}

/// This process as `/proc` shows it; group and session are `None` if their leaders are outside this PID namespace.
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

/// Reads the first bytes of a file; they contain the fields that are needed, and a scan has to be fast.
fn beginning(path: &str) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 256];
    let count = File::open(path)?.read(&mut bytes)?;
    bytes.truncate(count);
    Ok(bytes)
}

/// Parses `pid (name) state parent group session …`; the process chooses the name, which may contain `) (`.
fn parse(stat: &[u8]) -> Option<ProcessEntry> {
    let name_start = stat.iter().position(|byte| *byte == b'(')?;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    // Group and session of a process that is being removed are -1.
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

    use super::{ProcessEntry, by_inner_number, inner_number, number, own, parse, processes};

    #[test]
    fn a_name_with_parentheses_is_parsed() {
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
    fn descendants_are_found_by_their_inner_numbers() {
        let me = number(getpid());
        let inner = inner_number(me).unwrap();
        let parent = getppid().unwrap();
        for numbers in [&[inner][..], &[inner, u32::MAX]] {
            assert_eq!(by_inner_number(parent, numbers), [(inner, me)]);
        }
        assert_eq!(by_inner_number(parent, &[]), []);
    }

    #[test]
    fn a_process_that_is_being_removed_has_no_group() {
        let entry = parse(b"12 (a) Z 7 -1 -1 0 -1 4194304").unwrap();
        assert_eq!(
            (entry.parent, entry.group, entry.session),
            (Pid::from_raw(7), None, None)
        );
    }

    #[test]
    fn malformed_lines_are_not_a_process() {
        for line in [
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
                parse(line.as_bytes()).filter(|entry| entry.parent.is_some()),
                None,
                "{line}"
            );
        }
    }

    #[test]
    fn this_process_is_found() {
        let me = processes().find(|entry| entry.pid == getpid()).unwrap();
        assert_eq!((me.parent, Some(me)), (getppid(), own()));
    }
}
