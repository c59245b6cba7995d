//! Transitions of a workflow: which session the next state continues, what its request contains, where a result returns
//! to, which workers a fork begins, and what happens to a question.
//!
//! Policies and reminders are in `workflow_policy.rs`.

use serde_json::{Value, json};

use crate::support::project::{ANTHROPIC_KEY, Project};
use crate::support::reply::{self, bash};
use crate::support::server::Server;
use crate::support::workflow::{
    Answers, FLOW, FLOW_JSON, conversation, request_for, text_of, workflow,
};

/// Runs a workflow whose model gives these answers, in turn; returns the payload and the requests' conversations.
fn converse(states: &[(&str, &str)], replies: &[&str]) -> (Project, String, Vec<Vec<String>>) {
    let server = Server::start(replies.iter().map(|text| reply::text(text)));
    let project = workflow(states).model(&server);
    let payload = project.succeed(&[]);
    let requests = server.requests();
    (
        project,
        payload,
        requests.iter().map(conversation).collect(),
    )
}

#[test]
fn a_goto_continues_the_session() {
    let (project, payload, requests) = converse(
        &[("START.md", "Plan it.\n"), ("B.md", "Do it.\n")],
        &["Fine. <goto>B</goto>", "<result>done</result>"],
    );
    assert_eq!(payload, "done");
    assert_eq!(requests[0], ["user: Plan it.\n"]);
    assert_eq!(
        requests[1],
        [
            "user: Plan it.\n",
            "assistant: Fine. <goto>B</goto>",
            "user: Do it.\n"
        ]
    );
    assert_eq!(
        project.transitions(),
        ["main: START.md -goto-> B.md", "main: B.md -result-> end"]
    );
}

#[test]
fn a_reset_begins_a_fresh_session() {
    let (_, _, requests) = converse(
        &[("START.md", "Plan it."), ("B.md", "Do it: {{input}}.")],
        &["<reset input=\"x\">B</reset>", "<result>done</result>"],
    );
    assert_eq!(requests[1], ["user: Do it: x."]);
}

#[test]
fn a_function_is_fresh_and_returns_to_the_session_of_its_caller() {
    let (_, payload, requests) = converse(
        &[
            ("START.md", "Plan it."),
            ("E.md", "Evaluate {{input}}."),
            ("R.md", "It returned {{result}} ({{input}})."),
        ],
        &[
            "<function return=\"R\" input=\"6*7\">E</function>",
            "<result>42</result>",
            "<result>thanks</result>",
        ],
    );
    assert_eq!(payload, "thanks");
    assert_eq!(requests[1], ["user: Evaluate 6*7."]);
    assert_eq!(
        requests[2],
        [
            "user: Plan it.",
            "assistant: <function return=\"R\" input=\"6*7\">E</function>",
            "user: It returned 42 (42)."
        ]
    );
}

#[test]
fn a_call_branches_the_session_and_its_caller_does_not_see_the_branch() {
    let (_, _, requests) = converse(
        &[
            ("START.md", "Plan it."),
            ("C.md", "Look closer."),
            ("C2.md", "And closer."),
            ("R.md", "Back with {{input}}."),
        ],
        &[
            "<call return=\"R\">C</call>",
            "<goto>C2</goto>",
            "<result>a detail</result>",
            "<result>done</result>",
        ],
    );
    let caller = ["user: Plan it.", "assistant: <call return=\"R\">C</call>"];
    let branch = [
        "user: Look closer.",
        "assistant: <goto>C2</goto>",
        "user: And closer.",
    ];
    assert_eq!(requests[1], [&caller[..], &branch[..1]].concat());
    assert_eq!(requests[2], [&caller[..], &branch[..]].concat());
    assert_eq!(
        requests[3],
        [&caller[..], &["user: Back with a detail."]].concat()
    );
}

