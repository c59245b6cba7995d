//! The examples in `workflows/`, with a scripted model over HTTP and from their recordings.
//!
//! The answers of the model are in `workflow_examples/`, by the beginning of their conversation. After a change of a prompt
//! `UPDATE_RECORDINGS=1` rewrites the recordings.

use std::collections::{BTreeMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::support::project::Project;
use crate::support::reply::{self, Reply};
use crate::support::running::Ran;
use crate::support::server::{Received, Server};

/// The examples, and the end of what each prints.
const EXAMPLES: [(&str, &str); 4] = [
    ("fix", "rounds half up to whole cents.\n"),
    ("research", "changed on Thursday afternoon.\n"),
    ("build", "all cases pass\n"),
    ("tidy", "moved 5 files; moves.tsv has the list\n"),
];
/// The most that a recording may have.
const RECORDING_BYTES: usize = 100_000;

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A project with the examples and the spec that one of them does the same as.
fn project() -> Project {
    let project = Project::new();
    for folder in ["workflows", "specs/agent"] {
        copy(&repository().join(folder), &project.path(folder));
    }
    project
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        match entry.path().is_dir() {
            true => copy(&entry.path(), &to.join(entry.file_name())),
            false => drop(fs::copy(entry.path(), to.join(entry.file_name())).unwrap()),
        }
    }
}

