//! The environments of a project by name: routes commands and control actions, collects the screens.
//!
//! It writes the answers at a timeout, at a refusal, and for a command that ended between two requests.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::output::on_own_line;
use super::{CreateError, Environment, Response, ScreenSection, WaitLimit, WaitResult};

/// How long `interrupt` waits for the end of the command by default.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
/// How much of the first line of a command the screen shows.
const SHOWN_CHARACTERS: usize = 80;
const RESTARTED: &str = "Restarted\n";

/// What an agent can do with a running command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlAction {
    Wait,
    Interrupt,
    Restart,
}

/// What to do with the command that is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrgentAction {
    Nothing,
    Interrupt,
    Restart,
    /// The server ends: no answer is needed.
    End,
}

/// What interrupts a wait, and then decides for the environment of that name.
pub(crate) struct Waiter<'a> {
    pub wake: BorrowedFd<'a>,
    pub urgent: &'a mut dyn FnMut(&str) -> UrgentAction,
}

/// Creates an environment that was added or could not be created before; nothing if there is none of that name.
pub(crate) type EnvironmentFinder =
    Box<dyn FnMut(&str) -> Option<Result<Box<dyn Environment>, CreateError>> + Send>;

/// The environments, in the order of their screens.
#[derive(Default)]
pub(crate) struct Registry {
    entries: Vec<RegistryEntry>,
    finder: Option<EnvironmentFinder>,
}

struct RegistryEntry {
    name: String,
    environment: Box<dyn Environment>,
    running: Option<RunningCommand>,
    /// The response of a command that ended between two requests.
    unseen: Option<Response>,
}

struct RunningCommand {
    first_line: String,
    since: Instant,
    is_interrupted: bool,
}

impl RunningCommand {
    fn new(command: &str) -> RunningCommand {
        let first_line = command.lines().next().unwrap_or_default();
        RunningCommand {
            first_line: first_line.chars().take(SHOWN_CHARACTERS).collect(),
            since: Instant::now(),
            is_interrupted: false,
        }
    }
}

impl Registry {
    /// Adds an environment after the others.
    pub(crate) fn add(&mut self, name: &str, environment: Box<dyn Environment>) {
        self.entries.push(RegistryEntry {
            name: name.to_owned(),
            environment,
            running: None,
            unseen: None,
        });
    }

    /// Sets how a restart finds an environment that is not registered.
    pub(crate) fn set_finder(&mut self, finder: EnvironmentFinder) {
        self.finder = Some(finder);
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }

    /// The names, in the order of the screens.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect()
    }

    /// Runs a command until it ends or the timeout has passed.
    pub(crate) fn command(
        &mut self,
        name: &str,
        command: &str,
        timeout: Option<Duration>,
        waiter: &mut Waiter<'_>,
    ) -> Response {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        match self.entries.iter_mut().find(|entry| entry.name == name) {
            None => self.unknown(name),
            Some(_) if command.contains('\0') => {
                Response::failed("A command cannot contain a NUL character\n")
            }
            Some(entry) => entry.command(command, deadline, waiter),
        }
    }

    /// Executes a control action; `is_done` if it took effect already, as an urgent action.
    pub(crate) fn control(
        &mut self,
        name: &str,
        action: ControlAction,
        timeout: Option<Duration>,
        is_done: bool,
        waiter: &mut Waiter<'_>,
    ) -> Response {
        match self.entries.iter_mut().find(|entry| entry.name == name) {
            None if action == ControlAction::Restart => self.find_or_start(name),
            None => self.unknown(name),
            Some(entry) => entry.control(action, timeout, is_done, waiter),
        }
    }

    /// What the agent sees: all sections, each cut to its number of lines.
    pub(crate) fn screens(&mut self) -> Vec<(String, ScreenSection)> {
        for entry in &mut self.entries {
            entry.poll();
            entry.environment.prepare_screen();
        }
        self.entries
            .iter_mut()
            .map(|entry| (entry.name.clone(), entry.screen()))
            .collect()
    }

    /// The running commands, each with its environment.
    pub(crate) fn running(&mut self) -> Vec<String> {
        self.entries.iter_mut().for_each(RegistryEntry::poll);
        let running = self
            .entries
            .iter()
            .filter_map(|entry| Some((&entry.name, entry.running.as_ref()?)));
        running
            .map(|(name, running)| format!("{name}: {}", running.first_line))
            .collect()
    }

    pub(crate) fn shutdown(&mut self) {
        for entry in &mut self.entries {
            entry.environment.prepare_shutdown();
        }
        for entry in &mut self.entries {
            entry.environment.shutdown();
        }
    }

    /// Adds an environment that did not exist, or could not be created, before.
    fn find_or_start(&mut self, name: &str) -> Response {
        match self.finder.as_mut().and_then(|find| find(name)) {
            None => self.unknown(name),
            Some(Err(error)) => Response::failed(error.to_string()),
            Some(Ok(environment)) => {
                self.add(name, environment);
                Response::done(RESTARTED)
            }
        }
    }

    fn unknown(&self, name: &str) -> Response {
        let mut names = self.names();
        names.sort_unstable();
        Response::failed(format!(
            "Unknown environment: {name}\nAvailable: {}",
            names.join(", ")
        ))
    }
}

