//! The tools of agent mode: environments that keep state, valid and invalid calls, and their results.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::agent_mode::{PROVIDERS, agent_spec, converse, done, results, solve};
use crate::support::reply::{self, Reply, bash, call};
use crate::support::server::ToolResult;

#[test]
fn tools_are_offered_in_order_without_required_fields() {
    for provider in PROVIDERS {
        let (_, requests) = converse(
            &agent_spec(&format!("provider: {provider}")),
            vec![solve(), done()],
            0,
        );
        let tools = requests[0].body["tools"].as_array().unwrap();
        let function = |tool: &Value| {
            if provider == "openai" {
                tool["function"].clone()
            } else {
                tool.clone()
            }
        };
        let names: Vec<Value> = tools
            .iter()
            .map(|tool| function(tool)["name"].clone())
            .collect();
        assert_eq!(names, ["bash", "python", "editor"]);
        for tool in tools.iter().map(function) {
            let schema = if provider == "openai" {
                &tool["parameters"]
            } else {
                &tool["input_schema"]
            };
            let properties: Vec<&String> =
                schema["properties"].as_object().unwrap().keys().collect();
            assert_eq!(properties, ["command", "action", "timeout"]);
            assert!(schema.get("required").is_none(), "{schema}");
        }
        for field in ["tools", "system"] {
            assert_eq!(
                requests[0].body[field], requests[1].body[field],
                "{field} is the same, byte for byte"
            );
        }
    }
}

#[test]
fn environments_keep_their_state_between_calls() {
    let python = |line: &str| call("python", json!({"command": line}));
    let got = results(vec![
        bash("greeting=hello; mkdir -p sub; cd sub"),
        bash("echo $greeting; basename $PWD"),
        python("x = 20"),
        python("x + 1"),
        call(
            "editor",
            json!({"command": "create note.txt\nfirst line\n"}),
        ),
        call("editor", json!({"command": "view note.txt /first/ /line/"})),
    ]);
    assert!(got[1].text.starts_with("hello\nsub\n"), "{}", got[1].text);
    assert!(got[3].text.starts_with("21\n"), "{}", got[3].text);
    assert!(got[5].text.contains("first line"), "{}", got[5].text);
}

#[test]
fn several_calls_of_one_answer_run_in_order_with_a_result_each() {
    for provider in PROVIDERS {
        let command = |text: &str| json!({"command": text});
        let several = bash("echo 4 > answer.txt")
            .and_call("python", command("open('answer.txt', 'a').write('2\\n')"))
            .and_call(
                "bash",
                command("tr -d '\\n' < answer.txt > joined; echo >> joined; mv joined answer.txt; cat answer.txt"),
            )
            .ids(&["a", "b", "c"]);
        let (_, requests) = converse(
            &agent_spec(&format!("provider: {provider}")),
            vec![several, done()],
            0,
        );
        let results = requests[1].results();
        let ids: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
        assert!(results[2].text.starts_with("42\n"), "{}", results[2].text);
        let with_screen = results
            .iter()
            .filter(|result| result.text.contains("[screen of"))
            .count();
        assert_eq!(with_screen, 1, "only the newest result shows the screens");
    }
}

#[test]
fn calls_that_share_an_id_get_unique_ids() {
    for provider in PROVIDERS {
        let two = bash("echo one")
            .and_call("bash", json!({"command": "echo two"}))
            .ids(&["same", "same"]);
        let replies = vec![two, bash("echo three").ids(&["same"]), solve(), done()];
        let (_, requests) = converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
        for request in &requests[1..] {
            let results = request.results();
            let mut ids: Vec<&str> = results.iter().map(|result| result.id.as_str()).collect();
            for id in &ids {
                let quoted = format!("\"id\":\"{id}\"");
                assert_eq!(
                    request.raw.matches(&quoted).count(),
                    1,
                    "{id} is one call's in {}",
                    request.raw
                );
            }
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), results.len(), "{ids:?}");
        }
        let results = requests[2].results();
        assert!(
            results[0].text.starts_with("one") && results[1].text.starts_with("two"),
            "{results:?}"
        );
    }
}

