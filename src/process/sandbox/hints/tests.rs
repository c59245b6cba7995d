//! What real programs print when the sandbox denies something, and the sentences for it.

use std::path::PathBuf;

use super::{SIGNS, denials};
use crate::process::sandbox::{ResourceLimits, SandboxMode, SandboxPolicy};

fn policy(network: bool) -> SandboxPolicy {
    let limits = ResourceLimits {
        processes: 60,
        memory: 512 << 20,
        ..ResourceLimits::default()
    };
    SandboxPolicy {
        mode: SandboxMode::Full,
        write: vec!["/root/p/workspace".into()],
        freeze: Vec::new(),
        reopen: Vec::new(),
        read: ["/usr", "/etc"].map(PathBuf::from).to_vec(),
        links: Vec::new(),
        hide: vec!["/etc/shadow".into()],
        home: "/home/orchestrator".into(),
        tmp: "/tmp".into(),
        private: None,
        devices: Vec::new(),
        network,
        limits,
    }
}

fn sentences(stderr: &str) -> String {
    let denials = denials("", stderr, &policy(false));
    let sentences: Vec<String> = denials.into_iter().map(|denial| denial.sentence).collect();
    sentences.join("\n")
}

#[test]
fn a_write_outside_is_named() {
    for line in [
        "touch: cannot touch '/mnt/ro/x': Read-only file system",
        "bash: line 1: /mnt/ro/x: Read-only file system",
        "sh: 1: cannot create /mnt/ro/x: Read-only file system",
        "mkdir: cannot create directory ‘/mnt/ro/x’: Read-only file system",
        "OSError: [Errno 30] Read-only file system: '/mnt/ro/x'",
        "Error: EROFS: read-only file system, open '/mnt/ro/x'",
        "open /mnt/ro/x: read-only file system",
        "java.io.FileNotFoundException: /mnt/ro/x (Read-only file system)",
        "  failed to create directory `/mnt/ro/x`\n\nCaused by:\n  Read-only file system (os error 30)",
    ] {
        let found = sentences(line);
        assert!(
            found.starts_with("write outside workspace refused: /mnt/ro/x;"),
            "{line}: {found}"
        );
        assert!(found.contains("$TMPDIR"), "{found}");
    }
    let found =
        sentences("OSError: [Errno 30] Read-only file system: '/root/p/workspace/tests/a.py'");
    assert_eq!(
        found,
        "write to /root/p/workspace/tests/a.py refused: it is protected"
    );
}

#[test]
fn paths_outside_are_named_and_other_errors_are_not() {
    for line in [
        "PermissionError: [Errno 13] Permission denied: '/etc/shadow'",
        "cat: /etc/shadow: Permission denied",
        "FileNotFoundError: [Errno 2] No such file or directory: '/srv/data.csv'",
        "Error: ENOENT: no such file or directory, open '/home/me/data'",
    ] {
        assert!(sentences(line).contains("only the workspace"), "{line}");
    }
    for line in [
        "sh: 1: ./run.sh: Permission denied",
        "PermissionError: [Errno 13] Permission denied: '/root/p/workspace/x'",
        "cat: /tmp/x: Permission denied",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data.csv'",
        "cat: /etc/missing: No such file or directory",
        "cat: /root/p/workspace/x: No such file or directory",
        "AssertionError: 3 != 4",
        "    s.recv(1)\nBlockingIOError: [Errno 11] Resource temporarily unavailable",
        "",
    ] {
        assert_eq!(sentences(line), "", "{line}");
    }
}

