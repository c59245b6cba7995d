//! Interactive programs and executables as environments, through `serve`.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::needs;
use crate::support::project::Project;
use crate::support::running::until;
use crate::support::serve_client::{Gate, Request, Serving, command};

/// A program that answers a line with a line.
const ECHOES: &str = r#"
import os, sys
open('starts', 'a').write('started\n')
count = 0
print('welcome')
while True:
    try:
        line = input('echo> ')
        count += 1
        word, _, rest = line.partition(' ')
        if word == 'quit': print('bye'); break
        if word == 'crash': os.kill(os.getpid(), 9)
        if word == 'wait': open(rest).read()
        if word == 'rows': rest = str(os.get_terminal_size(0).lines)
        print(f'{word} [{rest.upper()}] {count}')
    except KeyboardInterrupt:
        print('stopped')
    except EOFError:
        break
"#;

const YAML: &str = "command: python3 -u 'echoes.py'\nprompt: 'echo> '\ndescription: An echo\n";
const CLASS: &str = "from orchestrator.interactive import InteractiveEnvironment
class EchoEnvironment(InteractiveEnvironment):
    command = \"python3 -u 'echoes.py'\"
    prompt = 'echo> '
    description = 'An echo'
";

/// Runs a test with the program described in a file, and with a class around it.
fn both(test: impl Fn(&Project, &mut Serving)) {
    for (file, text) in [("env/echo.yaml", YAML), ("env/echo.py", CLASS)] {
        let project = Project::new().file("echoes.py", ECHOES).file(file, text);
        let mut serving = Serving::start(&project);
        test(&project, &mut serving);
        serving.end().exits(0);
        project.nothing_left();
    }
}

/// Puts an executable into a project.
fn executable(project: Project, name: &str, text: &str) -> Project {
    let path = format!("env/{name}");
    let project = project.file(&path, text);
    fs::set_permissions(project.path(&path), PermissionsExt::from_mode(0o755)).unwrap();
    project
}

#[test]
fn a_program_is_started_at_its_first_command_and_stays() {
    both(|project, serving| {
        let before = serving.python("1");
        assert_eq!(before.screen("echo"), "An echo");
        assert!(!project.exists("starts"));
        let first = serving.ask("echo", "say hello");
        assert_eq!(
            (first.shows(), first.screen("echo")),
            ("say [HELLO] 1\n", "An echo\nStatus: Running")
        );
        assert_eq!(
            serving.ask("echo", "say grüße 世界").shows(),
            "say [GRÜSSE 世界] 2\n"
        );
        assert_eq!(
            serving.ask("echo", "a b\nc d\ne").shows(),
            "a [B] 3\nc [D] 4\ne [] 5\n"
        );
        assert_eq!(serving.ask("echo", "rows").shows(), "rows [32767] 6\n");
        let long = "w".repeat(20_000);
        assert_eq!(
            serving.ask("echo", &format!("say {long}")).shows(),
            format!("say [{}] 7\n", long.to_uppercase())
        );
        assert_eq!(project.read("starts"), "started\n");
    });
}

#[test]
fn a_program_that_ended_is_started_again() {
    both(|project, serving| {
        serving.ask("echo", "say x");
        let ended = serving.ask("echo", "quit");
        assert!(
            ended.shows().starts_with("bye\n") && ended.output().contains("ended"),
            "{}",
            ended.output()
        );
        assert_eq!(ended.screen("echo"), "An echo\nStatus: Stopped");
        assert_eq!(serving.ask("echo", "say x").shows(), "say [X] 1\n");
        let crashed = serving.ask("echo", "crash");
        assert!(crashed.fails().contains("signal 9"), "{}", crashed.output());
        assert_eq!(serving.ask("echo", "say x").shows(), "say [X] 1\n");
        assert_eq!(project.read("starts").lines().count(), 3);
    });
}

#[test]
fn a_program_that_takes_long_is_interrupted_or_restarted() {
    both(|project, serving| {
        let gate = Gate::new(project, "gate");
        assert!(
            serving
                .request(&command("echo", "wait gate").timeout(0.0))
                .is_running()
        );
        let _gate = gate.reached();
        assert!(serving.ask("echo", "say x").is_running());
        let stopped = serving.control("echo", "interrupt");
        assert!(
            stopped.shows().ends_with("stopped\n"),
            "{}",
            stopped.output()
        );
        assert_eq!(serving.ask("echo", "say x").shows(), "say [X] 2\n");
        let other = Gate::new(project, "other");
        assert!(
            serving
                .request(&command("echo", "wait other").timeout(0.0))
                .is_running()
        );
        let _other = other.reached();
        assert!(serving.control("echo", "restart").is_success());
        assert_eq!(serving.ask("echo", "say x").shows(), "say [X] 1\n");
    });
}

