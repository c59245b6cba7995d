//! A workflow with every kind of transition, its scripted model, and what runs of it leave.
//!
//! `main` begins with a script, calls a branch that has a tool, uses a function, and joins three workers: two that have a
//! tool, and a script. Every answer follows from the request, and the payload from everything before it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::project::{Project, processes};
use crate::support::reply::{self, Reply, bash};
use crate::support::running::{Ran, until};
use crate::support::server::{Received, Server, texts};

/// One state at a time: the calls of two runs are nearly the same.
pub(crate) const ONE_JOB: &[&str] = &[
    "run",
    "--workflow",
    "specs/flow",
    "--input",
    "task",
    "--jobs",
    "1",
];
pub(crate) const FOUR_JOBS: &[&str] = &[
    "run",
    "--workflow",
    "specs/flow",
    "--input",
    "task",
    "--jobs",
    "4",
];

/// What the caller's session has when it is branched.
const PLANNED: &str = "The plan is here.";
const STATES: [(&str, &str); 10] = [
    (
        "1_START.sh",
        "echo \"1_START.sh $ORCHESTRATOR_AGENT_ID\" >> scripts.txt\n\
         echo \"<goto input=\\\"$ORCHESTRATOR_INPUT\\\">PLAN</goto>\"\n",
    ),
    (
        "PLAN.md",
        "STATE PLAN {{agent_id}}: {{input}}\n<call return=\"AFTER\">CHECK</call>\n",
    ),
    (
        "CHECK.sh",
        "echo \"CHECK.sh $ORCHESTRATOR_AGENT_ID\" >> scripts.txt\n\
         printf 'checked %s' \"$ORCHESTRATOR_INPUT\" > \"$ORCHESTRATOR_OUTPUT_FILE\"\n\
         echo '<goto>REVIEW</goto>'\n",
    ),
    (
        "REVIEW.md",
        "STATE REVIEW {{agent_id}}: {{input}}\n<result>...</result>\n",
    ),
    (
        "AFTER.md",
        "STATE AFTER {{agent_id}}: {{input}}\n<function return=\"SPREAD\">COUNT</function>\n",
    ),
    (
        "COUNT.md",
        "STATE COUNT {{agent_id}}: {{input}}\n<result>...</result>\n",
    ),
    (
        "SPREAD.md",
        "STATE SPREAD {{agent_id}}: {{input}}\n\
         <fork join=\"MERGE\">WORKER</fork> <fork join=\"MERGE\">SCRIPT</fork>\n",
    ),
    (
        "WORKER.md",
        "STATE WORKER {{agent_id}}: {{input}}, {{item}}\n<result>...</result>\n",
    ),
    (
        "SCRIPT.sh",
        "echo \"SCRIPT.sh $ORCHESTRATOR_AGENT_ID\" >> scripts.txt\n\
         printf '%s, %s' \"$ORCHESTRATOR_INPUT\" \"$ORCHESTRATOR_VAR_ITEM\" > \"$ORCHESTRATOR_OUTPUT_FILE\"\n\
         echo '<result></result>'\n",
    ),
    (
        "MERGE.md",
        "STATE MERGE {{agent_id}}: {{input}}\n<result>...</result>\n",
    ),
];

/// The workflow in a project whose private directories can be seen.
pub(crate) fn project(server: &Server) -> Project {
    let project = Project::new().model(server);
    let temporary = project.outside("tmp");
    fs::create_dir(&temporary).unwrap();
    for (name, text) in STATES {
        project.write(&format!("specs/flow/{name}"), text);
    }
    project.env("TMPDIR", &temporary.display().to_string())
}

/// The model of the workflow.
pub(crate) fn model() -> Server {
    Server::answering(answer)
}

fn answer(request: &Received) -> Reply {
    let prompt = prompt_in(&request.text());
    let words: Vec<&str> = prompt.splitn(4, ' ').collect();
    let [_, state, agent, input] = words[..] else {
        return reply::error(400, "unknown_prompt", &prompt);
    };
    let agent = agent.trim_end_matches(':');
    let has_tool = matches!(state, "PLAN" | "REVIEW" | "WORKER");
    if has_tool && !follows_tool(request) {
        return bash(&format!("echo '{state} {agent}' >> tools.txt"));
    }
    reply::text(&match state {
        "PLAN" => format!("{PLANNED} <call return=\"AFTER\" input=\"{input}\">CHECK</call>"),
        "AFTER" => format!("<function return=\"SPREAD\" input=\"{input}\">COUNT</function>"),
        "SPREAD" => format!(
            "<fork join=\"MERGE\" item=\"red\" input=\"first {input}\">WORKER</fork>\
             <fork item=\"blue\" input=\"second {input}\">WORKER</fork>\
             <fork item=\"green\" input=\"third {input}\">SCRIPT</fork>"
        ),
        _ => format!("<result>{} {input}</result>", state.to_lowercase()),
    })
}

