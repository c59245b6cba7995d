//! `allowed_transitions` of a state: what it allows, the entry that is taken without a tag, and the reminders that a
//! mistake of the model gets.

use serde_json::Value;

use crate::support::project::Project;
use crate::support::reply::{self, Reply, bash};
use crate::support::server::Server;
use crate::support::workflow::{FLOW, conversation, text_of, workflow};

/// A state with a policy.
fn with_policy(entries: &[&str], prompt: &str) -> String {
    let entries: String = entries
        .iter()
        .map(|entry| format!("  - {{{entry}}}\n"))
        .collect();
    format!("---\nallowed_transitions:\n{entries}---\n{prompt}")
}

/// A workflow that starts with this state.
fn starting_with(start: &str, server: &Server) -> Project {
    workflow(&[
        ("START.md", start),
        ("B.sh", "echo \"<result>B:$ORCHESTRATOR_INPUT</result>\""),
        ("C.sh", "echo \"<result>C:$ORCHESTRATOR_INPUT</result>\""),
    ])
    .model(server)
}

/// The payload of a workflow that starts with this state, and the conversations of its requests.
fn payload_of(start: &str, replies: Vec<Reply>) -> (String, Vec<Vec<String>>) {
    let server = Server::start(replies);
    let payload = starting_with(start, &server).succeed(&[]);
    (
        payload,
        server.requests().iter().map(conversation).collect(),
    )
}

/// The message of a workflow that starts with this state and fails there, and how many requests there were.
fn failure(start: &str, replies: Vec<Reply>) -> (String, usize) {
    let server = Server::start(replies);
    let project = starting_with(start, &server);
    let result = project.fail(&[]);
    assert_eq!(project.agents(), ["main failed"]);
    assert_eq!(project.agent("main")["current_state"], "START.md");
    (text_of(&result, "message"), server.count())
}

#[test]
fn the_only_entry_is_taken_where_there_is_no_tag() {
    let check = |entry: &str, answer: &str, expected: &str| {
        let start = with_policy(&[entry], "Begin {{input}}.");
        let (payload, requests) = payload_of(&start, vec![reply::text(answer)]);
        assert_eq!((payload.as_str(), requests.len()), (expected, 1), "{entry}");
    };
    check("tag: goto, target: B", "no tag here", "B:");
    check(
        "tag: goto, target: B.sh, input: \"<{{agent_id}}>\"",
        "",
        "B:<main>",
    );
    check("tag: reset, target: B, input: 7", "x", "B:7");
    check("tag: function, target: B, return: C", "x", "C:B:");
    check("tag: call, target: B, return: C", "x", "C:B:");
    check("tag: fork, target: B, next: C", "x", "C:");
    check(
        "tag: fork, target: B, join: C",
        "x",
        "C:{\"main_b1\":\"B:\"}",
    );
    check("tag: result, payload: \" fine \"", "x", "fine");
    // A tag in the output counts as everywhere.
    check(
        "tag: goto, target: B",
        "<goto input=\"mine\">B</goto>",
        "B:mine",
    );
}

#[test]
fn an_implicit_transition_is_marked_in_the_log() {
    let server = Server::start([reply::text("no tag")]);
    let project = starting_with(&with_policy(&["tag: goto, target: B"], "Begin."), &server);
    project.succeed(&[]);
    let transitions = project.events("TransitionOccurred");
    assert_eq!(transitions[0]["metadata"]["implicit"], true);
    assert_eq!(transitions[1]["metadata"].get("implicit"), None);
}

#[test]
fn a_forced_entry_is_taken_whatever_the_output_says() {
    let start =
        "---\nforce_implicit: true\nallowed_transitions:\n  - {tag: goto, target: B}\n---\nBegin.";
    for answer in [
        "<goto>C</goto>",
        "<result>x</result><result>y</result>",
        "text",
    ] {
        let (payload, requests) = payload_of(start, vec![reply::text(answer)]);
        assert_eq!((payload.as_str(), requests.len()), ("B:", 1), "{answer}");
    }
}

