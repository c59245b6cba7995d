//! Subscribers of the event bus: the console and the debug files. They know only events and cannot fail a run.
//!
//! `event_text.rs` renders an event as lines, `console.rs` writes them. `debug.rs` keeps one set of files per step.
//! Foreign text passes `text::invisible` before it reaches a terminal.

pub(crate) mod console;
pub(crate) mod debug;
mod event_text;
