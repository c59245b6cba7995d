//! Finds in the output of a failed check what the sandbox refused, and says it in words that can be acted upon.
//!
//! Programs report a refusal in the words of the system: "Read-only file system", "Temporary failure in name
//! resolution". A reader who does not know of the sandbox looks for a bug. Only an error in its own form counts (`EPERM`
//! as a word, `[Errno 1]`, a message of the system where programs print it), never a part of another word. What is found
//! is a guess: it explains a failure, and decides nothing.

use std::path::Path;
use std::sync::LazyLock;

use regex::RegexSet;

use crate::process::sandbox::limits::size;
use crate::process::sandbox::policy::{PathAccess, SandboxPolicy};
use crate::text::shorten::one_line;
use crate::workspace::generated::is_in_generated;

/// What can be refused, and how it is reported: error codes, messages of the system (`strerror`), and expressions for
/// the words of certain programs. The first kind that a line matches counts.
const SIGNS: [DenialSign; 11] = [
    DenialSign {
        kind: DenialKind::Write,
        codes: &["EROFS"],
        messages: &["Read-only file system"],
        own: &[],
    },
    DenialSign {
        kind: DenialKind::Busy,
        codes: &["EBUSY"],
        messages: &["Device or resource busy"],
        own: &[],
    },
    DenialSign {
        kind: DenialKind::Access,
        codes: &["EACCES"],
        messages: &["Permission denied"],
        own: &[],
    },
    DenialSign {
        kind: DenialKind::Missing,
        codes: &["ENOENT"],
        messages: &["No such file or directory"],
        own: &[],
    },
    DenialSign {
        kind: DenialKind::Package,
        codes: &["ENOTCACHED"],
        messages: &[],
        own: &[
            r"ERROR: No matching distribution found for ",
            r"you're using offline mode \(--offline\)",
            r"but --offline was specified",
            r"module lookup disabled by GOPROXY=off",
            r"because the network was disabled",
            r"unable to download while in offline mode",
        ],
    },
    DenialSign {
        kind: DenialKind::Network,
        codes: &["ENOTFOUND", "EAI_AGAIN", "ENETUNREACH"],
        messages: &[
            "Network is unreachable",
            "Temporary failure in name resolution",
            "Name or service not known",
            "nodename nor servname provided, or not known",
        ],
        own: &[
            r"Could not resolve host(?:name)?[: ]",
            r"Failed to connect to \S+ port \d+.*: Could(?:n't| not) connect to server",
            r"\blookup \S+(?: on \S+)?: no such host",
            r"\bUnknownHostException: ",
        ],
    },
    DenialSign {
        kind: DenialKind::Processes,
        codes: &[],
        messages: &["Resource temporarily unavailable", "Cannot fork"],
        own: &[
            r"RuntimeError: can't start new thread$",
            r"\buv_thread_create\b",
            r"\bpthread_create failed\b",
            r"\bfailed to spawn thread\b",
            r"\bunable to create native thread\b",
        ],
    },
    DenialSign {
        kind: DenialKind::Space,
        codes: &["ENOSPC"],
        messages: &["No space left on device"],
        own: &[],
    },
    DenialSign {
        kind: DenialKind::Memory,
        codes: &["ENOMEM"],
        messages: &["Cannot allocate memory"],
        own: &[
            r"(?:^|\s)MemoryError(?:$|: )",
            r"\bruntime: out of memory",
            r"\bheap out of memory\b",
            r"\bjava\.lang\.OutOfMemoryError\b",
            r"\bstd::bad_alloc\b",
        ],
    },
    DenialSign {
        kind: DenialKind::FileSize,
        codes: &["EFBIG"],
        messages: &["File too large"],
        own: &[r"(?:^|: )File size limit exceeded"],
    },
    DenialSign {
        kind: DenialKind::Rights,
        codes: &["EPERM"],
        messages: &["Operation not permitted"],
        own: &[
            r": must be superuser to ",
            r#"The "no new privileges" flag is set"#,
        ],
    },
];

/// Calls that Go names before the system's message: `connect: network is unreachable`.
const CALLS: &str = "accept|bind|chmod|chown|chroot|clone|connect|dup|exec|fork|ioctl|kill|link|listen|mkdir|mkdirat|mmap|mount\
                     |open|openat|pipe|ptrace|read|remove|rename|sendto|setgid|setns|setuid|socket|stat|symlink|truncate\
                     |unlink|unlinkat|unshare|write";

struct DenialSign {
    kind: DenialKind,
    codes: &'static [&'static str],
    messages: &'static [&'static str],
    own: &'static [&'static str],
}

/// The expressions of all signs, each with its kind.
struct DenialTable {
    kinds: Vec<DenialKind>,
    set: RegexSet,
}

impl DenialTable {
    fn new(patterns: impl Iterator<Item = (DenialKind, String)>) -> DenialTable {
        let (kinds, patterns): (Vec<DenialKind>, Vec<String>) = patterns.unzip();
        DenialTable {
            kinds,
            set: RegexSet::new(patterns).unwrap_or_default(),
        }
    }

