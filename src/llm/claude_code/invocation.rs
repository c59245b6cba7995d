//! One invocation of the program: how it is started, and what is read until its result or a limit.

use std::ffi::OsString;
use std::time::Duration;

use rustix::process::getpid;
use serde_json::{Value, json};

use crate::error::Error;
use crate::llm::claude_code::child::{ClaudeChild, NextLine};
use crate::llm::claude_code::result::{ClaudeFailure, failure_without_result, result_of};
use crate::llm::claude_code::stream::{ClaudeStream, StreamLine};
use crate::llm::claude_code::{ClaudeCode, ClaudePrompt, ClaudeSetup, PROGRAM};
use crate::llm::client::{ProviderSession, SessionStart};
use crate::llm::clock::{AttemptClock, ExpiredLimit, TOTAL_TIMEOUT};
use crate::llm::error::{LlmError, Spent};
use crate::llm::line_buffer::MAX_LINE;
use crate::llm::mcp::server::McpServer;
use crate::llm::mcp::{RELAY_COMMAND, Toolbox};
use crate::llm::message::Answer;
use crate::process::Job;
use crate::process::scratch::{ScratchDir, UsedDir};

/// After so many of its own retries in a row the server counts as unavailable.
const RETRIES_IN_A_ROW: u32 = 4;
/// The kernel accepts no argument above 128 KiB.
const LONGEST_ARGUMENT: usize = 120 << 10;
/// The smallest budget that the program accepts.
const LEAST_USD: f64 = 0.000_001;

/// The name of our MCP server, and that of the directory of its socket.
const SERVER: &str = "orchestrator";
const SERVER_DIRECTORY: &str = "mcp";

/// Arguments of every invocation: print a stream, have no built-in tools, read only the user's settings.
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
    // The prompt must not make it read a file.
    r#"{"permissions":{"deny":["Read(//**)"]}}"#,
];

/// Variables in addition to the user's: no attachments, no memory files, no traffic but requests, and no timeouts of tool
/// calls.
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

/// Tools, and the server that receives calls of them.
struct ServedTools<'a> {
    toolbox: &'a mut dyn Toolbox,
    server: McpServer,
    _directory: UsedDir,
}

impl ClaudeCode {
    /// Runs the program once, to its end.
    pub(super) fn invoke(
        &mut self,
        request: &ClaudePrompt,
        session: &ProviderSession,
        toolbox: Option<&mut dyn Toolbox>,
        watch: &mut dyn FnMut(&str),
    ) -> Result<Answer, ClaudeFailure> {
        let (start, setup) = (self.start_of(session), &self.setup);
        if setup.cancel.requested().is_some() {
            return Err(stopped(Spent::Nothing));
        }
        let tools = toolbox.map(|toolbox| ServedTools::open(setup, toolbox));
        let tools = tools.transpose().map_err(not_started)?;
        let directory = ScratchDir::create_shared(&setup.temporary, &setup.root, PROGRAM)
            .map_err(not_started)?;
        let (arguments, prompt) = arguments_and_prompt(request, session, &start);
        let mut command = vec![setup.program.clone().into_os_string()];
        command.extend(arguments);
        command.extend(tools.iter().flat_map(ServedTools::arguments));
        let job = Job {
            command,
            cwd: directory.path().to_owned(),
            env: setup.environment(),
            timeout: Duration::MAX,
        };
        let child = ClaudeChild::start(&setup.launcher, &job, &prompt, &setup.cancel)
            .map_err(|error| not_started(Error::io("start", &setup.program, error)))?;
        self.known = Some((session.id.clone(), SessionStart::Continue));
        // A conversation with tools has no limit but the caller's deadline.
        let total = tools.is_none().then_some(TOTAL_TIMEOUT);
        let invocation = Invocation {
            child,
            clock: AttemptClock::start(setup.idle_timeout, total, self.deadline),
            stream: ClaudeStream::after_sending(request.system.len() + prompt.len()),
            setup,
            watch,
        };
        invocation.run(tools)
    }
}

/// Returns the arguments that depend on the request, and the prompt.
fn arguments_and_prompt(
    request: &ClaudePrompt,
    session: &ProviderSession,
    start: &SessionStart,
) -> (Vec<OsString>, String) {
    let mut prompt = match (start, &session.resume_prompt) {
        (SessionStart::Fresh, _) => request.all.clone(),
        (SessionStart::Continue, Some(resumed)) => resumed.clone(),
        (SessionStart::Continue | SessionStart::Fork { .. }, _) => request.new.clone(),
    };
    let mut flags = Vec::new();
    match request.system.len() <= LONGEST_ARGUMENT {
        true => flags.push(format!("--system-prompt={}", request.system)),
        false => prompt = format!("{}\n\n{prompt}", request.system),
    }
    // The program would interpret a prompt that begins like one of its commands.
    if prompt.trim_start().starts_with('/') {
        prompt.insert_str(0, "This is your task:\n\n");
    }
    flags.extend(session_flags(session, start));
    if !request.model.is_empty() {
        flags.push(format!("--model={}", request.model));
    }
    flags.extend(
        request
            .effort
            .iter()
            .map(|effort| format!("--effort={effort}")),
    );
    let usd_left = session.usd_left.map(|left| left.max(LEAST_USD));
    flags.extend(usd_left.map(|left| format!("--max-budget-usd={left:.6}")));
    flags.extend(session.turns_left.map(|left| format!("--max-turns={left}")));
    let arguments = ARGUMENTS.into_iter().map(OsString::from);
    (
        arguments
            .chain(flags.into_iter().map(OsString::from))
            .collect(),
        prompt,
    )
}

