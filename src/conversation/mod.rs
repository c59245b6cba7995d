//! A recorded conversation of one agent with a model and tools, for any loop that needs one.
//!
//! A build phase is one conversation today. Nothing here knows of phases or specs: a conversation is keyed by its agent
//! and an opaque scope, and its loop decides what it opens with and when its end is accepted. `event_log.rs` records,
//! `log_state.rs` is what follows from the record, `model_call.rs` asks a model exactly once, `turns.rs` is the
//! loop of answers and tool calls. Several conversations of one run may go on at once, in threads of their own: they share
//! the log, and with it the budget.

pub(crate) mod agent;
pub(crate) mod budget;
pub(crate) mod context_window;
mod damaged_log;
pub(crate) mod event_log;
pub(crate) mod history;
mod inline_calls;
pub(crate) mod log_state;
pub(crate) mod model_call;
pub(crate) mod replay;
pub(crate) mod restart;
pub(crate) mod session;
pub(crate) mod state;
mod tool_bridge;
pub(crate) mod tool_text;
pub(crate) mod tools;
pub(crate) mod toolset;
pub(crate) mod turns;
pub(crate) mod usage;
pub(crate) mod workspace_files;

#[cfg(test)]
pub(crate) mod prefix_check;
#[cfg(test)]
mod tests;
