//! A check that runs a program in the workspace. It passes by exit code and by evidence of its tests.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fs::OFlags;
use serde_json::Value;

use crate::build::checks::evidence::{CheckFacts, Evidence, weigh};
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
use crate::process::sandbox::SandboxPolicy;
use crate::process::sandbox::hints::{DenialKind, denials, file_size_denial, protected_hints};
use crate::process::{self, Finished, Job, JobChannels, JobEnd, Launcher};
use crate::regular_file::open_regular_file;
use crate::text::terminal::rendered_whole;

const SIGKILL: i32 = 9;
const SIGXFSZ: i32 = 25;
/// The largest `package.json` that is read.
const MAX_PACKAGE: u64 = 1 << 20;
/// How many failed tests are named in the log and in the result.
const MAX_FAILED_NAMES: usize = 1000;

/// A check of the spec as a tool.
pub(crate) struct CommandCheck {
    pub check: CheckSpec,
    /// Paths in the workspace that it cannot write where the sandbox can enforce that.
    pub frozen: Vec<PathBuf>,
    pub child_env: Rc<ChildEnv>,
}

impl Tool for CommandCheck {
    fn name(&self) -> &str {
        &self.check.name
    }

    fn run(&mut self, printed: &dyn Fn(&[u8])) -> Result<ToolResult> {
        let child_env = &self.child_env;
        let runner = self.runner();
        let launcher = self.own_launcher();
        let env = self.variables(&launcher, runner)?;
        let variables = env
            .iter()
            .map(|(name, _)| name.to_string_lossy().into_owned())
            .collect();
        let job = Job {
            command: self.check.command.iter().map(Into::into).collect(),
            cwd: child_env.workspace.clone(),
            env,
            timeout: self.check.timeout,
        };
        let channel = ReportChannel::open(ChannelReports::default())
            .map_err(|error| Error::io("open", Path::new("a socket"), error))?;
        let channels = JobChannels {
            report: Some(channel.end()),
            printed,
        };
        let finished = process::run(&launcher, &job, channels, &child_env.cancel)?;
        let reports = channel.close().unwrap_or_default();
        let mut result = self.result(finished, runner, &reports);
        result.variables = variables;
        if let Some(policy) = &launcher.policy {
            explain_denials(&mut result, policy);
        }
        Ok(result)
    }

    fn launcher(&self) -> Option<Launcher> {
        Some(self.own_launcher())
    }
}

impl CommandCheck {
    /// The environment of the check, with fresh temporary directories, and what makes its runner report its tests.
    fn variables(
        &self,
        launcher: &Launcher,
        runner: Option<Runner>,
    ) -> Result<Vec<(OsString, OsString)>> {
        let child_env = &self.child_env;
        let (tmp, home) = child_env.home_dirs.renew()?;
        let cache = self.cache();
        let dirs = ChildDirs {
            workspace: &child_env.workspace,
            tmp: &tmp,
            home: &home,
            cache: cache.as_deref(),
            network: child_env.network,
            policy: launcher.policy.as_ref(),
        };
        let mut env = for_check(&child_env.base, &dirs, &self.check.env);
        make_go_verbose(&mut env);
        child_env.reporters.renew()?;
        child_env.reporters.add_variables(runner, &mut env);
        Ok(env)
    }

    /// Why the program of this check cannot start, where that can be seen from outside the sandbox.
    fn missing_program(&self) -> Option<String> {
        let ChildEnv {
            launcher,
            base,
            workspace,
            ..
        } = &*self.child_env;
        let program = self.check.command.first()?;
        let search = ProgramSearch {
            path: self.check.env.get("PATH").map_or(base.path(), OsStr::new),
            workspace,
            policy: launcher.policy.as_ref(),
        };
        let missing = search.missing(program)?;
        Some(format!("{program}: {missing}"))
    }

    /// The compiler cache of the run. Hidden checks have one of their own.
    fn cache(&self) -> Option<PathBuf> {
        self.child_env.cache(if self.check.hidden {
            CacheOwner::HiddenChecks
        } else {
            CacheOwner::Checks
        })
    }

    /// The launcher with this check's policy: the reporters are readable, protected files are frozen.
    fn own_launcher(&self) -> Launcher {
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
        let frozen = self.frozen.iter().map(|path| workspace.join(path));
        policy.freeze.extend(frozen);
        let writable = self.check.writable.iter();
        let writable = writable.map(|folder| workspace.join(folder.path.as_str()));
        policy.reopen.extend(writable);
        launcher.with_policy(policy)
    }

    fn result(
        &self,
        finished: Finished,
        runner: Option<Runner>,
        reports: &ChannelReports,
    ) -> ToolResult {
        let (stdout, stderr) = (self.output(finished.stdout), self.output(finished.stderr));
        let evidence = weigh(&CheckFacts {
            known: runner,
            stdout: &stdout.text,
            stderr: &stderr.text,
            reports,
        });
        let (exit_code, problem) = self.end_problem(&finished.ended);
        let problem =
            problem.or_else(|| Some(CheckProblem::Unproven(self.evidence_problem(&evidence)?)));
        ToolResult {
            problem,
            exit_code,
            timed_out: finished.ended == JobEnd::TimedOut,
            tests: evidence
                .counts
                .map(|counts| totals(counts, &evidence.names)),
            names: evidence.names,
            stdout: self.without_added_verbosity(runner, stdout),
            stderr: self.without_added_verbosity(runner, stderr),
            took: finished.took,
            ..ToolResult::default()
        }
    }

