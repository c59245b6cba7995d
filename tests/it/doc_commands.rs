//! Every command in `README.md` and `docs/` is run, and output that a page shows is compared. What cannot be run is listed
//! with its reason; its options are compared with the help, as are those of every other line.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use regex::Regex;

use crate::completions::{commands, help_of};
use crate::support::needs;
use crate::support::project::{BINARY, Project, files_below};
use crate::support::reply::{self, Reply};
use crate::support::server::Server;

/// Beginnings of commands that are not run here, and why.
const NOT_RUN: &[(&str, &str)] = &[
    ("cargo fmt", "this test is part of it"),
    ("cargo install", "it builds the program again"),
    ("cargo bench", "a benchmark takes minutes"),
    ("TREE_FILES=", "a benchmark takes minutes"),
    ("just ", "it builds, tests or measures everything"),
    ("export ANTHROPIC_API_KEY", "the key is that of the test"),
    ("sudo apt install ", "packaging.rs unpacks the package"),
    ("claude ", "mcp_server.rs runs these with the real claude"),
    (
        "orchestrator fleet run specs --engine slurm",
        "fleet_slurm.rs runs it",
    ),
    ("ollama ", "not installed here"),
    ("OLLAMA_CONTEXT_LENGTH=", "not installed here"),
    (
        "orchestrator run --spec specs/agent/rpn.yaml",
        "cargo may be in a home that the test does not have; examples.rs runs it",
    ),
    (
        "orchestrator run --workflow workflows/tidy --answer",
        "it needs a run that asks; workflow_examples.rs has one",
    ),
];

/// Pages with a test of their own.
const OWN_TEST: &[(&str, &str)] = &[("docs/existing-project.md", "existing_project.rs")];

const PROGRAMS: &str = r"^(orchestrator|cargo|just|export|git|claude|sudo|TREE_FILES=\S+) ";

const GREETER: &str = "def greet(name):\n    return f\"Hello, {name}!\" if name else \"Hello!\"\n";
const CALCULATOR: &str = "name: calculator\ndescription: A calculator.\n\
    checks: [{name: unit, command: [grep, -qx, '42', answer.txt]}]\nmax_retries: 1\n";

/// A command of a page, with the output that the page shows.
#[derive(Debug, Default)]
pub(crate) struct DocCommand {
    pub(crate) line: String,
    shown: Option<String>,
}

fn pages() -> BTreeMap<String, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = fs::read_dir(repository.join("docs")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let names = names.filter(|name| name.ends_with(".md"));
    let names = names.map(|name| format!("docs/{name}"));
    names
        .chain(["README.md".to_owned()])
        .map(|name| {
            let text = fs::read_to_string(repository.join(&name)).unwrap();
            (name, text)
        })
        .collect()
}

/// The commands of a page: of its `sh` and `console` blocks, and indented ones that begin with a program.
pub(crate) fn doc_commands(page: &str) -> Vec<DocCommand> {
    let program = Regex::new(PROGRAMS).unwrap();
    let mut found: Vec<DocCommand> = Vec::new();
    let mut language: Option<&str> = None;
    let mut is_continued = false;
    for line in page.lines() {
        let fence = line.strip_prefix("```");
        match (language, fence) {
            (None, Some(name)) => language = Some(name),
            (Some(_), Some(_)) => language = None,
            (Some("console"), None) => is_continued = read_console(line, &mut found, is_continued),
            (Some("sh"), None) => found.push(plain(line)),
            (None, None) => {
                let indented = line.strip_prefix("    ");
                let indented = indented.filter(|line| program.is_match(line));
                found.extend(indented.map(plain));
            }
            _ => {}
        }
    }
    found.retain(|command| !command.line.is_empty());
    found
}

/// A command without its comment.
fn plain(line: &str) -> DocCommand {
    let line = line.split(" #").next().unwrap_or_default().trim();
    let line = line.replace("cargo run --release --", "orchestrator");
    DocCommand { line, shown: None }
}

/// Reads a line of a `console` block; returns whether `>` continues it.
fn read_console(line: &str, found: &mut Vec<DocCommand>, is_continued: bool) -> bool {
    if let Some(command) = line.strip_prefix("$ ") {
        found.push(DocCommand {
            line: command.to_owned(),
            shown: Some(String::new()),
        });
        return command.contains("<<");
    }
    let last = found.last_mut().expect("a console block begins with $");
    match line.strip_prefix('>').filter(|_| is_continued) {
        Some(more) => last.line += &format!("\n{}", more.strip_prefix(' ').unwrap_or(more)),
        None => {
            let shown = last.shown.get_or_insert_default();
            *shown += &format!("{line}\n");
        }
    }
    is_continued
}

/// Whether a line describes commands, by placeholders, rather than being one.
fn is_synopsis(line: &str) -> bool {
    let placeholder = Regex::new(r"[\[<][A-Za-z-]|(^| )[A-Z]{1,}( |$)|…").unwrap();
    placeholder.is_match(line.lines().next().unwrap_or_default())
        && line.starts_with("orchestrator")
}

