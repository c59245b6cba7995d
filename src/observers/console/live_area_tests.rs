//! The live area of a workflow on a terminal: events in, what the screen shows.

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::Receiver;

use super::TerminalSize;
use super::tests::{Fixture, columns};
use super::workflow_tests::*;
use crate::events::Event;

/// A terminal that wraps long lines again when its width changes.
struct Screen {
    rows: Vec<String>,
    cursor: usize,
}

impl Screen {
    fn new() -> Screen {
        Screen {
            rows: vec![String::new()],
            cursor: 0,
        }
    }

    /// Applies what was written and returns what the terminal shows.
    fn after(&mut self, written: &Receiver<String>) -> String {
        for bytes in written.try_iter() {
            self.apply(&bytes);
        }
        self.rows.join("\n")
    }

    fn apply(&mut self, mut bytes: &str) {
        while let Some(first) = bytes.chars().next() {
            let Some(sequence) = bytes.strip_prefix("\x1b[") else {
                self.put(first);
                bytes = &bytes[first.len_utf8()..];
                continue;
            };
            let end = sequence.find(|c: char| c.is_ascii_alphabetic()).unwrap();
            match &sequence[end..=end] {
                "A" => self.cursor -= sequence[..end].parse::<usize>().unwrap(),
                "J" => self.rows.truncate(self.cursor + 1),
                "K" => {}
                other => panic!("unexpected sequence {other}"),
            }
            self.rows[self.cursor].clear();
            bytes = &sequence[end + 1..];
        }
    }

    fn put(&mut self, character: char) {
        match character {
            '\n' => {
                self.cursor += 1;
                assert_eq!(self.cursor, self.rows.len(), "a line is in the way");
                self.rows.push(String::new());
            }
            // A sequence that erases follows it.
            '\r' => {}
            _ => self.rows[self.cursor].push(character),
        }
    }

    fn resize(&mut self, columns: usize) {
        let wrap = |row: &String| {
            let characters: Vec<char> = row.chars().collect();
            let rows = characters.chunks(columns).map(|row| row.iter().collect());
            if row.is_empty() {
                vec![String::new()]
            } else {
                rows.collect::<Vec<String>>()
            }
        };
        self.rows = self.rows.iter().flat_map(wrap).collect();
        self.cursor = self.rows.len() - 1;
    }
}

/// Emits an event and returns the whole screen.
fn shown(fixture: &mut Fixture, screen: &mut Screen, event: Event) -> String {
    fixture.bus.emit(&event);
    screen.after(&fixture.written)
}

#[test]
fn every_agent_in_a_state_has_a_live_line() {
    let mut fixture = fixture(false, Some(columns::<80>));
    let mut screen = Screen::new();
    let mut after = |event| shown(&mut fixture, &mut screen, event);
    let start =
        "[run] run r1 started: flow/START.md, anthropic claude-x\n[main] state START (markdown)\n";
    after(started("claude-x"));
    assert_eq!(
        after(entered("main", "START.md", "markdown")),
        format!("{start}[main] START, 0 s")
    );
    let live = "[main] START, waiting for the first token, 0 s";
    assert_eq!(
        after(requested("main", 0, None, "Go.")),
        format!("{start}{live}")
    );
    let both = format!("{start}[main_w1] state W (script)\n");
    let worker = "[main_w1] W, 0 s, running the script";
    assert_eq!(
        after(entered("main_w1", "W.sh", "script")),
        format!("{both}{live}\n{worker}")
    );
    let lines = format!("{both}[main] the model answered (1.2 s, $0.2500)\n");
    let live = "[main] START, 0 s, $0.2500 spent";
    assert_eq!(
        after(answered("main", Some(0.25))),
        format!("{lines}{live}\n{worker}")
    );
    let lines = format!("{lines}[main] bash: echo a\n");
    let live = "[main] START, 0 s, bash: echo a, $0.2500 spent";
    assert_eq!(
        after(called("main", "echo a")),
        format!("{lines}{live}\n{worker}")
    );
    let lines = format!("{lines}[main] failed: no tag\n");
    assert_eq!(
        after(failed("main", "no tag")),
        format!("{lines}{worker}, $0.2500 spent")
    );
    let lines = format!("{lines}[main_w1] ends\n");
    assert_eq!(after(ended("main_w1", "")), lines);
}

