//! Subscribers of the event bus: the console and the debug files. They know only events and cannot fail a run.
//!
//! `event_text.rs` renders an event of a build as lines, `check_text.rs` the end of a check, `workflow_text.rs` an event of
//! a workflow; `console.rs` writes them.
//! `debug.rs` keeps one set of files per step of a build, `workflow_debug.rs` per step of a workflow's agents,
//! `error_reports.rs` one report per error of theirs; `debug_dir.rs` is what they share.
//!
//! Foreign text passes `text::invisible` before it reaches a terminal.

mod check_text;
pub(crate) mod console;
pub(crate) mod debug;
mod debug_dir;
mod error_reports;
mod event_text;
mod workflow_debug;
pub(crate) mod workflow_text;
