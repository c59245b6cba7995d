//! The environment `bash`: a real shell, driven as `serve` drives it.

use std::ffi::OsString;
use std::fs;
use std::io::pipe;
use std::os::fd::AsFd;
use std::path::Path;
use std::time::{Duration, Instant};

use orchestrator::internals::environments::{
    BashEnvironment, Environment, Response, WaitLimit, WaitResult,
};
use orchestrator::internals::process::Launcher;

/// A shell in an empty project.
struct Bash {
    folder: tempfile::TempDir,
    environment: BashEnvironment,
}

impl Bash {
    fn new() -> Bash {
        let folder = tempfile::tempdir().unwrap();
        let mut env: Vec<(OsString, OsString)> = vec![("LANG".into(), "C.UTF-8".into())];
        env.extend(
            ["PATH", "HOME"].map(|name| (name.into(), std::env::var_os(name).unwrap_or_default())),
        );
        let launcher = Launcher::open(Path::new(env!("CARGO_BIN_EXE_orchestrator")));
        let project = folder.path().canonicalize().unwrap();
        Bash {
            folder,
            environment: BashEnvironment::new(launcher, project, env),
        }
    }

    fn project(&self) -> String {
        self.folder
            .path()
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    }

    fn wait(&mut self, time: Duration) -> WaitResult {
        let (never, _open) = pipe().unwrap();
        self.environment.wait(WaitLimit {
            deadline: Some(Instant::now() + time),
            wake: never.as_fd(),
        })
    }

    /// Waits for the end of the running command.
    fn end(&mut self) -> Response {
        match self.wait(Duration::from_secs(60)) {
            WaitResult::Ended(response) => response,
            other => panic!("{other:?}: {}", self.environment.take_output()),
        }
    }

    fn run(&mut self, command: &str) -> Response {
        self.environment
            .begin(command)
            .unwrap_or_else(|| self.end())
    }

    /// Runs a command that succeeds, and returns its output.
    fn shows(&mut self, command: &str) -> String {
        let response = self.run(command);
        assert!(response.success, "{command}: {}", response.output);
        response.output
    }

    /// Begins a command, and returns when it has printed `up`.
    fn begin_and_see_it_up(&mut self, command: &str) {
        assert_eq!(self.environment.begin(command), None);
        let mut seen = String::new();
        while !seen.contains("up\n") {
            assert_eq!(
                self.wait(Duration::from_millis(20)),
                WaitResult::Late,
                "{command}"
            );
            seen += &self.environment.take_output();
        }
    }

    /// Begins a command that prints `up`, and interrupts it then.
    fn interrupted(&mut self, command: &str) -> Response {
        self.begin_and_see_it_up(command);
        self.environment.interrupt();
        self.end()
    }

    fn screen(&mut self) -> String {
        self.environment.screen().content
    }

    fn status(&mut self) -> String {
        let screen = self.screen();
        screen
            .lines()
            .find_map(|line| line.strip_prefix("Last exit code: "))
            .unwrap_or(&screen)
            .to_owned()
    }
}

#[test]
fn state_is_kept_between_commands() {
    let mut bash = Bash::new();
    assert_eq!(bash.screen(), "Bash shell (ready)");
    bash.shows(
        "mkdir -p 'a b'; cd 'a b'; export E=1; v=2; f() { echo $v; return 3; }; declare -A m=([k]=x); set -o pipefail",
    );
    assert_eq!(
        bash.screen(),
        format!(
            "Working directory: {}/a b\nLast exit code: 0\n",
            bash.project()
        )
    );
    assert_eq!(
        bash.shows("pwd; bash -c 'echo $E'; echo ${m[k]}"),
        format!("{}/a b\n1\nx\n", bash.project())
    );
    assert_eq!(
        (bash.run("f").output, bash.status()),
        ("2\n".to_owned(), "3".to_owned())
    );
    assert_eq!(bash.shows("echo $?"), "3\n");
    assert!(!bash.run("false | true").success);
    bash.shows("alias greet='echo hello'");
    assert_eq!(bash.shows("greet you"), "hello you\n");
    assert_eq!(bash.shows("alias later='echo works'\nlater"), "works\n");
}

#[test]
fn redirections_of_the_shell_are_kept() {
    let mut bash = Bash::new();
    bash.shows("exec 3>&1 >file");
    assert_eq!(bash.shows("echo kept; echo error >&2"), "error\n");
    assert_eq!(bash.shows("exec >&3; cat file"), "kept\n");
    bash.run("exec >&-");
    assert!(!bash.run("echo lost").success);
    assert_eq!(bash.shows("exec >&3; echo back"), "back\n");
}

