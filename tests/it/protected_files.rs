//! Protected files while checks run: read-only in the full sandbox, and compared after each check in every mode.

use std::fs;

use serde_json::json;

use crate::support::needs::skip;
use crate::support::project::{Project, RUN, RUN_JSON};
use crate::support::reply;
use crate::support::restrictions::Restrictions;
use crate::support::running::Ran;
use crate::support::server::Server;

const TEST: &str = "# the protected test\n";

/// The sandbox mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SandboxMode {
    Full,
    Reduced,
    None,
}

/// A check of a spec: its name, its line for `sh`, and more of its fields.
fn check(name: &str, script: &str, more: &str) -> String {
    format!(
        "- {{name: {name}, command: {}{more}}}\n",
        json!(["sh", "-c", script])
    )
}

/// A project with a protected folder, a protected file at the top, one beside code, and these checks.
fn project(server: &Server, checks: &[String]) -> Project {
    let spec = format!(
        "name: answer\ndescription: x\nmax_retries: 1\nbaseline: false\n\
         workspace: {{protect: [tests/, top.txt, {{from: beside.txt, to: code/beside.txt}}]}}\nchecks:\n{}",
        checks.concat()
    );
    let project = Project::with(spec, server)
        .file("specs/tests/t.py", TEST)
        .file("specs/tests/deep/u.py", TEST);
    project
        .file("specs/top.txt", TEST)
        .file("specs/beside.txt", TEST)
}

fn run(project: Project, mode: SandboxMode) -> (Project, Ran) {
    let project = if mode == SandboxMode::Reduced {
        project.restricted(Restrictions::default().without_namespaces())
    } else {
        project
    };
    let arguments = if mode == SandboxMode::None {
        [RUN_JSON, &["--no-sandbox"]].concat()
    } else {
        RUN_JSON.to_vec()
    };
    let ran = project.run(&arguments);
    (project, ran)
}

fn is_as_given(project: &Project) {
    for path in [
        "tests/t.py",
        "tests/deep/u.py",
        "top.txt",
        "code/beside.txt",
    ] {
        assert_eq!(project.workspace(path), TEST, "{path}");
    }
}

/// Every way to change a protected file, and the problem that is reported where the sandbox does not prevent it.
const CHANGES: [(&str, &str); 16] = [
    ("echo x > tests/t.py", "tests/t.py (rewritten)"),
    ("echo x >> tests/deep/u.py", "tests/deep/u.py (rewritten)"),
    ("rm -f tests/t.py", "tests/t.py (removed)"),
    ("mv tests/t.py moved.py", "tests/t.py (removed)"),
    (
        "echo x > mine; mv -f mine tests/t.py",
        "tests/t.py (replaced)",
    ),
    (
        "cp tests/t.py mine; mv -f mine tests/t.py",
        "tests/t.py (replaced)",
    ),
    (
        "echo x > mine; ln -sf ../mine tests/t.py",
        "tests/t.py (replaced)",
    ),
    ("rm -rf tests", "tests (removed)"),
    ("mv tests other; cp -r other tests", "tests (replaced)"),
    ("mv tests other; ln -s other tests", "tests (replaced)"),
    ("echo x > top.txt", "top.txt (rewritten)"),
    ("rm -f top.txt", "top.txt (removed)"),
    ("echo x > code/beside.txt", "code/beside.txt (rewritten)"),
    (
        "mv code old; mkdir code; echo x > code/beside.txt",
        "code/beside.txt (replaced)",
    ),
    // Other bytes of the same length, with the old time.
    (
        "touch -r tests/t.py time; tr p b < tests/t.py > mine; cat mine > tests/t.py; touch -r time tests/t.py",
        "tests/t.py (rewritten)",
    ),
    // Only the change time (ctime) differs.
    (
        "cp -p tests/t.py mine; echo x > tests/t.py; cat mine > tests/t.py; touch -r mine tests/t.py",
        "tests/t.py (touched, or changed and put back)",
    ),
];