#[test]
fn the_area_has_at_most_eight_agents_and_fits_the_height() {
    let live = |agents: usize, terminal: fn() -> TerminalSize| {
        let mut fixture = fixture(false, Some(terminal));
        for agent in 1..=agents {
            let event = entered(&format!("main_w{agent}"), "W.sh", "script");
            fixture.bus.emit(&event);
        }
        let shown = Screen::new().after(&fixture.written);
        shown
            .lines()
            .skip(agents)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(live(8, columns::<80>).len(), 8);
    let nine = live(9, columns::<80>);
    assert_eq!((nine.len(), nine[8].as_str()), (9, "and 1 more agent"));
    assert_eq!(live(12, columns::<80>)[8], "and 4 more agents");
    let low = || TerminalSize {
        columns: 80,
        rows: 4,
    };
    assert_eq!(live(3, low).len(), 3);
    assert_eq!(live(5, low)[2], "and 3 more agents");
    let lowest = || TerminalSize {
        columns: 80,
        rows: 1,
    };
    assert_eq!(live(2, lowest), ["and 2 more agents"]);
}

#[test]
fn live_lines_are_erased_also_after_the_terminal_was_made_narrower() {
    static COLUMNS: AtomicU16 = AtomicU16::new(80);
    let size = || TerminalSize {
        columns: COLUMNS.load(Ordering::Relaxed),
        rows: 24,
    };
    let mut fixture = fixture(false, Some(size));
    let mut screen = Screen::new();
    for agent in ["main", "main_w1"] {
        shown(&mut fixture, &mut screen, entered(agent, "W.sh", "script"));
    }
    COLUMNS.store(20, Ordering::Relaxed);
    screen.resize(20);
    let written = "[main] state W (scri\npt)\n[main_w1] state W (s\ncript)\n";
    let narrow = format!("{written}[main] x\n[main] W, 0 s, ru\n[main_w1] W, 0 s,");
    assert_eq!(shown(&mut fixture, &mut screen, print("main", "x")), narrow);
    COLUMNS.store(80, Ordering::Relaxed);
    let Fixture {
        console,
        written: receiver,
        ..
    } = fixture;
    console.finish();
    assert_eq!(screen.after(&receiver), format!("{written}[main] x\n"));
}

#[test]
fn the_area_is_replaced_in_one_write() {
    let mut fixture = fixture(false, Some(columns::<80>));
    for agent in ["main", "main_w1"] {
        fixture.bus.emit(&entered(agent, "W.sh", "script"));
    }
    fixture.written.try_iter().for_each(drop);
    fixture.bus.emit(&print("main", "x"));
    let writes: Vec<String> = fixture.written.try_iter().collect();
    assert_eq!(writes.len(), 1, "{writes:?}");
    assert!(
        writes[0].starts_with("\r\x1b[1A\x1b[J[main] x\n[main] W, "),
        "{writes:?}"
    );
}

#[test]
fn a_prompt_has_the_terminal_for_itself() {
    let mut fixture = fixture(false, Some(columns::<80>));
    let mut screen = Screen::new();
    let lines = "[main] state W (script)\n";
    let live = "[main] W, 0 s, running the script";
    assert_eq!(
        shown(&mut fixture, &mut screen, entered("main", "W.sh", "script")),
        format!("{lines}{live}")
    );
    let (first, second) = (
        fixture.console.handle().suspend(),
        fixture.console.handle().suspend(),
    );
    assert_eq!(screen.after(&fixture.written), lines);
    assert_eq!(shown(&mut fixture, &mut screen, print("main", "x")), lines);
    drop(first);
    assert_eq!(screen.after(&fixture.written), lines);
    drop(second);
    assert_eq!(
        screen.after(&fixture.written),
        format!("{lines}[main] x\n{live}")
    );
}

#[test]
fn lines_are_not_lost_if_the_run_ends_during_a_prompt() {
    let mut fixture = fixture(false, Some(columns::<80>));
    let prompt = fixture.console.handle().suspend();
    fixture.bus.emit(&print("main", "x"));
    fixture.console.finish();
    drop(prompt);
    assert_eq!(fixture.written.try_iter().collect::<String>(), "[main] x\n");
}

#[test]
fn an_interrupt_leaves_no_live_line() {
    let mut fixture = fixture(false, Some(columns::<80>));
    let interrupted = Event::WorkflowInterrupted {
        workflow_id: "r1".into(),
        reason: "interrupted".into(),
        message: "by SIGINT".into(),
    };
    let mut screen = Screen::new();
    shown(&mut fixture, &mut screen, entered("main", "W.sh", "script"));
    let lines = "[main] state W (script)\n[run] interrupted after 0.0 s (interrupted): by SIGINT\n";
    assert_eq!(shown(&mut fixture, &mut screen, interrupted), lines);
}
