//! `env/NAME.mcp.yaml`: an environment whose commands are calls of the tools of an MCP server.
//!
//! `environment.rs` is the environment, `connection.rs` the client of the protocol, `command.rs` reads `TOOL {json}`, `tools.rs` is
//! the list of tools for the screen, `content.rs` the text of a result.

mod command;
mod connection;
mod content;
pub(crate) mod environment;
pub(super) mod program;
mod tools;
