//! What `squeue` prints: one line for each task, and of foreign origin. What is not of this fleet is ignored.

use crate::fleet::engine::QueuedTask;
use crate::fleet::engine::slurm::portion::offset_in_name;

/// The format of `squeue`: job and index, state, why it waits, name.
pub(super) const QUEUE_FORMAT: &str = "%i|%t|%r|%j";

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

/// The tasks of a fleet in what `squeue` printed.
pub(super) fn listed_tasks(text: &str, fleet_id: &str) -> Vec<ListedTask> {
    let lines = text.lines().filter_map(|line| tasks_of(line, fleet_id));
    lines.flatten().collect()
}

/// `7_12|PD|Resources|fleet-0a1b2c3d-0`; also `7_[0-41,43%8]` for tasks that wait.
fn tasks_of(line: &str, fleet_id: &str) -> Option<Vec<ListedTask>> {
    let (id, rest) = line.trim().split_once('|')?;
    let (state, rest) = rest.split_once('|')?;
    let (reason, name) = rest.rsplit_once('|')?;
    let offset = offset_in_name(fleet_id, name.trim())?;
    let (job, places) = id.split_once('_')?;
    let job = job.parse().ok()?;
    let state = match state {
        "" => return None,
        "PD" => QueuedTask::Pending(reason.to_owned()),
        _ => QueuedTask::Running,
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

    fn listed(text: &str) -> Vec<(u64, usize, QueuedTask)> {
        let tasks = listed_tasks(text, "0a1b2c3d").into_iter();
        tasks
            .map(|task| (task.job, task.index(), task.state))
            .collect()
    }

    #[test]
    fn lines_of_a_queue_are_read() {
        let waits = |reason: &str| QueuedTask::Pending(reason.to_owned());
        let check = |text: &str, expected: &[(u64, usize, QueuedTask)]| {
            assert_eq!(listed(text), expected, "{text}");
        };
        check(
            "7_12|PD|Resources|fleet-0a1b2c3d-0\n7_3|R|None|fleet-0a1b2c3d-0\n",
            &[(7, 12, waits("Resources")), (7, 3, QueuedTask::Running)],
        );
        check(
            "  7_12|CG|None|fleet-0a1b2c3d-3000  \r\n",
            &[(7, 3012, QueuedTask::Running)],
        );
        check(
            "9_[0-2,43%8]|PD|a|b|fleet-0a1b2c3d-1000",
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
            "7|PD|None|fleet-0a1b2c3d-0",
            "7_12|PD|None|fleet-ffffffff-0",
            "7_12|PD|None",
            "7_12||None|fleet-0a1b2c3d-0",
            "7_x|PD|None|fleet-0a1b2c3d-0",
            "7_[0-99999999999]|PD|None|fleet-0a1b2c3d-0",
            "7_[0-1|PD|None|fleet-0a1b2c3d-0",
            "x_1|PD|None|fleet-0a1b2c3d-0",
            "CLUSTER: other",
        ] {
            check(foreign, &[]);
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
            let text = format!("7_12|{state}|fleet-0a1b2c3d-0");
            let tasks = listed_tasks(&text, "0a1b2c3d");
            assert_eq!(tasks[0].never_starts(), expected, "{state}");
        }
    }
}
