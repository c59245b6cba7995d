//! Starts child processes; no other folder does.
//!
//! A child never starts alone. A supervisor, this binary under a hidden command, starts it, adopts its orphans as a
//! subreaper, and kills the whole process tree when the child exits, its time is over, or the orchestrator is gone.
//! `sandbox` applies what a child may reach; `check_env` and `env` make its environment variables.

pub mod cache;
pub mod capture;
pub mod check_env;
pub mod child;
pub mod env;
mod job;
mod launch;
mod os_text;
mod process_tree;
pub mod program;
pub mod report_channel;
mod run;
pub mod sandbox;
pub mod scratch;
mod stdio;
pub mod supervisor;
pub mod wire;

pub use self::job::{Finished, Job, JobEnd};
pub use self::launch::{Launcher, SUPERVISOR_COMMAND, adopt_orphans};
pub use self::run::{run, run_with};