impl RegistryEntry {
    fn command(
        &mut self,
        command: &str,
        deadline: Option<Instant>,
        waiter: &mut Waiter<'_>,
    ) -> Response {
        self.poll();
        if self.environment.is_running() {
            return self.refuse();
        }
        let rest = self.unseen.take().map(|unseen| self.rest(unseen.output));
        let running = RunningCommand::new(command);
        let mut response = match self.environment.begin(command) {
            Some(response) => response,
            None => {
                self.running = Some(running);
                self.wait(deadline, waiter)
            }
        };
        if let Some(rest) = rest {
            response.output.insert_str(0, &rest);
        }
        response
    }

    /// Checks whether the running command has ended, and keeps its response until the next request.
    fn poll(&mut self) {
        if self.environment.is_running()
            && let WaitResult::Ended(response) = self.environment.wait(WaitLimit {
                deadline: Some(Instant::now()),
                wake: never(),
            })
        {
            // Without a command the environment itself was loading, and its screen shows the result.
            self.unseen = self.running.take().map(|_| response);
        }
    }

    /// The answer of a command that ended between two requests, in front of the next one.
    fn rest(&self, output: String) -> String {
        on_own_line(output)
            + &format!(
                "[the command before has ended: {}]\n",
                self.environment.last_end()
            )
    }

    fn refuse(&self) -> Response {
        let output = match &self.running {
            Some(RunningCommand {
                first_line, since, ..
            }) => format!(
                "Not run: the command before is still running after {:.1} s ({first_line}); use wait, interrupt or restart\n",
                since.elapsed().as_secs_f64()
            ),
            None => format!(
                "Not run: {} is still loading; use wait or restart\n",
                self.name
            ),
        };
        Response {
            output,
            success: false,
            running: true,
        }
    }

    fn control(
        &mut self,
        action: ControlAction,
        timeout: Option<Duration>,
        is_done: bool,
        waiter: &mut Waiter<'_>,
    ) -> Response {
        if action == ControlAction::Restart {
            return self.restart(is_done);
        }
        self.poll();
        if let Some(response) = self.unseen.take() {
            return response;
        }
        if !self.environment.is_running() {
            return Response::done("Nothing is running");
        }
        let mut patience = timeout;
        if action == ControlAction::Interrupt {
            patience = patience.or(Some(INTERRUPT_PATIENCE));
            // The urgent action may have interrupted an earlier command.
            if !is_done
                || self
                    .running
                    .as_ref()
                    .is_some_and(|running| !running.is_interrupted)
            {
                self.interrupt();
            }
        }
        self.wait(
            patience.and_then(|patience| Instant::now().checked_add(patience)),
            waiter,
        )
    }

    fn interrupt(&mut self) {
        if let Some(running) = &mut self.running {
            running.is_interrupted = true;
        }
        self.environment.interrupt();
    }

    fn restart(&mut self, is_done: bool) -> Response {
        // After the urgent action another command may have been started.
        if !is_done || self.running.is_some() {
            self.environment.restart();
        }
        self.running = None;
        self.unseen = None;
        match self.environment.problem() {
            None => Response::done(RESTARTED),
            Some(problem) => Response::failed(problem),
        }
    }

    /// Waits for the end. Urgent actions come first; they may have been requested before the wait began.
    fn wait(&mut self, deadline: Option<Instant>, waiter: &mut Waiter<'_>) -> Response {
        loop {
            let urgent = (waiter.urgent)(&self.name);
            if let Some(response) = self.act(urgent) {
                return response;
            }
            match self.environment.wait(WaitLimit {
                deadline,
                wake: waiter.wake,
            }) {
                WaitResult::Ended(response) => {
                    self.running = None;
                    return response;
                }
                WaitResult::Late => return self.late(),
                WaitResult::Woken => {}
            }
        }
    }

    /// Executes an urgent action; a response ends the wait.
    fn act(&mut self, urgent: UrgentAction) -> Option<Response> {
        match urgent {
            UrgentAction::Nothing => None,
            UrgentAction::Interrupt => {
                self.interrupt();
                None
            }
            UrgentAction::Restart => {
                let output = self.environment.take_output();
                self.environment.restart();
                self.running = None;
                Some(Response::failed(
                    on_own_line(output) + "[ended by restart]\n",
                ))
            }
            UrgentAction::End => Some(Response::default()),
        }
    }

    fn late(&mut self) -> Response {
        let output = self.environment.take_output();
        let hint = if output.is_empty() {
            " (no output so far: programs may buffer it, try stdbuf -oL)"
        } else {
            ""
        };
        let line = match &self.running {
            Some(RunningCommand { since, .. }) => {
                let seconds = since.elapsed().as_secs_f64();
                format!(
                    "[still running after {seconds:.1} s; use wait, interrupt or restart]{hint}\n"
                )
            }
            None => "[loading, still running; use wait or restart]\n".to_owned(),
        };
        Response {
            output: on_own_line(output) + &line,
            success: false,
            running: true,
        }
    }

    fn screen(&mut self) -> ScreenSection {
        let ScreenSection {
            mut content,
            max_lines,
        } = self.environment.screen();
        content.truncate(
            content
                .split_inclusive('\n')
                .take(max_lines)
                .map(str::len)
                .sum(),
        );
        if let Some(RunningCommand { first_line, .. }) = &self.running {
            content = on_own_line(content) + &format!("Running: {first_line}");
        }
        ScreenSection { content, max_lines }
    }
}

/// A descriptor for a wait that returns at once; it may be ready.
fn never() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}
