//! The debug files of a workflow as a whole: events in, files out.

use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::events::ConversationScope;
use crate::events::bus::Bus;
use crate::observers::debug::DebugFiles;

fn place(visit: u64, turn: u32) -> RequestPlace {
    ConversationScope::Visit { visit }.turn(turn)
}

fn entered(agent: &str, file: &str, visit: u64) -> Event {
    Event::StateStarted {
        agent_id: agent.into(),
        state_name: file.into(),
        state_type: "markdown".into(),
        attempt: None,
        of: None,
        visit: Some(visit),
    }
}

fn requested(
    agent: &str,
    place: RequestPlace,
    objection: Option<Objection>,
    request: Value,
) -> Event {
    Event::ModelRequested {
        agent_id: agent.into(),
        place,
        provider: "anthropic".into(),
        model: "m".into(),
        hash: "h".into(),
        worst: Default::default(),
        continues: None,
        objection,
        request,
    }
}

fn says(text: &str) -> Value {
    json!({"role": "user", "content": [{"type": "text", "text": text}]})
}

fn asks(agent: &str, visit: u64, turn: u32, text: &str) -> Event {
    requested(
        agent,
        place(visit, turn),
        None,
        json!({"messages": [says(text)]}),
    )
}

fn reminds(agent: &str, visit: u64, turn: u32, text: &str) -> Event {
    let request = json!({"messages": [says(text)]});
    requested(
        agent,
        place(visit, turn),
        Some(Objection::Reminder),
        request,
    )
}

fn streamed(agent: &str, visit: u64, turn: u32, piece: &str) -> Event {
    Event::ModelStreamed {
        agent_id: agent.into(),
        place: place(visit, turn),
        piece: piece.into(),
    }
}

fn answered(agent: &str, visit: u64, turn: u32, answer: &str) -> Event {
    Event::ModelAnswered {
        agent_id: agent.into(),
        place: place(visit, turn),
        hash: "h".into(),
        cost_usd: None,
        duration_ms: 5,
        answer: Some(json!(answer)),
        error: None,
    }
}

fn called(visit: u64, turn: u32, command: &str) -> Event {
    Event::ToolCalled {
        agent_id: "main".into(),
        place: place(visit, turn),
        call: 0,
        tool_name: "bash".into(),
        arguments: json!({"command": command}),
    }
}

fn returned(visit: u64, turn: u32, output: &str) -> Event {
    Event::ToolReturned {
        agent_id: "main".into(),
        place: place(visit, turn),
        call: 0,
        tool_name: "bash".into(),
        ran: true,
        is_error: false,
        output: output.into(),
        screen: String::new(),
        execution_time_ms: 7,
        changed: None,
    }
}

fn script(agent: &str, file: &str) -> Event {
    Event::ScriptOutput {
        agent_id: agent.into(),
        state_name: file.into(),
        step_number: 1,
        tool_name: String::new(),
        hidden: false,
        passed: false,
        problem: Some("exit code 7".into()),
        exit_code: 7,
        execution_time_ms: 300,
        tests: None,
        flaky: false,
        first_executed: Vec::new(),
        skipped_names: Vec::new(),
        causes: Vec::new(),
        stdout: "out\n".into(),
        stdout_bytes: 4,
        stderr: "err\n".into(),
        stderr_bytes: 4,
        env_vars: vec!["ORCHESTRATOR_INPUT".into()],
    }
}

fn moved(from: &str, to: Option<&str>, tag: &str, metadata: Value) -> Event {
    Event::TransitionOccurred {
        agent_id: "main".into(),
        from_state: from.into(),
        to_state: to.map(str::to_owned),
        transition_type: tag.into(),
        metadata,
    }
}

fn failed(message: &str) -> Event {
    Event::AgentFailed {
        agent_id: "main".into(),
        message: message.into(),
    }
}

/// Emits events to new observers of the directory, and returns their failures.
fn write_events(path: &Path, events: &[Event]) -> Vec<String> {
    let mut bus = Bus::default();
    DebugFiles::attach_workflow(&mut bus, path.to_owned());
    events.iter().for_each(|event| bus.emit(event));
    bus.take_failures()
}

