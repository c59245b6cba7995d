//! One run of the program: how it is started, and what is heard until its result or a limit.

use std::ffi::OsString;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::process::getpid;
use serde_json::json;

use crate::error::Error;
use crate::llm::claude_code::child::{ClaudeChild, NextLine};
use crate::llm::claude_code::result::{ClaudeFailure, result_of, result_of_silence};
use crate::llm::claude_code::stream::{ClaudeStream, StreamLine};
use crate::llm::claude_code::{ClaudeCode, ClaudePrompt, ClaudeSetup, PROGRAM};
use crate::llm::client::{ProviderSession, SessionStart};
use crate::llm::error::{LlmError, Spent};
use crate::llm::line_buffer::MAX_LINE;
use crate::llm::mcp::server::McpServer;
use crate::llm::mcp::{RELAY_COMMAND, Toolbox};
use crate::llm::message::Answer;
use crate::process::Job;
use crate::process::scratch::ScratchDir;

/// No answer takes longer, however steadily it streams; a conversation has a limit of its own.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(60 * 60);
/// So many of its own retries in a row mean that its server is not there.
const RETRIES_IN_A_ROW: u32 = 4;
/// The kernel takes no argument above 128 KiB.
const LONGEST_ARGUMENT: usize = 120 << 10;
/// The limit of money is given in steps of this; nothing at all is no limit that it takes.
const LEAST_USD: f64 = 0.000_001;

/// The name under which tools are offered, and that of the directory of their socket.
const SERVER: &str = "orchestrator";
const SERVER_DIRECTORY: &str = "mcp";

/// What it is always told: to speak a stream, to have no tools of its own, and to read the user's settings alone.
const ARGUMENTS: [&str; 12] = [
    "-p",
    "--output-format",
    "stream-json",
    "--verbose",
    "--include-partial-messages",
    "--tools",
    "",
    "--strict-mcp-config",
    "--setting-sources",
    "user",
    "--settings",
    // A word of the prompt cannot make it read a file.
    r#"{"permissions":{"deny":["Read(//**)"]}}"#,
];

/// Variables on top of the user's: nothing is attached, remembered or looked up, nothing is sent but requests, and a call
/// takes as long as it takes.
const VARIABLES: [(&str, &str); 8] = [
    ("CLAUDE_CODE_DISABLE_ATTACHMENTS", "1"),
    ("CLAUDE_CODE_DISABLE_CLAUDE_MDS", "1"),
    ("CLAUDE_CODE_DISABLE_AUTO_MEMORY", "1"),
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    ("ENABLE_TOOL_SEARCH", "0"),
    ("MCP_TOOL_TIMEOUT", "3600000"),
    ("CLAUDE_CODE_MCP_AUTO_BACKGROUND_MS", "0"),
];

/// Tools, and where calls of them arrive.
struct ServedTools<'a> {
    toolbox: &'a mut dyn Toolbox,
    server: McpServer,
    _directory: ScratchDir,
}

