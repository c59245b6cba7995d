//! The console of a workflow: every line names its agent; at a terminal live lines, questions, Ctrl+C, and nothing of
//! them left behind.

use std::fs;

use expectrl::ControlCode;
use rustix::process::Signal;

use crate::support::project::{BINARY, Project};
use crate::support::reply::{self, bash};
use crate::support::running::until;
use crate::support::server::Server;
use crate::support::terminal::{Terminal, last_line};
use crate::support::workflow::{Answers, FLOW, FLOW_JSON, workflow};

/// Terminal escape sequences and other characters that must not reach a terminal.
const HOSTILE: &str = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\u{202e}evil";

/// Starts `flow/` at a terminal.
fn at_terminal(project: &Project, options: &[&str]) -> Terminal {
    Terminal::start(project.command(BINARY, &[FLOW, options].concat()))
}

/// The project at a terminal that has colours and can erase.
fn capable(project: Project) -> Project {
    project.env("TERM", "xterm-256color")
}

/// Lets the script that waits at a gate go on.
fn open_gate(project: &Project, name: &str) {
    let gate = project.path("workspace").join(name);
    until("the script waits", || gate.exists());
    fs::write(gate, "\n").unwrap();
}

/// Asserts that each line of standard error begins with an agent's name; returns the names.
fn named_lines(stderr: &str) -> Vec<String> {
    let name = |line: &str| {
        let named = line.strip_prefix('[').and_then(|rest| rest.split_once(']'));
        let (name, _) = named.unwrap_or_else(|| panic!("not named: {line:?} in\n{stderr}"));
        name.to_owned()
    };
    let mut names: Vec<String> = stderr.lines().map(name).collect();
    names.sort();
    names.dedup();
    names
}

#[test]
fn every_line_names_its_agent() {
    let policy = "---\nallowed_transitions: [{tag: fork}, {tag: result}]\ncolour: blue\n---\n";
    let server = Answers::new()
        .on(
            "Begin",
            [
                bash("printf 'a\\nb\\n'"),
                reply::text("I forgot.\nTwice."),
                reply::text(
                    "<print>\nhello\n\nthere\n</print><fork join=\"J\">W</fork><fork>BAD</fork>",
                ),
            ],
        )
        .on(
            "Work",
            [reply::status(529), reply::text("<result>one\ntwo</result>")],
        )
        .start();
    let project = workflow(&[
        ("START.md", &format!("{policy}Begin.")),
        ("W.md", "Work."),
        (
            "BAD.sh",
            "echo '<print>x\ny</print>'; printf 'e1\\n\\ne2\\n' >&2; exit 1",
        ),
        ("J.sh", "echo '<result></result>'"),
    ])
    .model(&server);
    let ran = project.run(FLOW).exits(1);
    assert_eq!(
        named_lines(&ran.stderr),
        ["main", "main_bad2", "main_w1", "run"]
    );
    for line in [
        "[main] state START (markdown)\n",
        "[main] hello\n[main]\n[main] there\n",
        "[main] START -> J (fork, 2 workers to wait for: main_w1, main_bad2)\n",
        "[main_w1] ends: one ...\n",
        "[main_bad2] x\n[main_bad2] y\n",
        "[main_bad2] failed: BAD.sh: exit code 1: e2\n",
    ] {
        assert!(ran.stderr.contains(line), "no {line:?} in\n{}", ran.stderr);
    }
    assert!(
        ran.stderr.contains("[main] reminds the model: "),
        "{}",
        ran.stderr
    );
    assert_eq!(ran.stdout, "");
    // So do the lines of every other end.
    named_lines(&project.run(FLOW).exits(1).stderr);
    named_lines(
        &project
            .run(&[FLOW, &["--input", "x"]].concat())
            .exits(64)
            .stderr,
    );
    named_lines(
        &project
            .run(&[FLOW, &["--answer", "x"]].concat())
            .exits(64)
            .stderr,
    );
    fs::remove_file(project.path(&project.log_path())).unwrap();
    named_lines(&project.run(FLOW).exits(3).stderr);
    project.write("state.json", "{");
    named_lines(&project.run(FLOW).exits(3).stderr);
    project.nothing_left();
}