fn reason_not_to_run(line: &str) -> Option<&'static str> {
    let listed = NOT_RUN.iter().find(|(start, _)| line.starts_with(start));
    listed.map(|(_, reason)| *reason)
}

/// Whether an output is the one of the page, where `…` is anything in a line, or alone any number of lines.
fn is_shown(output: &str, shown: &str) -> bool {
    let mut pattern = String::from("(?s)^");
    for line in shown.lines() {
        pattern += &match line {
            "…" => ".*".to_owned(),
            line => regex::escape(line).replace('…', "[^\n]*") + " *\n",
        };
    }
    Regex::new(&(pattern + "$")).unwrap().is_match(output)
}

/// The answers of the model on a page, and what is done before its first command.
fn session(page: &str) -> (Vec<Reply>, &'static str) {
    let roman = "orchestrator run specs/roman.yaml";
    match page {
        "docs/getting-started.md" => {
            let greeter = reply::files(&[("greeter.py", GREETER)]);
            (vec![greeter], "rm -r specs workflows")
        }
        "docs/local-models.md" => (vec![reply::files(&[("greeter.py", GREETER)])], "true"),
        "docs/results.md" => (
            ["40", "41", "42"].map(reply::answer).into(),
            "orchestrator run specs/calculator.yaml || true",
        ),
        "README.md" => {
            let calculator = [reply::answer("42")];
            (calculator.into_iter().chain(repair()).collect(), "true")
        }
        "docs/fleet.md" => (
            vec![reply::answer("42"); 40],
            "mv specs/calculator.yaml . && rm -r specs workflows && mkdir specs && mv calculator.yaml specs && \
             cp specs/calculator.yaml specs/other.yaml",
        ),
        "docs/workflows.md" => (repair().into(), "true"),
        "docs/agent-mode.md" => (vec![reply::answer("42")], "true"),
        _ => (vec![reply::answer("42")], roman),
    }
}

/// The answers that repair `~/project` by the workflow on the pages.
fn repair() -> [Reply; 2] {
    [
        reply::bash("touch repaired"),
        reply::text("<goto>START</goto>"),
    ]
}

/// The files that a page shows with their names, in a comment at their beginning.
fn shown_files(page: &str) -> Vec<(String, String)> {
    let block = Regex::new("(?s)```(?:bash|markdown)\n(.*?)```").unwrap();
    let name = Regex::new(r"# (repair/\w+\.(?:sh|md))").unwrap();
    let blocks = block.captures_iter(page).map(|found| found[1].to_owned());
    blocks
        .filter_map(|text| Some((name.captures(&text)?[1].to_owned(), text)))
        .collect()
}

/// A root with the examples of the repository, and what the pages take for granted.
fn prepared(page: &str, text: &str, server: &Server) -> Project {
    let folder = Path::new(BINARY).parent().unwrap().display();
    let path = std::env::var("PATH").unwrap();
    let mut project = Project::new()
        .model(server)
        .env(
            "PATH",
            &format!("{folder}:/usr/local/bin:/usr/bin:/bin:{path}"),
        )
        .file("specs/calculator.yaml", CALCULATOR);
    for (name, content) in shown_files(text) {
        project = project.file(&name, content);
    }
    fs::create_dir_all(project.outside("home/project")).unwrap();
    let makefile = project.outside("home/project/Makefile");
    fs::write(makefile, "test:\n\ttest -e repaired\n").unwrap();
    for name in ["specs", "workflows"] {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        for (path, content) in files_below(&from) {
            project = project.file(&format!("{name}/{path}"), content);
        }
    }
    let block = Regex::new("(?s)```yaml\n(name: greeter.*?)```").unwrap();
    match block.captures(text).filter(|_| page.contains("local")) {
        Some(spec) => {
            let url = format!("{}/v1", server.url());
            let spec = spec[1].replace("http://localhost:11434/v1", &url);
            project.file("specs/local.yaml", spec)
        }
        None => project,
    }
}

/// Runs the commands of a page in one shell; returns what is wrong.
fn run_page(page: &str, text: &str) -> String {
    let is_run = |command: &&DocCommand| {
        let is_possible = !command.line.contains("| parallel ") || needs::program("parallel");
        is_possible && !is_synopsis(&command.line) && reason_not_to_run(&command.line).is_none()
    };
    let all = doc_commands(text);
    let run: Vec<&DocCommand> = all.iter().filter(is_run).collect();
    if run.is_empty() || OWN_TEST.iter().any(|(own, _)| *own == page) {
        return String::new();
    }
    let (replies, before) = session(page);
    let server = Server::start(replies);
    let project = prepared(page, text, &server);
    let mut script = format!("exec 2>&1\n{before} > before\n");
    for command in &run {
        if command.line.contains("--workflow") {
            script += "orchestrator reset > before\n";
        }
        script += &format!("{}\necho \"=== $?\"\n", command.line);
    }
    project.write("page.sh", script);
    let ran = project.run_in_shell("bash page.sh", &[]);
    let marker = Regex::new("(?m)^=== ([0-9]+)\n").unwrap();
    let outputs: Vec<&str> = marker.split(&ran.stdout).collect();
    let codes = marker.captures_iter(&ran.stdout);
    let codes: Vec<String> = codes.map(|found| found[1].to_owned()).collect();
    let mut wrong = String::new();
    let is_repaired = project.outside("home/project/repaired").exists();
    if !shown_files(text).is_empty() && !is_repaired {
        wrong += &format!("{page}: its workflow repairs nothing\n{}", ran.transcript());
    }
    for (number, command) in run.iter().enumerate() {
        let code = codes.get(number).map_or("none", String::as_str);
        let output = outputs.get(number).copied().unwrap_or_default();
        let differs = command
            .shown
            .as_ref()
            .is_some_and(|shown| !is_shown(output, shown));
        if code != "0" || differs {
            wrong += &format!("{page}: $ {}\n{output}exit code {code}\n", command.line);
        }
    }
    wrong
}

