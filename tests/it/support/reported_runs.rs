//! Runs of every outcome and kind, and their reports in all formats. They run once, for all tests that look at reports.

use std::fs;
use std::sync::{Mutex, OnceLock};
use std::thread;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::full_workflow;
use crate::support::project::{Project, RUN, answer_spec};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;
use crate::support::workflow::{Answers, FLOW, workflow};

/// What a model, a test or a user might write to become part of a page.
pub(crate) const HOSTILE: &str = "</pre></style></title></script><script>window.ran=1</script>\"><img src=x onerror=window.ran=1>\
    '><svg onload=window.ran=1></textarea>]]>&lt;b&gt; javascript:window.ran=1 `|\\ \u{202e}\u{1b}[31m\u{9b}2J\u{1b}]8;;http://x.test\u{7}";
/// The same as the name of a file.
const HOSTILE_NAME: &str =
    "<script>window.ran=1<\u{2215}script>\"><img src=x onerror=window.ran=1>'.py";

const PRICE: &str = "price: {input: 3.0, output: 15.0}";

/// The reports of a run.
pub(crate) struct ReportedRun {
    pub name: &'static str,
    pub html: String,
    pub md: String,
    pub junit: String,
    pub json: Value,
}

/// The reports of all runs.
pub(crate) fn reported_runs() -> &'static [ReportedRun] {
    static RUNS: OnceLock<Vec<ReportedRun>> = OnceLock::new();
    RUNS.get_or_init(|| {
        let all: &[fn() -> Vec<ReportedRun>] = &[
            failed_and_log_alone,
            succeeded,
            paused_and_resumed,
            stopped,
            agent,
            workflows,
            hostile_build,
            hostile_workflow,
        ];
        let found = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for run in all {
                scope.spawn(|| {
                    let reports = run();
                    found.lock().unwrap().extend(reports);
                });
            }
        });
        found.into_inner().unwrap()
    })
}

/// The report of one run.
pub(crate) fn reported(name: &str) -> &'static ReportedRun {
    let mut runs = reported_runs().iter();
    runs.find(|run| run.name == name).unwrap()
}

/// All formats of the run that a project has, or of a log in it.
fn report(name: &'static str, project: &Project, log: Option<&str>) -> ReportedRun {
    let printed = |format: &str| {
        let mut arguments = vec!["report", "--format", format, "-o", "-"];
        arguments.extend(log);
        project.run(&arguments).exits(0).stdout
    };
    ReportedRun {
        name,
        html: printed("html"),
        md: printed("md"),
        junit: printed("junit"),
        json: serde_json::from_str(&printed("json")).unwrap(),
    }
}

const TESTS: &str = r#"import unittest
from calc import add, neg

class Calc(unittest.TestCase):
    def test_add(self):
        self.assertEqual(add(1, 2), 3)

    def test_neg(self):
        self.assertEqual(neg(1), -1)

    @unittest.skip("not yet")
    def test_power(self):
        pass
"#;

fn calc(neg: &str) -> String {
    let code = format!(
        "\"\"\"A calculator.\"\"\"\n\n\ndef add(a, b):\n    return a + b  # the sum\n\n\ndef neg(a):\n    return {neg}\n"
    );
    reply::block("calc.py", &code)
}

/// A build with tests that are protected, a baseline, a hidden check and a budget.
fn calculator(generator: &str, server: &Server) -> Project {
    let spec = format!(
        "name: calculator\ndescription: Write calc.py.\nworkspace: {{protect: [tests/]}}\nbaseline: true\nchecks:\n\
         - {{name: unit, command: [python3, -m, unittest, discover, -v, -s, tests], min_tests: 1}}\n\
         - {{name: style, command: [sh, -c, 'echo checked; ! grep -n \"- 0\" calc.py']}}\n\
         - {{name: held, hidden: true, command: [python3, -c, 'import calc']}}\n\
         max_retries: 2\nstuck_after: 0\nbudget: {{usd: 2.0, tokens: 900000}}\ngenerator: {{{generator}{PRICE}}}\n"
    );
    Project::with(spec, server).file("specs/tests/test_calc.py", TESTS)
}

/// Three attempts that fail, an answer that is refused, and a request that is sent again.
fn failed_and_log_alone() -> Vec<ReportedRun> {
    let server = Server::start([
        reply::text(&format!("I write it.\n{}", calc("a"))).usage(1200, 300),
        reply::text("only words").usage(1300, 10),
        reply::status(529),
        reply::text(&calc("a - 0")).usage(1500, 280),
        reply::text(&calc("1 + a")).usage(1700, 260),
    ]);
    let project = calculator("", &server);
    project.run(RUN).exits(1);
    let log = project.read(&project.log_path());
    let elsewhere = Project::new().file("moved.log", &log);
    let mangled = Project::new()
        .file("texts.log", hostile_log(&log, STRUCTURE))
        .file("strings.log", hostile_log(&log, &["event"]));
    vec![
        report("failed", &project, None),
        report("log_alone", &elsewhere, Some("moved.log")),
        report("hostile_texts", &mangled, Some("texts.log")),
        report("hostile_strings", &mangled, Some("strings.log")),
    ]
}

