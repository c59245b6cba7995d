//! The `claude` command line as a client: it asks its server itself, with the user's own login.
//!
//! It runs outside the sandbox, in an empty private directory, with no tools and no settings but the user's. What it is
//! told may hold words of a hostile program, so everything that reads files or runs commands at a word of the prompt
//! (`@file`, `/command`) is switched off. A session has an id of ours, so that a crash does not lose it.

mod child;
pub mod story;
mod verdict;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::events::Place;
use crate::llm::claude_code::child::{Child, Next};
use crate::llm::claude_code::story::{Heard, Story};
use crate::llm::claude_code::verdict::{Failure, judge, judge_silence};
use crate::llm::lines::MAX_LINE;
use crate::llm::{Answer, Block, LlmClient, LlmError, Message, Request, Role, Session, Spent};
use crate::process::private::PrivateDir;
use crate::process::{Job, Launcher};
use crate::secrets::Secrets;
use crate::stop::Stop;

/// The program's name on PATH.
pub const PROGRAM: &str = "claude";

/// No attempt takes longer, however steadily it streams.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// So many of its own retries in a row mean that its server is not there.
const RETRIES_IN_A_ROW: u32 = 4;
/// The kernel takes no argument above 128 KiB.
const LONGEST_ARGUMENT: usize = 120 << 10;
/// How often an invocation is repeated because the session was not what it was taken for.
const SESSION_TRIES: u32 = 3;

/// Settings on top of the user's: a prompt cannot make it read a file.
const SETTINGS: &str = r#"{"permissions":{"deny":["Read(//**)"]}}"#;

/// Variables on top of the user's: nothing is attached, remembered or looked up, nothing is sent but requests.
const VARIABLES: [(&str, &str); 5] = [
    ("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1"),
    ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1"),
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
];

/// What `claude` is started with, whatever it is asked.
#[derive(Debug)]
pub struct Setup {
    pub launcher: Launcher,
    pub program: PathBuf,
    /// Where its directory is made, and the root that it is for.
    pub temporary: PathBuf,
    pub root: PathBuf,
    /// The whole environment, but for what is set here.
    pub env: BTreeMap<OsString, OsString>,
    pub idle_timeout: Duration,
    pub secrets: Secrets,
    pub stop: Stop,
}

/// A client that is another program.
#[derive(Debug)]
pub struct ClaudeCode {
    setup: Setup,
    session: Session,
    until: Option<Instant>,
}

/// What is said to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Said {
    model: String,
    effort: Option<String>,
    system: String,
    prompt: String,
}

/// Returns the id of the session for a place of a run: the same again after a crash.
pub fn session_id(run_id: &str, place: Place) -> String {
    let Place { phase, retry_count, turn } = place;
    let digest = Sha256::digest(format!("{run_id} {phase} {retry_count} {turn}"));
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, digest)| *byte = digest);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

impl ClaudeCode {
    /// Returns a client; nothing is started before it is asked.
    pub fn new(setup: Setup) -> ClaudeCode {
        ClaudeCode { setup, session: Session::default(), until: None }
    }

    /// Starts the program once and hears it to its end.
    fn invoke(&mut self, said: &Said, watch: &mut dyn FnMut(&str)) -> Result<Answer, Failure> {
        let setup = &self.setup;
        if setup.stop.requested().is_some() {
            return Err(Failure::Other(LlmError::Stopped { spent: Spent::Nothing }));
        }
        let directory = PrivateDir::create(&setup.temporary, &setup.root, PROGRAM).map_err(unstarted)?;
        let command = self.command(said);
        let job = Job { command, cwd: directory.path().to_owned(), env: setup.environment(), timeout: Duration::MAX };
        let child = Child::start(&setup.launcher, &job, &said.prompt, &setup.stop)
            .map_err(|error| unstarted(Error::io("start", &setup.program, error)))?;
        self.session.has_begun = true;
        hear(child, &self.setup, watch)
    }

    fn command(&self, said: &Said) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![self.setup.program.clone().into()];
        words.extend(
            ["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"].map(Into::into),
        );
        words.extend(["--tools", "", "--strict-mcp-config"].map(Into::into));
        words.extend(["--setting-sources", "user", "--settings", SETTINGS].map(Into::into));
        words.extend(["--system-prompt".into(), said.system.clone().into()]);
        let session = &self.session;
        words.push(format!("--{}={}", if session.has_begun { "resume" } else { "session-id" }, session.id).into());
        if !said.model.is_empty() {
            words.extend(["--model".into(), said.model.clone().into()]);
        }
        if let Some(effort) = &said.effort {
            words.extend(["--effort".into(), effort.into()]);
        }
        if let Some(left) = session.usd_left {
            words.extend(["--max-budget-usd".into(), format!("{:.6}", left.max(0.000_001)).into()]);
        }
        words
    }
}

impl Setup {
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env = self.env.clone();
        env.extend(VARIABLES.map(|(name, value)| (name.into(), value.into())));
        env.into_iter().collect()
    }
}

