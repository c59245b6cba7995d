//! `completions` in the real shells, and `man` in the real formatter.

use std::fs;
use std::path::Path;

use crate::support::needs;
use crate::support::project::{BINARY, Project};
use crate::support::terminal::Terminal;

/// Prints the completions that bash proposes for the last word of a line.
const BASH: &str = r#"source ./script || exit 1
complete -p orchestrator | grep -q -- '-F _orchestrator' || exit 2
propose() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _orchestrator orchestrator "${!#}" "${COMP_WORDS[-2]}"; echo "${COMPREPLY[@]}"; }
propose orchestrator lin
propose orchestrator lint --js
propose orchestrator lint --spec specs/on
propose orchestrator completions f
"#;

const FISH: &str = r"source ./script; or exit 1
for line in 'orchestrator lin' 'orchestrator lint --js' 'orchestrator lint --spec specs/on' 'orchestrator completions f'
    echo (complete -C $line | cut -f 1)
end
";

const PROPOSED: &str = "lint\n--json\nspecs/one.yaml\nfish\n";

/// A project with a completion script and a spec, and the program on `PATH`.
fn project(shell: &str) -> Project {
    let folder = Path::new(BINARY).parent().unwrap().display();
    let project = Project::new()
        .env("PATH", &format!("{folder}:/usr/local/bin:/usr/bin:/bin"))
        .env("TERM", "dumb")
        .file("specs/one.yaml", "name: one\ndescription: two\n");
    let script = project.run(&["completions", shell]).exits(0).stdout;
    project.file("script", script)
}

#[test]
fn bash_completes_commands_options_paths_and_values() {
    let project = project("bash").file("propose", BASH);
    let ran = project.run_in_shell("bash --norc propose", &[]).exits(0);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        (PROPOSED, ""),
        "{}",
        ran.transcript()
    );
}

#[test]
fn fish_completes_commands_options_paths_and_values() {
    if !needs::program("fish") {
        return;
    }
    let project = project("fish").file("propose", FISH);
    let ran = project
        .run_in_shell("fish --no-config propose", &[])
        .exits(0);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str()),
        (PROPOSED, ""),
        "{}",
        ran.transcript()
    );
}

#[test]
fn zsh_completes_commands_options_paths_and_values() {
    if !needs::program("zsh") {
        return;
    }
    let project = project("zsh");
    fs::rename(project.path("script"), project.path("_orchestrator")).unwrap();
    let mut zsh = Terminal::start(project.command("zsh", &["-f", "-i"]));
    zsh.send_line("fpath=($PWD $fpath); autoload -Uz compinit && compinit -u -D; echo rea''dy");
    zsh.until("ready\r");
    zsh.send_line("orchestrator lin\t--js\t--spec specs/on\t");
    zsh.until(r#""findings": ?\[\]"#);
    zsh.send_line("orchestrator completions fi\t | head -n 3; exit");
    let (_, seen) = zsh.wait();
    assert!(seen.contains("# Print an optspec"), "{seen:?}");
}

#[test]
fn a_completion_script_is_for_a_known_shell() {
    let project = Project::new();
    project
        .run(&["completions", "tcsh"])
        .exits(64)
        .says("[possible values: bash, zsh, fish]");
    project.run(&["completions"]).exits(64).says("<SHELL>");
}

/// The names of the commands, as `--help` lists them; those of `fleet` as `fleet run`.
pub(crate) fn commands(project: &Project) -> Vec<String> {
    let mut names = commands_of(project, &[]);
    let below = commands_of(project, &["fleet"]).into_iter();
    names.extend(below.map(|name| format!("fleet {name}")));
    names
}

/// The help of a command.
pub(crate) fn help_of(project: &Project, command: &str) -> String {
    let words: Vec<&str> = command.split(' ').chain(["--help"]).collect();
    project.run(&words).exits(0).stdout
}

fn commands_of(project: &Project, command: &[&str]) -> Vec<String> {
    let help = project
        .run(&[command, &["--help"]].concat())
        .exits(0)
        .stdout;
    let (_, list) = help.split_once("\nCommands:\n").unwrap();
    let (list, _) = list.split_once("\n\n").unwrap();
    let names = list.lines().filter(|line| !line.starts_with("   "));
    let names = names.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| *name != "help")
        .map(str::to_owned)
        .collect()
}

#[test]
fn there_is_a_page_of_every_command_that_the_formatter_accepts() {
    let project = Project::new();
    let pages = project.path("new/man1");
    let output = pages.display().to_string();
    for _ in 0..2 {
        project.run(&["man", "-o", &output]).exits(0);
    }
    let mut expected = vec!["orchestrator.1".to_owned()];
    expected.extend(
        commands(&project)
            .iter()
            .map(|name| format!("orchestrator-{}.1", name.replace(' ', "-"))),
    );
    let found = fs::read_dir(&pages).unwrap();
    let mut found: Vec<_> = found
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected);
    if !needs::program("groff") {
        return;
    }
    for name in &found {
        let line = format!("groff -man -Tutf8 -ww -P-c -P-b -P-u new/man1/{name}");
        let ran = project.run_in_shell(&line, &[]).exits(0);
        assert_eq!(ran.stderr, "", "{}", ran.transcript());
        for section in ["\nNAME\n", "\nSYNOPSIS\n", "\nOPTIONS\n", "\nEXAMPLES\n"] {
            assert!(
                ran.stdout.contains(section),
                "{section}{}",
                ran.transcript()
            );
        }
    }
}

#[test]
fn man_prints_the_page_of_the_program_or_of_a_command() {
    let project = Project::new();
    let page = project.run(&["man"]).exits(0).stdout;
    assert!(page.contains("\n.TH orchestrator 1 "), "{page}");
    assert!(page.contains(".SH \"EXIT STATUS\"\n"), "{page}");
    let page = project.run(&["man", "diff"]).exits(0).stdout;
    assert!(page.contains("\n.TH orchestrator-diff 1 "), "{page}");
    let page = project.run(&["man", "fleet", "run"]).exits(0).stdout;
    assert!(page.contains("\n.TH orchestrator-fleet-run 1 "), "{page}");
    project
        .run(&["man", "dance"])
        .exits(64)
        .says("invalid command: expected one of init, doctor, run, status, watch");
    project.write("file", "");
    project
        .run(&["man", "-o", "file/man1"])
        .exits(74)
        .says("cannot create file/man1: ");
    assert_eq!(project.files().len(), 1);
}

#[test]
fn the_version_has_the_commit_of_a_checkout() {
    let version = Project::new().run(&["--version"]).exits(0).stdout;
    let package = env!("CARGO_PKG_VERSION");
    if !Path::new(env!("CARGO_MANIFEST_DIR")).join(".git").exists() {
        return needs::skip("this is not a git checkout");
    }
    let pattern = format!("^orchestrator {package} \\(commit [0-9a-f]{{10,}}(-modified)?\\)\n$");
    let pattern = regex::Regex::new(&pattern).unwrap();
    assert!(pattern.is_match(&version), "{version}");
}
