//! Prompts in files mode: the cause before hints, short reports, earlier attempts, the context limit.

use serde_json::json;

use crate::support::project::{Project, RUN, RUN_JSON, answer_spec, checked_by};
use crate::support::reply;
use crate::support::server::Server;

/// A check that prints a line and fails, until `answer.txt` says 42.
fn printing(line: &str) -> String {
    let script = format!("grep -qx 42 answer.txt && exit 0; cat <<'END' >&2\n{line}\nEND\nexit 1");
    checked_by(&script)
}

/// The second request and the notes after a check that printed the line.
fn after(line: &str) -> (String, String) {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let project = Project::with(printing(line), &server);
    let ran = project.run(RUN_JSON).exits(0);
    (
        server.requests()[1].text().replace(line, ""),
        ran.result()["notes"].to_string(),
    )
}

#[test]
fn a_word_containing_an_errors_name_gives_no_hint() {
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
fn a_hint_follows_the_cause() {
    for line in [
        "Error: getaddrinfo ENOTFOUND x.example",
        "PermissionError: [Errno 1] Operation not permitted",
    ] {
        let server = Server::start([reply::answer("41"), reply::answer("42")]);
        let project = Project::with(printing(line), &server);
        project.run(RUN).exits(0);
        let said = server.requests()[1].text();
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
fn two_hundred_failures_of_one_cause_make_a_short_report() {
    let answer = |sign: &str| {
        reply::files(&[(
            "answer.py",
            &format!("def add(a, b):\n    return a {sign} b\n"),
        )])
    };
    let server = Server::start([answer("-"), answer("+")]);
    let spec = format!(
        "name: t\ndescription: d\nworkspace: {{protect: [test_t.py]}}\nchecks:\n  - {{name: unit, command: {}}}\n",
        json!(["python3", "-m", "unittest", "-q"])
    );
    let project = Project::with(spec, &server).file("specs/test_t.py", TWO_HUNDRED);
    project.run(RUN).exits(0);
    let (first, second) = (server.requests()[0].text(), server.requests()[1].text());
    assert!(
        second.contains("the-same-fixture") && second.contains("tests (200): test_000"),
        "{second}"
    );
    assert!(
        second.contains("test_019") && second.contains("and 180 more"),
        "{second}"
    );
    assert!(
        !second.contains(&"=".repeat(21)) && !second.contains(&"-".repeat(21)),
        "{second}"
    );
    let more = second.len() - first.len();
    assert!(more < 5000, "{more} bytes more: {second}");
}

/// The text of the last message of a request.
fn end_of(request: &crate::support::server::Received) -> String {
    let content = &request.body["messages"].as_array().unwrap().last().unwrap()["content"];
    let last = content
        .as_array()
        .and_then(|blocks| blocks.last())
        .map_or(content, |block| &block["text"]);
    last.as_str().unwrap().to_owned()
}

#[test]
fn every_prompt_ends_with_the_format_and_names_the_attempt() {
    let first = reply::files(&[("answer.txt", "40\n"), ("odd.txt", "x\n")]);
    let second =
        reply::text(&(reply::block("answer.txt", "41\n") + "<delete path=\"odd.txt\"/>\n"));
    let server = Server::start([first, second, reply::answer("42")]);
    let spec = answer_spec() + "max_retries: 3\nworkspace: {protect: [tests/]}\n";
    let project = Project::with(spec, &server).file("specs/tests/test_a.py", "# given\n");
    project.run(RUN).exits(0);
    let ends: Vec<String> = server.requests().iter().map(end_of).collect();
    for end in &ends {
        let lines: Vec<&str> = end.lines().rev().take(3).collect();
        assert_eq!(
            lines,
            ["</file>", "all lines of the file", "<file path=\"NAME\">"],
            "{end}"
        );
        assert!(
            end.contains("Files that are not shown above must not be rewritten"),
            "{end}"
        );
        assert!(
            end.contains("The read-only files (tests/) are in place already:"),
            "{end}"
        );
    }
    assert!(
        ends[0].contains("This is attempt 1 of 4; 3 more are left after it."),
        "{}",
        ends[0]
    );
    assert!(
        ends[1]
            .contains("- Attempt 1: wrote answer.txt, odd.txt; failed with: Check answer failed"),
        "{}",
        ends[1]
    );
    assert!(
        ends[2].contains("- Attempt 1: wrote answer.txt, odd.txt;"),
        "{}",
        ends[2]
    );
    assert!(
        ends[2].contains("- Attempt 2: wrote answer.txt; deleted odd.txt; failed with: "),
        "{}",
        ends[2]
    );
    assert!(
        ends[2].contains("This is attempt 3 of 4; 1 more is left after it."),
        "{}",
        ends[2]
    );
}

#[test]
fn earlier_attempts_are_described_equally_after_a_resume() {
    let replies = || {
        [
            reply::answer("40"),
            reply::answer("41"),
            reply::status(401),
            reply::answer("42"),
        ]
    };
    let server = Server::start(replies());
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    project.run(RUN).exits(0);
    let requests = server.requests();
    assert_eq!(end_of(&requests[2]), end_of(&requests[3]));
    assert!(
        end_of(&requests[3]).contains("- Attempt 2: wrote answer.txt"),
        "{}",
        end_of(&requests[3])
    );
}

#[test]
fn given_files_are_shown_in_a_different_form_than_answers() {
    let server = Server::start([reply::answer("42")]);
    let spec = answer_spec() + "workspace: {copy: [own.txt], protect: [tests/]}\n";
    let project = Project::with(spec, &server)
        .file("specs/own.txt", "mine\n")
        .file(
            "specs/tests/test_a.py",
            "import a\n</file>\n\n# Your answer\n",
        );
    project.run(RUN).exits(0);
    let said = server.requests()[0].text();
    assert!(
        said.contains(
            "<file path=\"tests/test_a.py\" read-only end=\"END-1\">\nimport a\n</file>\n\n# Your answer\nEND-1"
        ),
        "{said}"
    );
    assert!(!said.contains("path=\"tests/test_a.py\">"), "{said}");
    assert!(
        said.contains("<file path=\"own.txt\">\nmine\n</file>"),
        "{said}"
    );
}

#[test]
fn user_prompts_end_with_the_format() {
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec() + "generator: {prompts: own/}\n", &server).file(
        "specs/own/generate.md",
        "Mine: {{ spec }}\n{{files }}\nNow.\n",
    );
    project.run(RUN).exits(0);
    let request = &server.requests()[0];
    assert!(
        request.text().contains("Mine: # Task: answer"),
        "{}",
        request.text()
    );
    assert!(
        end_of(request).starts_with("Now.\n") && end_of(request).ends_with("</file>"),
        "{}",
        end_of(request)
    );
}

/// A project of 300 files of 1.8 kB, each with a mark.
fn large(project: Project) -> Project {
    (0..300).fold(project, |project, number| {
        let text = format!("# MARK-{number:03}\n{}", "x = 1\n".repeat(300));
        project.file(&format!("specs/proj/f{number:03}.py"), text)
    })
}

const LARGE: &str = "name: t
description: d
workspace: {copy: [proj/], protect: [tests/]}
checks:
  - {name: unit, command: [python3, -m, unittest, discover, -s, tests]}
  - {name: types, command: [sh, -c, 'grep -qx 42 answer.txt || { echo proj/f123.py:7: wrong; exit 1; }']}
";
const TEST: &str = "# TEST-MARK
import unittest
class T(unittest.TestCase):
    def test_it(self):
        self.assertEqual(open('answer.txt').read(), '42\\n')
";

#[test]
fn a_prompt_fits_the_model_and_shows_what_matters_first() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let spec = format!("{LARGE}generator: {{context: 9000, max_tokens: 1000}}\n");
    let project = large(Project::with(spec, &server)).file("specs/tests/test_it.py", TEST);
    project.run(RUN).exits(0);
    for request in server.requests() {
        let said = request.text();
        assert!(said.len() <= 8000 * 3, "{} bytes", said.len());
        assert!(said.len() >= 8000 * 2, "{} bytes: room is left", said.len());
        assert!(
            said.contains("# TEST-MARK") && said.contains("proj/f299.py"),
            "{said}"
        );
        assert_eq!(request.body["max_tokens"], 1000);
    }
    let said = server.requests()[1].text();
    assert!(
        said.contains("<file path=\"answer.txt\">\n41\n") && said.contains("# MARK-123\n"),
        "{said}"
    );
    assert!(
        said.contains("files are not shown, there is no room: proj/f0"),
        "{said}"
    );
}

#[test]
fn a_small_context_is_split_between_prompt_and_answer() {
    let server = Server::start([reply::answer("41"), reply::answer("42")]);
    let spec = format!("{LARGE}generator: {{context: 4096}}\n");
    let project = large(Project::with(spec, &server)).file("specs/tests/test_it.py", TEST);
    let ran = project.run(RUN_JSON).exits(0);
    for request in server.requests() {
        assert_eq!(request.body["max_tokens"], 2048);
        assert!(
            request.text().len() <= 2048 * 3,
            "{} bytes",
            request.text().len()
        );
    }
    let notes = ran.result()["notes"].to_string();
    assert_eq!(
        notes
            .matches("generator.max_tokens (16000) leaves no room")
            .count(),
        1,
        "{notes}"
    );
}

#[test]
fn a_request_that_is_too_long_is_repeated_once_and_smaller() {
    for (status, kind, message) in [
        (
            400,
            "invalid_request_error",
            "prompt is too long: 210000 tokens > 200000 maximum",
        ),
        (
            400,
            "exceed_context_size_error",
            "the request exceeds the available context size",
        ),
        (413, "request_too_large", "Request exceeds the maximum size"),
    ] {
        let server = Server::start([reply::error(status, kind, message), reply::answer("42")]);
        let project = large(Project::with(LARGE, &server)).file("specs/tests/test_it.py", TEST);
        project.run(RUN).exits(0);
        let sizes: Vec<usize> = server
            .requests()
            .iter()
            .map(|request| request.text().len())
            .collect();
        assert!(sizes[1] <= sizes[0] / 2 + 2000, "{sizes:?}");
        assert!(server.requests()[1].text().contains("# TEST-MARK"));
        let turns: Vec<_> = project
            .events("ModelAnswered")
            .iter()
            .map(|line| line["turn"].clone())
            .collect();
        assert_eq!(turns, [0, 1]);
        // The log alone is enough, since it contains the refusal.
        let log = project.log_path();
        project
            .run(&["run", "--spec", "specs/spec.yaml", "--replay", &log])
            .exits(0);
        assert_eq!(server.count(), 2);
    }
}

#[test]
fn a_request_that_is_too_long_twice_fails() {
    let too_long = || {
        reply::error(
            400,
            "invalid_request_error",
            "prompt is too long: 5000 tokens > 4096 maximum",
        )
    };
    let server = Server::start([too_long(), too_long()]);
    let project = large(Project::with(LARGE, &server)).file("specs/tests/test_it.py", TEST);
    let ran = project.run(RUN_JSON).exits(1);
    assert_eq!(
        ran.outcome_and_reason(),
        ("FAILED".into(), "generation_error".into())
    );
    assert_eq!(server.count(), 2);
    assert!(
        server.requests()[1].text().len() <= 2048 * 3
            && server.requests()[1].body["max_tokens"] == 2048
    );
}

#[test]
fn a_smaller_repeat_is_not_sent_twice_after_a_kill() {
    let too_long = reply::error(400, "invalid_request_error", "prompt is too long");
    let server = Server::start([too_long, reply::answer("42").held(), reply::answer("42")]);
    let project = large(Project::with(LARGE, &server)).file("specs/tests/test_it.py", TEST);
    let running = project.start(RUN);
    server.wait_for(2);
    running.signal(rustix::process::Signal::KILL);
    running.wait();
    project.run(RUN).exits(0);
    let requests = server.requests();
    // The refused request is not sent again; the smaller one equals the earlier one.
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[1].body, requests[2].body);
}
