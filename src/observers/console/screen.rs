//! What a console has on the terminal: written lines, and below them a live area that is redrawn.
//!
//! The area is erased and drawn again in one write. Write errors are ignored: a closed or full console does not end a
//! run.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};

use super::github;
use crate::events::Event;
use crate::observers::event_text::{EventText, Tone};

/// How often the area is drawn while nothing but the time changes.
const TICK: Duration = Duration::from_secs(1);
/// The shortest time between two draws for events that come in large numbers.
const FRAME: Duration = Duration::from_millis(100);
/// The columns that stay free at the end of a line: some terminals wrap as soon as the last one is written, and the
/// terminal itself writes `^C` there.
const FREE_COLUMNS: u16 = 3;
/// Lines that are not shorter than this end with dots where they are cut.
const MIN_DOTTED: usize = 20;
/// Carriage return, then erase to the end of the line.
const ERASE_LINE: &str = "\r\x1b[K";

/// The size of a terminal in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TerminalSize {
    pub columns: u16,
    pub rows: u16,
}

/// What a console shows of one kind of run. Times are since the command began.
pub(super) trait ConsoleView: Send {
    /// Applies an event to the live area, and returns the lines that are written for it.
    fn apply(&mut self, event: &Event, elapsed: Duration) -> Vec<EventText>;

    /// The lines that were held back and are written at the end.
    fn finish(&mut self) -> Vec<EventText>;

    /// The lines of the live area; `space` is what there is for them. Longer lines are cut.
    fn live(&self, elapsed: Duration, space: TerminalSize) -> Vec<String>;
}

/// Whether lines belong to a group now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GithubGroup {
    Open,
    Closed,
}

/// The terminal or file of a console.
pub(super) struct ConsoleScreen {
    pub(super) view: Box<dyn ConsoleView>,
    pub(super) quiet: bool,
    pub(super) color: bool,
    /// `None` unless the lines are read by GitHub Actions.
    pub(super) github: Option<GithubGroup>,
    /// Set while there is a live area.
    pub(super) terminal: Option<fn() -> TerminalSize>,
    pub(super) started: Instant,
    /// What had passed of the run before `started`.
    pub(super) elapsed_before: Duration,
    pub(super) sink: Box<dyn Write + Send>,
    /// The columns of each line of the area that is on the terminal.
    pub(super) drawn: Vec<usize>,
    /// Whether something changed after the last draw.
    pub(super) is_stale: bool,
    pub(super) last_draw: Option<Instant>,
    /// Wakes the thread that draws; `None` without one.
    pub(super) redraw_due: Option<Sender<()>>,
    /// Set when the process goes on after a stop: the shell has written below the area.
    pub(super) was_stopped: Arc<AtomicBool>,
    /// How many prompts have the terminal now; until they end, lines are held and no area is drawn.
    pub(super) prompts: u32,
    pub(super) held: String,
}

impl ConsoleScreen {
    fn elapsed(&self) -> Duration {
        self.elapsed_before + self.started.elapsed()
    }

    pub(super) fn on_event(&mut self, event: &Event) {
        let lines = self.view.apply(event, self.elapsed());
        if is_frequent(event) {
            return self.redraw_soon();
        }
        if let Some(open) = self.github {
            return self.write_for_github(event, lines, open);
        }
        self.write_lines(&lines);
    }

    /// Has the area drawn, but not more often than once in a frame.
    fn redraw_soon(&mut self) {
        if self.last_draw.is_none_or(|last| FRAME <= last.elapsed()) {
            return self.redraw();
        }
        if !self.is_stale {
            self.is_stale = true;
            let _ = self.redraw_due.as_ref().map(|due| due.send(()));
        }
    }

    /// How long the area stays as it is if nothing happens.
    pub(super) fn until_next_draw(&self) -> Duration {
        let interval = if self.is_stale { FRAME } else { TICK };
        let elapsed = self.last_draw.map(|last| last.elapsed());
        interval.saturating_sub(elapsed.unwrap_or_default())
    }

    /// Draws the area as it is now.
    pub(super) fn redraw(&mut self) {
        self.write("");
    }

    /// Erases the area until `resume`.
    pub(super) fn suspend(&mut self) {
        self.prompts += 1;
        self.write_below("", &[]);
    }

    /// Writes what was held, and draws the area again.
    pub(super) fn resume(&mut self) {
        self.prompts = self.prompts.saturating_sub(1);
        self.redraw();
    }

    /// Erases the area for good, and writes what was held.
    pub(super) fn end_live_area(&mut self) {
        let left = self.view.finish();
        self.held += &self.styled(&left);
        let held = std::mem::take(&mut self.held);
        self.write_below(&held, &[]);
        self.terminal = None;
    }

