//! The tools of a conversation: environments, each started at its first use, every call recorded.
//!
//! A call is durable in the log before it begins, its result before it is sent or another call begins. After a resume no call without a result is
//! run again; in a replay calls are run for their effect, and the conversation gets the recorded results.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use serde_json::Value;

use crate::conversation::agent::Agent;
use crate::conversation::history::CallResult;
use crate::conversation::replay::Replay;
use crate::conversation::tool_text;
use crate::conversation::tools::{self, CallRefusal, ToolAction, ToolCommand};
use crate::conversation::workspace_files::{self, WorkspaceListing};
use crate::environments::Response;
use crate::environments::adhoc::host::HostStart;
use crate::environments::builtin::{BUILT_IN, EnvironmentFactory};
use crate::environments::editor::FrozenPaths;
use crate::environments::registry::{ControlAction, Registry, UrgentAction, Waiter};
use crate::error::{Error, Result};
use crate::events::{Event, FileMark, RequestPlace};
use crate::llm::{ContentBlock, ToolOffer};
use crate::process::scratch::ScratchDirs;
use crate::secrets::Secrets;

/// From so few turns on a result says how many are left.
const FEW_TURNS: u32 = 5;
/// The result of a call whose own was never recorded.
pub(crate) const UNKNOWN: &str =
    "outcome unknown: the run was interrupted while this was under way, and it was not repeated";
const NOT_RUN: &str = "not run: the environments were restarted";

/// A call of the model: where it belongs, and its arguments.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingCall<'a> {
    pub place: RequestPlace,
    pub number: u32,
    pub tool: &'a str,
    pub input: &'a Value,
    pub raw: Option<&'a str>,
    /// Readable when its result is not wanted any more.
    pub cancelled: Option<BorrowedFd<'a>>,
}

/// What limits a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    pub deadline: Instant,
    pub turns_left: u32,
}

/// What the environments of a conversation are started with.
pub(crate) struct ToolEnv {
    pub start: HostStart,
    /// The folder whose `env/` holds the user's own environments.
    pub folder: Option<PathBuf>,
    /// What the editor may read and not change; it runs inside this program, where no sandbox holds it.
    pub frozen: FrozenPaths,
    pub secrets: Secrets,
    /// Directories that are removed with this.
    pub _scratch: Option<ScratchDirs>,
}

/// The environments of one conversation.
pub(crate) struct Toolset {
    tool_env: ToolEnv,
    factory: EnvironmentFactory,
    registry: Registry,
    used: Vec<String>,
    compared: u32,
    differing: u32,
    /// The workspace as the log knows it; `None` where it has too many files.
    seen: Option<WorkspaceListing>,
}

impl Toolset {
    /// A toolset with no environment started yet.
    pub(crate) fn new(agent: &Agent, tool_env: ToolEnv) -> Result<Toolset> {
        let (factory, warnings) = EnvironmentFactory::new(
            tool_env.start.clone(),
            tool_env.frozen.clone(),
            tool_env.folder.as_deref(),
            |_| {},
        );
        for warning in warnings {
            agent.log.note(warning)?;
        }
        Ok(Toolset {
            seen: listed(agent)?,
            tool_env,
            factory,
            registry: Registry::default(),
            used: Vec::new(),
            compared: 0,
            differing: 0,
        })
    }

    /// The tools: the built-in ones, then the user's own by name.
    pub(crate) fn offers(&self) -> Vec<ToolOffer> {
        tool_text::offers(self.factory.own())
    }

    /// Runs a call of the newest answer.
    pub(crate) fn call(
        &mut self,
        agent: &Agent,
        call: PendingCall<'_>,
        limits: CallLimits,
        replay: Option<&Replay>,
    ) -> Result<CallResult> {
        let recorded = replay.and_then(|replay| {
            replay
                .conversations(agent.log.agent_id())
                .result(call.place, call.number)
        });
        if replay.is_some() && recorded.is_none_or(|recorded| !recorded.ran) {
            let returned = recorded
                .cloned()
                .unwrap_or_else(|| refused(UNKNOWN, limits.turns_left));
            return record_call(agent, call, returned, Instant::now(), Some(Vec::new()));
        }
        let began = Instant::now();
        let mut returned = match self.understood(call, limits) {
            Ok(command) => self.run_command(agent, call, &command, limits)?,
            Err(problem) => self.refuse(call.tool, &problem, limits),
        };
        agent.check_cancelled()?;
        if let (Some(replay), Some(recorded)) = (replay, recorded) {
            self.compare(agent, replay, call, recorded, &returned)?;
            returned = recorded.clone();
        }
        let changed = self.changed(agent);
        record_call(agent, call, returned, began, changed)
    }

