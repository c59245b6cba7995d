//! Workflows with the provider claude-code: sessions are continued and branched by their ids, its cost counts when a turn
//! has ended.

use serde_json::json;

use crate::support::claude::{Call, Claude, answers, says, stream};
use crate::support::project::Project;
use crate::support::workflow::{FLOW, workflow};

const PROVIDER: [&str; 2] = ["--provider", "claude-code"];
const POLICY: &str = "---\nallowed_transitions: [{tag: goto}, {tag: call}, {tag: result}]\n---\n";

/// A workflow whose `claude` gives these answers, without a key.
fn with_answers(states: &[(&str, &str)], texts: &[&str]) -> (Project, Claude) {
    let plans: Vec<String> = texts.iter().map(|text| answers(text)).collect();
    let project = workflow(states).without("ANTHROPIC_API_KEY");
    Claude::fake(project, &plans)
}

/// The flags of a call that say which session it is.
fn session(call: &Call) -> String {
    let flags = ["--session-id", "--resume", "--fork-session"];
    let is_flag = |word: &&String| flags.iter().any(|flag| word.starts_with(flag));
    let mut words: Vec<String> = call.arguments.iter().filter(is_flag).cloned().collect();
    words.sort();
    words.join(" ")
}

#[test]
fn sessions_are_continued_and_branched_by_their_ids() {
    let states = [
        ("START.md", &*format!("{POLICY}One.")),
        ("B.md", "Two."),
        ("C.md", "Three."),
        ("C2.md", "Four."),
        ("R.md", "Back with {{input}}."),
        ("F.md", "Fresh."),
    ];
    let (project, claude) = with_answers(
        &states,
        &[
            "I forgot.",
            "<goto>B</goto>",
            "<call return=\"R\">C</call>",
            "<goto>C2</goto>",
            "<result>detail</result>",
            "<reset>F</reset>",
            "<result>done</result>",
        ],
    );
    assert_eq!(project.succeed(&PROVIDER), "done");
    let calls: Vec<Call> = (0..7).map(|number| claude.call(number)).collect();
    let main = calls[0].flag("--session-id").unwrap();
    let branch = calls[3].flag("--session-id").unwrap();
    let fresh = calls[6].flag("--session-id").unwrap();
    let expected = [
        format!("--session-id={main}"),
        format!("--resume={main}"),
        format!("--resume={main}"),
        format!("--fork-session --resume={main} --session-id={branch}"),
        format!("--resume={branch}"),
        format!("--resume={main}"),
        format!("--session-id={fresh}"),
    ];
    let found: Vec<String> = calls.iter().map(session).collect();
    assert_eq!(found, expected);
    assert!(main != branch && main != fresh && branch != fresh);
    // Only what is new is said: the session has the rest.
    let said = [
        "One.",
        "[your last message was not a valid transition",
        "Two.",
        "Three.",
        "Four.",
        "Back with detail.",
        "Fresh.",
    ];
    for (call, text) in calls.iter().zip(said) {
        assert!(call.stdin.contains(text), "{text}: {}", call.stdin);
    }
    assert!(!calls[5].stdin.contains("One."), "{}", calls[5].stdin);
}

#[test]
fn a_resume_continues_the_session_of_the_log() {
    let (project, claude) = with_answers(
        &[
            ("START.md", "One."),
            ("S.sh", "test -e go || exit 1; echo '<goto>B</goto>'"),
            ("B.md", "Two."),
        ],
        &["<goto>S</goto>", "<result>done</result>"],
    );
    project.fail(&PROVIDER);
    let id = claude.call(0).flag("--session-id").unwrap().to_owned();
    assert_eq!(project.agent("main")["session_id"], id.as_str());
    project.write("workspace/go", "");
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(session(&claude.call(1)), format!("--resume={id}"));
}

#[test]
fn the_word_of_a_model_is_passed_as_it_is() {
    let (project, claude) = with_answers(
        &[
            ("START.md", "---\nmodel: sonnet\neffort: high\n---\nOne."),
            ("B.md", "Two."),
        ],
        &["<goto>B</goto>", "<result>done</result>"],
    );
    project.succeed(&[&PROVIDER[..], &["--model", "opus"]].concat());
    assert_eq!(claude.call(0).flag("--model"), Some("sonnet"));
    assert_eq!(claude.call(0).flag("--effort"), Some("high"));
    assert_eq!(claude.call(1).flag("--model"), Some("opus"));
}

#[test]
fn a_turn_gets_what_is_left_of_the_budget() {
    let dear = |text: &str| says(&stream(text, &json!({"total_cost_usd": 0.3})));
    let plans = [
        dear("<goto>B</goto>"),
        dear("<goto>C</goto>"),
        dear("<result>done</result>"),
    ];
    let states = [("START.md", "One."), ("B.md", "Two."), ("C.md", "Three.")];
    let (project, claude) = Claude::fake(workflow(&states).without("ANTHROPIC_API_KEY"), &plans);
    // A turn begins while something is left; the third one has nothing.
    let result = project.pause(&[&PROVIDER[..], &["--budget", "0.5"]].concat());
    assert_eq!(result["reason"], "budget");
    assert_eq!(claude.count(), 2);
    let left = |call: usize| {
        claude
            .call(call)
            .flag("--max-budget-usd")
            .map(str::to_owned)
    };
    assert_eq!(left(0).as_deref(), Some("0.500000"));
    assert_eq!(left(1).as_deref(), Some("0.200000"));
    assert_eq!(project.succeed(&["--budget", "1"]), "done");
    assert_eq!(left(2).as_deref(), Some("0.400000"));
    let cost = project.state()["usage"]["cost_usd"].as_f64().unwrap();
    assert!((cost - 0.9).abs() < 1e-9, "{cost}");
}

#[test]
fn a_run_with_claude_is_replayed_without_it() {
    let (project, claude) = with_answers(
        &[
            ("START.md", &*format!("{POLICY}One.")),
            ("C.md", "Two."),
            ("R.md", "Three, {{input}}."),
        ],
        &[
            "no tag",
            "<call return=\"R\">C</call>",
            "<result>c</result>",
            "<result>done</result>",
        ],
    );
    project.succeed(&PROVIDER);
    let log = project.log_path();
    let ran = project
        .run(&[FLOW, &PROVIDER, &["--replay", &log]].concat())
        .exits(0);
    assert_eq!(ran.stdout, "done\n");
    assert_eq!(claude.count(), 4);
}
