//! Engines: what places tasks, starts them, and starts them again elsewhere.

pub(crate) mod local;
pub(crate) mod slurm;

use std::collections::BTreeMap;
use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::cancel::{CancelToken, Signal};
use crate::error::Result;

/// The engines by their names on the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EngineName {
    #[default]
    Local,
    Slurm,
}

/// An entry for an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EngineTask {
    pub(crate) index: usize,
    pub(crate) name: String,
}

/// What an engine knows of its tasks at a moment.
#[derive(Debug)]
pub(crate) enum QueueReading {
    Known(EngineQueue),
    /// The engine did not answer, and why. Nothing is concluded from that.
    Unknown(String),
}

#[derive(Debug, Default)]
pub(crate) struct EngineQueue {
    /// The tasks that are queued or run, by the index of their entry.
    pub(crate) tasks: BTreeMap<usize, QueuedTask>,
    /// What is known of tasks that have ended since the last reading.
    pub(crate) ended: BTreeMap<usize, EndedTask>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum QueuedTask {
    Running,
    /// It waits, and for what.
    Pending(String),
}

/// A task that has ended; whether its entry is over follows from the result alone.
#[derive(Debug, Default)]
pub(crate) struct EndedTask {
    pub(crate) exit_code: Option<i32>,
    /// The end of what it printed.
    pub(crate) printed: String,
}

/// Why tasks could not be started.
#[derive(Debug)]
pub(crate) struct StartFailure {
    /// What the engine said.
    pub(crate) message: String,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EngineWait {
    /// Something may have changed.
    Over,
    Stopped(Signal),
}

pub(crate) trait Engine {
    /// What is queued or runs now.
    fn read_queue(&mut self) -> Result<QueueReading>;

    /// Which of the tasks that are ready can be started now, beside those that are out.
    fn select(&self, ready: &[EngineTask], out: &EngineQueue) -> Vec<EngineTask>;

    /// Starts tasks.
    fn start(&mut self, tasks: &[EngineTask]) -> std::result::Result<(), StartFailure>;

    /// Stops tasks that are queued or run, as an interrupt would.
    fn stop(&mut self, tasks: &[EngineTask]);

    /// Takes tasks back that are queued and have not begun.
    fn withdraw(&mut self, tasks: &[EngineTask]);

    /// Waits until something may have changed, or until a time.
    fn wait(&mut self, cancel: &CancelToken, until: Option<Instant>) -> io::Result<EngineWait>;

    /// A signal stopped the driver: ends what must not outlive it. `say` shows a line to the user.
    fn interrupt(&mut self, out: &EngineQueue, say: &mut dyn FnMut(String));

    /// All entries are over, or nothing can go on: ends what is still queued.
    fn finish(&mut self);

    /// Whether tasks end with the driver.
    fn is_local(&self) -> bool;

    /// The end of what tasks printed, where it is not known for each.
    fn printed(&self) -> String;
}
