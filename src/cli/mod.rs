//! Flags and environment become plain data here and nowhere else; the result is printed here and nowhere else.
//!
//! A command is a file: `run.rs`, `status.rs`, `reset.rs`, `lint.rs`. `ending.rs` is how a run's end is said,
//! `surroundings.rs` what is taken from the environment, `target.rs` whether a path is a spec or a workflow.

mod env;
mod lint;
mod outcome;
mod programs;
mod reset;
mod run;
mod run_config;
mod sandbox;
mod serve;
mod status;
mod target;
mod wiring;

use std::ffi::OsString;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::cancel::CancelToken;
use crate::cli::env::CliEnv;
use crate::cli::outcome::RunOutcome;
use crate::cli::target::RunTarget;
use crate::error::{Error, Result};
use crate::observers::printable::plain_text;

const EXIT_CODES: &str = "\
Exit codes:
  0  success                              64  bad command line, or a key is missing
  1  failed                               65  spec that cannot be read or does not validate
  2  safety violation                     70  a bug in orchestrator
  3  state.json is corrupt                74  the root cannot be read or written
  4  paused: the same command goes on     75  the root is in use
  129, 130, 143  SIGHUP, SIGINT, SIGTERM: the same command goes on

Environment: ANTHROPIC_API_KEY, OPENAI_API_KEY, ANTHROPIC_BASE_URL, OPENAI_BASE_URL, ORCHESTRATOR_ROOT,
ORCHESTRATOR_IDLE_TIMEOUT, ORCHESTRATOR_RETRY_SCALE, NO_COLOR";

/// Lets a model build software on a laptop: bounded, resumable at any instant, contained.
#[derive(Debug, Parser)]
#[command(name = "orchestrator", version, after_help = EXIT_CODES, disable_help_subcommand = false)]
struct CliArguments {
    /// Where the run happens [default: ORCHESTRATOR_ROOT, else the current directory]
    #[arg(long, global = true, value_name = "DIR")]
    root: Option<PathBuf>,
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    /// Build what a spec describes, or run a workflow; goes on by itself where it was stopped
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArguments>),
    /// Show where the run of this root stands
    Status {
        /// Print state.json itself; null where there is no run
        #[arg(long)]
        json: bool,
    },
    /// Empty workspace/ and forget the run; logs/ and specs/ stay
    Reset,
    /// Offer bash, python, editor and your own environments over NDJSON
    Serve(ServeArguments),
    /// Check a spec or a workflow without running anything
    Lint(LintArguments),
    /// Draw a workflow (not there yet)
    Diagram {
        /// The workflow's folder
        path: PathBuf,
    },
}

/// What `run` takes.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["path", "spec", "workflow"]))]
pub struct RunArguments {
    /// A spec (.yaml, .yml, .json) or the folder of a workflow
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// The spec: YAML, JSON, or Markdown with front matter
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// How often the model may patch (clamped to 1..50); wins over the spec
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        conflicts_with = "workflow"
    )]
    pub max_retries: Option<i128>,
    /// Start afresh, also where a run could go on
    #[arg(long)]
    pub no_resume: bool,
    /// Go on where the run was stopped; this is the default
    #[arg(long, conflicts_with = "no_resume")]
    pub resume: bool,
    /// Go on after a run that failed, as a new run (not there yet)
    #[arg(long = "continue", conflicts_with_all = ["no_resume", "workflow"])]
    pub continues: bool,
    /// Leave the best attempt in workspace/ when the run fails (not there yet)
    #[arg(long, conflicts_with = "workflow")]
    pub keep_best: bool,
    /// What the run may cost, in USD; wins over the spec
    #[arg(long, value_name = "USD", value_parser = target::usd, allow_negative_numbers = true)]
    pub budget: Option<f64>,
    /// anthropic, openai, claude-code or template; wins over the spec
    #[arg(long, value_name = "P")]
    pub provider: Option<String>,
    /// The model; wins over the spec
    #[arg(long, value_name = "M")]
    pub model: Option<String>,
    /// Answer every model request from this log: no network, no key; starts afresh
    #[arg(long, value_name = "LOG")]
    pub replay: Option<PathBuf>,
    /// Keep prompts, streams and outputs of every step in logs/<run_id>/
    #[arg(long)]
    pub debug: bool,
    /// Say only what went wrong
    #[arg(long)]
    pub quiet: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Run the checks without the kernel sandbox
    #[arg(long)]
    pub no_sandbox: bool,
    /// The workflow's folder (not there yet)
    #[arg(long, value_name = "PATH")]
    pub workflow: Option<PathBuf>,
    /// What the workflow's first state is given
    #[arg(long, value_name = "TEXT")]
    pub input: Option<String>,
    /// Where the workflow's agents work
    #[arg(long, value_name = "DIR")]
    pub project_dir: Option<PathBuf>,
    /// The price of a model of the workflow, USD per million tokens
    #[arg(long, value_name = "[MODEL=]IN,OUT")]
    pub price: Vec<String>,
    /// How many agents of the workflow work at once
    #[arg(long, value_name = "N")]
    pub jobs: Option<u32>,
    /// How long a state of the workflow may take
    #[arg(long, value_name = "S")]
    pub timeout: Option<f64>,
    /// Let the workflow's programs use the network
    #[arg(long)]
    pub network: bool,
    /// Let the workflow's programs read this, too
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Pass this variable to the workflow's programs
    #[arg(long, value_name = "NAME")]
    pub keep_env: Vec<String>,
    /// Answer a question of the workflow's agents
    #[arg(long, value_name = "[AGENT=]TEXT")]
    pub answer: Vec<String>,
}

