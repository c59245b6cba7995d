//! Starts child processes; no other folder does.
//!
//! A child never starts alone. A supervisor, this binary under a hidden command, starts it, adopts its orphans as a
//! subreaper, and kills the whole process tree when the child exits, its time is over, or the orchestrator is gone.
//! `sandbox` applies what a child may reach; `check_env` and `env` make its environment variables.

pub(crate) mod cache;
pub(crate) mod capture;
pub(crate) mod check_env;
pub(crate) mod child;
pub(crate) mod env;
mod job;
mod launch;
mod os_text;
pub(crate) mod own_process;
pub(crate) mod pager;
mod prepared;
mod process_tree;
pub(crate) mod program;
pub(crate) mod report_channel;
mod run;
pub(crate) mod sandbox;
pub(crate) mod scratch;
mod stdio;
pub(crate) mod supervisor;
pub(crate) mod wire;

pub use self::job::{Finished, Job, JobEnd};
pub use self::launch::{Launcher, SUPERVISOR_COMMAND, adopt_orphans};
pub use self::run::{JobChannels, OutputWatch, run, run_watched};
