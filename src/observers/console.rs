//! The console: a line on stderr for each event worth a line, and on a terminal a live area below them.
//!
//! `event_text.rs` and `workflow_text.rs` render the lines, `screen.rs` keeps them apart from the live area, and a view
//! decides what is shown of a build or of a workflow. Results on stdout are printed elsewhere.

mod build_view;
mod github;
mod held_error;
mod live_spend;
mod screen;
mod stream_progress;
mod workflow_view;

use std::io::{self, IsTerminal, Write};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use signal_hook::SigId;
use signal_hook::consts::SIGCONT;
use signal_hook::low_level::unregister;

use self::build_view::BuildView;
use self::screen::{ConsoleScreen, ConsoleView, GithubGroup, TerminalSize};
use self::workflow_view::WorkflowView;
use crate::events::Event;
use crate::events::bus::Bus;

const DEFAULT_SIZE: TerminalSize = TerminalSize {
    columns: 80,
    rows: 24,
};

/// What the console writes, and where.
pub(crate) struct ConsoleOptions {
    /// Only warnings, notes, errors, questions, and the end of a run that did not succeed.
    pub quiet: bool,
    /// Whether lines have colours.
    pub color: bool,
    /// Whether the result of a build follows where these lines go; then the console does not print it.
    pub result_follows: bool,
    /// Whether there are events for the pieces of an answer, which a log does not have.
    pub sees_streams: bool,
    /// Whether the lines are read by GitHub Actions.
    pub github: bool,
    /// Returns the size of the terminal; `None` where `sink` is not a terminal, or a dumb one.
    pub terminal: Option<fn() -> TerminalSize>,
    pub started: Instant,
    pub sink: Box<dyn Write + Send>,
}

impl ConsoleOptions {
    /// Options for stderr; checks whether it is a terminal.
    pub(crate) fn stderr(quiet: bool) -> ConsoleOptions {
        let terminal = io::stderr()
            .is_terminal()
            .then_some(stderr_size as fn() -> TerminalSize);
        ConsoleOptions {
            quiet,
            color: false,
            result_follows: false,
            sees_streams: true,
            github: false,
            terminal,
            started: Instant::now(),
            sink: Box::new(io::stderr()),
        }
    }
}

/// A subscribed console. Dropping it ends the live area; lines of later events are still written.
pub(crate) struct Console {
    screen: Arc<Mutex<ConsoleScreen>>,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
    /// The handler that notices stops.
    stops: Option<SigId>,
}

impl Console {
    /// Subscribes the console of a build to a bus.
    pub(crate) fn attach(bus: &mut Bus, options: ConsoleOptions) -> Console {
        let view = BuildView::new(options.result_follows, options.sees_streams);
        Console::attach_view(bus, options, Box::new(view))
    }

    /// Subscribes the console of a workflow to a bus.
    pub(crate) fn attach_workflow(bus: &mut Bus, options: ConsoleOptions) -> Console {
        let view = WorkflowView::new(options.sees_streams);
        Console::attach_view(bus, options, Box::new(view))
    }

    fn attach_view(bus: &mut Bus, options: ConsoleOptions, view: Box<dyn ConsoleView>) -> Console {
        let has_live_area = options.terminal.is_some() && !options.quiet;
        let screen = ConsoleScreen {
            view,
            quiet: options.quiet,
            color: options.color,
            github: options.github.then_some(GithubGroup::Closed),
            terminal: options.terminal.filter(|_| has_live_area),
            started: options.started,
            elapsed_before: Duration::ZERO,
            sink: options.sink,
            drawn: Vec::new(),
            is_stale: false,
            last_draw: None,
            redraw_due: None,
            was_stopped: Arc::default(),
            prompts: 0,
            held: String::new(),
        };
        let stops = has_live_area
            .then(|| watch_stops(&screen.was_stopped))
            .flatten();
        let screen = Arc::new(Mutex::new(screen));
        let target = screen.clone();
        bus.on(is_relevant, move |event| {
            lock(&target).on_event(event);
            Ok(())
        });
        let ticker = has_live_area
            .then(|| start_ticker(screen.clone()))
            .flatten();
        Console {
            screen,
            ticker,
            stops,
        }
    }

