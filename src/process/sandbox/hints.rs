//! Finds denials of the sandbox in the output of a program, and explains what to do about them.
//!
//! Programs report a denial as the system error: "Read-only file system", "Temporary failure in name resolution".
//! Without a hint, this looks like a bug in the program. Only the usual forms of an error count (`EPERM` as a word,
//! `[Errno 1]`, a `strerror` message where programs print it), never a part of another word. The result is a guess: it
//! explains a failure and decides nothing.

use std::path::Path;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet, RegexSetBuilder};

use super::limits::size;
use super::policy::{PathAccess, SandboxPolicy};
use crate::text::shorten::one_line;
use crate::workspace::generated::is_in_generated;

/// What can be denied, and how it is reported: error codes, `strerror` messages, and patterns for the messages of
/// certain programs. The first kind that a line matches counts.
const SIGNS: [DenialSign; 11] = [
    DenialSign {
        kind: DenialKind::Write,
        codes: &["EROFS"],
        messages: &["Read-only file system"],
        words: &[],
        patterns: &[],
    },
    DenialSign {
        kind: DenialKind::Busy,
        codes: &["EBUSY"],
        messages: &["Device or resource busy"],
        words: &[],
        patterns: &[],
    },
    DenialSign {
        kind: DenialKind::Access,
        codes: &["EACCES"],
        messages: &["Permission denied"],
        words: &[],
        patterns: &[],
    },
    DenialSign {
        kind: DenialKind::Missing,
        codes: &["ENOENT"],
        messages: &["No such file or directory"],
        words: &[],
        patterns: &[],
    },
    DenialSign {
        kind: DenialKind::Package,
        codes: &["ENOTCACHED"],
        messages: &[],
        words: &[
            "No matching distribution",
            "offline",
            "GOPROXY=off",
            "network was disabled",
        ],
        patterns: &[
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
        words: &[
            "Could not resolve host",
            "Failed to connect to",
            "no such host",
            "UnknownHostException",
        ],
        patterns: &[
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
        words: &[
            "new thread",
            "uv_thread_create",
            "pthread_create",
            "spawn thread",
            "native thread",
        ],
        patterns: &[
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
        words: &[],
        patterns: &[],
    },
    DenialSign {
        kind: DenialKind::Memory,
        codes: &["ENOMEM"],
        messages: &["Cannot allocate memory"],
        words: &[
            "MemoryError",
            "out of memory",
            "OutOfMemoryError",
            "bad_alloc",
        ],
        patterns: &[
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
        words: &["File size limit"],
        patterns: &[r"(?:^|: )File size limit exceeded"],
    },
    DenialSign {
        kind: DenialKind::Rights,
        codes: &["EPERM"],
        messages: &["Operation not permitted"],
        words: &["must be superuser", "no new privileges"],
        patterns: &[
            r": must be superuser to ",
            r#"The "no new privileges" flag is set"#,
        ],
    },
];

/// System calls that Go names before the message: `connect: network is unreachable`.
const CALLS: &str = "accept|bind|chmod|chown|chroot|clone|connect|dup|exec|fork|ioctl|kill|link|listen|mkdir|mkdirat|mmap|mount\
                     |open|openat|pipe|ptrace|read|remove|rename|sendto|setgid|setns|setuid|socket|stat|symlink|truncate\
                     |unlink|unlinkat|unshare|write";

struct DenialSign {
    kind: DenialKind,
    codes: &'static [&'static str],
    messages: &'static [&'static str],
    /// Parts of the patterns: a line that matches one has one of these.
    words: &'static [&'static str],
    patterns: &'static [&'static str],
}

/// The patterns of all signs, each with its kind.
struct DenialTable {
    kinds: Vec<DenialKind>,
    set: RegexSet,
}

impl DenialTable {
    fn new(patterns: impl Iterator<Item = (DenialKind, String)>) -> DenialTable {
        let (kinds, patterns): (Vec<DenialKind>, Vec<String>) = patterns.unzip();
        // ASCII classes: those of Unicode take milliseconds to compile.
        let set = RegexSetBuilder::new(patterns).unicode(false).build();
        DenialTable {
            kinds,
            set: set.unwrap_or_default(),
        }
    }

    fn kind(&self, line: &str) -> Option<DenialKind> {
        self.set
            .matches(line.as_bytes())
            .iter()
            .next()
            .map(|index| self.kinds[index])
    }
}

/// What every line with a denial has a part of. The other tables take milliseconds to compile, and most outputs do not
/// need them.
static PARTS: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let parts = SIGNS.iter().flat_map(|sign| {
        let lower = sign.messages.iter().map(|message| message.to_lowercase());
        let literal = sign.codes.iter().chain(sign.messages).chain(sign.words);
        literal.map(|part| (*part).to_owned()).chain(lower)
    });
    let parts: Vec<String> = parts.map(|part| regex::escape(&part)).collect();
    Regex::new(&parts.join("|")).ok()
});

