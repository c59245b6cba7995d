//! The debug files as a whole: events in, files out.

use crate::events::ConversationScope;
use std::fs;
use std::os::unix::fs::symlink;

use super::*;
use crate::state::phase::Phase;

const PLACE: RequestPlace = RequestPlace {
    scope: ConversationScope::Phase {
        phase: Phase::Generating,
        retry_count: 0,
    },
    turn: 0,
};

fn requested() -> Event {
    Event::ModelRequested {
        agent_id: "main".into(),
        place: PLACE,
        provider: "anthropic".into(),
        model: "m".into(),
        hash: "h".into(),
        worst: Default::default(),
        continues: None,
        objection: None,
        request: json!({"system": "be brief"}),
    }
}

fn streamed(piece: &str) -> Event {
    Event::ModelStreamed {
        agent_id: "main".into(),
        place: PLACE,
        piece: piece.into(),
    }
}

fn answered() -> Event {
    Event::ModelAnswered {
        agent_id: "main".into(),
        place: PLACE,
        hash: "h".into(),
        cost_usd: None,
        duration_ms: 5,
        answer: Some(json!("42")),
        error: None,
    }
}

fn checked(name: &str) -> Event {
    Event::ScriptOutput {
        agent_id: "main".into(),
        state_name: "TESTING".into(),
        step_number: 1,
        tool_name: name.into(),
        hidden: false,
        passed: false,
        problem: Some("exit code 1".into()),
        exit_code: 1,
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
        env_vars: vec!["PATH".into()],
    }
}

fn moved(from_state: Phase, to_state: Phase) -> Event {
    let (agent_id, transition_type) = ("main".into(), "written".into());
    Event::TransitionOccurred {
        agent_id,
        from_state: from_state.name().into(),
        to_state: Some(to_state.name().into()),
        transition_type,
        metadata: json!({"n": 1}),
    }
}

/// Emits events to a new observer of the directory, and returns its failures.
fn write_events(path: &Path, events: &[Event]) -> Vec<String> {
    let mut bus = Bus::default();
    DebugFiles::attach(&mut bus, path.to_owned());
    events.iter().for_each(|event| bus.emit(event));
    bus.take_failures()
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn every_step_gets_its_files() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("run");
    let retried = Event::ModelRetried {
        agent_id: "main".into(),
        place: PLACE,
        attempt: 2,
    };
    let moved = moved(Phase::Generating, Phase::Testing);
    let events = [
        requested(),
        streamed("a\n"),
        retried,
        streamed("b"),
        answered(),
        moved,
        checked("unit"),
    ];
    assert!(write_events(&path, &events).is_empty());
    let expected = [
        "main_GENERATING_001.answer.json",
        "main_GENERATING_001.prompt.json",
        "main_GENERATING_001.stream.jsonl",
        "main_TESTING_002_unit.meta.json",
        "main_TESTING_002_unit.stderr.txt",
        "main_TESTING_002_unit.stdout.txt",
        "transitions.log",
    ];
    assert_eq!(names(&path), expected);
    let read = |name: &str| fs::read_to_string(path.join(name)).unwrap();
    let json = |name: &str| serde_json::from_str::<Value>(&read(name)).unwrap();
    assert_eq!(json(expected[1])["system"], "be brief");
    assert_eq!(json(expected[0])["answer"], "42");
    let stream: Vec<Value> = read(expected[2])
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (
            &stream[0]["piece"],
            &stream[1]["retry"],
            &stream[2]["piece"]
        ),
        (&json!("a\n"), &json!(2), &json!("b"))
    );
    assert_eq!(json(expected[3])["exit_code"], 1);
    assert_eq!(json(expected[3]).get("stdout"), None);
    assert_eq!(
        (read(expected[4]), read(expected[5])),
        ("err\n".into(), "out\n".into())
    );
    assert!(read(expected[6]).ends_with("Z [main] GENERATING -> TESTING (written) {\"n\":1}\n"));
}

#[test]
fn pieces_are_on_disk_as_they_come() {
    let root = tempfile::tempdir().unwrap();
    let mut bus = Bus::default();
    DebugFiles::attach(&mut bus, root.path().to_owned());
    bus.emit(&requested());
    for count in 1..4 {
        bus.emit(&streamed("x"));
        let stream =
            fs::read_to_string(root.path().join("main_GENERATING_001.stream.jsonl")).unwrap();
        assert_eq!(stream.lines().count(), count);
    }
}

#[test]
fn a_resumed_run_continues_the_numbers() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("main_TESTING_041_999.stdout.txt"), "").unwrap();
    let again = || {
        write_events(
            root.path(),
            &[requested(), moved(Phase::Init, Phase::Generating)],
        )
    };
    assert!(again().is_empty() && again().is_empty());
    let prompts = names(root.path())
        .into_iter()
        .filter(|name| name.contains("prompt"))
        .collect::<Vec<_>>();
    assert_eq!(
        prompts,
        [
            "main_GENERATING_042.prompt.json",
            "main_GENERATING_043.prompt.json"
        ]
    );
    assert_eq!(
        fs::read_to_string(root.path().join(TRANSITIONS))
            .unwrap()
            .lines()
            .count(),
        2
    );
}

#[test]
fn names_of_checks_become_file_names() {
    let root = tempfile::tempdir().unwrap();
    let events = ["../../etc/x", "a b", "a_b", &"ä".repeat(500), ""].map(checked);
    assert!(write_events(root.path(), &events).is_empty());
    let names = names(root.path());
    assert_eq!(names.len(), 15);
    assert!(
        names
            .iter()
            .any(|name| name == "main_TESTING_001_.._.._etc_x.stdout.txt"),
        "{names:?}"
    );
    assert!(
        names
            .iter()
            .all(|name| name.len() < 255 && !name.contains('/'))
    );
}

#[test]
fn links_are_not_followed_and_nothing_is_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let (path, victim) = (root.path().join("run"), root.path().join("victim"));
    fs::create_dir(&path).unwrap();
    fs::write(&victim, "mine").unwrap();
    let mut bus = Bus::default();
    DebugFiles::attach(&mut bus, path.clone());
    bus.emit(&checked("unit"));
    symlink(&victim, path.join("main_GENERATING_002.prompt.json")).unwrap();
    symlink(&victim, path.join(TRANSITIONS)).unwrap();
    bus.emit(&requested());
    assert!(names(&path).contains(&"main_GENERATING_003.prompt.json".to_owned()));
    bus.emit(&moved(Phase::Init, Phase::Generating));
    assert_eq!(bus.take_failures().len(), 1);
    assert_eq!(fs::read_to_string(&victim).unwrap(), "mine");
}

#[test]
fn a_directory_that_cannot_be_written_is_reported_once() {
    let root = tempfile::tempdir().unwrap();
    let events = [
        requested(),
        streamed("a"),
        answered(),
        checked("unit"),
        moved(Phase::Init, Phase::Generating),
    ];
    let missing = root.path().join("no/such/run");
    assert_eq!(write_events(&missing, &events).len(), 1);
    fs::write(root.path().join("file"), "").unwrap();
    let failures = write_events(&root.path().join("file"), &events);
    assert!(
        matches!(&failures[..], [failure] if failure.contains("cannot open the directory")),
        "{failures:?}"
    );
    symlink(root.path(), root.path().join("link")).unwrap();
    assert_eq!(write_events(&root.path().join("link"), &events).len(), 1);
}
