//! `serve`: running commands. Timeouts, later output, wait, interrupt and restart, and their order.

use crate::support::project::{Project, processes};
use crate::support::running::until;
use crate::support::serve_client::{Gate, Request, Serving, command, control};

/// The environments that run long commands.
const BOTH: [&str; 2] = ["bash", "python"];

/// Starts a server in an empty project.
fn start() -> (Project, Serving) {
    let project = Project::new();
    let serving = Serving::start(&project);
    (project, serving)
}

/// A command that prints a word, waits at a gate, and prints another.
fn passes(environment: &str, gate: &str) -> String {
    match environment {
        "bash" => format!("echo before; cat {gate}; echo after"),
        _ => format!("print('before')\nx = open('{gate}').read()\nprint('after')"),
    }
}

/// A command that stores a word, or one that prints it.
fn keep(environment: &str) -> &'static str {
    if environment == "bash" {
        "kept=kept"
    } else {
        "kept = 'kept'"
    }
}

fn show(environment: &str) -> &'static str {
    if environment == "bash" {
        "echo \"$kept\""
    } else {
        "print(globals().get('kept', ''))"
    }
}

/// Starts a command and returns when it waits at its gate.
fn begin(project: &Project, serving: &mut Serving, environment: &str) -> Gate {
    let gate = Gate::new(project, &format!("gate-{environment}"));
    let request = command(
        environment,
        &passes(environment, &format!("gate-{environment}")),
    )
    .timeout(0.0);
    assert!(serving.request(&request).is_running());
    gate.reached()
}

/// Waits until a command has ended without a request that waits for it.
fn until_idle(serving: &mut Serving, environment: &str) {
    until("the command has ended", || {
        !serving.editor("").screen(environment).contains("Running: ")
    });
}

#[test]
fn an_interrupt_acts_at_once_and_is_answered_in_order() {
    for environment in BOTH {
        let (project, mut serving) = start();
        let gate = Gate::new(&project, "gate");
        serving.ask(environment, keep(environment));
        serving.send(&command(environment, &passes(environment, "gate")).id(1));
        let _closed = gate.reached();
        serving.send(&command("editor", "create note\nx").id(2));
        serving.send(&control(environment, "interrupt").id(3));
        serving.send(&command(environment, show(environment)).id(4));
        let answers = [(); 4].map(|()| serving.answer());
        assert_eq!(
            answers.each_ref().map(|answer| answer.id().as_i64()),
            [Some(1), Some(2), Some(3), Some(4)]
        );
        assert!(
            answers[0].fails().starts_with("before\n"),
            "{}",
            answers[0].output()
        );
        assert!(
            !answers[0].output().contains("after"),
            "{}",
            answers[0].output()
        );
        assert_eq!(answers[2].shows(), "Nothing is running");
        assert_eq!(answers[3].shows(), "kept\n");
        serving.end().exits(0);
    }
}

#[test]
fn a_queued_command_does_not_delay_an_interrupt() {
    for (environment, action) in [
        ("bash", "interrupt"),
        ("python", "interrupt"),
        ("bash", "restart"),
        ("python", "restart"),
    ] {
        let (project, mut serving) = start();
        let gate = Gate::new(&project, "gate");
        serving.send(&command(environment, &passes(environment, "gate")));
        let _closed = gate.reached();
        serving.send(&command(environment, show(environment)));
        serving.send(&control(environment, action));
        assert!(!serving.answer().fails().contains("after"));
        assert_eq!(serving.answer().shows(), "\n");
        assert!(serving.answer().is_success());
        serving.end().exits(0);
    }
}

#[test]
fn an_early_action_acts_on_the_command_that_runs_in_its_turn() {
    for (environment, action) in [
        ("bash", "interrupt"),
        ("python", "interrupt"),
        ("bash", "restart"),
        ("python", "restart"),
    ] {
        let (project, mut serving) = start();
        let gates = ["first", "second"].map(|name| Gate::new(&project, name));
        let [first, second] = gates;
        serving.send(&command(environment, &passes(environment, "first")));
        let _first = first.reached();
        serving.send(&command(environment, &passes(environment, "second")).timeout(0.0));
        serving.send(&control(environment, action));
        assert!(!serving.answer().is_success());
        assert!(serving.answer().is_running());
        assert!(!serving.answer().output().contains("after"));
        assert_eq!(
            serving.control(environment, "wait").shows(),
            "Nothing is running"
        );
        drop(second);
        serving.end().exits(0);
        project.nothing_left();
    }
}

