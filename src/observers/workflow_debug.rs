//! The debug files of a workflow: `<agent>_<state>_<step>.<what>`, `transitions.log`, and `steps.log` with all steps in
//! their order.
//!
//! A step is one turn of a model, with its tool calls, or one run of a script. Each agent counts its steps from 1, and a
//! resumed run counts on.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use serde_json::{Value, json};

use super::debug_dir::{
    DebugDir, DebugError, EventWriter, TRANSITIONS, file_name, fill, is_of_step, pretty,
};
use super::workflow_text::{agent_of, new_text, state_stem};
use crate::events::{Event, Objection, RequestPlace};
use crate::state::run::timestamp;
use crate::text::invisible::escaped;
use crate::text::shorten::cut_middle;

/// One line per step: the time, the agent in brackets, the number, and the stem of its files.
const STEPS: &str = "steps.log";
const MAX_STEPS_BYTES: u64 = 100_000_000;
/// How much of a value `transitions.log` has; the log of the run has all of it.
const MAX_VALUE_BYTES: usize = 10_000;

/// The fields of an ended script that its `meta.json` has.
const SCRIPT_META: [&str; 9] = [
    "agent_id",
    "state_name",
    "exit_code",
    "execution_time_ms",
    "env_vars",
    "passed",
    "problem",
    "stdout_bytes",
    "stderr_bytes",
];

/// The events that are written to files, or name the state of an agent.
pub(super) fn is_written(event: &Event) -> bool {
    matches!(event, Event::StateStarted { .. }) || is_of_step(event)
}

/// The steps of all agents.
pub(super) struct WorkflowSteps {
    directory: DebugDir,
    agents: BTreeMap<String, AgentFiles>,
}

/// The files of an agent.
#[derive(Default)]
struct AgentFiles {
    /// The highest step number in use.
    step: u32,
    /// The file name of the state it is in.
    state: String,
    turn: Option<TurnFiles>,
}

/// The files of a turn under way.
struct TurnFiles {
    stem: String,
    stream: File,
    /// Of its last request.
    place: RequestPlace,
    /// The stems of its tool calls, by the place of the answer and the number in it.
    calls: BTreeMap<(RequestPlace, u32), String>,
}

impl EventWriter for WorkflowSteps {
    fn open(path: &Path) -> Result<WorkflowSteps, DebugError> {
        let directory = DebugDir::open(path)?;
        let steps = directory.read(STEPS, MAX_STEPS_BYTES);
        let mut agents: BTreeMap<String, AgentFiles> = BTreeMap::new();
        for (agent_id, step) in steps.lines().filter_map(recorded_step) {
            let agent = agents.entry(agent_id.to_owned()).or_default();
            agent.step = agent.step.max(step);
        }
        Ok(WorkflowSteps { directory, agents })
    }

    fn write(&mut self, event: &Event) -> Result<(), DebugError> {
        let WorkflowSteps { directory, agents } = self;
        let agent_id = escaped(agent_of(event));
        let agent = agents.entry(agent_id.clone()).or_default();
        let mut files = StepWriter {
            directory,
            agent_id: &agent_id,
            agent,
        };
        match event {
            Event::StateStarted { state_name, .. } => {
                (agent.state, agent.turn) = (state_name.clone(), None);
                Ok(())
            }
            Event::ModelRequested { .. } => files.request(event),
            Event::ModelRetried { place, attempt, .. } => {
                files.stream(*place, json!({"retry": attempt}))
            }
            Event::ModelStreamed { place, piece, .. } => {
                files.stream(*place, json!({"piece": piece}))
            }
            Event::ModelAnswered { .. } => files.answer(event),
            Event::ToolCalled { .. } => files.call(event),
            Event::ToolReturned { .. } => files.result(event),
            Event::ScriptOutput { .. } => files.script(event),
            Event::TransitionOccurred { .. } => {
                directory.append(TRANSITIONS, &transition(event).unwrap_or_default())
            }
            _ => Ok(()),
        }
    }
}

/// The agent and the number of a line of `steps.log`.
fn recorded_step(line: &str) -> Option<(&str, u32)> {
    let (_, line) = line.split_once(" [")?;
    let (agent_id, line) = line.split_once("] ")?;
    let (step, _) = line.split_once(' ')?;
    Some((agent_id, step.parse().ok()?))
}

/// Writes the files of one agent.
struct StepWriter<'a> {
    directory: &'a DebugDir,
    agent_id: &'a str,
    agent: &'a mut AgentFiles,
}