/// The names of all files but `steps.log`.
fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != STEPS).collect();
    names.sort();
    names
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines.collect()
}

#[test]
fn a_turn_is_one_step_with_its_tool_calls_and_a_reminder_another() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run");
    let events = [
        entered("main", "START.md", 1),
        asks("main", 1, 0, "Begin."),
        streamed("main", 1, 0, "a\n"),
        answered("main", 1, 0, "calls"),
        called(1, 0, "echo one"),
        returned(1, 0, "one\n"),
        asks("main", 1, 1, "one"),
        streamed("main", 1, 1, "b"),
        answered("main", 1, 1, "no tag"),
        reminds("main", 1, 2, "Use <goto>B</goto>."),
        reminds("main", 1, 2, "Use <goto>B</goto>."),
        answered("main", 1, 2, "<goto>B</goto>"),
        entered("main", "B.md", 2),
        asks("main", 2, 0, "Go on."),
    ];
    assert_eq!(write_events(&path, &events), [""; 0]);
    let expected = [
        "main_B_003.jsonl",
        "main_B_003.prompt.md",
        "main_START_001.jsonl",
        "main_START_001.prompt.md",
        "main_START_001.tool-001-bash.call.json",
        "main_START_001.tool-001-bash.result.txt",
        "main_START_002.jsonl",
        "main_START_002.prompt.md",
    ];
    assert_eq!(names(&path), expected);
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    assert_eq!(read(expected[3]), "Begin.");
    assert_eq!(read(expected[5]), "ok, 7 ms\n\none\n");
    assert_eq!(read(expected[7]), "Use <goto>B</goto>.");
    let stream = lines(&path.join(expected[2]));
    let pieces: Vec<&Value> = stream.iter().filter_map(|line| line.get("piece")).collect();
    assert_eq!(pieces, ["a\n", "b"]);
    assert_eq!(stream[2]["answer"], "calls");
}

#[test]
fn the_prompt_is_what_follows_the_last_answer() {
    let root = tempfile::tempdir().unwrap();
    let answer = json!({"role": "assistant", "content": [{"type": "text", "text": "done"}]});
    let request = json!({"system": "s", "messages": [says("old"), answer, says("new")]});
    let events = [
        entered("main", "B.md", 1),
        requested("main", place(1, 0), None, request),
    ];
    assert_eq!(write_events(root.path(), &events), [""; 0]);
    let prompt = fs::read_to_string(root.path().join("main_B_001.prompt.md"));
    assert_eq!(prompt.unwrap(), "new");
}

#[test]
fn pieces_are_on_disk_as_they_come() {
    let root = tempfile::tempdir().unwrap();
    let mut bus = Bus::default();
    DebugFiles::attach_workflow(&mut bus, root.path().to_owned());
    bus.emit(&entered("main", "START.md", 1));
    bus.emit(&asks("main", 1, 0, "Begin."));
    for count in 2..5 {
        bus.emit(&streamed("main", 1, 0, "x"));
        assert_eq!(
            lines(&root.path().join("main_START_001.jsonl")).len(),
            count
        );
    }
}

#[test]
fn a_script_leaves_its_output_and_what_it_was_given() {
    let root = tempfile::tempdir().unwrap();
    assert_eq!(
        write_events(root.path(), &[script("main", "S.sh")]),
        [""; 0]
    );
    let read = |what: &str| fs::read_to_string(root.path().join(format!("main_S_001.{what}")));
    assert_eq!(read("stdout.txt").unwrap(), "out\n");
    assert_eq!(read("stderr.txt").unwrap(), "err\n");
    let meta: Value = serde_json::from_str(&read("meta.json").unwrap()).unwrap();
    assert_eq!(
        (&meta["exit_code"], &meta["execution_time_ms"]),
        (&json!(7), &json!(300))
    );
    assert_eq!(meta["env_vars"], json!(["ORCHESTRATOR_INPUT"]));
}

