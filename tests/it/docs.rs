//! The documents name every field, event, option, exit code and variable that exists, and no others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use orchestrator::internals::state::Reason;
use regex::Regex;
use serde_json::Value;

use crate::completions::{commands, help_of};
use crate::support::project::{Project, RUN};

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn document(name: &str) -> String {
    fs::read_to_string(repository().join(name)).unwrap()
}

/// The rows of all tables of a document, each as its cells.
fn rows(text: &str) -> Vec<Vec<String>> {
    text.lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("|---"))
        .map(|line| {
            let cells = line.trim_matches('|').split(" | ");
            cells.map(|cell| cell.trim().to_owned()).collect()
        })
        .collect()
}

/// The words in backticks of a cell.
fn code(cell: &str) -> Vec<String> {
    let quoted = Regex::new("`([^`]+)`").unwrap();
    let found = quoted.captures_iter(cell);
    found.map(|found| found[1].to_owned()).collect()
}

fn set<T: AsRef<str>>(words: impl IntoIterator<Item = T>) -> BTreeSet<String> {
    words
        .into_iter()
        .map(|word| word.as_ref().to_owned())
        .collect()
}

/// The fields that the reader of specs allows in a mapping: it lists them when it refuses another.
fn allowed(prefix: &str, yaml: &str) -> BTreeSet<String> {
    let project = Project::new().spec(format!("name: a\ndescription: b\n{yaml}\n"));
    let ran = project
        .run(&["lint", "--spec", "specs/spec.yaml"])
        .exits(65);
    let (_, list) = ran.stderr.split_once("allowed: ").unwrap();
    let names = list.lines().next().unwrap_or_default().split(", ");
    names.map(|name| format!("{prefix}{name}")).collect()
}

#[test]
fn the_spec_page_has_every_field() {
    let mut fields = BTreeSet::new();
    for (prefix, yaml) in [
        ("", "x: 1"),
        ("workspace.", "workspace: {x: 1}"),
        ("workspace.copy[].", "workspace: {copy: [{from: ., x: 1}]}"),
        ("checks[].", "checks: [{command: [sh], x: 1}]"),
        ("generator.", "generator: {x: 1}"),
        ("generator.price.", "generator: {price: {x: 1}}"),
        ("budget.", "budget: {x: 1}"),
        ("sandbox.", "sandbox: {x: 1}"),
        ("sandbox.limits.", "sandbox: {limits: {x: 1}}"),
        ("snapshots.", "snapshots: {x: 1}"),
    ] {
        fields.extend(allowed(prefix, yaml));
    }
    let documented: BTreeSet<String> = rows(&document("docs/spec.md"))
        .iter()
        .filter_map(|row| code(&row[0]).into_iter().next())
        .collect();
    let is_mapping = |field: &&String| {
        let below = format!("{field}.");
        documented.iter().any(|other| other.starts_with(&below))
    };
    let missing: Vec<_> = fields
        .difference(&documented)
        .filter(|field| !is_mapping(field))
        .collect();
    let unknown: Vec<_> = documented.difference(&fields).collect();
    assert!(
        missing.is_empty() && unknown.is_empty(),
        "missing: {missing:?}, unknown: {unknown:?}"
    );
}

/// The events of the log with their fields, from the source.
fn events() -> BTreeMap<String, BTreeSet<String>> {
    let source = document("src/events/mod.rs");
    let (_, body) = source.split_once("pub enum Event {").unwrap();
    let variant = Regex::new(r"^    (\w+) \{$").unwrap();
    let field = Regex::new(r"^        (\w+): (\w+)").unwrap();
    let mut events: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut name = String::new();
    for line in body.lines().take_while(|line| *line != "}") {
        if let Some(found) = variant.captures(line) {
            name = found[1].to_owned();
        } else if let Some(found) = field.captures(line) {
            let fields = events.entry(name.clone()).or_default();
            match &found[2] {
                "RequestPlace" => fields.extend(set(["phase", "retry_count", "turn"])),
                "ConversationScope" => fields.extend(set(["phase", "retry_count"])),
                _ => fields.extend(set([&found[1]])),
            }
        }
    }
    assert!(20 < events.len(), "{events:?}");
    events
}