/// Forms that are an error anywhere in a line.
static FORMS: LazyLock<DenialTable> = LazyLock::new(|| {
    DenialTable::new(SIGNS.iter().flat_map(|sign| {
        let codes = sign.codes.iter().map(|code| code_form(code));
        let numbered = sign
            .messages
            .iter()
            .map(|message| format!(r"\[Errno -?\d+\] {}\b", regex::escape(message)));
        let patterns = sign.patterns.iter().map(|pattern| (*pattern).to_owned());
        codes
            .chain(numbered)
            .chain(patterns)
            .map(|pattern| (sign.kind, pattern))
    }))
});

/// `strerror` messages without a code or a number.
static MESSAGES: LazyLock<DenialTable> = LazyLock::new(|| {
    DenialTable::new(SIGNS.iter().flat_map(|sign| {
        sign.messages
            .iter()
            .map(|message| (sign.kind, message_form(message)))
    }))
});

/// A code is a whole word. In quotes it is a value that a test compares, unless it is the value of `code`.
fn code_form(code: &str) -> String {
    format!(r#"(?:^|[^\w'"]){code}(?:[^\w'"]|$)|\bcode['"]?: ?['"]{code}['"]"#)
}

/// Where C, Java, Rust, Perl, PHP and C++ print a `strerror` message, and, in lower case, where Go does.
fn message_form(message: &str) -> String {
    let message = regex::escape(message);
    let lower = message.to_lowercase();
    format!(
        r#"(?:^\s*(?:E\s+)?|: |\(){message}(?:\.?$|\)| \(os error \d+\)| at \S+ line \d+| in \S+ on line \d+| \[)|message: "{message}"|(?:/\S*|\b(?:{CALLS})): {lower}\.?$"#
    )
}

/// How much of the output is searched, and how many denials are reported.
const MAX_LINES: usize = 20_000;
const MAX_LINE: usize = 2_000;
const MAX_DENIALS: usize = 6;
const MAX_PATH: usize = 200;

/// Something that the sandbox seems to have denied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Denial {
    pub kind: DenialKind,
    /// What was denied, and what to do instead.
    pub sentence: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DenialKind {
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

/// The denials that the output shows, each sentence once.
pub(crate) fn denials(stdout: &str, stderr: &str, policy: &SandboxPolicy) -> Vec<Denial> {
    let mut denials: Vec<Denial> = Vec::new();
    for text in [stderr, stdout] {
        let mut before = "";
        for line in searched_lines(text).filter(|line| !line.trim().is_empty()) {
            if denials.len() == MAX_DENIALS {
                return denials;
            }
            let denial = kind_of(line).and_then(|kind| {
                let sentence = sentence(kind, line, before, policy)?;
                Some(Denial { kind, sentence })
            });
            denials.extend(denial.filter(|denial| !denials.contains(denial)));
            let is_filler =
                line.trim_start().starts_with("Caused by") || !line.contains(char::is_alphanumeric);
            before = if is_filler { before } else { line };
        }
    }
    denials
}

/// Hints for the user about denied writes to protected files, whether the check passed or not.
pub(crate) fn protected_hints(stdout: &str, stderr: &str, policy: &SandboxPolicy) -> Vec<String> {
    let mut hints: Vec<String> = Vec::new();
    for line in searched_lines(stderr).chain(searched_lines(stdout)) {
        if hints.len() == MAX_DENIALS {
            break;
        }
        if !matches!(kind_of(line), Some(DenialKind::Write | DenialKind::Busy)) {
            continue;
        }
        let found = frozen_in(line, policy).filter(|(path, _)| !is_in_generated(Path::new(path)));
        let hint = found.map(|(path, frozen)| hint(&path, &frozen));
        hints.extend(hint.filter(|hint| !hints.contains(hint)));
    }
    hints
}

fn searched_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .take(MAX_LINES)
        .filter(|line| line.len() <= MAX_LINE)
}

fn hint(path: &str, frozen: &str) -> String {
    let denied = format!("it may not write {}, which is protected", shown(path));
    if path == frozen {
        return denied;
    }
    match Path::new(path).parent() {
        Some(folder) if folder != Path::new(frozen) => format!(
            "{denied}; to allow it, give the check `writable: [{}]`",
            shown(&folder.to_string_lossy())
        ),
        _ => format!(
            "{denied}; to allow it, give the check a folder of its own, such as `writable: [{frozen}/out]`"
        ),
    }
}

/// The first protected path in a line, and the protected path that it lies in, both relative to the workspace.
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
            let frozen = policy
                .freeze
                .iter()
                .find(|frozen| path.starts_with(frozen))?;
            Some((named(&path)?, named(frozen)?))
        })
}

