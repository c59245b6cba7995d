//! The bounds of a conversation: turns, money, time, reminders, and the model's context.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agent_mode::{CHECK, PROVIDERS, agent_spec, converse, done, solve};
use crate::support::project::{Project, RUN, RUN_JSON, checked_by};
use crate::support::reply::{self, Reply, bash, call};
use crate::support::server::{Received, Server};

fn reason(project: &Project) -> (String, String) {
    (project.state_text("state"), project.state_text("reason"))
}

fn ended(state: &str, reason: &str) -> (String, String) {
    (state.to_owned(), reason.to_owned())
}

#[test]
fn checks_run_after_the_last_turn() {
    let (project, requests) = converse(
        &agent_spec("max_turns: 2"),
        vec![bash("true"), solve(), done()],
        0,
    );
    assert_eq!(
        (reason(&project), requests.len()),
        (ended("SUCCESS", "tests_passed"), 2)
    );
    let (project, requests) = converse(
        &agent_spec("max_turns: 2"),
        vec![bash("true"), bash("echo 41 > answer.txt")],
        1,
    );
    assert_eq!(
        (reason(&project), requests.len()),
        (ended("FAILED", "max_turns"), 2)
    );
    assert_eq!(
        project.workspace("answer.txt"),
        "41\n",
        "the call of the last turn was run"
    );
    assert_eq!(project.phases().join(" "), "INIT GENERATING TESTING FAILED");
    assert!(
        project
            .state_text("last_test_output")
            .contains("answer.txt says 41")
    );
}

#[test]
fn each_phase_has_its_own_turn_limit() {
    let wrong = || bash("echo 41 > answer.txt");
    let replies = vec![wrong(), done(), wrong(), wrong()];
    let (project, requests) = converse(&agent_spec("max_turns: 2"), replies, 1);
    assert_eq!(
        (reason(&project), requests.len()),
        (ended("FAILED", "max_turns"), 4)
    );
    assert_eq!(
        project.state()["retry_count"],
        1,
        "a phase that a bound ended counts as a patch"
    );
}

#[test]
fn results_announce_the_last_five_turns() {
    let telnet = || call("telnet", json!({}));
    let cut = || {
        bash("true")
            .and_raw_call("bash", "{\"comm")
            .stop("max_tokens")
    };
    let replies = vec![
        bash("true"),
        bash("true"),
        telnet(),
        cut(),
        bash("true"),
        solve(),
        done(),
    ];
    let (_, requests) = converse(&agent_spec("max_turns: 7"), replies, 0);
    for (turn, request) in requests.iter().enumerate().skip(1) {
        let left = 7 - turn;
        let words = if left == 1 {
            "1 turn left".to_owned()
        } else {
            format!("{left} turns left")
        };
        assert_eq!(
            request.result().text.contains(&words),
            left <= 5,
            "turn {turn}: {:?}",
            request.result()
        );
    }
}

#[test]
fn repeated_calls_and_endless_output_are_bounded() {
    let server = Server::answering(|_| bash("seq 1 3000000; ls -la; exit 1"));
    let project = Project::with(agent_spec("max_turns: 6"), &server);
    project.run(RUN_JSON).exits(1);
    assert_eq!(
        (reason(&project), server.count()),
        (ended("FAILED", "max_turns"), 6)
    );
    let log = project.path(&project.log_path()).metadata().unwrap().len();
    assert!(log < 1 << 20, "the log has {log} bytes");
    project.nothing_left();
}

/// A token or USD budget that is spent after a few requests.
fn with_budget(budget: &str, first: Reply) -> (Project, usize) {
    let spec = agent_spec("max_tokens: 1000, price: {input: 1000, output: 1000}")
        + &format!("budget: {{{budget}}}\n");
    let server = Server::start([
        first.usage(6000, 100),
        bash("true").usage(6000, 100),
        done(),
    ]);
    let project = Project::with(spec, &server);
    project.run(RUN_JSON);
    project.nothing_left();
    (project, server.count())
}