impl RunArguments {
    /// Puts a bare path where its flag would have put it.
    fn resolve_path(&mut self) -> Result<()> {
        match self
            .path
            .take()
            .map(|path| RunTarget::of_path(&path, &["--spec", "--workflow"]))
            .transpose()?
        {
            Some(RunTarget::Spec(path)) => self.spec = Some(path),
            Some(RunTarget::Workflow(path)) => self.workflow = Some(path),
            None => {}
        }
        Ok(())
    }
}

/// What `serve` takes.
#[derive(Debug, Args)]
pub struct ServeArguments {
    /// Where the environments work [default: PROJECT_DIR, else the current directory]
    #[arg(long, value_name = "DIR")]
    pub project_dir: Option<PathBuf>,
    /// Let programs use the network
    #[arg(long)]
    pub network: bool,
    /// Let programs read this, too
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Pass this variable to programs
    #[arg(long, value_name = "NAME")]
    pub keep_env: Vec<String>,
    /// Run programs without the kernel sandbox
    #[arg(long)]
    pub no_sandbox: bool,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["path", "spec"]))]
struct LintArguments {
    /// A spec (.yaml, .yml, .json) or the folder of a workflow (not there yet)
    path: Option<PathBuf>,
    /// The spec
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command line to its exit code. A bug of ours ends it too, and is said as such.
pub fn main(argv: Vec<OsString>) -> u8 {
    std::panic::set_hook(Box::new(|panic| {
        complain(&format!("a bug in orchestrator: {panic}"))
    }));
    guarded(&argv, || dispatch(&argv))
}

/// Runs a command; where it panics, the one object and the exit code of a bug are its result.
fn guarded(argv: &[OsString], command: impl FnOnce() -> u8) -> u8 {
    catch_unwind(AssertUnwindSafe(command)).unwrap_or_else(|_| {
        let bug = Error::Bug("it panicked; the run goes on with the same command".into());
        if wants_json(argv) {
            RunOutcome::refused(&bug, None).print_json()
        } else {
            bug.exit_code()
        }
    })
}

fn dispatch(argv: &[OsString]) -> u8 {
    let arguments = match CliArguments::try_parse_from(argv) {
        Ok(arguments) => arguments,
        Err(error) => return refuse_command_line(&error, argv),
    };
    let env = CliEnv::from_process(arguments.root);
    match arguments.command {
        CliCommand::Run(mut run) => {
            let json = run.json;
            match run.resolve_path() {
                Ok(()) => run::main(&run, &env).print(json),
                Err(error) => RunOutcome::refused(&error, None).print(json),
            }
        }
        CliCommand::Status { json } => said(status::main(&env, json)),
        CliCommand::Reset => said(reset::main(&env)),
        CliCommand::Lint(LintArguments { path, spec, json }) => lint::main(&env, path, spec, json),
        CliCommand::Serve(serve) => serve::main(&serve, &env),
        CliCommand::Diagram { .. } => said(Err(not_there_yet("diagram"))),
    }
}

/// Returns the refusal of something that a later version will have.
fn not_there_yet(what: &str) -> Error {
    Error::Usage(format!(
        "{what} is not there yet in version {}",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Prints what a command came to and returns its exit code.
fn said(result: Result<String>) -> u8 {
    match result {
        Ok(text) if write_stdout(&text) => 0,
        Ok(_) => Error::Bug(String::new()).exit_code().max(74),
        Err(error) => {
            complain(&format!("error: {error}"));
            error.exit_code()
        }
    }
}

/// Returns the handle that signals reach from now on.
fn signals() -> Result<CancelToken> {
    CancelToken::on_signals().map_err(|error| Error::Bug(format!("no signals: {error}")))
}

/// Writes to stdout; whether it arrived. A closed or full stdout is no reason to panic.
fn write_stdout(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
        .is_ok()
}

/// Writes a line for people; what is foreign in it cannot reach the terminal raw.
fn complain(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", plain_text(text));
}

fn refuse_command_line(error: &clap::Error, argv: &[OsString]) -> u8 {
    if matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
    ) {
        return if write_stdout(&error.render().to_string()) {
            0
        } else {
            74
        };
    }
    let text = error.render().to_string();
    complain(text.trim_end());
    if wants_json(argv) {
        let first = text
            .lines()
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ")
            .to_owned();
        return RunOutcome::refused(&Error::Usage(first), None).print_json();
    }
    Error::Usage(text).exit_code()
}

/// Whether the result of this command line is one JSON object, whatever becomes of it.
fn wants_json(argv: &[OsString]) -> bool {
    command_word(argv).is_some_and(|word| word == "run") && argv.iter().any(|word| word == "--json")
}

/// Returns the first word that is no option and no option's value.
fn command_word(argv: &[OsString]) -> Option<&OsString> {
    let mut words = argv.iter().skip(1);
    while let Some(word) = words.next() {
        match word.to_string_lossy() {
            option if option == "--root" => drop(words.next()),
            option if option.starts_with('-') => {}
            _ => return Some(word),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bug_is_an_exit_code_of_its_own() {
        assert_eq!(guarded(&[], || 3), 3);
        assert_eq!(
            guarded(&["orchestrator".into(), "status".into()], || panic!("boom")),
            70
        );
    }

    #[test]
    fn the_command_is_found_behind_the_root() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        assert!(wants_json(&words("o --root x run --json")));
        assert!(wants_json(&words("o run --bad --json")));
        assert!(!wants_json(&words("o status --json")));
    }
}