#[test]
fn a_restart_acts_at_once_and_is_answered_in_order() {
    for environment in BOTH {
        let (project, mut serving) = start();
        let gate = Gate::new(&project, "gate");
        serving.ask(environment, keep(environment));
        serving.send(&command(environment, &passes(environment, "gate")).id(1));
        let _closed = gate.reached();
        serving.send(&command("editor", "create note\nx").id(2));
        serving.send(&control(environment, "restart").id(3));
        let answers = [(); 3].map(|()| serving.answer());
        assert_eq!(
            answers.each_ref().map(|answer| answer.id().as_i64()),
            [Some(1), Some(2), Some(3)]
        );
        assert!(
            answers[0].fails().starts_with("before\n"),
            "{}",
            answers[0].output()
        );
        assert!(answers[2].is_success());
        assert_eq!(serving.ask(environment, show(environment)).shows(), "\n");
        serving.end().exits(0);
    }
}

#[test]
fn an_interrupt_read_before_a_wait_ends_the_wait() {
    let (project, mut serving) = start();
    let _closed = begin(&project, &mut serving, "bash");
    let gate = Gate::new(&project, "gate");
    serving.send(&command("python", &passes("python", "gate")));
    let gate = gate.reached();
    serving.send(&control("bash", "wait"));
    serving.send(&control("bash", "interrupt"));
    // The next lines were read after those two.
    serving.send(&control("python", "interrupt"));
    assert!(serving.answer().fails().contains("KeyboardInterrupt"));
    drop(gate);
    assert!(!serving.answer().fails().contains("after"));
    assert_eq!(serving.answer().shows(), "Nothing is running");
    serving.answer();
    serving.end().exits(0);
}

#[test]
fn an_interrupt_of_one_environment_spares_the_others() {
    let (project, mut serving) = start();
    let gate = Gate::new(&project, "gate");
    serving.send(&command("python", &passes("python", "gate")));
    let gate = gate.reached();
    serving.send(&control("bash", "interrupt"));
    serving.send(&control("bash", "restart"));
    serving.send(&control("editor", "restart"));
    gate.open();
    assert_eq!(serving.answer().shows(), "before\nafter\n");
    assert_eq!(serving.answer().shows(), "Nothing is running");
    assert!(serving.answer().is_success() && serving.answer().is_success());
    serving.end().exits(0);
}

#[test]
fn a_timeout_returns_the_output_so_far_and_wait_only_the_rest() {
    for environment in BOTH {
        let (project, mut serving) = start();
        let gate = Gate::new(&project, "gate");
        let first =
            serving.request(&command(environment, &passes(environment, "gate")).timeout(0.0));
        let gate = gate.reached();
        let mut seen = first.goes_on().to_owned();
        let wait = control(environment, "wait").timeout(0.01);
        until("it has said its first word", || {
            seen += serving.request(&wait).goes_on();
            !seen.is_empty()
        });
        assert_eq!(seen, "before\n");
        let silent = serving.request(&wait);
        assert_eq!(silent.goes_on(), "");
        assert!(
            silent.output().contains("stdbuf -oL"),
            "{}",
            silent.output()
        );
        gate.open();
        let rest = serving.control(environment, "wait");
        assert_eq!((rest.shows(), rest.is_running()), ("after\n", false));
        assert_eq!(
            serving.control(environment, "wait").shows(),
            "Nothing is running"
        );
        serving.end().exits(0);
    }
}

#[test]
fn an_unfinished_line_is_ended_before_the_timeout_note() {
    let (project, mut serving) = start();
    let _closed = Gate::new(&project, "gate");
    let mut seen = serving
        .request(&command("bash", "printf part; cat gate").timeout(0.0))
        .goes_on()
        .to_owned();
    until("it has said its word", || {
        seen += serving
            .request(&control("bash", "wait").timeout(0.01))
            .goes_on();
        !seen.is_empty()
    });
    assert_eq!(seen, "part\n");
    serving.end().exits(0);
}

#[test]
fn a_timeout_may_be_a_fraction_of_a_second() {
    let (project, mut serving) = start();
    let gate = Gate::new(&project, "gate");
    // The first start of an interpreter compiles what it imports.
    serving.python("None");
    let answer = serving.request(&command("python", &passes("python", "gate")).timeout(0.25));
    assert_eq!(answer.goes_on(), "before\n");
    assert!(!answer.output().contains("stdbuf"), "{}", answer.output());
    gate.open();
    assert_eq!(
        serving
            .request(&control("python", "wait").timeout(1e12))
            .shows(),
        "after\n"
    );
    serving.end().exits(0);
}

