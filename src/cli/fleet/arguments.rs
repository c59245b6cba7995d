//! The command lines of `fleet`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::build::spec::setting::SpecSetting;
use crate::cli::arguments::parse_usd;
use crate::fleet::engine::EngineName;

#[derive(Debug, Subcommand)]
pub(crate) enum FleetCommand {
    /// Run specs until all are over, or nothing can go on; the same command goes on
    Run(FleetRunArguments),
    /// Validate the specs and write the plan; starts nothing
    Plan(FleetRunArguments),
    /// Run one entry of a plan: what every engine starts
    Task(FleetTaskArguments),
    /// Go on with a fleet as it was asked for
    Resume(FleetResumeArguments),
    /// Show the state of every entry of a fleet
    Status {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Write a page with all entries, or print the data of it
    Report {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Where the page is written [default: DIR/report.html]
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// Print one JSON object instead
        #[arg(long)]
        json: bool,
    },
    /// Stop entries; the next `fleet run` or `fleet resume` starts them again
    Cancel {
        /// Directory of the fleet
        #[arg(value_name = "DIR")]
        directory: PathBuf,
        /// Names of entries [default: all that are not over]
        #[arg(value_name = "NAME", allow_hyphen_values = true)]
        names: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct FleetRunArguments {
    /// Specs: files, folders of them, globs in quotes ('specs/**/*.yaml'), or manifests (.jsonl)
    #[arg(value_name = "SPECS", required = true)]
    pub(super) specs: Vec<String>,
    /// Directory of the fleet
    #[arg(long, value_name = "DIR", default_value = "./fleet")]
    pub(super) out: PathBuf,
    /// What starts the tasks
    #[arg(long, value_enum, default_value_t)]
    pub(super) engine: EngineWord,
    /// How many tasks run at the same time [default: of local the number of cpus, of slurm no limit]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) jobs: Option<u32>,
    /// What all entries together may cost, in USD
    #[arg(long, value_name = "USD", value_parser = parse_usd, allow_negative_numbers = true)]
    pub(super) budget: Option<f64>,
    /// Run each spec so many times, in roots of their own
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) repeat: u32,
    /// One entry per value; KEY is provider, model, max_retries or a field of the spec; repeatable
    #[arg(long, value_name = "KEY=V1,V2")]
    pub(super) matrix: Vec<String>,
    /// Replace a field of every spec, such as generator.temperature=0.2; the value is YAML; repeatable
    #[arg(long, value_name = "KEY=VALUE", value_parser = SpecSetting::parse)]
    pub(super) set: Vec<SpecSetting>,
    #[command(flatten)]
    pub(super) slurm: SlurmFlags,
    #[command(flatten)]
    pub(super) output: FleetOutputFlags,
    /// Run programs without the kernel sandbox
    #[arg(long)]
    pub(super) no_sandbox: bool,
}

/// What a task may use; `local` ignores it.
#[derive(Debug, Args)]
#[command(next_help_heading = "Slurm options")]
pub(crate) struct SlurmFlags {
    /// Cpus of a task
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) cpus: Option<u32>,
    /// Memory of a task, such as 4G
    #[arg(long, value_name = "SIZE")]
    pub(super) mem: Option<String>,
    /// Seconds after which a task is stopped, and started again
    #[arg(long, value_name = "S", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) time_limit: Option<u64>,
    /// A further argument of sbatch; repeatable
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub(super) sbatch: Vec<String>,
    /// Leave once the first tasks are submitted
    #[arg(long)]
    pub(super) detach: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FleetOutputFlags {
    /// Only show which entries there are; writes nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// Print failures only
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct FleetTaskArguments {
    /// Directory of the fleet
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    /// Name of the entry, or its index
    #[arg(value_name = "NAME|INDEX", allow_hyphen_values = true)]
    pub(super) entry: String,
    /// Seconds to wait for another task of the same entry
    #[arg(long, value_name = "S", default_value_t = 600)]
    pub(super) wait_lock: u64,
    /// The driver that started this task, which ends with it
    #[arg(long, value_name = "PID", hide = true)]
    pub(super) driver: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct FleetResumeArguments {
    /// Directory of the fleet
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
    /// Another limit of what all entries together may cost, in USD
    #[arg(long, value_name = "USD", value_parser = parse_usd, allow_negative_numbers = true)]
    pub(super) budget: Option<f64>,
    /// Another number of tasks that run at the same time
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) jobs: Option<u32>,
    /// Another engine
    #[arg(long, value_enum)]
    pub(super) engine: Option<EngineWord>,
    /// Continue entries that failed for want of retries, money, turns or time, too
    #[arg(long)]
    pub(super) failed: bool,
    /// Leave once the first tasks are submitted
    #[arg(long)]
    pub(super) detach: bool,
    /// Print failures only
    #[arg(long)]
    pub(super) quiet: bool,
    /// Print the result as one JSON object
    #[arg(long)]
    pub(super) json: bool,
}

/// The values of `--engine`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum EngineWord {
    /// Processes on this machine.
    #[default]
    Local,
    /// Jobs of a Slurm cluster.
    Slurm,
}

impl EngineWord {
    pub(super) fn name(self) -> EngineName {
        match self {
            EngineWord::Local => EngineName::Local,
            EngineWord::Slurm => EngineName::Slurm,
        }
    }
}
