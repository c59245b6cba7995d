//! Finds where `main.rs` gets the commit for `--version`: from git in a checkout, from this file in an archive.
//!
//! It runs once, not at each commit: the macro in `main.rs` watches git, so that a commit rebuilds the program alone.

#![allow(clippy::print_stdout, reason = "cargo reads stdout")]

use std::path::Path;

/// `git archive` writes the commit here (`.gitattributes`).
const ARCHIVED: &str = "$Format:%h$";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(git_checkout)");
    // A `.git` further up belongs to another project.
    if Path::new(".git").exists() {
        println!("cargo::rustc-cfg=git_checkout");
    } else if !ARCHIVED.contains('$') {
        println!("cargo::rustc-env=ORCHESTRATOR_COMMIT={ARCHIVED}");
    }
}