#[test]
fn calls_and_functions_return_in_the_order_of_their_stack() {
    let (project, payload, requests) = converse(
        &[
            ("START.md", "One."),
            ("A.md", "Two."),
            ("B.md", "Three."),
            ("RA.md", "Four, {{input}}."),
            ("RB.md", "Five, {{input}}."),
        ],
        &[
            "<call return=\"RA\">A</call>",
            "<function return=\"RB\">B</function>",
            "<result>b</result>",
            "<result>a</result>",
            "<result>end</result>",
        ],
    );
    assert_eq!(payload, "end");
    assert_eq!(
        project.path_of("main"),
        [
            "START.md -call-> A.md",
            "A.md -function-> B.md",
            "B.md -result-> RB.md",
            "RB.md -result-> RA.md",
            "RA.md -result-> end"
        ]
    );
    assert_eq!(requests[2], ["user: Three."]);
    let lengths: Vec<usize> = requests.iter().map(Vec::len).collect();
    assert_eq!(lengths, [1, 3, 1, 5, 3]);
    assert_eq!(requests[3][4], "user: Five, b.");
    assert_eq!(requests[4][2], "user: Four, a.");
}

#[test]
fn a_branch_waits_for_the_next_markdown_state() {
    let states = [
        ("START.md", "Plan it."),
        ("S.sh", "echo '<goto>S2</goto>'"),
        ("S2.sh", "echo '<goto>C</goto>'"),
        ("C.md", "Look closer."),
        ("R.md", "Back."),
    ];
    let replies = [
        "<call return=\"R\">S</call>",
        "<result>x</result>",
        "<result>done</result>",
    ];
    let (_, _, requests) = converse(&states, &replies);
    let caller = ["user: Plan it.", "assistant: <call return=\"R\">S</call>"];
    assert_eq!(requests[1], [&caller[..], &["user: Look closer."]].concat());
    assert_eq!(requests[2], [&caller[..], &["user: Back."]].concat());
}

#[test]
fn scripts_between_markdown_states_leave_the_session_as_it_is() {
    let states = [
        ("START.md", "Plan it."),
        ("S.sh", "echo '<goto>B</goto>'"),
        ("B.md", "Do it."),
    ];
    let (_, _, requests) = converse(&states, &["<goto>S</goto>", "<result>x</result>"]);
    assert_eq!(
        requests[1],
        [
            "user: Plan it.",
            "assistant: <goto>S</goto>",
            "user: Do it."
        ]
    );
}

#[test]
fn a_call_from_a_script_without_a_session_is_fresh() {
    let states = [
        ("START.sh", "echo '<call return=\"R\">C</call>'"),
        ("C.md", "Look."),
        ("R.md", "Back, {{input}}."),
    ];
    let (_, _, requests) = converse(&states, &["<result>x</result>", "<result>y</result>"]);
    assert_eq!(requests[0], ["user: Look."]);
    assert_eq!(requests[1], ["user: Back, x."]);
}

/// The workflow of a parent that forks two workers.
const FORK: [(&str, &str); 4] = [
    ("START.md", "Split the work."),
    ("WORKER.md", "Work on {{item}} as {{agent_id}}, {{input}}."),
    ("NEXT.md", "Go on with {{input}}."),
    ("LAST.md", "Last, {{item}}."),
];

#[test]
fn a_fork_begins_fresh_workers_and_its_parent_goes_on() {
    let server = Answers::new()
        .on(
            "Split",
            ["<fork next=\"NEXT\" item=\"a\" input=\"i\">WORKER</fork><fork item=\"b\">WORKER</fork>"],
        )
        .on("Work on a", ["<goto>LAST</goto>"])
        .on("Work on b", ["<result>B</result>"])
        .on("Last", ["<result>A</result>"])
        .on("Go on", ["<result>parent</result>"])
        .start();
    let project = workflow(&FORK).model(&server);
    assert_eq!(project.succeed(&[]), "parent");
    let first = conversation(&request_for(&server, "Work on a"));
    assert_eq!(first, ["user: Work on a as main_worker1, i."]);
    let second = conversation(&request_for(&server, "Work on b"));
    assert_eq!(second, ["user: Work on b as main_worker2, {{input}}."]);
    // Attributes live for one state; the session goes on.
    let last = conversation(&request_for(&server, "Last"));
    assert_eq!(last.last().unwrap(), "user: Last, {{item}}.");
    assert_eq!(last.len(), 3);
    let parent = conversation(&request_for(&server, "Go on"));
    assert_eq!(parent.len(), 3);
    assert_eq!(parent[2], "user: Go on with {{input}}.");
    let results = json!({"main": "parent", "main_worker1": "A", "main_worker2": "B"});
    assert_eq!(project.state()["results"], results);
    assert_eq!(project.state()["fork_counters"], json!({"main": 2}));
}