    /// A large output is not copied, unless it has control characters or keys.
    fn output(&self, captured: Captured) -> ToolOutput {
        let (bytes, dropped) = (captured.total(), captured.dropped);
        let mut text = rendered_whole(captured.into_joined());
        if let Cow::Owned(redacted) = self.child_env.secrets.redact(&text) {
            text = redacted;
        }
        ToolOutput {
            text,
            bytes,
            dropped,
        }
    }

    /// A stream without what go printed only because of the `-v` that a check adds.
    fn without_added_verbosity(&self, runner: Option<Runner>, stream: ToolOutput) -> ToolOutput {
        let is_verbose_flag = |word: &String| {
            ["-v", "-json", "-test.v"]
                .iter()
                .any(|flag| word.contains(flag))
        };
        let is_go =
            runner.is_none_or(|runner| runner == Runner::Go) && stream.text.contains("=== RUN   ");
        if !is_go || self.check.command.iter().any(is_verbose_flag) {
            return stream;
        }
        ToolOutput {
            text: without_passed_tests(&stream.text),
            ..stream
        }
    }

    /// A pass needs evidence where the runner is known, or where the spec asks for it.
    fn evidence_problem(&self, evidence: &Evidence) -> Option<EvidenceProblem> {
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

    /// The exit code and the problem of an end.
    fn end_problem(&self, ended: &JobEnd) -> (i32, Option<CheckProblem>) {
        let (exit_code, problem) = match ended {
            JobEnd::Exited(0) => return (0, None),
            JobEnd::Exited(code) => (*code, CheckProblem::ExitCode(*code)),
            JobEnd::Signalled(number) => (128 + number, CheckProblem::Signal(*number)),
            // The output of a check is not watched, so the last two do not occur.
            JobEnd::TimedOut | JobEnd::Idle | JobEnd::OutputLimit => {
                (TIMED_OUT, CheckProblem::TimedOut(self.check.timeout))
            }
            JobEnd::CannotStart(reason) => {
                let reason = self.missing_program().unwrap_or_else(|| reason.clone());
                (CANNOT_START, CheckProblem::CannotStart(reason))
            }
            JobEnd::SandboxFailed(failure) => {
                let reason = format!("no sandbox: {failure}");
                (CANNOT_START, CheckProblem::CannotStart(reason))
            }
            JobEnd::Limit(limit) => (128 + SIGKILL, CheckProblem::LimitExceeded(limit.clone())),
        };
        (exit_code, Some(problem))
    }

    /// The runner that the command names, or the script of `package.json` that it runs.
    fn runner(&self) -> Option<Runner> {
        let scripts = OnceCell::new();
        of_command(&self.check.command, &|name| {
            let scripts =
                scripts.get_or_init(|| scripts_of(&self.child_env.workspace).unwrap_or_default());
            scripts[name].as_str().map(str::to_owned)
        })
    }
}

/// Adds what the sandbox denied to a result, as far as the output shows it.
fn explain_denials(result: &mut ToolResult, policy: &SandboxPolicy) {
    let (stdout, stderr) = (&result.stdout.text, &result.stderr.text);
    result.hints = protected_hints(stdout, stderr, policy);
    let Some(problem) = result.problem.take() else {
        return;
    };
    let mut denials = denials(stdout, stderr, policy);
    if result.exit_code == 128 + SIGXFSZ
        && !denials
            .iter()
            .any(|denial| denial.kind == DenialKind::FileSize)
    {
        denials.push(file_size_denial(policy));
    }
    // A program that cannot start a process exits, and its exit code does not say why.
    let refused_process = denials
        .iter()
        .find(|denial| denial.kind == DenialKind::Processes);
    result.problem = Some(match refused_process {
        Some(denial) => CheckProblem::ProcessRefused {
            end: Box::new(problem),
            limit: denial.sentence.clone(),
        },
        None => problem,
    });
    result.refused = denials.into_iter().map(|denial| denial.sentence).collect();
}

/// The scripts in a workspace's `package.json`, if that is a regular file of a sensible size.
fn scripts_of(workspace: &Path) -> Option<Value> {
    let file = open_regular_file(&workspace.join("package.json"), OFlags::NOFOLLOW).ok()?;
    let length = file.metadata().ok()?.len();
    let mut text = String::new();
    if MAX_PACKAGE < length {
        return None;
    }
    file.take(length).read_to_string(&mut text).ok()?;
    let mut package: Value = serde_json::from_str(&text).ok()?;
    Some(package["scripts"].take())
}

/// Adds `-v` to GOFLAGS: without it a package that passes does not name its tests.
fn make_go_verbose(env: &mut Vec<(OsString, OsString)>) {
    const NAME: &str = "GOFLAGS";
    match env.iter_mut().find(|(name, _)| name == NAME) {
        Some((_, flags)) => flags.push(" -v"),
        None => env.push((NAME.into(), "-v".into())),
    }
}

fn totals(counts: TestCounts, names: &TestNames) -> TestTotals {
    let failed_names = names.failed.iter().take(MAX_FAILED_NAMES);
    TestTotals {
        executed: counts.executed,
        passed: counts.passed,
        failed: counts.failed,
        skipped: counts.skipped,
        failed_names: failed_names.cloned().collect(),
    }
}
