//! Orchestrator23: a model builds software on a laptop, bounded, resumable at any instant, contained.
//!
//! The modules are listed by layer, lowest first: calls go down, never up or sideways (`ARCHITECTURE.md`).

#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        reason = "tests prepare their own files and environment"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "orchestrator builds on Linux only: its sandbox is made of namespaces, Landlock and seccomp. Build it on Linux, in a container or in a virtual machine."
);

// The modules are left out on other systems, so that the message above is the only error.
#[cfg(target_os = "linux")]
mod cancel;
#[cfg(target_os = "linux")]
mod diff;
#[cfg(target_os = "linux")]
mod error;
#[cfg(target_os = "linux")]
mod events;
#[cfg(target_os = "linux")]
mod html;
#[cfg(target_os = "linux")]
mod json_rpc;
#[cfg(target_os = "linux")]
mod regular_file;
#[cfg(target_os = "linux")]
mod secrets;
#[cfg(target_os = "linux")]
mod source;
#[cfg(target_os = "linux")]
mod state;
#[cfg(target_os = "linux")]
mod text;

#[cfg(target_os = "linux")]
mod workspace;

#[cfg(target_os = "linux")]
mod snapshots;

#[cfg(target_os = "linux")]
mod process;

#[cfg(target_os = "linux")]
mod apply;
#[cfg(target_os = "linux")]
mod environments;
#[cfg(target_os = "linux")]
mod llm;

#[cfg(target_os = "linux")]
mod conversation;

#[cfg(target_os = "linux")]
mod build;
#[cfg(target_os = "linux")]
mod fleet;
#[cfg(target_os = "linux")]
mod report;
#[cfg(target_os = "linux")]
mod server;
#[cfg(target_os = "linux")]
mod workflow;

#[cfg(target_os = "linux")]
mod observers;

#[cfg(target_os = "linux")]
mod cli;

/// What `main.rs` dispatches to.
#[cfg(target_os = "linux")]
pub mod entry_points {
    pub use crate::cli::main as cli;
    pub use crate::llm::mcp::{RELAY_COMMAND, relay::main as relay};
    pub use crate::process::{SUPERVISOR_COMMAND, supervisor::main as supervisor};
}

#[cfg(target_os = "linux")]
#[doc(hidden)]
pub mod internals;
