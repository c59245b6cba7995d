//! Workflows of tests: states in `flow/`, a model that answers by the prompt of the state, and what a run left.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::project::Project;
use crate::support::reply::{self, Reply};
use crate::support::running::Ran;
use crate::support::server::{Received, Server};

/// The command lines of most tests.
pub(crate) const FLOW: &[&str] = &["run", "--workflow", "flow"];
pub(crate) const FLOW_JSON: &[&str] = &["run", "--workflow", "flow", "--json"];

/// A project with these states in `flow/`.
pub(crate) fn workflow(states: &[(&str, &str)]) -> Project {
    let add =
        |project: Project, (name, text): &(&str, &str)| project.file(&format!("flow/{name}"), text);
    states.iter().fold(Project::new(), add)
}

/// A project with a copy of a workflow of `tests/workflows/`.
pub(crate) fn fixture(name: &str) -> Project {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/workflows");
    let mut project = Project::new();
    for entry in fs::read_dir(folder.join(name)).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap();
        project = project.file(&format!("flow/{file}"), fs::read(entry.path()).unwrap());
    }
    project
}

/// The answers of the model, by what the prompt of a state contains.
#[derive(Default)]
pub(crate) struct Answers {
    by_prompt: Vec<(String, VecDeque<Reply>)>,
}

impl Answers {
    pub(crate) fn new() -> Answers {
        Answers::default()
    }

    /// Gives these answers in turn where the newest prompt that contains a key contains this one.
    pub(crate) fn on<R: Into<Reply>>(
        mut self,
        key: &str,
        replies: impl IntoIterator<Item = R>,
    ) -> Answers {
        let replies = replies.into_iter().map(Into::into).collect();
        self.by_prompt.push((key.to_owned(), replies));
        self
    }

    /// Starts a model that gives the answers.
    pub(crate) fn start(self) -> Server {
        let mut by_prompt = self.by_prompt;
        Server::answering(move |request| {
            let found = prompts(request).into_iter().rev().find_map(|prompt| {
                let key = |(key, _): &(String, _)| prompt.contains(key.as_str());
                by_prompt.iter().position(key)
            });
            let reply = found.and_then(|index| by_prompt[index].1.pop_front());
            let none = || reply::error(400, "script_over", "the test has no reply for this state");
            reply.unwrap_or_else(none)
        })
    }
}

impl From<&str> for Reply {
    fn from(text: &str) -> Reply {
        reply::text(text)
    }
}

impl From<String> for Reply {
    fn from(text: String) -> Reply {
        reply::text(&text)
    }
}

/// The texts of the user in a request, from the oldest on; results of tools are left out.
fn prompts(request: &Received) -> Vec<String> {
    let conversation = conversation(request).into_iter();
    let said = conversation.filter_map(|line| Some(line.strip_prefix("user: ")?.to_owned()));
    said.collect()
}

/// The messages of a request as `role: text`, one line for each text; calls and results of tools by their names.
pub(crate) fn conversation(request: &Received) -> Vec<String> {
    let messages = request.body["messages"].as_array();
    let messages = messages.unwrap_or_else(|| panic!("no messages in {}", request.raw));
    let mut lines = Vec::new();
    for message in messages {
        let role = message["role"].as_str().unwrap_or_default();
        if let Some(text) = message["content"].as_str() {
            lines.push(format!("{role}: {text}"));
        }
        for block in message["content"].as_array().into_iter().flatten() {
            lines.push(match block["type"].as_str() {
                Some("text") => format!("{role}: {}", block["text"].as_str().unwrap_or_default()),
                Some("tool_use") => format!("call: {}", block["name"].as_str().unwrap_or_default()),
                Some("tool_result") => {
                    format!("result: {}", block["content"].as_str().unwrap_or_default())
                }
                other => other.unwrap_or_default().to_owned(),
            });
        }
    }
    lines
}

/// The requests whose newest prompt contains the key.
pub(crate) fn requests_for(server: &Server, key: &str) -> Vec<Received> {
    let requests = server.requests().into_iter();
    let is_for = |request: &Received| {
        prompts(request)
            .pop()
            .is_some_and(|last| last.contains(key))
    };
    requests.filter(is_for).collect()
}

/// The only request whose newest prompt contains the key.
pub(crate) fn request_for(server: &Server, key: &str) -> Received {
    let mut found = requests_for(server, key);
    assert_eq!(found.len(), 1, "requests for {key:?}");
    found.remove(0)
}

impl Project {
    /// The transitions of the log, as `agent: FROM -tag-> TO`.
    pub(crate) fn transitions(&self) -> Vec<String> {
        let text = |value: &Value| value.as_str().unwrap_or("end").to_owned();
        let lines = self.events("TransitionOccurred").into_iter();
        let lines = lines.map(|line| {
            format!(
                "{}: {} -{}-> {}",
                text(&line["agent_id"]),
                text(&line["from_state"]),
                text(&line["transition_type"]),
                text(&line["to_state"])
            )
        });
        lines.collect()
    }

    /// The transitions of one agent, as `FROM -tag-> TO`.
    pub(crate) fn path_of(&self, agent: &str) -> Vec<String> {
        let prefix = format!("{agent}: ");
        let all = self.transitions().into_iter();
        all.filter_map(|line| Some(line.strip_prefix(&prefix)?.to_owned()))
            .collect()
    }

    /// An agent of `state.json`.
    pub(crate) fn agent(&self, id: &str) -> Value {
        let state = self.state();
        let mut agents = state["agents"].as_array().into_iter().flatten();
        let found = agents.find(|agent| agent["id"] == id);
        found
            .unwrap_or_else(|| panic!("no agent {id} in {state}"))
            .clone()
    }

    /// The ids of the agents in `state.json`, with their statuses, as `id status`.
    pub(crate) fn agents(&self) -> Vec<String> {
        let state = self.state();
        let agents = state["agents"].as_array().into_iter().flatten();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        agents
            .map(|agent| format!("{} {}", text(&agent["id"]), text(&agent["status"])))
            .collect()
    }

    /// Runs `flow/` to its end, which is a success, and returns the payload on standard output.
    pub(crate) fn succeed(&self, options: &[&str]) -> String {
        let ran = self.run(&[FLOW, options].concat()).exits(0);
        self.nothing_left();
        let payload = ran.stdout.strip_suffix('\n');
        payload
            .unwrap_or_else(|| panic!("no payload\n{}", ran.transcript()))
            .to_owned()
    }

    /// Runs `flow/` until an agent fails, and returns what `run --json` says of it.
    pub(crate) fn fail(&self, options: &[&str]) -> Value {
        let ran = self.run(&[FLOW_JSON, options].concat()).exits(1);
        self.nothing_left();
        assert_eq!(outcome(&ran), "FAILED agent_failed", "{}", ran.transcript());
        ran.result()
    }

    /// Runs `flow/` until an agent pauses, and returns what `run --json` says of it.
    pub(crate) fn pause(&self, options: &[&str]) -> Value {
        let ran = self.run(&[FLOW_JSON, options].concat()).exits(4);
        self.nothing_left();
        assert_eq!(ran.outcome_and_reason().0, "PAUSED", "{}", ran.transcript());
        ran.result()
    }
}

/// Outcome and reason of `run --json`.
pub(crate) fn outcome(ran: &Ran) -> String {
    let (outcome, reason) = ran.outcome_and_reason();
    format!("{outcome} {reason}")
}

/// A field of `run --json` that is a text.
pub(crate) fn text_of(result: &Value, field: &str) -> String {
    result[field].as_str().unwrap_or_default().to_owned()
}