#[test]
fn a_program_that_cannot_start_says_why() {
    let project = Project::new()
        .file(
            "env/missing.yaml",
            "command: no-such-program --flag\nprompt: x\n",
        )
        .file("env/quotes.yaml", "command: \"echo 'open\"\nprompt: x\n")
        .file("env/ends.yaml", "command: echo some words\nprompt: never\n")
        .file("env/wrong.yaml", "command: echo\nprompt: '('\n")
        .file("env/more.yaml", "command: echo\nprompt: x\ncolour: red\n")
        .file("env/none.yaml", "just text\n");
    let mut serving = Serving::start(&project);
    let missing = serving.ask("missing", "x");
    assert!(
        missing
            .fails()
            .starts_with("Failed to start no-such-program --flag: "),
        "{}",
        missing.output()
    );
    assert_eq!(missing.screen("missing"), "Interactive program");
    assert!(
        serving
            .ask("quotes", "x")
            .fails()
            .contains("Failed to start")
    );
    assert!(serving.ask("ends", "x").fails().contains("some words"));
    for name in ["wrong", "more", "none"] {
        assert!(
            serving
                .ask(name, "x")
                .fails()
                .contains("Unknown environment")
        );
        serving.until_stderr_has(&format!("Failed to load environment '{name}'"));
    }
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_database_is_an_environment_in_two_lines() {
    if !needs::program("sqlite3") {
        return;
    }
    let project = Project::new().file(
        "env/db.yaml",
        "command: sqlite3 data.db\nprompt: '(sqlite|   \\.\\.\\.)> $'\n",
    );
    let mut serving = Serving::start(&project);
    assert_eq!(
        serving
            .ask("db", "create table t (n);\ninsert into t values (41), (1);")
            .shows(),
        ""
    );
    assert_eq!(
        serving.ask("db", "select\n  sum(n)\nfrom t;").shows(),
        "42\n"
    );
    let wrong = serving.ask("db", "select * from nowhere;");
    assert!(
        wrong.shows().contains("no such table"),
        "{}",
        wrong.output()
    );
    assert!(serving.ask("db", ".quit").output().contains("ended"));
    assert_eq!(serving.ask("db", "select count(*) from t;").shows(), "2\n");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_debugger_is_an_environment_in_two_lines() {
    if !needs::program("gdb") {
        return;
    }
    let project = Project::new().file(
        "env/debugger.yaml",
        "command: gdb -q -nx\nprompt: '\\(gdb\\) $'\n",
    );
    let mut serving = Serving::start(&project);
    assert_eq!(serving.ask("debugger", "print 6*7").shows(), "$1 = 42\n");
    assert_eq!(serving.ask("debugger", "print $1 + 1").shows(), "$2 = 43\n");
    assert!(
        serving
            .ask("debugger", "frame")
            .shows()
            .contains("No stack")
    );
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_python_prompt_is_an_environment_in_two_lines() {
    let project = Project::new().file(
        "env/prompt.yaml",
        "command: python3 -q -i\nprompt: '(>>>|\\.\\.\\.) $'\n",
    );
    let gate = Gate::new(&project, "gate");
    let mut serving = Serving::start(&project);
    assert!(
        serving
            .ask("prompt", "for i in range(2):\n    print(i)\n")
            .shows()
            .contains("0\n1\n")
    );
    assert!(
        serving
            .request(&command("prompt", "x = open('gate').read()").timeout(0.0))
            .is_running()
    );
    let _gate = gate.reached();
    let stopped = serving.control("prompt", "interrupt");
    assert!(
        stopped.shows().contains("KeyboardInterrupt"),
        "{}",
        stopped.output()
    );
    assert!(serving.ask("prompt", "6*7").shows().contains("42"));
    serving.end().exits(0);
    project.nothing_left();
}

/// An executable that implements the line protocol.
const SPEAKS: &str = r#"#!/usr/bin/env python3
import json, os, sys
count = 0
for line in sys.stdin:
    message = json.loads(line)
    if message['type'] == 'shutdown':
        open('told-to-end', 'w').close()
        break
    if message['type'] == 'screen':
        answer = {'content': f'count {count}', 'max_lines': 7}
    else:
        count += 1
        word = message['command']
        answer = {'output': f'[{word}] {count}', 'success': word != 'no'}
        if word == 'die': os._exit(3)
        if word == 'babble': print('no json')
        if word == 'half': answer = {'output': 'half'}
        if word == 'where': answer['output'] = os.getcwd()
        if word == 'gate':
            try:
                open('gate').read()
            except KeyboardInterrupt:
                answer = {'output': 'stopped', 'success': False}
    print(json.dumps(answer), flush=True)
"#;

#[test]
fn an_executable_can_implement_the_line_protocol() {
    let project = executable(Project::new(), "talk", SPEAKS);
    let gate = Gate::new(&project, "gate");
    let mut serving = Serving::start(&project);
    let first = serving.ask("talk", "a\n\"é\"");
    assert_eq!(
        (first.shows(), first.screen("talk"), first.max_lines("talk")),
        ("[a\n\"é\"] 1", "count 1", 7)
    );
    assert_eq!(serving.ask("talk", "no").fails(), "[no] 2");
    assert_eq!(
        serving.ask("talk", "where").shows(),
        project.root().canonicalize().unwrap().display().to_string()
    );
    assert!(
        serving
            .request(&command("talk", "gate").timeout(0.0))
            .is_running()
    );
    let _gate = gate.reached();
    assert_eq!(serving.control("talk", "interrupt").fails(), "stopped");
    assert_eq!(serving.ask("talk", "x").shows(), "[x] 5");
    serving.end().exits(0);
    assert!(project.exists("told-to-end"));
    project.nothing_left();
}

#[test]
fn an_executable_that_dies_or_sends_garbage_is_reported_and_restarted() {
    let project = executable(Project::new(), "talk", SPEAKS);
    let mut serving = Serving::start(&project);
    for (word, why) in [
        ("die", "exit status 3"),
        ("babble", "no json"),
        ("half", "expected output and success"),
    ] {
        serving.ask("talk", "x").shows();
        let failed = serving.ask("talk", word);
        assert!(failed.fails().contains(why), "{word}: {}", failed.output());
        assert_eq!(serving.control("talk", "restart").screen("talk"), "count 0");
    }
    assert!(
        serving
            .ask("talk", "die")
            .screen("talk")
            .contains("(ended: exit status 3)")
    );
    assert_eq!(serving.ask("talk", "x").shows(), "[x] 1");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn executables_without_the_protocol_are_skipped() {
    let mut project = Project::new();
    let texts = [
        ("quits", "#!/bin/sh\nexit 1\n"),
        ("babbles", "#!/bin/sh\nwhile echo not json; do :; done\n"),
        ("echoes", "#!/bin/sh\nexec cat\n"),
        ("lost", "#!/no/such/interpreter\n"),
        ("flood", "#!/bin/sh\nexec tr '\\0' x < /dev/zero\n"),
    ];
    for (name, text) in texts {
        project = executable(project, name, text);
    }
    let mut serving = Serving::start(&project);
    assert_eq!(serving.python("1").shows(), "1\n");
    for (name, _) in texts {
        assert!(!serving.ask(name, "x").fails().is_empty(), "{name}");
        assert_eq!(serving.python("1").shows(), "1\n");
    }
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_silent_executable_runs_until_it_is_ended() {
    let project = executable(
        Project::new(),
        "silent",
        "#!/bin/sh\nwhile read -r line; do echo \"$line\" >&2; done\n",
    );
    let mut serving = Serving::start(&project);
    assert!(
        serving
            .request(&command("silent", "x").timeout(0.0))
            .is_running()
    );
    serving.until_stderr_has("[silent] {\"type\":\"command\",\"command\":\"x\"}");
    assert!(!serving.control("silent", "interrupt").is_running());
    assert!(
        serving
            .request(&command("silent", "y").timeout(0.0))
            .is_running()
    );
    assert!(serving.control("silent", "restart").is_success());
    until("its screen is late", || {
        serving.python("1").screen("silent").contains("late")
    });
    serving.end().exits(0);
    project.nothing_left();
}
