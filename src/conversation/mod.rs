//! A recorded conversation of one agent with a model and tools, for any loop that needs one.
//!
//! A build phase is one conversation today. Nothing here knows of phases or specs: a conversation is keyed by its agent
//! and an opaque scope, and its loop decides what it opens with and when its end is accepted. `event_log.rs` records,
//! `log_state.rs` is what follows from the record, `model_call.rs` asks a model exactly once, `turns.rs` is the
//! loop of answers and tool calls. Several conversations of one run may go on at once, in threads of their own: they share
//! the log, and with it the budget.

pub mod agent;
pub mod budget;
pub mod context_window;
mod damaged_log;
pub mod event_log;
pub mod history;
mod inline_calls;
pub mod log_state;
pub mod model_call;
pub mod replay;
pub mod restart;
pub mod session;
pub mod state;
mod tool_bridge;
pub mod tools;
pub mod toolset;
pub mod turns;
pub mod usage;
pub mod workspace_files;

#[cfg(test)]
mod tests;