#[test]
fn errors_end_the_command_but_not_the_shell() {
    let mut bash = Bash::new();
    let shell = bash.shows("K=kept; echo $$");
    let unbound = "set -u\necho $no_such_name\necho after";
    for command in [
        unbound,
        "echo ${nope:?is missing}\necho after",
        "echo $((1/0)); echo after",
        "echo ${x!y}",
    ] {
        let response = bash.run(command);
        assert!(
            !response.success && response.output.starts_with("bash: "),
            "{command}: {}",
            response.output
        );
        assert!(
            !response.output.contains("after"),
            "{command}: {}",
            response.output
        );
        assert_eq!(bash.shows("echo $$ $K"), format!("{} kept\n", shell.trim()));
    }
    assert_eq!(
        bash.run("no_such_program").output,
        "bash: no_such_program: command not found\n"
    );
    assert_eq!(bash.status(), "127");
}

#[test]
fn a_syntax_error_is_a_failed_result() {
    let mut bash = Bash::new();
    bash.shows("K=kept");
    for command in [
        ")",
        "fi",
        "echo 'a",
        "echo \"a",
        "if true; then",
        "echo a |",
        "}",
        "echo $(",
        "for for",
        "a() {",
    ] {
        let response = bash.run(command);
        assert!(
            !response.success && response.output.starts_with("bash: "),
            "{command}: {}",
            response.output
        );
        assert!(
            !response.output.contains("__") && !response.output.contains("builtin"),
            "{}",
            response.output
        );
    }
    assert_eq!(bash.shows("echo $K"), "kept\n");
    assert!(bash.shows("cat <<END\nno end").ends_with("no end\n"));
    assert_eq!(bash.shows("shopt -s extglob\necho !(a*)"), "!(a*)\n");
}

#[test]
fn blank_commands_succeed() {
    let mut bash = Bash::new();
    for command in ["", "  ", "\n\n", "# a comment", "\t"] {
        bash.run("false");
        assert_eq!(bash.run(command), Response::done(""), "{command:?}");
    }
}

#[test]
fn any_command_text_arrives_unchanged() {
    let mut bash = Bash::new();
    let body: String = (0..50_000)
        .map(|line| format!("line {line} 'quote' $x é \u{1}\n"))
        .collect();
    bash.shows(&format!("cat >big <<'END'\n{body}END"));
    assert!(fs::read_to_string(bash.folder.path().join("big")).unwrap() == body);
    assert_eq!(bash.shows("echo '!x !!' \"é\" $'a\\tb'"), "!x !! é a\tb\n");
    assert_eq!(bash.shows("export LC_ALL=C; echo 'é' # \u{1F600}"), "é\n");
    let many: String = (0..3000)
        .map(|number| format!("v{number}={number}\n"))
        .collect();
    assert_eq!(bash.shows(&(many + "echo $v0 $v2999")), "0 2999\n");
}

#[test]
fn the_driver_leaves_no_trace_in_the_shell() {
    let mut bash = Bash::new();
    assert_eq!(
        bash.shows("declare -f; declare -F; trap -p; alias; jobs; set | grep ^__; declare -p | grep ' __'; true"),
        ""
    );
    assert_eq!(bash.shows("echo \"[$PS1$PROMPT_COMMAND]\""), "[]\n");
    bash.shows("set -x");
    let traced = bash.run("echo traced; false").output;
    let lines: Vec<&str> = traced
        .lines()
        .map(|line| line.trim_start_matches('+'))
        .collect();
    assert_eq!(lines, [" echo traced", "traced", " false"]);
    assert_eq!(
        bash.run("set +x").output.trim_start_matches('+'),
        " set +x\n"
    );
    bash.shows("set -v");
    assert_eq!(bash.shows("echo a\necho b"), "echo a\na\necho b\nb\n");
    assert_eq!(bash.shows("set +v"), "set +v\n");
    assert_eq!(bash.shows("echo quiet"), "quiet\n");
}

#[test]
fn programs_get_three_descriptors_and_an_empty_stdin() {
    let mut bash = Bash::new();
    assert_eq!(bash.shows("ls /proc/self/fd | wc -l"), "4\n");
    assert_eq!(
        bash.shows("cat; read line; echo $?; exec </dev/zero"),
        "1\n"
    );
    assert_eq!(bash.shows("echo next"), "next\n");
}