#[test]
fn a_join_waits_for_all_workers_and_gets_their_payloads_in_the_order_of_the_tags() {
    let server = Answers::new()
        .on(
            "Split",
            ["<fork join=\"NEXT\" item=\"a\">WORKER</fork><fork item=\"b\">WORKER</fork>"],
        )
        .on(
            "Work on a",
            [reply::text("<result>first \"one\"</result>").held()],
        )
        .on("Work on b", ["<result></result>"])
        .on("Go on", ["<result>joined</result>"])
        .start();
    let project = workflow(&FORK).model(&server);
    let mut running = project.start(FLOW);
    server.wait_for(3);
    let waiting = ["main waiting", "main_worker1 running"];
    running.until("one worker has ended", || {
        project.exists("state.json") && project.agents() == waiting
    });
    assert_eq!(project.agent("main")["current_state"], "NEXT.md");
    assert_eq!(project.agent("main")["waits_for"], json!(["main_worker1"]));
    server.release();
    assert_eq!(running.wait().exits(0).stdout, "joined\n");
    let joined = conversation(&request_for(&server, "Go on"));
    assert_eq!(
        joined[2],
        r#"user: Go on with {"main_worker1":"first \"one\"","main_worker2":""}."#
    );
    project.nothing_left();
}

#[test]
fn more_than_nine_workers_keep_the_order_of_their_tags() {
    let forks: String = (1..=12)
        .map(|n| format!("<fork join='N' i='{n}'>W</fork>"))
        .collect();
    let project = workflow(&[
        ("START.sh", &format!("echo \"{forks}\"")),
        ("W.sh", "echo \"<result>$ORCHESTRATOR_VAR_I</result>\""),
        (
            "N.sh",
            "cat \"$ORCHESTRATOR_INPUT_FILE\" > joined; echo '<result></result>'",
        ),
    ]);
    assert_eq!(project.succeed(&[]), "");
    let expected: Vec<String> = (1..=12).map(|n| format!("\"main_w{n}\":\"{n}\"")).collect();
    assert_eq!(
        project.workspace("joined"),
        format!("{{{}}}", expected.join(","))
    );
}

#[test]
fn a_goto_beside_forks_is_their_next_with_an_input_of_its_own() {
    let server = Answers::new()
        .on(
            "Split",
            ["<fork item=\"a\" input=\"for it\">WORKER</fork><goto input=\"mine\">NEXT</goto>"],
        )
        .on("Work on a", ["<result>A</result>"])
        .on("Go on", ["<result>parent</result>"])
        .start();
    let project = workflow(&FORK).model(&server);
    assert_eq!(project.succeed(&[]), "parent");
    let parent = conversation(&request_for(&server, "Go on"));
    assert_eq!(parent[2], "user: Go on with mine.");
    let worker = conversation(&request_for(&server, "Work on a"));
    assert_eq!(worker, ["user: Work on a as main_worker1, for it."]);
}

#[test]
fn ids_of_workers_have_the_parent_six_characters_and_a_counter_that_is_never_reused() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"AGAIN\">Analyzer</fork><fork>a1_b</fork>'",
        ),
        ("AGAIN.sh", "echo '<fork join=\"END\">Analyzer</fork>'"),
        (
            "Analyzer.sh",
            "test $ORCHESTRATOR_AGENT_ID = main_analyz1 || { echo '<result></result>'; exit; }
             echo '<fork join=\"W\">W</fork><fork>v1.2</fork>'",
        ),
        ("a1_b.sh", "echo '<result></result>'"),
        ("W.sh", "echo '<result></result>'"),
        ("v1.2.sh", "echo '<result></result>'"),
        ("END.sh", "echo '<result></result>'"),
    ]);
    project.succeed(&[]);
    let spawned = project.events("AgentSpawned");
    let mut ids: Vec<&str> = spawned
        .iter()
        .filter_map(|line| line["new_agent_id"].as_str())
        .collect();
    ids.sort_unstable();
    let expected = [
        "main_a1_b2",
        "main_analyz1",
        "main_analyz1_v1.22",
        "main_analyz1_w1",
        "main_analyz3",
    ];
    assert_eq!(ids, expected);
    let counters = json!({"main": 3, "main_analyz1": 2});
    assert_eq!(project.state()["fork_counters"], counters);
}