    /// The result of a call from before the environments were restarted; it is not run again.
    pub(crate) fn call_again(
        &mut self,
        agent: &Agent,
        call: PendingCall<'_>,
        limits: CallLimits,
    ) -> Result<CallResult> {
        let (known, has_begun) = agent.history(|history| {
            let known = history.result(call.place, call.number).cloned();
            (known, history.has_begun(call.place, call.number))
        });
        if let Some(returned) = known {
            return Ok(returned);
        }
        let returned = refused(if has_begun { UNKNOWN } else { NOT_RUN }, limits.turns_left);
        record_call(agent, call, returned, Instant::now(), Some(Vec::new()))
    }

    /// The files that differ since this was last asked.
    fn changed(&mut self, agent: &Agent) -> Option<Vec<FileMark>> {
        let now = listed(agent).ok().flatten();
        let before = std::mem::replace(&mut self.seen, now);
        before?.changed(self.seen.as_ref()?)
    }

    /// Ends every environment; the next call finds fresh ones.
    pub(crate) fn restart(&mut self) {
        self.registry.shutdown();
        self.registry = Registry::default();
        self.used.clear();
    }

    /// Ends everything; returns the commands that were still running.
    pub(crate) fn close(&mut self) -> Vec<String> {
        let running = self.registry.running();
        self.restart();
        running
    }

    /// How many results of a replay were compared, and how many differ.
    pub(crate) fn differing(&self) -> (u32, u32) {
        (self.compared, self.differing)
    }

    fn understood(
        &self,
        call: PendingCall<'_>,
        limits: CallLimits,
    ) -> std::result::Result<ToolCommand, CallRefusal> {
        if !self.knows(call.tool) {
            return Err(tool_text::unknown_tool(call.tool, &self.offers()));
        }
        if limits.deadline <= Instant::now() {
            return Err("the time of the phase is over".into());
        }
        tools::read(call.input, call.raw)
    }

    fn knows(&self, name: &str) -> bool {
        BUILT_IN.contains(&name) || self.factory.own().iter().any(|found| found.name == name)
    }

    /// Starts an environment at its first use.
    fn open_environment(
        &mut self,
        agent: &Agent,
        name: &str,
        limits: CallLimits,
    ) -> std::result::Result<(), CallRefusal> {
        if self.registry.has(name) {
            return Ok(());
        }
        let created = self
            .factory
            .create(name, limits.deadline, Some(agent.cancel.as_fd()));
        let environment = created
            .ok_or("there is no such tool")?
            .map_err(|error| CallRefusal(error.to_string()))?;
        self.registry.add(name, environment);
        Ok(())
    }

    fn refuse(&mut self, tool: &str, problem: &CallRefusal, limits: CallLimits) -> CallResult {
        CallResult {
            screen: self.screen(tool),
            ..refused(&format!("not run: {problem}"), limits.turns_left)
        }
    }

    /// Records the call, starts its environment at its first use, and runs the command.
    fn run_command(
        &mut self,
        agent: &Agent,
        call: PendingCall<'_>,
        command: &ToolCommand,
        limits: CallLimits,
    ) -> Result<CallResult> {
        announce(agent, call)?;
        if let Err(problem) = self.open_environment(agent, call.tool, limits) {
            return Ok(self.refuse(call.tool, &problem, limits));
        }
        let response = self.respond(agent, call, command, limits)?;
        Ok(self.returned(call.tool, response, limits))
    }

    fn respond(
        &mut self,
        agent: &Agent,
        call: PendingCall<'_>,
        command: &ToolCommand,
        limits: CallLimits,
    ) -> Result<Response> {
        let left = limits.deadline.saturating_duration_since(Instant::now());
        let timeout = Some(command.timeout.min(left.max(Duration::from_millis(1))));
        let cancel = &agent.cancel;
        let mut urgent = |_: &str| match () {
            () if cancel.requested().is_some() => UrgentAction::End,
            () if call
                .cancelled
                .is_some_and(|bell| rustix::io::read(bell, &mut [0; 8]).is_ok()) =>
            {
                UrgentAction::Interrupt
            }
            () => UrgentAction::Nothing,
        };
        let either = either(agent.cancel.as_fd(), call.cancelled)?;
        let mut waiter = Waiter {
            wake: either.as_fd(),
            urgent: &mut urgent,
        };
        Ok(match &command.action {
            ToolAction::Run(text) => self.registry.command(call.tool, text, timeout, &mut waiter),
            ToolAction::Control(action) => {
                let timeout = timeout.filter(|_| *action == ControlAction::Wait);
                self.registry
                    .control(call.tool, *action, timeout, false, &mut waiter)
            }
        })
    }