fn succeeded() -> Vec<ReportedRun> {
    let server = Server::start([reply::text(&calc("a")), reply::text(&calc("-a"))]);
    let project = calculator("", &server);
    project.run(RUN).exits(0);
    vec![report("success", &project, None)]
}

fn paused_and_resumed() -> Vec<ReportedRun> {
    let server = Server::start([reply::answer("41"), reply::status(401)]);
    let project = Project::with(answer_spec(), &server);
    project.run(RUN).exits(4);
    let paused = report("paused", &project, None);
    let server = Server::start([reply::answer("42")]);
    project.run_with(&server, RUN).exits(0);
    vec![paused, report("resumed", &project, None)]
}

/// A run that is under way and is then interrupted, and one that is killed.
fn stopped() -> Vec<ReportedRun> {
    let mut reports = Vec::new();
    for (name, signal) in [("interrupted", Signal::INT), ("killed", Signal::KILL)] {
        let server = Server::start([reply::answer("41"), reply::answer("42").held()]);
        let project = Project::with(answer_spec(), &server);
        let running = project.start(RUN);
        server.wait_for(2);
        if name == "interrupted" {
            reports.push(report("running", &project, None));
        }
        running.signal(signal);
        running.wait();
        reports.push(report(name, &project, None));
    }
    reports
}

fn agent() -> Vec<ReportedRun> {
    let write = |neg: &str| {
        let code =
            format!("def add(a, b):\\n    return a + b\\n\\n\\ndef neg(a):\\n    return {neg}\\n");
        reply::bash(&format!("printf '{code}' > calc.py; ls -l"))
    };
    let server = Server::start([
        reply::bash("cat tests/*.py").with_text("I look at the tests."),
        write("a").and_call("python", json!({"command": "print('\\x1b[31mred')\n1/0"})),
        reply::text("Done."),
        write("-a").with_text("A sign was missing."),
        reply::text("All tests pass."),
    ]);
    let project = calculator("mode: agent, ", &server);
    project.run(RUN).exits(0);
    vec![report("agent", &project, None)]
}

fn workflows() -> Vec<ReportedRun> {
    let server = full_workflow::model();
    let project = full_workflow::project(&server);
    let options = ["--price", "3,15"];
    project
        .run(&[full_workflow::FOUR_JOBS, &options].concat())
        .exits(0);
    let whole = report("workflow", &project, None);
    let failed = failing_workflow();
    vec![whole, report("workflow_failed", &failed, None)]
}

/// A workflow of which one of two agents fails.
fn failing_workflow() -> Project {
    let server = Answers::new()
        .on("BEGIN", ["<fork join=\"END\">ONE</fork><fork>TWO</fork>"])
        .on("FIRST", ["<result>one</result>"])
        .on("SECOND", ["no tag at all"; 4])
        .start();
    let project = workflow(&[
        (
            "1_START.md",
            "BEGIN\n<fork join=\"END\">ONE</fork> <fork join=\"END\">TWO</fork>\n",
        ),
        ("ONE.md", "FIRST\n<result>...</result>\n"),
        ("TWO.md", "SECOND\n<result>...</result>\n"),
        ("END.md", "LAST\n<result>...</result>\n"),
    ]);
    let project = project.model(&server);
    project.run(FLOW).exits(1);
    project
}

/// A build whose spec, model, files, tests and checks have hostile names and texts.
fn hostile_build() -> Vec<ReportedRun> {
    let block = reply::block(HOSTILE_NAME, &format!("x = 1  # {HOSTILE}\n"));
    let answer = |text: &str| {
        reply::text(&format!(
            "{HOSTILE}\n{block}{}",
            reply::block("answer.txt", text)
        ))
    };
    let server = Server::start([answer("41\n"), reply::text(HOSTILE), answer("42\n")]);
    let script = "cat *.py; cat *.py >&2; grep -qx 42 answer.txt";
    let tests = "import unittest\n\nclass T(unittest.TestCase):\n    pass\n\ndef fail(self):\n    \
        self.assertEqual(open('answer.txt').read().strip(), '42', NAME)\n\nNAME = TEXT\nsetattr(T, 'test_' + NAME, fail)\n";
    let spec = json!({
        "name": HOSTILE, "description": HOSTILE, "stuck_after": 0, "baseline": false,
        "workspace": {"protect": ["tests/"]},
        "checks": [
            {"name": "<img src=x onerror=window.ran=1>", "command": ["sh", "-c", script]},
            {"name": "unit", "command": ["python3", "-m", "unittest", "discover", "-v", "-s", "tests"]},
        ],
        "generator": {"model": HOSTILE_NAME},
    });
    let name = "specs/<svg onload=window.ran=1>\"'.json";
    let project = Project::new()
        .model(&server)
        .file(name, escaped(&spec))
        .file(
            "specs/tests/test_it.py",
            tests.replace("TEXT", &json!(HOSTILE).to_string()),
        );
    project.run(&["run", "--spec", name]).exits(0);
    vec![report("hostile_build", &project, None)]
}

