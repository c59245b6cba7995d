//! Files mode: one request a phase, the answer's files in full; an answer that is not in the format gets a reminder
//! in the same phase, a bounded number of times.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use crate::engine::context::Context;
use crate::engine::generators::prompt::{Prompts, Shown, ShownFile};
use crate::engine::generators::reply::{self, Block as FileBlock, Fault};
use crate::engine::generators::{Generator, Written, apply};
use crate::engine::memory::Refused;
use crate::engine::steering;
use crate::engine::step::is_kept;
use crate::engine::voice::Voice;
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT};
use crate::llm::{Answer, Block, Message, Request, Role, StopReason};
use crate::safety::door::{Change, Kind, Read, Refusal, Walk};
use crate::safety::path::SafePath;
use crate::state::phase::Phase;
use crate::state::reason::Reason;

/// A file longer than this is named and not shown.
const SHOWN_FILE_LIMIT: u64 = 128 << 10;
/// All files together; those behind it are named.
const SHOWN_LIMIT: usize = 640 << 10;
/// Files that are named and not shown; those behind them are counted.
const NAMED_LIMIT: usize = 1000;
/// What a file takes beside its name and its content.
const SHOWN_OVERHEAD: usize = 32;
/// Folders that hold what tools made, not what was written: named as one.
pub const NOT_SHOWN: [&str; 8] =
    [".git", "node_modules", "target", ".venv", "venv", "__pycache__", ".pytest_cache", ".mypy_cache"];

/// A model that answers with files.
pub struct FilesModel {
    pub voice: Voice,
    pub prompts: Prompts,
    pub model: String,
}

impl Generator for FilesModel {
    fn write(&mut self, context: &mut Context) -> Result<Written> {
        let mut request = self.opening(context)?;
        let mut had_a_block = false;
        let mut turn = 0;
        loop {
            let refused = match known_refusal(context, turn) {
                Some(refused) => refused,
                None => match self.judged(context, turn, &request)? {
                    Ok(changes) => return apply(context, &changes),
                    Err(refused) => refused,
                },
            };
            had_a_block |= refused.had_a_block;
            let next = context.place(turn + 1);
            if turn >= context.spec.generator.format_retries && context.memory.answer(next).is_none() {
                return Err(match had_a_block {
                    true => context.unusable(refused.fault),
                    false => Error::Failed(Reason::NoOutput, refused.fault),
                });
            }
            match context.memory.request(next).map(|asked| asked.messages().collect::<Vec<_>>()) {
                Some(said) if !said.is_empty() => request.messages = said,
                _ => remind(&mut request, &refused),
            }
            turn += 1;
        }
    }

    fn has_begun(&self, context: &Context) -> bool {
        context.memory.answer(context.place(0)).is_some()
    }
}

/// An answer that is not used.
struct RefusedAnswer {
    text: String,
    fault: String,
    had_a_block: bool,
}

/// Returns what the log knows of an answer that was refused. It is not judged again: what a later answer did to the
/// workspace, before a crash, may have taken the reason away.
fn known_refusal(context: &Context, turn: u32) -> Option<RefusedAnswer> {
    let (place, memory) = (context.place(turn), &context.memory);
    let text = memory.answer(place).and_then(|answer| answer.as_ref().ok()).map(Answer::text).unwrap_or_default();
    let had_a_block = !reply::parse(&text).blocks.is_empty();
    match memory.refused(place) {
        Some(Refused { fault, had_a_block }) => {
            Some(RefusedAnswer { text, fault: fault.clone(), had_a_block: *had_a_block })
        }
        // The line that says so is missing, but nothing else makes the next request.
        None if memory.request(context.place(turn + 1)).is_some() => {
            Some(RefusedAnswer { text, fault: "it was refused before".into(), had_a_block })
        }
        None => None,
    }
}

