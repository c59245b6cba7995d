//! All environments of a place, by name: routes commands and control actions, collects the screens.
//!
//! Here a timeout, a refusal, the rest of a command that ended unseen get their words; what a command does is its
//! environment's business.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::{Environment, Response, ScreenSection, Until, Waited};

/// How long `interrupt` waits for the command's end where nothing else is said.
const INTERRUPT_PATIENCE: Duration = Duration::from_secs(5);
/// How much of a command's first line the screen shows.
const SHOWN_CHARACTERS: usize = 80;

/// What an agent can do to a command that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    Wait,
    Interrupt,
    Restart,
}

/// What should happen to the command that is being waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgent {
    Nothing,
    Interrupt,
    Restart,
    /// Everything ends: no answer is wanted any more.
    End,
}

/// Who waits: what wakes it, and what is to be done then, by the name of the environment that is waited for.
pub struct Waiter<'a> {
    pub wake: BorrowedFd<'a>,
    pub urgent: &'a mut dyn FnMut(&str) -> Urgent,
}

/// The environments, in the order of their screens.
#[derive(Default)]
pub struct Registry {
    entries: Vec<Entry>,
}

struct Entry {
    name: String,
    environment: Box<dyn Environment>,
    /// The first line of the command under way, and since when it runs.
    running: Option<(String, Instant)>,
}

impl Registry {
    /// Adds an environment behind the others.
    pub fn add(&mut self, name: &str, environment: Box<dyn Environment>) {
        self.entries.push(Entry { name: name.to_owned(), environment, running: None });
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
            Some(_) if command.contains('\0') => Response::failed("A command cannot contain a NUL character\n"),
            Some(entry) => entry.command(command, deadline, waiter),
        }
    }

    /// Carries out a control action.
    pub fn control(
        &mut self,
        name: &str,
        action: Action,
        timeout: Option<Duration>,
        is_done: bool,
        waiter: &mut Waiter<'_>,
    ) -> Response {
        match self.entries.iter_mut().find(|entry| entry.name == name) {
            None => self.unknown(name),
            Some(entry) => entry.control(action, timeout, is_done, waiter),
        }
    }

    /// Returns what an agent sees, section by section, each cut to its lines.
    pub fn screens(&mut self) -> Vec<(String, ScreenSection)> {
        for entry in &mut self.entries {
            entry.environment.prepare_screen();
        }
        self.entries.iter_mut().map(|entry| (entry.name.clone(), entry.screen())).collect()
    }

    /// Ends everything.
    pub fn shutdown(&mut self) {
        for entry in &mut self.entries {
            entry.environment.shutdown();
        }
    }

    fn unknown(&self, name: &str) -> Response {
        let mut names: Vec<&str> = self.entries.iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        Response::failed(format!("Unknown environment: {name}\nAvailable: {}", names.join(", ")))
    }
}

impl Entry {
    fn command(&mut self, command: &str, deadline: Option<Instant>, waiter: &mut Waiter<'_>) -> Response {
        let rest = match self.finish_unseen() {
            Ok(rest) => rest,
            Err(refusal) => return refusal,
        };
        let begun = Instant::now();
        let response = match self.environment.begin(command) {
            Some(response) => response,
            None => {
                let first_line = command.lines().next().unwrap_or_default();
                self.running = Some((first_line.chars().take(SHOWN_CHARACTERS).collect(), begun));
                match (waiter.urgent)(&self.name) {
                    Urgent::Nothing => self.wait(deadline, waiter),
                    urgent => self.act(urgent).unwrap_or_else(|| self.wait(deadline, waiter)),
                }
            }
        };
        Response { output: rest + &response.output, ..response }
    }

    /// Returns the rest and the end of a command that ended since its last answer, or refuses where it has not.
    fn finish_unseen(&mut self) -> Result<String, Response> {
        if !self.environment.is_running() {
            self.running = None;
            return Ok(String::new());
        }
        match self.environment.wait(Until { deadline: Some(Instant::now()), wake: never() }) {
            Waited::Ended(response) => {
                self.running = None;
                Ok(on_own_line(response.output)
                    + &format!("[the command before has ended: {}]\n", self.environment.last_end()))
            }
            Waited::Late | Waited::Woken => {
                let (line, since) = self.running.clone().unwrap_or_else(|| (String::new(), Instant::now()));
                let seconds = since.elapsed().as_secs_f64();
                Err(Response {
                    output: format!(
                        "Not run: the command before is still running after {seconds:.1} s ({line}); use wait, interrupt or restart\n"
                    ),
                    success: false,
                    running: true,
                })
            }
        }
    }

    fn control(
        &mut self,
        action: Action,
        timeout: Option<Duration>,
        is_done: bool,
        waiter: &mut Waiter<'_>,
    ) -> Response {
        if action == Action::Restart {
            if !is_done {
                self.environment.restart();
            }
            self.running = None;
            return Response::done("Restarted\n");
        }
        if !self.environment.is_running() {
            self.running = None;
            return Response::done("Nothing is running");
        }
        let timeout = match action {
            Action::Interrupt => Some(timeout.unwrap_or(INTERRUPT_PATIENCE)),
            _ => timeout,
        };
        let has_ended = match self.environment.wait(Until { deadline: Some(Instant::now()), wake: never() }) {
            Waited::Ended(response) => Some(response),
            Waited::Late | Waited::Woken => None,
        };
        if let Some(response) = has_ended {
            self.running = None;
            return response;
        }
        if action == Action::Interrupt && !is_done {
            self.environment.interrupt();
        }
        self.wait(timeout.and_then(|timeout| Instant::now().checked_add(timeout)), waiter)
    }

    fn wait(&mut self, deadline: Option<Instant>, waiter: &mut Waiter<'_>) -> Response {
        loop {
            match self.environment.wait(Until { deadline, wake: waiter.wake }) {
                Waited::Ended(response) => {
                    self.running = None;
                    return response;
                }
                Waited::Late => return self.late(),
                Waited::Woken => {
                    let urgent = (waiter.urgent)(&self.name);
                    if let Some(response) = self.act(urgent) {
                        return response;
                    }
                }
            }
        }
    }

    /// Does what is urgent; a response is the end of the wait.
    fn act(&mut self, urgent: Urgent) -> Option<Response> {
        match urgent {
            Urgent::Nothing => None,
            Urgent::Interrupt => {
                self.environment.interrupt();
                None
            }
            Urgent::Restart => {
                let output = self.environment.take_output();
                self.environment.restart();
                self.running = None;
                Some(Response::failed(on_own_line(output) + "[ended by restart]\n"))
            }
            Urgent::End => Some(Response::default()),
        }
    }

    fn late(&mut self) -> Response {
        let output = self.environment.take_output();
        let since = self.running.as_ref().map_or(0.0, |(_, since)| since.elapsed().as_secs_f64());
        let hint = match output.is_empty() {
            true => " (no output so far: programs may buffer it, try stdbuf -oL)",
            false => "",
        };
        let line = format!("[still running after {since:.1} s; use wait, interrupt or restart]{hint}\n");
        Response { output: on_own_line(output) + &line, success: false, running: true }
    }

    fn screen(&mut self) -> ScreenSection {
        let section = self.environment.screen();
        let mut content: String = section.content.split_inclusive('\n').take(section.max_lines).collect();
        if let Some((line, _)) = self.running.as_ref().filter(|_| self.environment.is_running()) {
            content = on_own_line(content) + &format!("Running: {line}");
        }
        ScreenSection { content, ..section }
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
