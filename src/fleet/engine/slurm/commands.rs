//! The three commands of Slurm that are used. They are found on PATH, and speak text.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::cancel::{CancelToken, Signal};
use crate::error::{Error, Result};
use crate::llm::provider::{Provider, ProviderFacts};
use crate::process::check_env::find_program;
use crate::process::{self, Job, JobChannels, JobEnd, Launcher};

/// How long a command may take. A controller with much to do answers late.
const LIMIT: Duration = Duration::from_secs(60);

/// Variables of the caller that the commands get, and with them the tasks.
const PASSED: [&str; 6] = ["PATH", "HOME", "USER", "LANG", "TZ", "SLURM_CONF"];
/// In capital letters, or in small ones.
const PROXIES: [&str; 4] = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"];
const PASSED_PREFIXES: [&str; 2] = ["ORCHESTRATOR_", "SBATCH_"];

/// The commands, and how they are started.
pub(super) struct SlurmCommands {
    launcher: Launcher,
    sbatch: PathBuf,
    squeue: PathBuf,
    scancel: PathBuf,
    env: Vec<(OsString, OsString)>,
    /// The user's number, as an argument.
    user: String,
}

/// What a command ended with other than success.
#[derive(Debug)]
pub(super) enum CommandFailure {
    /// It failed, and what it said.
    Said(String),
    /// A signal to this process ended it.
    Stopped(Signal),
}

impl CommandFailure {
    pub(super) fn text(&self) -> String {
        match self {
            CommandFailure::Said(text) => text.clone(),
            CommandFailure::Stopped(signal) => format!("interrupted by {}", signal.name()),
        }
    }
}

impl SlurmCommands {
    /// Finds the commands on the caller's PATH, but not in `outside`. The error lists those that are missing.
    pub(super) fn find(
        variables: &[(OsString, OsString)],
        providers: &[&'static ProviderFacts],
        outside: &Path,
    ) -> Result<SlurmCommands> {
        let path = variables.iter().find(|(name, _)| name == "PATH");
        let path = path.map_or(OsStr::new(""), |(_, value)| value.as_os_str());
        let find = |name: &'static str| {
            let found = find_program(path, OsStr::new(name), outside);
            found.ok_or(name)
        };
        let (sbatch, squeue, scancel) = match (find("sbatch"), find("squeue"), find("scancel")) {
            (Ok(sbatch), Ok(squeue), Ok(scancel)) => (sbatch, squeue, scancel),
            (sbatch, squeue, scancel) => {
                let missing: Vec<&str> = [sbatch, squeue, scancel]
                    .into_iter()
                    .filter_map(std::result::Result::err)
                    .collect();
                return Err(missing_commands(&missing));
            }
        };
        Ok(SlurmCommands {
            launcher: Launcher::open(Path::new("/proc/self/exe")),
            sbatch,
            squeue,
            scancel,
            env: passed_variables(variables, providers),
            user: rustix::process::getuid().as_raw().to_string(),
        })
    }

    /// Submits a job.
    pub(super) fn sbatch(
        &self,
        arguments: Vec<OsString>,
        cancel: &CancelToken,
    ) -> std::result::Result<(), CommandFailure> {
        self.run(&self.sbatch, arguments, cancel).map(drop)
    }

    /// The tasks of the user's jobs with a name, a line each.
    pub(super) fn squeue(
        &self,
        name: &str,
        format: &str,
        cancel: &CancelToken,
    ) -> std::result::Result<String, CommandFailure> {
        let arguments = ["-h", "-r", "-u", &self.user, "-n", name, "-o", format];
        self.run(&self.squeue, arguments.map(OsString::from).into(), cancel)
    }

    /// Cancels the user's jobs with a name; of them only those that `more` chooses.
    pub(super) fn scancel(
        &self,
        name: &str,
        more: &[String],
        cancel: &CancelToken,
    ) -> std::result::Result<(), CommandFailure> {
        let arguments = ["-u", &self.user, "-n", name].map(OsString::from);
        let more = more.iter().map(OsString::from);
        let arguments = arguments.into_iter().chain(more).collect();
        self.run(&self.scancel, arguments, cancel).map(drop)
    }

