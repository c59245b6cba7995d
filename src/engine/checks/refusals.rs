//! Finds in the output of a failed check what the sandbox refused, and says it in words that can be acted upon.
//!
//! Programs tell of a wall in the words of the system: "Read-only file system", "Temporary failure in name resolution".
//! Who does not know of the wall looks for a bug. What is found is a guess by the words: it explains a failure, and
//! decides nothing.

use std::path::Path;

use super::text::escaped;
use crate::process::sandbox::Walls;
use crate::process::sandbox::policy::Reach;
use crate::process::sandbox::watch::size;

/// What can be refused, and the words that tell of it, in lower case.
const SIGNS: [(Kind, &[&str]); 10] = [
    (Kind::Write, &["read-only file system", "erofs"]),
    (Kind::Access, &["permission denied:", "permission denied", "eacces"]),
    (Kind::Missing, &["no such file or directory", "enoent"]),
    (
        Kind::Package,
        &[
            "no matching distribution found",
            "enotcached",
            "using offline mode",
            "module lookup disabled by goproxy=off",
            "network was disabled",
            "unable to download while in offline mode",
        ],
    ),
    (
        Kind::Network,
        &[
            "temporary failure in name resolution",
            "name or service not known",
            "network is unreachable",
            "could not resolve host",
            "eai_again",
            "enotfound",
            "enetunreach",
            "unknownhostexception",
            "no such host",
            "nodename nor servname",
            "couldn't connect to server",
        ],
    ),
    (
        Kind::Processes,
        &[
            "can't start new thread",
            "resource temporarily unavailable",
            "cannot fork",
            "uv_thread_create",
            "pthread_create failed",
            "failed to spawn thread",
            "unable to create native thread",
        ],
    ),
    (Kind::Space, &["no space left on device", "enospc"]),
    (Kind::Memory, &["cannot allocate memory", "memoryerror", "enomem", "out of memory", "std::bad_alloc"]),
    (Kind::FileSize, &["file too large", "efbig", "file size limit exceeded"]),
    (Kind::Rights, &["operation not permitted", "eperm", "must be superuser", "no new privileges"]),
];

/// How much of the output is looked at, and how much is said at most.
const MAX_LINES: usize = 20_000;
const MAX_LINE: usize = 2_000;
const MAX_TOLD: usize = 6;
const MAX_PATH: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Write,
    Access,
    Missing,
    Package,
    Network,
    Processes,
    Space,
    Memory,
    FileSize,
    Rights,
}

/// Returns what the walls refused, as far as the output tells: one sentence for each, without repetition.
pub fn refusals(stdout: &str, stderr: &str, walls: &Walls) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for text in [stderr, stdout] {
        let mut before = "";
        for line in text.lines().take(MAX_LINES).filter(|line| line.len() <= MAX_LINE && !line.trim().is_empty()) {
            let sentence = kind_of(line).and_then(|kind| sentence(kind, line, before, walls));
            if let Some(sentence) = sentence.filter(|sentence| !told.contains(sentence)) {
                told.push(sentence);
            }
            let is_filling = line.trim_start().starts_with("Caused by") || !line.contains(char::is_alphanumeric);
            before = if is_filling { before } else { line };
        }
    }
    told.truncate(MAX_TOLD);
    told
}

fn kind_of(line: &str) -> Option<Kind> {
    let line = line.to_lowercase();
    let is_told = |words: &&[&str]| words.iter().any(|words| line.contains(words));
    SIGNS.iter().find(|(_, words)| is_told(words)).map(|(kind, _)| *kind)
}

fn sentence(kind: Kind, line: &str, before: &str, walls: &Walls) -> Option<String> {
    let limits = &walls.limits;
    match kind {
        Kind::Write => Some(write_refused(path_in(line).or_else(|| path_in(before)), walls)),
        Kind::Access => {
            let path = path_in(line).filter(|path| is_outside(path, walls))?;
            Some(format!("access to {} was refused: {ONLY}", shown(path)))
        }
        Kind::Missing => {
            let path = path_in(line).filter(|path| is_outside(path, walls) && is_closed(path, walls))?;
            Some(format!("{} is not there inside the sandbox: {ONLY}", shown(path)))
        }
        Kind::Package if walls.network => None,
        Kind::Package => Some(
            "packages cannot be downloaded, there is no network: use what is installed, or write what is needed".into(),
        ),
        Kind::Network if walls.network => None,
        Kind::Network => Some(
            "the network was refused: nothing but an own loopback can be reached; do without it, or stand in for the \
             server in the test"
                .into(),
        ),
        // A socket that has nothing to say yet is told of in the same words.
        Kind::Processes if !speaks_of_a_start(line) && !speaks_of_a_start(before) => None,
        Kind::Processes => Some(format!(
            "a process or thread was refused: the limit is {} (sandbox.limits.processes)",
            limits.processes
        )),
        Kind::Space => Some(format!(
            "there was no space left: /tmp and the home hold {} together; keep large files in the workspace",
            size(limits.private)
        )),
        Kind::Memory => {
            Some(format!("memory was refused: the limit is {} (sandbox.limits.memory)", size(limits.memory)))
        }
        Kind::FileSize => Some(too_large(walls)),
        Kind::Rights => Some(
            "an operation that reaches beyond the sandbox was refused (mounts, other users, foreign processes); do \
             without it"
                .into(),
        ),
    }
}

/// Returns what is said of a file that is larger than a file may be.
pub fn too_large(walls: &Walls) -> String {
    format!("a file that grew too large was refused: one file holds {}", size(walls.limits.file_size))
}

fn speaks_of_a_start(line: &str) -> bool {
    let line = line.to_lowercase();
    ["fork", "thread", "spawn", "popen", "clone"].iter().any(|word| line.contains(word))
}

const ONLY: &str = "only the workspace, the system and the toolchains can be read";

fn write_refused(path: Option<&str>, walls: &Walls) -> String {
    let inside = |path: &str| walls.write.first().is_some_and(|workspace| Path::new(path).starts_with(workspace));
    match path {
        Some(path) if inside(path) => format!("write to {} refused: it is protected", shown(path)),
        Some(path) => format!("write outside workspace refused: {}; {INSTEAD}", shown(path)),
        None => format!("write outside workspace refused; {INSTEAD}"),
    }
}

const INSTEAD: &str = "write below the workspace, $TMPDIR or $HOME instead";

/// Whether a path is none of those that a check has for itself.
fn is_outside(path: &str, walls: &Walls) -> bool {
    let own = walls.write.iter().chain([&walls.home, &walls.tmp]);
    !own.into_iter().any(|place| Path::new(path).starts_with(place)) && !path.starts_with("/dev/")
}

fn is_closed(path: &str, walls: &Walls) -> bool {
    walls.reach(Path::new(path)) == Reach::Nothing && !path.starts_with("/proc/")
}

/// Returns the first absolute path in a line.
fn path_in(line: &str) -> Option<&str> {
    let is_edge = |c: char| c.is_whitespace() || "'\"`‘’“”:,;()<>[]{}=".contains(c);
    let mut words = line.split(is_edge);
    words.find(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"))
}

fn shown(path: &str) -> String {
    let path = escaped(path);
    match path.len() <= MAX_PATH {
        true => path,
        false => format!("{}...", &path[..path.floor_char_boundary(MAX_PATH)]),
    }
}

#[cfg(test)]
mod tests;
