//! Text files that the user writes: read, parsed with positions, and shown where something in them is wrong.
//!
//! `text_file.rs` reads, `yaml.rs` makes a tree of values with positions (`node.rs`), `yaml_mistake.rs`, `yaml_layout.rs` and `json_mistake.rs` say why it cannot, `diagnostic.rs` shows mistakes,
//! `finding.rs` lists them by `code.rs`, `location.rs` makes errors of them, `front_matter.rs` splits a Markdown file. What the values mean is decided by the reader of each format.

pub(crate) mod code;
pub(crate) mod diagnostic;
pub(crate) mod finding;
pub(crate) mod front_matter;
mod json_mistake;
pub(crate) mod location;
pub(crate) mod node;
pub(crate) mod text_file;
pub(crate) mod yaml;
mod yaml_layout;
mod yaml_mistake;
mod yaml_scan;
