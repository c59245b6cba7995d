//! The debug files of a run: what was asked, what streamed in, what was answered, what each call and each check wrote.
//!
//! Every request, every call of a tool and every check is a step with a number of its own and a set of files,
//! `<agent>_<state>_<step>.<what>`; numbers count on when a run is resumed. Nothing that exists is overwritten and no
//! link is followed. A directory that cannot be written is told once, and the run goes on.

use std::fs::File;
use std::io::Write;
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
/// How often a number that someone else took meanwhile is passed over.
const MAX_TRIES: u32 = 100;

/// Listens, and remembers whether it could not write.
pub struct DebugFiles {
    path: PathBuf,
    files: Option<DebugDir>,
    has_failed: bool,
}

impl DebugFiles {
    /// Subscribes debug files in the directory at `path`, which is made with the first of them; its parent is there.
    pub fn attach(bus: &mut Bus, path: PathBuf) {
        let mut debug = DebugFiles {
            path,
            files: None,
            has_failed: false,
        };
        bus.on(is_written, move |event| debug.on_event(event));
    }

    /// Writes down an event. Only the first failure is told: on a full disk each piece of a stream would be one.
    fn on_event(&mut self, event: &Event) -> HandlerResult {
        match self.write(event) {
            Err(failure) if !self.has_failed => {
                self.has_failed = true;
                Err(format!(
                    "debug files in {} are incomplete: {failure}",
                    self.path.display()
                )
                .into())
            }
            _ => Ok(()),
        }
    }

    fn write(&mut self, event: &Event) -> HandlerResult {
        let files = match self.files.take() {
            Some(files) => files,
            None => DebugDir::open(&self.path)
                .map_err(|error| format!("cannot open the directory: {error}"))?,
        };
        self.files.insert(files).write(event)
    }
}

/// The open directory and where in it we are.
struct DebugDir {
    directory: OwnedFd,
    /// The highest number in use.
    step: u32,
    request: Option<RequestStep>,
    /// All that the next request says, where its own event tells only what is new.
    prompt: Option<Value>,
    /// The stem of the call that is under way.
    call: Option<String>,
}