fn session_flags(session: &ProviderSession, start: &SessionStart) -> Vec<String> {
    let id = &session.id;
    match start {
        SessionStart::Fresh => vec![format!("--session-id={id}")],
        SessionStart::Continue => vec![format!("--resume={id}")],
        SessionStart::Fork { from } => vec![
            format!("--resume={from}"),
            "--fork-session".into(),
            format!("--session-id={id}"),
        ],
    }
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
        let directory = ScratchDir::create_free(&setup.temporary, &setup.root, SERVER_DIRECTORY)?;
        let server = McpServer::open(directory.path())
            .map_err(|error| Error::io("listen in", directory.path(), error))?;
        Ok(ServedTools {
            toolbox,
            server,
            _directory: directory,
        })
    }

    fn arguments(&self) -> Vec<OsString> {
        // This binary as this process runs it, even if it was replaced or deleted on disk.
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

/// A running invocation.
struct Invocation<'a> {
    child: ClaudeChild,
    clock: AttemptClock,
    stream: ClaudeStream,
    setup: &'a ClaudeSetup,
    watch: &'a mut dyn FnMut(&str),
}

impl Invocation<'_> {
    fn run(mut self, mut tools: Option<ServedTools<'_>>) -> Result<Answer, ClaudeFailure> {
        loop {
            let called = tools
                .as_ref()
                .map(|tools| tools.server.readable_when_called());
            match self.child.next(self.clock.next_limit(), called) {
                NextLine::Line(line) => {
                    if let Some(result) = self.read_line(&line)? {
                        self.child.finish();
                        return result_of(&result, &self.stream);
                    }
                }
                NextLine::Woken => {
                    let goes_on = tools
                        .as_mut()
                        .is_none_or(|tools| tools.server.serve(tools.toolbox, self.stream.turns));
                    if !goes_on {
                        return Err(stopped(self.stream.spent()));
                    }
                    self.clock.restart_idle();
                }
                NextLine::End => {
                    let (ended, stderr) = self.child.finish();
                    let stderr = self.setup.secrets.redact(&stderr);
                    return Err(failure_without_result(&ended, &stderr, &self.stream));
                }
                NextLine::Stopped => return Err(stopped(self.stream.spent())),
                NextLine::TooLong => {
                    let problem = format!("a line of claude's is longer than {MAX_LINE} bytes");
                    return Err(transient(problem, self.stream.spent()));
                }
                NextLine::TimedOut => return Err(self.timed_out()),
            }
        }
    }

    /// Takes one line; returns the result if it is one.
    fn read_line(&mut self, line: &[u8]) -> Result<Option<Value>, ClaudeFailure> {
        let line = String::from_utf8_lossy(line);
        let line = self.setup.secrets.redact(&line);
        if line.starts_with('{') {
            (self.watch)(&line);
        }
        let read = self.stream.line(&line);
        match read.map_err(|error| transient(error.to_string(), self.stream.spent()))? {
            StreamLine::Ignored => {}
            StreamLine::Progress => self.clock.restart_idle(),
            StreamLine::Retrying(count, why) if count >= RETRIES_IN_A_ROW => {
                return Err(server_unavailable(&self.stream, &why));
            }
            StreamLine::Retrying(..) => {}
            StreamLine::Result(result) => return Ok(Some(result)),
        }
        Ok(None)
    }

    fn timed_out(&self) -> ClaudeFailure {
        let spent = self.stream.spent();
        match self.clock.expired() {
            ExpiredLimit::Deadline => stopped(spent),
            ExpiredLimit::Total => {
                let limit = TOTAL_TIMEOUT.as_secs();
                transient(format!("claude was not done after {limit} s"), spent)
            }
            ExpiredLimit::Idle(limit) => {
                let limit = limit.as_secs_f64();
                let message = format!("silence of claude for {limit} s (idle timeout)");
                LlmError::Silent { message, spent }.into()
            }
        }
    }
}

/// The program repeats requests for minutes; the run pauses instead.
fn server_unavailable(stream: &ClaudeStream, why: &str) -> ClaudeFailure {
    let message =
        format!("claude gets no answer from its server ({why}), {RETRIES_IN_A_ROW} times in a row");
    match stream.retry_status {
        Some(401..=403) => LlmError::Unauthorized { message }.into(),
        _ => LlmError::LimitReached { message }.into(),
    }
}

fn stopped(spent: Spent) -> ClaudeFailure {
    LlmError::Stopped { spent }.into()
}

fn transient(message: String, spent: Spent) -> ClaudeFailure {
    LlmError::transient(message, spent).into()
}

fn not_started(error: Error) -> ClaudeFailure {
    transient(error.to_string(), Spent::Nothing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_started_continued_or_forked() {
        let request = ClaudePrompt {
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
            let (arguments, prompt) = arguments_and_prompt(&request, &session, &start);
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
        let forked = ["--resume=FROM", "--fork-session", "--session-id=ID"];
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
