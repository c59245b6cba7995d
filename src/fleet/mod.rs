//! Many roots below one directory: the plan, the money, the results, and the loop that starts tasks on an engine.
//!
//! An engine places and restarts tasks; `engine/` has those that are known. A task is one run in one root; how it is run
//! is up to the caller. The driver keeps no state: plan, results, ledger and the engine's queue are all there is.

pub(crate) mod driver;
pub(crate) mod engine;
pub(crate) mod folder;
pub(crate) mod ledger;
pub(crate) mod names;
mod pauses;
pub(crate) mod plan;
pub(crate) mod task_result;
pub(crate) mod tracked_entry;