#[test]
fn each_agent_counts_its_steps_and_a_resumed_run_counts_on() {
    let root = tempfile::tempdir().unwrap();
    let events = [
        script("main", "START.sh"),
        script("main_w1", "W.sh"),
        script("main_w1", "W2.sh"),
        script("main_w1", "W.sh"),
    ];
    assert_eq!(write_events(root.path(), &events), [""; 0]);
    let resumed = [script("main", "N.sh"), script("main_w1", "W.sh")];
    assert_eq!(write_events(root.path(), &resumed), [""; 0]);
    let mut found = names(root.path());
    found.retain(|name| name.ends_with(".stdout.txt"));
    let expected = [
        "main_N_002.stdout.txt",
        "main_START_001.stdout.txt",
        "main_w1_W2_002.stdout.txt",
        "main_w1_W_001.stdout.txt",
        "main_w1_W_003.stdout.txt",
        "main_w1_W_004.stdout.txt",
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_turn_that_a_resume_goes_on_with_gets_a_step() {
    let root = tempfile::tempdir().unwrap();
    let events = [
        entered("main", "START.md", 1),
        returned(1, 0, "not run again"),
        asks("main", 1, 1, "results"),
    ];
    assert_eq!(write_events(root.path(), &events), [""; 0]);
    let expected = [
        "main_START_001.jsonl",
        "main_START_001.tool-001-bash.result.txt",
    ];
    assert_eq!(names(root.path()), expected);
}

#[test]
fn transitions_have_their_metadata_below_them() {
    let root = tempfile::tempdir().unwrap();
    let fork = json!({"visit": 1, "join": false, "cwd": null, "workers": [{"id": "main_w1"}, {"id": "main_w2"}]});
    let events = [
        moved("START.md", Some("N.md"), "fork", fork),
        moved(
            "N.md",
            None,
            "result",
            json!({"payload": "one\n2026 [main] A -> B (goto)\u{1b}"}),
        ),
    ];
    assert_eq!(write_events(root.path(), &events), [""; 0]);
    let text = fs::read_to_string(root.path().join(TRANSITIONS)).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines[0].ends_with("Z [main] START.md -> N.md (fork)"),
        "{text}"
    );
    assert!(lines[4].ends_with("Z [main] N.md -> - (result)"), "{text}");
    let details = [
        "    visit: 1",
        "    workers: {\"id\":\"main_w1\"}",
        "    workers: {\"id\":\"main_w2\"}",
    ];
    assert_eq!(lines[1..4], details);
    let payload = [
        "    payload: one",
        "        2026 [main] A -> B (goto)\\u{1b}",
    ];
    assert_eq!(lines[5..], payload);
}

#[test]
fn links_are_not_followed_and_nothing_is_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let (path, victim) = (root.path().join("run"), root.path().join("victim"));
    fs::create_dir(&path).unwrap();
    fs::write(&victim, "mine").unwrap();
    symlink(&victim, path.join("main_.._etc_001.stdout.txt")).unwrap();
    symlink(&victim, path.join(TRANSITIONS)).unwrap();
    let events = [
        script("main", "../etc.sh"),
        moved("A.md", None, "result", json!({})),
    ];
    assert_eq!(write_events(&path, &events).len(), 1);
    assert!(names(&path).contains(&"main_.._etc_002.stdout.txt".to_owned()));
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_once() {
    let root = tempfile::tempdir().unwrap();
    let events = [
        entered("main", "START.md", 1),
        asks("main", 1, 0, "Begin."),
        script("main", "S.sh"),
        failed("no tag"),
    ];
    let failures = write_events(&root.path().join("no/such/run"), &events);
    assert!(
        matches!(&failures[..], [failure] if failure.contains("cannot open the directory")),
        "{failures:?}"
    );
}

#[test]
fn an_agent_that_fails_leaves_a_report() {
    let root = tempfile::tempdir().unwrap();
    let events = [
        entered("main", "START.md", 1),
        script("main", "START.sh"),
        failed("no tag"),
    ];
    assert_eq!(write_events(root.path(), &events), [""; 0]);
    let report = fs::read_to_string(root.path().join("errors/main_START_001.txt")).unwrap();
    assert!(
        report.contains("no tag\n\nscript: exit code 7; stderr:\nerr\n"),
        "{report}"
    );
}