#[test]
fn lines_of_a_pause_an_interrupt_and_a_second_success_are_named() {
    let project = workflow(&[
        ("START.sh", "echo '<ask next=\"B\">Which?\nSay it.</ask>'"),
        (
            "B.sh",
            "mkfifo gate; read line < gate; rm gate; echo '<result>x</result>'",
        ),
    ]);
    let ran = project.run(FLOW).exits(4);
    assert_eq!(named_lines(&ran.stderr), ["main", "run"]);
    assert!(
        ran.stderr.contains("[main] asks: Which?\n[main] Say it.\n"),
        "{}",
        ran.stderr
    );
    assert!(
        ran.stderr
            .contains("[run] next: orchestrator run --workflow flow --answer TEXT\n"),
        "{}",
        ran.stderr
    );
    let running = project.start(&[FLOW, &["--answer", "that"]].concat());
    until("the script waits", || project.exists("workspace/gate"));
    running.signal(Signal::INT);
    let ran = running.wait().exits(130);
    assert_eq!(named_lines(&ran.stderr), ["main", "run"]);
    assert!(
        ran.stderr.contains("[main] is answered: that\n"),
        "{}",
        ran.stderr
    );
    fs::remove_file(project.path("workspace/gate")).unwrap();
    let running = project.start(FLOW);
    open_gate(&project, "gate");
    named_lines(&running.wait().exits(0).stderr);
    let ran = project.run(FLOW).exits(0);
    assert_eq!(
        (named_lines(&ran.stderr), ran.stdout.as_str()),
        (vec!["run".into()], "x\n")
    );
}

#[test]
fn a_workflow_that_is_refused_is_shown_with_named_lines() {
    let project = workflow(&[("START.md", "---\nmodel: [\n---\nx"), ("B.md", "")]);
    for command in [FLOW, &["run", "--workflow", "nowhere"]] {
        let ran = project.run(command).exits(65);
        assert_eq!(named_lines(&ran.stderr), ["run"], "{}", ran.stderr);
    }
}