#[test]
fn a_mistake_gets_a_reminder_that_lists_the_allowed_tags() {
    let entries = [
        "tag: goto, target: B, input: \"say \\\"hi\\\" to {{agent_id}}\"",
        "tag: call, target: B, return: C",
        "tag: fork, target: B, next: C",
        "tag: fork, target: B, join: C",
        "tag: result, payload: done",
        "tag: result",
        "tag: ask, next: B",
    ];
    let start = with_policy(&entries, "Begin.");
    let replies = vec![
        reply::text("I forgot."),
        reply::text("<result>done</result>"),
    ];
    let (payload, requests) = payload_of(&start, replies);
    assert_eq!(payload, "done");
    assert_eq!(requests[1][..2], ["user: Begin.", "assistant: I forgot."]);
    let expected =
        "user: [your last message was not a valid transition: there is no transition tag]
End your next message with exactly one of these tags:
<goto input='say \"hi\" to main'>B</goto>
<call return=\"C\">B</call>
<fork next=\"C\">B</fork>
<fork join=\"C\">B</fork>
<result>done</result>
<result>...</result>
<ask next=\"B\">your question</ask>
";
    assert_eq!(requests[1][2], expected);
    assert_eq!(requests[1].len(), 3);
}

#[test]
fn every_mistake_is_named_in_its_reminder() {
    let entries = ["tag: goto, target: B", "tag: call, target: B, return: C"];
    let start = with_policy(&entries, "Begin.");
    for (answer, problem) in [
        ("<goto>B</goto><goto>B</goto>", "several transition tags"),
        ("<goto>NOPE</goto>", "no state \"NOPE\""),
        ("<goto>a/b</goto>", "must not contain"),
        ("<goto>C</goto>", "<goto>C.sh</goto> is not allowed here"),
        (
            "<result>x</result>",
            "<result>...</result> is not allowed here",
        ),
        ("<call>B</call>", "<call> needs `return=\"STATE\"`"),
        ("<call return=\"B\">B</call>", "is not allowed here"),
        ("<reset cd=\"..\">B</reset>", "is not allowed here"),
        (
            "<call-workflow>x</call-workflow>",
            "<call-workflow> is not a tag",
        ),
    ] {
        let replies = vec![reply::text(answer), reply::text("<goto>B</goto>")];
        let (payload, requests) = payload_of(&start, replies);
        assert_eq!(payload, "B:");
        assert!(
            requests[1][2].contains(problem),
            "{answer}: {}",
            requests[1][2]
        );
    }
}

#[test]
fn names_compare_resolved_and_payloads_trimmed() {
    for (entry, answer, expected) in [
        ("tag: goto, target: B.sh", "<goto>B</goto>", "B:"),
        ("tag: goto, target: B", "<goto> B.sh\n</goto>", "B:"),
        ("tag: goto", "<goto>C</goto>", "C:"),
        (
            "tag: result, payload: yes sir",
            "<result> yes sir </result>",
            " yes sir ",
        ),
        (
            "tag: function, return: C.sh",
            "<function return='C'>B</function>",
            "C:B:",
        ),
    ] {
        let start = with_policy(&[entry, "tag: reset, target: START"], "Begin.");
        let (payload, requests) = payload_of(&start, vec![reply::text(answer)]);
        assert_eq!((payload.as_str(), requests.len()), (expected, 1), "{entry}");
    }
}

#[test]
fn of_a_fan_out_every_fork_needs_an_entry() {
    let start = with_policy(&["tag: fork, target: B, join: C", "tag: result"], "Begin.");
    let replies = vec![
        reply::text("<fork join='C'>B</fork><fork>C</fork>"),
        reply::text("<fork join='C'>B</fork><fork>B</fork>"),
    ];
    let (payload, requests) = payload_of(&start, replies);
    assert_eq!(payload, "C:{\"main_b1\":\"B:\",\"main_b2\":\"B:\"}");
    assert!(
        requests[1][2].contains("is not allowed here"),
        "{}",
        requests[1][2]
    );
    // A goto beside forks is their `next` and needs no entry.
    let start = with_policy(&["tag: fork, target: B, next: C", "tag: result"], "Begin.");
    let answer = "<fork>B</fork><goto>C</goto>";
    assert_eq!(payload_of(&start, vec![reply::text(answer)]).0, "C:");
}

#[test]
fn a_state_has_three_turns() {
    let start = with_policy(&["tag: goto, target: B", "tag: goto, target: C"], "Begin.");
    let mistake = || reply::text("no tag");
    let (payload, _) = payload_of(
        &start,
        vec![mistake(), mistake(), reply::text("<goto>C</goto>")],
    );
    assert_eq!(payload, "C:");
    let (message, requests) = failure(&start, vec![mistake(), mistake(), mistake()]);
    assert!(message.contains("there is no transition tag"), "{message}");
    assert_eq!(requests, 3);
}