#[test]
fn protected_files_are_read_only_in_the_full_sandbox() {
    let tries: String = CHANGES
        .map(|(change, _)| format!("( {change} ) 2>/dev/null; "))
        .concat();
    let adding = "touch tests/conftest.py tests/deep/x 2>/dev/null; chmod 600 tests/t.py 2>/dev/null; \
        ln tests/t.py tests/u.py 2>/dev/null; ln tests/t.py linked 2>/dev/null; ";
    let look = "find tests top.txt code/beside.txt linked 2>/dev/null | LC_ALL=C sort > seen; \
        cat tests/t.py tests/deep/u.py top.txt code/beside.txt >> seen; touch code/made made; grep -qx 42 answer.txt";
    let server = Server::start([reply::answer("42")]);
    let (project, ran) = run(
        project(&server, &[check("all", &(tries + adding + look), "")]),
        SandboxMode::Full,
    );
    if !ran.stderr.contains("sandbox: full") {
        return skip("there are no namespaces here");
    }
    let ran = ran.exits(0);
    let names = "code/beside.txt\ntests\ntests/deep\ntests/deep/u.py\ntests/t.py\ntop.txt\n";
    assert_eq!(
        project.workspace("seen"),
        names.to_owned() + &TEST.repeat(4),
        "{}",
        ran.transcript()
    );
    assert!(
        project.exists("workspace/code/made") && project.exists("workspace/made"),
        "the rest can be written"
    );
    assert!(project.events("ProtectedRestored").is_empty());
    is_as_given(&project);
}

#[test]
fn a_check_that_changes_a_protected_file_fails() {
    for mode in [SandboxMode::Reduced, SandboxMode::None] {
        for (change, said) in CHANGES {
            // One tick of the file clock later than everything that was copied.
            let script = format!("{change}; exit 0");
            let server = Server::start([reply::answer("42"), reply::answer("42")]);
            let after = check(
                "after",
                "cat tests/t.py tests/deep/u.py top.txt code/beside.txt > seen",
                "",
            );
            let (project, ran) = run(project(&server, &[check("bad", &script, ""), after]), mode);
            let ran = ran.exits(1);
            assert_eq!(ran.outcome_and_reason().1, "retries_exhausted", "{change}");
            let said = format!("protected files changed while it ran: {said}");
            let problems: Vec<String> = project
                .events("ScriptOutput")
                .iter()
                .map(|line| line["problem"].to_string())
                .collect();
            assert!(
                problems[0].contains(&said) && problems[1] == "null",
                "{mode:?} {change}: {problems:?}"
            );
            assert!(
                server.requests()[1].text().contains(&said),
                "the model is told: {change}"
            );
            assert!(
                ran.result()["notes"].to_string().contains(&said),
                "the user is told: {change}"
            );
            assert_eq!(
                project.workspace("seen"),
                TEST.repeat(4),
                "the next check: {change}"
            );
            is_as_given(&project);
        }
    }
}

#[test]
fn a_rewrite_through_mmap_is_detected() {
    let script = "import mmap\\nf = open('tests/t.py', 'r+b')\\nm = mmap.mmap(f.fileno(), 0)\\nx = m[0]\\nm[0] = 65";
    let script = format!("printf \"{script}\" | python3 -");
    let mut places = vec![std::env::temp_dir()];
    places.extend(
        ["/dev/shm".into()]
            .into_iter()
            .filter(|place: &std::path::PathBuf| place.is_dir()),
    );
    for place in places {
        let server = Server::start([reply::answer("42"), reply::answer("42")]);
        let spec = format!(
            "name: answer\ndescription: x\nmax_retries: 1\nbaseline: false\nworkspace: {{protect: [tests/]}}\nchecks:\n{}",
            check("maps", &script, "")
        );
        let project = Project::below(&place)
            .spec(spec)
            .model(&server)
            .file("specs/tests/t.py", TEST);
        let (project, ran) = run(project, SandboxMode::None);
        ran.exits(1);
        assert!(
            project
                .state_text("last_test_output")
                .contains("tests/t.py (rewritten)"),
            "{}",
            place.display()
        );
    }
}