#[test]
fn the_log_page_has_every_event_with_its_fields() {
    let documented: BTreeMap<String, BTreeSet<String>> = rows(&document("docs/log-format.md"))
        .iter()
        .filter_map(|row| {
            let name = code(&row[0]).into_iter().next()?;
            let is_event = name.starts_with(|c: char| c.is_uppercase());
            is_event.then(|| (name, set(code(&row[1]))))
        })
        .collect();
    assert_eq!(documented, events());
}

#[test]
fn the_log_page_has_every_field_of_the_state() {
    let project = Project::new()
        .spec("name: a\ndescription: b\nchecks: [{command: [sh, -c, 'true']}]\ngenerator: {provider: template, template: t}\n")
        .file("specs/t/0/a", "a\n");
    project.run(RUN).exits(0);
    let Value::Object(state) = project.state() else {
        panic!("the state is not an object");
    };
    let page = document("docs/log-format.md");
    let (_, section) = page.split_once("## state.json").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = rows(section);
    let documented = set(rows.iter().flat_map(|row| code(&row[0])));
    assert_eq!(documented, set(state.keys()));
    let usage = rows.iter().find(|row| row[0] == "`usage`").unwrap();
    let fields = state["usage"].as_object().unwrap();
    assert_eq!(set(code(&usage[1])), set(fields.keys()));
}

#[test]
fn the_results_page_has_every_field_of_a_listed_run() {
    let project = Project::new().file("flow/START.sh", "echo '<result>x</result>'");
    project.run(&["run", "--workflow", "flow"]).exits(0);
    let listed = project.run(&["runs", "--json"]).exits(0).stdout;
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let rows = rows(&section("docs/results.md", "runs"));
    assert_eq!(
        set(rows.iter().flat_map(|row| code(&row[0]))),
        keys(&listed[0])
    );
}

/// The fields in the rows of a section's tables, those of an inner object with its name.
fn field_rows(page: &str, heading: &str) -> BTreeSet<String> {
    let rows = rows(&section(page, heading));
    set(rows
        .iter()
        .filter(|row| row.len() == 2)
        .flat_map(|row| code(&row[0])))
}

#[test]
fn the_pages_have_every_field_that_a_command_prints_as_json() {
    let spec = "name: a\ndescription: b\nchecks: [{command: [sh, -c, 'true']}]\n\
                generator: {provider: template, template: t}\n";
    let project = Project::new().spec(spec).file("specs/t/0/a", "a\n");
    let json = |arguments: &[&str]| -> Value {
        let ran = project.run(arguments);
        serde_json::from_str(&ran.stdout).unwrap_or_else(|_| panic!("{}", ran.transcript()))
    };
    let result = json(&["run", "--spec", "specs/spec.yaml", "--json"]);
    let mut documented = field_rows("docs/cli.md", "run");
    // Only of a workflow, and options in other tables of the section.
    assert!(documented.remove("result"));
    documented.retain(|name| !name.starts_with("--") && name != "PATH");
    assert_eq!(keys(&result), documented);
    let attempts = json(&["attempts", "--json"]);
    assert_eq!(
        keys(&attempts[0]),
        field_rows("docs/results.md", "attempts")
    );
    project.write("specs/spec.yaml", "nam: a\n");
    let findings = json(&["lint", "specs/spec.yaml", "--json"]);
    assert_eq!(keys(&findings), set(["findings"]));
    assert_eq!(keys(&findings["findings"][0]), {
        let mut documented = field_rows("docs/cli.md", "lint");
        // Another name of `code`.
        documented.insert("check".into());
        documented
    });
}

/// The text of a page from a heading to the next one of its level.
fn section(page: &str, heading: &str) -> String {
    let page = document(page);
    let (_, section) = page.split_once(&format!("\n## {heading}\n")).unwrap();
    let (section, _) = section.split_once("\n## ").unwrap_or((section, ""));
    section.to_owned()
}