#[test]
fn every_command_of_the_pages_works_and_prints_what_they_show() {
    let pages = pages();
    let wrong: String = pages
        .iter()
        .map(|(page, text)| run_page(page, text))
        .collect();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_is_not_run_is_there() {
    let lines: Vec<String> = pages()
        .values()
        .flat_map(|text| doc_commands(text))
        .map(|command| command.line)
        .collect();
    for (start, reason) in NOT_RUN {
        assert!(
            lines.iter().any(|line| line.starts_with(start)),
            "{start}: {reason}"
        );
    }
    for (page, test) in OWN_TEST {
        assert!(pages().contains_key(*page));
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it");
        assert!(tests.join(test).exists(), "{test}");
    }
}

/// Every text on a page that names a command of the program: in blocks, and in backticks.
fn named_lines(text: &str) -> Vec<String> {
    let quoted = Regex::new("(?s)`((?:cargo run --release --|orchestrator) [^`]+)`").unwrap();
    let quoted = quoted
        .captures_iter(text)
        .map(|found| plain(&found[1].replace('\n', " ")).line);
    let of_blocks = doc_commands(text).into_iter().map(|command| command.line);
    of_blocks.chain(quoted).collect()
}

#[test]
fn every_command_and_option_of_the_pages_exists() {
    let project = Project::new();
    let program = project.run(&["--help"]).exits(0).stdout;
    let known: BTreeMap<String, String> = commands(&project)
        .into_iter()
        .map(|name| {
            let help = help_of(&project, &name);
            (name, help)
        })
        .collect();
    let call = Regex::new(r"orchestrator((?: [^|;&\n]*)?)").unwrap();
    let option = Regex::new(r"^-{1,2}[a-z][a-z-]*$").unwrap();
    let mut wrong = String::new();
    for (page, text) in pages() {
        for line in named_lines(&text) {
            for found in call.captures_iter(&line) {
                let mut words = found[1].split_whitespace();
                let words = words
                    .by_ref()
                    .map(|word| word.trim_matches(['[', ']', '<', '>']));
                let words: Vec<&str> = words.flat_map(|word| word.split(['|', '='])).collect();
                let name = words.iter().position(|word| known.contains_key(*word));
                // A command below another one, such as `fleet run`.
                let path = name
                    .and_then(|at| words.get(at..at + 2))
                    .map(|path| path.join(" "));
                let path = path.filter(|path| known.contains_key(path));
                let path = path.or(name.map(|at| words[at].to_owned()));
                let help = path.map_or(&program, |path| &known[&path]);
                let unknown = words.iter().filter(|word| option.is_match(word));
                let unknown: Vec<_> = unknown
                    .filter(|word| !help.split([' ', ',', '\n']).any(|known| known == **word))
                    .collect();
                let is_named = name.is_some()
                    || words
                        .iter()
                        .all(|word| word.starts_with('-') || word.to_uppercase() == **word);
                if !unknown.is_empty() || !is_named {
                    wrong += &format!("{page}: {line}: {unknown:?}\n");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_troubleshooting_page_has_every_exit_code_and_reason() {
    let page = &pages()["docs/troubleshooting.md"];
    let (codes, reasons) = page.split_once("\n## Reasons\n").unwrap();
    let row = |text: &str, pattern: &str| -> Vec<String> {
        let row = Regex::new(pattern).unwrap();
        let mut found: Vec<String> = row
            .captures_iter(text)
            .map(|found| found[1].to_owned())
            .collect();
        found.sort();
        found
    };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/state/reason.rs");
    let source = fs::read_to_string(source).unwrap();
    assert_eq!(
        row(reasons, r"(?m)^\| `([a-z_]+)` \|"),
        row(&source, r#"=> "([a-z_]+)""#)
    );
    let mut expected = row(&source, r"=> ([0-9]+),");
    // SIGHUP and SIGTERM beside SIGINT.
    expected.extend(["129".into(), "143".into()]);
    expected.sort();
    assert_eq!(row(codes, r"(?m)^\| ([0-9]+) \|"), expected);
}
