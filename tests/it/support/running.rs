//! The running binary and its result: signals, both output streams, and waits with a deadline.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::project::tree;

const DEADLINE: Duration = Duration::from_secs(180);
const STEP: Duration = Duration::from_millis(5);

/// Waits until the condition holds; fails after the deadline.
pub(crate) fn until(what: &str, condition: impl FnMut() -> bool) {
    assert!(
        holds_within(Duration::from_secs(120), condition),
        "waited in vain until {what}"
    );
}

fn holds_within(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    while !condition() {
        if end < Instant::now() {
            return false;
        }
        thread::sleep(STEP);
    }
    true
}

/// A started process; it is killed when it is dropped.
pub(crate) struct Running {
    child: Child,
    command: String,
    root: PathBuf,
    stdout: Stream,
    stderr: Stream,
}

impl Running {
    /// Starts a command; streams that are pipes are read by threads.
    pub(crate) fn start(mut command: Command, root: PathBuf) -> Running {
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdout = Stream::read(child.stdout.take());
        let stderr = Stream::read(child.stderr.take());
        let words = std::iter::once(command.get_program()).chain(command.get_args());
        let command = words
            .map(|word| word.to_string_lossy().into_owned())
            .collect::<Vec<_>>()
            .join(" ");
        Running {
            child,
            command,
            root,
            stdout,
            stderr,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process itself.
    pub(crate) fn signal(&self, signal: Signal) -> &Running {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self
    }

    /// Waits until the condition holds; fails with the whole output if the process ends first.
    pub(crate) fn until(&mut self, what: &str, condition: impl FnMut() -> bool) {
        self.until_within(DEADLINE, what, condition);
    }

    /// The same with another deadline.
    pub(crate) fn until_within(
        &mut self,
        limit: Duration,
        what: &str,
        mut condition: impl FnMut() -> bool,
    ) {
        let mut ended = None;
        let held = holds_within(limit, || {
            condition() || {
                ended = self.child.try_wait().unwrap();
                ended.is_some()
            }
        });
        // The last action of the process may have made it true.
        if !held || (ended.is_some() && !condition()) {
            let _ = self.child.kill();
            let status = self.child.wait().unwrap();
            panic!(
                "waited in vain until {what}\n{}",
                self.end(status).transcript()
            );
        }
    }

    /// Waits until standard error contains the text.
    pub(crate) fn until_stderr_has(&mut self, text: &str) {
        let stderr = self.stderr.text.clone();
        self.until(&format!("it says {text:?}"), || {
            String::from_utf8_lossy(&stderr.lock().unwrap()).contains(text)
        });
    }

    /// Standard error so far.
    pub(crate) fn stderr_so_far(&self) -> String {
        String::from_utf8_lossy(&self.stderr.text.lock().unwrap()).into_owned()
    }

    /// Waits for the end.
    pub(crate) fn wait(mut self) -> Ran {
        let mut status = None;
        holds_within(DEADLINE, || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        match status {
            Some(status) => self.end(status),
            None => {
                let _ = self.child.kill();
                let status = self.child.wait().unwrap();
                panic!(
                    "it did not end within {DEADLINE:?}\n{}",
                    self.end(status).transcript()
                );
            }
        }
    }

    fn end(&mut self, status: ExitStatus) -> Ran {
        Ran {
            command: self.command.clone(),
            code: status.code(),
            signal: status.signal(),
            stdout: self.stdout.whole("standard output"),
            stderr: self.stderr.whole("standard error"),
            root: self.root.clone(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|status| status.is_none()) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// One stream, read by a thread.
struct Stream {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Option<JoinHandle<()>>,
}

impl Stream {
    fn read(source: Option<impl Read + Send + 'static>) -> Stream {
        let text: Arc<Mutex<Vec<u8>>> = Arc::default();
        let sink = text.clone();
        let reader = source.map(|mut source| {
            thread::spawn(move || {
                let mut piece = [0; 8192];
                while let Ok(read @ 1..) = source.read(&mut piece) {
                    sink.lock().unwrap().extend_from_slice(&piece[..read]);
                }
            })
        });
        Stream { text, reader }
    }

    /// The whole stream; a process that still holds it open after the end should be gone.
    fn whole(&mut self, name: &str) -> String {
        let Some(reader) = self.reader.take() else {
            return String::new();
        };
        let closed = holds_within(Duration::from_secs(10), || reader.is_finished());
        let text = String::from_utf8_lossy(&self.text.lock().unwrap()).into_owned();
        assert!(
            closed,
            "the process is gone, and something still holds its {name}; so far:\n{text}"
        );
        text
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub command: String,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    root: PathBuf,
}

impl Ran {
    /// Asserts the exit code.
    pub(crate) fn exits(self, code: i32) -> Ran {
        assert!(
            self.code == Some(code),
            "expected exit {code}\n{}",
            self.transcript()
        );
        self
    }

    /// Asserts that standard error contains the text.
    pub(crate) fn says(self, text: &str) -> Ran {
        assert!(
            self.stderr.contains(text),
            "standard error does not say {text:?}\n{}",
            self.transcript()
        );
        self
    }

    /// Asserts that standard output contains the text.
    pub(crate) fn says_on_stdout(self, text: &str) -> Ran {
        assert!(
            self.stdout.contains(text),
            "standard output does not say {text:?}\n{}",
            self.transcript()
        );
        self
    }

    /// The object that `--json` printed: exactly one, with every field, and with the right exit code.
    pub(crate) fn result(&self) -> Value {
        let mut objects = serde_json::Deserializer::from_str(&self.stdout).into_iter::<Value>();
        let (Some(Ok(result)), None) = (objects.next(), objects.next()) else {
            panic!(
                "standard output is not one JSON object\n{}",
                self.transcript()
            );
        };
        let fields = [
            "outcome",
            "exit_code",
            "reason",
            "run_id",
            "retry_count",
            "usage",
            "message",
            "notes",
            "next",
        ];
        for field in fields {
            assert!(
                result.get(field).is_some(),
                "no {field} in the result\n{}",
                self.transcript()
            );
        }
        assert_eq!(
            result["exit_code"].as_i64(),
            self.code.map(i64::from),
            "{}",
            self.transcript()
        );
        result
    }

    /// The result's outcome and reason.
    pub(crate) fn outcome_and_reason(&self) -> (String, String) {
        let result = self.result();
        let text = |field: &str| result[field].as_str().unwrap_or_default().to_owned();
        (text("outcome"), text("reason"))
    }

    /// The command, its result, both streams and the tree of the root.
    pub(crate) fn transcript(&self) -> String {
        let end = match (self.code, self.signal) {
            (Some(code), _) => format!("exit {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        let Ran {
            command,
            stdout,
            stderr,
            ..
        } = self;
        format!(
            "$ {command}\n{end}\n--- stdout\n{stdout}\n--- stderr\n{stderr}\n--- tree\n{}",
            tree(&self.root)
        )
    }
}

mod tests {
    use super::*;
    use crate::support::project::{Project, processes};

    #[test]
    fn a_process_is_observed_signalled_and_awaited() {
        let project = Project::new();
        let line = format!("echo out; echo ready >&2; exec sleep {}", project.marker());
        let mut running = Running::start(project.command("sh", &["-c", &line]), project.root());
        running.until_stderr_has("ready");
        until("it sleeps", || {
            processes(&[project.marker()]).contains(&running.id())
        });
        running.signal(Signal::TERM);
        let ran = running.wait();
        assert_eq!(
            (ran.code, ran.signal, ran.stdout.as_str()),
            (None, Some(15), "out\n")
        );
        project.nothing_left();
    }

    #[test]
    #[should_panic(
        expected = "waited in vain until pigs fly\n$ sh -c echo so-far\nexit 0\n--- stdout\nso-far"
    )]
    fn a_process_that_ends_too_early_is_reported() {
        let project = Project::new();
        let mut running = Running::start(
            project.command("sh", &["-c", "echo so-far"]),
            project.root(),
        );
        running.until("pigs fly", || false);
    }

    #[test]
    #[should_panic(expected = "the key is in root/leak")]
    fn a_key_in_a_file_is_found() {
        Project::new()
            .file("leak", format!("x{}", crate::support::project::OPENAI_KEY))
            .nothing_left();
    }
}