#[test]
fn commands_are_refused_while_another_runs() {
    for environment in BOTH {
        let (project, mut serving) = start();
        let gate = begin(&project, &mut serving, environment);
        let write = if environment == "bash" {
            "touch sneaked"
        } else {
            "open('sneaked', 'w').close()"
        };
        let refused = serving.ask(environment, write);
        assert!(
            refused.is_running() && refused.output().contains("running"),
            "{}",
            refused.output()
        );
        gate.open();
        assert!(
            serving
                .control(environment, "wait")
                .shows()
                .ends_with("after\n")
        );
        serving.ask(environment, "");
        assert!(!project.exists("sneaked"));
        serving.end().exits(0);
    }
}

#[test]
fn output_of_a_finished_command_is_kept_for_wait() {
    for (environment, text) in [
        ("bash", "cat gate-x; echo old; (exit 7)"),
        ("python", "x = open('gate-x').read()\nprint('old')\n1/0"),
    ] {
        for action in ["wait", "interrupt"] {
            let (project, mut serving) = start();
            let gate = Gate::new(&project, "gate-x");
            assert!(
                serving
                    .request(&command(environment, text).timeout(0.0))
                    .is_running()
            );
            gate.open();
            until_idle(&mut serving, environment);
            let answer = serving.control(environment, action);
            assert!(answer.fails().starts_with("old\n"), "{}", answer.output());
            assert_eq!(
                serving.control(environment, action).shows(),
                "Nothing is running"
            );
            assert_eq!(serving.ask(environment, show(environment)).shows(), "\n");
            serving.end().exits(0);
        }
    }
}

#[test]
fn output_of_a_finished_command_precedes_the_next_output() {
    for environment in BOTH {
        let (project, mut serving) = start();
        begin(&project, &mut serving, environment).open();
        until_idle(&mut serving, environment);
        let answer = serving.ask(environment, show(environment));
        let (rest, own) = answer
            .shows()
            .split_once("after\n")
            .unwrap_or_else(|| panic!("{}", answer.output()));
        assert!(["", "before\n"].contains(&rest), "{rest}");
        let [told, "", ""] = own.split('\n').collect::<Vec<_>>()[..] else {
            panic!("{own:?}")
        };
        assert!(told.contains("ended"), "{own}");
        assert_eq!(serving.ask(environment, show(environment)).shows(), "\n");
        serving.end().exits(0);
    }
}

#[test]
fn wait_and_interrupt_without_a_command_report_nothing_running() {
    let project = Project::new().file("note", "a\nb\n");
    let mut serving = Serving::start(&project);
    for _ in 0..2 {
        for environment in ["bash", "python", "editor"] {
            for action in ["wait", "interrupt"] {
                let answer = serving.request(&control(environment, action).timeout(5.0));
                assert_eq!(
                    (answer.shows(), answer.is_running()),
                    ("Nothing is running", false)
                );
            }
        }
        serving.bash("true");
        serving.python("1");
        serving.editor("view note /a/ /b/");
    }
    serving.end().exits(0);
}

#[test]
fn a_restart_of_an_idle_environment_gives_a_new_one() {
    let project = Project::new().file("note", "a\nb\n");
    let mut serving = Serving::start(&project);
    serving.bash("cd /; kept=kept");
    serving.python("import os; os.chdir('/'); kept = 'kept'");
    serving.editor("view note /a/ /b/");
    for environment in ["bash", "python", "editor"] {
        assert!(serving.control(environment, "restart").is_success());
    }
    let root = project.root().canonicalize().unwrap().display().to_string();
    assert_eq!(
        serving.bash("pwd; echo $kept").shows(),
        format!("{root}\n\n")
    );
    assert_eq!(
        serving
            .python("import os; print(os.getcwd(), 'kept' in globals())")
            .shows(),
        format!("{root} False\n")
    );
    assert_eq!(serving.python("").screen("editor"), "Editor (no views)");
    serving.end().exits(0);
}

#[test]
fn a_restart_ends_daemons() {
    let (project, mut serving) = start();
    let marker = project.marker().to_owned();
    serving.bash(&format!(
        "(setsid sleep {marker} &) ; trap '' TERM; sleep {marker} & setsid nohup sleep {marker} &"
    ));
    until("they sleep", || {
        3 <= processes(&[&format!("sleep\0{marker}")]).len()
    });
    assert!(serving.control("bash", "restart").is_success());
    assert!(processes(&[&format!("sleep\0{marker}")]).is_empty());
    serving.end().exits(0);
}