#[test]
fn an_id_that_is_taken_is_skipped() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\">A</fork><fork>A1_B</fork>'",
        ),
        ("A.sh", "echo '<fork join=\"END\">B</fork><fork>B</fork>'"),
        ("A1_B.sh", "echo '<result></result>'"),
        ("B.sh", "echo '<result></result>'"),
        ("END.sh", "echo '<result></result>'"),
    ]);
    project.succeed(&[]);
    let results = project.state()["results"].clone();
    let ids: Vec<&String> = results.as_object().unwrap().keys().collect();
    assert_eq!(
        ids,
        ["main", "main_a1", "main_a1_b1", "main_a1_b2", "main_a1_b3"]
    );
    assert_eq!(
        project.state()["fork_counters"],
        json!({"main": 2, "main_a1": 3})
    );
}

#[test]
fn a_worker_calls_and_returns_with_a_stack_of_its_own() {
    let project = workflow(&[
        ("START.sh", "echo '<call return=\"R\">FORK</call>'"),
        ("FORK.sh", "echo '<fork join=\"DONE\">W</fork>'"),
        ("W.sh", "echo '<function return=\"WR\">F</function>'"),
        ("F.sh", "echo '<result>f</result>'"),
        ("WR.sh", "echo \"<result>w$ORCHESTRATOR_INPUT</result>\""),
        ("DONE.sh", "echo '<result>main is back</result>'"),
        ("R.sh", "echo \"<result>R: $ORCHESTRATOR_INPUT</result>\""),
    ]);
    assert_eq!(project.succeed(&[]), "R: main is back");
    assert_eq!(project.state()["results"]["main_w1"], "wf");
}

#[test]
fn a_question_pauses_its_agent_until_it_is_answered() {
    let server = Server::start([
        reply::text("<ask next=\"B\">\nWhich colour?\n</ask>"),
        reply::text("<result>painted</result>"),
    ]);
    let project = workflow(&[("START.md", "Paint it."), ("B.md", "Use {{input}}.")]).model(&server);
    let result = project.pause(&[]);
    assert_eq!(result["reason"], "asking");
    assert_eq!(text_of(&result, "message"), "main asks: Which colour?");
    let next = text_of(&result, "next");
    assert_eq!(
        next,
        "orchestrator run --workflow flow --answer TEXT --json"
    );
    let agent = project.agent("main");
    assert_eq!(agent["status"], "asking");
    assert_eq!(agent["current_state"], "B.md");
    assert_eq!(agent["error"], "Which colour?");
    let status = project.run(&["status"]).exits(0);
    assert!(
        status.stdout.contains("question: Which colour?"),
        "{}",
        status.stdout
    );
    assert_eq!(project.state_text("state"), "PAUSED");
    assert_eq!(project.state_text("reason"), "asking");
    // Without an answer it asks again.
    project.run(FLOW).exits(4).says("Which colour?");
    let ran = project.run(&[FLOW, &["--answer", "blue & \"green\""]].concat());
    assert_eq!(ran.exits(0).stdout, "painted\n");
    let request = conversation(&server.requests()[1]);
    assert_eq!(
        request,
        [
            "user: Paint it.",
            "assistant: <ask next=\"B\">\nWhich colour?\n</ask>",
            "user: Use blue & \"green\"."
        ]
    );
    let answered = &project.events("AgentAnswered")[0];
    assert_eq!(answered["agent_id"], "main");
    assert_eq!(answered["text"], "blue & \"green\"");
}