#[test]
fn traps_run_only_for_the_command() {
    let mut bash = Bash::new();
    bash.shows("trap 'echo T' DEBUG");
    assert_eq!(bash.shows("echo x"), "T\nx\n");
    assert_eq!(bash.run("false").output, "T\n");
    assert_eq!(bash.shows("echo $?"), "T\n1\n");
    bash.shows("trap - DEBUG; trap 'echo E' ERR");
    assert_eq!(bash.run("false").output, "E\n");
    assert_eq!(bash.run("true; (exit 4)").output, "E\n");
    assert_eq!(bash.shows("echo $?; trap - ERR"), "4\n");
    bash.shows("set -e; ! true || :");
    assert!(!bash.run("! true").success);
    assert_eq!(bash.shows("echo alive"), "alive\n");
}

#[test]
fn break_continue_and_return_do_not_end_the_shell() {
    let mut bash = Bash::new();
    for command in ["break", "continue", "echo a; break 3; echo b", "return 3"] {
        bash.run(command);
        assert_eq!(bash.shows("echo next"), "next\n", "after {command}");
    }
    bash.shows("printf() { :; }; read() { :; }; set() { :; }; TMOUT=1; unset PWD; set -o posix");
    assert_eq!(bash.shows("echo next"), "next\n");
    bash.shows("readonly TMOUT=0.001");
    assert_eq!(bash.shows("sleep 0.01; echo next"), "next\n");
}

#[test]
fn an_exit_is_reported_and_the_next_command_works() {
    let mut bash = Bash::new();
    for (command, how, succeeds) in [
        ("exit 3", "exit status 3", false),
        ("exit", "exit status 0", true),
        ("exec true", "exit status 0", true),
        ("exec sh -c 'exit 9'", "exit status 9", false),
        ("kill -9 $$; sleep 60", "signal 9", false),
        ("kill $$; sleep 60", "signal 15", false),
        ("set -e; false", "( set -e; … )", false),
        (
            "for n in $(ls /proc/$$/fd); do [ $n -gt 2 ] && eval \"exec $n>&-\"; done; true",
            "exit status",
            false,
        ),
    ] {
        bash.shows("K=gone; cd /; sleep 1000 &");
        let response = bash.run(&format!("echo before; {command}"));
        assert!(
            response.output.starts_with("before\n"),
            "{command}: {}",
            response.output
        );
        assert!(
            response.output.contains("[bash ended: ") && response.output.contains(how),
            "{command}: {}",
            response.output
        );
        assert_eq!(response.success, succeeds, "{command}");
        assert!(
            bash.screen().starts_with("Bash shell (ready) (ended: "),
            "{}",
            bash.screen()
        );
        assert_eq!(
            bash.shows("echo \"[$K]\"; pwd"),
            format!("[]\n{}\n", bash.project())
        );
    }
    assert_eq!(
        bash.run("trap 'echo bye' EXIT; exit 1")
            .output
            .lines()
            .next(),
        Some("bye")
    );
}

#[test]
fn a_deleted_directory_does_not_end_the_shell() {
    let mut bash = Bash::new();
    bash.shows("mkdir d; cd d; rmdir ../d");
    assert!(!bash.run("ls ../d").success);
    assert_eq!(bash.shows("cd /; pwd"), "/\n");
}

#[test]
fn background_jobs_are_on_the_screen() {
    let mut bash = Bash::new();
    assert_eq!(bash.shows("sleep 1000 &"), "");
    let pid = bash.shows("echo $!").trim().to_owned();
    bash.shows("sleep 1001 | cat &");
    let screen = bash.screen();
    let line = screen.lines().last().unwrap();
    assert!(
        line.starts_with(&format!("Background jobs: [1] {pid} sleep 1000, [2] ")),
        "{line}"
    );
    assert!(line.ends_with("sleep 1001 | cat"), "{line}");
    bash.run("kill %1 %2; wait");
    assert!(!bash.screen().contains("jobs"), "{}", bash.screen());
    assert_eq!(bash.shows("jobs"), "");
    bash.shows("(sleep 0; echo late; echo > done) &");
    bash.shows("until [ -e done ]; do sleep 0.01; done");
}

#[test]
fn output_between_commands_precedes_the_next_output() {
    let mut bash = Bash::new();
    bash.shows("mkfifo go gone; { read x; echo late; echo > gone; } <go & true");
    bash.shows("true");
    fs::write(bash.folder.path().join("go"), "\n").unwrap();
    fs::read(bash.folder.path().join("gone")).unwrap();
    assert_eq!(bash.shows("echo now"), "late\nnow\n");
}