#[test]
fn calls_without_ids_get_ids() {
    let two = || {
        bash("echo one")
            .and_call("bash", json!({"command": "echo two"}))
            .ids(&["", ""])
    };
    for reply in [two(), two().json()] {
        let (_, requests) = converse(
            &agent_spec("provider: openai"),
            vec![reply, solve().ids(&[""]), done()],
            0,
        );
        let results = requests[2].results();
        assert_eq!(results.len(), 3);
        assert!(
            results[0].text.starts_with("one") && results[1].text.starts_with("two"),
            "{results:?}"
        );
        let ids: BTreeSet<&str> = results.iter().map(|result| result.id.as_str()).collect();
        assert_eq!(ids.len(), 3, "{ids:?}");
    }
}

#[test]
fn invalid_calls_are_failed_results_with_a_reason() {
    let cases = [
        (call("telnet", json!({"command": "touch ran"})), "telnet"),
        (call("bash", json!({})), "command"),
        (call("bash", json!({"action": "run"})), "command"),
        (call("bash", json!({"command": 5})), "command"),
        (
            call("bash", json!({"command": ["touch", "ran"]})),
            "command",
        ),
        (
            call("bash", json!({"command": "touch ran", "action": "fly"})),
            "fly",
        ),
        (
            call("bash", json!({"command": "touch ran", "timeout": "soon"})),
            "timeout",
        ),
    ];
    let words: Vec<&str> = cases.iter().map(|(_, word)| *word).collect();
    let got = results(
        cases
            .into_iter()
            .map(|(reply, _)| reply)
            .chain([bash("ls")])
            .collect(),
    );
    for (result, word) in got.iter().zip(words) {
        assert_eq!(result.is_error, Some(true), "{result:?}");
        assert!(
            result.text.starts_with("not run: ") && result.text.contains(word),
            "{result:?}"
        );
    }
    assert!(!got.last().unwrap().text.contains("ran"), "{got:?}");
}

#[test]
fn arguments_that_are_not_an_object_are_sent_back_as_an_empty_one() {
    for provider in PROVIDERS {
        for arguments in [
            "{\"command\": \"touch ra",
            "[\"touch ran\"]",
            "\"touch ran\"",
            "null",
            "touch ran",
        ] {
            let replies = vec![
                reply::text("").and_raw_call("bash", arguments),
                solve(),
                done(),
            ];
            let (project, requests) =
                converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
            assert!(
                requests[1].result().text.starts_with("not run: "),
                "{arguments}: {:?}",
                requests[1].result()
            );
            let empty = match provider {
                "openai" => "\"arguments\":\"{}\"",
                _ => "\"input\":{}",
            };
            assert!(
                requests[1].raw.contains(empty),
                "{arguments}: {}",
                requests[1].raw
            );
            assert!(!project.exists("workspace/ran"));
        }
    }
}

#[test]
fn an_attempt_to_leave_the_workspace_is_a_failed_result() {
    let got = results(vec![
        call("editor", json!({"command": "create ../outside.txt\nx\n"})),
        call(
            "editor",
            json!({"command": "view ../../etc/passwd /root/ /x/"}),
        ),
        call("editor", json!({"command": "view /etc/passwd /root/ /x/"})),
        call("editor", json!({"command": "create sub/../../x\nx\n"})),
        bash("ln -s ../.. out"),
        call("editor", json!({"command": "create out/x\nx\n"})),
    ]);
    for index in [0, 1, 2, 3, 5] {
        assert_eq!(got[index].is_error, Some(true), "{:?}", got[index]);
        assert!(
            got[index].text.contains("project directory"),
            "{:?}",
            got[index]
        );
    }
}