fn json(path: &str) -> Value {
    let text = fs::read_to_string(repository().join("tests/it").join(path)).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The answers of a model, and those of a person.
struct ExampleScript {
    conversations: Vec<ScriptedConversation>,
    answers: Vec<String>,
}

struct ScriptedConversation {
    /// Part of the first message.
    begins: String,
    turns: VecDeque<Value>,
}

impl ExampleScript {
    fn of(example: &str) -> ExampleScript {
        // The answers of the agent mode's example, without a tag in them.
        if example == "build" {
            return ExampleScript::new("", json("examples/slug.json").as_array().unwrap());
        }
        let script = json(&format!("workflow_examples/{example}.json"));
        let conversations = script["conversations"].as_array().unwrap().iter();
        let answers = script["answers"].as_array().into_iter().flatten();
        ExampleScript {
            conversations: conversations
                .map(|one| ScriptedConversation {
                    begins: one["begins"].as_str().unwrap().to_owned(),
                    turns: one["turns"].as_array().unwrap().iter().cloned().collect(),
                })
                .collect(),
            answers: answers
                .map(|answer| answer.as_str().unwrap().to_owned())
                .collect(),
        }
    }

    fn new(begins: &str, turns: &[Value]) -> ExampleScript {
        let turns = turns.iter().cloned().collect();
        ExampleScript {
            conversations: vec![ScriptedConversation {
                begins: begins.to_owned(),
                turns,
            }],
            answers: Vec::new(),
        }
    }

    /// A server that answers each conversation in its turns. Agents ask at the same time, so their order is not fixed.
    fn serve(mut self) -> Server {
        Server::answering(move |request| {
            let first = first_message(request);
            let mut known = self.conversations.iter_mut();
            let turn = known
                .find(|one| first.contains(&one.begins))
                .and_then(|one| one.turns.pop_front());
            turn.map_or_else(|| reply::status(400), |turn| scripted_reply(&turn))
        })
    }
}

fn first_message(request: &Received) -> String {
    request.body["messages"][0]["content"].to_string()
}

fn scripted_reply(turn: &Value) -> Reply {
    let calls = turn["calls"].as_array().unwrap();
    calls.iter().fold(
        reply::text(turn["text"].as_str().unwrap()),
        |reply, call| reply.and_call(call["tool"].as_str().unwrap(), call["arguments"].clone()),
    )
}

/// Runs an example with a scripted model and person; returns the project and what it printed.
fn with_a_model(example: &str) -> (Project, String) {
    let script = ExampleScript::of(example);
    let answers = script.answers.clone();
    let server = script.serve();
    let project = project().model(&server);
    let workflow = format!("workflows/{example}");
    let mut ran = project.run(&["run", "--workflow", &workflow]);
    for answer in answers {
        ran.exits(4).says("--answer TEXT");
        ran = project.run(&["run", "--workflow", &workflow, "--answer", &answer]);
    }
    let stdout = ran.exits(0).stdout;
    (project, stdout)
}

fn record(example: &str, project: &Project) {
    let recording = repository().join(format!("workflows/{example}.log"));
    fs::copy(project.path(&project.log_path()), recording).unwrap();
}

/// The files of an example, without those of others.
fn files_of(example: &str, project: &Project) -> BTreeMap<String, Vec<u8>> {
    let mut files = project.workspace_files();
    files.retain(|name, _| name.starts_with(&format!("{example}-example/")));
    assert!(!files.is_empty(), "{example} made no files");
    files
}

#[test]
fn the_recorded_workflows_replay_offline() {
    // All in one root: an example does not depend on what another one left.
    let replayed = project().without("ANTHROPIC_API_KEY");
    for (example, end) in EXAMPLES {
        let (recorded, stdout) = with_a_model(example);
        assert!(stdout.ends_with(end), "{example}: {stdout}");
        if std::env::var_os("UPDATE_RECORDINGS").is_some() {
            record(example, &recorded);
        }
        let recording = format!("workflows/{example}.log");
        fs::copy(repository().join(&recording), replayed.path(&recording)).unwrap();
        let workflow = format!("workflows/{example}");
        let ran = replayed.run(&["run", "--workflow", &workflow, "--replay", &recording]);
        assert_eq!(ran.exits(0).stdout, stdout, "{example}");
        assert_eq!(
            files_of(example, &replayed),
            files_of(example, &recorded),
            "{example}"
        );
        recorded.nothing_left();
    }
    replayed.nothing_left();
}

#[test]
fn the_recordings_are_small_and_name_no_folder_but_their_root() {
    for (example, _) in EXAMPLES {
        let path = repository().join(format!("workflows/{example}.log"));
        let text = fs::read_to_string(path).unwrap();
        assert!(text.len() < RECORDING_BYTES, "{example}: {}", text.len());
        let started: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
        let text = text.replace(started["scope_dir"].as_str().unwrap(), "");
        for folder in ["/tmp/", "/home/", "/root/", "/work/", "/run/", "/var/"] {
            assert!(!text.contains(folder), "{example} names {folder}");
        }
    }
}

#[test]
fn the_examples_have_no_findings_and_can_be_drawn() {
    let project = project();
    for (example, _) in EXAMPLES {
        let workflow = format!("workflows/{example}");
        let findings = project.run(&["lint", &workflow, "--json"]).exits(0).stdout;
        assert_eq!(findings.trim(), "{\"findings\":[]}", "{example}");
        let diagram = project.run(&["diagram", &workflow]).exits(0).stdout;
        assert!(diagram.starts_with("flowchart TD\n"), "{diagram}");
        assert!(diagram.contains("1_START.sh"), "{diagram}");
    }
}

/// Runs the same task as a spec and as a workflow, in a root each, with the same answers.
fn both_ways(turns: &[Value]) -> [(Project, Ran); 2] {
    let start = ["run", "--workflow", "workflows/build/TEST.sh"];
    let spec = ["run", "--spec", "specs/agent/slug.yaml"];
    [&spec[..], &start].map(|arguments| {
        let server = ExampleScript::new("", turns).serve();
        let project = project().model(&server);
        let ran = project.run(arguments);
        assert_eq!(server.count(), turns.len(), "{}", ran.transcript());
        (project, ran)
    })
}

#[test]
fn the_build_workflow_ends_like_the_build_of_its_spec() {
    let answers = json("examples/slug.json");
    let [(built, build), (walked, workflow)] = both_ways(answers.as_array().unwrap());
    build.exits(0);
    assert_eq!(workflow.exits(0).stdout, "all cases pass\n");
    assert_eq!(walked.workspace_files(), built.workspace_files());
    assert_eq!(
        built.workspace_names(),
        ["slug.sh", "tests/cases.sh"],
        "the tests are the same, and nothing else is left"
    );
}

#[test]
fn the_build_workflow_gives_up_like_the_build_of_its_spec() {
    let wrong = serde_json::json!({"text": "", "calls": [
        {"tool": "bash", "arguments": {"command": "date +%N > slug.sh; echo true > tests/cases.sh"}}
    ]});
    let done = serde_json::json!({"text": "It is done.", "calls": []});
    // One attempt and five patches.
    let turns: Vec<Value> = (0..6).flat_map(|_| [wrong.clone(), done.clone()]).collect();
    let [(built, build), (walked, workflow)] = both_ways(&turns);
    build.exits(1).says("retries_exhausted");
    workflow.exits(1).says("still fail after 5 patches");
    for project in [built, walked] {
        let tests = project.workspace("tests/cases.sh");
        assert!(tests.contains("check 'Hello World'"), "{tests}");
    }
}

#[test]
fn the_attempts_at_a_fix_are_bounded() {
    let server = Server::answering(|_| reply::text("I cannot find it."));
    let project = project()
        .model(&server)
        .file("mine/tests/test_it.py", "import missing\n");
    let start = "workflows/fix/TEST.sh";
    project
        .run(&["run", "--workflow", start, "--project-dir", "mine"])
        .exits(1)
        .says("not accepted after 5 attempts");
    assert_eq!(server.count(), 5);
    // The files are those of the user.
    assert_eq!(project.read("mine/tests/test_it.py"), "import missing\n");
}

#[test]
fn a_list_of_moves_that_leaves_the_folder_is_not_asked_about() {
    let list = |line: &str| {
        [
            reply::bash(&format!("printf '{line}\\n' > moves.tsv")),
            reply::text("It is written."),
        ]
    };
    let lists = ["notes.txt\\t../notes.txt", "notes.txt\\ttext/notes.txt"];
    let server = Server::start(lists.into_iter().flat_map(list));
    let project = project().model(&server);
    let run = ["run", "--workflow", "workflows/tidy"];
    project.run(&run).exits(4).says("Move these files?");
    let complaint = server.requests()[2].text();
    assert!(
        complaint.contains("expected two plain paths below your directory: notes.txt"),
        "{complaint}"
    );
    let answered = project.run(&[&run[..], &["--answer", "No."]].concat());
    assert_eq!(answered.exits(0).stdout, "nothing was moved\n");
    assert!(project.exists("workspace/tidy-example/notes.txt"));
}