impl StepWriter<'_> {
    /// Begins a step: creates its first file under the next free number, and returns the stem of all its files.
    fn begin(&mut self, what: &str) -> Result<(String, File), DebugError> {
        let AgentFiles { step, state, .. } = &mut *self.agent;
        let (agent, state) = (file_name(self.agent_id), file_name(state_stem(state)));
        let stem = |step| format!("{agent}_{state}_{step:03}");
        let file = self
            .directory
            .create_next(step, |step| format!("{}.{what}", stem(step)))?;
        let stem = stem(*step);
        let line = format!("{} [{}] {step:03} {stem}\n", timestamp(), self.agent_id);
        self.directory.append(STEPS, &line)?;
        Ok((stem, file))
    }

    /// The turn under way. A resume may go on in the middle of one; then it gets a step of its own.
    fn turn(&mut self, place: RequestPlace) -> Result<&mut TurnFiles, DebugError> {
        let turn = match self.agent.turn.take() {
            Some(turn) => turn,
            None => self.begin_turn(place)?,
        };
        Ok(self.agent.turn.insert(turn))
    }

    fn begin_turn(&mut self, place: RequestPlace) -> Result<TurnFiles, DebugError> {
        let (stem, stream) = self.begin("jsonl")?;
        Ok(TurnFiles {
            stem,
            stream,
            place,
            calls: BTreeMap::new(),
        })
    }

    /// A request begins a turn, continues one after tool calls, or is the last one sent again.
    fn request(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ModelRequested {
            place,
            objection,
            model,
            request,
            ..
        } = event
        else {
            return Ok(());
        };
        let continues = |turn: &TurnFiles| {
            let is_again = turn.place == *place;
            let is_reminder = *objection == Some(Objection::Reminder);
            turn.place.scope == place.scope && (is_again || !is_reminder)
        };
        if !self.agent.turn.as_ref().is_some_and(continues) {
            self.agent.turn = None;
            let stem = self.turn(*place)?.stem.clone();
            self.directory
                .write(&format!("{stem}.prompt.md"), &new_text(request))?;
        }
        self.turn(*place)?.place = *place;
        self.stream(*place, json!({"request": place.turn, "model": model}))
    }

    /// Adds a line to the stream of the turn; unbuffered, so that a stream that breaks off is complete.
    fn stream(&mut self, place: RequestPlace, content: Value) -> Result<(), DebugError> {
        let mut line = json!({"ts": timestamp()});
        if let (Some(line), Value::Object(content)) = (line.as_object_mut(), content) {
            line.extend(content);
        }
        fill(&self.turn(place)?.stream, &format!("{line}\n"))
    }

    fn answer(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ModelAnswered {
            place,
            cost_usd,
            duration_ms,
            answer,
            error,
            ..
        } = event
        else {
            return Ok(());
        };
        let (what, content) = match error {
            Some(error) => ("error", json!(error)),
            None => ("answer", json!(answer)),
        };
        let mut line = json!({"duration_ms": duration_ms, "cost_usd": cost_usd});
        line[what] = content;
        self.stream(*place, line)
    }

    /// Writes the arguments of a call, which has the number of its turn.
    fn call(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ToolCalled {
            place,
            call,
            tool_name,
            arguments,
            ..
        } = event
        else {
            return Ok(());
        };
        let stem = self.call_stem((*place, *call), tool_name)?;
        self.directory
            .write(&format!("{stem}.call.json"), &pretty(arguments))
    }

    fn result(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ToolReturned {
            place,
            call,
            tool_name,
            ran,
            is_error,
            output,
            screen,
            execution_time_ms,
            ..
        } = event
        else {
            return Ok(());
        };
        let stem = self.call_stem((*place, *call), tool_name)?;
        let outcome = match (*ran, *is_error) {
            (false, _) => "not run",
            (true, true) => "error",
            (true, false) => "ok",
        };
        let text = format!("{outcome}, {execution_time_ms} ms\n\n{output}{screen}");
        self.directory.write(&format!("{stem}.result.txt"), &text)
    }

    /// The stem of a call's files; one that was refused has none yet when its result comes.
    fn call_stem(
        &mut self,
        key: (RequestPlace, u32),
        tool_name: &str,
    ) -> Result<String, DebugError> {
        let TurnFiles { stem, calls, .. } = self.turn(key.0)?;
        let number = calls.len() + 1;
        let new = || format!("{stem}.tool-{number:03}-{}", file_name(tool_name));
        Ok(calls.entry(key).or_insert_with(new).clone())
    }

    fn script(&mut self, event: &Event) -> Result<(), DebugError> {
        let Event::ScriptOutput {
            state_name,
            stdout,
            stderr,
            ..
        } = event
        else {
            return Ok(());
        };
        self.agent.state.clone_from(state_name);
        let (stem, file) = self.begin("stdout.txt")?;
        fill(file, stdout)?;
        self.directory
            .write(&format!("{stem}.stderr.txt"), stderr)?;
        let meta = pretty(&script_meta(event));
        self.directory.write(&format!("{stem}.meta.json"), &meta)
    }
}

fn script_meta(event: &Event) -> Value {
    let event = serde_json::to_value(event).unwrap_or_default();
    let fields = SCRIPT_META.map(|field| (field.to_owned(), event[field].clone()));
    Value::Object(fields.into_iter().collect())
}

/// `TIME [agent] FROM -> TO (tag)`, and the metadata below it, indented.
fn transition(event: &Event) -> Option<String> {
    let Event::TransitionOccurred {
        agent_id,
        from_state,
        to_state,
        transition_type,
        metadata,
    } = event
    else {
        return None;
    };
    let (time, agent) = (timestamp(), escaped(agent_id));
    let (from, to) = (
        escaped(from_state),
        escaped(to_state.as_deref().unwrap_or("-")),
    );
    let tag = escaped(transition_type);
    let details: String = metadata
        .as_object()
        .into_iter()
        .flatten()
        .map(|(key, value)| detail(key, value))
        .collect();
    Some(format!(
        "{time} [{agent}] {from} -> {to} ({tag})\n{details}"
    ))
}

/// The lines of one entry of the metadata; what is not set has none.
fn detail(key: &str, value: &Value) -> String {
    match value {
        Value::Null | Value::Bool(false) => String::new(),
        Value::Array(items) => items.iter().map(|item| detail(key, item)).collect(),
        Value::String(text) => {
            let text = cut_middle(text, MAX_VALUE_BYTES);
            let lines: Vec<String> = text.split('\n').map(escaped).collect();
            format!("    {}: {}\n", escaped(key), lines.join("\n        "))
        }
        value => format!("    {}: {value}\n", escaped(key)),
    }
}

#[cfg(test)]
mod tests;
