//! The model's hands: environments in the workspace, each started at its first use, every call written down.
//!
//! A call is in the log before it begins, its result before anybody uses it. After a resume no call without a result is
//! run again; in a replay calls are run for their effect, and the conversation gets what the log says.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::io::Errno;
use serde_json::Value;

use crate::build::agent::changes::{self, WorkspaceListing};
use crate::build::agent::history::CallResult;
use crate::build::agent::tools::{self, ToolAction, ToolCommand};
use crate::build::checks::sandbox_hints::refusals;
use crate::build::checks::text::cut_middle;
use crate::build::child_env::{ChildEnv, ToolEnv};
use crate::build::context::Context;
use crate::build::protection::frozen_places;
use crate::build::replay::Replay;
use crate::build::spec::inputs::WorkspaceInput;
use crate::environments::adhoc::{self, FoundEnvironment};
use crate::environments::builtin::EnvironmentFactory;
use crate::environments::editor::FrozenPaths;
use crate::environments::registry::{ControlAction, Registry, UrgentAction, Waiter};
use crate::environments::{Response, ScreenSection};
use crate::error::{Error, Result};
use crate::events::{Event, FileMark, MAIN_AGENT, RequestPlace};
use crate::llm::ToolOffer;
use crate::secrets::Secrets;

/// How much of a call's output the model gets.
const OUTPUT_LIMIT: usize = 16 << 10;
/// All screens together.
const SCREEN_LIMIT: usize = 16 << 10;
/// From so few turns on the model is told how many are left.
const FEW_TURNS: u32 = 5;
/// Said of a call whose result was never recorded.
pub const UNKNOWN: &str =
    "outcome unknown: the run was interrupted while this was under way, and it was not repeated";
const NOT_RUN: &str = "not run: the environments were restarted";

const BUILT_IN: [(&str, &str); 3] = [
    (
        "bash",
        "A bash that lives as long as this conversation: directory, variables, functions and background jobs stay. \
         Commands read an empty stdin.",
    ),
    (
        "python",
        "A Python that lives as long as this conversation: variables and imports stay. Expressions are shown as at a \
         prompt.",
    ),
    (
        "editor",
        "Views of files that follow every change. `view PATH /START/ /END/` opens a view from the first line that \
         matches START to the next that matches END; `edit PATH FIRST-LAST` and the new lines below it replaces lines of a view; \
         `create PATH` and the content below it; `search \"PATTERN\" GLOB`; `close ID`.",
    ),
];

/// A call of the model's: where it stands, and what it says.
#[derive(Debug, Clone, Copy)]
pub struct PendingCall<'a> {
    pub place: RequestPlace,
    pub number: u32,
    pub tool: &'a str,
    pub input: &'a Value,
    pub raw: Option<&'a str>,
    /// Readable when nobody waits for it any more.
    pub cancelled: Option<BorrowedFd<'a>>,
}

/// What limits a call from outside.
#[derive(Debug, Clone, Copy)]
pub struct CallLimits {
    pub deadline: Instant,
    pub turns_left: u32,
}

/// The environments of one phase.
pub struct Toolset {
    secrets: Secrets,
    tool_env: ToolEnv,
    factory: EnvironmentFactory,
    registry: Registry,
    used: Vec<String>,
    compared: u32,
    differing: u32,
    /// The workspace as the log knows it, or nothing where there is too much in it.
    seen: Option<WorkspaceListing>,
}

impl Toolset {
    /// Returns hands that hold nothing yet, with fresh private places.
    pub fn new(child_env: &Rc<ChildEnv>, context: &mut Context) -> Result<Toolset> {
        let tool_env = child_env.tool_env(
            &context.inputs.environments,
            &frozen_places(&context.inputs.protect),
        )?;
        let (factory, warnings) = EnvironmentFactory::new(
            tool_env.start.clone(),
            frozen(context),
            tool_env.folder.as_deref(),
            |_| {},
        );
        for warning in warnings {
            context.log.note(warning)?;
        }
        let secrets = child_env.secrets.clone();
        let seen = changes::list(&context.workspace);
        let (registry, used) = (Registry::default(), Vec::new());
        Ok(Toolset {
            secrets,
            tool_env,
            factory,
            registry,
            used,
            compared: 0,
            differing: 0,
            seen,
        })
    }

    /// Returns the tools: the built-in ones, then the user's own by name.
    pub fn offers(&self) -> Vec<ToolOffer> {
        let built_in = BUILT_IN
            .iter()
            .map(|(name, description)| tools::offer(name, description));
        let own = self
            .factory
            .own()
            .iter()
            .map(|found| tools::offer(&found.name, &described(found)));
        built_in.chain(own).collect()
    }

