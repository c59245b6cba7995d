//! What a fleet shows while it runs: one line that is redrawn at a terminal, else a line for each entry that ends.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use crate::cli::env::CliEnv;
use crate::cli::fleet::variables::named_entry;
use crate::fleet::driver::{DriverEvent, DriverProgress};
use crate::fleet::plan::FleetEntry;
use crate::fleet::task_result::{TaskOutcome, TaskResult};
use crate::observers::console::stderr_columns;
use crate::text::invisible::printable;
use crate::text::shorten::cut_chars;

/// How often the line is redrawn at the most.
const REDRAW: Duration = Duration::from_millis(100);

/// The lines of a fleet on stderr.
pub(super) struct FleetConsole {
    quiet: bool,
    has_line: bool,
    /// Whether there is a line to be erased.
    is_drawn: bool,
    last_draw: Option<Instant>,
    /// When a progress that was not drawn can be.
    next_draw: Option<Instant>,
    started: Instant,
    /// Notes, for the result.
    pub notes: Vec<String>,
}

impl FleetConsole {
    pub(super) fn new(quiet: bool, env: &CliEnv) -> FleetConsole {
        FleetConsole {
            quiet,
            has_line: !quiet && std::io::stderr().is_terminal() && !env.has_dumb_terminal(),
            is_drawn: false,
            last_draw: None,
            next_draw: None,
            started: Instant::now(),
            notes: Vec::new(),
        }
    }

    pub(super) fn show(&mut self, event: DriverEvent<'_>) {
        match event {
            DriverEvent::Note(text) => self.note(text),
            DriverEvent::Ended { entry, result } => {
                let is_failure =
                    matches!(result.outcome, TaskOutcome::Failed | TaskOutcome::Refused);
                if is_failure || !(self.quiet || self.has_line) {
                    self.line(&ended_line(entry, result));
                }
            }
            DriverEvent::Progress(progress) => self.draw(&progress),
        }
    }

    /// A line that is part of the result, too.
    pub(super) fn note(&mut self, text: String) {
        if !self.quiet {
            self.line(&text);
        }
        self.notes.push(text);
    }

    fn line(&mut self, text: &str) {
        self.erase();
        let _ = writeln!(std::io::stderr().lock(), "{}", printable(text));
    }

    /// Erases the line.
    pub(super) fn erase(&mut self) {
        if std::mem::take(&mut self.is_drawn) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }

    /// When a progress that came too soon after another one can be drawn.
    pub(super) fn next_draw(&self) -> Option<Instant> {
        self.next_draw
    }

    fn draw(&mut self, progress: &DriverProgress) {
        if !self.has_line {
            return;
        }
        let now = Instant::now();
        self.next_draw = self
            .last_draw
            .map(|last| last + REDRAW)
            .filter(|due| now < *due);
        if self.next_draw.is_some() {
            return;
        }
        self.last_draw = Some(now);
        let text = progress_line(progress, self.started.elapsed());
        // One column less: a full line would wrap.
        let text = cut_chars(&text, stderr_columns().saturating_sub(1), "…");
        let mut stderr = std::io::stderr().lock();
        let _ = write!(stderr, "\r\x1b[K{text}").and_then(|()| stderr.flush());
        self.is_drawn = true;
    }
}

/// `fleet 137/200  120 ok  9 failed  2 paused  6 running  $3.42 of $20.00  about 12 min left`.
fn progress_line(progress: &DriverProgress, elapsed: Duration) -> String {
    let mut parts = vec![format!("fleet {}/{}", progress.ended, progress.entries)];
    let counts = [
        (progress.succeeded, "ok"),
        (progress.failed, "failed"),
        (progress.paused, "paused"),
        (progress.running, "running"),
        (progress.pending, "queued"),
    ];
    let counts = counts.iter().filter(|(count, _)| 0 < *count);
    parts.extend(counts.map(|(count, word)| format!("{count} {word}")));
    let reserved = progress.reserved.usd();
    match progress.budget {
        Some(budget) => parts.push(format!("${reserved:.2} of ${:.2}", budget.usd())),
        None if 0.0 < reserved => parts.push(format!("${reserved:.2}")),
        None => {}
    }
    parts.extend(time_left(progress, elapsed));
    parts.join("  ")
}

/// By the time that the entries took which ended since the command began.
fn time_left(progress: &DriverProgress, elapsed: Duration) -> Option<String> {
    let left = progress.entries.saturating_sub(progress.ended);
    if progress.ended_now == 0 || left == 0 {
        return None;
    }
    let seconds = elapsed.as_secs_f64() / progress.ended_now as f64 * left as f64;
    Some(match seconds {
        seconds if seconds < 90.0 => format!("about {seconds:.0} s left"),
        seconds if seconds < 5400.0 => format!("about {:.0} min left", seconds / 60.0),
        seconds => format!("about {:.1} h left", seconds / 3600.0),
    })
}

/// `NAME model=small  FAILED (stuck): message`.
fn ended_line(entry: &FleetEntry, result: &TaskResult) -> String {
    let word = result.outcome.word();
    let cost = match result.usage.cost_usd {
        Some(usd) if 0.0 < usd => format!("  ${usd:.4}"),
        _ => String::new(),
    };
    let message = cut_chars(result.first_line(), 300, "…");
    let name = named_entry(&entry.name, &entry.variables);
    let reason = &result.reason;
    format!("{name}  {word} ({reason}): {message}{cost}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::ledger::Micros;

    #[test]
    fn the_line_has_counts_money_and_time() {
        let progress = DriverProgress {
            entries: 200,
            ended: 137,
            ended_now: 137,
            succeeded: 120,
            failed: 9,
            paused: 2,
            running: 6,
            pending: 0,
            reserved: Micros(3_420_000),
            budget: Some(Micros(20_000_000)),
        };
        let elapsed = Duration::from_secs(1566);
        assert_eq!(
            progress_line(&progress, elapsed),
            "fleet 137/200  120 ok  9 failed  2 paused  6 running  $3.42 of $20.00  about 12 min left"
        );
        assert_eq!(
            progress_line(&DriverProgress::default(), elapsed),
            "fleet 0/0"
        );
    }
}
