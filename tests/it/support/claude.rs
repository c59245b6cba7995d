//! `claude` for the tests: the real program, installed once, and a fake that follows a plan.
//!
//! A plan is a few lines of shell for one call; the fake records how it was started before it runs them. Its
//! output is a stream that the real program has printed, with other texts.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::needs;
use crate::support::project::Project;

/// The version that the recorded stream is of.
const VERSION: &str = "2.1.325";
const ANSWER: &str = include_str!("claude/answer.jsonl");

const STAND_IN: &str = r#"#!/bin/bash
here=$(dirname "$0")
call=0
until mkdir "$here/call$call" 2>/dev/null; do call=$((call + 1)); done
ls -A > "$here/call$call/files"
pwd > "$here/call$call/cwd"
printf '%s\0' "$@" > "$here/call$call/arguments"
env -0 > "$here/call$call/environment"
cat > "$here/call$call/stdin"
touch "$here/call$call/ready"
. "$here/plan$call"
"#;

/// The folder with the real program; the test is skipped where it cannot be installed.
pub(crate) fn real() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| {
        let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("claude-code-{VERSION}"));
        let folder = prefix.join("node_modules/.bin");
        let is_there = || runs(&folder.join("claude"));
        (is_there() || (install(&prefix) && is_there())).then_some(folder)
    });
    if folder.is_none() {
        needs::skip(
            "the real claude cannot be installed here (npm install @anthropic-ai/claude-code)",
        );
    }
    folder.as_deref()
}

/// Installs into a temporary folder and renames it, since two test runs may do so at once.
fn install(prefix: &Path) -> bool {
    let staged = prefix.with_extension(std::process::id().to_string());
    let installed = Command::new("npm")
        .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
        .arg(&staged)
        .arg(format!("@anthropic-ai/claude-code@{VERSION}"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    let moved = installed && fs::rename(&staged, prefix).is_ok();
    let _ = fs::remove_dir_all(&staged);
    moved || installed
}

fn runs(program: &Path) -> bool {
    let version = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    version.is_ok_and(|version| version.status.success())
}

/// A fake `claude` on the project's PATH, in a folder of its own.
pub(crate) struct Claude {
    folder: TempDir,
}

/// How one call was started.
pub(crate) struct Call {
    pub arguments: Vec<String>,
    pub stdin: String,
    pub environment: Vec<String>,
    pub cwd: String,
    pub files: String,
}

impl Call {
    /// The value of a flag, in either form.
    pub(crate) fn flag(&self, name: &str) -> Option<&str> {
        let joined = self
            .arguments
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        let next = || {
            self.arguments
                .get(self.arguments.iter().position(|word| word == name)? + 1)
        };
        joined.or_else(|| next().map(String::as_str))
    }

    /// A variable of its environment.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        self.environment
            .iter()
            .find_map(|entry| entry.strip_prefix(name)?.strip_prefix('='))
    }
}

impl Claude {
    /// Puts a fake `claude` with these plans first on the project's PATH.
    pub(crate) fn fake(project: Project, plans: &[String]) -> (Project, Claude) {
        let claude = Claude {
            folder: TempDir::with_prefix("orchestrator-claude-").unwrap(),
        };
        let program = claude.path("claude");
        fs::write(&program, STAND_IN).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for (call, plan) in plans.iter().enumerate() {
            fs::write(claude.path(&format!("plan{call}")), plan).unwrap();
        }
        let path = format!(
            "{}:/usr/local/bin:/usr/bin:/bin",
            claude.folder.path().display()
        );
        (project.env("PATH", &path), claude)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Whether this many calls have reached their plan.
    pub(crate) fn has_begun(&self, calls: usize) -> bool {
        (0..calls).all(|call| self.path(&format!("call{call}/ready")).exists())
    }

    /// How many calls there were.
    pub(crate) fn count(&self) -> usize {
        (0..)
            .take_while(|call| self.path(&format!("call{call}")).exists())
            .count()
    }

    /// What the client in a call's plan stored.
    pub(crate) fn stored(&self, number: usize) -> Value {
        serde_json::from_slice(&fs::read(self.path(&format!("call{number}/kept"))).unwrap())
            .unwrap()
    }

    /// How a call was started.
    pub(crate) fn call(&self, number: usize) -> Call {
        let read = |name: &str| {
            let path = self.path(&format!("call{number}/{name}"));
            String::from_utf8_lossy(
                &fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            )
            .into_owned()
        };
        let list = |name: &str| {
            read(name)
                .split_terminator('\0')
                .map(str::to_owned)
                .collect()
        };
        Call {
            arguments: list("arguments"),
            stdin: read("stdin"),
            environment: list("environment"),
            cwd: read("cwd").trim_end().to_owned(),
            files: read("files"),
        }
    }
}

/// A plan that prints these lines.
pub(crate) fn says(lines: &str) -> String {
    format!(
        "cat <<'END-OF-STREAM'\n{}\nEND-OF-STREAM\n",
        lines.trim_end()
    )
}

/// A plan that gives this answer.
pub(crate) fn answers(text: &str) -> String {
    says(&stream(text, &json!({})))
}

/// The recorded stream with this text, and with these fields in its result.
pub(crate) fn stream(text: &str, result: &Value) -> String {
    let mut lines = String::new();
    for line in ANSWER.lines() {
        let mut value: Value = serde_json::from_str(line).unwrap();
        match value["type"].as_str() {
            Some("assistant") => value["message"]["content"][0]["text"] = text.into(),
            Some("result") => {
                value["result"] = text.into();
                for (name, field) in result.as_object().unwrap() {
                    value[name] = field.clone();
                }
            }
            _ => {}
        }
        lines += &format!("{value}\n");
    }
    lines
}
