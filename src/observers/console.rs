//! The console: one line on stderr for each fact worth knowing, and on a terminal a live last line under them.
//!
//! What is said is decided in `lines.rs`; here lines and the live line are kept from mixing. A console that is closed
//! or full is no reason to end a run: errors of writing are ignored. Results on stdout are not its job.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};

use super::event_text::{EventText, Tone, line_of, minutes, money, name, phase};
use crate::events::Event;
use crate::events::bus::Bus;
use crate::text::invisible::printable;

const TICK: Duration = Duration::from_secs(1);
/// Back to the first column, and away with what stands there.
const ERASE: &str = "\r\x1b[K";
const USUAL_WIDTH: u16 = 80;

/// The events that the console shows.
fn is_shown(event: &Event) -> bool {
    matches!(
        event,
        Event::WorkflowStarted { .. }
            | Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. }
            | Event::StateStarted { .. }
            | Event::StateCompleted { .. }
            | Event::ModelRequested { .. }
            | Event::ModelRetried { .. }
            | Event::ModelAnswered { .. }
            | Event::FilesApplied { .. }
            | Event::ToolCalled { .. }
            | Event::ToolReturned { .. }
            | Event::EnvironmentsRestarted { .. }
            | Event::ToolInvocation { .. }
            | Event::ScriptOutput { .. }
            | Event::ProtectedRestored { .. }
            | Event::SandboxFound { .. }
            | Event::NoteAdded { .. }
            | Event::AnswerRefused { .. }
            | Event::ProgressMessage { .. }
            | Event::ErrorOccurred { .. }
            | Event::LogMended { .. }
    )
}

/// How the console behaves and where it writes.
pub struct ConsoleOptions {
    /// Only warnings, notes, errors, and the end of a run that did not succeed.
    pub quiet: bool,
    /// Colours the lines; without a terminal they are plain whatever this says.
    pub color: bool,
    /// Tells the width of the terminal that `sink` is; none where it is no terminal, or a dumb one.
    pub terminal: Option<fn() -> u16>,
    pub started: Instant,
    pub sink: Box<dyn Write + Send>,
}

impl ConsoleOptions {
    /// Returns options for stderr, which is looked at to see whether it is a terminal.
    pub fn stderr(quiet: bool, color: bool) -> ConsoleOptions {
        let terminal = io::stderr()
            .is_terminal()
            .then_some(stderr_width as fn() -> u16);
        ConsoleOptions {
            quiet,
            color,
            terminal,
            started: Instant::now(),
            sink: Box::new(io::stderr()),
        }
    }
}

/// A console that listens. Dropping it ends the live line; the lines of later events are still written.
pub struct Console {
    screen: Arc<Mutex<ConsoleScreen>>,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Console {
    /// Subscribes a console to all that it tells of.
    pub fn attach(bus: &mut Bus, options: ConsoleOptions) -> Console {
        let ConsoleOptions {
            quiet,
            color,
            terminal,
            started,
            sink,
        } = options;
        let has_live_line = terminal.is_some() && !quiet;
        let color = terminal.is_some() && color;
        let terminal = terminal.filter(|_| has_live_line);
        let screen = ConsoleScreen {
            quiet,
            color,
            terminal,
            started,
            sink,
            live: None,
            spend: None,
            is_drawn: false,
        };
        let screen = Arc::new(Mutex::new(screen));
        let target = screen.clone();
        bus.on(is_shown, move |event| {
            lock(&target).on_event(event);
            Ok(())
        });
        let ticker = has_live_line
            .then(|| start_ticker(screen.clone()))
            .flatten();
        Console { screen, ticker }
    }

    /// Writes a line of the caller's own, quiet or not, made harmless like all others.
    pub fn line(&self, text: &str) {
        lock(&self.screen).say(&EventText {
            tone: Tone::Progress,
            text: printable(text),
        });
    }

    /// Ends the live line.
    pub fn finish(self) {}
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some((end, ticker)) = self.ticker.take() {
            drop(end);
            // A ticker that panicked has nothing left to end.
            let _ = ticker.join();
        }
        lock(&self.screen).end_live_line();
    }
}

/// What the live line tells.
struct LiveLine {
    phase: String,
    doing: Option<String>,
}

struct ConsoleScreen {
    quiet: bool,
    color: bool,
    /// Set as long as there is to be a live line.
    terminal: Option<fn() -> u16>,
    started: Instant,
    sink: Box<dyn Write + Send>,
    live: Option<LiveLine>,
    spend: Option<f64>,
    is_drawn: bool,
}

