//! User environments through `serve`: Python classes, `program` files, executables with the line protocol.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::support::project::{Project, processes};
use crate::support::running::until;
use crate::support::serve_client::{Gate, Request, Serving, command, control};

const TYPES: &str = "from orchestrator.types import CommandResponse, CommandText, ScreenSection\n";

/// A module with this text before the class and these bodies of its two methods.
fn module(before: &str, handle: &str, screen: &str) -> String {
    let body = |text: &str| {
        text.lines()
            .map(|line| format!("        {line}\n"))
            .collect::<String>()
    };
    format!(
        "{TYPES}{before}\nclass Own:\n    def handle_command(self, cmd: CommandText) -> CommandResponse:\n{}    def \
         get_screen(self) -> ScreenSection:\n{}",
        body(handle),
        body(screen)
    )
}

/// A module that answers with the value of an expression.
fn answers(expression: &str) -> String {
    module(
        "",
        &format!("return CommandResponse({expression}, True)"),
        "return ScreenSection('a screen')",
    )
}

fn serve(files: &[(&str, &str)]) -> (Project, Serving) {
    let project = files.iter().fold(Project::new(), |project, (name, text)| {
        project.file(&format!("env/{name}"), text)
    });
    for (name, text) in files {
        if text.starts_with("#!") {
            fs::set_permissions(
                project.path(&format!("env/{name}")),
                PermissionsExt::from_mode(0o755),
            )
            .unwrap();
        }
    }
    let serving = Serving::start(&project);
    (project, serving)
}

/// Asserts that an environment is not offered, and that stderr says why.
fn absent(serving: &mut Serving, name: &str, why: &[&str]) {
    let answer = serving.ask(name, "x");
    assert!(
        answer
            .fails()
            .starts_with(&format!("Unknown environment: {name}\n")),
        "{}",
        answer.output()
    );
    assert!(!answer.sections().contains(&name));
    for text in why {
        serving.until_stderr_has(text);
    }
}

#[test]
fn a_class_answers_keeps_state_and_has_a_screen() {
    let counter = module(
        "",
        "self.count = getattr(self, 'count', 0) + 1\nreturn CommandResponse(f'{cmd.value!r} {self.count}', self.count != 2)",
        "return ScreenSection(f'count {getattr(self, \"count\", 0)}', max_lines=7)",
    );
    let (_project, mut serving) = serve(&[("one.py", &counter), ("two.py", &counter)]);
    let first = serving.ask("one", "a\nb");
    assert_eq!(first.shows(), "'a\\nb' 1");
    assert_eq!(
        (
            first.screen("one"),
            first.max_lines("one"),
            first.screen("two")
        ),
        ("count 1", 7, "count 0")
    );
    assert_eq!(serving.ask("one", "é").fails(), "'é' 2");
    assert_eq!(serving.ask("two", "").shows(), "'' 1");
    assert_eq!(
        serving.ask("nobody", "").fails(),
        "Unknown environment: nobody\nAvailable: bash, editor, one, python, two"
    );
    serving.until_stderr_has("Loaded ad-hoc environment: one");
    serving.until_stderr_has("Loaded ad-hoc environment: two");
    serving.end().exits(0);
}

