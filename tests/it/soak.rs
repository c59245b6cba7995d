//! `serve` over ten thousand commands and under a flood: its resources must not grow.

use std::collections::BTreeSet;
use std::fs;

use crate::support::project::Project;
use crate::support::serve_client::{Serving, command};

/// Requests sent ahead of their answers.
const AHEAD: usize = 100;
/// Allowed variation of memory in all processes together, in KiB.
const SLACK: u64 = 4 << 10;

/// The resources of a server and all its children.
#[derive(Debug)]
struct Holdings {
    processes: usize,
    threads: usize,
    descriptors: usize,
    memory: u64,
}

fn holdings(server: u32) -> Holdings {
    let family = family(server);
    let count = |what: &str| -> usize {
        family
            .iter()
            .map(|id| fs::read_dir(format!("/proc/{id}/{what}")).map_or(0, Iterator::count))
            .sum()
    };
    Holdings {
        processes: family.len(),
        threads: count("task"),
        descriptors: count("fd"),
        memory: family.iter().map(|id| status(*id, "VmRSS")).sum(),
    }
}

/// A process and its descendants.
fn family(id: u32) -> BTreeSet<u32> {
    let children = |id: u32| {
        let tasks = fs::read_dir(format!("/proc/{id}/task"))
            .into_iter()
            .flatten()
            .flatten();
        let texts = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
        texts.flat_map(|text| {
            text.split_whitespace()
                .map(|id| id.parse().unwrap())
                .collect::<Vec<u32>>()
        })
    };
    let mut all = BTreeSet::from([id]);
    let mut waiting = vec![id];
    while let Some(next) = waiting.pop() {
        let new: Vec<u32> = children(next).filter(|child| all.insert(*child)).collect();
        waiting.extend(new);
    }
    all
}

/// A figure of a process in KiB.
fn status(id: u32, field: &str) -> u64 {
    let text = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok())
        .unwrap_or_default()
}

/// Runs a range of commands over all environments, many sent ahead of their answers.
fn run(serving: &mut Serving, rounds: std::ops::Range<usize>) {
    let request = |round: usize| match round % 6 {
        0 => command("bash", &format!("x={round}; echo $x")),
        1 => command("python", &format!("x = {round}\nx")),
        2 => command("editor", &format!("edit note 1-1\nline {round}")),
        3 => command("bash", "false | true; (exit 3)"),
        4 => command("python", "1/0"),
        _ => command("editor", "search \"line [0-9]+\" *"),
    };
    let mut sent = rounds.start;
    for round in rounds.clone() {
        while sent < rounds.end.min(round + AHEAD) {
            serving.send(&request(sent));
            sent += 1;
        }
        let answer = serving.answer();
        let expected = match round % 6 {
            0 | 1 => format!("{round}\n"),
            2 => "Edited note lines 1-1".to_owned(),
            3 => String::new(),
            4 => "ZeroDivisionError".to_owned(),
            _ => format!("note:1: line {}", round - 3),
        };
        assert!(
            answer.output().contains(&expected),
            "{round}: {}",
            answer.output()
        );
        assert_eq!(
            answer.is_success(),
            ![3, 4].contains(&(round % 6)),
            "{round}"
        );
    }
}

#[test]
fn ten_thousand_commands_leave_nothing_behind() {
    let project = Project::new().file("note", "line 0\nend\n");
    let mut serving = Serving::start(&project);
    assert!(serving.editor("view note /line/ /end/").is_success());
    run(&mut serving, 0..1002);
    let early = holdings(serving.id());
    run(&mut serving, 1002..10_002);
    let late = holdings(serving.id());
    assert_eq!(
        (late.processes, late.threads),
        (early.processes, early.threads),
        "{early:?} {late:?}"
    );
    assert_eq!(late.descriptors, early.descriptors, "{early:?} {late:?}");
    assert!(late.memory < early.memory + SLACK, "{early:?} {late:?}");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn environments_that_die_and_restart_leave_nothing_behind() {
    let project = Project::new();
    let mut serving = Serving::start(&project);
    let kill = |serving: &mut Serving| {
        for (environment, death) in [("bash", "exit 3"), ("python", "import os; os._exit(3)")] {
            assert!(!serving.ask(environment, death).is_success());
            assert!(serving.ask(environment, "").is_success());
            assert!(serving.control(environment, "restart").is_success());
            assert!(serving.ask(environment, "").is_success());
        }
    };
    kill(&mut serving);
    let early = holdings(serving.id());
    (0..10).for_each(|_| kill(&mut serving));
    let late = holdings(serving.id());
    assert_eq!(
        (late.processes, late.threads),
        (early.processes, early.threads),
        "{early:?} {late:?}"
    );
    assert_eq!(late.descriptors, early.descriptors, "{early:?} {late:?}");
    serving.end().exits(0);
}

#[test]
fn a_flood_is_truncated_and_counted_in_bounded_memory() {
    const FLOOD: usize = 400_000_000;
    let project = Project::new();
    let mut serving = Serving::start(&project);
    serving.bash("true");
    let base = status(serving.id(), "VmHWM");
    let answer = serving.bash(&format!("head -c {FLOOD} /dev/zero | tr '\\0' x"));
    let output = answer.shows();
    let (head, rest) = output.split_at(5_000_000);
    let (word, tail) = rest.split_at(rest.len() - 5_000_000);
    assert!(head.bytes().chain(tail.bytes()).all(|byte| byte == b'x'));
    assert!(
        word.contains(&(FLOOD - 10_000_000).to_string()) && word.len() < 200,
        "{word}"
    );
    let peak = status(serving.id(), "VmHWM");
    assert!(peak < base + (64 << 10), "{base} KiB grew to {peak} KiB");
    assert_eq!(serving.bash("echo on").shows(), "on\n");
    serving.end().exits(0);
}
