//! Output in a step of GitHub Actions: groups, annotations, the summary.

use crate::support::project::{Project, RUN, checked_by};
use crate::support::reply;
use crate::support::server::Server;

const TEST: &str = "import unittest\nfrom calc import add\n\n\nclass Sums(unittest.TestCase):\n    \
                    def test_add(self):\n        self.assertEqual(add(1, 2), 3)\n";
const SPEC: &str = "name: sums\ndescription: A function add in calc.py.\nworkspace: {protect: [../tests/]}\nbaseline: \
                    false\nchecks:\n  - name: unit\n    command: [python3, -m, unittest, discover, -s, tests, -t, .]\n";

fn project(server: &Server) -> Project {
    Project::with(SPEC, server)
        .file("tests/test_sums.py", TEST)
        .file("tests/__init__.py", "")
        .env("GITHUB_ACTIONS", "true")
}

fn calc(operator: &str) -> reply::Reply {
    let code = format!("def add(a, b):\n    return a {operator} b\n");
    reply::files(&[("calc.py", &code)])
}

#[test]
fn phases_are_groups_and_failed_tests_are_annotations() {
    let server = Server::start([calc("-"), calc("+")]);
    let ran = project(&server).run(RUN).exits(0);
    let commands: Vec<&str> = ran
        .stderr
        .lines()
        .filter(|line| line.starts_with("::"))
        .collect();
    let [groups, errors] = ["::group::", "::error "].map(|word| {
        let found = commands.iter().filter(|line| line.starts_with(word));
        found.copied().collect::<Vec<_>>()
    });
    let expected = ["init", "generating", "testing", "patching", "testing"];
    assert_eq!(groups.len(), expected.len(), "{}", ran.transcript());
    for (group, phase) in groups.iter().zip(expected) {
        assert!(
            group.starts_with(&format!("::group::{phase} (attempt ")),
            "{group}"
        );
    }
    assert_eq!(errors.len(), 1, "{}", ran.transcript());
    assert!(
        errors[0]
            .starts_with("::error file=tests/test_sums.py,line=7,title=test_add (tests.test_sums.Sums.test_add)::AssertionError"),
        "{}",
        errors[0]
    );
    let ends = commands
        .iter()
        .filter(|line| **line == "::endgroup::")
        .count();
    assert_eq!(ends, groups.len(), "{}", ran.transcript());
    assert!(
        commands.ends_with(&["::endgroup::"]),
        "{}",
        ran.transcript()
    );
}

#[test]
fn the_result_is_appended_to_the_summary() {
    let server = Server::start([calc("+")]);
    let project = project(&server);
    let summary = project.outside("summary.md");
    std::fs::write(&summary, "# before\n").unwrap();
    let project = project.env("GITHUB_STEP_SUMMARY", &summary.display().to_string());
    project.run(RUN).exits(0);
    let text = std::fs::read_to_string(&summary).unwrap();
    assert!(
        text.starts_with("# before\n### orchestrator\n\n| | |\n|---|---|\n| result | SUCCESS"),
        "{text}"
    );
    assert!(
        text.contains("| unit | passed | 1 passed, 0 failed, 0 skipped |\n"),
        "{text}"
    );
}

#[test]
fn elsewhere_nothing_is_written_for_it() {
    let server = Server::start([calc("+")]);
    let project = project(&server).without("GITHUB_ACTIONS");
    let summary = project.outside("summary.md");
    let project = project.env("GITHUB_STEP_SUMMARY", &summary.display().to_string());
    let ran = project.run(RUN).exits(0);
    assert!(!ran.stderr.contains("::group::"), "{}", ran.transcript());
    assert!(!summary.exists());
}

#[test]
fn a_summary_that_cannot_be_written_is_a_warning() {
    let server = Server::start([calc("+")]);
    let project = project(&server).env("GITHUB_STEP_SUMMARY", "/proc/none");
    project
        .run(RUN)
        .exits(0)
        .says("warning: cannot write the step summary");
}

#[test]
fn what_a_check_prints_is_not_a_command() {
    let script = "echo '::error::forged'; echo '##[error]forged'; grep -qx 42 answer.txt";
    let forged = reply::text(&format!(
        "::set-output name=a::b\n{}",
        reply::block("answer.txt", "41\n")
    ));
    let server = Server::start([forged, reply::answer("42")]);
    let ran = Project::with(checked_by(script), &server)
        .env("GITHUB_ACTIONS", "true")
        .run(RUN)
        .exits(0);
    for line in ran.stderr.lines().map(str::trim_start) {
        let is_command = line.starts_with("::") || line.contains("##[");
        let is_own = line.starts_with("::group::") || line == "::endgroup::";
        assert!(!is_command || is_own, "{line}\n{}", ran.transcript());
    }
}