#[test]
fn the_tools_of_an_agent_end_while_it_asks() {
    let server = Server::start([
        bash("x=1; echo kept > file"),
        reply::text("<ask next=\"B\">Go on?</ask>"),
        bash("echo \"[$x]\" >> file"),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One."), ("B.md", "Two.")]).model(&server);
    project.pause(&[]);
    assert_eq!(project.succeed(&["--answer", "yes"]), "done");
    assert_eq!(project.workspace("file"), "kept\n[]\n");
    let lines = conversation(&server.requests()[2]);
    assert!(
        lines[5].contains("environments were restarted"),
        "{lines:#?}"
    );
}

#[test]
fn two_agents_ask_and_each_gets_its_answer() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\" x=\"1\">ASK</fork><fork x=\"2\">ASK</fork>'",
        ),
        (
            "ASK.sh",
            "echo \"<ask next='B'>What is $ORCHESTRATOR_VAR_X?</ask>\"",
        ),
        (
            "B.sh",
            "cp \"$ORCHESTRATOR_INPUT_FILE\" \"$ORCHESTRATOR_OUTPUT_FILE\"; echo '<result></result>'",
        ),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]);
    let result = project.pause(&[]);
    let next = text_of(&result, "next");
    assert!(next.contains("--answer main_ask1=TEXT"), "{next}");
    let message = text_of(&result, "message");
    assert!(
        message.contains("main_ask1 asks: What is 1?")
            && message.contains("main_ask2 asks: What is 2?"),
        "{message}"
    );
    let before = project.files();
    let answer = |answers: &[&str]| {
        let options: Vec<&str> = answers.iter().flat_map(|text| ["--answer", text]).collect();
        project.run(&[FLOW_JSON, &options].concat())
    };
    // An answer that belongs to no agent changes nothing.
    for answers in [
        &["alone"][..],
        &["main=x"],
        &["main_ask1=x", "main_ask1=y"],
        &["main_ask1=@missing"],
    ] {
        answer(answers).exits(64);
        assert_eq!(project.files(), before, "{answers:?}");
    }
    // One may be answered alone.
    assert_eq!(
        answer(&["main_ask2=b=c"]).exits(4).result()["reason"],
        "asking"
    );
    assert_eq!(project.agents(), ["main waiting", "main_ask1 asking"]);
    project.write("answer.txt", "from a file\n");
    let ran = answer(&["@answer.txt"]).exits(0);
    let payload: Value = serde_json::from_str(&text_of(&ran.result(), "result")).unwrap();
    assert_eq!(
        payload,
        json!({"main_ask1": "from a file\n", "main_ask2": "b=c"})
    );
    // Now no agent asks.
    answer(&["late"]).exits(64).says("no agent asks");
    project.nothing_left();
}

