//! The debug files of a build: requests, streams, answers, and the output of calls and checks.
//!
//! Every request, every call of a tool and every check is a step with a number of its own and a set of files,
//! `<agent>_<state>_<step>.<what>`; a resumed run counts on. Existing files are not overwritten and links are not
//! followed. The first failure to write is reported, and the run goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::debug_dir::{
    DebugDir, DebugError, DebugObserver, EventWriter, TRANSITIONS, file_name, fill, is_of_step,
    pretty,
};
use super::error_reports::{self, ErrorReports};
use super::workflow_debug::{self, WorkflowSteps};
use crate::events::bus::Bus;
use crate::events::{Event, RequestPlace};
use crate::state::run::timestamp;

/// The events that are written to files.
fn is_written(event: &Event) -> bool {
    matches!(event, Event::PromptSent { .. }) || is_of_step(event)
}

/// The debug files of a run.
pub(crate) struct DebugFiles;

impl DebugFiles {
    /// Subscribes the files of a build to a bus. The first file creates the directory `path`; its parent exists.
    pub(crate) fn attach(bus: &mut Bus, path: PathBuf) {
        DebugObserver::<BuildSteps>::attach(bus, path, is_written, &Arc::default());
    }

    /// Subscribes the files of a workflow, and its error reports, to a bus.
    pub(crate) fn attach_workflow(bus: &mut Bus, path: PathBuf) {
        let has_failed = Arc::default();
        let (steps, errors) = (workflow_debug::is_written, error_reports::is_written);
        DebugObserver::<WorkflowSteps>::attach(bus, path.clone(), steps, &has_failed);
        DebugObserver::<ErrorReports>::attach(bus, path, errors, &has_failed);
    }
}

/// The steps of a build.
struct BuildSteps {
    directory: DebugDir,
    /// The highest step number in use.
    step: u32,
    /// The steps under way, by agent.
    agents: BTreeMap<String, AgentSteps>,
}

/// What an agent is in the middle of.
#[derive(Default)]
struct AgentSteps {
    request: Option<RequestStep>,
    /// The whole next request, where the event of the request has only its new part.
    prompt: Option<Value>,
    /// The stem of the call under way.
    call: Option<String>,
}

/// The step of a request under way.
struct RequestStep {
    stem: String,
    stream: Option<File>,
}

impl EventWriter for BuildSteps {
    fn open(path: &Path) -> Result<BuildSteps, DebugError> {
        let directory = DebugDir::open(path)?;
        let step = directory.highest(step_of)?;
        Ok(BuildSteps {
            directory,
            step,
            agents: BTreeMap::new(),
        })
    }

    fn write(&mut self, event: &Event) -> Result<(), DebugError> {
        match event {
            Event::PromptSent {
                agent_id, request, ..
            } => {
                self.agent(agent_id).prompt = Some(request.clone());
                Ok(())
            }
            Event::ModelRequested {
                agent_id,
                place,
                request,
                ..
            } => self.begin_request(agent_id, *place, request),
            Event::ModelRetried {
                agent_id,
                place,
                attempt,
            } => self.append(agent_id, *place, "retry", json!(attempt)),
            Event::ModelStreamed {
                agent_id,
                place,
                piece,
            } => self.append(agent_id, *place, "piece", json!(piece)),
            Event::ModelAnswered {
                agent_id, place, ..
            } => self.answer(agent_id, *place, event),
            Event::ToolCalled { .. } => self.call(event),
            Event::ToolReturned { .. } => self.result(event),
            Event::ScriptOutput { .. } => self.check(event),
            Event::TransitionOccurred { .. } => self.transition(event),
            _ => Ok(()),
        }
    }
}

impl BuildSteps {
    fn agent(&mut self, agent_id: &str) -> &mut AgentSteps {
        self.agents.entry(agent_id.to_owned()).or_default()
    }

    fn begin_request(
        &mut self,
        agent_id: &str,
        place: RequestPlace,
        request: &Value,
    ) -> Result<(), DebugError> {
        self.agent(agent_id).request = None;
        let (stem, file) = self.begin(agent_id, place.scope.state_name(), "", "prompt.json")?;
        let agent = self.agent(agent_id);
        agent.request = Some(RequestStep { stem, stream: None });
        let prompt = agent.prompt.take();
        fill(file, &pretty(prompt.as_ref().unwrap_or(request)))
    }

