//! A check that runs a program in the workspace and judges it by exit code and evidence.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::engine::checks::refusals::refusals;
use crate::engine::checks::{CANNOT_START, Output, TIMED_OUT, Tool, ToolResult, evidence, text};
use crate::engine::spec::Check;
use crate::error::Result;
use crate::process::capture::Captured;
use crate::process::environment::{Base, Places, for_check};
use crate::process::private::PrivateDirs;
use crate::process::sandbox::Walls;
use crate::process::{self, Ended, Finished, Job, Launcher};
use crate::secrets::Secrets;
use crate::stop::Stop;

const SIGKILL: i32 = 9;

/// What all checks of a run share.
pub struct Surroundings {
    pub launcher: Launcher,
    pub base: Base,
    pub private: PrivateDirs,
    pub workspace: PathBuf,
    /// What compilers made in earlier rounds; hidden checks do not see it.
    pub cache: Option<PathBuf>,
    pub network: bool,
    /// What checks may reach; without walls their home is the user's own.
    pub walls: Option<Walls>,
    pub secrets: Secrets,
    pub stop: Stop,
}

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
        around.private.renew()?;
        let walls = self.walls();
        let (tmp, home) = (around.private.tmp(), self.home());
        let places = Places {
            workspace: &around.workspace,
            tmp: &tmp,
            home: &home,
            cache: around.cache.as_deref().filter(|_| !self.check.hidden),
            network: around.network,
            walls: walls.as_ref(),
        };
        let env = for_check(&around.base, &places, &self.check.env);
        let variables = env.iter().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        let job = Job {
            command: self.check.command.iter().map(Into::into).collect(),
            cwd: around.workspace.clone(),
            env,
            timeout: self.check.timeout,
            walls,
        };
        let finished = process::run(&around.launcher, &job, &around.stop)?;
        Ok(self.judge(finished, variables))
    }
}

impl CommandCheck {
    /// Returns the walls of this check: nothing of what earlier rounds left is open to a hidden one.
    fn walls(&self) -> Option<Walls> {
        let mut walls = self.surroundings.walls.clone()?;
        if self.check.hidden {
            walls.write.retain(|place| self.surroundings.cache.as_ref() != Some(place));
        }
        Some(walls)
    }

    fn home(&self) -> PathBuf {
        let real = self.surroundings.base.home().filter(|_| self.surroundings.walls.is_none());
        real.map_or_else(|| self.surroundings.private.home(), Path::to_owned)
    }

    fn judge(&self, finished: Finished, variables: Vec<String>) -> ToolResult {
        let (stdout, stderr) = (self.output(&finished.stdout), self.output(&finished.stderr));
        let summary = evidence::summary(&stdout.text, &stderr.text);
        let tests = summary.as_ref().map(|summary| summary.executed);
        let failed = summary.map_or(0, |summary| summary.failed);
        let (exit_code, died) = verdict(&finished.ended, &self.check);
        // An exit status can be forged by a hook; the runner's own count is harder to.
        let forged = (0 < failed).then(|| format!("exit code 0, but the summary says that {failed} tests failed"));
        let problem = died.or(forged).or_else(|| self.lacks_evidence(tests));
        let walls = self.surroundings.walls.as_ref().filter(|_| problem.is_some());
        let refused = walls.map(|walls| refusals(&stdout.text, &stderr.text, walls)).unwrap_or_default();
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
        Ended::Limit(which) => (128 + SIGKILL, Some(which.clone())),
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