    /// Writes the lines of an event between the commands of GitHub Actions.
    fn write_for_github(&mut self, event: &Event, lines: Vec<EventText>, group: GithubGroup) {
        let begins = github::group(event).filter(|_| !self.quiet);
        if group == GithubGroup::Open && (begins.is_some() || github::ends_group(event)) {
            self.write("::endgroup::\n");
            self.github = Some(GithubGroup::Closed);
        }
        if let Some(command) = begins {
            self.github = Some(GithubGroup::Open);
            return self.write(&format!("{command}\n"));
        }
        let lines: Vec<EventText> = lines
            .into_iter()
            .map(|lines| EventText {
                text: github::without_commands(&lines.text),
                ..lines
            })
            .collect();
        self.write_lines(&lines);
        self.write(&github::annotations(event));
    }

    /// Writes the lines that are wanted, and draws the area.
    fn write_lines(&mut self, lines: &[EventText]) {
        let text = self.styled(lines);
        self.write(&text);
    }

    /// The lines that are wanted, with their colours.
    fn styled(&self, lines: &[EventText]) -> String {
        let wanted = lines
            .iter()
            .filter(|lines| !self.quiet || lines.tone.is_loud());
        let styled = wanted.map(|lines| {
            let text = lines.text.trim_end();
            match self.color {
                true => {
                    let style = style_of(lines.tone);
                    format!("{style}{text}{style:#}\n")
                }
                false => format!("{text}\n"),
            }
        });
        styled.collect()
    }

    fn write(&mut self, lines: &str) {
        self.held += lines;
        if 0 < self.prompts {
            return;
        }
        let lines = std::mem::take(&mut self.held);
        let area = match self.terminal {
            Some(size) => self.area(size()),
            None => Vec::new(),
        };
        self.write_below(&lines, &area);
    }

    /// The lines of the area, cut to the terminal. The last row stays free.
    fn area(&self, size: TerminalSize) -> Vec<String> {
        let space = TerminalSize {
            columns: size.columns.saturating_sub(FREE_COLUMNS),
            rows: size.rows.saturating_sub(1).max(1),
        };
        let lines = self.view.live(self.elapsed(), space);
        let fitting_lines = lines
            .iter()
            .map(|line| cut_to(line, usize::from(space.columns)));
        fitting_lines.filter(|line| !line.is_empty()).collect()
    }

    /// Replaces the area by `lines` and another area, in one write.
    fn write_below(&mut self, lines: &str, area: &[String]) {
        (self.last_draw, self.is_stale) = (Some(Instant::now()), false);
        if self.was_stopped.swap(false, Ordering::Relaxed) && !self.drawn.is_empty() {
            // What is above the cursor is not the area any more.
            self.drawn = vec![0];
        }
        let bytes = [&self.erase(), lines, &area.join("\n")].concat();
        self.drawn = area.iter().map(|line| columns(line)).collect();
        if !bytes.is_empty() {
            let _ = self.sink.write_all(bytes.as_bytes());
            let _ = self.sink.flush();
        }
    }

    /// Erases the area that is drawn, and leaves the cursor where it began.
    fn erase(&self) -> String {
        let size = self.terminal.map(|size| size());
        match rows_of(&self.drawn, size) {
            0 => String::new(),
            1 => ERASE_LINE.to_owned(),
            rows => format!("\r\x1b[{}A\x1b[J", rows - 1),
        }
    }
}

fn style_of(tone: Tone) -> Style {
    match tone {
        Tone::Progress => Style::new(),
        Tone::Good => AnsiColor::Green.on_default(),
        Tone::Bad | Tone::Error => AnsiColor::Red.on_default(),
        Tone::Warning => AnsiColor::Yellow.on_default(),
    }
}

/// Whether an event may come hundreds of times a second. It has no line.
fn is_frequent(event: &Event) -> bool {
    matches!(
        event,
        Event::TextStreamed { .. } | Event::CheckPrinted { .. }
    )
}

/// The rows that drawn lines take at the present size: terminals wrap lines that a resize has made too long.
fn rows_of(drawn: &[usize], size: Option<TerminalSize>) -> usize {
    let Some(size) = size.filter(|size| 0 < size.columns) else {
        return drawn.len();
    };
    let rows_of_line = |columns: &usize| columns.div_ceil(usize::from(size.columns)).max(1);
    let rows: usize = drawn.iter().map(rows_of_line).sum();
    rows.min(usize::from(size.rows).max(1))
}

/// A text in at most `limit` columns, with dots where its end is missing.
fn cut_to(text: &str, limit: usize) -> String {
    match columns(text) <= limit || limit < MIN_DOTTED {
        true => fitting(text, limit).to_owned(),
        false => format!("{}...", fitting(text, limit - 3).trim_end()),
    }
}

/// The beginning of a text that fits `limit` columns.
fn fitting(text: &str, limit: usize) -> &str {
    let mut taken = 0;
    for (at, character) in text.char_indices() {
        taken += width(character);
        if limit < taken {
            return &text[..at];
        }
    }
    text
}

/// The columns that a text takes at most.
pub(super) fn columns(text: &str) -> usize {
    text.chars().map(width).sum()
}

/// Characters that are not ASCII count as two columns, which they may be.
fn width(character: char) -> usize {
    if character.is_ascii() { 1 } else { 2 }
}
