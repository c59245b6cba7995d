//! Portions: the tasks of a fleet as job arrays. An index in an array is limited, and so is the text that lists them.

use crate::fleet::engine::{EngineQueue, EngineTask};

/// How many entries of the plan make a portion. Slurm's limit of an index (`MaxArraySize`) is 1001 unless configured.
const PORTION: usize = 1000;

/// The first entry of the portion that an entry is in.
pub(super) fn offset_of(index: usize) -> usize {
    index / PORTION * PORTION
}

/// The first entries of all portions of a plan.
pub(super) fn offsets(entries: usize) -> impl Iterator<Item = usize> {
    (0..entries).step_by(PORTION)
}

/// The name of a portion's jobs.
pub(super) fn job_name(fleet_id: &str, offset: usize) -> String {
    format!("fleet-{fleet_id}-{offset}")
}

/// A list of indices in ascending order as Slurm takes it: `0-41,43,50-99`.
pub(super) fn index_list(indices: impl IntoIterator<Item = usize>) -> String {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    for index in indices {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == index => *last = index,
            _ => ranges.push((index, index)),
        }
    }
    let texts = ranges.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Which tasks can be submitted beside those that are out: those of one portion. Each array has a limit of its own, so
/// that beside tasks that are out only as many are submitted as make `jobs` with them.
pub(super) fn next_portion(
    ready: &[EngineTask],
    out: &EngineQueue,
    jobs: Option<usize>,
) -> Vec<EngineTask> {
    let is_ready = ready.iter().map(|task| task.index);
    let first = out.tasks.keys().copied().next().or(is_ready.min());
    let Some(offset) = first.map(offset_of) else {
        return Vec::new();
    };
    let free = match jobs {
        Some(jobs) if !out.tasks.is_empty() => jobs.saturating_sub(out.tasks.len()),
        _ => usize::MAX,
    };
    let of_portion = ready.iter().filter(|task| offset_of(task.index) == offset);
    of_portion.take(free).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::engine::QueuedTask;

    #[test]
    fn lists_are_compressed() {
        let check = |indices: &[usize], expected: &str| {
            assert_eq!(index_list(indices.iter().copied()), expected);
        };
        check(&[], "");
        check(&[7], "7");
        check(&[0, 1], "0-1");
        check(&[0, 2, 4], "0,2,4");
        check(&[0, 1, 2, 43, 50, 51, 999], "0-2,43,50-51,999");
        assert_eq!(index_list(0..1000), "0-999");
    }

    /// Slurm takes lists of up to 4 kB.
    #[test]
    fn the_longest_list_of_a_portion_is_short_enough() {
        let length_of = |pattern: &[bool]| {
            let taken = (0..PORTION).filter(|index| pattern[index % pattern.len()]);
            index_list(taken).len()
        };
        let patterns = (2..=8u32).flat_map(|length| {
            (1..1u32 << length).map(move |bits| {
                let pattern = (0..length).map(move |bit| bits & (1 << bit) != 0);
                pattern.collect::<Vec<bool>>()
            })
        });
        let longest = patterns.map(|pattern| length_of(&pattern)).max().unwrap();
        // Pairs with one entry between them are the worst: `0-1,3-4,6-7`.
        assert_eq!(longest, length_of(&[true, true, false]));
        assert!(longest + "%4294967295".len() < 4000, "{longest}");
    }

    #[test]
    fn a_job_is_named_by_its_fleet_and_its_portion() {
        assert_eq!(offsets(0).count(), 0);
        assert_eq!(offsets(1000).collect::<Vec<_>>(), [0]);
        assert_eq!(offsets(2001).collect::<Vec<_>>(), [0, 1000, 2000]);
        assert_eq!(job_name("0a1b2c3d", 1000), "fleet-0a1b2c3d-1000");
    }

    #[test]
    fn portions_follow_each_other() {
        let task = |index: usize| EngineTask {
            index,
            name: format!("t{index}"),
        };
        let ready: Vec<EngineTask> = [3, 999, 1000, 2500].map(task).into();
        let queue = |indices: &[usize]| {
            let tasks = indices.iter().map(|index| (*index, QueuedTask::Running));
            EngineQueue {
                tasks: tasks.collect(),
                ..EngineQueue::default()
            }
        };
        let check = |out: &[usize], jobs: Option<usize>, expected: &[usize]| {
            let chosen = next_portion(&ready, &queue(out), jobs);
            let chosen: Vec<usize> = chosen.iter().map(|task| task.index).collect();
            assert_eq!(chosen, expected, "{out:?} {jobs:?}");
        };
        check(&[], None, &[3, 999]);
        // Of a whole portion Slurm keeps the limit.
        check(&[], Some(1), &[3, 999]);
        check(&[5], None, &[3, 999]);
        check(&[5, 6], Some(3), &[3]);
        check(&[5, 6], Some(2), &[]);
        check(&[1500], None, &[1000]);
        check(&[3500], None, &[]);
        assert!(next_portion(&[], &queue(&[]), None).is_empty());
    }
}