#[test]
fn a_new_file_in_a_protected_folder_is_removed_without_a_failure() {
    for mode in [SandboxMode::Reduced, SandboxMode::None] {
        let server = Server::start([reply::answer("42")]);
        let adds = "touch tests/new.txt; mkdir -p tests/deep/more/.pytest_cache tests/.mypy_cache";
        let checks = [
            check("adds", adds, ""),
            check("looks", "ls -A tests tests/deep > seen", ""),
        ];
        let (project, ran) = run(project(&server, &checks), mode);
        ran.exits(0);
        assert_eq!(
            project.workspace("seen"),
            "tests:\ndeep\nt.py\n\ntests/deep:\nu.py\n",
            "{mode:?}"
        );
        let removed = project.events("ProtectedRestored")[0]["removed"].clone();
        assert_eq!(
            removed,
            json!(["tests/deep/more", "tests/new.txt"]),
            "what programs leave is not told"
        );
    }
}

#[test]
fn a_hidden_check_that_changes_protected_or_its_own_files_fails() {
    for (script, said) in [
        (
            "echo x > tests/t.py",
            "A hidden check failed: protected files changed while it ran: tests/t.py (rewritten)",
        ),
        (
            "echo x > secret/h.py",
            "A hidden check failed: files of the check changed while it ran",
        ),
    ] {
        let server = Server::start([reply::answer("42"), reply::answer("42")]);
        let hidden = check(
            "held",
            &format!("{script}; exit 0"),
            ", hidden: true, files: [secret/]",
        );
        let project =
            project(&server, &[check("shown", "true", ""), hidden]).file("specs/secret/h.py", TEST);
        let (project, ran) = run(project, SandboxMode::None);
        ran.exits(1);
        let told = server.requests()[1].text();
        assert!(told.contains(said) && !told.contains("secret"), "{told}");
        is_as_given(&project);
        assert!(!project.exists("workspace/secret"));
    }
}

#[test]
fn files_of_a_hidden_check_are_read_only_in_the_full_sandbox() {
    let server = Server::start([reply::answer("42")]);
    let script =
        "(echo x > secret/h.py) 2>/dev/null; touch secret/made; grep -q protected secret/h.py";
    let hidden = check("held", script, ", hidden: true, files: [secret/]");
    let project =
        project(&server, &[check("shown", "true", ""), hidden]).file("specs/secret/h.py", TEST);
    let (_, ran) = run(project, SandboxMode::Full);
    if !ran.stderr.contains("sandbox: full") {
        return skip("there are no namespaces here");
    }
    ran.exits(0);
}

#[test]
fn a_hard_link_to_a_protected_file_changes_nothing_for_the_next_check() {
    let server = Server::start([reply::answer("42"), reply::answer("42")]);
    let checks = [
        check("links", "ln tests/t.py linked", ""),
        check("writes", "echo x > linked; cat tests/t.py > seen", ""),
    ];
    let (project, ran) = run(project(&server, &checks), SandboxMode::None);
    ran.exits(1);
    assert_eq!(project.workspace("seen"), TEST);
    is_as_given(&project);
}

#[test]
fn a_writable_folder_is_private_to_a_check_and_starts_empty() {
    for mode in [SandboxMode::Full, SandboxMode::Reduced, SandboxMode::None] {
        let server = Server::start([reply::answer("41"), reply::answer("42")]);
        let look = "ls -A tests/out tests/deep/out >> listing; echo x > tests/out/left; mkdir -p tests/deep/out/more; ";
        let may = ", writable: [tests/out, ./tests/deep/out/]";
        let checks = [
            check("one", &(look.to_owned() + "true"), may),
            check("two", &(look.to_owned() + "grep -qx 42 answer.txt"), may),
            check(
                "other",
                "(echo x > tests/out/foreign) 2>/dev/null; test ! -e tests/out/left",
                "",
            ),
        ];
        let (project, ran) = run(project(&server, &checks), mode);
        let ran = ran.exits(0);
        assert_eq!(
            ran.result()["retry_count"],
            1,
            "{mode:?}: {}",
            ran.transcript()
        );
        assert_eq!(
            project.workspace("listing"),
            "tests/deep/out:\n\ntests/out:\n".repeat(4),
            "{mode:?}"
        );
        assert!(project.events("ProtectedRestored").is_empty(), "{mode:?}");
        assert!(!project.exists("workspace/tests/out/foreign"), "{mode:?}");
        is_as_given(&project);
    }
}