#[test]
fn an_interrupt_ends_the_command_and_keeps_the_state() {
    let mut bash = Bash::new();
    bash.shows("K=kept; sleep 1000 &");
    let commands = [
        "echo up; sleep 60; echo no",
        "echo up; while :; do :; done",
        "echo up; for i in 1 2 3; do sleep 60; echo no; done",
        "echo up; sleep 60 | cat | wc -l",
        "echo up; x=$(sleep 60)",
        "f() { sleep 60; }; echo up; f; echo no",
        "echo up; (sleep 60; echo no); echo no",
        "echo up; wait",
        "echo up; sleep 61 & read x < <(sleep 60)",
        "echo up; cat <(sleep 60)",
    ];
    for command in commands {
        assert_eq!(bash.interrupted(command), Response::failed(""), "{command}");
        assert_eq!(bash.status(), "130", "{command}");
        assert_eq!(
            bash.shows("echo $? $K; sleep 0.01"),
            "130 kept\n",
            "{command}"
        );
    }
    assert!(
        bash.screen().contains("sleep 1000") && bash.screen().contains("sleep 61"),
        "{}",
        bash.screen()
    );
}

#[test]
fn a_trapped_interrupt_runs_its_handler() {
    let mut bash = Bash::new();
    let catching =
        "bash -c 'trap \"echo caught; exit 5\" INT; echo up; while :; do sleep 0.01; done'";
    let response = bash.interrupted(&format!("{catching}; echo rc=$?; (exit 3)"));
    assert_eq!(
        (response.output.as_str(), bash.status().as_str()),
        ("caught\nrc=5\n", "3")
    );
    bash.shows("trap 'echo mine' INT");
    assert_eq!(
        bash.interrupted("echo up; sleep 60; echo on"),
        Response::done("mine\non\n")
    );
    assert_eq!(
        bash.shows("trap -p INT; trap - INT"),
        "trap -- 'echo mine' SIGINT\n"
    );
}

/// Resets SIGINT, which a shell ignores in background processes.
const DAEMON: &str = "import signal, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
open('ready', 'w').write('up\\n')
time.sleep(1000)
";

#[test]
fn an_interrupt_reaches_other_groups_and_spares_the_background() {
    let mut bash = Bash::new();
    fs::write(bash.folder.path().join("daemon.py"), DAEMON).unwrap();
    let background = "mkfifo ready; python3 daemon.py & cat ready";
    bash.begin_and_see_it_up(&format!(
        "{background}; timeout 100 sleep 100; setsid -w sleep 100"
    ));
    bash.environment.interrupt();
    bash.wait(Duration::from_millis(200));
    if bash.environment.is_running() {
        bash.environment.interrupt();
        bash.end();
    }
    assert_eq!(bash.shows("kill -0 $! && echo spared"), "spared\n");
}

#[test]
fn an_interrupt_at_any_moment_ends_the_command_and_no_other() {
    let mut bash = Bash::new();
    for command in [
        "while :; do :; done",
        "alias x=y; while :; do :; done; echo no",
        "trap ':' USR1\nwhile :; do :; done",
    ] {
        bash.shows("K=kept");
        for step in 0..40 {
            assert_eq!(bash.environment.begin(command), None);
            // The shell reads the command meanwhile.
            for number in 0..step * 1000 {
                let _ = std::hint::black_box(number);
            }
            bash.environment.interrupt();
            assert_eq!(bash.end(), Response::failed(""), "{command}, {step}");
            assert_eq!(bash.status(), "130", "{command}, {step}");
            assert_eq!(bash.shows("echo $? $K"), "130 kept\n", "{command}, {step}");
        }
    }
    assert_eq!(
        bash.shows("trap - USR1; unalias -a; trap -p; declare -F; set | grep ^__; true"),
        ""
    );
}

#[test]
fn early_or_repeated_interrupts_are_harmless() {
    let mut bash = Bash::new();
    for _ in 0..5 {
        assert_eq!(bash.environment.begin("sleep 60; echo no"), None);
        bash.environment.interrupt();
        bash.environment.interrupt();
        assert_eq!(bash.end(), Response::failed(""));
        bash.environment.interrupt();
        assert_eq!(bash.shows("echo fine"), "fine\n");
        assert_eq!(bash.environment.begin("true"), None);
        bash.environment.interrupt();
        bash.end();
        assert_eq!(bash.shows("sleep 0.01; echo fine"), "fine\n");
    }
}

#[test]
fn a_restart_gives_a_new_shell() {
    let mut bash = Bash::new();
    bash.shows("cd /; K=1; sleep 1000 & sleep 1000 &");
    bash.begin_and_see_it_up("echo up; trap '' TERM INT; while :; do :; done");
    bash.environment.restart();
    assert!(!bash.environment.is_running());
    assert_eq!(bash.screen(), "Bash shell (ready)");
    assert_eq!(
        bash.shows("echo \"[$K]\"; pwd"),
        format!("[]\n{}\n", bash.project())
    );
}
