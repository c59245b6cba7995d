//! All environments of a place, by name: routes commands and control actions, collects the screens.
//!
//! Here a timeout, a refusal, the rest of a command that ended unseen get their words; what a command does is its
//! environment's business.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Environment, Response, ScreenSection, WaitLimit, WaitResult};

/// How long `interrupt` waits for the command's end where nothing else is said.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
/// How much of a command's first line the screen shows.
const SHOWN_CHARACTERS: usize = 80;
const RESTARTED: &str = "Restarted\n";

/// What an agent can do to a command that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ControlAction {
    Wait,
    Interrupt,
    Restart,
}

/// What should happen to the command that is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrgentAction {
    Nothing,
    Interrupt,
    Restart,
    /// Everything ends: no answer is wanted any more.
    End,
}

/// Who waits: what wakes it, and what is to be done then, by the name of the environment that is waited for.
pub struct Waiter<'a> {
    pub wake: BorrowedFd<'a>,
    pub urgent: &'a mut dyn FnMut(&str) -> UrgentAction,
}

/// Finds an environment that is not there yet, by name: none, why it cannot be had, or itself.
pub type EnvironmentFinder = Box<dyn FnMut(&str) -> Option<Result<Box<dyn Environment>, String>>>;

/// The environments, in the order of their screens.
#[derive(Default)]
pub struct Registry {
    entries: Vec<RegistryEntry>,
    newcomers: Option<EnvironmentFinder>,
}

struct RegistryEntry {
    name: String,
    environment: Box<dyn Environment>,
    /// The command under way.
    running: Option<RunningCommand>,
    /// What a command came to that ended while nobody waited for it, until somebody asks.
    unseen: Option<Response>,
}

struct RunningCommand {
    first_line: String,
    since: Instant,
    is_interrupted: bool,
}

impl Registry {
    /// Adds an environment behind the others.
    pub fn add(&mut self, name: &str, environment: Box<dyn Environment>) {
        self.entries.push(RegistryEntry {
            name: name.to_owned(),
            environment,
            running: None,
            unseen: None,
        });
    }

    /// Says where a restart finds an environment that is not there yet.
    pub fn set_finder(&mut self, newcomers: EnvironmentFinder) {
        self.newcomers = Some(newcomers);
    }

    /// Whether there is an environment of that name.
    pub fn has(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name)
    }

    /// Runs a command to its end or to the deadline, counted from now.
    pub fn command(
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

    /// Carries out a control action.
    pub fn control(
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

    /// Returns what an agent sees, section by section, each cut to its lines.
    pub fn screens(&mut self) -> Vec<(String, ScreenSection)> {
        for entry in &mut self.entries {
            entry.look();
            entry.environment.prepare_screen();
        }
        self.entries
            .iter_mut()
            .map(|entry| (entry.name.clone(), entry.screen()))
            .collect()
    }

    /// Returns the commands that are under way, each with its environment.
    pub fn running(&mut self) -> Vec<String> {
        self.entries.iter_mut().for_each(RegistryEntry::look);
        let running = self
            .entries
            .iter()
            .filter_map(|entry| Some((&entry.name, entry.running.as_ref()?)));
        running
            .map(|(name, running)| format!("{name}: {}", running.first_line))
            .collect()
    }

    /// Ends everything.
    pub fn shutdown(&mut self) {
        for entry in &mut self.entries {
            entry.environment.prepare_shutdown();
        }
        for entry in &mut self.entries {
            entry.environment.shutdown();
        }
    }

    /// Takes in an environment that was not there, or could not be had, when the others were.
    fn find_or_start(&mut self, name: &str) -> Response {
        match self.newcomers.as_mut().and_then(|find| find(name)) {
            None => self.unknown(name),
            Some(Err(problem)) => Response::failed(problem),
            Some(Ok(environment)) => {
                self.add(name, environment);
                Response::done(RESTARTED)
            }
        }
    }

    fn unknown(&self, name: &str) -> Response {
        let mut names: Vec<&str> = self
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
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
        self.look();
        if self.environment.is_running() {
            return self.refuse();
        }
        let rest = self
            .unseen
            .take()
            .map(|response| self.rest(response.output))
            .unwrap_or_default();
        let since = Instant::now();
        let response = match self.environment.begin(command) {
            Some(response) => response,
            None => {
                let first_line = command
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .chars()
                    .take(SHOWN_CHARACTERS)
                    .collect();
                self.running = Some(RunningCommand {
                    first_line,
                    since,
                    is_interrupted: false,
                });
                self.wait(deadline, waiter)
            }
        };
        if rest.is_empty() {
            response
        } else {
            Response {
                output: rest + &response.output,
                ..response
            }
        }
    }

    /// Looks whether the command under way has ended, and keeps what it came to until somebody asks.
    fn look(&mut self) {
        if self.environment.is_running()
            && let WaitResult::Ended(response) = self.environment.wait(WaitLimit {
                deadline: Some(Instant::now()),
                wake: never(),
            })
        {
            // Where there was no command it was the environment that loaded, and its screen says so.
            self.unseen = self.running.take().map(|_| response);
        }
    }

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
        self.look();
        if let Some(response) = self.unseen.take() {
            return response;
        }
        if !self.environment.is_running() {
            return Response::done("Nothing is running");
        }
        let mut patience = timeout;
        if action == ControlAction::Interrupt {
            patience = patience.or(Some(INTERRUPT_PATIENCE));
            // What acted at once may have hit a command before this one.
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
        // What acted at once may have been followed by a command that runs now.
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

    /// Waits for the end; what is urgent comes first, and may have been said before the wait began.
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

    /// Does what is urgent; a response is the end of the wait.
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
        let hint = match output.is_empty() {
            true => " (no output so far: programs may buffer it, try stdbuf -oL)",
            false => "",
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

fn on_own_line(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

/// A descriptor that nothing ever wakes: stdin of this process is not polled by a wait that is over at once.
fn never() -> BorrowedFd<'static> {
    rustix::stdio::stdin()
}