impl ConsoleScreen {
    fn on_event(&mut self, event: &Event) {
        self.follow(event);
        match line_of(event, self.started.elapsed()) {
            Some(line) if !self.quiet || line.tone.is_loud() => self.say(&line),
            _ => self.show(""),
        }
    }

    /// Keeps what the live line tells up to date.
    fn follow(&mut self, event: &Event) {
        match event {
            Event::StateStarted {
                state_name,
                attempt,
                of,
                ..
            } => {
                self.live = Some(LiveLine {
                    phase: phase(state_name, *attempt, *of),
                    doing: None,
                });
            }
            Event::ModelRequested { .. } => self.now(Some("waiting for the model".to_owned())),
            Event::ModelAnswered { cost_usd, .. } => {
                self.spend = cost_usd
                    .map(|cost| self.spend.unwrap_or(0.0) + cost)
                    .or(self.spend);
                self.now(None);
            }
            Event::ToolInvocation { tool_name, .. } => {
                self.now(Some(format!("check {}", name(tool_name))))
            }
            Event::ToolCalled { tool_name, .. } => {
                self.now(Some(format!("tool {}", name(tool_name))))
            }
            Event::ScriptOutput { .. } | Event::ToolReturned { .. } => self.now(None),
            Event::StateCompleted { total_cost_usd, .. } => {
                self.spend = total_cost_usd.or(self.spend)
            }
            Event::WorkflowCompleted { .. }
            | Event::WorkflowPaused { .. }
            | Event::WorkflowInterrupted { .. } => {
                self.live = None;
            }
            _ => {}
        }
    }

    fn now(&mut self, doing: Option<String>) {
        if let Some(live) = &mut self.live {
            live.doing = doing;
        }
    }

    fn say(&mut self, line: &EventText) {
        let style = match line.tone {
            Tone::Progress => Style::new(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad | Tone::Error => AnsiColor::Red.on_default(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
        };
        let text = line.text.trim_end();
        if self.color {
            self.show(&format!("{style}{text}{style:#}\n"));
        } else {
            self.show(&format!("{text}\n"));
        }
    }

    /// Writes lines in place of the live line, and the live line, as it is now, under them; all at once.
    fn show(&mut self, lines: &str) {
        let live = self.live_line();
        let erase = if self.is_drawn { ERASE } else { "" };
        self.is_drawn = !live.is_empty();
        let bytes = [erase, lines, &live].concat();
        if !bytes.is_empty() {
            let _ = self.sink.write_all(bytes.as_bytes());
            let _ = self.sink.flush();
        }
    }

    fn live_line(&self) -> String {
        let (Some(width), Some(live)) = (self.terminal, &self.live) else {
            return String::new();
        };
        let elapsed = minutes(self.started.elapsed().as_secs());
        let parts = [
            Some(live.phase.clone()),
            Some(elapsed),
            self.spend.map(money),
            live.doing.clone(),
        ];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        // The last column stays free: some terminals wrap as soon as it is taken.
        fitting(&text, usize::from(width()).saturating_sub(1)).to_owned()
    }

    fn end_live_line(&mut self) {
        self.terminal = None;
        self.show("");
    }
}

fn lock(screen: &Mutex<ConsoleScreen>) -> MutexGuard<'_, ConsoleScreen> {
    screen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that draws the live line anew; without it the line changes with events alone.
fn start_ticker(screen: Arc<Mutex<ConsoleScreen>>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (end, ended) = mpsc::channel();
    let ticker = thread::Builder::new()
        .name("console".to_owned())
        .spawn(move || tick(&screen, &ended));
    ticker.ok().map(|ticker| (end, ticker))
}

fn tick(screen: &Mutex<ConsoleScreen>, ended: &Receiver<()>) {
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        lock(screen).show("");
    }
}

/// Returns the beginning of a text that takes no more than `columns`. What is not ASCII may be two columns wide, and
/// is counted so.
fn fitting(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (at, character) in text.char_indices() {
        taken += if character.is_ascii() { 1 } else { 2 };
        if columns < taken {
            return &text[..at];
        }
    }
    text
}

fn stderr_width() -> u16 {
    rustix::termios::tcgetwinsize(io::stderr())
        .map(|size| size.ws_col)
        .ok()
        .filter(|width| 0 < *width)
        .unwrap_or(USUAL_WIDTH)
}

#[cfg(test)]
mod tests;
