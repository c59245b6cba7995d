//! The debug files of a run: requests, streams, answers, and the output of calls and checks.
//!
//! Every request, every call of a tool and every check is a step with a number of its own and a set of files,
//! `<agent>_<state>_<step>.<what>`; a resumed run counts on. Existing files are not overwritten and links are not
//! followed. The first failure to write is reported, and the run goes on.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, Mode, OFlags, mkdir, open, openat};
use rustix::io::Errno;
use serde::Serialize;
use serde_json::{Value, json};

use crate::events::bus::{Bus, HandlerResult};
use crate::events::{Event, RequestPlace};
use crate::state::run::timestamp;

/// The events that are written to files.
fn is_written(event: &Event) -> bool {
    matches!(
        event,
        Event::PromptSent { .. }
            | Event::ModelRequested { .. }
            | Event::ModelRetried { .. }
            | Event::ModelStreamed { .. }
            | Event::ModelAnswered { .. }
            | Event::ToolCalled { .. }
            | Event::ToolReturned { .. }
            | Event::ScriptOutput { .. }
            | Event::TransitionOccurred { .. }
    )
}

const TRANSITIONS: &str = "transitions.log";
const MAX_NAME_BYTES: usize = 60;
/// How many step numbers in a row may be taken by files of others.
const MAX_TRIES: u32 = 100;

/// Writes events to files; remembers whether writing has failed.
pub(crate) struct DebugFiles {
    path: PathBuf,
    files: Option<DebugDir>,
    has_failed: bool,
}

impl DebugFiles {
    /// Subscribes to a bus. The first file creates the directory `path`; its parent exists.
    pub(crate) fn attach(bus: &mut Bus, path: PathBuf) {
        let mut debug = DebugFiles {
            path,
            files: None,
            has_failed: false,
        };
        bus.on(is_written, move |event| debug.on_event(event));
    }

    /// Reports only the first failure: on a full disk, each piece of a stream would fail.
    fn on_event(&mut self, event: &Event) -> HandlerResult {
        match self.write(event) {
            Err(failure) if !self.has_failed => {
                self.has_failed = true;
                let path = self.path.display();
                Err(format!("debug files in {path} are incomplete: {failure}").into())
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, event: &Event) -> Result<(), DebugError> {
        let files = match self.files.take() {
            Some(files) => files,
            None => DebugDir::open(&self.path).map_err(DebugError::Open)?,
        };
        self.files.insert(files).write(event)
    }
}

/// Why a debug file is missing or incomplete.
#[derive(Debug)]
enum DebugError {
    Open(Errno),
    Create { name: String, source: Errno },
    Write(io::Error),
}

impl fmt::Display for DebugError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DebugError::Open(error) => write!(out, "cannot open the directory: {error}"),
            DebugError::Create { name, source } => write!(out, "cannot create {name}: {source}"),
            DebugError::Write(error) => write!(out, "cannot write: {error}"),
        }
    }
}

impl std::error::Error for DebugError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            DebugError::Open(source) | DebugError::Create { source, .. } => Some(source),
            DebugError::Write(source) => Some(source),
        }
    }
}

/// The open directory.
struct DebugDir {
    directory: OwnedFd,
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

impl DebugDir {
    fn open(path: &Path) -> Result<DebugDir, Errno> {
        match mkdir(path, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let directory = open(path, flags, Mode::empty())?;
        let step = highest_step(&directory)?;
        Ok(DebugDir {
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
                    None => self.create(&format!("{stem}.stream.jsonl"))?,
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
            Some(request) => self.create(&format!("{}.answer.json", request.stem))?,
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
                let file = self.create(&format!("{stem}.result.txt"))?;
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
        fill(self.create(&format!("{stem}.stderr.txt"))?, stderr)?;
        self.write_meta(&stem, event)
    }

    fn write_meta(&self, stem: &str, event: &Event) -> Result<(), DebugError> {
        let file = self.create(&format!("{stem}.meta.json"))?;
        fill(file, &pretty(&without_streams(event)))
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
        fill(self.open_file(TRANSITIONS, OFlags::APPEND)?, &line)
    }

    /// Begins a step: creates its first file under the next free number, and returns the stem of all its files.
    fn begin(
        &mut self,
        agent_id: &str,
        state: &str,
        suffix: &str,
        what: &str,
    ) -> Result<(String, File), DebugError> {
        let mut tries = 0;
        loop {
            self.step = self.step.saturating_add(1);
            let stem = format!(
                "{}_{}_{:03}{suffix}",
                file_name(agent_id),
                file_name(state),
                self.step
            );
            match self.create(&format!("{stem}.{what}")) {
                Ok(file) => return Ok((stem, file)),
                Err(DebugError::Create {
                    source: Errno::EXIST,
                    ..
                }) if tries < MAX_TRIES => tries += 1,
                Err(error) => return Err(error),
            }
        }
    }

    fn create(&self, name: &str) -> Result<File, DebugError> {
        self.open_file(name, OFlags::EXCL)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "debug files are not generated files"
    )]
    fn open_file(&self, name: &str, how: OFlags) -> Result<File, DebugError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
        openat(&self.directory, name, flags, Mode::from_raw_mode(0o644))
            .map(File::from)
            .map_err(|source| DebugError::Create {
                name: name.to_owned(),
                source,
            })
    }
}

fn fill(mut file: impl Write, text: &str) -> Result<(), DebugError> {
    file.write_all(text.as_bytes()).map_err(DebugError::Write)
}

fn suffix(tool_name: &str) -> String {
    format!("_{}", file_name(tool_name))
}

fn highest_step(directory: &OwnedFd) -> Result<u32, Errno> {
    let mut highest = 0;
    for entry in Dir::read_from(directory)? {
        highest = highest.max(step_of(&entry?.file_name().to_string_lossy()).unwrap_or(0));
    }
    Ok(highest)
}

/// The step in a file's name: the first part that is a number, since only the parts after it are free in form.
fn step_of(name: &str) -> Option<u32> {
    let is_step = |part: &&str| {
        (3..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split(['_', '.']).find(is_step)?.parse().ok()
}

/// The text as a part of a file's name.
fn file_name(text: &str) -> String {
    let keep =
        |character: char| character.is_ascii_alphanumeric() || matches!(character, '.' | '_' | '-');
    text.chars()
        .take(MAX_NAME_BYTES)
        .map(|character| if keep(character) { character } else { '_' })
        .collect()
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

fn pretty(content: &impl Serialize) -> String {
    // Plain data with string keys always serializes; otherwise the error is in the file.
    serde_json::to_string_pretty(content).unwrap_or_else(|error| error.to_string()) + "\n"
}

#[cfg(test)]
mod tests;