#[test]
fn a_missing_network_is_recognised_in_many_forms() {
    for line in [
        "dial tcp: lookup example.org on 10.0.0.1:53: dial udp 10.0.0.1:53: connect: network is unreachable",
        "Exception in thread \"main\" java.net.UnknownHostException: example.org",
        "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>",
        "OSError: [Errno 101] Network is unreachable",
        "curl: (6) Could not resolve host: example.org",
        "Error: getaddrinfo EAI_AGAIN example.org",
        "ERROR: No matching distribution found for left-pad",
        "npm error code ENOTCACHED",
        "As a reminder, you're using offline mode (--offline) which can sometimes cause surprising resolution failures",
        "main.go:2:8: module lookup disabled by GOPROXY=off",
    ] {
        assert!(
            sentences(line).contains("network"),
            "{line}: {}",
            sentences(line)
        );
        assert!(denials(line, "", &policy(true)).is_empty(), "{line}");
    }
}

/// What real programs print, and a word of the sentence for it; no sentence where the sandbox is not the cause.
#[test]
fn only_the_usual_forms_of_an_error_are_recognised() {
    let signs = [
        // Python, pip
        (
            "PermissionError: [Errno 1] Operation not permitted: '/dev/mem'",
            "beyond",
        ),
        (
            "E   PermissionError: [Errno 1] Operation not permitted",
            "beyond",
        ),
        (
            "socket.gaierror: [Errno -2] Name or service not known",
            "network",
        ),
        (
            "requests.exceptions.ConnectionError: HTTPSConnectionPool(host='x.org', port=443): Max retries exceeded with url: / (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno 101] Network is unreachable'))",
            "network",
        ),
        (
            "WARNING: Retrying (Retry(total=4, connect=None, read=None, redirect=None, status=None)) after connection broken by 'NewConnectionError('<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/left-pad/",
            "network",
        ),
        (
            "ERROR: No matching distribution found for left-pad",
            "packages",
        ),
        // Node, npm
        (
            "Error: getaddrinfo ENOTFOUND registry.example.org",
            "network",
        ),
        (
            "RuntimeError: CAUSE Error: getaddrinfo ENOTFOUND registry.example.org",
            "network",
        ),
        ("  code: 'ENOTFOUND',", "network"),
        (
            "Error: EPERM: operation not permitted, chown '/x'",
            "beyond",
        ),
        ("npm error code ENOTCACHED", "packages"),
        (
            "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory",
            "memory",
        ),
        // curl, git, ssh
        ("curl: (6) Could not resolve host: example.org", "network"),
        (
            "curl: (7) Failed to connect to 10.1.2.3 port 80 after 0 ms: Couldn't connect to server",
            "network",
        ),
        (
            "fatal: unable to access 'https://example.org/a.git/': Could not resolve host: example.org",
            "network",
        ),
        (
            "ssh: Could not resolve hostname example.org: Temporary failure in name resolution",
            "network",
        ),
        ("ping: connect: Network is unreachable", "network"),
        // Go
        ("dial tcp: lookup example.org: no such host", "network"),
        (
            "dial tcp 10.1.2.3:80: connect: network is unreachable",
            "network",
        ),
        (
            "    main_test.go:9: open /mnt/ro/x: read-only file system",
            "write",
        ),
        ("fork/exec /bin/true: operation not permitted", "beyond"),
        ("fatal error: runtime: out of memory", "memory"),
        // cargo, Rust
        (
            "  [6] Could not resolve hostname (Could not resolve host: index.example.org)",
            "network",
        ),
        (
            "  attempting to make an HTTP request, but --offline was specified",
            "packages",
        ),
        (
            "called `Result::unwrap()` on an `Err` value: Os { code: 1, kind: PermissionDenied, message: \"Operation not permitted\" }",
            "beyond",
        ),
        ("Error: Operation not permitted (os error 1)", "beyond"),
        // the shell and others
        (
            "chroot: cannot change root directory to '/': Operation not permitted",
            "beyond",
        ),
        ("mount: /mnt: must be superuser to use mount.", "beyond"),
        (
            "t.rb:1:in 'initialize': Operation not permitted @ rb_sysopen - /x (Errno::EPERM)",
            "beyond",
        ),
        ("java.io.IOException: Operation not permitted", "beyond"),
        (
            "Can't change owner: Operation not permitted at t.pl line 3.",
            "beyond",
        ),
    ];
    for (line, word) in signs {
        assert!(
            sentences(line).contains(word),
            "{line}: {:?}",
            sentences(line)
        );
    }
    for line in [
        "ModuleNotFoundError: No module named 'calculator'",
        "E   ModuleNotFoundError: No module named 'network'",
        "AssertionError: 'DeletePermission' is not in ['FilePermission']",
        "expected the text: operation not permitted by policy",
        "expected the text: operation not permitted",
        "Expected error message: Operation not permitted",
        "ValueError: operation not permitted",
        "AssertionError: 'EPERM' != 'EACCES'",
        "    self.assertIn(\"Operation not permitted\", text)",
        "test_enotfound (tests.T) ... FAIL",
        "FAIL: test_EPERM (tests.T)",
        "eperm",
        "KeyError: 'ENOSPC'",
        "NameError: name 'MemoryErrorHandler' is not defined",
        "the network is unreachable by design",
        "AssertionError: False is not true : Could not resolve hosts of the game",
        "curl: (7) Failed to connect to 127.0.0.1 port 8000 after 0 ms: Couldn't connect to server",
        "ConnectionRefusedError: [Errno 111] Connection refused",
        "error[E0433]: failed to resolve: use of unresolved module or unlinked crate `network`",
        "AssertionError: 'no space left on device' not found in 'ok'",
        "page not found: ENOTFOUNDATION",
    ] {
        assert_eq!(sentences(line), "", "{line}");
    }
}