#[test]
fn given_files_in_a_writable_folder_are_there_for_each_check() {
    let server = Server::start([reply::answer("42")]);
    let script = "cat tests/out/given >> seen; rm tests/out/given; echo x > tests/out/more";
    let checks = ["one", "two"].map(|name| check(name, script, ", writable: [tests/out]"));
    let project = project(&server, &checks).file("specs/tests/out/given", "given\n");
    let (project, ran) = run(project, SandboxMode::Full);
    ran.exits(0);
    assert_eq!(project.workspace("seen"), "given\ngiven\n");
}

#[test]
fn a_writable_folder_must_be_inside_a_protected_one() {
    for (folder, said) in [
        ("out", "does not lie below a protected folder"),
        ("tests", "is protected itself"),
        ("code/out", "does not lie below a protected folder"),
        ("tests/t.py", "is not a folder"),
        ("tests/t.py/out", "is not a folder"),
        ("../out", "\"../out\""),
        ("/tmp", "never absolute"),
    ] {
        let server = Server::start([]);
        let project = project(
            &server,
            &[check("one", "true", &format!(", writable: [{folder}]"))],
        );
        let ran = project
            .run(RUN)
            .exits(65)
            .says("specs/spec.yaml:7:")
            .says(said);
        assert!(
            !project.exists("state.json") && server.requests().is_empty(),
            "{}",
            ran.transcript()
        );
    }
}

#[test]
fn a_refused_write_gives_the_user_a_hint() {
    for end in ["", "; true"] {
        let server = Server::start([reply::answer("42"), reply::answer("42")]);
        let check = check(
            "writes",
            &format!("test -e done || {{ echo x > tests/out.txt{end}; }}"),
            "",
        );
        let (_, ran) = run(project(&server, &[check]), SandboxMode::Full);
        if !ran.stderr.contains("sandbox: full") {
            return skip("there are no namespaces here");
        }
        let notes = ran.exits(if end.is_empty() { 1 } else { 0 }).result()["notes"].to_string();
        assert!(
            notes.contains("tests/out.txt") && notes.contains("writable: [tests/"),
            "{notes}"
        );
    }
}

#[test]
fn many_protected_files_are_one_mount() {
    let server = Server::start([reply::answer("42")]);
    let script = "grep -c \" $PWD\" /proc/self/mountinfo > mounts; ls tests | wc -l > count";
    let project = project(&server, &[check("counts", script, "")]);
    for number in 0..2000 {
        project.write(&format!("specs/tests/f{number}"), "");
    }
    let (project, ran) = run(project, SandboxMode::Full);
    if !ran.stderr.contains("sandbox: full") {
        return skip("there are no namespaces here");
    }
    ran.exits(0);
    assert_eq!(project.workspace("count"), "2002\n");
    // The workspace, the folder, the file at the top, the file beside code and its folder.
    assert_eq!(project.workspace("mounts"), "5\n");
}

/// A project with all its files, also generated ones, at the top of the workspace.
#[test]
fn the_top_of_the_workspace_can_be_written_where_everything_else_is_protected() {
    let server = Server::start([reply::answer("42")]);
    let spec = format!(
        "name: answer\ndescription: x\nworkspace: {{protect: [{{from: all, to: .}}]}}\nchecks:\n{}",
        check(
            "one",
            "mkdir -p new .pytest_cache && touch new/file .pytest_cache/x && ! (echo x > a.txt) 2>/dev/null",
            ""
        )
    );
    let project = Project::with(spec, &server)
        .file("specs/all/a.txt", TEST)
        .file("specs/all/b/c.txt", TEST);
    let (project, ran) = run(project, SandboxMode::Full);
    if !ran.stderr.contains("sandbox: full") {
        return skip("there are no namespaces here");
    }
    ran.exits(0);
    assert!(project.exists("workspace/new/file"));
    assert_eq!(
        fs::read_to_string(project.path("workspace/a.txt")).unwrap(),
        TEST
    );
}