impl FilesModel {
    /// Asks, and reads the answer; why one cannot be used is in the log before anything follows from it.
    fn judged(
        &mut self,
        context: &mut Context,
        turn: u32,
        request: &Request,
    ) -> Result<std::result::Result<Vec<Change>, RefusedAnswer>> {
        let place = context.place(turn);
        let answer = self.voice.ask(context, place, request)?;
        if let StopReason::Refusal(category) = &answer.stop {
            return Err(context.unusable(format!("the model refused to answer ({category})")));
        }
        let fault = match read(&answer, context)? {
            Ok(changes) => return Ok(Ok(changes)),
            Err(fault) => fault.to_string(),
        };
        let text = answer.text();
        let had_a_block = !reply::parse(&text).blocks.is_empty();
        let agent_id = MAIN_AGENT.into();
        context.scribe.tell(Event::AnswerRefused { agent_id, place, fault: fault.clone(), had_a_block })?;
        Ok(Err(RefusedAnswer { text, fault, had_a_block }))
    }

    fn opening(&self, context: &mut Context) -> Result<Request> {
        let report = (context.state.phase == Phase::Patching).then_some(context.state.last_test_output.as_str());
        let files = shown_files(context)?;
        let generator = &context.spec.generator;
        Ok(Request {
            model: self.model.clone(),
            max_tokens: generator.max_tokens,
            temperature: generator.temperature,
            effort: generator.effort.clone(),
            system: self.prompts.system(&context.spec, ""),
            tools: Vec::new(),
            messages: vec![self.prompts.opening(&context.spec, &files, report)],
        })
    }
}

/// Reads an answer: names first, then the format, then what is in its way in the workspace.
fn read(answer: &Answer, context: &mut Context) -> Result<std::result::Result<Vec<Change>, Fault>> {
    let reply = reply::parse(&answer.text());
    let paths =
        reply.blocks.iter().map(|block| SafePath::parse(block.path())).collect::<std::result::Result<Vec<_>, _>>()?;
    let written = reply.blocks.iter().zip(&paths).map(|(block, path)| match block {
        FileBlock::Write { content, .. } => Some((path, content.as_bytes())),
        FileBlock::Delete { .. } => None,
    });
    steering::judge_answer(written, context)?;
    if let Some(fault) = reply.fault(&paths, answer.stop == StopReason::MaxTokens) {
        return Ok(Err(fault));
    }
    let changes: Vec<Change> = reply.blocks.into_iter().zip(paths).map(|(block, path)| change(block, path)).collect();
    match context.door.judge(&changes) {
        Ok(()) => Ok(Ok(changes)),
        Err(Refusal::Conflict(text)) => Ok(Err(Fault::Conflict(text))),
        Err(Refusal::Violation(violation)) => Err(Error::Safety(violation)),
        Err(Refusal::Io(error)) => Err(error),
    }
}

fn change(block: FileBlock, path: SafePath) -> Change {
    match block {
        FileBlock::Write { content, .. } => Change::Write { path, content: content.into_bytes() },
        FileBlock::Delete { .. } => Change::Delete { path },
    }
}

/// Adds the answer and what was wrong with it. An empty answer cannot be sent back: the words follow the question.
fn remind(request: &mut Request, refused: &RefusedAnswer) {
    let RefusedAnswer { text, fault, .. } = refused;
    let reminder = format!(
        "Your answer was not used: {fault}. Nothing of it was written. Answer again, whole, in the form that was \
         described: every file in a <file path=\"…\"> block that is closed by its own line."
    );
    let text = reply::without_thinking(text);
    match request.messages.last_mut() {
        Some(last) if text.trim().is_empty() && last.role == Role::User => last.content.push(Block::text(reminder)),
        _ => {
            request.messages.push(Message { role: Role::Assistant, content: vec![Block::text(text.trim_end())] });
            request.messages.push(Message { role: Role::User, content: vec![Block::text(reminder)] });
        }
    }
}