    /// Runs a command to its end, and returns what it printed.
    fn run(
        &self,
        program: &Path,
        arguments: Vec<OsString>,
        cancel: &CancelToken,
    ) -> std::result::Result<String, CommandFailure> {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let job = Job {
            command: std::iter::once(program.into()).chain(arguments).collect(),
            cwd: PathBuf::from("/"),
            env: self.env.clone(),
            timeout: LIMIT,
        };
        let finished = match process::run(&self.launcher, &job, JobChannels::NONE, cancel) {
            Ok(finished) => finished,
            Err(Error::Stopped(signal)) => return Err(CommandFailure::Stopped(signal)),
            Err(error) => return Err(CommandFailure::Said(error.to_string())),
        };
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let how = match finished.ended {
            JobEnd::Exited(0) => return Ok(text(finished.stdout.joined())),
            JobEnd::Exited(code) => format!("{name} ended with exit code {code}"),
            JobEnd::TimedOut => format!("{name} did not end within {} s", LIMIT.as_secs()),
            JobEnd::CannotStart(why) => format!("{name} cannot be started: {why}"),
            ended => format!("{name} was ended: {ended:?}"),
        };
        let said = text(finished.stderr.joined());
        Err(CommandFailure::Said(match said.trim() {
            "" => how,
            said => said.lines().map(str::trim).collect::<Vec<_>>().join("; "),
        }))
    }
}

fn missing_commands(missing: &[&str]) -> Error {
    Error::Usage(format!(
        "cannot find {} on PATH: --engine slurm needs the commands of a Slurm cluster\n\
         help: type this where `sinfo` shows the cluster, usually after `ssh` to its login node\n\
         help: on Debian: `apt-get install slurm-client`, and SLURM_CONF names the configuration of the cluster\n\
         help: without a cluster: --engine local",
        missing.join(", ")
    ))
}

/// What the commands get of the caller's variables; tasks get the same.
fn passed_variables(
    variables: &[(OsString, OsString)],
    providers: &[&'static ProviderFacts],
) -> Vec<(OsString, OsString)> {
    let base_urls = Provider::ALL.map(|provider| provider.facts().base_url_variable);
    let is_passed = |name: &OsStr| {
        let Some(name) = name.to_str() else {
            return false;
        };
        PASSED.contains(&name)
            || base_urls.contains(&name)
            || PROXIES
                .iter()
                .any(|proxy| *proxy == name || proxy.to_lowercase() == name)
            || PASSED_PREFIXES
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    let passed = variables.iter().filter(|(name, _)| is_passed(name));
    let mut passed: Vec<(OsString, OsString)> = passed.cloned().collect();
    let keys = providers
        .iter()
        .flat_map(|facts| facts.key_variables(variables));
    passed.extend(keys);
    passed.sort();
    passed.dedup();
    passed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_get_what_they_need_and_the_keys_of_their_providers_alone() {
        let caller = [
            ("ANTHROPIC_API_KEY", "a"),
            ("ANTHROPIC_BASE_URL", "http://127.0.0.1:1"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "c"),
            ("EDITOR", "vi"),
            ("HOME", "/home/a"),
            ("LD_PRELOAD", "x.so"),
            ("OPENAI_API_KEY", "o"),
            ("OPENAI_BASE_URL", "http://127.0.0.1:2"),
            ("ORCHESTRATOR_RETRY_SCALE", "0"),
            ("PATH", "/usr/bin"),
            ("SBATCH_PARTITION", "main"),
            ("SLURM_CONF", "/etc/slurm.conf"),
            ("SLURM_JOB_ID", "7"),
            ("https_proxy", "http://p"),
        ];
        let caller = caller.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let check = |providers: &[Provider], keys: &[&str]| {
            let facts: Vec<_> = providers.iter().map(|provider| provider.facts()).collect();
            let passed = passed_variables(&caller, &facts).into_iter();
            let passed: Vec<String> = passed
                .map(|(name, _)| name.into_string().unwrap())
                .collect();
            let mut expected = vec![
                "ANTHROPIC_BASE_URL",
                "HOME",
                "OPENAI_BASE_URL",
                "ORCHESTRATOR_RETRY_SCALE",
                "PATH",
                "SBATCH_PARTITION",
                "SLURM_CONF",
                "https_proxy",
            ];
            expected.extend(keys);
            expected.sort_unstable();
            assert_eq!(passed, expected, "{providers:?}");
        };
        check(&[], &[]);
        check(&[Provider::OpenAi], &["OPENAI_API_KEY"]);
        check(
            &[Provider::Anthropic, Provider::OpenAi],
            &["ANTHROPIC_API_KEY", "OPENAI_API_KEY"],
        );
        check(
            &[Provider::ClaudeCode],
            &["ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"],
        );
    }
}