    /// Sets the time that has passed since the run began.
    pub(crate) fn set_elapsed(&self, elapsed: Duration) {
        let mut screen = lock(&self.screen);
        (screen.started, screen.elapsed_before) = (Instant::now(), elapsed);
    }

    /// Whether it shows what is going on between events that have a line.
    pub(crate) fn has_live_area(&self) -> bool {
        self.ticker.is_some()
    }

    /// A handle for code that writes to the terminal itself.
    pub(crate) fn handle(&self) -> ConsoleHandle {
        ConsoleHandle {
            screen: self.screen.clone(),
        }
    }

    /// Ends the live area.
    pub(crate) fn finish(self) {}
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some((end, ticker)) = self.ticker.take() {
            lock(&self.screen).redraw_due = None;
            drop(end);
            // If the ticker panicked, there is nothing left to end.
            let _ = ticker.join();
        }
        self.stops.take().map(unregister);
        lock(&self.screen).end_live_area();
    }
}

/// Lends the terminal of a console to a prompt.
#[derive(Clone)]
pub(crate) struct ConsoleHandle {
    screen: Arc<Mutex<ConsoleScreen>>,
}

impl ConsoleHandle {
    /// Erases the live area and holds all lines back until the returned value is dropped. The cursor is then at the
    /// beginning of a line.
    pub(crate) fn suspend(&self) -> SuspendedConsole {
        lock(&self.screen).suspend();
        SuspendedConsole {
            screen: self.screen.clone(),
        }
    }
}

/// A console that writes nothing. Dropping it writes the lines that were held back, and draws the live area again.
pub(crate) struct SuspendedConsole {
    screen: Arc<Mutex<ConsoleScreen>>,
}

impl Drop for SuspendedConsole {
    fn drop(&mut self) {
        lock(&self.screen).resume();
    }
}

/// All events but those that come in large numbers and change nothing on the console.
fn is_relevant(event: &Event) -> bool {
    !matches!(
        event,
        Event::PromptSent { .. } | Event::ModelStreamed { .. }
    )
}

fn lock(screen: &Mutex<ConsoleScreen>) -> MutexGuard<'_, ConsoleScreen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that redraws the live area between events; without it only events do.
fn start_ticker(screen: Arc<Mutex<ConsoleScreen>>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (end, wakes) = mpsc::channel();
    lock(&screen).redraw_due = Some(end.clone());
    let ticker = thread::Builder::new()
        .name("console".to_owned())
        .spawn(move || tick(&screen, &wakes));
    ticker.ok().map(|ticker| (end, ticker))
}

/// Redraws every second, and soon after a wake. Ends when all senders are gone.
fn tick(screen: &Mutex<ConsoleScreen>, wakes: &Receiver<()>) {
    loop {
        let until_draw = lock(screen).until_next_draw();
        match wakes.recv_timeout(until_draw) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => lock(screen).redraw(),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

/// How wide the terminal on stderr is.
pub(crate) fn stderr_columns() -> usize {
    usize::from(stderr_size().columns)
}

/// Has the flag set whenever the process goes on after a stop (Ctrl+Z).
fn watch_stops(was_stopped: &Arc<AtomicBool>) -> Option<SigId> {
    signal_hook::flag::register(SIGCONT, was_stopped.clone()).ok()
}

fn stderr_size() -> TerminalSize {
    let found = rustix::termios::tcgetwinsize(io::stderr()).ok();
    let or_default = |found: Option<u16>, default| found.filter(|n| 0 < *n).unwrap_or(default);
    TerminalSize {
        columns: or_default(found.map(|size| size.ws_col), DEFAULT_SIZE.columns),
        rows: or_default(found.map(|size| size.ws_row), DEFAULT_SIZE.rows),
    }
}

#[cfg(test)]
mod live_area_tests;
#[cfg(test)]
mod live_line_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod workflow_tests;