/// The workspace as the model is shown it, in the order of the names.
fn shown_files(context: &Context) -> Result<Vec<ShownFile>> {
    let mut found = Vec::new();
    context.door.walk(&mut |entry| {
        let name = entry.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        match &entry.kind {
            Kind::Dir { .. } if NOT_SHOWN.contains(&name.as_str()) => {
                found.push((entry.path.clone(), Some("a folder of generated files".to_owned())));
                return Walk::Skip;
            }
            Kind::Dir { .. } => {}
            Kind::File { size, .. } if *size > SHOWN_FILE_LIMIT => {
                found.push((entry.path.clone(), Some(format!("{size} bytes"))));
            }
            Kind::File { .. } => found.push((entry.path.clone(), None)),
            Kind::Link { target } => {
                found.push((entry.path.clone(), Some(format!("a link to {:?}", target.to_string_lossy()))));
            }
            Kind::Special => found.push((entry.path.clone(), Some("no regular file".to_owned()))),
        }
        Walk::On
    })?;
    found.retain(|(path, _)| !is_kept(path));
    let protected: HashSet<&str> = context.inputs.protect.iter().map(|input| input.to.as_str()).collect();
    let mut room = SHOWN_LIMIT;
    let mut files = Vec::new();
    for (number, (path, why)) in own_first(found, context) {
        let content = show(context, &path, why, &mut room)?;
        let path = path.to_string_lossy().into_owned();
        files.push((number, ShownFile { protected: protected.contains(path.as_str()), path, content }));
    }
    files.sort_by_key(|(number, _)| *number);
    Ok(with_few_names(files.into_iter().map(|(_, file)| file).collect()))
}

/// Numbers files and brings those that were given or just written to the front: what tools made gets the room left.
fn own_first<T>(files: Vec<(PathBuf, T)>, context: &Context) -> Vec<(usize, (PathBuf, T))> {
    let given = context.inputs.protect.iter().chain(&context.inputs.copy).map(|input| input.to.as_str());
    let own: HashSet<&Path> =
        context.state.attempt_files.iter().map(String::as_str).chain(given).map(Path::new).collect();
    let mut files: Vec<_> = files.into_iter().enumerate().collect();
    files.sort_by_key(|(_, (path, _))| !own.contains(path.as_path()));
    files
}

/// Leaves out the files that are only named, but for the first of them, and says how many there were.
fn with_few_names(mut files: Vec<ShownFile>) -> Vec<ShownFile> {
    let mut named = 0;
    files.retain(|file| {
        named += usize::from(matches!(file.content, Shown::Name(_)));
        matches!(file.content, Shown::Text(_)) || named <= NAMED_LIMIT
    });
    if let Some(more @ 1..) = named.checked_sub(NAMED_LIMIT) {
        let content = Shown::Name("too many to name".into());
        files.push(ShownFile { path: format!("{more} more files"), protected: false, content });
    }
    files
}

fn show(context: &Context, path: &Path, why: Option<String>, room: &mut usize) -> Result<Shown> {
    if let Some(why) = why {
        return Ok(Shown::Name(why));
    }
    Ok(match context.door.read_file(path, SHOWN_FILE_LIMIT)? {
        Read::File(bytes) => as_shown(bytes, path.as_os_str().len() + SHOWN_OVERHEAD, room),
        Read::TooLarge(size) => Shown::Name(format!("{size} bytes")),
        Read::Other | Read::Missing => Shown::Name("not readable".into()),
    })
}

fn as_shown(bytes: Vec<u8>, overhead: usize, room: &mut usize) -> Shown {
    let size = bytes.len();
    match String::from_utf8(bytes) {
        Ok(text) if !text.contains('\0') && size + overhead <= *room => {
            *room -= size + overhead;
            Shown::Text(text)
        }
        Ok(text) if !text.contains('\0') => Shown::Name(format!("{size} bytes, no room left")),
        _ => Shown::Name(format!("binary, {size} bytes")),
    }
}