impl ClaudeCode {
    /// Runs the program once, to its end.
    pub(super) fn invoke(
        &mut self,
        said: &ClaudePrompt,
        session: &ProviderSession,
        toolbox: Option<&mut dyn Toolbox>,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, ClaudeFailure> {
        let (start, setup) = (self.start_of(session), &self.setup);
        if setup.cancel.requested().is_some() {
            return Err(stopped(Spent::Nothing));
        }
        let counter = toolbox
            .map(|toolbox| ServedTools::open(setup, toolbox))
            .transpose()
            .map_err(unstarted)?;
        let directory =
            ScratchDir::create(&setup.temporary, &setup.root, PROGRAM).map_err(unstarted)?;
        let (arguments, prompt) = arguments_and_prompt(said, session, &start);
        let mut command = vec![setup.program.clone().into_os_string()];
        command.extend(arguments);
        command.extend(counter.iter().flat_map(ServedTools::arguments));
        let job = Job {
            command,
            cwd: directory.path().to_owned(),
            env: setup.environment(),
            timeout: Duration::MAX,
        };
        let child = ClaudeChild::start(&setup.launcher, &job, &prompt, &setup.cancel)
            .map_err(|error| unstarted(Error::io("start", &setup.program, error)))?;
        self.known = Some((session.id.clone(), SessionStart::Continue));
        let total = if counter.is_some() {
            Duration::MAX
        } else {
            TOTAL_TIMEOUT
        };
        let clock = InvocationClock::start(setup.idle_timeout, total, self.deadline);
        let stream = ClaudeStream::asked(said.system.len() + prompt.len());
        Invocation {
            child,
            clock,
            stream,
            setup,
            watch,
        }
        .until_the_end(counter)
    }
}

/// Returns the arguments that depend on the request, and the prompt.
fn arguments_and_prompt(
    said: &ClaudePrompt,
    session: &ProviderSession,
    start: &SessionStart,
) -> (Vec<OsString>, String) {
    let mut prompt = match (start, &session.resume_prompt) {
        (SessionStart::Fresh, _) => said.all.clone(),
        (SessionStart::Continue, Some(resumed)) => resumed.clone(),
        (SessionStart::Continue | SessionStart::Fork { .. }, _) => said.new.clone(),
    };
    let mut arguments: Vec<OsString> = ARGUMENTS.map(Into::into).into();
    let mut flag = |name: &str, value: &str| arguments.push(format!("--{name}={value}").into());
    match said.system.len() <= LONGEST_ARGUMENT {
        true => flag("system-prompt", &said.system),
        false => prompt = format!("{}\n\n{prompt}", said.system),
    }
    // A prompt that begins like a command of the program would be taken for one.
    if prompt.trim_start().starts_with('/') {
        prompt.insert_str(0, "This is your task:\n\n");
    }
    match start {
        SessionStart::Fresh => flag("session-id", &session.id),
        SessionStart::Continue => flag("resume", &session.id),
        SessionStart::Fork { from } => {
            flag("resume", from);
            flag("session-id", &session.id);
        }
    }
    if !said.model.is_empty() {
        flag("model", &said.model);
    }
    said.effort.iter().for_each(|effort| flag("effort", effort));
    session
        .usd_left
        .iter()
        .for_each(|left| flag("max-budget-usd", &format!("{:.6}", left.max(LEAST_USD))));
    session
        .turns_left
        .iter()
        .for_each(|left| flag("max-turns", &left.to_string()));
    if matches!(start, SessionStart::Fork { .. }) {
        arguments.push("--fork-session".into());
    }
    (arguments, prompt)
}

impl ClaudeSetup {
    fn environment(&self) -> Vec<(OsString, OsString)> {
        let mut env = self.env.clone();
        env.extend(VARIABLES.map(|(name, value)| (name.into(), value.into())));
        env.into_iter().collect()
    }
}

impl<'a> ServedTools<'a> {
    fn open(setup: &ClaudeSetup, toolbox: &'a mut dyn Toolbox) -> Result<ServedTools<'a>, Error> {
        let directory = ScratchDir::create(&setup.temporary, &setup.root, SERVER_DIRECTORY)?;
        let server = McpServer::open(directory.path())
            .map_err(|error| Error::io("listen in", directory.path(), error))?;
        Ok(ServedTools {
            toolbox,
            server,
            _directory: directory,
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        // This program as this process has it, also after it was replaced or deleted on disk.
        let own = format!("/proc/{}/exe", getpid());
        let server =
            json!({"type": "stdio", "command": own, "args": [RELAY_COMMAND, self.server.path()]});
        let config = json!({"mcpServers": {SERVER: server}});
        vec![
            format!("--mcp-config={config}").into(),
            format!("--allowedTools=mcp__{SERVER}").into(),
        ]
    }
}

/// The limits in time: of silence, of the whole, and of whoever waits for it.
struct InvocationClock {
    idle: Duration,
    idle_until: Instant,
    total_until: Option<Instant>,
    hurry: Option<Instant>,
}

impl InvocationClock {
    fn start(idle: Duration, total: Duration, hurry: Option<Instant>) -> InvocationClock {
        let now = Instant::now();
        let mut clock = InvocationClock {
            idle,
            idle_until: now,
            total_until: now.checked_add(total),
            hurry,
        };
        clock.heard();
        clock
    }

    fn heard(&mut self) {
        let now = Instant::now();
        self.idle_until = now.checked_add(self.idle).unwrap_or(now + TOTAL_TIMEOUT);
    }

    fn deadline(&self) -> Instant {
        [self.total_until, self.hurry]
            .into_iter()
            .flatten()
            .fold(self.idle_until, Instant::min)
    }

    /// Returns what a deadline that has passed means.
    fn failure(&self, spent: Spent) -> ClaudeFailure {
        let has_passed =
            |limit: Option<Instant>| limit.is_some_and(|limit| limit <= Instant::now());
        if has_passed(self.hurry) {
            return stopped(spent);
        }
        broken(
            match has_passed(self.total_until) {
                true => format!("claude was not done after {} s", TOTAL_TIMEOUT.as_secs()),
                false => format!(
                    "silence of claude for {} s (idle timeout)",
                    self.idle.as_secs_f64()
                ),
            },
            spent,
        )
    }
}

/// A run of the program that is being heard.
struct Invocation<'a> {
    child: ClaudeChild,
    clock: InvocationClock,
    stream: ClaudeStream,
    setup: &'a ClaudeSetup,
    watch: &'a mut dyn FnMut(&str),
}

impl Invocation<'_> {
    fn until_the_end(
        mut self,
        mut counter: Option<ServedTools<'_>>,
    ) -> Result<Answer, ClaudeFailure> {
        loop {
            let bell: Option<BorrowedFd<'_>> = counter
                .as_ref()
                .map(|counter| counter.server.readable_when_called());
            match self.child.next(self.clock.deadline(), bell) {
                NextLine::Line(line) => {
                    if let Some(result) = self.hear(&line)? {
                        self.child.finish();
                        return result_of(&result, &self.stream);
                    }
                }
                NextLine::Woken => {
                    let goes_on = counter.as_mut().is_none_or(|counter| {
                        counter.server.serve(counter.toolbox, self.stream.turns)
                    });
                    if !goes_on {
                        return Err(stopped(self.stream.spent()));
                    }
                    self.clock.heard();
                }
                NextLine::Over => {
                    let (ended, complaints) = self.child.finish();
                    return Err(result_of_silence(
                        &ended,
                        &self.setup.secrets.redact(&complaints),
                        &self.stream,
                    ));
                }
                NextLine::Stopped => return Err(stopped(self.stream.spent())),
                NextLine::TooLong => {
                    let problem = format!("a line of claude's is longer than {MAX_LINE} bytes");
                    return Err(broken(problem, self.stream.spent()));
                }
                NextLine::TimedOut => return Err(self.clock.failure(self.stream.spent())),
            }
        }
    }

    /// Hears one line; returns the result if it is one.
    fn hear(&mut self, line: &[u8]) -> Result<Option<serde_json::Value>, ClaudeFailure> {
        let line = String::from_utf8_lossy(line);
        let line = self.setup.secrets.redact(&line);
        if line.starts_with('{') {
            (self.watch)(&line);
        }
        match self
            .stream
            .hear(&line)
            .map_err(|problem| broken(problem, self.stream.spent()))?
        {
            StreamLine::Nothing => {}
            StreamLine::Something => self.clock.heard(),
            StreamLine::Retrying(count, why) if count >= RETRIES_IN_A_ROW => {
                return Err(given_up(&self.stream, &why));
            }
            StreamLine::Retrying(..) => {}
            StreamLine::Result(result) => return Ok(Some(result)),
        }
        Ok(None)
    }
}

/// The program goes on trying for minutes; a pause is better.
fn given_up(stream: &ClaudeStream, why: &str) -> ClaudeFailure {
    let message =
        format!("claude asks its server in vain ({why}), {RETRIES_IN_A_ROW} times in a row");
    ClaudeFailure::Other(match stream.status {
        Some(401..=403) => LlmError::Unauthorized { message },
        _ => LlmError::LimitReached { message },
    })
}

fn stopped(spent: Spent) -> ClaudeFailure {
    ClaudeFailure::Other(LlmError::Stopped { spent })
}

fn broken(message: String, spent: Spent) -> ClaudeFailure {
    ClaudeFailure::Other(LlmError::transient(message, spent))
}

fn unstarted(error: Error) -> ClaudeFailure {
    broken(error.to_string(), Spent::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_begun_continued_or_forked() {
        let said = ClaudePrompt {
            model: String::new(),
            effort: None,
            system: "s".into(),
            all: "all of it".into(),
            new: "what is new".into(),
        };
        let check = |start, resume_prompt: Option<&str>, flags: &[&str], expected: &str| {
            let session = ProviderSession {
                id: "ID".into(),
                resume_prompt: resume_prompt.map(str::to_owned),
                ..ProviderSession::default()
            };
            let (arguments, prompt) = arguments_and_prompt(&said, &session, &start);
            let own = &arguments[ARGUMENTS.len() + 1..];
            assert_eq!(
                (own, prompt.as_str()),
                (
                    &flags.iter().map(OsString::from).collect::<Vec<_>>()[..],
                    expected
                )
            );
        };
        let fork = || SessionStart::Fork {
            from: "FROM".into(),
        };
        let forked = ["--resume=FROM", "--session-id=ID", "--fork-session"];
        check(
            SessionStart::Fresh,
            Some("go on"),
            &["--session-id=ID"],
            "all of it",
        );
        check(
            SessionStart::Continue,
            None,
            &["--resume=ID"],
            "what is new",
        );
        check(
            SessionStart::Continue,
            Some("go on"),
            &["--resume=ID"],
            "go on",
        );
        check(fork(), None, &forked, "what is new");
        check(fork(), Some("go on"), &forked, "what is new");
    }
}
