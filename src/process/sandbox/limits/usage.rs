//! The resources of a process tree, read from `/proc`.

use std::collections::HashSet;
use std::fs;

use rustix::param::page_size;
use rustix::process::Pid;

use crate::process::process_tree;

/// The resources of the descendants of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ProcessUsage {
    /// Resident bytes; shared memory counts for each process.
    pub(super) memory: u64,
    /// Processes and threads.
    pub(super) tasks: u64,
    /// CPU time in ticks, including that of reaped children.
    pub(super) cpu: u64,
}

/// The resources of a supervisor's descendants, without its own.
pub(super) fn of_tree(supervisor: Pid) -> ProcessUsage {
    let mut all = ProcessUsage::default();
    for process in descendants(supervisor) {
        if let Some(one) = fs::read(format!("/proc/{process}/stat"))
            .ok()
            .and_then(|stat| parse(&stat))
        {
            all.memory += one.memory;
            all.tasks += one.tasks;
            all.cpu += one.cpu;
        }
    }
    all
}

/// The resident bytes of a supervisor's descendants, shared memory counted once; without `smaps_rollup`, what is not
/// shared.
pub(super) fn exact_memory(supervisor: Pid) -> u64 {
    descendants(supervisor)
        .into_iter()
        .map(|process| proportional(process).unwrap_or_else(|| unshared(process)))
        .sum()
}

fn proportional(process: u32) -> Option<u64> {
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

fn unshared(process: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let mut pages = text
        .split(' ')
        .skip(1)
        .map_while(|number| number.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * page_size() as u64
}

/// All visible descendants.
fn descendants(supervisor: Pid) -> Vec<u32> {
    let supervisor = process_tree::number(supervisor);
    if fs::metadata(format!("/proc/{supervisor}/task/{supervisor}/children")).is_err() {
        return descendants_by_parents(supervisor);
    }
    // A process that is re-parented meanwhile can appear twice.
    let mut found = HashSet::new();
    let mut waiting = process_tree::children(supervisor);
    while let Some(process) = waiting.pop() {
        if found.insert(process) {
            waiting.extend(process_tree::children(process));
        }
    }
    found.into_iter().collect()
}

/// The same for a kernel without `/proc/PID/task/TID/children`.
fn descendants_by_parents(supervisor: u32) -> Vec<u32> {
    let mut tree = HashSet::from([supervisor]);
    for entry in process_tree::processes() {
        if entry
            .parent
            .is_some_and(|parent| tree.contains(&process_tree::number(parent)))
        {
            tree.insert(process_tree::number(entry.pid));
        }
    }
    tree.remove(&supervisor);
    tree.into_iter().collect()
}

/// Parses the numbers after the name, which the process chooses and may contain anything.
fn parse(stat: &[u8]) -> Option<ProcessUsage> {
    let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
    let text = String::from_utf8_lossy(&stat[after_name..]);
    let fields: Vec<&str> = text.split_whitespace().collect();
    // The first field here is the third of the file, the state.
    let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
    let cpu = [14, 15, 16, 17]
        .iter()
        .map(|number| field(*number).unwrap_or(0))
        .sum();
    Some(ProcessUsage {
        memory: field(24)? * page_size() as u64,
        tasks: field(20)?,
        cpu,
    })
}

#[cfg(test)]
mod tests {
    use rustix::param::page_size;

    use super::{ProcessUsage, parse};

    #[test]
    fn a_stat_line_is_parsed() {
        let stat = b"12 (a) b) S 1 2 3 0 -1 4 5 6 7 8 10 20 300 4000 20 0 9 0 77 1000 42 18446744073709551615 1";
        assert_eq!(
            parse(stat),
            Some(ProcessUsage {
                memory: 42 * page_size() as u64,
                tasks: 9,
                cpu: 4330
            })
        );
        for line in ["", "1 (a", "1 (a) S 1 2"] {
            assert_eq!(parse(line.as_bytes()), None, "{line}");
        }
    }
}
