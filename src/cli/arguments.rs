//! The command line: commands, flags and their help.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};

use crate::build::spec::setting::SpecSetting;
use crate::cli::fleet::arguments::FleetCommand;

const EXIT_CODES: &str = "\
Exit codes:
  0  success                             64  bad command line, or an API key is missing
  1  failed                              65  spec cannot be read or does not validate
  2  safety violation                    70  bug in orchestrator
  3  state.json is corrupt               74  root cannot be read or written
  4  paused; run it again to resume      75  root is in use by another orchestrator
  129, 130, 143  stopped by SIGHUP, SIGINT, SIGTERM; run it again to resume

Environment:
  ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL, OPENAI_API_KEY, OPENAI_BASE_URL, ORCHESTRATOR_ROOT,
  ORCHESTRATOR_IDLE_TIMEOUT, ORCHESTRATOR_RETRY_SCALE, NO_COLOR, FORCE_COLOR, CLICOLOR";

const GLOBAL: &str = "Global options";

/// Builds software from a spec with a language model: bounded, resumable at any time, sandboxed.
#[derive(Debug, Parser)]
#[command(name = "orchestrator", version, after_help = EXIT_CODES)]
pub(super) struct CliArguments {
    /// Directory of the run [default: ORCHESTRATOR_ROOT, else the current directory]
    #[arg(long, global = true, value_name = "DIR", help_heading = GLOBAL)]
    pub root: Option<PathBuf>,
    /// When output has colours
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        value_enum,
        default_value_t,
        help_heading = GLOBAL
    )]
    pub color: ColorWhen,
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The values of `--color`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ColorWhen {
    /// At a terminal, unless the environment says otherwise.
    #[default]
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(super) enum CliCommand {
    /// Write a spec for the project in a directory: its test command, what is copied and protected
    Init {
        /// The project [default: the root]
        #[arg(value_name = "DIR")]
        directory: Option<PathBuf>,
        /// Name of the spec: specs/NAME.yaml [default: that of the directory]
        #[arg(long, value_name = "NAME")]
        spec: Option<String>,
    },
    /// Show what a run finds here: sandbox, providers, programs, disk; exits with 1 if none could start
    Doctor {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Build what a spec describes, or run a workflow; resumes a run that was stopped
    #[command(after_help = EXIT_CODES)]
    Run(Box<RunArguments>),
    /// Show the state of the run in this root, and the command that goes on
    Status {
        /// An older run: its id, or the first 4 characters or more
        #[arg(long, value_name = "ID")]
        run: Option<String>,
        /// Print state.json itself, or null without a run
        #[arg(long)]
        json: bool,
    },
    /// Follow a run from another terminal, from its beginning to its end
    Watch {
        /// Run id, or its beginning [default: the run in this root]
        #[arg(value_name = "RUN")]
        run: Option<String>,
    },
    /// List the attempts of a run: files, tests, cause, tokens, cost
    Attempts {
        /// Run id, or its beginning [default: the run in this root]
        #[arg(value_name = "RUN")]
        run: Option<String>,
        /// Print a JSON list
        #[arg(long)]
        json: bool,
    },
    /// Show what changed as a patch for `git apply`: what was taken in against workspace/, or between attempts
    Diff(DiffArguments),
    /// Write a report of a run: HTML, Markdown, JSON or JUnit, from its log
    Report(ReportArguments),
    /// Bring an attempt back into workspace/; what is there is kept first
    Restore {
        /// Number of the attempt
        #[arg(value_name = "N")]
        number: u32,
        /// Run id, or its beginning [default: the run in this root]
        #[arg(long, value_name = "RUN")]
        run: Option<String>,
    },
    /// List the runs of this root, newest last
    Runs {
        /// Print a list of JSON objects
        #[arg(long)]
        json: bool,
    },
    /// Carry the changes in workspace/ back to where `copy` took the files from
    Apply {
        /// Only show what would be changed
        #[arg(long)]
        check: bool,
    },
    /// Delete state.json, and empty workspace/ after a build; logs/ and specs/ stay
    Reset,
    /// Run many specs, each in a root of its own, with one budget and one report
    #[command(subcommand)]
    Fleet(FleetCommand),
    /// Serve bash, python, editor and your own environments as NDJSON on stdin and stdout
    Serve(ServeArguments),
    /// Find mistakes in a spec or a workflow without running anything
    Lint(LintArguments),
    /// Print the JSON Schema of a spec, for editors and other programs
    Schema,
    /// Print a workflow as a Mermaid diagram
    Diagram {
        /// Workflow: a directory, or a state (.md or .sh) in one
        path: PathBuf,
    },
    /// Print a script that completes this command line in a shell
    Completions {
        /// Shell that the script is for
        #[arg(value_name = "SHELL")]
        shell: CompletionShell,
    },
    /// Print a manual page, or write those of all commands
    Man(ManArguments),
}

#[derive(Debug, Default, Args)]
#[command(group = ArgGroup::new("what").args(["path", "spec", "workflow"]))]
#[command(override_usage = "orchestrator run [OPTIONS] <PATH|--spec <FILE>|--workflow <PATH>>")]
pub(super) struct RunArguments {
    /// Spec (.yaml, .yml or .json), or the folder of a workflow
    #[arg(value_name = "PATH")]
    pub path: Option<PathBuf>,
    /// Spec: YAML, JSON, or Markdown with optional front matter
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Workflow: a folder of states, or the state to start with (.md or .sh)
    #[arg(long, value_name = "PATH")]
    pub workflow: Option<PathBuf>,
    /// How many patches the model may try, 1 to 50; overrides the spec
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub max_retries: Option<i128>,
    /// Start a new run even if there is one to resume
    #[arg(long)]
    pub no_resume: bool,
    /// Resume the run in this root; this is the default
    #[arg(long, conflicts_with = "no_resume")]
    pub resume: bool,
    /// Start a new run where the last one failed for want of retries, money, turns or time, with its workspace and report
    #[arg(long = "continue", conflicts_with_all = ["no_resume", "resume", "replay"])]
    pub continues: bool,
    /// If the run fails, leave its best attempt in workspace/
    #[arg(long)]
    pub keep_best: bool,
    /// What the run may cost, in USD; overrides the spec [default of a workflow: 10; 0: no limit]
    #[arg(long, value_name = "USD", value_parser = parse_usd, allow_negative_numbers = true)]
    pub budget: Option<f64>,
    /// anthropic, openai or claude-code, with a spec also template; overrides the spec
    #[arg(long, value_name = "P")]
    pub provider: Option<String>,
    /// Model; overrides the spec; a state of a workflow may name another
    #[arg(long, value_name = "M")]
    pub model: Option<String>,
    /// Replace a field of the spec, such as generator.temperature=0.2; the value is YAML; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = SpecSetting::parse)]
    pub set: Vec<SpecSetting>,
    /// Start a new run whose model requests are answered from this log, without network or key
    #[arg(long, value_name = "LOG")]
    pub replay: Option<PathBuf>,
    /// Keep the prompts, streams and output of every step in logs/<run_id>/
    #[arg(long)]
    pub debug: bool,
    /// Print errors and warnings only
    #[arg(long)]
    pub quiet: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
    /// Run programs without the kernel sandbox
    #[arg(long)]
    pub no_sandbox: bool,
    #[command(flatten)]
    pub workflow_flags: WorkflowFlags,
}

/// Flags of `run --workflow` that do not work with a spec.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Workflow options")]
pub(super) struct WorkflowFlags {
    /// The input of the start state
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub input: Option<String>,
    /// Where the agents work [default: workspace/ of the root]
    #[arg(long, value_name = "DIR")]
    pub project_dir: Option<PathBuf>,
    /// Price of a model, or of all, in USD per million input and output tokens; repeatable
    #[arg(long, value_name = "[MODEL=]IN,OUT", value_parser = parse_price)]
    pub price: Vec<GivenPrice>,
    /// How many states run at the same time [default: 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub jobs: Option<u32>,
    /// Seconds without output after which a model or a script is given up; 0: never [default: ORCHESTRATOR_IDLE_TIMEOUT,
    /// else 600]
    #[arg(long, value_name = "S", value_parser = parse_seconds, allow_negative_numbers = true)]
    pub timeout: Option<f64>,
    /// Give programs access to the network
    #[arg(long)]
    pub network: bool,
    /// Let programs read this path, too; repeatable
    #[arg(long, value_name = "PATH")]
    pub read: Vec<PathBuf>,
    /// Pass this variable to programs; repeatable
    #[arg(long, value_name = "NAME")]
    pub keep_env: Vec<String>,
    /// Answer the question of an agent; @FILE reads a file; repeatable
    #[arg(long, value_name = "[AGENT=]TEXT", allow_hyphen_values = true)]
    pub answer: Vec<String>,
}

/// A price on the command line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct GivenPrice {
    /// As it was given.
    pub text: String,
    pub model: Option<String>,
    pub input: f64,
    pub output: f64,
}

/// A `--price` that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("expected [MODEL=]IN,OUT in USD per million tokens, such as 3,15 or my-model=0.5,2")]
pub(super) struct InvalidPrice;

/// Reads `[MODEL=]IN,OUT`.
pub(super) fn parse_price(text: &str) -> Result<GivenPrice, InvalidPrice> {
    let (model, amounts) = match text.rsplit_once('=') {
        Some((model, amounts)) if !model.trim().is_empty() => (Some(model.trim()), amounts),
        Some(_) => return Err(InvalidPrice),
        None => (None, text),
    };
    let amount = |text: &str| parse_usd(text).map_err(|_| InvalidPrice);
    let (input, output) = amounts.split_once(',').ok_or(InvalidPrice)?;
    Ok(GivenPrice {
        text: text.to_owned(),
        model: model.map(str::to_owned),
        input: amount(input)?,
        output: amount(output)?,
    })
}

/// A `--timeout` that is not a time.
#[derive(Debug, thiserror::Error)]
#[error("expected a number of seconds, 0 for no timeout")]
struct InvalidSeconds;

fn parse_seconds(text: &str) -> Result<f64, InvalidSeconds> {
    let seconds: f64 = text.trim().parse().map_err(|_| InvalidSeconds)?;
    let is_time = std::time::Duration::try_from_secs_f64(seconds).is_ok();
    is_time.then_some(seconds).ok_or(InvalidSeconds)
}

impl WorkflowFlags {
    /// The first flag that is given, with what to do instead in the run of a spec.
    pub(super) fn first_given(&self) -> Option<(&'static str, &'static str)> {
        let given = [
            self.input
                .is_some()
                .then_some(("--input", "describe what to build in `description`")),
            self.project_dir
                .is_some()
                .then_some(("--project-dir", "a spec is built in workspace/ of --root")),
            (!self.price.is_empty()).then_some((
                "--price",
                "write `generator: {price: {input: IN, output: OUT}}` into the spec",
            )),
            self.jobs
                .is_some()
                .then_some(("--jobs", "the checks of a spec run one after the other")),
            self.timeout.is_some().then_some((
                "--timeout",
                "write `timeout` of a check or `generator.phase_timeout` into the spec",
            )),
            self.network.then_some((
                "--network",
                "write `sandbox: {network: true}` into the spec",
            )),
            (!self.read.is_empty())
                .then_some(("--read", "write `sandbox: {read: [PATH]}` into the spec")),
            (!self.keep_env.is_empty())
                .then_some(("--keep-env", "write `env` of a check into the spec")),
            (!self.answer.is_empty()).then_some(("--answer", "a spec asks no questions")),
        ];
        given.into_iter().flatten().next()
    }
}

#[derive(Debug, Args)]
pub(super) struct DiffArguments {
    /// Number of an attempt; 0: what was taken in [default: 0]
    #[arg(value_name = "A")]
    pub old: Option<u32>,
    /// Number of the attempt to compare it with [default: workspace/ as it is]
    #[arg(value_name = "B")]
    pub new: Option<u32>,
    /// Run id, or its beginning [default: the run in this root]
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Show how much of each file changed
    #[arg(long)]
    pub stat: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReportArguments {
    /// Run id, its beginning, or the path of a log [default: the run in this root, else the newest log]
    #[arg(value_name = "RUN")]
    pub run: Option<String>,
    /// Where the report is written; -: stdout [default: beside the log, and its path is printed]
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Form of the report
    #[arg(long, value_enum, default_value_t)]
    pub format: ReportFormat,
}

/// The forms of a report.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ReportFormat {
    /// One page for a browser.
    #[default]
    Html,
    /// Markdown for a pull request.
    Md,
    /// All data, for programs.
    Json,
    /// JUnit XML for CI.
    Junit,
}

#[derive(Debug, Args)]
pub(super) struct ServeArguments {
    /// Serve as an MCP server: environments as tools, screens as resources
    #[arg(long)]
    pub mcp: bool,
    /// Where the environments work [default: PROJECT_DIR, else the current directory]
    #[arg(long, value_name = "DIR")]
    pub project_dir: Option<PathBuf>,
    /// Give programs access to the network
    #[arg(long)]
    pub network: bool,
    /// Let programs read this path, too
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
#[command(group = ArgGroup::new("what").required(true).args(["path", "spec"]))]
pub(super) struct LintArguments {
    /// Workflow (a directory, or a .md or .sh state in one), or spec (.yaml, .yml or .json)
    pub path: Option<PathBuf>,
    /// Spec: YAML, JSON, or Markdown with optional front matter
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Print the findings as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// The shells with a completion script.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(super) enum CompletionShell {
    Bash,
    Zsh,
    Fish,
}

#[derive(Debug, Args)]
pub(super) struct ManArguments {
    /// Print the page of this command, such as run or fleet run [default: the page of orchestrator]
    #[arg(value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Write the pages of all commands to this directory, and print nothing
    #[arg(short, long, value_name = "DIR", conflicts_with = "command")]
    pub output: Option<PathBuf>,
}

/// A `--budget` that is not an amount of money.
#[derive(Debug, PartialEq, thiserror::Error)]
#[error("expected an amount in USD that is not negative, such as 2.50")]
pub(super) struct InvalidUsd;

pub(super) fn parse_usd(text: &str) -> Result<f64, InvalidUsd> {
    let usd: f64 = text.trim().parse().map_err(|_| InvalidUsd)?;
    if usd.is_finite() && usd >= 0.0 {
        Ok(usd)
    } else {
        Err(InvalidUsd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_has_two_amounts() {
        let read = |text: &str| {
            let price = parse_price(text).ok()?;
            Some((price.model, price.input, price.output))
        };
        assert_eq!(read("3,15"), Some((None, 3.0, 15.0)));
        assert_eq!(read("a/b=0.5,2"), Some((Some("a/b".into()), 0.5, 2.0)));
        for text in ["", "3", "3,15,1", "x,1", "=1,2", "a=1", "-1,2", "nan,1"] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_budget_is_a_finite_number_that_is_not_negative() {
        for (text, expected) in [("0", 0.0), ("2.5", 2.5), ("1e-3", 0.001), (" 7 ", 7.0)] {
            assert_eq!(parse_usd(text), Ok(expected), "{text}");
        }
        for text in [
            "nan", "inf", "-1", "-0.01", "", "five", "1,5", "$1", "1e400",
        ] {
            assert!(parse_usd(text).is_err(), "{text}");
        }
    }
}
