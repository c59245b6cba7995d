//! The sessions of `serve` in `README.md` and `docs/environments.md`: each request is sent, each answer is compared, and the
//! configuration of an MCP client starts a server.

use std::fs;
use std::path::Path;

use regex::Regex;
use serde_json::Value;

use crate::support::mcp_client::McpClient;
use crate::support::project::Project;
use crate::support::serve_client::Serving;

const SHAPES: &str = "def area(w, h):\n    return w + h\n\n\nprint(area(3, 4))\n";

fn page(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).unwrap()
}

/// The requests of a page, each with the answer that the page shows; the lines of an answer are one.
fn exchanges(page: &str) -> Vec<(Value, String)> {
    let pattern = Regex::new(r"(?m)^> (\{.*\})\n< (\{.*(?:\n +\S.*)*)").unwrap();
    let found = pattern.captures_iter(page);
    found
        .map(|found| {
            let lines: Vec<&str> = found[2].lines().map(str::trim).collect();
            (serde_json::from_str(&found[1]).unwrap(), lines.concat())
        })
        .collect()
}

/// Whether an answer is the one of a page, where `…` is anything.
fn is_shown(answer: &str, shown: &str, root: &str) -> bool {
    let shown = shown.replace("/home/me/project", root);
    let pattern = regex::escape(&shown).replace('…', ".*");
    Regex::new(&format!("(?s)^{pattern}$"))
        .unwrap()
        .is_match(answer)
}

#[test]
fn the_sessions_of_the_pages_are_true() {
    let mut wrong = String::new();
    for (name, count) in [("README.md", 1), ("docs/environments.md", 6)] {
        let exchanges = exchanges(&page(name));
        assert_eq!(exchanges.len(), count, "{name}");
        let project = Project::new()
            .file("shapes.py", SHAPES)
            .file("src/main.rs", "");
        fs::remove_dir(project.path("specs")).unwrap();
        let mut serving = Serving::start(&project);
        let root = project.root().display().to_string();
        for (request, shown) in exchanges {
            let answer = serving.request(&request).text();
            if !is_shown(&answer, &shown, &root) {
                wrong += &format!("{name}: > {request}\nshown: {shown}\nfound: {answer}\n");
            }
        }
        serving.end().exits(0);
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn the_configuration_of_an_mcp_client_starts_a_server() {
    let page = page("docs/environments.md");
    let block = Regex::new("(?s)```json\n(.*?)```").unwrap();
    let configuration: Value = serde_json::from_str(&block.captures(&page).unwrap()[1]).unwrap();
    let server = &configuration["mcpServers"]["environments"];
    assert_eq!(server["command"], "orchestrator");
    let project = Project::new();
    let root = project.root().display().to_string();
    let arguments = server["args"].as_array().unwrap();
    let arguments = arguments.iter().map(|word| word.as_str().unwrap());
    let arguments: Vec<String> = arguments
        .map(|word| word.replace("/home/me/project", &root))
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let Some((["serve", "--mcp"], rest)) = arguments.split_first_chunk() else {
        panic!("{arguments:?}")
    };
    let mut client = McpClient::with(&project, rest);
    client.initialize("2025-06-18");
    assert!(client.bash("pwd").0.starts_with(&format!("{root}\n")));
    client.end().exits(0);
}