#[test]
fn the_next_call_works_after_a_failed_command_or_a_dead_shell() {
    let got = results(vec![
        bash("false"),
        bash("echo lost; exit 3"),
        bash("kill -9 $$"),
        bash("echo alive"),
    ]);
    assert!(
        got[..3].iter().all(|result| result.is_error == Some(true)),
        "{got:?}"
    );
    assert!(got[1].text.starts_with("lost\n"), "{got:?}");
    assert!(
        got[3].text.starts_with("alive\n") && got[3].is_error == Some(false),
        "{got:?}"
    );
}

#[test]
fn a_command_keeps_running_after_its_timeout() {
    let action = |word: &str| call("bash", json!({"action": word, "command": 7}));
    let slow = |command: &str| call("bash", json!({"command": command, "timeout": 1}));
    let got = results(vec![
        slow(
            "kept=yes; echo before; read line < pipe 2>/dev/null || mkfifo pipe; read line < pipe; echo got $line",
        ),
        bash("touch refused"),
        call(
            "python",
            json!({"command": "import os; os.path.exists('refused')"}),
        ),
        call(
            "python",
            json!({"command": "open('pipe', 'w').write('word\\n')"}),
        ),
        action("wait"),
        slow("sleep 1000"),
        action("interrupt"),
        bash("echo \"still $kept\""),
        slow("sleep 1000"),
        action("restart"),
        bash("echo \"now [$kept]\"; basename $PWD"),
        action("wait"),
        action("interrupt"),
    ]);
    assert!(got[0].text.starts_with("before\n"), "{:?}", got[0]);
    for word in ["still running after 1", "wait", "interrupt", "restart"] {
        assert!(got[0].text.contains(word), "{:?}", got[0]);
    }
    assert_eq!(got[0].is_error, Some(true));
    assert!(
        got[1].text.contains("Not run") && got[1].is_error == Some(true),
        "{:?}",
        got[1]
    );
    assert!(
        got[2].text.starts_with("False\n"),
        "another environment works meanwhile: {:?}",
        got[2]
    );
    assert!(
        got[4].text.starts_with("got word\n") && got[4].is_error == Some(false),
        "{:?}",
        got[4]
    );
    assert!(got[7].text.starts_with("still yes\n"), "{:?}", got[7]);
    assert!(got[9].is_error == Some(false), "{:?}", got[9]);
    assert!(
        got[10].text.starts_with("now []\nworkspace\n"),
        "{:?}",
        got[10]
    );
    assert!(
        got[11..]
            .iter()
            .all(|result| result.text.contains("Nothing is running")),
        "{got:?}"
    );
}

#[test]
fn a_timeout_below_a_second_becomes_one_second() {
    let got = results(vec![
        call("bash", json!({"command": "echo quick", "timeout": -5})),
        call("bash", json!({"command": "echo quick", "timeout": 0})),
        call("bash", json!({"command": "echo quick", "timeout": 1e9})),
    ]);
    assert!(
        got.iter().all(|result| result.text.starts_with("quick\n")),
        "{got:?}"
    );
}

/// The output of a result, without the screens that follow it.
fn output(result: &ToolResult) -> &str {
    result.text.split("\n[screen of").next().unwrap()
}

#[test]
fn the_output_of_a_call_is_bounded_in_bytes() {
    const LIMIT: usize = 16 << 10;
    let python = |line: &str| call("python", json!({"command": line}));
    let got = results(vec![
        bash("echo first; seq 1 2000000; echo last"),
        bash("head -c 300000 /dev/zero | tr '\\0' x; echo end"),
        python("print('\u{20ac}' * 100000 + 'end')"),
        python("print('x' * 16383)"),
        bash("head -c 16384 /dev/zero | tr '\\0' x"),
    ]);
    for result in &got {
        assert!(
            output(result).len() <= LIMIT,
            "{} bytes",
            output(result).len()
        );
    }
    for result in &got[..3] {
        assert!(output(result).contains("are missing here"), "{result:?}");
    }
    assert!(
        output(&got[0]).starts_with("first\n1\n") && output(&got[0]).trim_end().ends_with("last")
    );
    assert!(
        output(&got[1]).trim_end().ends_with("end") && output(&got[2]).trim_end().ends_with("end")
    );
    assert!(
        !got[2].text.contains('\u{fffd}'),
        "no character is cut in two"
    );
    assert!(!output(&got[3]).contains("missing"), "what fits is whole");
}

