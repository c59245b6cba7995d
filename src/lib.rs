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
pub mod cancel;
#[cfg(target_os = "linux")]
pub mod error;
#[cfg(target_os = "linux")]
pub mod events;
#[cfg(target_os = "linux")]
pub mod regular_file;
#[cfg(target_os = "linux")]
pub mod secrets;
#[cfg(target_os = "linux")]
pub mod state;
#[cfg(target_os = "linux")]
pub mod text;

#[cfg(target_os = "linux")]
pub mod workspace;

#[cfg(target_os = "linux")]
pub mod process;

#[cfg(target_os = "linux")]
pub mod environments;
#[cfg(target_os = "linux")]
pub mod llm;

#[cfg(target_os = "linux")]
pub mod conversation;

#[cfg(target_os = "linux")]
pub mod build;
#[cfg(target_os = "linux")]
pub mod server;

#[cfg(target_os = "linux")]
pub mod observers;

#[cfg(target_os = "linux")]
pub mod cli;
