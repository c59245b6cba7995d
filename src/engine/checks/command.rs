//! A check that runs a program in the workspace and judges it by exit code and evidence.

use std::ffi::OsStr;
use std::rc::Rc;

use crate::engine::checks::refusals::{refusals, too_large};
use crate::engine::checks::{CANNOT_START, Output, TIMED_OUT, Tool, ToolResult, evidence, text};
use crate::engine::spec::Check;
use crate::engine::surroundings::Surroundings;
use crate::error::Result;
use crate::process::capture::Captured;
use crate::process::environment::{Places, for_check};
use crate::process::program::Lookup;
use crate::process::{self, Ended, Finished, Job, Launcher};

const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;

/// A check of the spec as a tool.
pub struct CommandCheck {
    pub check: Check,
    pub surroundings: Rc<Surroundings>,
}

impl Tool for CommandCheck {
    fn name(&self) -> &str {
        &self.check.name
    }

    fn run(&mut self) -> Result<ToolResult> {
        let around = &self.surroundings;
        let (tmp, home) = around.dwelling.renew()?;
        let launcher = self.launcher();
        let places = Places {
            workspace: &around.workspace,
            tmp: &tmp,
            home: &home,
            cache: around.cache.as_deref().filter(|_| !self.check.hidden),
            network: around.network,
            walls: launcher.walls.as_ref(),
        };
        let env = for_check(&around.base, &places, &self.check.env);
        let variables = env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        let job = Job {
            command: self.check.command.iter().map(Into::into).collect(),
            cwd: around.workspace.clone(),
            env,
            timeout: self.check.timeout,
        };
        let finished = process::run(&launcher, &job, &around.stop)?;
        Ok(self.judge(finished, variables))
    }
}

impl CommandCheck {
    /// Returns why the program of this check cannot start, where that can be seen from outside the sandbox.
    fn missing(&self) -> Option<String> {
        let Surroundings { launcher, base, workspace, .. } = &*self.surroundings;
        let program = self.check.command.first()?;
        let path = self.check.env.get("PATH").map_or(base.path(), OsStr::new);
        let lookup = Lookup { path, workspace, walls: launcher.walls.as_ref() };
        lookup.missing(program).map(|missing| format!("{program}: {missing}"))
    }

    /// Returns the launcher of this check: nothing of what earlier rounds left is open to a hidden one.
    fn launcher(&self) -> Launcher {
        let Surroundings { launcher, cache, .. } = &*self.surroundings;
        match launcher.walls.clone().filter(|_| self.check.hidden) {
            None => launcher.clone(),
            Some(mut walls) => {
                walls.write.retain(|place| cache.as_ref() != Some(place));
                launcher.behind(walls)
            }
        }
    }

    fn judge(&self, finished: Finished, variables: Vec<String>) -> ToolResult {
        let (stdout, stderr) = (self.output(&finished.stdout), self.output(&finished.stderr));
        let summary = evidence::summary(&stdout.text, &stderr.text);
        let tests = summary.as_ref().map(|summary| summary.executed);
        let failed = summary.map_or(0, |summary| summary.failed);
        let (exit_code, mut died) = verdict(&finished.ended, &self.check);
        if matches!(finished.ended, Ended::CannotStart(_)) {
            died = self.missing().map(|missing| format!("cannot start: {missing}")).or(died);
        }
        // An exit status can be forged by a hook; the runner's own count is harder to.
        let forged = (0 < failed).then(|| format!("exit code 0, but the summary says that {failed} tests failed"));
        let problem = died.or(forged).or_else(|| self.lacks_evidence(tests));
        let walls = self.surroundings.launcher.walls.as_ref().filter(|_| problem.is_some());
        let mut refused = walls.map(|walls| refusals(&stdout.text, &stderr.text, walls)).unwrap_or_default();
        // Who is ended by it has no words for it.
        let unsaid = walls.filter(|_| exit_code == 128 + SIGXFSZ).map(too_large);
        refused.extend(unsaid.filter(|words| !refused.contains(words)));
        ToolResult {
            refused,
            passed: problem.is_none(),
            problem,
            exit_code,
            timed_out: finished.ended == Ended::TimedOut,
            tests,
            stdout,
            stderr,
            took: finished.took,
            variables,
        }
    }

    fn output(&self, captured: &Captured) -> Output {
        let plain = text::plain(&captured.joined());
        Output {
            text: self.surroundings.secrets.redact(&plain).into_owned(),
            bytes: captured.total(),
            dropped: captured.dropped,
        }
    }

    /// A pass needs evidence where the runner is known, or where the user wants it.
    fn lacks_evidence(&self, tests: Option<u32>) -> Option<String> {
        match (tests, self.check.min_tests) {
            (Some(executed), wanted) if executed < wanted.unwrap_or(1) => Some(match executed {
                0 => "exit code 0, but no test was executed".into(),
                _ => format!(
                    "exit code 0, but only {executed} tests were executed, and min_tests is {}",
                    wanted.unwrap_or(1)
                ),
            }),
            (None, Some(wanted)) if wanted > 0 => Some(format!(
                "exit code 0, but no known summary says how many tests were executed, and min_tests is {wanted}"
            )),
            _ => None,
        }
    }
}

/// The exit code that stands for an end, and what was wrong with it.
fn verdict(ended: &Ended, check: &Check) -> (i32, Option<String>) {
    match ended {
        Ended::Exited(0) => (0, None),
        Ended::Exited(code) => (*code, Some(format!("exit code {code}"))),
        Ended::Signalled(number) => (128 + number, Some(format!("killed by {}", signal_name(*number)))),
        Ended::TimedOut => (TIMED_OUT, Some(format!("timed out after {} seconds", check.timeout.as_secs_f64()))),
        Ended::CannotStart(why) => (CANNOT_START, Some(format!("cannot start: {why}"))),
        Ended::NoWalls(failure) => (CANNOT_START, Some(format!("cannot start: no sandbox: {failure}"))),
        Ended::Limit(which) => (128 + SIGKILL, Some(format!("ended: {which}"))),
    }
}

fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        _ => return format!("signal {number}"),
    };
    format!("signal {number} ({name})")
}
