//! `diff`: what a run changed, as a patch that the real `git apply` takes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::needs;
use crate::support::project::{BINARY, Project, RUN, files_below};
use crate::support::reply;
use crate::support::server::Server;
use crate::support::terminal::Terminal;

const SPEC: &str = "name: x\ndescription: x\nworkspace: {copy: [.]}\nchecks:\n  - name: done\n    command: [sh, -c, 'sh change.sh; test -e done']\n";

/// A project whose files are copied; in the second round the check itself changes more of them.
fn project(server: &Server) -> Project {
    let project = Project::with(SPEC, server)
        .file("specs/changed.txt", "one\ntwo\nthree\n")
        .file("specs/deleted.txt", "gone")
        .file("specs/with blank.txt", "x\n")
        .file("specs/grün/ß 漢.txt", "eins\n")
        .file("specs/bytes.bin", (0..=255).collect::<Vec<u8>>())
        .file("specs/script.sh", "#!/bin/sh\n")
        .file("specs/crlf.txt", "a\r\nb\r\n")
        .file("specs/change.sh", "true\n");
    fs::write(project.path("specs/not-utf8-\u{e9}"), [0xff, 0xfe, b'\n']).unwrap();
    symlink("changed.txt", project.path("specs/link")).unwrap();
    project.run(RUN).exits(0);
    project
}

fn answers() -> Server {
    let change = "rm -f deleted.txt link; ln -s done link; chmod +x changed.txt; printf '\\000\\001' > bytes.bin\n";
    Server::start([
        reply::files(&[
            ("changed.txt", "one\n2\nthree\n"),
            ("with blank.txt", "no newline"),
            ("grün/ß 漢.txt", "zwei\n"),
            ("deep/er/new.txt", "new\n"),
            ("empty.txt", ""),
            ("run.sh", "#!/bin/sh\ntrue\n"),
            ("crlf.txt", "a\r\nc\r\n"),
        ]),
        reply::files(&[("change.sh", change), ("done", "")]),
    ])
}

/// Applies a patch with the real git to a copy of a folder; returns its files.
fn applied(
    project: &Project,
    from: &Path,
    patch: &[u8],
) -> std::collections::BTreeMap<String, Vec<u8>> {
    let folder = project.outside("applied");
    let _ = fs::remove_dir_all(&folder);
    assert!(
        Command::new("cp")
            .arg("-a")
            .arg(from)
            .arg(&folder)
            .status()
            .unwrap()
            .success()
    );
    let mut git = Command::new("git")
        .args(["apply", "--whitespace=nowarn", "-"])
        .current_dir(&folder)
        .env("GIT_CEILING_DIRECTORIES", project.outside(""))
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("HOME", project.outside("home"))
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    git.stdin.take().unwrap().write_all(patch).unwrap();
    assert!(
        git.wait().unwrap().success(),
        "{}",
        String::from_utf8_lossy(patch)
    );
    files_below(&folder)
}

fn patch(project: &Project, arguments: &[&str]) -> Vec<u8> {
    let command = project.command(BINARY, &[&["diff"], arguments].concat());
    let output = { command }.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    output.stdout
}

#[test]
fn git_applies_the_difference_to_what_was_taken_in() {
    if !needs::program("git") {
        return;
    }
    let server = answers();
    let project = project(&server);
    let now = project.workspace_files();
    let specs = project.path("specs");
    fs::remove_file(specs.join("spec.yaml")).unwrap();
    assert_eq!(applied(&project, &specs, &patch(&project, &[])), now);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o111;
    assert_ne!(mode(&project.outside("applied/changed.txt")), 0);
    assert_ne!(mode(&project.outside("applied/run.sh")), 0);
    // In two steps it is the same.
    let first = applied(&project, &specs, &patch(&project, &["0", "1"]));
    assert!(first.contains_key("deleted.txt") && first.contains_key("deep/er/new.txt"));
    let between = project.outside("between");
    fs::rename(project.outside("applied"), &between).unwrap();
    assert_eq!(
        applied(&project, &between, &patch(&project, &["1", "2"])),
        now
    );
    assert_eq!(applied(&project, &between, &patch(&project, &["1"])), now);
}

#[test]
fn names_and_numbers_are_written_as_by_git() {
    let server = answers();
    let project = project(&server);
    let text = String::from_utf8_lossy(&patch(&project, &[])).into_owned();
    for line in [
        "diff --git a/changed.txt b/changed.txt\nold mode 100644\nnew mode 100755\n",
        "--- a/with blank.txt\t\n",
        "\"a/gr\\303\\274n/\\303\\237 \\346\\274\\242.txt\"",
        "GIT binary patch\n",
        "\\ No newline at end of file\n",
        "deleted file mode 100644\n",
        "new file mode 100755\n",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
    let stat = String::from_utf8(patch(&project, &["--stat"])).unwrap();
    assert!(
        stat.contains(" changed.txt ") && stat.contains(" files changed, "),
        "{stat}"
    );
    assert!(patch(&project, &["2"]).is_empty());
}

#[test]
fn an_older_run_is_compared_with_its_last_attempt() {
    let server = answers();
    let project = project(&server);
    let first = project.state_text("run_id");
    let before = patch(&project, &[]);
    project.run(&["reset"]).exits(0);
    assert_eq!(patch(&project, &["--run", &first[..8]]), before);
    // After a reset the newest run is meant.
    assert_eq!(patch(&project, &[]), before);
    let ran = project.run(&["diff", "1", "9"]).exits(64);
    assert!(
        ran.stderr.contains("there are 1, 2"),
        "{}",
        ran.transcript()
    );
}

#[test]
fn a_damaged_object_is_an_error_that_names_it() {
    let server = answers();
    let project = project(&server);
    for object in fs::read_dir(project.path("logs/objects")).unwrap() {
        let path = object.unwrap().path();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        fs::write(path, "damaged").unwrap();
    }
    project.run(&["diff"]).exits(74).says("damaged");
    project.run(&["restore", "1"]).exits(74).says("damaged");
}

#[test]
fn at_a_terminal_it_is_coloured_and_goes_through_the_pager() {
    let server = answers();
    let project = project(&server)
        .env("TERM", "xterm")
        .env("PAGER", "sed s/^/PAGED/");
    let (code, seen) = Terminal::start(project.command(BINARY, &["diff", "0", "1"])).wait();
    assert_eq!(code, 0);
    assert!(seen.contains("PAGED\u{1b}[32m+2"), "{seen:?}");
    let plain = project.env("NO_COLOR", "1").env("PAGER", "");
    let (code, seen) = Terminal::start(plain.command(BINARY, &["diff", "0", "1"])).wait();
    assert_eq!(code, 0);
    assert!(
        seen.contains("\r\n+2\r\n") && !seen.contains('\u{1b}') && !seen.contains("PAGED"),
        "{seen:?}"
    );
}