#[test]
fn every_pattern_is_valid() {
    for table in [&super::FORMS, &super::MESSAGES] {
        assert_eq!(table.set.len(), table.kinds.len());
        assert!(!table.kinds.is_empty());
    }
}

#[test]
fn limits_are_named_with_their_number() {
    for (line, words) in [
        (
            "RuntimeError: can't start new thread",
            "the limit is 60 (sandbox.limits.processes)",
        ),
        (
            "bash: fork: retry: Resource temporarily unavailable",
            "process or thread was refused: the limit is 60",
        ),
        ("sh: 0: Cannot fork", "process"),
        (
            "    pid = os.fork()\n          ^^^^^^^^^\nBlockingIOError: [Errno 11] Resource temporarily unavailable",
            "the limit is 60",
        ),
        (
            "MemoryError",
            "the limit is 512 MiB (sandbox.limits.memory)",
        ),
        ("OSError: [Errno 28] No space left on device", "2 GiB"),
        ("OSError: [Errno 27] File too large", "one file holds 4 GiB"),
        (
            "unshare: unshare failed: Operation not permitted",
            "beyond the sandbox",
        ),
    ] {
        assert!(
            sentences(line).contains(words),
            "{line}: {}",
            sentences(line)
        );
    }
}

#[test]
fn each_denial_is_reported_once_and_briefly() {
    let many: String = (0..100)
        .map(|n| format!("touch: cannot touch '/mnt/{n}': Read-only file system\n"))
        .collect();
    assert_eq!(denials(&many, &many, &policy(false)).len(), 6);
    let long = format!(
        "OSError: [Errno 30] Read-only file system: '/{}'",
        "x".repeat(1000)
    );
    assert!(sentences(&long).len() < 400);
    assert_eq!(
        sentences("curl: (6) Could not resolve host: a\ncurl: (6) Could not resolve host: b")
            .lines()
            .count(),
        1
    );
}

#[test]
fn names_in_the_output_are_escaped() {
    let found = sentences("touch: cannot touch '/a\u{1b}[31m\u{202e}b': Read-only file system");
    assert!(
        !found.contains('\u{1b}') && !found.contains('\u{202e}'),
        "{found}"
    );
}

#[test]
fn every_pattern_has_a_part_by_which_lines_are_chosen() {
    for sign in &SIGNS {
        for pattern in sign.patterns {
            let literal = pattern.replace('\\', "");
            assert!(
                sign.words.iter().any(|word| literal.contains(word)),
                "{pattern}"
            );
        }
    }
}
