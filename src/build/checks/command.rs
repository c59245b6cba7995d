//! A check that runs a program in the workspace and judges it by exit code and evidence.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::{Mode as FileMode, OFlags, open};
use serde_json::Value;

use crate::build::checks::evidence::{CheckFacts, Evidence, judge};
use crate::build::checks::problem::{CheckProblem, EvidenceProblem};
use crate::build::checks::runner::{Runner, of_command};
use crate::build::checks::runner_reports::ChannelReports;
use crate::build::checks::runners::without_passed_tests;
use crate::build::checks::summary::{TestCounts, TestNames};
use crate::build::checks::{CANNOT_START, TIMED_OUT, Tool, ToolOutput, ToolResult};
use crate::build::child_env::ChildEnv;
use crate::build::spec::CheckSpec;
use crate::error::{Error, Result};
use crate::events::TestTotals;
use crate::process::cache::CacheOwner;
use crate::process::capture::Captured;
use crate::process::check_env::{ChildDirs, for_check};
use crate::process::program::ProgramSearch;
use crate::process::report_channel::ReportChannel;
use crate::process::sandbox::hints::{protected_hints, refusals, refused_process, too_large};
use crate::process::{self, Finished, Job, JobEnd, Launcher};
use crate::text::terminal::rendered;

const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;
/// The largest `package.json` that is read.
const MAX_PACKAGE: u64 = 1 << 20;
/// How many failed tests are named in the log and in the result.
const MAX_FAILED_NAMES: usize = 1000;

/// A check of the spec as a tool.
pub struct CommandCheck {
    pub check: CheckSpec,
    /// What it cannot write where the walls can hold that, in the workspace.
    pub frozen: Vec<PathBuf>,
    pub child_env: Rc<ChildEnv>,
}

impl Tool for CommandCheck {
    fn name(&self) -> &str {
        &self.check.name
    }

    fn run(&mut self) -> Result<ToolResult> {
        let around = &self.child_env;
        let (tmp, home) = around.home_dirs.renew()?;
        let cache = self.cache();
        let launcher = self.launcher();
        let places = ChildDirs {
            workspace: &around.workspace,
            tmp: &tmp,
            home: &home,
            cache: cache.as_deref(),
            network: around.network,
            policy: launcher.policy.as_ref(),
        };
        let mut env = for_check(&around.base, &places, &self.check.env);
        let known = self.known_runner();
        make_go_verbose(&mut env);
        around.reporters.renew()?;
        around.reporters.add_variables(known, &mut env);
        let variables = env
            .iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        let job = Job {
            command: self.check.command.iter().map(Into::into).collect(),
            cwd: around.workspace.clone(),
            env,
            timeout: self.check.timeout,
        };
        let report = ReportChannel::open(ChannelReports::default())
            .map_err(|error| Error::io("open", Path::new("a socket"), error))?;
        let finished = process::run_with(&launcher, &job, Some(report.end()), &around.cancel)?;
        let heard = report.close().unwrap_or_default();
        Ok(self.judge(finished, known, &heard, variables))
    }
}

impl CommandCheck {
    /// Returns why the program of this check cannot start, where that can be seen from outside the sandbox.
    fn missing(&self) -> Option<String> {
        let ChildEnv {
            launcher,
            base,
            workspace,
            ..
        } = &*self.child_env;
        let program = self.check.command.first()?;
        let path = self.check.env.get("PATH").map_or(base.path(), OsStr::new);
        let lookup = ProgramSearch {
            path,
            workspace,
            policy: launcher.policy.as_ref(),
        };
        lookup
            .missing(program)
            .map(|missing| format!("{program}: {missing}"))
    }

    /// Returns where compilers find what they made in earlier rounds: hidden checks and others do not share it.
    fn cache(&self) -> Option<PathBuf> {
        self.child_env.cache(if self.check.hidden {
            CacheOwner::HiddenChecks
        } else {
            CacheOwner::Checks
        })
    }

    /// Returns the launcher of this check: it sees the programs that report its tests, and its walls hold what is
    /// protected.
    fn launcher(&self) -> Launcher {
        let ChildEnv {
            launcher,
            workspace,
            reporters,
            ..
        } = &*self.child_env;
        let Some(mut policy) = launcher.policy.clone() else {
            return launcher.clone();
        };
        policy.read.push(reporters.path().to_owned());
        policy.write.extend(self.cache());
        policy
            .freeze
            .extend(self.frozen.iter().map(|place| workspace.join(place)));
        policy.reopen.extend(
            self.check
                .writable
                .iter()
                .map(|folder| workspace.join(folder.path.as_str())),
        );
        launcher.with_policy(policy)
    }

    fn judge(
        &self,
        finished: Finished,
        known: Option<Runner>,
        heard: &ChannelReports,
        variables: Vec<String>,
    ) -> ToolResult {
        let (stdout, stderr) = (self.output(&finished.stdout), self.output(&finished.stderr));
        let evidence = judge(&CheckFacts {
            known,
            stdout: &stdout.text,
            stderr: &stderr.text,
            reports: heard,
        });
        let (stdout, stderr) = (self.shown(known, stdout), self.shown(known, stderr));
        let (exit_code, mut died) = verdict(&finished.ended, &self.check);
        if matches!(finished.ended, JobEnd::CannotStart(_)) {
            died = self.missing().map(CheckProblem::CannotStart).or(died);
        }
        let problem =
            died.or_else(|| Some(CheckProblem::Unproven(self.lacks_evidence(&evidence)?)));
        let launcher = self.launcher();
        let hints = launcher
            .policy
            .as_ref()
            .map(|policy| protected_hints(&stdout.text, &stderr.text, policy));
        let policy = launcher.policy.as_ref().filter(|_| problem.is_some());
        let mut refused = policy
            .map(|policy| refusals(&stdout.text, &stderr.text, policy))
            .unwrap_or_default();
        // Who is ended by it has no words for it.
        let unsaid = policy.filter(|_| exit_code == 128 + SIGXFSZ).map(too_large);
        refused.extend(unsaid.filter(|words| !refused.contains(words)));
        let crowded = policy.and_then(|policy| refused_process(&stdout.text, &stderr.text, policy));
        let problem = problem.map(|end| match crowded {
            Some(limit) => CheckProblem::ProcessRefused {
                end: Box::new(end),
                limit,
            },
            None => end,
        });
        ToolResult {
            refused,
            hints: hints.unwrap_or_default(),
            problem,
            exit_code,
            timed_out: finished.ended == JobEnd::TimedOut,
            tests: evidence.counts.map(|counts| tests(counts, &evidence.names)),
            names: evidence.names,
            stdout,
            stderr,
            took: finished.took,
            variables,
        }
    }