#[test]
fn tool_calls_belong_to_their_turn() {
    let start = with_policy(&["tag: goto, target: B", "tag: goto, target: C"], "Begin.");
    let replies = vec![
        bash("echo 1"),
        reply::text("no tag"),
        bash("echo 2"),
        bash("echo 3"),
        reply::text("no tag"),
        bash("echo 4"),
        reply::text("<goto>B</goto>"),
    ];
    assert_eq!(payload_of(&start, replies).0, "B:");
    // Tags beside calls are not final.
    let replies = vec![
        bash("echo 1").with_text("<goto>C</goto>"),
        reply::text("<goto>B</goto>"),
    ];
    assert_eq!(payload_of(&start, replies).0, "B:");
}

#[test]
fn a_turn_has_fifty_requests() {
    let start = with_policy(&["tag: goto, target: B", "tag: goto, target: C"], "Begin.");
    let calls = (0..50).map(|_| reply::call("editor", serde_json::json!({"command": "x"})));
    let (message, requests) = failure(&start, calls.collect());
    assert_eq!(requests, 50);
    assert!(message.contains("50"), "{message}");
}

#[test]
fn without_a_policy_the_first_mistake_fails_the_agent() {
    for (answer, problem) in [
        ("no tag", "there is no transition tag"),
        ("<goto>NOPE</goto>", "no state \"NOPE\""),
        ("<ask next=\"B\"> </ask>", "the question of <ask> is empty"),
        (
            "<reset cd=\"nowhere\">B</reset>",
            "there is no such directory",
        ),
    ] {
        let (message, requests) = failure("Begin.", vec![reply::text(answer)]);
        assert!(message.contains(problem), "{message}");
        assert_eq!(requests, 1);
    }
}

#[test]
fn a_message_that_was_cut_off_has_no_transition_and_no_implicit_one() {
    let cut = || reply::text("<goto>B</goto> and").stop("max_tokens");
    let (message, requests) = failure("Begin.", vec![cut()]);
    assert!(message.contains("cut off"), "{message}");
    assert_eq!(requests, 1);
    let start = with_policy(&["tag: goto, target: B"], "Begin.");
    let (payload, requests) = payload_of(&start, vec![cut(), reply::text("no tag")]);
    assert_eq!(payload, "B:");
    assert!(requests[1][2].contains("cut off"), "{:?}", requests[1]);
    let (message, requests) = failure(&start, vec![cut(), cut(), cut()]);
    assert!(message.contains("cut off"), "{message}");
    assert_eq!(requests, 3);
}

#[test]
fn a_message_that_was_cut_off_with_calls_goes_on() {
    let cut = bash("touch ran").stop("max_tokens");
    let paused = reply::text("<goto>C</goto>").stop("pause_turn");
    let (payload, requests) =
        payload_of("Begin.", vec![cut, paused, reply::text("<goto>B</goto>")]);
    assert_eq!((payload.as_str(), requests.len()), ("B:", 3));
    assert!(
        requests[1]
            .iter()
            .any(|line| line.contains("not run: cut off")),
        "{:?}",
        requests[1]
    );
}

#[test]
fn a_refusal_fails_the_agent_without_a_reminder() {
    let start = with_policy(&["tag: goto, target: B"], "Begin.");
    let (message, requests) = failure(&start, vec![reply::text("No.").stop("refusal")]);
    assert!(message.contains("refused to answer"), "{message}");
    assert_eq!(requests, 1);
}

#[test]
fn a_tag_in_the_thinking_of_a_model_is_not_a_transition() {
    let answer = reply::text("<think>maybe <goto>C</goto></think><goto>B</goto>");
    assert_eq!(payload_of("Begin.", vec![answer]).0, "B:");
    let thinking =
        serde_json::json!({"type": "thinking", "thinking": "<goto>C</goto>", "signature": "s"});
    let answer = reply::text("<goto>B</goto>").after_block(thinking);
    assert_eq!(payload_of("Begin.", vec![answer]).0, "B:");
}

#[test]
fn warnings_of_lint_are_shown_and_the_run_goes_on() {
    let server = Server::start([reply::text("<goto>B</goto>")]);
    let project = starting_with("---\ncolour: blue\n---\nBegin.", &server);
    let ran = project.run(FLOW).exits(0);
    assert!(
        ran.stderr
            .lines()
            .any(|line| line.starts_with("[run] ") && line.contains("colour")),
        "{}",
        ran.stderr
    );
    assert_ne!(project.state()["results"], Value::Null);
}

#[test]
fn a_failure_of_cut_off_messages_names_no_field_of_a_spec() {
    let cut = || reply::text("and so on").stop("max_tokens");
    let start = with_policy(&["tag: goto, target: B"], "Begin.");
    let (message, _) = failure(&start, vec![cut(), cut(), cut()]);
    assert!(!message.contains("generator."), "{message}");
}
