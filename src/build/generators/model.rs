//! Files mode: one request per phase, answered with whole files. An answer that is not in the format gets a reminder in the
//! same phase, a bounded number of times.

use crate::build::context::Context;
use crate::build::generators::answer_format::fault::FormatFault;
use crate::build::generators::answer_format::{self, FileBlock};
use crate::build::generators::file_selection::FileSelection;
use crate::build::generators::prompt::{OpeningMessage, PromptTemplates};
use crate::build::generators::{Generator, WrittenFiles, apply};
use crate::build::spec::inputs::{InputKind, WorkspaceInput};
use crate::conversation::history::AnswerRefusal;
use crate::conversation::model_call::{Exchange, ModelCall, RecordedModel};
use crate::conversation::replay::Replay;
use crate::conversation::state::{UnusableAnswer, without_thinking};
use crate::error::{Error, Result};
use crate::events::{Event, MAIN_AGENT, RequestPlace};
use crate::llm::{
    Answer, ContentBlock, Message, ModelRequest, PermanentError, PermanentErrorKind, Role,
    StopReason,
};
use crate::state::phase::Phase;
use crate::state::reason::Reason;
use crate::text::shorten::cut_middle;
use crate::workspace::safe_path::SafePath;
use crate::workspace::{ChangeRefusal, FileChange};

/// Bytes counted as one token.
const BYTES_PER_TOKEN: usize = 3;

/// A model that answers with files.
pub(crate) struct FilesModel {
    pub model_call: RecordedModel,
    pub prompts: PromptTemplates,
    pub model: String,
    /// The context window of the model, the answer included.
    pub context_tokens: usize,
}

/// The size of a request and its answer, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TokenRoom {
    input: usize,
    output: u32,
}

impl TokenRoom {
    /// Divides a context window. An answer that would leave less than a quarter for the prompt gets half.
    fn of(context_tokens: usize, max_tokens: u32) -> TokenRoom {
        let wanted = max_tokens as usize;
        let output = if context_tokens / 4 * 3 < wanted {
            (context_tokens / 2).max(1)
        } else {
            wanted
        };
        TokenRoom {
            input: context_tokens.saturating_sub(output),
            output: u32::try_from(output).unwrap_or(max_tokens),
        }
    }

    /// A smaller size, after the provider refused a request of so many bytes as too long.
    fn smaller(self, bytes: usize, message: &str) -> TokenRoom {
        let input = self.input.min(bytes / BYTES_PER_TOKEN) / 2;
        match limit_in(message).filter(|limit| *limit < self.input + self.output as usize) {
            Some(limit) => {
                let room = TokenRoom::of(limit, self.output);
                TokenRoom {
                    input: room.input.min(input),
                    output: room.output,
                }
            }
            // The part that does not fit may be `max_tokens`.
            None => TokenRoom {
                input,
                output: (self.output / 2).max(1),
            },
        }
    }
}

/// Whether a smaller request may succeed. A small request that a server refuses with 413 is not helped by leaving files out.
fn asks_for_less(kind: PermanentErrorKind, bytes: usize) -> bool {
    match kind {
        PermanentErrorKind::ContextTooLong => true,
        PermanentErrorKind::RequestTooLarge => LARGE_REQUEST <= bytes,
        PermanentErrorKind::UnknownModel
        | PermanentErrorKind::UnknownPath
        | PermanentErrorKind::Other => false,
    }
}

const LARGE_REQUEST: usize = 16 << 10;

/// The limit that a refusal names: the smallest of its numbers that can be one.
fn limit_in(message: &str) -> Option<usize> {
    let numbers = message
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|word| word.parse().ok());
    numbers.filter(|number| 1000 <= *number).min()
}