    fn kind(&self, line: &str) -> Option<DenialKind> {
        self.set
            .matches(line)
            .iter()
            .next()
            .map(|index| self.kinds[index])
    }
}

/// What is an error wherever it stands in a line.
static FORMS: LazyLock<DenialTable> = LazyLock::new(|| {
    DenialTable::new(SIGNS.iter().flat_map(|sign| {
        let codes = sign.codes.iter().map(|code| code_form(code));
        let numbered = sign
            .messages
            .iter()
            .map(|message| format!(r"\[Errno -?\d+\] {}\b", regex::escape(message)));
        let own = sign.own.iter().map(|own| (*own).to_owned());
        codes
            .chain(numbered)
            .chain(own)
            .map(|pattern| (sign.kind, pattern))
    }))
});

/// Messages of the system without a code or a number.
static MESSAGES: LazyLock<DenialTable> = LazyLock::new(|| {
    DenialTable::new(SIGNS.iter().flat_map(|sign| {
        sign.messages
            .iter()
            .map(|message| (sign.kind, message_form(message)))
    }))
});

/// A code is a word in capitals. In quotes it is a value that a test compares, unless it is called `code`.
fn code_form(code: &str) -> String {
    format!(r#"(?:^|[^\w'"]){code}(?:[^\w'"]|$)|\bcode['"]?: ?['"]{code}['"]"#)
}

/// Where C, Java, Rust, Perl, PHP and C++ put a message of the system, and, in lower case, where Go does.
fn message_form(message: &str) -> String {
    let message = regex::escape(message);
    let lower = message.to_lowercase();
    format!(
        r#"(?:^\s*(?:E\s+)?|: |\(){message}(?:\.?$|\)| \(os error \d+\)| at \S+ line \d+| in \S+ on line \d+| \[)|message: "{message}"|(?:/\S*|\b(?:{CALLS})): {lower}\.?$"#
    )
}

/// How much of the output is looked at, and how much is said at most.
const MAX_LINES: usize = 20_000;
const MAX_LINE: usize = 2_000;
const MAX_TOLD: usize = 6;
const MAX_PATH: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DenialKind {
    Write,
    Busy,
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
pub fn refusals(stdout: &str, stderr: &str, policy: &SandboxPolicy) -> Vec<String> {
    let mut told: Vec<String> = Vec::new();
    for text in [stderr, stdout] {
        let mut before = "";
        for line in text
            .lines()
            .take(MAX_LINES)
            .filter(|line| line.len() <= MAX_LINE && !line.trim().is_empty())
        {
            let sentence = kind_of(line).and_then(|kind| sentence(kind, line, before, policy));
            if let Some(sentence) = sentence.filter(|sentence| !told.contains(sentence)) {
                told.push(sentence);
            }
            let is_filling =
                line.trim_start().starts_with("Caused by") || !line.contains(char::is_alphanumeric);
            before = if is_filling { before } else { line };
        }
    }
    told.truncate(MAX_TOLD);
    told
}

/// Returns what to tell the user of writes to protected files that were refused, whether the check passed or not.
pub fn protected_hints(stdout: &str, stderr: &str, policy: &SandboxPolicy) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for line in [stderr, stdout]
        .into_iter()
        .flat_map(|text| text.lines().take(MAX_LINES))
    {
        if MAX_LINE < line.len()
            || !matches!(kind_of(line), Some(DenialKind::Write | DenialKind::Busy))
        {
            continue;
        }
        let found = frozen_in(line, policy).filter(|(path, _)| !is_in_generated(Path::new(path)));
        let hint = found.map(|(path, around)| hint(&path, &around));
        hints.extend(hint.filter(|hint| !hints.contains(hint)));
    }
    hints.truncate(MAX_TOLD);
    hints
}

fn hint(path: &str, around: &str) -> String {
    let refused = format!("it may not write {}, which is protected", shown(path));
    match Path::new(path)
        .parent()
        .filter(|folder| path != around && *folder != Path::new(around))
    {
        _ if path == around => refused,
        Some(folder) => {
            format!(
                "{refused}; to allow it, give the check `writable: [{}]`",
                shown(&folder.to_string_lossy())
            )
        }
        None => {
            format!(
                "{refused}; to allow it, give the check a folder of its own, such as `writable: [{around}/out]`"
            )
        }
    }
}

/// Returns the first path in a line that is protected, and the protected place that it lies in, both as they are named
/// in the workspace.
fn frozen_in(line: &str, policy: &SandboxPolicy) -> Option<(String, String)> {
    let workspace = policy.write.first()?;
    let named = |path: &Path| {
        path.strip_prefix(workspace)
            .ok()
            .map(|path| path.to_string_lossy().into_owned())
    };
    line.split(is_edge)
        .filter(|word| !word.is_empty() && !policy.freeze.is_empty())
        .find_map(|word| {
            let path = workspace.join(word.trim_start_matches("./"));
            let around = policy.freeze.iter().find(|place| path.starts_with(place))?;
            Some((named(&path)?, named(around)?))
        })
}

fn kind_of(line: &str) -> Option<DenialKind> {
    let is_about_words = || line.to_lowercase().contains("expected");
    let kind = FORMS
        .kind(line)
        .or_else(|| MESSAGES.kind(line).filter(|_| !is_about_words()))?;
    (kind != DenialKind::Network || !LOOPBACK.iter().any(|name| line.contains(name)))
        .then_some(kind)
}

/// What the sandbox does not refuse: a server of the test's own that is not there is a fault of the test.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

fn sentence(kind: DenialKind, line: &str, before: &str, policy: &SandboxPolicy) -> Option<String> {
    let limits = &policy.limits;
    match kind {
        DenialKind::Write => Some(match frozen_in(line, policy).or_else(|| frozen_in(before, policy)) {
            Some((path, _)) => format!("write to {} refused: it is protected", shown(&path)),
            None => write_refused(path_in(line).or_else(|| path_in(before)), policy),
        }),
        DenialKind::Busy => {
            let (path, _) = frozen_in(line, policy)?;
            Some(format!("{} cannot be moved or removed: it is protected", shown(&path)))
        }
        DenialKind::Access => {
            let path = path_in(line).filter(|path| is_outside(path, policy))?;
            Some(format!("access to {} was refused: {ONLY}", shown(path)))
        }
        DenialKind::Missing => {
            let path = path_in(line).filter(|path| is_outside(path, policy) && is_closed(path, policy))?;
            Some(format!("{} is not there inside the sandbox: {ONLY}", shown(path)))
        }
        DenialKind::Package if policy.network => None,
        DenialKind::Package => Some(
            "packages cannot be downloaded, there is no network: use what is installed, or write what is needed".into(),
        ),
        DenialKind::Network if policy.network => None,
        DenialKind::Network => Some(
            "the network was refused: nothing but an own loopback can be reached; do without it, or stand in for the \
             server in the test"
                .into(),
        ),
        // A socket that has nothing to say yet is told of in the same words.
        DenialKind::Processes if !speaks_of_a_start(line) && !speaks_of_a_start(before) => None,
        DenialKind::Processes => Some(too_many(policy)),
        DenialKind::Space => Some(format!(
            "there was no space left: /tmp and the home hold {} together; keep large files in the workspace",
            size(limits.private)
        )),
        DenialKind::Memory => {
            Some(format!("memory was refused: the limit is {} (sandbox.limits.memory)", size(limits.memory)))
        }
        DenialKind::FileSize => Some(too_large(policy)),
        DenialKind::Rights => Some(
            "an operation that reaches beyond the sandbox was refused (mounts, other users, foreign processes); do \
             without it"
                .into(),
        ),
    }
}

/// Returns the limit of processes where the output says that one was refused: a program that is refused another process
/// ends by itself, and its exit code does not tell why.
pub fn refused_process(stdout: &str, stderr: &str, policy: &SandboxPolicy) -> Option<String> {
    let words = too_many(policy);
    refusals(stdout, stderr, policy)
        .into_iter()
        .find(|sentence| *sentence == words)
}

fn too_many(policy: &SandboxPolicy) -> String {
    format!(
        "a process or thread was refused: the limit is {} (sandbox.limits.processes)",
        policy.limits.processes
    )
}

/// Returns what is said of a file that is larger than a file may be.
pub fn too_large(policy: &SandboxPolicy) -> String {
    format!(
        "a file that grew too large was refused: one file holds {}",
        size(policy.limits.file_size)
    )
}

fn speaks_of_a_start(line: &str) -> bool {
    let line = line.to_lowercase();
    ["fork", "thread", "spawn", "popen", "clone"]
        .iter()
        .any(|word| line.contains(word))
}

const ONLY: &str = "only the workspace, the system and the toolchains can be read";

fn write_refused(path: Option<&str>, policy: &SandboxPolicy) -> String {
    let inside = |path: &str| {
        policy
            .write
            .first()
            .is_some_and(|workspace| Path::new(path).starts_with(workspace))
    };
    match path {
        Some(path) if inside(path) => format!("write to {} refused: it is protected", shown(path)),
        Some(path) => format!(
            "write outside workspace refused: {}; {INSTEAD}",
            shown(path)
        ),
        None => format!("write outside workspace refused; {INSTEAD}"),
    }
}

const INSTEAD: &str = "write below the workspace, $TMPDIR or $HOME instead";

/// Whether a path is none of those that a check has for itself.
fn is_outside(path: &str, policy: &SandboxPolicy) -> bool {
    let own = policy.write.iter().chain([&policy.home, &policy.tmp]);
    !own.into_iter()
        .any(|place| Path::new(path).starts_with(place))
        && !path.starts_with("/dev/")
}

fn is_closed(path: &str, policy: &SandboxPolicy) -> bool {
    policy.reach(Path::new(path)) == PathAccess::Nothing && !path.starts_with("/proc/")
}

fn is_edge(c: char) -> bool {
    c.is_whitespace() || "'\"`‘’“”:,;()<>[]{}=".contains(c)
}

/// Returns the first absolute path in a line.
fn path_in(line: &str) -> Option<&str> {
    let mut words = line.split(is_edge);
    words.find(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"))
}

fn shown(path: &str) -> String {
    one_line(path, MAX_PATH)
}

#[cfg(test)]
mod tests;
