//! What survives a crash: the phase machine, `state.json`, its lock, and the journal.
//!
//! Only `phase.rs` decides what comes next; nothing here uses a model, a child or the console.

pub mod journal;
pub mod phase;
pub mod reason;
pub mod run;
pub mod store;