fn kind_of(line: &str) -> Option<DenialKind> {
    let has_part = |parts: &Regex| parts.is_match(line.as_bytes());
    if !PARTS.as_ref().is_some_and(has_part) {
        return None;
    }
    let is_comparison = || line.to_lowercase().contains("expected");
    let kind = FORMS
        .kind(line)
        .or_else(|| MESSAGES.kind(line).filter(|_| !is_comparison()))?;
    (kind != DenialKind::Network || !LOOPBACK.iter().any(|name| line.contains(name)))
        .then_some(kind)
}

/// The sandbox allows loopback: a missing server there is a fault of the test.
const LOOPBACK: [&str; 3] = ["127.0.0.1", "localhost", "[::1]"];

fn sentence(kind: DenialKind, line: &str, before: &str, policy: &SandboxPolicy) -> Option<String> {
    match kind {
        DenialKind::Write | DenialKind::Busy | DenialKind::Access | DenialKind::Missing => {
            path_sentence(kind, line, before, policy)
        }
        DenialKind::Package | DenialKind::Network if policy.network => None,
        DenialKind::Package => Some(NO_PACKAGES.to_owned()),
        DenialKind::Network => Some(NO_NETWORK.to_owned()),
        // A non-blocking socket without data reports the same error.
        DenialKind::Processes if !is_about_starting(line) && !is_about_starting(before) => None,
        DenialKind::Processes => Some(format!(
            "a process or thread was refused: the limit is {} (sandbox.limits.processes)",
            policy.limits.processes
        )),
        DenialKind::Space => Some(format!(
            "there was no space left: /tmp and the home hold {} together; keep large files in the workspace",
            size(policy.limits.private)
        )),
        DenialKind::Memory => Some(format!(
            "memory was refused: the limit is {} (sandbox.limits.memory)",
            size(policy.limits.memory)
        )),
        DenialKind::FileSize => Some(file_size_denial(policy).sentence),
        DenialKind::Rights => Some(NO_RIGHTS.to_owned()),
    }
}

const NO_PACKAGES: &str = "packages cannot be downloaded, there is no network: use what is installed, or write what is needed";
const NO_NETWORK: &str = "the network was refused: nothing but an own loopback can be reached; do without it, or stand in for the server in the test";
const NO_RIGHTS: &str = "an operation that reaches beyond the sandbox was refused (mounts, other users, foreign processes); do without it";

fn path_sentence(
    kind: DenialKind,
    line: &str,
    before: &str,
    policy: &SandboxPolicy,
) -> Option<String> {
    if kind == DenialKind::Write {
        let frozen = frozen_in(line, policy).or_else(|| frozen_in(before, policy));
        return Some(match frozen {
            Some((path, _)) => format!("write to {} refused: it is protected", shown(&path)),
            None => write_denied(path_in(line).or_else(|| path_in(before)), policy),
        });
    }
    if kind == DenialKind::Busy {
        let path = shown(&frozen_in(line, policy)?.0);
        return Some(format!(
            "{path} cannot be moved or removed: it is protected"
        ));
    }
    let path = path_in(line).filter(|path| is_outside(path, policy))?;
    if kind == DenialKind::Access {
        return Some(format!("access to {} was refused: {ONLY}", shown(path)));
    }
    is_closed(path, policy)
        .then(|| format!("{} is not there inside the sandbox: {ONLY}", shown(path)))
}

/// A file that was to grow beyond the limit. The process is ended by SIGXFSZ and may not have reported it.
pub(crate) fn file_size_denial(policy: &SandboxPolicy) -> Denial {
    Denial {
        kind: DenialKind::FileSize,
        sentence: format!(
            "a file that grew too large was refused: one file holds {}",
            size(policy.limits.file_size)
        ),
    }
}

fn is_about_starting(line: &str) -> bool {
    let line = line.to_lowercase();
    ["fork", "thread", "spawn", "popen", "clone"]
        .iter()
        .any(|word| line.contains(word))
}

const ONLY: &str = "only the workspace, the system and the toolchains can be read";

fn write_denied(path: Option<&str>, policy: &SandboxPolicy) -> String {
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

/// Whether a path is outside the folders that a check may write.
fn is_outside(path: &str, policy: &SandboxPolicy) -> bool {
    let own = policy.write.iter().chain([&policy.home, &policy.tmp]);
    !own.into_iter().any(|own| Path::new(path).starts_with(own)) && !path.starts_with("/dev/")
}

fn is_closed(path: &str, policy: &SandboxPolicy) -> bool {
    policy.reach(Path::new(path)) == PathAccess::Nothing && !path.starts_with("/proc/")
}

fn is_edge(c: char) -> bool {
    c.is_whitespace() || "'\"`‘’“”:,;()<>[]{}=".contains(c)
}

/// The first absolute path in a line.
fn path_in(line: &str) -> Option<&str> {
    let mut words = line.split(is_edge);
    words.find(|word| word.len() > 1 && word.starts_with('/') && !word.starts_with("//"))
}

fn shown(path: &str) -> String {
    one_line(path, MAX_PATH)
}

#[cfg(test)]
mod tests;
