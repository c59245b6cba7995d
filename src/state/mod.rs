//! What survives a crash: the phase machine, `state.json`, its lock, and the journal.
//!
//! Nothing here decides what to do next but `phase.rs`; nothing here talks to a model, a child or the console.

pub mod journal;
pub mod phase;
pub mod reason;
pub mod run;
pub mod store;