#[test]
fn quiet_shows_what_went_wrong_and_questions_alone() {
    let project = workflow(&[
        (
            "START.sh",
            "echo '<print>shown</print><fork next=\"ASK\">BAD</fork>'",
        ),
        ("ASK.sh", "echo '<ask next=\"END\">Which?</ask>'"),
        ("BAD.sh", "exit 1"),
        ("END.sh", "echo '<result>done</result>'"),
    ]);
    let ran = project.run(&[FLOW, &["--quiet"]].concat()).exits(1);
    assert!(
        ran.stderr
            .contains("[main_bad1] failed: BAD.sh: exit code 1"),
        "{}",
        ran.stderr
    );
    assert!(ran.stderr.contains("Which?"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("state START"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("sandbox: full"), "{}", ran.stderr);
    let project = workflow(&[("START.sh", "echo '<result>done</result>'")]);
    let ran = project.run(&[FLOW, &["--quiet"]].concat()).exits(0);
    assert_eq!((ran.stdout.as_str(), ran.stderr.as_str()), ("done\n", ""));
}

#[test]
fn prints_of_a_model_are_shown_while_it_answers_and_once() {
    // The first stream breaks off after the print, the second one waits after it.
    let print = "<print>I am at it now.</print>";
    let answer = || {
        reply::text(&format!(
            "{print} And some more words. <result>done</result>"
        ))
    };
    let server = Server::start([answer().cut_after(7), answer().stall_after(7)]);
    let project = workflow(&[("START.md", "One.")]).model(&server);
    let mut running = project.start(FLOW);
    running.until_stderr_has("[main] I am at it now.\n");
    server.wait_for(2);
    assert_eq!(project.state_text("state"), "RUNNING");
    server.release();
    let ran = running.wait().exits(0);
    assert_eq!(
        ran.stderr.matches("I am at it now.").count(),
        1,
        "{}",
        ran.stderr
    );
    assert_eq!(project.events("Print").len(), 1);
}

#[test]
fn debug_files_are_numbered_by_the_steps_of_their_agent() {
    let start = "---\nallowed_transitions: [{tag: goto, target: S}, {tag: result}]\n---\nOne.";
    let server = Server::start([
        reply::text("I forgot."),
        reply::text("<goto>S</goto>"),
        reply::text("<result>done</result>"),
    ]);
    let project = workflow(&[
        ("START.md", start),
        (
            "S.sh",
            "echo out; echo err >&2; echo '<fork next=\"B\">W</fork>'",
        ),
        ("W.sh", "exit 1"),
        ("B.md", "Two."),
    ])
    .model(&server);
    project.fail(&["--debug"]);
    let folder = format!("logs/{}", project.state_text("run_id"));
    for file in [
        "main_START_001.prompt.md",
        "main_START_001.jsonl",
        "main_START_002.prompt.md",
        "main_START_002.jsonl",
        "main_S_003.stdout.txt",
        "main_S_003.stderr.txt",
        "main_S_003.meta.json",
        "main_B_004.prompt.md",
        "main_w1_W_001.meta.json",
        "transitions.log",
    ] {
        assert!(project.exists(&format!("{folder}/{file}")), "{file}");
    }
    assert_eq!(
        project.read(&format!("{folder}/main_S_003.stderr.txt")),
        "err\n"
    );
    let transitions = project.read(&format!("{folder}/transitions.log"));
    assert!(
        transitions.contains(" [main] START.md -> S.sh (goto)\n"),
        "{transitions}"
    );
    let errors = fs::read_dir(project.path(&format!("{folder}/errors"))).unwrap();
    assert!(errors.count() > 0);
}

#[test]
fn hostile_text_never_reaches_the_console() {
    let server = Server::start([
        reply::text(&format!("<print>{HOSTILE}</print><goto>B</goto>")),
        reply::error(400, "odd", HOSTILE),
    ]);
    let project = workflow(&[("START.md", "One."), ("B.md", "Two.")]).model(&server);
    let ran = project.run(FLOW).exits(1);
    assert!(ran.stderr.contains("evil"), "{}", ran.stderr);
    for raw in ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'] {
        assert!(!ran.stderr.contains(raw), "{raw:?} in {:?}", ran.stderr);
    }
}

#[test]
fn each_agent_in_a_state_has_a_live_line() {
    let server = Server::answering(|_| reply::text("<result>w</result>").held());
    let project = capable(workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\">W</fork><fork>S</fork>'",
        ),
        ("W.md", "Work."),
        (
            "S.sh",
            "mkfifo gate; read line < gate; echo '<result>s</result>'",
        ),
        ("END.sh", "echo '<result>joined</result>'"),
    ]))
    .model(&server);
    let mut terminal = at_terminal(&project, &[]);
    terminal.until(r"\[main_s2\] S, \d+ s, running the script[^\r\n]*\r?\n\[main_w1\] W, waiting for the first token, \d+ s");
    // They are drawn again as time passes, two lines up.
    terminal.until(r"\r\x1b\[1A\x1b\[J\[main_s2\] S, [1-9]\d* s");
    server.wait_for(1);
    server.release();
    terminal.until(r"\[main_w1\] ends: w");
    open_gate(&project, "gate");
    let (code, seen) = terminal.wait();
    assert_eq!(code, 0, "{seen:?}");
    assert!(seen.ends_with("joined\r\n"), "{seen:?}");
    // What is left are whole lines: the area was erased before the last of them.
    let end = seen.rfind("succeeded after").unwrap();
    assert!(!seen[end..].contains("running the script"), "{seen:?}");
    assert!(seen[end..].contains("all agents have ended"), "{seen:?}");
    project.nothing_left();
}

