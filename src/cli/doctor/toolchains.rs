//! Programs that checks and providers use: where they are, and which version they say they have.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::thread;

use regex::bytes::Regex;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::cancel::CancelToken;
use crate::cli::env::CliEnv;
use crate::cli::quick_program::{QUICK_LIMIT, find_on_path, run_quickly};
use crate::error::{Error, Result};
use crate::process::{Finished, JobEnd};
use crate::text::shorten::first_chars;

/// The programs, each with the arguments that print its version.
const PROGRAMS: [(&str, &[&str]); 14] = [
    ("claude", &["--version"]),
    ("python3", &["--version"]),
    ("pytest", &["--version"]),
    ("cargo", &["--version"]),
    ("node", &["--version"]),
    ("npm", &["--version"]),
    ("go", &["version"]),
    ("java", &["-version"]),
    ("mvn", &["--version"]),
    ("gradle", &["--gradle-user-home", SCRATCH, "--version"]),
    ("cmake", &["--version"]),
    ("make", &["--version"]),
    ("git", &["--version"]),
    ("bash", &["--version"]),
];
/// Replaced by a directory that is removed again: Gradle unpacks libraries before it prints its version.
const SCRATCH: &str = "SCRATCH";
/// How much of the output may contain the version, and how long it is.
const SEARCHED_BYTES: usize = 4096;
const MAX_VERSION: usize = 40;

static VERSION: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"[0-9]+(\.[0-9]+)+[0-9A-Za-z.+_-]*").ok());

pub(super) struct ProgramState {
    pub(super) name: &'static str,
    /// `None`: it is not on PATH.
    pub(super) path: Option<String>,
    pub(super) version: Option<String>,
    /// Why the version is not known.
    pub(super) problem: Option<String>,
}

impl ProgramState {
    /// Asks all programs at the same time, so that those which hang cost one time limit.
    pub(super) fn find_all(env: &CliEnv, cancel: &CancelToken) -> Result<Vec<ProgramState>> {
        let scratch = tempfile::tempdir_in(env.temporary()).ok();
        // Without one the program fails, which is reported.
        let path = scratch
            .as_ref()
            .map_or(Path::new("/nowhere"), TempDir::path);
        let filled = |argument: &&'static str| match *argument {
            SCRATCH => path.to_string_lossy().into_owned(),
            other => other.to_owned(),
        };
        thread::scope(|scope| {
            let start = |(name, arguments): (&'static str, &[&'static str])| {
                let arguments: Vec<String> = arguments.iter().map(filled).collect();
                scope.spawn(move || ProgramState::find(name, &arguments, env, cancel))
            };
            let threads: Vec<_> = PROGRAMS.into_iter().map(start).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, Result<ProgramState>>| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Error::Bug("a thread panicked".into())))
            };
            threads.into_iter().map(join).collect()
        })
    }

    fn find(
        name: &'static str,
        arguments: &[String],
        env: &CliEnv,
        cancel: &CancelToken,
    ) -> Result<ProgramState> {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let arguments = arguments.as_slice();
        let as_module = ["-m", name].into_iter().chain(arguments.iter().copied());
        let as_module: Vec<&str> = as_module.collect();
        let (path, arguments) = match find_on_path(env, name) {
            Some(path) => (Some(path), arguments),
            None if name == "pytest" => (find_on_path(env, "python3"), as_module.as_slice()),
            None => (None, arguments),
        };
        let state = |version, problem, path: Option<PathBuf>| ProgramState {
            name,
            path: path.map(|path| path.display().to_string()),
            version,
            problem,
        };
        let Some(path) = path else {
            return Ok(state(None, None, None));
        };
        Ok(match ask(env, &path, arguments, cancel)? {
            Ok(version) => state(Some(version), None, Some(path)),
            // This Python has no such module.
            Err(_) if arguments.len() == as_module.len() => state(None, None, None),
            Err(problem) => state(None, Some(problem), Some(path)),
        })
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "path": self.path,
            "version": self.version,
            "problem": self.problem,
        })
    }
}

/// The version of a program, or why it is not known. A signal to the orchestrator is an error.
fn ask(
    env: &CliEnv,
    program: &Path,
    arguments: &[&str],
    cancel: &CancelToken,
) -> Result<std::result::Result<String, String>> {
    let finished = match run_quickly(env, program, arguments, cancel) {
        Ok(finished) => finished,
        Err(Error::Stopped(signal)) => return Err(Error::Stopped(signal)),
        Err(error) => return Ok(Err(error.to_string())),
    };
    Ok(match &finished.ended {
        JobEnd::Exited(0) => version(&finished).ok_or_else(|| "prints no version".to_owned()),
        JobEnd::Exited(code) => Err(format!("exits with {code} when asked for its version")),
        JobEnd::Signalled(number) => Err(format!(
            "is ended by signal {number} when asked for its version"
        )),
        JobEnd::TimedOut => Err(format!(
            "does not answer within {} s",
            QUICK_LIMIT.as_secs()
        )),
        JobEnd::CannotStart(why) => Err(format!("cannot start: {why}")),
        JobEnd::Idle | JobEnd::OutputLimit | JobEnd::SandboxFailed(_) | JobEnd::Limit(_) => {
            Err("was ended when asked for its version".to_owned())
        }
    })
}

fn version(finished: &Finished) -> Option<String> {
    let streams = [&finished.stdout.head, &finished.stderr.head];
    let mut texts = streams
        .into_iter()
        .map(|bytes| &bytes[..bytes.len().min(SEARCHED_BYTES)]);
    let pattern = VERSION.as_ref()?;
    let found = texts.find_map(|text| pattern.find(text))?;
    let text = String::from_utf8_lossy(found.as_bytes());
    Some(first_chars(&text, MAX_VERSION).to_owned())
}
