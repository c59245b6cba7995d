//! The console: a line on stderr for each event worth a line, and on a terminal a live status line below them.
//!
//! `event_text.rs` renders the lines; this file keeps them apart from the live line. Write errors are ignored: a closed
//! or full console does not end a run. Results on stdout are printed elsewhere.

use std::io::{self, IsTerminal, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};

use super::event_text::{EventText, Tone, line_of, minutes, money, name, phase};
use crate::events::Event;
use crate::events::bus::Bus;

const TICK: Duration = Duration::from_secs(1);
/// Carriage return, then erase to the end of the line.
const ERASE: &str = "\r\x1b[K";
const DEFAULT_WIDTH: u16 = 80;

/// What the console writes, and where.
pub(crate) struct ConsoleOptions {
    /// Only warnings, notes, errors, and the end of a run that did not succeed.
    pub quiet: bool,
    /// Whether lines have colours; without a terminal they never have.
    pub color: bool,
    /// Returns the width of the terminal; `None` where `sink` is not a terminal, or a dumb one.
    pub terminal: Option<fn() -> u16>,
    pub started: Instant,
    pub sink: Box<dyn Write + Send>,
}

impl ConsoleOptions {
    /// Options for stderr; checks whether it is a terminal.
    pub(crate) fn stderr(quiet: bool, color: bool) -> ConsoleOptions {
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

/// A subscribed console. Dropping it ends the live line; lines of later events are still written.
pub(crate) struct Console {
    screen: Arc<Mutex<ConsoleScreen>>,
    ticker: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Console {
    /// Subscribes a console to a bus.
    pub(crate) fn attach(bus: &mut Bus, options: ConsoleOptions) -> Console {
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
        bus.on(is_relevant, move |event| {
            lock(&target).on_event(event);
            Ok(())
        });
        let ticker = has_live_line
            .then(|| start_ticker(screen.clone()))
            .flatten();
        Console { screen, ticker }
    }

    /// Ends the live line.
    pub(crate) fn finish(self) {}
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some((end, ticker)) = self.ticker.take() {
            drop(end);
            // If the ticker panicked, there is nothing left to end.
            let _ = ticker.join();
        }
        lock(&self.screen).end_live_line();
    }
}

/// The content of the live line.
struct LiveLine {
    phase: String,
    action: Option<String>,
}

struct ConsoleScreen {
    quiet: bool,
    color: bool,
    /// Set while there is a live line.
    terminal: Option<fn() -> u16>,
    started: Instant,
    sink: Box<dyn Write + Send>,
    live: Option<LiveLine>,
    spend: Option<f64>,
    is_drawn: bool,
}

impl ConsoleScreen {
    fn on_event(&mut self, event: &Event) {
        self.update_live(event);
        match line_of(event, self.started.elapsed()) {
            Some(line) if !self.quiet || line.tone.is_loud() => self.write_line(&line),
            _ => self.write(""),
        }
    }

    fn update_live(&mut self, event: &Event) {
        match event {
            Event::StateStarted {
                state_name,
                attempt: Some(attempt),
                of: Some(of),
                ..
            } => {
                self.live = Some(LiveLine {
                    phase: phase(state_name, *attempt, *of),
                    action: None,
                });
            }
            Event::ModelRequested { .. } => {
                self.set_action(Some("waiting for the model".to_owned()))
            }
            Event::ModelAnswered { cost_usd, .. } => {
                self.spend = cost_usd
                    .map(|cost| self.spend.unwrap_or(0.0) + cost)
                    .or(self.spend);
                self.set_action(None);
            }
            Event::ToolInvocation { tool_name, .. } => {
                self.set_action(Some(format!("check {}", name(tool_name))))
            }
            Event::ToolCalled { tool_name, .. } => {
                self.set_action(Some(format!("tool {}", name(tool_name))))
            }
            Event::ScriptOutput { .. } | Event::ToolReturned { .. } => self.set_action(None),
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

    fn set_action(&mut self, action: Option<String>) {
        if let Some(live) = &mut self.live {
            live.action = action;
        }
    }

    fn write_line(&mut self, line: &EventText) {
        let style = match line.tone {
            Tone::Progress => Style::new(),
            Tone::Good => AnsiColor::Green.on_default(),
            Tone::Bad | Tone::Error => AnsiColor::Red.on_default(),
            Tone::Warning => AnsiColor::Yellow.on_default(),
        };
        let text = line.text.trim_end();
        if self.color {
            self.write(&format!("{style}{text}{style:#}\n"));
        } else {
            self.write(&format!("{text}\n"));
        }
    }

    /// Replaces the live line by `lines` and the current live line, in one write.
    fn write(&mut self, lines: &str) {
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
            live.action.clone(),
        ];
        let text = parts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        // The last column stays free: some terminals wrap as soon as it is written.
        fitting(&text, usize::from(width()).saturating_sub(1)).to_owned()
    }

    fn end_live_line(&mut self) {
        self.terminal = None;
        self.write("");
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

/// Starts the thread that redraws the live line every second; without it only events do.
fn start_ticker(screen: Arc<Mutex<ConsoleScreen>>) -> Option<(Sender<()>, JoinHandle<()>)> {
    let (end, ended) = mpsc::channel();
    let ticker = thread::Builder::new()
        .name("console".to_owned())
        .spawn(move || tick(&screen, &ended));
    ticker.ok().map(|ticker| (end, ticker))
}

fn tick(screen: &Mutex<ConsoleScreen>, ended: &Receiver<()>) {
    while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
        lock(screen).write("");
    }
}

/// The beginning of a text that fits `columns`. Characters that are not ASCII count as two columns, which they may be.
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
        .unwrap_or(DEFAULT_WIDTH)
}

#[cfg(test)]
mod tests;