impl LlmClient for ClaudeCode {
    fn encode(&self, request: &Request) -> String {
        let mut said = Said {
            model: request.model.clone(),
            effort: request.effort.clone(),
            system: request.system.clone(),
            prompt: prompt(&request.messages),
        };
        if said.system.len() > LONGEST_ARGUMENT {
            said.prompt = format!("{}\n\n{}", std::mem::take(&mut said.system), said.prompt);
        }
        // A prompt that begins like a command of the program would be taken for one.
        if said.prompt.trim_start().starts_with('/') {
            said.prompt.insert_str(0, "This is your task:\n\n");
        }
        serde_json::to_string(&said).unwrap_or_default()
    }

    fn hurry(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    fn attempt(&mut self, body: &str, watch: &mut dyn FnMut(&str)) -> Result<Answer, LlmError> {
        let said: Said =
            serde_json::from_str(body).map_err(|error| LlmError::Permanent { message: error.to_string() })?;
        for _ in 0..SESSION_TRIES {
            match self.invoke(&said, watch) {
                Ok(answer) => return Ok(answer),
                Err(Failure::NoSession) => self.session.has_begun = false,
                Err(Failure::SessionInUse) => self.session.has_begun = true,
                Err(Failure::MaxTurns(_)) => {
                    return Err(LlmError::Permanent { message: "claude used up its turns".into() });
                }
                Err(Failure::Other(error)) => return Err(error),
            }
        }
        let message = format!("claude neither finds nor begins the session {}", self.session.id);
        Err(LlmError::Transient { message, retry_after: None, spent: Spent::Nothing })
    }

    fn session(&mut self) -> Option<&mut Session> {
        Some(&mut self.session)
    }
}

/// Hears a child to its result.
fn hear(mut child: Child, setup: &Setup, watch: &mut dyn FnMut(&str)) -> Result<Answer, Failure> {
    let total_until = Instant::now() + TOTAL_TIMEOUT;
    let idle_until = || Instant::now().checked_add(setup.idle_timeout).unwrap_or(total_until);
    let (mut story, mut deadline) = (Story::default(), idle_until());
    loop {
        let broken = match child.next(deadline.min(total_until), None) {
            Next::Line(line) => {
                let line = String::from_utf8_lossy(&line);
                let line = setup.secrets.redact(&line);
                if line.starts_with('{') {
                    watch(&line);
                }
                match story.hear(&line) {
                    Ok(Heard::Nothing) => continue,
                    Ok(Heard::Something) => {
                        deadline = idle_until();
                        continue;
                    }
                    Ok(Heard::Retrying(count, _)) if count < RETRIES_IN_A_ROW => continue,
                    Ok(Heard::Retrying(_, why)) => return Err(given_up(&story, &why)),
                    Ok(Heard::Result(result)) => {
                        child.finish();
                        return judge(&result, &story);
                    }
                    Err(problem) => problem,
                }
            }
            Next::Over => {
                let (ended, complaints) = child.finish();
                return Err(judge_silence(&ended, &setup.secrets.redact(&complaints), &story));
            }
            Next::Stopped => return Err(Failure::Other(LlmError::Stopped { spent: story.spent() })),
            Next::TooLong => format!("a line of claude's is longer than {} bytes", MAX_LINE),
            Next::TimedOut if total_until <= deadline => {
                format!("claude was not done after {} s", TOTAL_TIMEOUT.as_secs())
            }
            Next::TimedOut | Next::Woken => {
                format!("silence of claude for {} s (idle timeout)", setup.idle_timeout.as_secs_f64())
            }
        };
        return Err(Failure::Other(LlmError::Transient { message: broken, retry_after: None, spent: story.spent() }));
    }
}

/// The program goes on trying for minutes; a pause is better, and a refused key is none of its server's faults.
fn given_up(story: &Story, why: &str) -> Failure {
    let message = format!("claude asks its server in vain ({why}), {RETRIES_IN_A_ROW} times in a row");
    Failure::Other(match story.status {
        Some(401..=403) => LlmError::Unauthorized { message },
        _ => LlmError::LimitReached { message },
    })
}

fn unstarted(error: Error) -> Failure {
    let message = error.to_string();
    Failure::Other(LlmError::Transient { message, retry_after: None, spent: Spent::Nothing })
}

/// A conversation as one text: the program keeps sessions of its own, but none that we would have to trust.
fn prompt(messages: &[Message]) -> String {
    let mut prompt = String::new();
    for message in messages {
        if !prompt.is_empty() {
            let whose = if message.role == Role::User { "What was said to it" } else { "Your answer so far" };
            prompt += &format!("\n\n# {whose}\n\n");
        }
        let texts = message.content.iter().filter_map(|block| match block {
            Block::Text { text, .. } => Some(text.trim_end()),
            _ => None,
        });
        prompt += &texts.collect::<Vec<_>>().join("\n\n");
    }
    prompt
}