    /// Carries out a call of an answer that has just come.
    pub fn call(
        &mut self,
        context: &mut Context,
        call: PendingCall<'_>,
        limits: CallLimits,
        replay: Option<&Replay>,
    ) -> Result<CallResult> {
        let recorded =
            replay.and_then(|replay| replay.conversations().result(call.place, call.number));
        if replay.is_some() && recorded.is_none_or(|recorded| !recorded.ran) {
            let returned = recorded
                .cloned()
                .unwrap_or_else(|| refused(UNKNOWN, limits));
            return record_call(context, call, returned, Instant::now(), Some(Vec::new()));
        }
        let began = Instant::now();
        let mut returned = match self.understood(call, limits) {
            Ok(order) => self.run_command(context, call, &order, limits)?,
            Err(problem) => self.refuse(call.tool, &problem, limits),
        };
        context.check_cancelled()?;
        if let (Some(replay), Some(recorded)) = (replay, recorded) {
            self.compare(context, replay, call, recorded, &returned)?;
            returned = recorded.clone();
        }
        let changed = self.changed(context);
        record_call(context, call, returned, began, changed)
    }

    /// Answers a call of an answer that came before the environments were restarted.
    pub fn call_again(
        &mut self,
        context: &mut Context,
        call: PendingCall<'_>,
        limits: CallLimits,
    ) -> Result<CallResult> {
        if let Some(returned) = context
            .log_state
            .conversations()
            .result(call.place, call.number)
        {
            return Ok(returned.clone());
        }
        let has_begun = context
            .log_state
            .conversations()
            .has_begun(call.place, call.number);
        let returned = refused(if has_begun { UNKNOWN } else { NOT_RUN }, limits);
        record_call(context, call, returned, Instant::now(), Some(Vec::new()))
    }

    /// Returns what differs in the workspace since the last time that it was asked.
    fn changed(&mut self, context: &Context) -> Option<Vec<FileMark>> {
        let before = std::mem::replace(&mut self.seen, changes::list(&context.workspace));
        before?.changed(self.seen.as_ref()?)
    }

    /// Ends every environment; the next call finds fresh ones.
    pub fn restart(&mut self) {
        self.registry.shutdown();
        self.registry = Registry::default();
        self.used.clear();
    }

    /// Ends everything; returns the commands that were still running.
    pub fn close(&mut self) -> Vec<String> {
        let running = self.registry.running();
        self.restart();
        running
    }

    /// Returns how many results of a replay were compared, and how many differ.
    pub fn differing(&self) -> (u32, u32) {
        (self.compared, self.differing)
    }

    fn understood(
        &self,
        call: PendingCall<'_>,
        limits: CallLimits,
    ) -> std::result::Result<ToolCommand, String> {
        if !self.knows(call.tool) {
            let names: Vec<String> = self.offers().into_iter().map(|offer| offer.name).collect();
            return Err(format!(
                "there is no tool {:?}; there are {}",
                call.tool,
                names.join(", ")
            ));
        }
        if limits.deadline <= Instant::now() {
            return Err("the time of the phase is over".into());
        }
        tools::read(call.input, call.raw)
    }

    fn knows(&self, name: &str) -> bool {
        BUILT_IN.iter().any(|(known, _)| *known == name)
            || self.factory.own().iter().any(|found| found.name == name)
    }

    /// Starts an environment at its first use.
    fn open_environment(
        &mut self,
        context: &Context,
        name: &str,
        limits: CallLimits,
    ) -> std::result::Result<(), String> {
        if self.registry.has(name) {
            return Ok(());
        }
        let created = self
            .factory
            .create(name, limits.deadline, Some(context.cancel.as_fd()));
        let environment = created
            .ok_or("there is no such tool")?
            .map_err(|error| error.to_string())?;
        self.registry.add(name, environment);
        Ok(())
    }

    fn announce(&self, context: &mut Context, call: PendingCall<'_>) -> Result<()> {
        context.log.record_synced(Event::ToolCalled {
            agent_id: MAIN_AGENT.into(),
            place: call.place,
            call: call.number,
            tool_name: call.tool.into(),
            arguments: call.input.clone(),
        })
    }

    fn refuse(&mut self, tool: &str, problem: &str, limits: CallLimits) -> CallResult {
        CallResult {
            screen: self.screen(tool),
            ..refused(&format!("not run: {problem}"), limits)
        }
    }

    /// Writes the call down, starts its environment where it is the first, and does what it wants.
    fn run_command(
        &mut self,
        context: &mut Context,
        call: PendingCall<'_>,
        order: &ToolCommand,
        limits: CallLimits,
    ) -> Result<CallResult> {
        self.announce(context, call)?;
        if let Err(problem) = self.open_environment(context, call.tool, limits) {
            return Ok(self.refuse(call.tool, &problem, limits));
        }
        let response = self.respond(context, call, order, limits)?;
        Ok(self.returned(call.tool, response, limits))
    }