#[test]
fn results_end_with_the_screens_of_used_environments() {
    let editor = |command: String| call("editor", json!({"command": command}));
    let long = "x".repeat(900);
    let lines: String = (0..40)
        .map(|line| format!("line {line} {long}\n"))
        .collect();
    let views = (0..3).flat_map(|name| {
        let create = editor(format!("create f{name}.txt\n{lines}"));
        [
            create,
            editor(format!("view f{name}.txt /line 0/ /line 39/")),
        ]
    });
    let calls: Vec<Reply> = [bash("cd /tmp")]
        .into_iter()
        .chain(views)
        .chain([bash("true")])
        .collect();
    let got = results(calls);
    let screens = |index: usize| {
        got[index]
            .text
            .split_once("\n[screen of")
            .map(|(_, rest)| rest.to_owned())
            .unwrap()
    };
    assert!(
        !got[0].text.contains("[screen of editor]") && !got[0].text.contains("[screen of python]")
    );
    assert!(
        screens(1).starts_with(" editor]") && screens(1).contains("[screen of bash]"),
        "{}",
        screens(1)
    );
    assert!(screens(7).starts_with(" bash]") && screens(7).contains("[screen of editor]"));
    for index in 0..got.len() {
        assert!(screens(index).len() <= 16 << 10, "{}", screens(index).len());
    }
    assert!(screens(6).contains("left out"), "{}", screens(6));
}

#[test]
fn only_the_newest_result_contains_screens() {
    for provider in PROVIDERS {
        let replies = vec![
            bash("echo one"),
            bash("echo two"),
            bash("echo three"),
            solve(),
            done(),
        ];
        let (_, requests) = converse(&agent_spec(&format!("provider: {provider}")), replies, 0);
        for (index, request) in requests.iter().enumerate().skip(1) {
            let results = request.results();
            let screens: Vec<bool> = results
                .iter()
                .map(|result| result.text.contains("[screen of"))
                .collect();
            assert_eq!(
                screens.iter().filter(|has_screen| **has_screen).count(),
                1,
                "{results:?}"
            );
            assert_eq!(screens.last(), Some(&true));
            assert_eq!(
                output(&results[0]),
                output(&requests[1].results()[0]),
                "request {index}"
            );
        }
    }
}

#[test]
fn every_documented_editor_command_works() {
    let editor = |command: &str| call("editor", json!({"command": command}));
    let got = results(vec![
        editor("create a.txt\none\ntwo\nthree\n"),
        editor("view a.txt /one/ /three/"),
        editor("edit a.txt 2-2\nzwei\ndeux"),
        editor("search \"de.x\" *.txt"),
        editor("close 1"),
    ]);
    assert!(
        got.iter().all(|result| result.is_error == Some(false)),
        "{got:?}"
    );
    assert!(
        output(&got[3]).contains("a.txt") && output(&got[3]).contains("deux"),
        "{:?}",
        got[3]
    );
    let (_, requests) = converse(&agent_spec(""), vec![solve(), done()], 0);
    let said = requests[0].body["tools"].to_string();
    for form in [
        "view PATH /START/ /END/",
        "edit PATH FIRST-LAST",
        "create PATH",
        "search \\\"PATTERN\\\" GLOB",
        "close ID",
    ] {
        assert!(said.contains(form), "no {form} in {said}");
    }
}
