//! What the model is told: the cause before hints, short reports, earlier attempts, a prompt that fits the model.

use serde_json::json;

use crate::project::{Project, RUN, RUN_JSON, checked_by};
use crate::reply;
use crate::server::Server;

/// A check that prints a line and fails, until `answer.txt` says 42.
fn printing(line: &str) -> String {
    let script = format!("grep -qx 42 answer.txt && exit 0; cat <<'END' >&2\n{line}\nEND\nexit 1");
    checked_by(&script)
}

/// What the second request says and what the notes are, after a check that printed the line.
fn after(line: &str) -> (String, String) {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(printing(line), &server);
    let ran = project.run(RUN_JSON).exits(0);
    (server.requests()[1].said().replace(line, ""), ran.result()["notes"].to_string())
}

#[test]
fn a_word_that_contains_an_errors_name_is_no_hint() {
    let none = after("ValueError: nothing of the kind").1;
    for line in [
        "ModuleNotFoundError: No module named calculator",
        "AssertionError: DeletePermission is not in FilePermission",
        "expected the text: operation not permitted by policy",
    ] {
        let (said, notes) = after(line);
        assert!(!said.contains("Hint:"), "{line}: {said}");
        assert_eq!(notes, none, "{line}");
    }
}

#[test]
fn a_hint_stands_behind_the_cause() {
    for line in ["Error: getaddrinfo ENOTFOUND x.example", "PermissionError: [Errno 1] Operation not permitted"] {
        let server = Server::start([reply::answer("41"), reply::answer("42")]);
        let project = Project::with(printing(line), &server);
        project.run(RUN).exits(0);
        let said = server.requests()[1].said();
        let (cause, hint) = (said.rfind(line).unwrap(), said.find("Hint:").unwrap());
        assert!(cause < hint, "{said}");
    }
}

const TWO_HUNDRED: &str = "import unittest
from answer import add

class T(unittest.TestCase):
    def setUp(self):
        self.assertEqual(add(2, 3), 5, 'the-same-fixture')

for number in range(200):
    setattr(T, f'test_{number:03d}', lambda self: None)
";

#[test]
fn two_hundred_tests_that_fail_by_one_fixture_cost_little() {
    let answer = |sign: &str| reply::files(&[("answer.py", &format!("def add(a, b):\n    return a {sign} b\n"))]);
    let server = Server::start([answer("-"), answer("+")]);
    let spec = format!(
        "name: t\ndescription: d\nworkspace: {{protect: [test_t.py]}}\nchecks:\n  - {{name: unit, command: {}}}\n",
        json!(["python3", "-m", "unittest", "-q"])
    );
    let project = Project::with(spec, &server).file("specs/test_t.py", TWO_HUNDRED);
    project.run(RUN).exits(0);
    let (first, second) = (server.requests()[0].said(), server.requests()[1].said());
    assert!(second.contains("the-same-fixture") && second.contains("tests (200): test_000"), "{second}");
    assert!(second.contains("test_019") && second.contains("and 180 more"), "{second}");
    assert!(!second.contains(&"=".repeat(21)) && !second.contains(&"-".repeat(21)), "{second}");
    let more = second.len() - first.len();
    assert!(more < 5000, "{more} bytes more: {second}");
}
