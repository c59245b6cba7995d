//! Agents of a workflow run at the same time, as many as `--jobs` allows, and what they cost the orchestrator is bounded.

use std::fs;

use crate::support::project::Project;
use crate::support::reply;
use crate::support::server::Server;
use crate::support::workflow::{FLOW, workflow};

/// The most that the orchestrator may have used of the memory, in kB.
const MAX_MEMORY: u64 = 64 << 10;

/// A process as `/proc` shows it.
struct ProcessStatus(u32);

impl ProcessStatus {
    /// The number in a line of its status, such as `Threads:`.
    fn number(&self, line: &str) -> u64 {
        let text = fs::read_to_string(format!("/proc/{}/status", self.0)).unwrap_or_default();
        let found = text.lines().find_map(|known| known.strip_prefix(line));
        let number = found.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        number.unwrap_or(0)
    }

    /// How many files it has open.
    fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.0)).map_or(0, Iterator::count)
    }
}

/// So many forks of one state, as a script prints them.
fn forks(count: usize, join: &str, state: &str) -> String {
    format!("for i in $(seq {count}); do echo \"<fork join='{join}' n='$i'>{state}</fork>\"; done")
}

#[test]
fn scripts_that_wait_for_each_other_both_run() {
    let project = workflow(&[
        (
            "START.sh",
            "mkfifo there back; echo '<fork join=\"END\">A</fork><fork>B</fork>'",
        ),
        (
            "A.sh",
            "echo hello > there; read line < back; echo \"<result>$line</result>\"",
        ),
        (
            "B.sh",
            "read line < there; echo thanks > back; echo \"<result>$line</result>\"",
        ),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]);
    assert_eq!(
        project.succeed(&[]),
        r#"{"main_a1":"thanks","main_b2":"hello"}"#
    );
}

#[test]
fn a_parent_and_its_worker_run_at_the_same_time() {
    let project = workflow(&[
        (
            "START.sh",
            "mkfifo gate; echo '<fork next=\"PARENT\">WORKER</fork>'",
        ),
        (
            "PARENT.sh",
            "echo from the parent > gate; echo '<result>parent</result>'",
        ),
        (
            "WORKER.sh",
            "read line < gate; echo \"<result>$line</result>\"",
        ),
    ]);
    assert_eq!(project.succeed(&["--jobs", "2"]), "parent");
    assert_eq!(
        project.state()["results"]["main_worker1"],
        "from the parent"
    );
}

#[test]
fn four_states_run_at_the_same_time_unless_jobs_says_otherwise() {
    for (jobs, at_once) in [(&[][..], 4), (&["--jobs", "1"], 1), (&["--jobs", "6"], 6)] {
        let server = Server::answering(|_| reply::text("<result>w</result>").held());
        let project = workflow(&[
            ("START.sh", &forks(6, "END", "W")),
            ("W.md", "Work."),
            ("END.sh", "echo '<result></result>'"),
        ])
        .model(&server);
        let mut running = project.start(&[FLOW, jobs].concat());
        let mut answered = 0;
        while answered < 6 {
            let expected = (answered + at_once).min(6);
            server.wait_for(expected);
            assert_eq!(server.count(), expected, "{jobs:?}");
            server.release();
            answered = expected;
            running.until("the answers are taken", || {
                finished_states(&project) >= answered
            });
        }
        running.wait().exits(0);
        project.nothing_left();
    }
}

/// How many markdown states the log has ended.
fn finished_states(project: &Project) -> usize {
    let log = fs::read_to_string(project.path(&project.log_path())).unwrap_or_default();
    log.matches("\"event\":\"AgentTerminated\"").count()
}

/// Every worker has two states, so that all 200 of them are alive when the first of them ends.
#[test]
fn two_hundred_agents_end_eight_at_a_time_in_bounded_memory() {
    // In the shell alone: other programs would make up most of the time. The worker that opens the gate has seen all.
    let count = "at_work() { set -- running/*; echo $# | tee -a counts; }
         : > running/$ORCHESTRATOR_AGENT_ID; at_work > /dev/null
         until [ -e open ] || [ $(at_work) -ge 8 ]; do sleep 0.02; done; : > open
         rm running/$ORCHESTRATOR_AGENT_ID";
    let project = workflow(&[
        (
            "START.sh",
            &format!("mkdir running; {}", forks(200, "END", "W")),
        ),
        (
            "W.sh",
            &format!("{count}; : > /tmp/mine; echo '<goto>LAST</goto>'"),
        ),
        (
            "LAST.sh",
            "test -e /tmp/mine && echo \"<result>$ORCHESTRATOR_AGENT_ID</result>\"",
        ),
        (
            "END.sh",
            "cp $ORCHESTRATOR_INPUT_FILE joined; mkfifo gate; read line < gate; echo '<result>end</result>'",
        ),
    ]);
    let mut running = project.start(&[FLOW, &["--jobs", "8", "--quiet"]].concat());
    let (mut threads, mut descriptors) = (0, 0);
    let status = ProcessStatus(running.id());
    let mut watch = |what: &str, is_reached: &dyn Fn() -> bool| {
        running.until(what, || {
            threads = threads.max(status.number("Threads:"));
            descriptors = descriptors.max(status.descriptors());
            is_reached()
        });
    };
    for begun in [50, 100, 150, 200] {
        let counts = project.path("workspace/counts");
        let lines = || {
            fs::read_to_string(&counts)
                .unwrap_or_default()
                .lines()
                .count()
        };
        watch("so many workers have begun", &|| lines() >= begun);
    }
    watch("the last script waits", &|| {
        project.exists("workspace/gate")
    });
    let memory = status.number("VmHWM:");
    let left = (status.number("Threads:"), status.descriptors());
    fs::write(project.path("workspace/gate"), "\n").unwrap();
    assert_eq!(running.wait().exits(0).stdout, "end\n");
    let counts = project.workspace("counts");
    let most = counts
        .lines()
        .map(|line| line.trim().parse::<usize>().unwrap())
        .max();
    assert_eq!(most, Some(8));
    assert_eq!(project.state()["results"].as_object().unwrap().len(), 201);
    assert!(
        project
            .workspace("joined")
            .ends_with(r#""main_w200":"main_w200"}"#)
    );
    assert!(memory > 0 && memory < MAX_MEMORY, "{memory} kB");
    assert!((1..=24).contains(&threads), "{threads} threads");
    // Each living agent holds a few; those that have ended hold none.
    assert!(descriptors < 200 * 7, "{descriptors} descriptors");
    assert!(left.0 < 8 && left.1 < 64, "{left:?}");
    project.nothing_left();
}
