//! Kills the binary, or fails its calls, at the n-th call that changes the disk, counted over all threads.
//!
//! `fault_tracer.c` does it. Skipped without a C compiler or where tracing is not allowed.

use std::fs;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use crate::support::needs;
use crate::support::project::Project;
use crate::support::running::{Ran, Running};

/// What happens at a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallFault {
    Kill,
    /// The call fails with this errno.
    Error(i32),
}

/// The calls that are disturbed: those with these numbers, from 1, of the calls with these names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Disturbance<'a> {
    pub calls: &'a str,
    pub fault: CallFault,
    pub first: u32,
    pub last: u32,
}

impl Disturbance<'_> {
    /// SIGKILL before one call.
    pub(crate) fn kill(calls: &str, number: u32) -> Disturbance<'_> {
        Disturbance {
            calls,
            fault: CallFault::Kill,
            first: number,
            last: number,
        }
    }

    /// The words of the tracer before the program that it traces.
    pub(crate) fn words(&self, tracer: &str, report: &str) -> Vec<String> {
        let fault = match self.fault {
            CallFault::Kill => "kill".to_owned(),
            CallFault::Error(errno) => errno.to_string(),
        };
        let (first, last) = (self.first.to_string(), self.last.to_string());
        [tracer, report, self.calls, &fault, &first, &last]
            .map(str::to_owned)
            .to_vec()
    }
}

/// The end of a run that was traced.
pub(crate) struct Traced {
    pub ran: Ran,
    /// The first call that was disturbed, if the run got that far.
    pub hit: Option<String>,
}

/// The tracer, compiled once; `None` where it does not work.
pub(crate) fn tracer() -> Option<&'static str> {
    static PROGRAM: OnceLock<Option<String>> = OnceLock::new();
    let made = PROGRAM.get_or_init(|| {
        let folder = env!("CARGO_TARGET_TMPDIR");
        let path = format!("{folder}/fault-tracer-{}", std::process::id());
        let source = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/support/fault_tracer.c"
        );
        let mut compiler = Command::new("cc");
        compiler
            .args(["-O1", "-o", &path, source])
            .stderr(Stdio::null());
        let is_compiled = compiler.status().is_ok_and(|status| status.success());
        let probe = ["/dev/null", "write", "kill", "1", "0", "/bin/true"];
        let works = || {
            let mut probe = Command::new(&path).args(probe).spawn().ok()?;
            probe.wait().ok().filter(|status| status.success())
        };
        (is_compiled && works().is_some()).then_some(path)
    });
    if made.is_none() {
        needs::skip("fault_tracer.c cannot be compiled, or processes cannot be traced here");
    }
    made.as_deref()
}

/// Runs the binary with the disturbance.
pub(crate) fn disturbed(
    project: &Project,
    tracer: &str,
    disturbance: &Disturbance<'_>,
    arguments: &[&str],
) -> Traced {
    let report = project.outside("disturbed");
    let mut words = disturbance.words(tracer, &report.display().to_string());
    words.push(project.binary());
    words.extend(arguments.iter().map(|&argument| argument.to_owned()));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let ran = Running::start(project.command(words[0], &words[1..]), project.root()).wait();
    assert!(
        !ran.stderr.contains("fault_tracer: "),
        "{}",
        ran.transcript()
    );
    let report = fs::read_to_string(report).unwrap();
    let hit = report
        .trim()
        .split_once(' ')
        .map(|(_, name)| name.to_owned());
    Traced { ran, hit }
}
