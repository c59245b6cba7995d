//! `docs/existing-project.md`, step by step in a real git repository: its commands are run, their output is compared.

use std::fs;
use std::path::Path;

use regex::Regex;

use crate::support::needs;
use crate::support::project::{BINARY, Project};
use crate::support::reply;
use crate::support::server::Server;

const SPEC: &str = "specs/stats.yaml";
const STATS: &str =
    "def median(values):\n    ordered = sorted(values)\n    return ordered[len(ordered) // 2]\n";
const TESTS: &str = "import unittest\n\nimport stats\n\n\nclass Stats(unittest.TestCase):\n    \
    def test_odd(self):\n        self.assertEqual(stats.median([3, 1, 2]), 2)\n\n    \
    def test_even(self):\n        self.assertEqual(stats.median([1, 2, 3, 4]), 2.5)\n\n    \
    def test_mode(self):\n        import mode\n        self.assertEqual(mode.mode([1, 2, 2]), 2)\n";
const FIXED: &str = "def median(values):\n    ordered = sorted(values)\n    middle = len(ordered) // 2\n    \
    if len(ordered) % 2:\n        return ordered[middle]\n    return (ordered[middle - 1] + ordered[middle]) / 2\n";
const MODE: &str = "def mode(values):\n    return max(values, key=values.count)\n";

/// The blocks of a page with their languages, in order.
fn blocks(page: &str) -> Vec<(String, String)> {
    let block = Regex::new("(?s)```([a-z]+)\n(.*?)```").unwrap();
    let found = block.captures_iter(page);
    found
        .map(|found| (found[1].to_owned(), found[2].to_owned()))
        .collect()
}

/// Does what the page says about the spec: a new description is written into it, anything else is in it already.
fn follow_spec(project: &Project, block: &str) {
    let spec = project.read(SPEC);
    if block.starts_with("description:") {
        let old = Regex::new("description: [|]\n(  .*\n)+").unwrap();
        assert!(old.is_match(&spec), "{spec}");
        project.write(SPEC, old.replace(&spec, block).as_bytes());
        return;
    }
    for line in block.lines() {
        assert!(
            spec.contains(&format!("{line}\n")),
            "{line} is not in the spec\n{spec}"
        );
    }
}

/// The commands of a block, each with the output that the page shows.
fn commands(block: &str) -> Vec<(String, String)> {
    let mut commands: Vec<(String, String)> = Vec::new();
    for line in block.lines() {
        match (line.strip_prefix("$ "), commands.last_mut()) {
            (Some(command), _) => commands.push((command.to_owned(), String::new())),
            (None, Some((_, output))) => *output += &format!("{line}\n"),
            (None, None) => panic!("output without a command: {line}"),
        }
    }
    commands
}

/// Whether an output is the one of the page, where `…` is anything in a line, or alone any number of lines. The page has
/// an id of its own.
fn is_shown(output: &str, shown: &str) -> bool {
    let shown = shown.replace("910532f4-…", "…");
    let mut pattern = String::from("(?s)^");
    for line in shown.lines() {
        pattern += &match line {
            "…" => ".*".to_owned(),
            line => regex::escape(line).replace('…', "[^\n]*") + " *\n",
        };
    }
    Regex::new(&(pattern + "$")).unwrap().is_match(output)
}

fn repository(server: &Server) -> Project {
    let folder = Path::new(BINARY).parent().unwrap().display();
    let project = Project::new()
        .model(server)
        .env("PATH", &format!("{folder}:/usr/local/bin:/usr/bin:/bin"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("GIT_AUTHOR_NAME", "a")
        .env("GIT_AUTHOR_EMAIL", "a@example.com")
        .env("GIT_COMMITTER_NAME", "a")
        .env("GIT_COMMITTER_EMAIL", "a@example.com")
        .file("README.md", "# stats\n")
        .file("stats.py", STATS)
        .file("tests/test_stats.py", TESTS);
    fs::remove_dir(project.path("specs")).unwrap();
    let begin = "git init -q -b main . && git add . && git commit -q -m begin";
    project.run_in_shell(begin, &[]).exits(0);
    project
}

#[test]
fn the_steps_of_the_page_work_in_a_git_repository() {
    if !needs::program("git") {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/existing-project.md");
    let page = fs::read_to_string(path).unwrap();
    let server = Server::start([reply::files(&[("stats.py", FIXED), ("mode.py", MODE)])]);
    let project = repository(&server);
    let mut wrong = String::new();
    for (language, block) in blocks(&page) {
        if language == "yaml" {
            follow_spec(&project, &block);
            continue;
        }
        for (command, shown) in commands(&block) {
            let ran = project.run_in_shell(&format!("{{ {command}; }} 2>&1"), &[]);
            if !is_shown(&ran.stdout, &shown) || shown.trim() == "…" {
                wrong += &format!("$ {command}\n{}", ran.stdout);
            }
        }
    }
    assert!(wrong.is_empty(), "the page shows another output:\n{wrong}");
    assert_eq!(project.read("stats.py"), FIXED);
    assert_eq!(project.read("mode.py"), MODE);
    assert_eq!(server.count(), 1);
    project.nothing_left();
}

#[test]
fn a_conflict_can_be_solved_with_the_patch() {
    if !needs::program("git") {
        return;
    }
    let spec = "name: a\ndescription: b\nworkspace: {copy: [.], protect: [tests/]}\n\
                checks: [{command: [python3, -m, unittest, discover, -s, tests]}]\n";
    let server = Server::start([reply::files(&[("stats.py", FIXED), ("mode.py", MODE)])]);
    let project = repository(&server).file("build.yaml", spec);
    let shell = |line: &str| project.run_in_shell(line, &[]);
    project.run(&["run", "--spec", "build.yaml"]).exits(0);
    let mine = format!("# A comment of the user.\n\n{STATS}");
    project.write("stats.py", &mine);
    project
        .run(&["apply"])
        .exits(1)
        .says("conflict: stats.py: it was changed since it was copied");
    assert_eq!(project.read("stats.py"), mine);
    assert!(!project.exists("mode.py"));
    shell("git commit -q -a -m mine").exits(0);
    shell("orchestrator diff | git apply --3way").exits(0);
    let both = project.read("stats.py");
    assert!(both.contains("middle - 1") && both.contains("# A comment of the user."));
    assert_eq!(project.read("mode.py"), MODE);
}
