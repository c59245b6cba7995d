//! Who listens: the console and the debug files. They cannot fail a run and know nothing but events.
//!
//! `lines.rs` says what an event is in words, `console.rs` where the words go, `plain.rs` what of a foreign text may
//! reach a terminal. `debug.rs` keeps one set of files per step.

pub mod console;
pub mod debug;
mod event_text;
pub mod printable;