    fn output(&self, captured: &Captured) -> ToolOutput {
        let plain = rendered(&captured.joined());
        ToolOutput {
            text: self.child_env.secrets.redact(&plain).into_owned(),
            bytes: captured.total(),
            dropped: captured.dropped,
        }
    }

    /// Returns a stream without what go printed because of our `-v`.
    fn shown(&self, known: Option<Runner>, stream: ToolOutput) -> ToolOutput {
        let is_asked_for = |word: &String| {
            ["-v", "-json", "-test.v"]
                .iter()
                .any(|flag| word.contains(flag))
        };
        let is_ours =
            known.is_none_or(|known| known == Runner::Go) && stream.text.contains("=== RUN   ");
        if !is_ours || self.check.command.iter().any(is_asked_for) {
            return stream;
        }
        ToolOutput {
            text: without_passed_tests(&stream.text),
            ..stream
        }
    }

    /// A pass needs evidence where the runner is known, or where the user wants it.
    fn lacks_evidence(&self, evidence: &Evidence) -> Option<EvidenceProblem> {
        // An exit status can be forged by a hook; the runner's own count is harder to forge.
        if 0 < evidence.failed {
            return Some(EvidenceProblem::TestsFailed(evidence.failed));
        }
        if evidence.problem.is_some() {
            return evidence.problem.clone();
        }
        match (evidence.counts, self.check.min_tests) {
            (Some(counts), min_tests) => {
                let (executed, min_tests) = (counts.executed, min_tests.unwrap_or(1));
                (executed < min_tests).then_some(match executed {
                    0 => EvidenceProblem::NoTests,
                    _ => EvidenceProblem::TooFewTests {
                        executed,
                        min_tests,
                    },
                })
            }
            (None, Some(min_tests)) if 0 < min_tests => Some(EvidenceProblem::NotCounted {
                min_tests,
                runner: evidence.runner,
            }),
            (None, _) => None,
        }
    }

    /// Returns the runner that the command names, or the script of `package.json` that it leads to.
    fn known_runner(&self) -> Option<Runner> {
        let scripts = OnceCell::new();
        of_command(&self.check.command, &|name| {
            let scripts =
                scripts.get_or_init(|| scripts_of(&self.child_env.workspace).unwrap_or_default());
            scripts[name].as_str().map(str::to_owned)
        })
    }
}

/// Returns the scripts in a workspace's `package.json`. Whatever lies there by that name is read as a plain file of a
/// sensible size or not at all.
fn scripts_of(workspace: &Path) -> Option<Value> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(open(workspace.join("package.json"), flags, FileMode::empty()).ok()?);
    let metadata = file
        .metadata()
        .ok()
        .filter(|found| found.is_file() && found.len() <= MAX_PACKAGE)?;
    let mut text = String::new();
    file.take(metadata.len()).read_to_string(&mut text).ok()?;
    serde_json::from_str::<Value>(&text)
        .ok()
        .map(|mut package| package["scripts"].take())
}

/// Adds `-v` to GOFLAGS: without it a package that passes does not name its tests.
fn make_go_verbose(env: &mut Vec<(OsString, OsString)>) {
    const NAME: &str = "GOFLAGS";
    match env.iter_mut().find(|(name, _)| name == NAME) {
        Some((_, flags)) => flags.push(" -v"),
        None => env.push((NAME.into(), "-v".into())),
    }
}

fn tests(counts: TestCounts, names: &TestNames) -> TestTotals {
    let TestCounts {
        executed,
        passed,
        failed,
        skipped,
    } = counts;
    let failed_names = names
        .failed
        .iter()
        .take(MAX_FAILED_NAMES)
        .cloned()
        .collect();
    TestTotals {
        executed,
        passed,
        failed,
        skipped,
        failed_names,
    }
}

/// The exit code that stands for an end, and what was wrong with it.
fn verdict(ended: &JobEnd, check: &CheckSpec) -> (i32, Option<CheckProblem>) {
    match ended {
        JobEnd::Exited(0) => (0, None),
        JobEnd::Exited(code) => (*code, Some(CheckProblem::ExitCode(*code))),
        JobEnd::Signalled(number) => (128 + number, Some(CheckProblem::Signal(*number))),
        JobEnd::TimedOut => (TIMED_OUT, Some(CheckProblem::TimedOut(check.timeout))),
        JobEnd::CannotStart(reason) => (
            CANNOT_START,
            Some(CheckProblem::CannotStart(reason.clone())),
        ),
        JobEnd::SandboxFailed(failure) => (
            CANNOT_START,
            Some(CheckProblem::CannotStart(format!("no sandbox: {failure}"))),
        ),
        JobEnd::Limit(which) => (
            128 + SIGKILL,
            Some(CheckProblem::LimitExceeded(which.clone())),
        ),
    }
}
