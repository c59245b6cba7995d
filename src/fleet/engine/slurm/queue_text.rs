//! What `squeue` prints: one line for each task, and of foreign origin. What is not of this fleet is ignored.

use crate::fleet::engine::QueuedTask;

/// The format of `squeue`: job and index, state, why it waits.
pub(super) const QUEUE_FORMAT: &str = "%i|%t|%r";

/// A task in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedTask {
    pub(super) offset: usize,
    /// The number of the job, which Slurm may give out again.
    pub(super) job: u64,
    /// Its place in the portion.
    pub(super) place: usize,
    pub(super) state: QueuedTask,
}

impl ListedTask {
    /// The index of the entry in the plan.
    pub(super) fn index(&self) -> usize {
        self.offset + self.place
    }

    /// Whether Slurm holds it until an administrator releases it: after a failed start, or one whose number it has given
    /// out twice.
    pub(super) fn never_starts(&self) -> bool {
        match &self.state {
            QueuedTask::Running => false,
            QueuedTask::Pending(reason) => {
                let reason = reason.replace('_', " ").to_lowercase();
                reason == "jobheldadmin" || reason.ends_with("requeued held")
            }
        }
    }
}

/// The tasks of a portion in what `squeue` printed for its name.
pub(super) fn listed_tasks(text: &str, offset: usize) -> Vec<ListedTask> {
    let lines = text.lines().filter_map(|line| tasks_of(line, offset));
    lines.flatten().collect()
}

/// `7_12|PD|Resources`; also `7_[0-41,43%8]` for tasks that wait.
fn tasks_of(line: &str, offset: usize) -> Option<Vec<ListedTask>> {
    let (id, rest) = line.trim().split_once('|')?;
    let (state, reason) = rest.split_once('|')?;
    let (job, places) = id.split_once('_')?;
    let job = job.parse().ok()?;
    let state = match state {
        "PD" => QueuedTask::Pending(reason.to_owned()),
        state if state.len() == 1 || state.len() == 2 => QueuedTask::Running,
        _ => return None,
    };
    let tasks = places_of(places)?.into_iter().map(|place| ListedTask {
        offset,
        job,
        place,
        state: state.clone(),
    });
    Some(tasks.collect())
}

/// `12`, or `[0-41,43%8]`.
fn places_of(text: &str) -> Option<Vec<usize>> {
    let Some(list) = text.strip_prefix('[') else {
        return Some(vec![text.parse().ok()?]);
    };
    let list = list.strip_suffix(']')?;
    let list = list.split_once('%').map_or(list, |(list, _)| list);
    let mut places = Vec::new();
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        // A foreign number must not take all memory.
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        places.extend((first..=last).map(usize::from));
    }
    Some(places)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str, offset: usize) -> Vec<(u64, usize, QueuedTask)> {
        let tasks = listed_tasks(text, offset).into_iter();
        tasks
            .map(|task| (task.job, task.index(), task.state))
            .collect()
    }

    #[test]
    fn lines_of_a_queue_are_read() {
        let waits = |reason: &str| QueuedTask::Pending(reason.to_owned());
        let check = |offset: usize, text: &str, expected: &[(u64, usize, QueuedTask)]| {
            assert_eq!(listed(text, offset), expected, "{text}");
        };
        check(
            0,
            "7_12|PD|Resources\n7_3|R|None\n",
            &[(7, 12, waits("Resources")), (7, 3, QueuedTask::Running)],
        );
        check(
            3000,
            "  7_12|CG|None  \r\n",
            &[(7, 3012, QueuedTask::Running)],
        );
        check(
            1000,
            "9_[0-2,43%8]|PD|a|b",
            &[
                (9, 1000, waits("a|b")),
                (9, 1001, waits("a|b")),
                (9, 1002, waits("a|b")),
                (9, 1043, waits("a|b")),
            ],
        );
        for foreign in [
            "",
            "slurm_load_jobs error: x",
            "7|PD|None",
            "7_12|PD",
            "7_12||None",
            "7_12|pending|None",
            "7_x|PD|None",
            "7_[0-99999999999]|PD|None",
            "7_[0-1|PD|None",
            "x_1|PD|None",
            "CLUSTER: other",
        ] {
            check(0, foreign, &[]);
        }
    }

    #[test]
    fn a_task_that_an_administrator_has_to_release_never_starts() {
        for (state, expected) in [
            ("PD|JobHeldAdmin", true),
            ("PD|launch failed requeued held", true),
            ("PD|launch_failed_requeued_held", true),
            ("PD|JobHeldUser", false),
            ("PD|Resources", false),
            ("R|JobHeldAdmin", false),
        ] {
            let tasks = listed_tasks(&format!("7_12|{state}"), 0);
            assert_eq!(tasks[0].never_starts(), expected, "{state}");
        }
    }
}
