//! What a tree of processes uses, as `/proc` shows it from outside.

use std::collections::HashSet;
use std::fs;

use rustix::param::page_size;
use rustix::process::Pid;

use crate::process::process_tree;

/// What the descendants of a process use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// Resident bytes; what processes share counts for each.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) tasks: u64,
    /// Time on a processor, in ticks; of those that are gone, too.
    pub(super) worked: u64,
}

/// Returns what the descendants of a keeper use, the keeper not counted.
pub(super) fn of_tree(supervisor: Pid) -> ProcessUsage {
    let mut all = ProcessUsage::default();
    for process in descendants(supervisor) {
        if let Some(one) = fs::read(format!("/proc/{process}/stat"))
            .ok()
            .and_then(|stat| parse(&stat))
        {
            all.memory += one.memory;
            all.tasks += one.tasks;
            all.worked += one.worked;
        }
    }
    all
}

/// Returns the resident bytes of the descendants of a keeper, what several share counted once; where the system does
/// not say that, what a process has alone.
pub(super) fn exact_memory(supervisor: Pid) -> u64 {
    descendants(supervisor)
        .into_iter()
        .map(|process| shared_out(process).unwrap_or_else(|| own(process)))
        .sum()
}

fn shared_out(process: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).ok()?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:")?.trim().strip_suffix("kB"))?;
    kilobytes
        .trim()
        .parse::<u64>()
        .ok()
        .map(|kilobytes| kilobytes << 10)
}

fn own(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut pages = text
        .split(' ')
        .skip(1)
        .map_while(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * page_size() as u64
}

/// Returns all descendants that can be seen now.
fn descendants(supervisor: Pid) -> Vec<u32> {
    let supervisor = supervisor.as_raw_nonzero().get().unsigned_abs();
    if fs::metadata(format!("/proc/{supervisor}/task/{supervisor}/children")).is_err() {
        return descendants_by_parents(supervisor);
    }
    // A process that moves between two looks may be met twice.
    let mut found = HashSet::new();
    let mut waiting = children(supervisor);
    while let Some(process) = waiting.pop() {
        if found.insert(process) {
            waiting.extend(children(process));
        }
    }
    found.into_iter().collect()
}

fn children(process: u32) -> Vec<u32> {
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

/// The same for a kernel that keeps no lists of children.
fn descendants_by_parents(supervisor: u32) -> Vec<u32> {
    let number = |pid: Pid| pid.as_raw_nonzero().get().unsigned_abs();
    let mut line = HashSet::from([supervisor]);
    for entry in process_tree::processes() {
        if entry
            .parent
            .is_some_and(|parent| line.contains(&number(parent)))
        {
            line.insert(number(entry.pid));
        }
    }
    line.remove(&supervisor);
    line.into_iter().collect()
}

/// Reads the numbers after the name, which is the process's own choice and may hold anything.
fn parse(stat: &[u8]) -> Option<ProcessUsage> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = String::from_utf8_lossy(&stat[after_name..]);
    let fields: Vec<&str> = text.split_whitespace().collect();
    // The first field here is the third of the file: the state.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let worked = [14, 15, 16, 17]
        .iter()
        .map(|number| field(*number).unwrap_or(0))
        .sum();
    Some(ProcessUsage {
        memory: field(24)? * page_size() as u64,
        tasks: field(20)?,
        worked,
    })
}

#[cfg(test)]
mod tests {
    use rustix::param::page_size;

    use super::{ProcessUsage, parse};

    #[test]
    fn the_numbers_of_a_process_are_read() {
        let stat = b"12 (a) b) S 1 2 3 0 -1 4 5 6 7 8 10 20 300 4000 20 0 9 0 77 1000 42 18446744073709551615 1";
        assert_eq!(
            parse(stat),
            Some(ProcessUsage {
                memory: 42 * page_size() as u64,
                tasks: 9,
                worked: 4330
            })
        );
        for noise in ["", "1 (a", "1 (a) S 1 2"] {
            assert_eq!(parse(noise.as_bytes()), None, "{noise}");
        }
    }
}