    fn returned(&mut self, name: &str, response: Response, limits: CallLimits) -> CallResult {
        if !self.used.iter().any(|used| used == name) {
            self.used.push(name.to_owned());
        }
        let is_error = !response.success;
        let ToolEnv { start, secrets, .. } = &self.tool_env;
        let mut output = tool_text::output_text(response, secrets, start.launcher.policy.as_ref());
        output += &turns_note(limits.turns_left);
        CallResult {
            ran: true,
            is_error,
            output,
            screen: self.screen(name),
        }
    }

    /// The screens of the environments used so far, the one just used first.
    fn screen(&mut self, newest: &str) -> String {
        let sections = self.registry.screens();
        tool_text::screens_text(sections, &self.used, newest, &self.tool_env.secrets)
    }

    fn compare(
        &mut self,
        agent: &Agent,
        replay: &Replay,
        call: PendingCall<'_>,
        recorded: &CallResult,
        now: &CallResult,
    ) -> Result<()> {
        self.compared += 1;
        let Some(difference) = replay.first_difference(&recorded.output, &now.output) else {
            return Ok(());
        };
        self.differing += 1;
        if self.differing > 1 {
            return Ok(());
        }
        agent.log.note(format!(
            "replay: a result differs from the recorded one, which is used ({}, {}): {difference}",
            call.place, call.tool
        ))
    }
}

impl Drop for Toolset {
    fn drop(&mut self) {
        self.registry.shutdown();
    }
}

/// The files of the agent's folder, where their changes are recorded and there are not too many.
fn listed(agent: &Agent) -> Result<Option<WorkspaceListing>> {
    let Some(directory) = &agent.directory else {
        return Ok(None);
    };
    Ok(workspace_files::list(&directory.open()?))
}

/// A descriptor that is readable when either of these is.
fn either(one: BorrowedFd<'_>, other: Option<BorrowedFd<'_>>) -> Result<OwnedFd> {
    let watched = || {
        let both = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for fd in [Some(one), other].into_iter().flatten() {
            epoll::add(
                &both,
                fd,
                epoll::EventData::new_u64(0),
                epoll::EventFlags::IN,
            )?;
        }
        Ok(both)
    };
    watched()
        .map_err(|error: Errno| Error::Bug(format!("cannot wait for two things at once: {error}")))
}

/// The result of a call that was not run, or whose end was not recorded.
pub(crate) fn refused(why: &str, turns_left: u32) -> CallResult {
    let output = format!("{why}\n{}", turns_note(turns_left));
    CallResult {
        ran: false,
        is_error: true,
        output,
        screen: String::new(),
    }
}

fn turns_note(turns_left: u32) -> String {
    match turns_left {
        0 => "[no turns left: the checks run next]\n".into(),
        1 => "[1 turn left]\n".into(),
        few if few <= FEW_TURNS => format!("[{few} turns left]\n"),
        _ => String::new(),
    }
}

/// A result as the conversation has it.
pub(crate) fn result_block(id: &str, result: CallResult) -> ContentBlock {
    ContentBlock::ToolResult {
        id: id.to_owned(),
        text: result.output,
        screen: result.screen,
        is_error: result.is_error,
        cache: false,
    }
}

fn announce(agent: &Agent, call: PendingCall<'_>) -> Result<()> {
    agent.log.record_synced(Event::ToolCalled {
        agent_id: agent.id(),
        place: call.place,
        call: call.number,
        tool_name: call.tool.into(),
        arguments: call.input.clone(),
    })
}

/// Records a result; what follows it syncs the log.
fn record_call(
    agent: &Agent,
    call: PendingCall<'_>,
    returned: CallResult,
    began: Instant,
    changed: Option<Vec<FileMark>>,
) -> Result<CallResult> {
    let CallResult {
        ran,
        is_error,
        output,
        screen,
    } = returned.clone();
    agent.log.record(Event::ToolReturned {
        agent_id: agent.id(),
        place: call.place,
        call: call.number,
        tool_name: call.tool.into(),
        ran,
        is_error,
        output,
        screen,
        execution_time_ms: began.elapsed().as_millis() as u64,
        changed,
    })?;
    Ok(returned)
}
