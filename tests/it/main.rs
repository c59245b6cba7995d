//! The features, tested through the binary in an empty folder with a cleared environment.
//!
//! `project.rs` is the language of the tests, `server.rs` the model that they script, `agent.rs` the
//! agent that `serve` serves; the rest is a file per feature.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and sets its own scene"
)]

mod agent;
mod agent_bounds;
mod agent_files;
mod agent_mode;
mod agent_prompts;
mod agent_replay;
mod agent_resume;
mod agent_tools;
mod answers;
mod attacks;
mod caches;
mod changed_success;
mod checks;
mod claude;
mod claude_agent;
mod claude_code;
mod claude_real;
mod cli;
mod clock;
mod console;
mod crash;
mod damage;
mod debug;
mod disk;
mod env_adhoc;
mod env_bash;
mod env_programs;
mod env_python;
mod evidence;
mod examples;
mod flags;
mod identity;
mod limits;
mod r#loop;
mod model;
mod modes;
mod money;
mod needs;
mod places;
mod power;
mod process;
mod programs;
mod project;
mod protected;
mod redaction;
mod refused;
mod replay;
mod reply;
mod resume;
mod rounds;
mod running;
mod serve;
mod serve_control;
mod server;
mod servers;
mod soak;
mod streams;
mod surroundings;
mod taken;
mod tampering;
mod tidy;
mod told;
mod upheaval;