#[test]
fn checks_run_when_the_budget_is_spent() {
    for budget in ["tokens: 12000", "usd: 12.0"] {
        let (project, asked) = with_budget(budget, solve());
        assert_eq!(
            (reason(&project), asked),
            (ended("SUCCESS", "tests_passed"), 2),
            "{budget}"
        );
        let (project, asked) = with_budget(budget, bash("echo 41 > answer.txt"));
        assert_eq!(
            (reason(&project), asked),
            (ended("FAILED", "budget"), 2),
            "{budget}"
        );
        assert!(project.state_text("last_error").contains("budget"));
        assert_eq!(project.phases().join(" "), "INIT GENERATING TESTING FAILED");
    }
    let (project, asked) = with_budget("tokens: 100", solve());
    assert_eq!(
        (reason(&project), asked),
        (ended("FAILED", "budget"), 0),
        "also before the first request"
    );
}

#[test]
fn checks_run_when_the_budget_is_spent_between_two_attempts() {
    let spec = agent_spec("max_tokens: 1000") + "budget: {tokens: 5000}\n";
    let server = Server::start([solve(), done().cut_after(0), done()]);
    let project = Project::with(spec, &server);
    project.run(RUN_JSON).exits(0);
    assert_eq!(
        server.count(),
        2,
        "a try that may have cost its worst is counted, and the next does not fit"
    );
    assert_eq!(
        project.events("ConversationClosed")[0]["bound"]["reason"],
        "budget"
    );
}

#[test]
fn the_phase_timeout_ends_a_command() {
    for (command, code, end) in [
        (
            "echo 42 > answer.txt; sleep 1000",
            0,
            ended("SUCCESS", "tests_passed"),
        ),
        (
            "echo 41 > answer.txt; sleep 1000",
            1,
            ended("FAILED", "phase_timeout"),
        ),
    ] {
        let two = bash(command).and_call("bash", json!({"command": "touch later"}));
        let two = two.and_call("python", json!({"command": "open('later', 'w')"}));
        let (project, requests) =
            converse(&agent_spec("phase_timeout: 2"), vec![two, done()], code);
        assert_eq!((reason(&project), requests.len()), (end, 1));
        assert!(
            !project.exists("workspace/later"),
            "no call begins after the time is over"
        );
    }
}

#[test]
fn the_phase_timeout_ends_a_silent_model_request() {
    for (first, code, end) in [
        (solve(), 0, ended("SUCCESS", "tests_passed")),
        (
            bash("echo 41 > answer.txt"),
            1,
            ended("FAILED", "phase_timeout"),
        ),
    ] {
        for silent in [
            done().held(),
            done().stall_after(2),
            done().stall_after(2).pinging(),
        ] {
            let (project, requests) = converse(
                &agent_spec("phase_timeout: 2"),
                vec![first.clone(), silent],
                code,
            );
            assert_eq!((reason(&project), requests.len()), (end.clone(), 2));
        }
    }
}

#[test]
fn the_phase_timeout_ends_the_wait_before_a_retry() {
    let spec = agent_spec("phase_timeout: 2");
    let server = Server::start([solve(), reply::status(529), done()]);
    let project = Project::with(spec, &server).env("ORCHESTRATOR_RETRY_SCALE", "1000");
    project.run(RUN_JSON).exits(0);
    assert_eq!(server.count(), 2);
}

#[test]
fn ending_without_a_change_gets_reminders_then_fails_as_no_output() {
    for (retries, asked) in [("", 3), ("format_retries: 0", 1), ("format_retries: 1", 2)] {
        let looking = || bash("ls; touch made; rm made");
        let server = Server::start([looking(), done(), done(), done(), done()]);
        let project = Project::with(agent_spec(retries), &server);
        project.run(RUN_JSON).exits(1);
        assert_eq!(
            (reason(&project), server.count()),
            (ended("FAILED", "no_output"), asked + 1),
            "{retries}"
        );
        let last = server.requests().pop().unwrap();
        assert_eq!(
            last.text()
                .matches("nothing in the workspace has changed")
                .count(),
            asked - 1
        );
    }
}

#[test]
fn changing_only_a_protected_file_counts_as_no_output() {
    let spec = agent_spec("format_retries: 0") + "workspace: {protect: [given.txt]}\n";
    let server = Server::start([bash("rm -f given.txt; echo mine > given.txt"), done()]);
    let project = Project::with(spec, &server).file("specs/given.txt", "yours\n");
    project.run(RUN_JSON).exits(1);
    assert_eq!(reason(&project), ended("FAILED", "no_output"));
}