impl Generator for FilesModel {
    fn write(&mut self, context: &mut Context) -> Result<WrittenFiles> {
        let room = self.room(context)?;
        let mut request = self.opening(context, room)?;
        let mut had_a_block = false;
        let mut turn = 0;
        let mut reminders = 0;
        let mut is_smaller = false;
        loop {
            let judged = match known_refusal(context, turn) {
                Some(refused) => AnswerVerdict::Refused(refused),
                None => self.judged(context, turn, &request)?,
            };
            let next = context.place(turn + 1);
            if !matches!(judged, AnswerVerdict::Usable(_)) {
                // With a usable answer the phase ends, and the state is saved.
                context.save_usage()?;
            }
            match judged {
                AnswerVerdict::Usable(changes) => return apply(context, &changes),
                AnswerVerdict::TooLong(error) if is_smaller => {
                    return Err(context.unusable(UnusableAnswer::ModelError(error)));
                }
                AnswerVerdict::TooLong(error) => {
                    is_smaller = true;
                    request = self.opening(
                        context,
                        room.smaller(request_bytes(&request), &error.message),
                    )?;
                    if let Some(said) = logged_messages(context, next) {
                        request.messages = said;
                    }
                }
                AnswerVerdict::Refused(refused) => {
                    had_a_block |= refused.had_a_block;
                    if reminders >= context.spec.generator.format_retries
                        && context.history(|history| history.answer(next).is_none())
                    {
                        return Err(match had_a_block {
                            true => context.unusable(refused.fault),
                            false => Error::Failed(Reason::NoOutput, refused.fault),
                        });
                    }
                    reminders += 1;
                    match logged_messages(context, next) {
                        Some(said) => request.messages = said,
                        None => remind(&mut request, &refused),
                    }
                }
            }
            turn += 1;
        }
    }

    fn has_begun(&self, context: &Context) -> bool {
        let first = context.place(0);
        context.history(|history| history.answer(first).is_some())
    }

    fn replay(&self) -> Option<&Replay> {
        self.model_call.replay.as_deref()
    }
}

/// Whether an answer can be used.
enum AnswerVerdict {
    Usable(Vec<FileChange>),
    Refused(RefusedAnswer),
    /// The provider refused the request as too long.
    TooLong(PermanentError),
}

/// The messages of a request of an interrupted run: later changes of the workspace must not alter them.
fn logged_messages(context: &Context, place: RequestPlace) -> Option<Vec<Message>> {
    let messages: Vec<Message> =
        context.history(|history| Some(history.request(place)?.messages().collect()))?;
    (!messages.is_empty()).then_some(messages)
}

/// An answer that is not used.
struct RefusedAnswer {
    text: String,
    fault: String,
    had_a_block: bool,
}

/// What the log knows of an answer that was refused. It is not judged again: what a later answer did to the workspace,
/// before a crash, may have removed the reason.
fn known_refusal(context: &Context, turn: u32) -> Option<RefusedAnswer> {
    let place = context.place(turn);
    context.history(|history| {
        let text = match history.answer(place) {
            Some(Err(_)) => return None,
            Some(Ok(answer)) => answer.text(),
            None => String::new(),
        };
        let had_a_block = !answer_format::parse(&text).blocks.is_empty();
        match history.refusal(place) {
            Some(AnswerRefusal { fault, had_a_block }) => Some(RefusedAnswer {
                text,
                fault: fault.clone(),
                had_a_block: *had_a_block,
            }),
            // The line that says so is missing, but nothing else makes the next request.
            None => history.request(place.next()).map(|_| RefusedAnswer {
                text,
                fault: "it was refused before".into(),
                had_a_block,
            }),
        }
    })
}

impl FilesModel {
    /// Asks and reads the answer. A refusal is in the log before anything depends on it.
    fn judged(
        &mut self,
        context: &mut Context,
        turn: u32,
        request: &ModelRequest,
    ) -> Result<AnswerVerdict> {
        let place = context.place(turn);
        let exchange = self
            .model_call
            .exchange(&context.agent(), ModelCall::single(place, request));
        if exchange.is_err() {
            context.save_usage()?;
        }
        let Exchange { answer, .. } = exchange?;
        let answer = match answer {
            Err(error) if asks_for_less(error.kind, request_bytes(request)) => {
                return Ok(AnswerVerdict::TooLong(error));
            }
            Err(error) => return Err(context.unusable(UnusableAnswer::ModelError(error))),
            Ok(answer) => answer,
        };
        if let StopReason::Refusal(category) = &answer.stop {
            let category = category.clone();
            return Err(context.unusable(UnusableAnswer::Refused { category }));
        }
        let fault = match read(&answer, context)? {
            Ok(changes) => return Ok(AnswerVerdict::Usable(changes)),
            Err(fault) => fault.to_string(),
        };
        let text = answer.text();
        let had_a_block = !answer_format::parse(&text).blocks.is_empty();
        let agent_id = MAIN_AGENT.into();
        context.log.record(Event::AnswerRefused {
            agent_id,
            place,
            fault: fault.clone(),
            had_a_block,
        })?;
        Ok(AnswerVerdict::Refused(RefusedAnswer {
            text,
            fault,
            had_a_block,
        }))
    }