#[test]
fn a_class_that_breaks_the_contract_is_refused_with_the_reason() {
    let class = |handle: &str, screen: &str, more: &str| {
        format!(
            "{TYPES}class Own:\n    def handle_command{handle}: ...\n    def get_screen{screen}: ...\n{more}"
        )
    };
    let (handle, screen) = (
        "(self, cmd: CommandText) -> CommandResponse",
        "(self) -> ScreenSection",
    );
    let untyped = class("(self, cmd) -> CommandResponse", screen, "");
    let silent = class("(self, cmd: CommandText)", "(self)", "");
    let count = class(
        "(self) -> CommandResponse",
        "(self, more) -> ScreenSection",
        "",
    );
    let wrong = class("(self, cmd: str) -> str", "(self) -> str", "");
    let ends = class(handle, screen, "    def shutdown(self, now) -> int: ...\n");
    let (_project, mut serving) = serve(&[
        ("untyped.py", &untyped),
        ("silent.py", &silent),
        ("count.py", &count),
        ("wrong.py", &wrong),
        ("ends.py", &ends),
        (
            "half.py",
            &format!("{TYPES}class Own:\n    def get_screen(self) -> ScreenSection: ...\n"),
        ),
        ("none.py", "x = 1\n"),
        (
            "text.py",
            &format!("from __future__ import annotations\n{}", answers("'fine'")),
        ),
    ]);
    assert_eq!(serving.ask("text", "x").shows(), "fine");
    absent(
        &mut serving,
        "untyped",
        &["'untyped':\n  - handle_command cmd parameter must have type annotation\n"],
    );
    absent(
        &mut serving,
        "silent",
        &[
            "'silent':\n  - handle_command must have return type annotation\n  - get_screen must have return type annotation\n",
        ],
    );
    absent(
        &mut serving,
        "count",
        &[
            "'count':\n  - handle_command must take exactly 2 parameters (self, cmd)\n  - get_screen must take only self parameter\n",
        ],
    );
    absent(
        &mut serving,
        "wrong",
        &[
            "'wrong':\n  - handle_command cmd must be CommandText, got <class 'str'>\n",
            "  - handle_command must return CommandResponse, got <class 'str'>\n",
            "  - get_screen must return ScreenSection, got <class 'str'>\n",
        ],
    );
    absent(
        &mut serving,
        "ends",
        &["'ends':\n  - shutdown must take only self parameter\n  - shutdown must return None\n"],
    );
    absent(
        &mut serving,
        "half",
        &["Failed to load environment 'half':\n  - Missing required method: handle_command\n"],
    );
    absent(
        &mut serving,
        "none",
        &["Failed to load environment 'none': No environment class found\n"],
    );
    serving.end().exits(0);
}