    fn respond(
        &mut self,
        context: &Context,
        call: PendingCall<'_>,
        order: &ToolCommand,
        limits: CallLimits,
    ) -> Result<Response> {
        let left = limits.deadline.saturating_duration_since(Instant::now());
        let timeout = Some(order.timeout.min(left.max(Duration::from_millis(1))));
        let stop = context.cancel.clone();
        let mut urgent = |_: &str| match () {
            () if stop.requested().is_some() => UrgentAction::End,
            () if call
                .cancelled
                .is_some_and(|bell| rustix::io::read(bell, &mut [0; 8]).is_ok()) =>
            {
                UrgentAction::Interrupt
            }
            () => UrgentAction::Nothing,
        };
        let either = either(context.cancel.as_fd(), call.cancelled)?;
        let mut waiter = Waiter {
            wake: either.as_fd(),
            urgent: &mut urgent,
        };
        Ok(match &order.action {
            ToolAction::Run(command) => {
                self.registry
                    .command(call.tool, command, timeout, &mut waiter)
            }
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
        let output = if response.output.trim().is_empty() {
            "(no output)\n"
        } else {
            &response.output
        };
        let mut output = self.secrets.redact(output).into_owned();
        if !output.ends_with('\n') {
            output.push('\n');
        }
        let policy = self
            .tool_env
            .start
            .launcher
            .policy
            .as_ref()
            .filter(|_| !response.success);
        let refused = policy
            .map(|policy| refusals(&output, "", policy))
            .unwrap_or_default();
        let mut output = cut_middle(&output, OUTPUT_LIMIT);
        output.extend(
            refused
                .iter()
                .map(|refusal| format!("[sandbox: {refusal}]\n")),
        );
        output += &turns_left(limits);
        CallResult {
            ran: true,
            is_error: !response.success,
            output,
            screen: self.screen(name),
        }
    }

    /// The screens of the environments used so far, the one just used first.
    fn screen(&mut self, newest: &str) -> String {
        let mut sections = self.registry.screens();
        sections.retain(|(name, _)| self.used.contains(name));
        sections.sort_by_key(|(name, _)| name != newest);
        let mut all = String::new();
        for (name, ScreenSection { content, .. }) in sections {
            let section = format!("\n[screen of {name}]\n{}\n", content.trim_end());
            all += &cut_end(
                &self.secrets.redact(&section),
                SCREEN_LIMIT.saturating_sub(all.len()),
            );
        }
        all
    }

    fn compare(
        &mut self,
        context: &mut Context,
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
        let RequestPlace { phase, turn, .. } = call.place;
        context.log.note(format!(
            "replay: a result differs from the recorded one, which is used ({phase}, turn {turn}, {}): {difference}",
            call.tool
        ))
    }
}

impl Drop for Toolset {
    fn drop(&mut self) {
        self.registry.shutdown();
    }
}

/// Returns a descriptor that is readable when either of these is.
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

/// What the editor must not change.
fn frozen(context: &Context) -> FrozenPaths {
    let places = |inputs: &[WorkspaceInput]| {
        inputs
            .iter()
            .map(|input| PathBuf::from(input.to.as_str()))
            .collect()
    };
    FrozenPaths {
        paths: places(&context.inputs.protect),
        except: places(&context.inputs.copy),
    }
}

fn described(found: &FoundEnvironment) -> String {
    let said = (found.kind == adhoc::AdhocKind::Yaml)
        .then(|| adhoc::program(&found.path).ok())
        .flatten();
    said.map_or_else(
        || format!("The user's own environment {}.", found.name),
        |program| program.description,
    )
}

/// Returns the result of a call that was not run, or whose end nobody saw.
pub fn refused(why: &str, limits: CallLimits) -> CallResult {
    let output = format!("{why}\n{}", turns_left(limits));
    CallResult {
        ran: false,
        is_error: true,
        output,
        screen: String::new(),
    }
}

fn turns_left(limits: CallLimits) -> String {
    match limits.turns_left {
        0 => "[no turns left: the checks run next]\n".into(),
        1 => "[1 turn left]\n".into(),
        few if few <= FEW_TURNS => format!("[{few} turns left]\n"),
        _ => String::new(),
    }
}

fn cut_end(text: &str, room: usize) -> String {
    const NOTE: &str = "\n[the rest of the screens is left out]\n";
    if text.len() <= room {
        return text.to_owned();
    }
    match room.checked_sub(NOTE.len()) {
        Some(room) => text[..text.floor_char_boundary(room)].to_owned() + NOTE,
        None => String::new(),
    }
}

fn record_call(
    context: &mut Context,
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
    context.log.record_synced(Event::ToolReturned {
        agent_id: MAIN_AGENT.into(),
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