#[test]
fn in_patching_ending_without_a_change_counts_as_a_patch() {
    let spec = agent_spec("") + "max_retries: 2\n";
    let (project, requests) = converse(
        &spec,
        vec![
            bash("echo 41 > answer.txt"),
            done(),
            done(),
            reply::text(""),
        ],
        1,
    );
    assert_eq!(
        (reason(&project), requests.len()),
        (ended("FAILED", "retries_exhausted"), 4)
    );
    assert_eq!(
        (
            &project.state()["retry_count"],
            &project.state()["attempt_files"]
        ),
        (&json!(2), &json!([]))
    );
}

/// A conversation of many turns with results of this size, then the end.
fn long_talk(generator: &str, turns: usize, bytes: usize) -> Vec<Received> {
    let one = |turn: usize| {
        bash(&format!(
            "echo turn {turn}; head -c {bytes} /dev/zero | tr '\\0' x"
        ))
    };
    let replies = (0..turns).map(one).chain([solve(), done()]).collect();
    converse(
        &agent_spec(&format!("max_turns: 100, {generator}")),
        replies,
        0,
    )
    .1
}

/// The messages as sent, without cache markers.
fn messages(request: &Received) -> Vec<String> {
    let mark = ",\"cache_control\":{\"type\":\"ephemeral\"}";
    request.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one.to_string().replace(mark, ""))
        .collect()
}

fn marks(request: &Received) -> Vec<usize> {
    let messages = request.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .enumerate();
    messages
        .filter(|(_, one)| one.to_string().contains("cache_control"))
        .map(|(index, _)| index)
        .collect()
}

#[test]
fn over_fifty_turns_the_history_is_compacted_in_few_steps() {
    for provider in PROVIDERS {
        let requests = long_talk(&format!("provider: {provider}, context: 20000"), 50, 2000);
        let mut steps = 0;
        for pair in requests.windows(2) {
            let (before, now) = (messages(&pair[0]), messages(&pair[1]));
            // The newest message loses its screens; earlier ones stay byte for byte unless the history is compacted.
            let is_kept = now.starts_with(&before[..before.len() - 1]);
            assert_eq!(
                is_kept,
                pair[0].raw.len() < pair[1].raw.len(),
                "{}",
                pair[1].raw
            );
            steps += usize::from(!is_kept);
        }
        assert!((1..=6).contains(&steps), "{steps} steps");
        let last = requests.last().unwrap();
        assert!(last.raw.contains("[left out: "), "{}", last.raw);
        assert!(requests.iter().all(|request| request.raw.len() / 3 < 20000));
    }
}

#[test]
fn the_cached_prefix_is_kept_between_compactions() {
    let requests = long_talk("context: 20000", 30, 2000);
    let mut hits = 0;
    for pair in requests.windows(2) {
        let cached = marks(&pair[0]);
        let mark_count = pair[0].raw.matches("cache_control").count();
        assert!((2..=4).contains(&mark_count), "{mark_count} marks");
        let prefix = cached.last().unwrap() + 1;
        hits += usize::from(messages(&pair[0])[..prefix] == messages(&pair[1])[..prefix]);
        assert_eq!(pair[0].body["system"], pair[1].body["system"]);
        assert_eq!(pair[0].body["tools"], pair[1].body["tools"]);
    }
    assert!(
        requests.len() - 1 - hits <= 4,
        "{hits} of {}",
        requests.len() - 1
    );
    let far: BTreeSet<usize> = requests
        .iter()
        .map(|request| *marks(request).last().unwrap())
        .collect();
    assert!(
        10 < far.len(),
        "the mark moves on with the conversation: {far:?}"
    );
}

#[test]
fn nothing_is_compacted_before_the_context_is_full() {
    let requests = long_talk("context: 100000", 30, 2000);
    assert!(!requests.last().unwrap().raw.contains("[left out: "));
}

#[test]
fn old_turns_are_dropped_when_shortening_results_is_not_enough() {
    let said = |turn: usize| {
        bash(&format!("echo {turn}"))
            .with_text(&format!("words of turn {turn} {}", "y".repeat(900)))
    };
    let replies = (0..30).map(said).chain([solve(), done()]).collect();
    let (_, requests) = converse(&agent_spec("context: 6000"), replies, 0);
    let last = requests.last().unwrap();
    assert!(
        last.text().contains("Earlier turns") && last.text().contains("said: words of turn 0"),
        "{}",
        last.text()
    );
    for request in &requests {
        let calls = request.raw.matches("\"type\":\"tool_use\"").count();
        assert_eq!(calls, request.results().len(), "every call has its result");
        let roles: Vec<&Value> = request.body["messages"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| &one["role"])
            .collect();
        assert!(roles.windows(2).all(|pair| pair[0] != pair[1]), "{roles:?}");
    }
}