    /// The size of requests. A note says where it is less than the spec asks for.
    fn room(&self, context: &mut Context) -> Result<TokenRoom> {
        let wanted = context.spec.generator.max_tokens;
        let room = TokenRoom::of(self.context_tokens, wanted);
        if room.output < wanted {
            context.log.note(format!(
                "generator.max_tokens ({wanted}) leaves no room for a prompt in a context of {} tokens: answers get {}",
                self.context_tokens, room.output
            ))?;
        }
        Ok(room)
    }

    /// The first request of a phase: the report gets at most half of what the task leaves, the files the rest.
    fn opening(&self, context: &Context, room: TokenRoom) -> Result<ModelRequest> {
        let generator = &context.spec.generator;
        let mut request = ModelRequest {
            model: self.model.clone(),
            max_tokens: room.output,
            temperature: generator.temperature,
            effort: generator.effort.clone(),
            system: self.prompts.system(&context.spec, ""),
            tools: Vec::new(),
            messages: Vec::new(),
            varying: Vec::new(),
        };
        let report = context.report();
        let report = report.as_deref();
        let mut opening = OpeningMessage {
            files: Vec::new(),
            report: report.map(|_| String::new()),
            is_patch: context.state.phase == Phase::Patching,
            attempts: context.facts(|facts| facts.attempts_for_prompt(&context.state)),
            read_only: read_only(&context.inputs.protect),
        };
        request.messages = vec![self.prompts.opening(&context.spec, &opening)];
        let left = (room.input * BYTES_PER_TOKEN).saturating_sub(request_bytes(&request));
        opening.report = report.map(|report| cut_middle(report, (left / 2).max(LEAST_REPORT)));
        let left = left.saturating_sub(opening.report.as_ref().map_or(0, String::len));
        let report = report.unwrap_or_default();
        let (protect, attempt) = (&context.inputs.protect, &context.state.attempt_files);
        let selection = FileSelection::new(&context.workspace, protect, attempt, report);
        opening.files = selection.shown_files(left)?;
        request.messages = vec![self.prompts.opening(&context.spec, &opening)];
        request.varying = opening
            .report
            .into_iter()
            .chain([opening.attempts])
            .collect();
        Ok(request)
    }
}

/// The names of protected files and folders, without files inside a named folder.
fn read_only(protect: &[WorkspaceInput]) -> Vec<String> {
    let is_folder = |input: &&WorkspaceInput| input.kind == InputKind::Dir;
    let folders: Vec<String> = protect
        .iter()
        .filter(is_folder)
        .map(|input| format!("{}/", input.to))
        .collect();
    let files = protect
        .iter()
        .filter(|input| !is_folder(input))
        .map(|input| input.to.to_string());
    let is_below_another = |name: &String| {
        folders
            .iter()
            .any(|folder| folder != name && name.starts_with(folder))
    };
    folders
        .iter()
        .cloned()
        .chain(files)
        .filter(|name| !is_below_another(name))
        .collect()
}

/// Bytes of a report that are always sent.
const LEAST_REPORT: usize = 1500;

fn request_bytes(request: &ModelRequest) -> usize {
    let blocks = request.messages.iter().flat_map(|message| &message.content);
    let text = |block: &ContentBlock| match block {
        ContentBlock::Text { text, .. } => text.len(),
        _ => 0,
    };
    request.system.len() + blocks.map(text).sum::<usize>()
}