/// JSON in which every character beyond ASCII is an escape, since a spec must not have invisible ones.
fn escaped(value: &Value) -> String {
    let escape = |letter: char| match letter {
        ' '..='~' => letter.to_string(),
        _ => format!("\\u{:04x}", u32::from(letter)),
    };
    value.to_string().chars().map(escape).collect()
}

/// A workflow whose payloads, inputs and printed texts are hostile, and logs whose every text is.
fn hostile_workflow() -> Vec<ReportedRun> {
    let payload: String = HOSTILE.replace("</", "<\u{2215}");
    let begin = format!("<print>{payload}</print><goto input=\"x\">END</goto>");
    let server = Answers::new()
        .on("BEGIN", [Reply::from(begin)])
        .on("LAST", [Reply::from(format!("<result>{payload}</result>"))])
        .start();
    let project = workflow(&[
        ("1_START.md", "BEGIN\n<goto>END</goto>\n"),
        ("END.md", "LAST\n<result>...</result>\n"),
    ]);
    let project = project.model(&server);
    project.run(FLOW).exits(0);
    let own = report("hostile_payload", &project, None);
    let failed = failing_workflow();
    let log = failed.read(&failed.log_path());
    let mangled = Project::new()
        .file("texts.log", hostile_log(&log, STRUCTURE))
        .file("strings.log", hostile_log(&log, &["event"]));
    vec![
        own,
        report("hostile_workflow_texts", &mangled, Some("texts.log")),
        report("hostile_workflow_strings", &mangled, Some("strings.log")),
    ]
}

/// Fields that decide how the lines of a log belong together.
const STRUCTURE: &[&str] = &[
    "event",
    "ts",
    "run_id",
    "agent_id",
    "state_name",
    "from_state",
    "to_state",
    "phase",
    "outcome",
    "start_state",
];

/// A log in which every other string is hostile.
fn hostile_log(log: &str, kept: &[&str]) -> String {
    let mangle = |line: &str| {
        let mut line: Value = serde_json::from_str(line).unwrap();
        make_hostile(&mut line, kept);
        format!("{line}\n")
    };
    log.lines().map(mangle).collect()
}

fn make_hostile(value: &mut Value, kept: &[&str]) {
    match value {
        Value::String(text) => *text = HOSTILE.to_owned(),
        Value::Array(items) => items.iter_mut().for_each(|item| make_hostile(item, kept)),
        Value::Object(fields) => {
            let others = fields
                .iter_mut()
                .filter(|(name, _)| !kept.contains(&name.as_str()));
            others.for_each(|(_, field)| make_hostile(field, kept));
        }
        _ => {}
    }
}

/// A run of fifty attempts that writes a log of more than ten megabytes.
pub(crate) fn large_project() -> Project {
    let line = |attempt: usize, line: usize| {
        format!(
            "def function_{line}(left, right): return left * {} + right  # <{}>\n",
            line % 7,
            attempt * (line % 11)
        )
    };
    let answers = (0..50).map(|attempt| {
        let file = |number: usize| {
            let code: String = (0..350)
                .map(|index| line(attempt + number, index))
                .collect();
            reply::block(&format!("module_{number}.py"), &code)
        };
        reply::text(&(0..4).map(file).collect::<String>())
    });
    let server = Server::start(answers);
    let spec = "name: large\ndescription: Write modules.\nmax_retries: 49\nstuck_after: 0\n\
        checks: [{name: all, command: [sh, -c, 'cat *.py; exit 1']}]\ngenerator: {context: 900000, max_tokens: 100000}\n";
    let project = Project::with(spec, &server);
    project.run(&[RUN, &["--no-sandbox"]].concat()).exits(1);
    let size = fs::metadata(project.path(&project.log_path()))
        .unwrap()
        .len();
    assert!(10_000_000 < size, "{size}");
    project
}
