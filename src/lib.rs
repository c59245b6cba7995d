//! Orchestrator23: a model builds software on a laptop, bounded, resumable at any instant, contained.
//!
//! The rooms, from the ground up; calls go down, never up or sideways (`ARCHITECTURE.md`).

#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "a test sets its own scene"))]

pub mod error;
pub mod events;
pub mod secrets;
pub mod state;
pub mod stop;

pub mod safety;

pub mod process;

pub mod environments;
pub mod llm;

pub mod engine;
pub mod server;

pub mod observers;

pub mod cli;