/// The line with the newest state in a text.
fn prompt_in(text: &str) -> String {
    let start = text.rfind("STATE ").unwrap_or(text.len());
    text[start..].lines().next().unwrap_or_default().to_owned()
}

/// Whether the newest message has the result of a tool.
fn follows_tool(request: &Received) -> bool {
    let messages = request.body["messages"].as_array();
    let newest = messages.and_then(|messages| messages.last());
    let blocks = newest.and_then(|message| message["content"].as_array());
    let mut blocks = blocks.into_iter().flatten();
    blocks.any(|block| block["type"] == "tool_result")
}

/// The requests that were sent whole.
fn whole_requests(server: &Server) -> Vec<Received> {
    let mut requests = server.requests();
    requests.retain(|request| request.body.is_object());
    requests
}

pub(crate) fn request_count(server: &Server) -> usize {
    whole_requests(server).len()
}

/// What a request asks for: the prompt of its state, and whether it follows a tool.
fn key(prompt: &str, follows_tool: bool) -> String {
    let after = if follows_tool {
        " (after its tool)"
    } else {
        ""
    };
    format!("{prompt}{after}")
}

/// A log and its lines.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkflowRecord {
    pub text: String,
    lines: Vec<Value>,
}

/// An agent, a visit, a turn, and the number of a call.
type CallPlace = (String, u64, u64, u64);

impl WorkflowRecord {
    /// Reads a log: every line is whole, and numbered from 1. Only a power cut leaves more than whole lines.
    pub(crate) fn read(mut text: String) -> WorkflowRecord {
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        let parse = |line: &str| {
            serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))
        };
        let lines: Vec<Value> = text.lines().map(parse).collect();
        for (line, number) in lines.iter().zip(1..) {
            assert_eq!(line["seq"], number, "{line}");
        }
        WorkflowRecord { text, lines }
    }

    pub(crate) fn lines(&self) -> usize {
        self.lines.len()
    }

    /// How many lines must survive a power cut: the agent of a synced line has gone on after it.
    pub(crate) fn lines_relied_on(&self) -> usize {
        let synced = [
            "ModelRequested",
            "ModelAnswered",
            "ToolCalled",
            "ToolReturned",
            "TransitionOccurred",
        ];
        let is_relied_on = |index: &usize| {
            let (line, later) = (&self.lines[*index], &self.lines[index + 1..]);
            let is_synced = synced.iter().any(|event| line["event"] == *event);
            is_synced && later.iter().any(|one| one["agent_id"] == line["agent_id"])
        };
        let last = (0..self.lines.len()).rev().find(is_relied_on);
        last.map_or(0, |index| index + 1)
    }

    fn events<'a>(&'a self, event: &'a str) -> impl Iterator<Item = &'a Value> {
        self.lines.iter().filter(move |line| line["event"] == event)
    }

    /// The transitions of each agent: from, to and tag.
    fn transitions(&self) -> BTreeMap<String, Vec<[Value; 3]>> {
        let mut all: BTreeMap<String, Vec<[Value; 3]>> = BTreeMap::new();
        for line in self.events("TransitionOccurred") {
            let fields = ["from_state", "to_state", "transition_type"];
            let of_agent = all.entry(text_of(&line["agent_id"])).or_default();
            of_agent.push(fields.map(|field| line[field].clone()));
        }
        all
    }

    /// The scripts that a transition has left, with their agents.
    fn left_scripts(&self) -> Vec<String> {
        let transitions = self.transitions().into_iter();
        let left = transitions.flat_map(|(agent, steps)| {
            let script = move |[from, ..]: [Value; 3]| format!("{} {agent}", text_of(&from));
            steps.into_iter().map(script)
        });
        left.filter(|name| name.contains(".sh ")).collect()
    }

    /// What each recorded answer was asked for.
    fn answered(&self) -> Vec<String> {
        let place = |line: &Value| (text_of(&line["agent_id"]), line["visit"].as_u64());
        let mut prompts = BTreeMap::new();
        for line in self.events("ModelRequested") {
            let mut said = String::new();
            texts(&line["request"]["messages"], &mut said);
            if line["turn"] == 0 {
                prompts.insert(place(line), prompt_in(&said));
            }
        }
        let answers = self.events("ModelAnswered");
        answers
            .map(|line| key(&prompts[&place(line)], line["turn"] != 0))
            .collect()
    }

    /// The lines of tool calls, or of their results.
    fn calls(&self, event: &str) -> BTreeMap<CallPlace, Value> {
        let mut calls = BTreeMap::new();
        for line in self.events(event) {
            let number = |field: &str| line[field].as_u64().unwrap();
            let place = (
                text_of(&line["agent_id"]),
                number("visit"),
                number("turn"),
                number("call"),
            );
            let other = calls.insert(place, line.clone());
            assert!(other.is_none(), "{event} twice: {line}");
        }
        calls
    }
}