#[test]
fn after_ctrl_z_and_fg_the_area_leaves_the_lines_of_the_shell() {
    let project = capable(workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\">A</fork><fork>B</fork>'",
        ),
        ("A.sh", "mkfifo a; read line < a; echo '<result>a</result>'"),
        ("B.sh", "mkfifo b; read line < b; echo '<result>b</result>'"),
        ("END.sh", "echo '<result>joined</result>'"),
    ]));
    let shell = ["--norc", "--noprofile", "--noediting", "-i"];
    let mut terminal = Terminal::start(project.command("bash", &shell));
    terminal.send_line(&format!("{BINARY} {}", FLOW.join(" ")));
    terminal.until(r"\[main_b2\] B, [1-9]\d* s, running the script");
    terminal.send(ControlCode::Substitute);
    terminal.until("Stopped");
    terminal.send_line("echo shell-$((1 + 1))");
    terminal.until("shell-2");
    terminal.send_line("fg");
    // The second draw erases the first one, and nothing else.
    for _ in 0..2 {
        terminal.until(r"\[main_a1\] A, \d+ s, running the script\r?\n\[main_b2\] B, \d+ s, running the script");
    }
    let rows = terminal.rows();
    let at = rows.iter().position(|row| row.ends_with("shell-2"));
    let after = at.map(|at| &rows[at + 1..]).unwrap_or_default();
    assert!(
        matches!(after, [fg, a, b] if fg.ends_with("run --workflow flow")
            && a.starts_with("[main_a1] A") && b.starts_with("[main_b2] B")),
        "{rows:#?}"
    );
    for gate in ["a", "b"] {
        open_gate(&project, gate);
    }
    terminal.until("joined");
    terminal.send_line("exit");
    assert_eq!(terminal.wait().0, 0);
    project.nothing_left();
}

#[test]
fn a_question_is_asked_and_answered_at_the_terminal() {
    let project = capable(workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\">ASK</fork><fork>S</fork>'",
        ),
        (
            "ASK.sh",
            "echo '<ask next=\"B\">Which colour?\nSay one.</ask>'",
        ),
        (
            "B.sh",
            "echo \"<result>painted $ORCHESTRATOR_INPUT</result>\"",
        ),
        (
            "S.sh",
            "mkfifo gate; read line < gate; echo '<print>meanwhile</print>'; touch printed; \
             mkfifo gate2; read line < gate2; echo '<result></result>'",
        ),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]));
    let mut terminal = at_terminal(&project, &[]);
    terminal.until(r#"\[main_ask1\] answer to "Which colour\?"> "#);
    // The other agent goes on; the terminal belongs to the question.
    open_gate(&project, "gate");
    until("the other agent goes on", || {
        project.exists("workspace/gate2")
    });
    terminal.send_line("deep blue");
    let answered = terminal.until(r"\[main_ask1\] is answered: deep blue");
    assert!(answered.contains("[main_s2] meanwhile\r\n"), "{answered:?}");
    open_gate(&project, "gate2");
    let (code, seen) = terminal.wait();
    assert_eq!(code, 0, "{seen:?}");
    assert!(
        seen.ends_with("{\"main_ask1\":\"painted deep blue\",\"main_s2\":\"\"}\r\n"),
        "{seen:?}"
    );
    assert_eq!(project.events("AgentAnswered")[0]["text"], "deep blue");
    project.nothing_left();
}

