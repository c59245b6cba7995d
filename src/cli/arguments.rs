//! The command line: commands, flags and their help.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

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
pub struct CliArguments {
    /// Where the run happens [default: ORCHESTRATOR_ROOT, else the current directory]
    #[arg(long, global = true, value_name = "DIR")]
    pub root: Option<PathBuf>,
    #[command(subcommand)]
    pub command: CliCommand,
}

#[derive(Debug, Subcommand)]
pub enum CliCommand {
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
    #[arg(long, value_name = "USD", value_parser = usd, allow_negative_numbers = true)]
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
pub struct LintArguments {
    /// A spec (.yaml, .yml, .json) or the folder of a workflow (not there yet)
    pub path: Option<PathBuf>,
    /// The spec
    #[arg(long, value_name = "FILE")]
    pub spec: Option<PathBuf>,
    /// Print the result as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// Reads a sum of money of the command line.
pub fn usd(text: &str) -> std::result::Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(usd) if usd.is_finite() && usd >= 0.0 => Ok(usd),
        _ => Err("expected an amount in USD that is not negative, such as 2.50".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn money_is_a_finite_number_that_is_not_negative() {
        for (text, expected) in [("0", 0.0), ("2.5", 2.5), ("1e-3", 0.001), (" 7 ", 7.0)] {
            assert_eq!(usd(text), Ok(expected), "{text}");
        }
        for text in [
            "nan", "inf", "-1", "-0.01", "", "five", "1,5", "$1", "1e400",
        ] {
            assert!(usd(text).is_err(), "{text}");
        }
    }
}