#[test]
fn a_context_length_error_is_retried_once_with_half_the_history() {
    for message in [
        "prompt is too long: 210000 tokens > 200000 maximum",
        "the request exceeds the available context size",
    ] {
        let long = || reply::error(400, "invalid_request_error", message);
        let one = |turn: usize| {
            bash(&format!(
                "echo turn {turn}; head -c 3000 /dev/zero | tr '\\0' x"
            ))
        };
        let first = || (0..6).map(one);
        let (_, requests) = converse(
            &agent_spec(""),
            first().chain([long(), solve(), done()]).collect(),
            0,
        );
        assert!(
            requests[7].raw.len() < requests[6].raw.len() * 6 / 10,
            "{}",
            requests[7].raw.len()
        );
        assert!(
            requests[7].raw.contains("[left out: ") && !requests[6].raw.contains("[left out: ")
        );
        let (project, requests) = converse(
            &agent_spec(""),
            first().chain([long(), long(), solve()]).collect(),
            1,
        );
        assert_eq!(
            (reason(&project), requests.len()),
            (ended("FAILED", "generation_error"), 8)
        );
        let again = first()
            .chain([long(), bash("true"), long(), solve(), done()])
            .collect();
        assert_eq!(
            converse(&agent_spec(""), again, 0).1.len(),
            11,
            "each time anew"
        );
    }
}

#[test]
fn very_many_calls_in_one_answer_fit_the_context() {
    let command = json!({"command": "head -c 9000 /dev/zero | tr '\\0' x"});
    let many = (0..120).fold(bash("true"), |reply, _| {
        reply.and_call("bash", command.clone())
    });
    let (_, requests) = converse(
        &agent_spec("context: 30000"),
        vec![many, solve(), done()],
        0,
    );
    assert_eq!(requests[1].results().len(), 121);
    assert!(
        requests[1].raw.len() / 3 < 30000,
        "{}",
        requests[1].raw.len()
    );
}

#[test]
fn environments_end_with_the_phase_before_the_checks_run() {
    let server = Server::answering(|request| match request.results().len() {
        0 => bash("touch go; while test -e go; do echo 41 > answer.txt; done & disown"),
        1 => call(
            "bash",
            json!({"command": "echo on; sleep 1000", "timeout": 1}),
        ),
        2 => call(
            "python",
            json!({"command": "import subprocess; subprocess.Popen(['sleep', '1000'])"}),
        ),
        _ => done(),
    });
    let script = format!("rm go; echo 42 > answer.txt; {CHECK}");
    let spec = checked_by(&script) + "generator: {mode: agent}\nmax_retries: 1\n";
    let project = Project::with(spec, &server);
    project.run(RUN).exits(0);
    assert_eq!(
        project.events("ConversationClosed")[0]["killed"],
        json!(["bash: echo on; sleep 1000"])
    );
    project.nothing_left();
}

#[test]
fn a_command_that_was_still_running_is_named_in_the_next_prompt() {
    let slow = call(
        "bash",
        json!({"command": "echo 41 > answer.txt; sleep 12345", "timeout": 1}),
    );
    let (_, requests) = converse(&agent_spec(""), vec![slow, done(), solve(), done()], 0);
    assert!(
        requests[2].text().contains("sleep 12345"),
        "{}",
        requests[2].text()
    );
}

#[test]
fn extreme_bounds_are_used_or_refused() {
    for (generator, code) in [
        ("context: 1", 0),
        ("max_turns: 4294967295", 0),
        ("phase_timeout: 1e18", 65),
        ("phase_timeout: 18446744073709551615", 65),
    ] {
        let server = Server::start([bash("echo one"), bash("echo two"), solve(), done()]);
        let project = Project::with(agent_spec(generator), &server);
        project.run(RUN_JSON).exits(code);
        assert_eq!(server.count(), if code == 0 { 4 } else { 0 }, "{generator}");
    }
}
