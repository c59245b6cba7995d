//! The features, tested through the binary in an empty folder with a cleared environment.
//!
//! `support/` has what the tests share: projects, the scripted model, a client of `serve`;
//! the rest is a file per feature.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and prepares its own files and processes"
)]

mod agent_bounds;
mod agent_files;
mod agent_mode;
mod agent_prompts;
mod agent_replay;
mod agent_resume;
mod agent_tools;
mod answers;
mod apply;
mod attacks;
mod attempts;
mod baseline;
mod broken_connections;
mod budget;
mod build_loop;
mod caches;
mod check_rounds;
mod checks;
mod child_env;
mod ci_page;
mod claude_agent;
mod claude_code;
mod claude_real;
mod cli;
mod clock;
mod completions;
mod console;
mod continued;
mod crash;
mod damaged_log;
mod debug;
mod diffs;
mod disk_faults;
mod doc_commands;
mod doc_sessions;
mod docs;
mod doctor;
mod env_adhoc;
mod env_bash;
mod env_programs;
mod env_python;
mod evidence;
mod examples;
mod existing_project;
mod external_changes;
mod flags;
mod fleet;
mod fleet_slurm;
mod fleet_slurm_losses;
mod github;
mod init;
mod inputs;
mod interrupts;
mod lint;
mod mcp_environment;
mod mcp_server;
mod missing_programs;
mod model_requests;
mod odd_paths;
mod openai_servers;
mod packaging;
mod power_cut;
mod prepared;
mod process;
mod prompts;
mod protected_files;
mod redaction;
mod refused_answers;
mod replay;
mod report;
mod report_formats;
mod report_page;
mod rerun_after_success;
mod resource_limits;
mod resume;
mod run_identity;
mod runs;
mod sandbox_modes;
mod schema;
mod serve;
mod serve_control;
mod snapshot_crash;
mod snapshot_power_cut;
mod soak;
mod spec_mistakes;
mod status;
mod stuck;
mod support;
mod tampering;
mod terminal;
mod tidy;
mod watch;
mod watched_output;
mod workflow_budget;
mod workflow_caching;
mod workflow_claude;
mod workflow_concurrency;
mod workflow_console;
mod workflow_crash;
mod workflow_examples;
mod workflow_fixtures;
mod workflow_policy;
mod workflow_power_cut;
mod workflow_replay;
mod workflow_resume;
mod workflow_sandbox;
mod workflow_scripts;
mod workflow_state;
mod workflow_transitions;