    /// Appends to the stream of the request under way; unbuffered, so that a stream that breaks off is complete.
    fn append(
        &mut self,
        agent_id: &str,
        place: RequestPlace,
        key: &str,
        value: Value,
    ) -> Result<(), DebugError> {
        let (stem, stream) = match self.agent(agent_id).request.take() {
            None => self.begin(agent_id, place.scope.state_name(), "", "stream.jsonl")?,
            Some(RequestStep { stem, stream }) => {
                let stream = match stream {
                    Some(stream) => stream,
                    None => self.directory.create(&format!("{stem}.stream.jsonl"))?,
                };
                (stem, stream)
            }
        };
        let mut line = json!({"ts": timestamp()});
        line[key] = value;
        let written = fill(&stream, &format!("{line}\n"));
        self.agent(agent_id).request = Some(RequestStep {
            stem,
            stream: Some(stream),
        });
        written
    }

    fn answer(
        &mut self,
        agent_id: &str,
        place: RequestPlace,
        event: &Event,
    ) -> Result<(), DebugError> {
        let file = match self.agent(agent_id).request.take() {
            Some(request) => self
                .directory
                .create(&format!("{}.answer.json", request.stem))?,
            None => {
                self.begin(agent_id, place.scope.state_name(), "", "answer.json")?
                    .1
            }
        };
        fill(file, &pretty(event))
    }

    fn call(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ToolCalled {
            agent_id,
            place,
            tool_name,
            arguments,
            ..
        } = event
        else {
            return Ok(());
        };
        let state = place.scope.state_name();
        let (stem, file) = self.begin(agent_id, state, &suffix(tool_name), "call.json")?;
        self.agent(agent_id).call = Some(stem);
        fill(file, &pretty(arguments))
    }

    /// Writes the result of a call. A call that was refused has not begun a step yet.
    fn result(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ToolReturned {
            agent_id,
            place,
            tool_name,
            output,
            screen,
            ..
        } = event
        else {
            return Ok(());
        };
        let (stem, file) = match self.agent(agent_id).call.take() {
            Some(stem) => {
                let file = self.directory.create(&format!("{stem}.result.txt"))?;
                (stem, file)
            }
            None => {
                let state = place.scope.state_name();
                self.begin(agent_id, state, &suffix(tool_name), "result.txt")?
            }
        };
        fill(file, &format!("{output}{screen}"))?;
        self.write_meta(&stem, event)
    }

    fn check(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ScriptOutput {
            agent_id,
            state_name,
            tool_name,
            stdout,
            stderr,
            ..
        } = event
        else {
            return Ok(());
        };
        let (stem, file) = self.begin(agent_id, state_name, &suffix(tool_name), "stdout.txt")?;
        fill(file, stdout)?;
        self.directory
            .write(&format!("{stem}.stderr.txt"), stderr)?;
        self.write_meta(&stem, event)
    }

    fn write_meta(&self, stem: &str, event: &Event) -> Result<(), DebugError> {
        let meta = pretty(&without_streams(event));
        self.directory.write(&format!("{stem}.meta.json"), &meta)
    }

    fn transition(&self, event: &Event) -> Result<(), DebugError> {
        let Event::TransitionOccurred {
            agent_id,
            from_state,
            to_state,
            transition_type,
            metadata,
        } = event
        else {
            return Ok(());
        };
        let (agent, kind) = (file_name(agent_id), transition_type.escape_debug());
        let (from, to) = (
            from_state.escape_debug(),
            to_state.as_deref().unwrap_or("-"),
        );
        let line = format!(
            "{} [{agent}] {from} -> {} ({kind}) {metadata}\n",
            timestamp(),
            to.escape_debug()
        );
        self.directory.append(TRANSITIONS, &line)
    }

    /// Begins a step: creates its first file under the next free number, and returns the stem of all its files.
    fn begin(
        &mut self,
        agent_id: &str,
        state: &str,
        suffix: &str,
        what: &str,
    ) -> Result<(String, File), DebugError> {
        let (agent, state) = (file_name(agent_id), file_name(state));
        let stem = |step| format!("{agent}_{state}_{step:03}{suffix}");
        let name = |step| format!("{}.{what}", stem(step));
        let file = self.directory.create_next(&mut self.step, name)?;
        Ok((stem(self.step), file))
    }
}

fn suffix(tool_name: &str) -> String {
    format!("_{}", file_name(tool_name))
}

/// The step in a file's name: the first part that is a number, since only the parts after it are free in form.
fn step_of(name: &str) -> Option<u32> {
    let is_step = |part: &&str| {
        (3..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split(['_', '.']).find(is_step)?.parse().ok()
}

fn without_streams(event: &Event) -> Value {
    let mut meta = serde_json::to_value(event).unwrap_or_default();
    if let Some(fields) = meta.as_object_mut() {
        for stream in ["stdout", "stderr", "output", "screen"] {
            fields.shift_remove(stream);
        }
    }
    meta
}

#[cfg(test)]
mod tests;