#[test]
fn an_answer_with_an_equals_sign_is_whole_where_its_first_word_is_not_an_agent() {
    let project = workflow(&[
        ("START.sh", "echo '<ask next=\"B\">x?</ask>'"),
        ("B.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]);
    project.pause(&[]);
    let ran = project.run(&[FLOW, &["--answer", "a=b"]].concat()).exits(0);
    assert_eq!(ran.stdout, "a=b\n");
}

#[test]
fn names_that_are_set_are_replaced_once_and_others_stay() {
    let prompt = "[{{input}}|{{result}}|{{agent_id}}|{{run_id}}|{{workflow_id}}|{{item}}|{{input }}|{{nope}}]";
    let states = [
        ("START.md", "Begin with {{input}}."),
        ("NEXT.md", "Go on."),
        ("W.md", prompt),
    ];
    let server = Answers::new()
        .on(
            "Begin",
            ["<fork next=\"NEXT\" input=\"{{item}}\" item=\"{{agent_id}}\" run_id=\"mine\" nope2=\"x\">W</fork>"],
        )
        .on("Go on", ["<result>{{input}}</result>"])
        .on("|", ["<result>w</result>"])
        .start();
    let project = workflow(&states).model(&server);
    assert_eq!(project.succeed(&["--input", "{{run_id}}"]), "{{input}}");
    let run_id = project.state_text("run_id");
    assert_eq!(
        conversation(&server.requests()[0]),
        ["user: Begin with {{run_id}}."]
    );
    let expected = format!(
        "user: [{{{{item}}}}|{{{{item}}}}|main_w1|{run_id}|{run_id}|{{{{agent_id}}}}|{{{{input }}}}|{{{{nope}}}}]"
    );
    assert_eq!(conversation(&request_for(&server, "|")), [expected]);
}

#[test]
fn an_input_lives_for_one_state() {
    let (_, _, requests) = converse(
        &[
            ("START.md", "{{input}}"),
            ("B.md", "{{input}}"),
            ("C.md", "({{input}})"),
        ],
        &[
            "<goto input=\"one\">B</goto>",
            "<goto>C</goto>",
            "<result>x</result>",
        ],
    );
    assert_eq!(requests[0].last().unwrap(), "user: {{input}}");
    assert_eq!(requests[1].last().unwrap(), "user: one");
    assert_eq!(requests[2].last().unwrap(), "user: ({{input}})");
}

#[test]
fn a_directory_is_entered_by_reset_and_fork_and_left_by_a_return() {
    let project = workflow(&[
        ("START.sh", "mkdir -p a/b; echo '<reset cd=\"a\">A</reset>'"),
        (
            "A.sh",
            "pwd > where; echo '<call return=\"BACK\">IN</call>'",
        ),
        ("IN.sh", "echo '<reset cd=\"b\">DEEP</reset>'"),
        ("DEEP.sh", "pwd > where; echo '<result></result>'"),
        (
            "BACK.sh",
            "pwd > back; echo '<fork join=\"END\" cd=\"b\">W</fork><fork>W</fork>'",
        ),
        (
            "W.sh",
            "pwd > where-$ORCHESTRATOR_AGENT_ID; echo '<result></result>'",
        ),
        ("END.sh", "echo '<result></result>'"),
    ]);
    project.succeed(&[]);
    let folder = project.path("workspace").canonicalize().unwrap();
    for (file, directory) in [
        ("a/where", "a"),
        ("a/b/where", "a/b"),
        ("a/back", "a"),
        ("a/b/where-main_w1", "a/b"),
        ("a/where-main_w2", "a"),
    ] {
        let expected = format!("{}\n", folder.join(directory).display());
        assert_eq!(project.workspace(file), expected, "{file}");
    }
}

#[test]
fn a_directory_outside_the_folder_is_refused() {
    for cd in ["..", "/tmp", "missing", "file", "out", ""] {
        let script = format!("touch file; ln -sfn / out; echo '<reset cd=\"{cd}\">B</reset>'");
        let project = workflow(&[("START.sh", &script), ("B.sh", "echo '<result></result>'")]);
        let message = text_of(&project.fail(&[]), "message");
        assert!(
            message.contains("`cd=") && message.contains(cd),
            "{message}"
        );
    }
}

#[test]
fn the_tools_of_an_agent_live_until_its_directory_changes() {
    let states = [("START.md", "One."), ("B.md", "Two."), ("C.md", "Three.")];
    let server = Server::start([
        bash("mkdir sub; x=kept; echo $x"),
        reply::text("<goto>B</goto>"),
        bash("echo \"[$x]\" | tee seen"),
        reply::text("<reset cd=\"sub\">C</reset>"),
        bash("echo \"[$x]\" | tee seen"),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&states).model(&server);
    assert_eq!(project.succeed(&[]), "done");
    assert_eq!(project.workspace("seen"), "[kept]\n");
    assert_eq!(project.workspace("sub/seen"), "[]\n");
    // A fresh session has not used the environments: nothing is said of their restart.
    assert_eq!(conversation(&server.requests()[4]), ["user: Three."]);
}

#[test]
fn a_session_that_used_tools_is_told_of_their_restart_after_a_return() {
    let states = [
        ("START.md", "One."),
        ("F.sh", "mkdir sub; echo '<reset cd=\"sub\">G</reset>'"),
        ("G.md", "Two."),
        ("R.md", "Three."),
    ];
    let server = Server::start([
        bash("x=1; echo first"),
        reply::text("<function return=\"R\">F</function>"),
        bash("x=2"),
        reply::text("<result>g</result>"),
        bash("echo \"[$x]\" > seen"),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&states).model(&server);
    assert_eq!(project.succeed(&[]), "done");
    let returned = conversation(&server.requests()[4]);
    assert!(
        returned[4].contains("Three.") && returned[5].contains("environments were restarted"),
        "{returned:#?}"
    );
    assert_eq!(project.workspace("seen"), "[]\n");
}

#[test]
fn what_counts_as_a_transition_tag() {
    let states = |script: &str| {
        workflow(&[
            ("START.sh", script),
            ("A.sh", "echo '<result>A</result>'"),
            ("B.sh", "echo '<result>B</result>'"),
            ("v1.2.sh", "echo '<result>v</result>'"),
        ])
    };
    let check = |output: &str, expected: &str| {
        let project = states("cat output").file("workspace/output", output);
        let ran = project.run(FLOW_JSON);
        let result = ran.result();
        let found = match ran.code {
            Some(0) => text_of(&result, "result"),
            _ => text_of(&result, "message"),
        };
        let is_expected = match ran.code {
            Some(0) => found == expected,
            _ => found.contains(expected),
        };
        assert!(is_expected, "{output}: {found}");
    };
    check("text <goto>A</goto> text", "A");
    check("<goto\n  input='x > y'\n>\n A \n</goto>", "A");
    check("<goto>v1.2</goto>", "v");
    check("<goto> a <goto>B</goto>", "B");
    check("<results>x</results> <GOTO>A</GOTO> <goto>B</goto>", "B");
    check("<wrapper><goto>A</goto></wrapper>", "A");
    check("<result><goto>A</goto></result>", "<goto>A</goto>");
    check("<result>\n\n  a\n\n b\n\n</result>", "  a\n\n b");
    check("<result>&lt;</result>", "&lt;");
    check("<result></result>", "");
    check("<call return=B>A</call><goto>B</goto>", "B");
    check("<goto >A</goto >", "there is no transition tag");
    check("<goto>A", "there is no transition tag");
    check("<goto>A</goto><goto>A</goto>", "several transition tags");
    check("<goto>../A</goto>", "must not contain");
    check("<goto>NOPE</goto>", "no state \"NOPE\"");
    check("<goto></goto>", "missing");
    check("<goto input='1' input='2'>A</goto>", "occurs twice");
    check("<goto cd='.'>A</goto>", "`cd` does not work");
    check("<function>A</function>", "needs `return=");
    check("<fork>A</fork>", "needs `next=");
    check("<fork next='B' join='B'>A</fork>", "cannot be together");
    check(
        "<fork next='A'>A</fork><fork next='B'>A</fork>",
        "the same `next`",
    );
    check("<ask next='A'></ask>", "is empty");
    check("<ask>why?</ask>", "needs `next=");
    check(
        "<call-workflow return='B'>x</call-workflow>",
        "<call-workflow>",
    );
}

#[test]
fn the_start_is_the_state_that_is_named_or_the_only_entry() {
    let states = [
        ("1_START.sh", "echo '<result>entry</result>'"),
        ("B.sh", "echo '<result>b</result>'"),
        ("README.md", "Not a state."),
        (".hidden.md", "Not a state."),
    ];
    let project = workflow(&states);
    assert_eq!(project.succeed(&[]), "entry");
    let ran = workflow(&states).run(&["run", "--workflow", "flow/B.sh"]);
    assert_eq!(ran.exits(0).stdout, "b\n");
    for path in [
        "flow/README.md",
        "flow/.hidden.md",
        "flow/NOPE.md",
        "nowhere",
    ] {
        let project = workflow(&states);
        project.run(&["run", "--workflow", path]).exits(65);
        assert!(!project.exists("state.json"), "{path}");
    }
    let two = workflow(&states).file("flow/START.md", "Two entries.");
    two.run(FLOW).exits(65).says("several starts");
}

#[test]
fn what_lint_calls_an_error_is_refused_before_anything_is_changed() {
    let server = Server::start([]);
    for (file, text, problem) in [
        ("B.md", "---\nallowed_transitions: []\n---\nx", "is empty"),
        ("B.md", "---\nmodel: [\n---\nx", "B.md"),
        ("B.md", "---\nmodel: x\n---\n", "no prompt"),
        (
            "B.md",
            "---\nallowed_transitions: [{tag: goto, target: NOPE}]\n---\nx",
            "NOPE",
        ),
        ("B.sh", "echo '<call>START</call>'", "return"),
    ] {
        let project = workflow(&[("START.md", "Begin."), (file, text)]).model(&server);
        let before = project.files();
        project.run(FLOW).exits(65).says(problem);
        assert_eq!(project.files(), before, "{problem}");
    }
    assert_eq!(server.count(), 0);
}

#[test]
fn model_and_effort_of_a_state_are_its_own() {
    let server = Server::start([
        reply::text("<goto>B</goto>"),
        reply::text("<goto>C</goto>"),
        reply::text("<result>x</result>"),
    ]);
    let project = workflow(&[
        ("START.md", "---\nmodel: haiku\neffort: low\n---\nOne."),
        ("B.md", "---\nmodel: claude-opus-4-8\n---\nTwo."),
        ("C.md", "\u{feff}---\r\ntimeout: 100\r\n---\r\nThree.\r\n"),
    ])
    .model(&server);
    project.succeed(&["--model", "sonnet"]);
    let requests = server.requests();
    let models: Vec<&Value> = requests
        .iter()
        .map(|request| &request.body["model"])
        .collect();
    assert_eq!(
        models,
        ["claude-haiku-5-5", "claude-opus-4-8", "claude-sonnet-5-5"]
    );
    assert_eq!(requests[0].body["output_config"]["effort"], "low");
    assert_eq!(requests[1].body.get("output_config"), None);
    assert!(
        requests
            .iter()
            .all(|request| request.body["max_tokens"] == 16000)
    );
    assert!(requests[2].raw.contains("Three."));
}

#[test]
fn a_key_in_an_answer_is_not_passed_on() {
    let server = Server::start([
        reply::text(&format!("<goto input=\"{ANTHROPIC_KEY}\">B</goto>")),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[("START.md", "One."), ("B.md", "Two {{input}}.")]).model(&server);
    project.succeed(&[]);
    assert!(!server.requests()[1].raw.contains(ANTHROPIC_KEY));
}

#[test]
fn both_providers_continue_branch_and_return() {
    for provider in ["anthropic", "openai"] {
        let server = Server::start([
            bash("echo one"),
            reply::text("<call return=\"R\">C</call>"),
            reply::text("<result>v</result>"),
            reply::text("<result>end</result>"),
        ]);
        let project = workflow(&[
            ("START.md", "Plan."),
            ("C.md", "Look."),
            ("R.md", "Back with {{input}}."),
        ])
        .model(&server);
        let model = [
            "--provider",
            provider,
            "--model",
            "scripted",
            "--budget",
            "0",
        ];
        assert_eq!(project.succeed(&model), "end", "{provider}");
        let requests = server.requests();
        assert_eq!(requests.len(), 4);
        let (branch, back) = (requests[2].text(), requests[3].text());
        assert!(
            branch.contains("Plan.") && branch.contains("Look."),
            "{branch}"
        );
        assert!(
            back.contains("Back with v.") && !back.contains("Look."),
            "{back}"
        );
        for request in &requests[1..] {
            assert!(request.result().text.starts_with("one\n"), "{provider}");
        }
    }
}

#[test]
fn calls_without_ids_get_their_own_in_every_state_of_a_session() {
    let server = Server::start([
        bash("echo one").ids(&[""]),
        reply::text("<goto>B</goto>"),
        bash("echo two").ids(&[""]),
        reply::text("<goto>C</goto>"),
        bash("echo three").ids(&[""]),
        reply::text("<result>done</result>"),
    ]);
    let states = [("START.md", "One."), ("B.md", "Two."), ("C.md", "Three.")];
    let project = workflow(&states).model(&server);
    let model = ["--model", "scripted", "--budget", "0"];
    let provider = ["--provider", "openai"];
    assert_eq!(project.succeed(&[&provider[..], &model].concat()), "done");
    // Each result names the call before it, and no other call has its id.
    for request in server.requests() {
        let messages = request.body["messages"].as_array().unwrap();
        let called = messages
            .iter()
            .flat_map(|message| message["tool_calls"].as_array());
        let called: Vec<String> = called.flatten().map(|call| text_of(call, "id")).collect();
        let results: Vec<String> = request
            .results()
            .into_iter()
            .map(|result| result.id)
            .collect();
        assert_eq!(called, results);
        let mut unique = results.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), results.len(), "{results:?}");
    }
    assert_eq!(server.requests()[5].results().len(), 3);
}