fn text_of(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// What a run that ended in its middle left.
pub(crate) struct LeftRun {
    pub state: Option<Value>,
    pub record: WorkflowRecord,
    asked: usize,
    scripts: BTreeMap<String, usize>,
}

impl LeftRun {
    /// Reads what is there once all processes of the run are gone.
    pub(crate) fn read(project: &Project, server: &Server) -> LeftRun {
        let root = project.root().display().to_string();
        until("no process of the run is left", || {
            processes(&[&root]).is_empty()
        });
        LeftRun::read_folder(&project.root(), request_count(server))
    }

    /// Reads a copy of the root that was made after this many requests.
    pub(crate) fn read_folder(root: &Path, asked: usize) -> LeftRun {
        let state = fs::read(root.join("state.json")).ok();
        let state: Option<Value> = state.map(|bytes| serde_json::from_slice(&bytes).unwrap());
        let log = state.as_ref().map(|state| {
            let name = format!("logs/{}.log", text_of(&state["run_id"]));
            String::from_utf8_lossy(&fs::read(root.join(name)).unwrap()).into_owned()
        });
        let record = WorkflowRecord::read(log.unwrap_or_default());
        if let Some(state) = &state {
            let seq = state["seq"].as_u64().unwrap() as usize;
            assert!(seq <= record.lines(), "state.json is newer than the log");
        }
        LeftRun {
            state,
            record,
            asked,
            scripts: counts(root, "scripts.txt"),
        }
    }
}

/// How often a file of the workspace has each line.
fn counts(root: &Path, file: &str) -> BTreeMap<String, usize> {
    let text = fs::read_to_string(root.join("workspace").join(file)).unwrap_or_default();
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}

/// What every run must end with, however often it was interrupted.
#[derive(Debug, PartialEq)]
pub(crate) struct WorkflowResult {
    stdout: String,
    state: Value,
    agents: Value,
    results: Value,
    transitions: BTreeMap<String, Vec<[Value; 3]>>,
    spawned: Vec<String>,
    ended: Vec<String>,
    prompts: Vec<String>,
    answered: Vec<String>,
}

impl WorkflowResult {
    pub(crate) fn read(project: &Project, server: &Server, ran: &Ran) -> WorkflowResult {
        let state = project.state();
        let record = WorkflowRecord::read(project.read(&project.log_path()));
        let all = |event: &'static str, field: &'static str| {
            let found = record.events(event).map(|line| text_of(&line[field]));
            sorted(found.collect())
        };
        let prompts = whole_requests(server).into_iter();
        let mut prompts = sorted(prompts.map(|request| prompt_in(&request.text())).collect());
        prompts.dedup();
        WorkflowResult {
            stdout: ran.stdout.clone(),
            agents: state["agents"].clone(),
            results: state["results"].clone(),
            state: state["state"].clone(),
            transitions: record.transitions(),
            spawned: all("AgentSpawned", "new_agent_id"),
            ended: all("AgentTerminated", "agent_id"),
            prompts,
            answered: sorted(record.answered()),
        }
    }
}

fn sorted(mut list: Vec<String>) -> Vec<String> {
    list.sort();
    list
}

/// Checks everything about the end of a run, after what an earlier command of it left.
pub(crate) fn check_end(
    project: &Project,
    server: &Server,
    left: &LeftRun,
    (ran, goal): (&Ran, &WorkflowResult),
) {
    check_result(project, server, left, (ran, goal));
    let record = WorkflowRecord::read(project.read(&project.log_path()));
    check_tools(project, server, left, &record);
    check_scripts(project, left);
    project.nothing_left();
    let private = private_directories(project);
    assert!(private.is_empty(), "{private:?} are left");
}

/// Checks what a run ended with and what it asked for, and not what its programs did: a power cut may undo that.
pub(crate) fn check_result(
    project: &Project,
    server: &Server,
    left: &LeftRun,
    (ran, goal): (&Ran, &WorkflowResult),
) {
    assert_eq!(ran.code, Some(0), "{}", ran.transcript());
    assert_eq!(WorkflowResult::read(project, server, ran), *goal);
    let record = WorkflowRecord::read(project.read(&project.log_path()));
    assert!(
        record.text.starts_with(&left.record.text),
        "the log of the interrupted run has changed"
    );
    check_requests(server, left);
}

/// No recorded answer is asked for again, and each request has the history of its session.
fn check_requests(server: &Server, left: &LeftRun) {
    let answered = left.record.answered();
    for (number, request) in whole_requests(server).iter().enumerate() {
        let text = request.text();
        let key = key(&prompt_in(&text), follows_tool(request));
        assert!(
            number < left.asked || !answered.contains(&key),
            "asked for again: {key}"
        );
        check_history(&text);
    }
}

/// Which states a request knows of.
fn check_history(text: &str) {
    let states = [
        "PLAN", "REVIEW", "AFTER", "COUNT", "SPREAD", "WORKER", "MERGE",
    ];
    let known: Vec<&str> = states
        .into_iter()
        .filter(|state| text.contains(&format!("STATE {state} ")))
        .collect();
    let expected: &[&str] = match prompt_in(text).split(' ').nth(1).unwrap_or_default() {
        "PLAN" => &["PLAN"],
        "REVIEW" => &["PLAN", "REVIEW"],
        "AFTER" => &["PLAN", "AFTER"],
        "COUNT" => &["COUNT"],
        "SPREAD" => &["PLAN", "AFTER", "SPREAD"],
        "WORKER" => &["WORKER"],
        "MERGE" => &["PLAN", "AFTER", "SPREAD", "MERGE"],
        other => panic!("unknown state {other}"),
    };
    assert_eq!(known, expected, "the session of a request: {text}");
    let has_plan = known.first() == Some(&"PLAN") && known != ["PLAN"];
    assert_eq!(text.contains(PLANNED), has_plan, "{text}");
}

/// No tool call is made twice; the model gets the outcome of each, also where it is not known.
fn check_tools(project: &Project, server: &Server, left: &LeftRun, record: &WorkflowRecord) {
    let (called, returned) = (record.calls("ToolCalled"), record.calls("ToolReturned"));
    assert_eq!(returned.len(), 4);
    let (was_called, had_returned) = (
        left.record.calls("ToolCalled"),
        left.record.calls("ToolReturned"),
    );
    let known: Vec<String> = whole_requests(server).iter().map(Received::text).collect();
    for (place, line) in &returned {
        let output = text_of(&line["output"]);
        if !had_returned.contains_key(place) {
            let is_unknown = was_called.contains_key(place);
            assert_eq!(output.contains("outcome unknown"), is_unknown, "{line}");
            let has_run = !is_unknown && called.contains_key(place);
            assert_eq!(line["ran"] == true, has_run, "{line}");
        }
        let output = output.trim();
        assert!(known.iter().any(|text| text.contains(output)), "{line}");
    }
    let ran = returned.values().filter(|line| line["ran"] == true).count();
    let effects = counts(&project.root(), "tools.txt");
    assert!(effects.values().all(|count| *count == 1), "{effects:?}");
    assert!((ran..=called.len()).contains(&effects.len()), "{effects:?}");
}

/// A script runs again only where its transition was not recorded.
fn check_scripts(project: &Project, left: &LeftRun) {
    let (had_left, runs) = (
        left.record.left_scripts(),
        counts(&project.root(), "scripts.txt"),
    );
    assert_eq!(runs.len(), 3, "{runs:?}");
    for (script, count) in runs {
        let before = left.scripts.get(&script).copied().unwrap_or(0);
        match had_left.contains(&script) {
            true => assert_eq!(count, before, "{script} ran again"),
            false => assert_eq!(count, before + 1, "{script}"),
        }
    }
}

/// What is in the directory of private directories.
pub(crate) fn private_directories(project: &Project) -> Vec<String> {
    let tops = fs::read_dir(project.outside("tmp")).unwrap().flatten();
    let inner = tops.flat_map(|top| fs::read_dir(top.path()).unwrap().flatten());
    inner
        .map(|entry| entry.path().display().to_string())
        .collect()
}
