//! States of a workflow: front matter, prompts and scripts, as `lint` and `diagram` read them.

use std::fs;

use orchestrator::internals::workflow::{lint, mermaid, read_markdown};

use crate::files::folder;
use crate::harness::fuzz;

const WORDS: [&str; 34] = [
    "---\n",
    "allowed_transitions:\n",
    "  - {tag: ",
    "goto",
    "call",
    "fork",
    "ask",
    "result",
    ", target: START",
    ", return: B",
    ", next: ",
    ", join: ",
    ", payload: 5",
    "}\n",
    "force_implicit: true\n",
    "timeout: 1\n",
    "<goto>",
    "</goto>",
    "<call return=\"",
    "<fork next='",
    "'>",
    "\">",
    "</fork>",
    "<result>",
    "</result>",
    "<print>",
    "<call-workflow>",
    "{{input}}",
    "# ",
    "\\\"",
    "<<'E'\n",
    "\nE\n",
    "$'",
    "\r\n",
];

#[test]
fn workflow() {
    let folder = folder();
    let write = |file: &str, bytes: &[u8]| fs::write(folder.path().join(file), bytes).unwrap();
    write("B.md", b"Say <goto>START</goto>.");
    fuzz("workflow", &WORDS, |bytes| {
        let (is_usable, has_error) = read_markdown(bytes);
        assert_eq!(is_usable, !has_error);
        for (file, other) in [("START.md", "START.sh"), ("START.sh", "START.md")] {
            let _ = fs::remove_file(folder.path().join(other));
            write(file, bytes);
            for finding in lint(folder.path()) {
                let number = |field: &str| finding[field].as_u64().unwrap();
                assert!(1 <= number("line") && 1 <= number("column"), "{finding}");
                assert!(number("column") <= number("end_column"), "{finding}");
                let message = finding["message"].as_str().unwrap();
                assert!(!message.is_empty() && !message.contains(char::is_control));
            }
            let diagram = mermaid(folder.path()).unwrap();
            assert!(diagram.starts_with("flowchart TD\n") && diagram.contains("([\"START."));
        }
    });
}
