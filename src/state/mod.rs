//! What survives a crash: the phase machine, `state.json`, its lock, and the journal.
//!
//! Only `phase.rs` decides what comes next; nothing here uses a model, a child or the console.

pub(crate) mod background;
pub(crate) mod file_lock;
pub(crate) mod journal;
pub(crate) mod kept_state;
pub(crate) mod lock_holder;
pub(crate) mod phase;
pub(crate) mod reason;
pub(crate) mod run;
pub(crate) mod store;
pub(crate) mod workflow;
pub(crate) mod writeback;