#[test]
fn questions_are_asked_one_after_the_other() {
    let project = capable(workflow(&[
        (
            "START.sh",
            "echo '<fork join=\"END\" n=\"1\">ASK</fork><fork n=\"2\">ASK</fork>'",
        ),
        (
            "ASK.sh",
            "echo \"<ask next='B'>Number $ORCHESTRATOR_VAR_N?</ask>\"",
        ),
        ("B.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
        ("END.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ]));
    let mut terminal = at_terminal(&project, &[]);
    for _ in 0..2 {
        let asked = terminal.until(r#"\[main_ask(1|2)\] answer to "Number .\?"> $"#);
        let number = match asked.rfind("[main_ask1] answer to ") {
            Some(_) => "one",
            None => "two",
        };
        terminal.send_line(number);
    }
    let (code, seen) = terminal.wait();
    assert_eq!(code, 0, "{seen:?}");
    assert!(
        seen.ends_with("{\"main_ask1\":\"one\",\"main_ask2\":\"two\"}\r\n"),
        "{seen:?}"
    );
}

#[test]
fn without_an_answer_the_question_stays_open() {
    let states = [
        ("START.sh", "echo '<ask next=\"B\">Which colour?</ask>'"),
        ("B.sh", "echo \"<result>$ORCHESTRATOR_INPUT</result>\""),
    ];
    // The end of the input.
    let project = capable(workflow(&states));
    let mut terminal = at_terminal(&project, &[]);
    terminal.until("answer to \"Which colour\\?\"> ");
    terminal.send(ControlCode::EndOfTransmission);
    let (code, seen) = terminal.wait();
    assert_eq!(code, 4, "{seen:?}");
    assert!(seen.contains("--answer TEXT"), "{seen:?}");
    assert_eq!(project.agents(), ["main asking"]);
    // Ctrl+C at the question.
    let mut terminal = at_terminal(&project, &[]);
    terminal.until(r"\[main\] Which colour\?\r\n\[main\] answer> ");
    terminal.send(ControlCode::EndOfText);
    let (code, seen) = terminal.wait();
    assert_eq!(code, 130, "{seen:?}");
    assert_eq!(project.agents(), ["main asking"]);
    // Where output is for programs, it is not asked there.
    for option in ["--quiet", "--json"] {
        let (code, seen) = at_terminal(&project, &[option]).wait();
        assert_eq!(code, 4, "{option}: {seen:?}");
        assert!(!seen.contains("> "), "{option}: {seen:?}");
    }
    assert_eq!(project.succeed(&["--answer", "red"]), "red");
    project.nothing_left();
}

#[test]
fn ctrl_c_ends_everything_and_leaves_whole_lines() {
    let server = Server::answering(|_| reply::text("<result>w</result>").held());
    let project = capable(workflow(&[
        ("START.sh", "echo '<fork next=\"S\">W</fork>'"),
        ("W.md", "Work."),
    ]))
    .model(&server);
    let script = format!(
        "trap '' INT; mkfifo gate; sleep {}; echo '<result></result>'",
        project.marker()
    );
    project.write("flow/S.sh", script);
    let mut terminal = at_terminal(&project, &[]);
    server.wait_for(1);
    until("the script waits", || project.exists("workspace/gate"));
    terminal.until(r"\[main\] S, \d+ s");
    terminal.send(ControlCode::EndOfText);
    let (code, seen) = terminal.wait();
    assert_eq!(code, 130, "{seen:?}");
    assert_eq!(last_line(&seen), "", "{seen:?}");
    assert!(seen.contains("interrupted"), "{seen:?}");
    assert!(
        seen.contains("[run] next: orchestrator run --workflow flow"),
        "{seen:?}"
    );
    assert_eq!(project.agents(), ["main running", "main_w1 running"]);
    project.nothing_left();
}

#[test]
fn a_terminal_gets_the_payload_without_control_characters() {
    let script = "printf 'a\\tb \\033[31mred\\033[0m\\007\\n end' > $ORCHESTRATOR_OUTPUT_FILE; echo '<result></result>'";
    let project = workflow(&[("START.sh", script)]).env("TERM", "dumb");
    let (code, seen) = at_terminal(&project, &[]).wait();
    assert_eq!(code, 0, "{seen:?}");
    assert!(
        !seen.contains('\u{1b}') && !seen.contains('\u{7}'),
        "{seen:?}"
    );
    assert!(seen.ends_with("red\r\n end\r\n"), "{seen:?}");
    assert_eq!(
        project.run(FLOW_JSON).exits(0).result()["result"],
        "a\tb \u{1b}[31mred\u{1b}[0m\u{7}\n end"
    );
}

#[test]
fn many_agents_are_counted_below_the_first_eight() {
    let forks: String = (1..=12).map(|_| "<fork join='END'>S</fork>").collect();
    let project = capable(workflow(&[
        ("START.sh", &format!("echo \"{forks}\"")),
        (
            "S.sh",
            "gate=gate-$ORCHESTRATOR_AGENT_ID; mkfifo $gate; read line < $gate; echo '<result></result>'",
        ),
        ("END.sh", "echo '<result></result>'"),
    ]));
    let mut terminal = at_terminal(&project, &["--jobs", "12"]);
    terminal.until("and 4 more agents");
    for number in 1..=12 {
        open_gate(&project, &format!("gate-main_s{number}"));
    }
    let (code, seen) = terminal.wait();
    assert_eq!(code, 0, "{seen:?}");
    assert_eq!(last_line(&seen), "", "{seen:?}");
}