/// The step of the request that is under way.
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
            request: None,
            prompt: None,
            call: None,
        })
    }

    fn write(&mut self, event: &Event) -> HandlerResult {
        match event {
            Event::PromptSent { request, .. } => {
                self.prompt = Some(request.clone());
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
            } => self.append(
                agent_id,
                *place,
                &json!({"ts": timestamp(), "retry": attempt}),
            ),
            Event::ModelStreamed {
                agent_id,
                place,
                piece,
            } => self.append(
                agent_id,
                *place,
                &json!({"ts": timestamp(), "piece": piece}),
            ),
            Event::ModelAnswered {
                agent_id, place, ..
            } => self.answer(agent_id, *place, event),
            Event::ToolCalled {
                agent_id,
                place,
                tool_name,
                arguments,
                ..
            } => {
                let suffix = format!("_{}", file_name(tool_name));
                let (stem, file) =
                    self.begin(agent_id, place.scope.state_name(), &suffix, "call.json")?;
                self.call = Some(stem);
                fill(file, &pretty(arguments))
            }
            Event::ToolReturned { .. } => self.result(event),
            Event::ScriptOutput { .. } => self.check(event),
            Event::TransitionOccurred { .. } => self.transition(event),
            _ => Ok(()),
        }
    }

    fn begin_request(
        &mut self,
        agent_id: &str,
        place: RequestPlace,
        request: &Value,
    ) -> HandlerResult {
        self.request = None;
        let (stem, file) = self.begin(agent_id, place.scope.state_name(), "", "prompt.json")?;
        self.request = Some(RequestStep { stem, stream: None });
        fill(
            file,
            &pretty(&self.prompt.take().unwrap_or_else(|| request.clone())),
        )
    }

    /// Appends to the stream of the request under way, unbuffered, so that all that came is there when no more does.
    fn append(&mut self, agent_id: &str, place: RequestPlace, line: &Value) -> HandlerResult {
        let (stem, stream) = match self.request.take() {
            Some(RequestStep {
                stem,
                stream: Some(stream),
            }) => (stem, stream),
            Some(RequestStep { stem, stream: None }) => {
                let stream = self.create(&format!("{stem}.stream.jsonl"))?;
                (stem, stream)
            }
            None => self.begin(agent_id, place.scope.state_name(), "", "stream.jsonl")?,
        };
        let told = fill(&stream, &format!("{line}\n"));
        self.request = Some(RequestStep {
            stem,
            stream: Some(stream),
        });
        told
    }

    fn answer(&mut self, agent_id: &str, place: RequestPlace, event: &Event) -> HandlerResult {
        let file = match self.request.take() {
            Some(request) => self.create(&format!("{}.answer.json", request.stem))?,
            None => {
                self.begin(agent_id, place.scope.state_name(), "", "answer.json")?
                    .1
            }
        };
        fill(file, &pretty(event))
    }

    /// Writes what a call came to; one that was refused has not begun a step yet.
    fn result(&mut self, event: &Event) -> HandlerResult {
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
        let (stem, file) = match self.call.take() {
            Some(stem) => {
                let file = self.create(&format!("{stem}.result.txt"))?;
                (stem, file)
            }
            None => self.begin(
                agent_id,
                place.scope.state_name(),
                &format!("_{}", file_name(tool_name)),
                "result.txt",
            )?,
        };
        fill(file, &format!("{output}{screen}"))?;
        fill(
            self.create(&format!("{stem}.meta.json"))?,
            &pretty(&without_streams(event)),
        )
    }

    fn check(&mut self, event: &Event) -> HandlerResult {
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
        let (stem, file) = self.begin(
            agent_id,
            state_name,
            &format!("_{}", file_name(tool_name)),
            "stdout.txt",
        )?;
        fill(file, stdout)?;
        fill(self.create(&format!("{stem}.stderr.txt"))?, stderr)?;
        fill(
            self.create(&format!("{stem}.meta.json"))?,
            &pretty(&without_streams(event)),
        )
    }

    fn transition(&mut self, event: &Event) -> HandlerResult {
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
        let line = format!(
            "{} [{agent}] {from_state} -> {to_state} ({kind}) {metadata}\n",
            timestamp()
        );
        let log = self
            .open_file(TRANSITIONS, OFlags::APPEND)
            .map_err(|error| failure(TRANSITIONS, error))?;
        fill(log, &line)
    }

    /// Begins a step: makes the first of its files under the next free number and returns the stem of them all.
    fn begin(
        &mut self,
        agent_id: &str,
        state: &str,
        suffix: &str,
        what: &str,
    ) -> Result<(String, File), String> {
        let mut tries = 0;
        loop {
            self.step = self.step.saturating_add(1);
            let stem = format!(
                "{}_{}_{:03}{suffix}",
                file_name(agent_id),
                file_name(state),
                self.step
            );
            let name = format!("{stem}.{what}");
            match self.open_file(&name, OFlags::EXCL) {
                Ok(file) => return Ok((stem, file)),
                Err(Errno::EXIST) if tries < MAX_TRIES => tries += 1,
                Err(error) => return Err(failure(&name, error)),
            }
        }
    }

    fn create(&self, name: &str) -> Result<File, String> {
        self.open_file(name, OFlags::EXCL)
            .map_err(|error| failure(name, error))
    }

    fn open_file(&self, name: &str, how: OFlags) -> Result<File, Errno> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | how;
        openat(&self.directory, name, flags, Mode::from_raw_mode(0o644)).map(File::from)
    }
}

fn fill(mut file: impl Write, text: &str) -> HandlerResult {
    file.write_all(text.as_bytes())
        .map_err(|error| format!("cannot write: {error}").into())
}

fn failure(name: &str, error: Errno) -> String {
    format!("cannot create {name}: {error}")
}

fn highest_step(directory: &OwnedFd) -> Result<u32, Errno> {
    let mut highest = 0;
    for entry in Dir::read_from(directory)? {
        highest = highest.max(step_of(&entry?.file_name().to_string_lossy()).unwrap_or(0));
    }
    Ok(highest)
}

/// Returns the number in a file's name: the first part that is one, as only the parts after it are free in form.
fn step_of(name: &str) -> Option<u32> {
    let is_step = |part: &&str| {
        (3..=9).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    name.split(['_', '.']).find(is_step)?.parse().ok()
}

/// Returns the text as a part of a file's name.
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
    // Plain data with string keys: it always serializes, and the error would say so in the file.
    serde_json::to_string_pretty(content).unwrap_or_else(|error| error.to_string()) + "\n"
}

#[cfg(test)]
mod tests;