fn keys(object: &Value) -> BTreeSet<String> {
    set(object.as_object().unwrap().keys())
}

#[test]
fn the_workflow_page_has_every_field_of_the_state() {
    let project = Project::new()
        .file(
            "flow/START.sh",
            "echo '<function return=\"START\">ASK</function>'",
        )
        .file("flow/ASK.sh", "echo '<ask next=\"START\">?</ask>'");
    let options =
        "--project-dir . --budget 1 --price 1,1 --provider openai --model m --timeout 9 --jobs 2";
    let arguments = ["run", "--workflow", "flow"].into_iter();
    let arguments: Vec<&str> = arguments.chain(options.split(' ')).collect();
    project.run(&arguments).exits(4);
    let state = project.state();
    let rows = rows(&section("docs/workflows.md", "state.json"));
    let meaning = |field: &str| {
        let row = rows.iter().find(|row| code(&row[0]) == [field]);
        set(code(&row.unwrap()[1]))
    };
    let agent = &state["agents"][0];
    let of_agent = keys(agent);
    let of_agent = of_agent.iter().map(|field| format!("agents[].{field}"));
    let fields = keys(&state).into_iter().chain(of_agent);
    assert_eq!(set(rows.iter().flat_map(|row| code(&row[0]))), set(fields));
    assert_eq!(meaning("options"), keys(&state["options"]));
    assert_eq!(meaning("agents[].stack"), keys(&agent["stack"][0]));
}

#[test]
fn the_workflow_page_has_every_field_of_a_transition() {
    let source = document("src/workflow/agent_record.rs");
    let (_, body) = source
        .split_once("pub(crate) struct TransitionFacts {")
        .unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let field = Regex::new(r"pub\(crate\) (\w+):").unwrap();
    let fields = field.captures_iter(body).map(|found| match &found[1] {
        "return_state" => "return".to_owned(),
        name => name.to_owned(),
    });
    let rows = rows(&section("docs/workflows.md", "The log"));
    assert_eq!(set(rows.iter().flat_map(|row| code(&row[0]))), set(fields));
}

