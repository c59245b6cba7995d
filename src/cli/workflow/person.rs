//! Asks the person at the terminal: one question at a time, the console silent meanwhile.

use std::io::{IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cancel::{CancelToken, WakeReason};
use crate::cli::run_config::OutputSettings;
use crate::observers::console::{Console, ConsoleHandle};
use crate::text::invisible::printable;
use crate::text::shorten::cut_chars;
use crate::workflow::{OpenQuestion, Person};

/// Bytes of an answer that are read at once.
const READ_SIZE: usize = 4096;
/// Characters of a question in the prompt.
const SHOWN: usize = 40;

/// The person at the terminal; `None` where questions are not asked there.
pub(super) fn at_terminal(
    output: &OutputSettings,
    console: &Console,
    cancel: &CancelToken,
) -> Option<Arc<dyn Person>> {
    let is_there = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let is_wanted = !output.quiet && !output.json;
    let person = || TerminalPerson {
        console: console.handle(),
        cancel: cancel.clone(),
        turn: Mutex::new(()),
    };
    (is_there && is_wanted).then(|| Arc::new(person()) as Arc<dyn Person>)
}

struct TerminalPerson {
    console: ConsoleHandle,
    cancel: CancelToken,
    /// Held while a question is open.
    turn: Mutex<()>,
}

impl Person for TerminalPerson {
    fn ask(&self, question: &OpenQuestion) -> Option<String> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let _silence = self.console.suspend();
        let text = prompt(question);
        let mut stderr = std::io::stderr().lock();
        stderr
            .write_all(text.as_bytes())
            .and_then(|()| stderr.flush())
            .ok()?;
        drop(stderr);
        self.read_line()
    }
}

/// What is shown before the answer is typed: the question, in short where the console has shown it.
fn prompt(question: &OpenQuestion) -> String {
    let agent = printable(&question.agent_id);
    if question.is_old {
        let lines = question.text.lines();
        let lines = lines.map(|line| format!("[{agent}] {}\n", printable(line)));
        return format!("{}[{agent}] answer> ", lines.collect::<String>());
    }
    let first = question.text.lines().next().unwrap_or_default();
    let short = cut_chars(&printable(first), SHOWN, "...");
    format!("[{agent}] answer to \"{short}\"> ")
}

impl TerminalPerson {
    /// A line of the terminal; none at its end, and once the run is to end.
    fn read_line(&self) -> Option<String> {
        let stdin = std::io::stdin();
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            let woken = self.cancel.wait(Some(stdin.as_fd()), None).ok()?;
            if woken != WakeReason::Ready {
                return None;
            }
            let mut bytes = [0; READ_SIZE];
            match rustix::io::read(stdin.as_fd(), &mut bytes) {
                Ok(0) | Err(_) => return None,
                Ok(count) => line.extend_from_slice(&bytes[..count]),
            }
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        Some(text.trim_end_matches(['\n', '\r']).to_owned())
    }
}
