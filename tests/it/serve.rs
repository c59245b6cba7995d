//! `serve`: its protocol, its project directory, and clean-up at its end.

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::needs;
use crate::support::project::{Project, processes, zombies_of};
use crate::support::running::until;
use crate::support::serve_client::{Gate, Request, Serving, command, control};

/// Starts a server in an empty project.
fn start() -> (Project, Serving) {
    let project = Project::new();
    let serving = Serving::start(&project);
    (project, serving)
}

#[test]
fn an_invalid_request_gets_one_error_with_its_id() {
    let (project, mut serving) = start();
    let lines: &[(&[u8], Value)] = &[
        (b"no json", Value::Null),
        (b"{\"id\":1,", Value::Null),
        (b"[]", Value::Null),
        (b"null", Value::Null),
        (b"\"text\"", Value::Null),
        (b"{}", Value::Null),
        (br#"{"id":1}"#, json!(1)),
        (br#"{"id":2,"type":"command"}"#, json!(2)),
        (
            br#"{"id":3,"type":"command","environment":"python"}"#,
            json!(3),
        ),
        (br#"{"id":4,"type":"command","command":"1"}"#, json!(4)),
        (
            br#"{"id":5,"environment":"python","command":"1"}"#,
            json!(5),
        ),
        (
            br#"{"id":6,"type":"query","environment":"python","command":"1"}"#,
            json!(6),
        ),
        (
            br#"{"id":7,"type":7,"environment":"python","command":"1"}"#,
            json!(7),
        ),
        (
            br#"{"id":8,"type":"command","environment":["python"],"command":"1"}"#,
            json!(8),
        ),
        (
            br#"{"id":9,"type":"command","environment":"python","command":null}"#,
            json!(9),
        ),
        (
            br#"{"id":"a","type":"control","environment":"python"}"#,
            json!("a"),
        ),
        (
            br#"{"id":"b","type":"control","environment":"python","action":"dance"}"#,
            json!("b"),
        ),
        (
            br#"{"id":"c","type":"control","environment":"nowhere","action":"dance"}"#,
            json!("c"),
        ),
        (
            br#"{"id":"d","type":"control","environment":"python","action":1}"#,
            json!("d"),
        ),
        (
            br#"{"id":[],"type":"command","environment":"python","command":"1"}"#,
            Value::Null,
        ),
        (
            br#"{"id":true,"type":"command","environment":"python","command":"1"}"#,
            Value::Null,
        ),
        (
            b"{\"id\":\"e\",\"type\":\"command\",\"environment\":\"python\",\"command\":\"\xff\"}",
            json!("e"),
        ),
        (
            br#"{"id":"f","type":"command","environment":"python","command":"\ud800"}"#,
            json!("f"),
        ),
        (
            br#"{"type":"command","environment":"python","command":"\udc00\ud800","id":10}"#,
            json!(10),
        ),
    ];
    for (line, id) in lines {
        serving.write([line, &b"\n"[..]].concat());
        let answer = serving.answer();
        assert!(!answer.error().is_empty());
        assert_eq!(answer.id(), id, "{}", String::from_utf8_lossy(line));
    }
    assert_eq!(serving.python("6*7").shows(), "42\n");
    serving.end().exits(0);
    project.nothing_left();
}

#[test]
fn deep_or_broken_json_is_an_error() {
    let (_project, mut serving) = start();
    for line in [
        "[".repeat(200_000),
        "{\"a\":".repeat(100_000),
        format!("{{\"id\":{}", "9".repeat(1_000_000)),
    ] {
        serving.write(line + "\n");
        serving.answer().error();
    }
    assert_eq!(serving.python("1").shows(), "1\n");
    serving.end().exits(0);
}

#[test]
fn an_invalid_timeout_is_an_error_and_nothing_runs() {
    let (project, mut serving) = start();
    for timeout in [
        json!(-1),
        json!(-0.001),
        json!("1"),
        json!(true),
        json!([]),
        json!({}),
    ] {
        let mut request = command("python", "open('ran', 'w').close()").id("t");
        request["timeout"] = timeout;
        let answer = serving.request(&request);
        assert!(answer.error().contains("timeout"), "{}", answer.error());
        assert_eq!(answer.id(), "t");
    }
    serving.write(
        "{\"type\":\"command\",\"environment\":\"python\",\"command\":\"1\",\"timeout\":NaN}\n",
    );
    serving.answer().error();
    for timeout in [
        json!(null),
        json!(1e300),
        json!(3_000_000_000_u64),
        json!(0.5e2),
    ] {
        let mut request = command("python", "1");
        request["timeout"] = timeout;
        assert_eq!(serving.request(&request).shows(), "1\n");
    }
    assert!(!project.exists("ran"));
    serving.end().exits(0);
}

#[test]
fn an_id_is_returned_unchanged() {
    let (_project, mut serving) = start();
    for id in [
        json!(""),
        json!("é\n\u{0}"),
        json!(0),
        json!(-1),
        json!(1.5),
        json!(u64::MAX),
        json!("7"),
    ] {
        let requests = [
            command("python", "1"),
            command("nowhere", "1"),
            control("editor", "wait"),
            control("editor", "dance"),
            json!({"type": "x"}),
        ];
        for request in requests {
            assert_eq!(*serving.request(&request.id(id.clone())).id(), id);
        }
    }
    assert_eq!(*serving.python("1").id(), Value::Null);
    assert_eq!(
        *serving
            .request(&command("python", "1").id(Value::Null))
            .id(),
        Value::Null
    );
    serving.end().exits(0);
}

#[test]
fn blank_lines_are_ignored_and_the_last_line_needs_no_newline() {
    let (_project, mut serving) = start();
    serving.write("\n\r\n   \n\t\n");
    serving.write(format!("{}\r\n", command("python", "x = 5").id(1)));
    serving.write("\n");
    serving.write(format!("  {}", command("python", "x").id(2)));
    serving.close_input();
    assert_eq!(*serving.answer().id(), 1);
    assert_eq!(serving.answer().shows(), "5\n");
    serving.end().exits(0);
}

#[test]
fn a_line_of_a_hundred_million_bytes_is_accepted() {
    let (_project, mut serving) = start();
    let text = "x".repeat(100_000_000);
    assert_eq!(
        serving.python(&format!("len('{text}')")).shows(),
        "100000000\n"
    );
    // A shell reads slowly.
    let text = &text[..10_000_000];
    assert_eq!(
        serving.bash(&format!("x={text}\necho ${{#x}}")).shows(),
        "10000000\n"
    );
    serving.end().exits(0);
}

#[test]
fn a_longer_line_is_skipped_with_one_error() {
    let (_project, mut serving) = start();
    let piece = "x".repeat(1 << 20);
    for _ in 0..129 {
        serving.write(&piece);
    }
    serving.write(format!("\n{}\n", command("python", "1").id("next")));
    assert!(serving.answer().error().contains("longer"));
    assert_eq!(*serving.answer().id(), "next");
    for _ in 0..129 {
        serving.write(&piece);
    }
    serving.close_input();
    assert!(serving.answer().error().contains("longer"));
    serving.end().exits(0);
}

#[test]
fn a_command_with_a_nul_fails_and_does_not_run() {
    let (project, mut serving) = start();
    for (environment, text) in [
        ("bash", "touch ran #\0"),
        ("python", "open('ran', 'w').close() #\0"),
        ("editor", "create ran\na\0b"),
    ] {
        assert!(!serving.ask(environment, text).fails().is_empty());
        assert!(!project.exists("ran"), "{environment}");
    }
    serving.end().exits(0);
}

#[test]
fn an_unknown_environment_is_answered_with_the_known_ones() {
    let (_project, mut serving) = start();
    for name in ["ruby", "Bash", "", "bash ", "../bash", "é"] {
        let expected = format!("Unknown environment: {name}\nAvailable: bash, editor, python");
        assert_eq!(serving.ask(name, "x").fails(), expected);
        assert_eq!(serving.control(name, "wait").fails(), expected);
        assert_eq!(serving.control(name, "restart").fails(), expected);
    }
    serving.end().exits(0);
}

#[test]
fn requests_run_one_at_a_time_across_environments() {
    let (_project, mut serving) = start();
    for round in 0..20 {
        serving.send(&command("bash", &format!("echo {round} > note")).id(format!("{round} bash")));
        serving.send(
            &command("python", "print(open('note').read(), end='')").id(format!("{round} python")),
        );
        serving.send(&command("editor", "search \"[0-9]+\" note").id(format!("{round} editor")));
    }
    serving.close_input();
    for round in 0..20 {
        assert_eq!(*serving.answer().id(), format!("{round} bash"));
        assert_eq!(serving.answer().shows(), format!("{round}\n"));
        let found = serving.answer();
        assert!(
            found.shows().contains(&format!("note:1: {round}")),
            "{}",
            found.output()
        );
    }
    serving.end().exits(0);
}

#[test]
fn a_slow_reader_gets_all_answers() {
    let project = Project::new();
    let mut serving = Serving::unread(&project, &[]);
    for round in 0..4 {
        serving.send(&command("python", &format!("print('{round}' * 3_000_000)")));
    }
    serving.send(&command("python", "open('last', 'w').close()"));
    serving.close_input();
    let mut serving = serving.read();
    let outputs: Vec<usize> = serving
        .answers()
        .map(|answer| answer.shows().len())
        .collect();
    assert_eq!(outputs, [3_000_001, 3_000_001, 3_000_001, 3_000_001, 0]);
    assert!(project.exists("last"));
    serving.wait().exits(0);
}

/// More than the pipes hold, in both directions.
#[test]
fn all_requests_can_be_sent_before_the_first_answer_is_read() {
    const REQUESTS: usize = 10_000;
    let project = Project::new();
    let mut serving = Serving::unread(&project, &[]);
    for _ in 0..REQUESTS {
        serving.send(&command("none", "of them is run"));
    }
    serving.close_input();
    let mut serving = serving.read();
    assert_eq!(serving.answers().count(), REQUESTS);
    serving.wait().exits(0);
}

#[test]
fn at_the_end_of_input_all_requests_are_answered_and_nothing_is_left() {
    let (project, mut serving) = start();
    let marker = project.marker().to_owned();
    serving.send(&command(
        "bash",
        &format!("sleep {marker} & setsid sleep {marker} & (setsid sleep {marker} &)"),
    ));
    serving.send(&command(
        "python",
        &format!("import subprocess\np = subprocess.Popen(['sleep', '{marker}'])"),
    ));
    serving.send(&command("bash", &format!("sleep {marker}")).timeout(0.0));
    serving.send(&command("editor", "create note\nx"));
    serving.close_input();
    assert!(serving.answer().is_success());
    assert!(serving.answer().is_success());
    assert!(serving.answer().is_running());
    assert!(serving.answer().is_success());
    serving.end().exits(0);
    project.nothing_left();
    assert_eq!(project.read("note"), "x\n");
}

#[test]
fn a_signal_ends_the_server_and_its_children() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let (project, mut serving) = start();
        let marker = project.marker().to_owned();
        serving.python(&format!(
            "import subprocess\np = subprocess.Popen(['setsid', 'sleep', '{marker}'])"
        ));
        serving.bash(&format!("sleep {marker} &"));
        serving.send(&command(
            "bash",
            &format!("(trap '' TERM; sleep {marker}); echo"),
        ));
        until("all of them sleep", || sleepers(&marker) == 3);
        serving.signal(signal);
        assert!(serving.line().is_none(), "an answer after the signal");
        serving.wait().exits(code);
        project.nothing_left();
    }
}

fn sleepers(marker: &str) -> usize {
    let is_sleep = |id: &&u32| {
        std::fs::read(format!("/proc/{id}/cmdline"))
            .unwrap_or_default()
            .starts_with(b"sleep")
    };
    processes(&[&format!("sleep\0{marker}")])
        .iter()
        .filter(is_sleep)
        .count()
}

#[test]
fn a_signal_ends_an_idle_server() {
    let (project, mut serving) = start();
    serving.python("1");
    serving.signal(Signal::TERM);
    serving.wait().exits(143);
    project.nothing_left();
}

#[test]
fn a_closed_reader_ends_the_server_and_its_children() {
    for is_idle in [true, false] {
        let project = Project::new();
        let mut serving = Serving::unread(&project, &[]);
        let marker = project.marker().to_owned();
        let wait = if is_idle { "" } else { "p.wait()" };
        let text =
            format!("import subprocess\np = subprocess.Popen(['sleep', '{marker}'])\n{wait}");
        serving.send(&command("python", &text));
        until("it sleeps", || sleepers(&marker) == 1);
        serving.close_output();
        serving.wait().exits(0);
        project.nothing_left();
    }
}

#[test]
fn the_project_directory_must_exist_and_not_be_too_broad() {
    let project = Project::new().file("file", "");
    let home = project.outside("home").display().to_string();
    let above = project.outside(".").display().to_string();
    for wrong in ["nowhere", "file", "/", &home, &above] {
        let ran = project.run(&["serve", "--project-dir", wrong]).exits(64);
        assert!(
            ran.stdout.is_empty() && ran.stderr.lines().count() == 1,
            "{}",
            ran.transcript()
        );
    }
    project
        .run(&["serve", "--no-sandbox", "--project-dir", &home])
        .exits(0);
    std::os::unix::fs::symlink(&home, project.path("link")).unwrap();
    project.run(&["serve", "--project-dir", "link"]).exits(64);
}

#[test]
fn without_an_argument_the_project_is_the_variable_or_the_current_directory() {
    let below = Project::new();
    std::fs::create_dir(below.path("below")).unwrap();
    let root = below.root().canonicalize().unwrap().display().to_string();
    let asks = |project: &Project| {
        let line = "echo '{\"type\":\"command\",\"environment\":\"python\",\"command\":\"import os; os.getcwd()\"}' | \"$@\"";
        project.run_in_shell(line, &["serve"]).exits(0).stdout
    };
    assert!(asks(&below).contains(&format!("'{root}'")));
    let below = below.env("PROJECT_DIR", "below");
    assert!(asks(&below).contains(&format!("'{root}/below'")));
}

/// The variables that python sees.
fn variables(serving: &mut Serving) -> Value {
    let answer = serving.python("import os, json; print(json.dumps(dict(os.environ)))");
    serde_json::from_str(answer.shows()).unwrap()
}

#[test]
fn variables_that_prompt_or_control_programs_are_replaced_or_dropped() {
    let mut project = Project::new()
        .env("MINE", "1")
        .env("KEYBOARD", "de")
        .without("MPLBACKEND");
    let replaced = [
        ("PAGER", "cat"),
        ("GIT_PAGER", "cat"),
        ("MANPAGER", "cat"),
        ("EDITOR", "true"),
        ("VISUAL", "true"),
        ("GIT_EDITOR", "true"),
        ("GIT_SEQUENCE_EDITOR", "true"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("SSH_ASKPASS_REQUIRE", "never"),
        ("TERM", "dumb"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    let dropped = [
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "PROMPT_COMMAND",
        "PYTHONSTARTUP",
        "PYTHONINSPECT",
        "ANTHROPIC_API_KEY",
        "OPENAI_API_KEY",
        "MY_TOKEN",
        "MY_SECRET",
        "MY_PASSWORD",
        "MY_KEY",
        "SSH_AUTH_SOCK",
        "XDG_RUNTIME_DIR",
        "DBUS_SESSION_BUS_ADDRESS",
    ];
    for name in replaced.iter().map(|(name, _)| name).chain(&dropped) {
        project = project.env(name, "/caller");
    }
    let mut serving = Serving::with(&project, &["--keep-env", "MY_TOKEN"]);
    let seen = variables(&mut serving);
    for (name, value) in
        replaced
            .iter()
            .chain(&[("MPLBACKEND", "Agg"), ("MINE", "1"), ("KEYBOARD", "de")])
    {
        assert_eq!(seen[name], *value, "{name}");
        assert_eq!(
            serving.bash(&format!("echo \"${name}\"")).shows(),
            format!("{value}\n"),
            "{name}"
        );
    }
    for name in dropped {
        let expected = if name == "MY_TOKEN" {
            json!("/caller")
        } else {
            Value::Null
        };
        assert_eq!(seen[name], expected, "{name}");
    }
    for name in ["HOME", "TMPDIR"] {
        let place = seen[name].as_str().unwrap();
        assert!(
            !place.starts_with(&project.outside("").display().to_string()),
            "{place}"
        );
        assert_eq!(
            serving
                .bash(&format!("test -d {place} && echo there"))
                .shows(),
            "there\n"
        );
    }
    assert_eq!(serving.bash("PAGER=more; echo $PAGER").shows(), "more\n");
    let private = std::path::PathBuf::from(seen["HOME"].as_str().unwrap());
    serving.end().exits(0);
    assert!(!private.exists(), "the private home is left");
}

#[test]
fn without_a_sandbox_home_is_the_callers_home() {
    let project = Project::new();
    let mut serving = Serving::with(&project, &["--no-sandbox"]);
    assert_eq!(
        variables(&mut serving)["HOME"],
        project.outside("home").display().to_string()
    );
    serving.end().exits(0);
}

#[test]
fn screens_start_with_one_line_and_change_with_use() {
    let (project, mut serving) = start();
    let root = project.root().canonicalize().unwrap().display().to_string();
    let first = serving.ask("nowhere", "x");
    assert_eq!(first.screen("bash"), "Bash shell (ready)");
    assert_eq!(first.screen("python"), "Python REPL (ready)");
    assert_eq!(first.screen("editor"), "Editor (no views)");
    let used = serving.python("x = 1");
    assert_eq!(used.screen("bash"), "Bash shell (ready)");
    assert_eq!(
        used.screen("python"),
        format!("Working directory: {root}\n\nVariables (by recent use):\n  x: int")
    );
    let used = serving.bash("(exit 4)");
    assert_eq!(
        used.screen("bash").trim_end(),
        format!("Working directory: {root}\nLast exit code: 4")
    );
    assert_eq!(used.screen("editor"), "Editor (no views)");
    for (environment, ready) in [
        ("bash", "Bash shell (ready)"),
        ("python", "Python REPL (ready)"),
    ] {
        assert_eq!(
            serving.control(environment, "restart").screen(environment),
            ready
        );
    }
    serving.end().exits(0);
}

#[test]
fn a_screen_shows_a_death_until_the_next_command() {
    let (_project, mut serving) = start();
    for (environment, death, ready) in [
        ("bash", "exit 3", "Bash shell (ready)"),
        ("python", "import os; os._exit(3)", "Python REPL (ready)"),
    ] {
        let died = serving.ask(environment, death);
        assert!(!died.is_success());
        let screen = died.screen(environment).to_owned();
        assert!(
            screen.starts_with(&format!("{ready} (ended: ")) && screen.contains('3'),
            "{screen}"
        );
        assert_eq!(serving.editor("x").screen(environment), screen);
        assert!(
            !serving
                .ask(environment, "")
                .screen(environment)
                .contains("ended")
        );
    }
    serving.end().exits(0);
}

#[test]
fn a_screen_shows_the_first_line_of_the_running_command() {
    let (project, mut serving) = start();
    for (environment, rest) in [("bash", "\necho on"), ("python", "\nprint('on')")] {
        let gate = Gate::new(&project, environment);
        let first = match environment {
            "bash" => format!("cat bash # {}", "é".repeat(100)),
            _ => format!("x = open('python').read() # {}", "é".repeat(100)),
        };
        serving.ask(environment, "");
        let before = serving.editor("x").screen(environment).to_owned();
        let request = command(environment, &format!("{first}{rest}")).timeout(0.0);
        let shown: String = first.chars().take(80).collect();
        assert_eq!(
            serving.request(&request).screen(environment),
            format!("{}\nRunning: {shown}", before.trim_end())
        );
        gate.open();
        let ended = serving.control(environment, "wait");
        assert_eq!(ended.shows(), "on\n");
        assert!(!ended.screen(environment).contains("Running"));
    }
    serving.end().exits(0);
}

#[test]
fn screens_are_not_cut_below_their_limit() {
    let lines: String = (0..3000).map(|line| format!("line {line}\n")).collect();
    let project = Project::new().file("long", &lines);
    let mut serving = Serving::start(&project);
    for _ in 0..5 {
        assert!(serving.editor("view long /line/ /nothing/").is_success());
    }
    let screen = serving.python("for i in range(150):\n    globals()[f'name{i}'] = i");
    for (name, least) in [("python", 100), ("editor", 5000)] {
        let count = screen.screen(name).lines().count() as u64;
        assert!(
            least < count && count <= screen.max_lines(name),
            "{name}: {count} of {}",
            screen.max_lines(name)
        );
    }
    assert_eq!(screen.max_lines("bash"), 50);
    serving.end().exits(0);
}

#[test]
fn the_editor_does_not_change_git_configuration() {
    let git = |project: Project| {
        project
            .file(".git/config", "theirs\n")
            .file(".git/hooks/pre-commit", "theirs\n")
    };
    let project = git(Project::new());
    let mut serving = Serving::start(&project);
    for attack in [
        "create .git/hooks/post-commit\nevil",
        "edit .git/hooks/pre-commit 1-1\nevil",
        "edit .git/config 1-1\nevil",
    ] {
        serving.editor(attack).fails();
    }
    serving.editor("create .git/description\nmine").shows();
    serving.end();
    assert_eq!(
        project.read(".git/config") + &project.read(".git/hooks/pre-commit"),
        "theirs\ntheirs\n"
    );
    assert!(!project.exists(".git/hooks/post-commit"));
    let mut open = Serving::with(&project, &["--no-sandbox"]);
    open.editor("create .git/hooks/post-commit\nmine").shows();
}

#[test]
fn the_editor_reads_mounts_in_the_project_and_does_not_change_them() {
    let project = Project::new();
    std::fs::create_dir(project.path("mounted")).unwrap();
    let requests = [
        command("editor", "create mounted/new\nmine"),
        command("editor", "create mounted/folder/new\nmine"),
        command("editor", "view mounted/file /theirs/ /theirs/"),
        command("editor", "edit mounted/file 1-1\nmine"),
        command("editor", "create beside\nmine"),
        command("bash", "cat mounted/file; ls mounted"),
    ];
    let lines: String = requests
        .iter()
        .map(|request| format!("{request}\n"))
        .collect();
    project.write("requests", lines);
    let line = "exec unshare -m sh -c 'mount -t tmpfs none mounted && echo theirs > mounted/file && \"$@\" < requests' sh \"$@\"";
    let ran = project.run_in_shell(line, &["serve"]);
    if !ran.stderr.contains("serve: ") {
        return needs::skip("nothing can be mounted here");
    }
    let success: Vec<bool> = ran
        .stdout
        .lines()
        .map(|line| line.contains(r#""success":true"#))
        .collect();
    assert_eq!(
        success,
        [false, false, true, false, true, true],
        "{}",
        ran.transcript()
    );
    assert!(
        ran.stdout.contains(r#""output":"theirs\nfile\n""#),
        "{}",
        ran.transcript()
    );
}

#[test]
fn environments_leave_no_zombies() {
    for arguments in [&[][..], &["--no-sandbox"]] {
        let project = Project::new();
        let mut serving = Serving::with(&project, arguments);
        serving.bash("true").shows();
        serving.python("1 + 1").shows();
        serving.control("bash", "restart");
        serving.bash("true").shows();
        until("every ended child is reaped", || {
            zombies_of(serving.id()).is_empty()
        });
        serving.end().exits(0);
    }
}