#[test]
fn a_module_that_does_not_load_is_skipped() {
    let (project, mut serving) = serve(&[
        ("raises.py", "raise RuntimeError('at import')\n"),
        ("exits.py", "import sys; sys.exit(4)\n"),
        ("dies.py", "import os; os._exit(5)\n"),
        ("syntax.py", "def (:\n"),
        ("needs.py", "import no_such_module\n"),
        (
            "init.py",
            &answers("''").replace(
                "class Own:\n",
                "class Own:\n    def __init__(self): raise ValueError('in init')\n",
            ),
        ),
        ("fine.py", &answers("'fine'")),
    ]);
    assert_eq!(serving.ask("fine", "x").shows(), "fine");
    absent(
        &mut serving,
        "raises",
        &["Error loading environment 'raises': at import\nTraceback"],
    );
    absent(
        &mut serving,
        "exits",
        &["Error loading environment 'exits': 4\n"],
    );
    absent(
        &mut serving,
        "dies",
        &["Failed to load environment 'dies'", "exit status 5"],
    );
    absent(
        &mut serving,
        "syntax",
        &["Error loading environment 'syntax': invalid syntax"],
    );
    absent(
        &mut serving,
        "needs",
        &["Error loading environment 'needs': No module named 'no_such_module'\n"],
    );
    absent(
        &mut serving,
        "init",
        &["Error loading environment 'init': in init\n"],
    );
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn other_files_are_ignored_and_built_in_names_are_refused() {
    let (_project, mut serving) = serve(&[
        ("_private.py", &answers("''")),
        ("__init__.py", ""),
        ("notes.txt", ""),
        ("plain", "echo"),
        ("two words.py", &answers("''")),
        ("below/deep.py", &answers("''")),
        ("bash.py", &answers("'not bash'")),
        ("python.yaml", "command: cat\nprompt: x\n"),
        ("editor", "#!/bin/sh\ncat\n"),
        ("same.py", &answers("__name__")),
        ("same.yaml", "command: cat\nprompt: x\n"),
        ("same", "#!/bin/sh\ncat\n"),
    ]);
    let answer = serving.ask("same", "x");
    assert_eq!(
        (answer.shows(), answer.sections()),
        ("env.same", vec!["bash", "editor", "python", "same"])
    );
    assert_eq!(serving.python("1+1").shows(), "2\n");
    for (name, file) in [
        ("bash", "env/bash.py"),
        ("python", "env/python.yaml"),
        ("editor", "env/editor"),
    ] {
        serving.until_stderr_has(&format!("Failed to load environment '{name}'"));
        serving.until_stderr_has(file);
    }
    serving.until_stderr_has("env/same.yaml");
    serving.until_stderr_has("env/same:");
    serving.end().exits(0);
}

#[test]
fn a_class_defined_in_the_module_is_preferred_to_an_imported_one() {
    let base = answers("'base'").replace("class Own", "class Aaa");
    let own = answers("'own'").replace("class Own", "class Zzz");
    let heir = "from env.base import Aaa\nclass Heir(Aaa):\n    pass\n";
    let (_project, mut serving) = serve(&[
        ("base.py", &base),
        (
            "own.py",
            &format!(
                "from env.base import Aaa\nfrom orchestrator.interactive import InteractiveEnvironment\n{own}"
            ),
        ),
        ("heir.py", heir),
        ("lent.py", "from env.base import Aaa\n"),
    ]);
    assert_eq!(serving.ask("own", "x").shows(), "own");
    assert_eq!(serving.ask("heir", "x").shows(), "base");
    assert_eq!(serving.ask("lent", "x").shows(), "base");
    serving.end().exits(0);
}

#[test]
fn prints_of_a_module_go_to_stderr_with_its_name() {
    let loud = module(
        "import os, sys\nprint('at import')\nos.write(1, b'at the descriptor\\n')",
        "print('a line\\nand another', end='')\nos.system('echo a child')\nsys.stderr.write('an error\\n')\n\
         return CommandResponse(repr(sys.stdin.read()), True)",
        "print('asked')\nreturn ScreenSection('s')",
    );
    let (_project, mut serving) = serve(&[("loud.py", &loud)]);
    assert_eq!(serving.ask("loud", "x").shows(), "''");
    for text in [
        "at import",
        "at the descriptor",
        "a line",
        "an error",
        "asked",
    ] {
        serving.until_stderr_has(&format!("[loud] {text}\n"));
    }
    serving.until_stderr_has("a child\n");
    serving.end().exits(0);
}

#[test]
fn an_exception_is_a_result_and_the_environment_survives() {
    let raises = module(
        "",
        "self.count = getattr(self, 'count', 0) + 1\nif cmd.value == 'raise': raise ValueError('on purpose')\n\
         if cmd.value == 'text': return 'text'\nif cmd.value == 'number': return CommandResponse(7, True)\n\
         return CommandResponse(str(self.count), True)",
        "if getattr(self, 'count', 0) == 1: raise ValueError('no screen')\n\
         if getattr(self, 'count', 0) == 2: return 'text'\nreturn ScreenSection('fine')",
    );
    let (_project, mut serving) = serve(&[("raises.py", &raises)]);
    let answer = serving.ask("raises", "raise");
    assert!(
        answer.fails().starts_with("Environment error in raises:\n")
            && answer.output().contains("on purpose")
    );
    assert!(
        answer
            .screen("raises")
            .starts_with("[Error getting screen from raises:"),
        "{}",
        answer.screen("raises")
    );
    let answer = serving.ask("raises", "text");
    assert!(
        answer.fails().contains("CommandResponse"),
        "{}",
        answer.output()
    );
    assert!(
        answer.screen("raises").contains("ScreenSection"),
        "{}",
        answer.screen("raises")
    );
    serving.ask("raises", "number").fails();
    let answer = serving.ask("raises", "x");
    assert_eq!((answer.shows(), answer.screen("raises")), ("4", "fine"));
    serving.end().exits(0);
}

#[test]
fn a_dead_environment_is_reported_and_restarted_by_the_next_command() {
    let mortal = module(
        "import os, sys",
        "if cmd.value == 'die': os._exit(5)\nif cmd.value == 'exit': sys.exit(6)\nif cmd.value == 'kill': os.kill(os.getpid(), 9)\n\
         self.count = getattr(self, 'count', 0) + 1\nreturn CommandResponse(str(self.count), True)",
        "return ScreenSection('alive')",
    );
    let (project, mut serving) = serve(&[("mortal.py", &mortal)]);
    for (word, how) in [
        ("die", "exit status 5"),
        ("exit", "exit status 6"),
        ("kill", "signal 9"),
    ] {
        assert_eq!(serving.ask("mortal", "x").shows(), "1");
        assert_eq!(serving.ask("mortal", "x").shows(), "2");
        let died = serving.ask("mortal", word);
        assert!(died.fails().contains(how), "{word}: {}", died.output());
        assert!(
            died.screen("mortal").contains(&format!("(ended: {how})")),
            "{}",
            died.screen("mortal")
        );
    }
    assert_eq!(
        serving.python("1").screen("mortal"),
        "mortal (ended: signal 9)"
    );
    let back = serving.ask("mortal", "x");
    assert_eq!((back.shows(), back.screen("mortal")), ("1", "alive"));
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_restart_reloads_the_file() {
    let (project, mut serving) = serve(&[
        ("changes.py", &answers("'first'")),
        ("broken.py", "raise ValueError('first')\n"),
    ]);
    assert_eq!(serving.ask("changes", "x").shows(), "first");
    project.write("env/changes.py", answers("'second'"));
    assert_eq!(serving.ask("changes", "x").shows(), "first");
    assert!(serving.control("changes", "restart").is_success());
    assert_eq!(serving.ask("changes", "x").shows(), "second");
    absent(
        &mut serving,
        "broken",
        &["Error loading environment 'broken': first\n"],
    );
    // A failure is reported again; a repaired or new file is offered.
    project.write("env/broken.py", "raise ValueError('again')\n");
    let again = serving.control("broken", "restart");
    assert!(
        again
            .fails()
            .contains("Error loading environment 'broken': again"),
        "{}",
        again.output()
    );
    assert!(!again.sections().contains(&"broken"));
    project.write("env/broken.py", answers("'mended'"));
    project.write("env/fresh.py", answers("'fresh'"));
    for (name, word) in [("broken", "mended"), ("fresh", "fresh")] {
        let restarted = serving.control(name, "restart");
        assert!(restarted.is_success() && restarted.screen(name) == "a screen");
        assert_eq!(serving.ask(name, "x").shows(), word);
    }
    serving.end().exits(0);
}

#[test]
fn a_file_broken_between_commands_is_reported() {
    let (project, mut serving) = serve(&[("changes.py", &answers("'first'"))]);
    assert_eq!(serving.ask("changes", "x").shows(), "first");
    project.write("env/changes.py", "raise ValueError('broken now')\n");
    assert!(
        serving
            .control("changes", "restart")
            .fails()
            .contains("broken now")
    );
    let answer = serving.ask("changes", "x");
    assert!(answer.fails().contains("broken now"), "{}", answer.output());
    fs::remove_file(project.path("env/changes.py")).unwrap();
    assert!(!serving.control("changes", "restart").is_success());
    project.write(
        "env/changes.yaml",
        "command: cat\nprompt: x\ndescription: a program now\n",
    );
    assert_eq!(
        serving.control("changes", "restart").screen("changes"),
        "a program now"
    );
    serving.end().exits(0);
}

#[test]
fn a_slowly_loading_environment_counts_as_running() {
    let project = Project::new();
    let gates = ["slow-gate", "never-gate"].map(|name| Gate::new(&project, name));
    let waits = |gate: &str| {
        module(
            &format!("open('{gate}').read()"),
            "return CommandResponse('ok', True)",
            "return ScreenSection('here')",
        )
    };
    let project = project
        .file("env/slow.py", waits("slow-gate"))
        .file("env/never.py", waits("never-gate"));
    let mut serving = Serving::start(&project);
    let first = serving.python("1");
    assert_eq!(
        (first.shows(), first.screen("slow"), first.screen("never")),
        ("1\n", "[loading]", "[loading]")
    );
    assert!(serving.ask("slow", "x").is_running());
    assert!(
        serving
            .request(&control("slow", "wait").timeout(0.0))
            .is_running()
    );
    let [slow, _never] = gates;
    slow.open();
    assert!(serving.control("slow", "wait").is_success());
    let there = serving.ask("slow", "x");
    assert_eq!(
        (there.shows(), there.screen("slow"), there.screen("never")),
        ("ok", "here", "[loading]")
    );
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn a_signal_does_not_wait_for_a_loading_module() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let project = project.file(
        "env/slow.py",
        "import os\nos.open('gate', os.O_RDONLY)\nopen('gate').read()\n",
    );
    let serving = Serving::start(&project);
    let _open = gate.reached();
    serving.signal(rustix::process::Signal::TERM);
    serving.wait().exits(143);
    project.nothing_left();
}

#[test]
fn a_hanging_screen_shows_its_last_content() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let stuck = module(
        "import os",
        "return CommandResponse('ok', True)",
        "if os.path.exists('hang'): open('gate').read()\nreturn ScreenSection('content')",
    );
    let project = project
        .file("env/stuck.py", stuck)
        .file("env/other.py", answers("''"));
    let mut serving = Serving::start(&project);
    assert_eq!(serving.python("1").screen("stuck"), "content");
    project.write("hang", "");
    let late = serving.python("1");
    assert!(late.screen("stuck").starts_with("content\n") && late.screen("stuck").contains("late"));
    assert_eq!((late.shows(), late.screen("other")), ("1\n", "a screen"));
    assert!(serving.python("2").screen("stuck").contains("late"));
    fs::remove_file(project.path("hang")).unwrap();
    gate.open();
    until("the screen is back", || {
        serving.python("1").screen("stuck") == "content"
    });
    assert_eq!(serving.ask("stuck", "x").shows(), "ok");
    serving.end().exits(0);
}

#[test]
fn a_long_screen_is_cut_to_its_lines() {
    let rows = |limit: &str| {
        module(
            "",
            "return CommandResponse('x' * 30_000_000, True)",
            &format!("return ScreenSection('\\n'.join(f'row {{i}}' for i in range(200)){limit})"),
        )
    };
    let (_project, mut serving) = serve(&[
        ("short.py", &rows(", 7")),
        ("usual.py", &rows("")),
        ("none.py", &rows(", 0")),
    ]);
    let answer = serving.ask("short", "x");
    for (name, limit) in [("short", 7), ("usual", 50), ("none", 0)] {
        let rows: Vec<String> = (0..limit).map(|row| format!("row {row}")).collect();
        assert_eq!(answer.screen(name).lines().collect::<Vec<_>>(), rows);
        assert_eq!(answer.max_lines(name), limit);
    }
    assert!(answer.shows().len() < 10_000_200 && answer.output().contains("20000000"));
    serving.end().exits(0);
}

#[test]
fn at_the_end_shutdown_is_called_and_children_are_ended() {
    let tidy = answers("__import__('subprocess').Popen(['setsid', 'sleep', cmd.value]) and 'ok'")
        + "    def shutdown(self) -> None:\n        open('tidied', 'w').close()\n";
    let hangs = answers("''")
        + "    def shutdown(self) -> None:\n        open('hung', 'w').close()\n        open('gate').read()\n";
    let (project, mut serving) = serve(&[
        ("tidy.py", &tidy),
        ("hangs.py", &hangs),
        ("hangs_too.py", &hangs),
    ]);
    let _gate = Gate::new(&project, "gate");
    let marker = project.marker().to_owned();
    serving.ask("tidy", &marker).shows();
    until("it sleeps", || {
        !processes(&[&format!("sleep\0{marker}")]).is_empty()
    });
    serving.end().exits(0);
    assert!(project.exists("tidied") && project.exists("hung"));
    project.nothing_left();
}

#[test]
fn a_running_adhoc_command_can_be_interrupted_awaited_and_restarted() {
    let project = Project::new();
    let gate = Gate::new(&project, "gate");
    let waits = module(
        "",
        "self.count = getattr(self, 'count', 0) + 1\nif cmd.value: open(cmd.value).read()\nreturn CommandResponse(str(self.count), True)",
        "return ScreenSection('s')",
    );
    let project = project.file("env/waits.py", waits);
    let mut serving = Serving::start(&project);
    let begun = serving.request(&command("waits", "gate").timeout(0.0));
    assert!(
        begun.is_running() && begun.screen("waits") == "waits (ready)\nRunning: gate",
        "{}",
        begun.screen("waits")
    );
    let gate = gate.reached();
    assert!(serving.ask("waits", "").is_running());
    let interrupted = serving.control("waits", "interrupt");
    assert!(
        interrupted.fails().contains("KeyboardInterrupt"),
        "{}",
        interrupted.output()
    );
    assert_eq!(serving.ask("waits", "").shows(), "2");
    drop(gate);
    fs::remove_file(project.path("gate")).unwrap();
    let gate = Gate::new(&project, "gate");
    assert!(
        serving
            .request(&command("waits", "gate").timeout(0.0))
            .is_running()
    );
    gate.open();
    assert_eq!(serving.control("waits", "wait").shows(), "3");
    fs::remove_file(project.path("gate")).unwrap();
    let gate = Gate::new(&project, "gate");
    serving.send(&command("waits", "gate"));
    let _gate = gate.reached();
    serving.send(&control("waits", "restart"));
    serving.answer().fails();
    assert!(serving.answer().is_success());
    assert_eq!(serving.ask("waits", "").shows(), "1");
    serving.end().exits(0);
}