/// Reads an answer: names first, then the format, then conflicts with the workspace.
fn read(
    answer: &Answer,
    context: &mut Context,
) -> Result<std::result::Result<Vec<FileChange>, FormatFault>> {
    let reply = answer_format::parse(&answer.text());
    let paths = reply
        .blocks
        .iter()
        .map(|block| SafePath::parse(block.path()))
        .collect::<std::result::Result<Vec<_>, _>>()?;
    let written = reply
        .blocks
        .iter()
        .zip(&paths)
        .map(|(block, path)| match block {
            FileBlock::Write { content, .. } => Some((path, content.as_bytes())),
            FileBlock::Delete { .. } => None,
        });
    context.rules.check_answer(&context.workspace, written)?;
    if let Some(fault) = reply.fault(&paths, answer.stop == StopReason::MaxTokens) {
        return Ok(Err(fault));
    }
    let changes: Vec<FileChange> = reply
        .blocks
        .into_iter()
        .zip(paths)
        .map(|(block, path)| change(block, path))
        .collect();
    match context.workspace.check(&changes) {
        Ok(()) => Ok(Ok(changes)),
        Err(ChangeRefusal::Conflict(text)) => Ok(Err(FormatFault::Conflict(text))),
        Err(ChangeRefusal::Violation(violation)) => Err(Error::Safety(violation)),
        Err(ChangeRefusal::Io(error)) => Err(error),
    }
}

fn change(block: FileBlock, path: SafePath) -> FileChange {
    match block {
        FileBlock::Write { content, .. } => FileChange::Write {
            path,
            content: content.into_bytes(),
        },
        FileBlock::Delete { .. } => FileChange::Delete { path },
    }
}

/// Adds the answer and what was wrong with it. An empty answer cannot be sent back, so the reminder follows the question.
fn remind(request: &mut ModelRequest, refused: &RefusedAnswer) {
    let RefusedAnswer { text, fault, .. } = refused;
    let reminder = format!(
        "Your answer was not used: {fault}. Nothing of it was written. Answer again, in full: every file between a line \
         <file path=\"NAME\"> and a line </file>, without Markdown fences."
    );
    let text = without_thinking(text);
    match request.messages.last_mut() {
        Some(last) if text.trim().is_empty() && last.role == Role::User => {
            last.content.push(ContentBlock::text(reminder))
        }
        _ => {
            request.messages.push(Message {
                role: Role::Assistant,
                content: vec![ContentBlock::text(text.trim_end())],
            });
            request.messages.push(Message {
                role: Role::User,
                content: vec![ContentBlock::text(reminder)],
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_always_has_room() {
        assert_eq!(
            TokenRoom::of(200_000, 16_000),
            TokenRoom {
                input: 184_000,
                output: 16_000
            }
        );
        assert_eq!(
            TokenRoom::of(32_000, 16_000),
            TokenRoom {
                input: 16_000,
                output: 16_000
            }
        );
        assert_eq!(
            TokenRoom::of(9_000, 1_000),
            TokenRoom {
                input: 8_000,
                output: 1_000
            }
        );
        assert_eq!(
            TokenRoom::of(4_096, 16_000),
            TokenRoom {
                input: 2_048,
                output: 2_048
            }
        );
        assert_eq!(
            TokenRoom::of(4_096, 3_072),
            TokenRoom {
                input: 1_024,
                output: 3_072
            }
        );
        assert_eq!(
            TokenRoom::of(4_096, 3_073),
            TokenRoom {
                input: 2_048,
                output: 2_048
            }
        );
        assert_eq!(
            TokenRoom::of(1, 16_000),
            TokenRoom {
                input: 0,
                output: 1
            }
        );
    }

    #[test]
    fn a_refusal_says_how_much_less() {
        let room = TokenRoom::of(32_000, 16_000);
        let check = |message: &str, input, output| {
            assert_eq!(room.smaller(30_000, message), TokenRoom { input, output })
        };
        check("HTTP 400: prompt is too long", 5_000, 8_000);
        check(
            "HTTP 400: prompt is too long: 210000 tokens > 200000 maximum",
            5_000,
            8_000,
        );
        check(
            "HTTP 400: the request exceeds the available context size (4096 tokens)",
            2_048,
            2_048,
        );
        check(
            "HTTP 400: maximum context length is 8192 tokens, you requested 26000",
            4_096,
            4_096,
        );
        check(
            "HTTP 400: maximum context length is 99999999999999999999999999 tokens",
            5_000,
            8_000,
        );
    }

    #[test]
    fn only_a_large_request_is_too_large_for_a_server() {
        assert!(asks_for_less(PermanentErrorKind::ContextTooLong, 100));
        assert!(asks_for_less(PermanentErrorKind::RequestTooLarge, 1 << 20));
        assert!(!asks_for_less(PermanentErrorKind::RequestTooLarge, 1000));
        assert!(!asks_for_less(PermanentErrorKind::Other, 1 << 20));
    }
}