#[test]
fn the_workflow_page_has_every_key_of_front_matter() {
    let source = document("src/workflow/state_file.rs");
    let list = |name: &str| {
        let (_, list) = source.split_once(&format!("const {name}: [&str;")).unwrap();
        let (list, _) = list.split_once("];").unwrap();
        let word = Regex::new(r#""(\w+)""#).unwrap();
        set(word.captures_iter(list).map(|found| found[1].to_owned()))
    };
    let states = rows(&section("docs/workflows.md", "States"));
    assert_eq!(
        set(states.iter().flat_map(|row| code(&row[0]))),
        list("KEYS")
    );
    let policies = section("docs/workflows.md", "Policies and reminders");
    let described = set(code(&policies));
    for key in list("ENTRY_KEYS") {
        assert!(described.contains(&key), "{key}");
    }
}

#[test]
fn the_workflow_page_has_every_variable_of_a_script() {
    let project = Project::new()
        .file(
            "flow/START.sh",
            "echo '<fork input=\"x\" name=\"y\" join=\"END\">WORK</fork>'",
        )
        .file(
            "flow/WORK.sh",
            "env | cut -d = -f 1 > names; echo '<result>x</result>'",
        )
        .file("flow/END.sh", "echo '<result>x</result>'");
    project.run(&["run", "--workflow", "flow"]).exits(0);
    let names = project.workspace("names");
    let is_ours = |name: &&str| name.starts_with("ORCHESTRATOR_") || name.starts_with("RAYMOND_");
    let given = set(names.lines().filter(is_ours));
    let rows = rows(&section("docs/workflows.md", "Templates and variables"));
    let documented = rows.iter().flat_map(|row| code(&row[1]));
    let documented = set(documented.map(|name| name.replace("<NAME>", "NAME")));
    assert_eq!(documented, given);
}

#[test]
fn the_command_page_has_every_option_and_variable() {
    let project = Project::new();
    let mut help = project.run(&["--help"]).exits(0).stdout;
    for command in commands(&project) {
        help += &help_of(&project, &command);
    }
    let page = document("docs/cli.md");
    let option = Regex::new(r"--[a-z][a-z-]+").unwrap();
    let options = |text: &str| set(option.find_iter(text).map(|found| found.as_str()));
    assert_eq!(options(&page), options(&help));
    let variable = Regex::new(r"\b[A-Z]+(?:_[A-Z]+)+\b").unwrap();
    let documented = set(variable.find_iter(&page).map(|found| found.as_str()));
    for name in variable.find_iter(&help) {
        assert!(documented.contains(name.as_str()), "{}", name.as_str());
    }
}

#[test]
fn the_command_page_has_every_code_of_lint() {
    let constant = Regex::new(r#"&str = "([a-z-]+)""#).unwrap();
    let source = document("src/source/code.rs");
    let codes = set(constant
        .captures_iter(&source)
        .map(|found| found[1].to_owned()));
    assert!(20 < codes.len(), "{codes:?}");
    let page = document("docs/cli.md");
    let rows = rows(&page);
    let levels = rows.iter().filter(|row| row.len() == 3);
    let levels = levels.filter(|row| matches!(row[1].as_str(), "error" | "warning"));
    assert_eq!(set(levels.flat_map(|row| code(&row[0]))), codes);
}

#[test]
fn the_command_page_has_every_exit_code_and_reason() {
    let source = document("src/state/reason.rs");
    let word = Regex::new(r#"=> "([a-z_]+)""#).unwrap();
    let expected: BTreeMap<String, String> = word
        .captures_iter(&source)
        .map(|found| {
            let reason: Reason = serde_json::from_value(Value::from(&found[1])).unwrap();
            (found[1].to_owned(), reason.exit_code().to_string())
        })
        .collect();
    assert!(15 < expected.len(), "{expected:?}");
    let page = document("docs/cli.md");
    let (_, section) = page.split_once("## Exit codes").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let mut documented = BTreeMap::new();
    for row in rows(section).iter().skip(1) {
        for reason in code(&row[1]) {
            // An interrupt has the code of its signal.
            let codes = row[0].split(", ");
            let code: String = codes
                .filter(|code| expected.get(&reason).is_some_and(|known| known == code))
                .collect();
            documented.insert(reason, code);
        }
    }
    assert_eq!(documented, expected);
}

#[test]
fn the_readme_is_short_and_has_the_commands_of_the_ci() {
    let readme = document("README.md");
    assert!(readme.lines().count() < 150);
    let ci = document(".ci/run");
    let test_command = ci.lines().last().unwrap();
    assert!(test_command.ends_with("cargo test"));
    for command in [
        test_command,
        "cargo run --release -- run --spec specs/roman.yaml",
    ] {
        assert!(readme.contains(&format!("\n    {command}\n")), "{command}");
    }
}

#[test]
fn links_between_documents_lead_to_files_and_headings() {
    let pages = fs::read_dir(repository().join("docs")).unwrap();
    let pages = pages.map(|entry| entry.unwrap().path());
    let top = [
        "README.md",
        "SECURITY.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ];
    let top = top.map(|name| repository().join(name));
    let link = Regex::new(r"\]\(([^)#:]*)(?:#([^)]*))?\)").unwrap();
    for page in pages.chain(top) {
        let text = fs::read_to_string(&page).unwrap();
        for found in link.captures_iter(&text) {
            let target: PathBuf = match &found[1] {
                "" => page.clone(),
                path => page.parent().unwrap().join(path),
            };
            assert!(target.exists(), "{}: {}", page.display(), &found[0]);
            if let Some(heading) = found.get(2) {
                let text = fs::read_to_string(&target).unwrap();
                let headings = text.lines().filter(|line| line.starts_with('#'));
                let anchors = set(headings.map(anchor));
                assert!(anchors.contains(heading.as_str()), "{}", &found[0]);
            }
        }
    }
}

/// The anchor of a heading, as forges make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}
