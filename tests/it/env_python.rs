//! The environment `python`: a real interpreter, driven as `serve` drives it.

use std::ffi::OsString;
use std::fs;
use std::io::pipe;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use orchestrator::internals::environments::{
    Environment, PythonEnvironment, Response, WaitLimit, WaitResult,
};
use orchestrator::internals::process::Launcher;

const HEADER: &str = "Variables (by recent use):";

/// An interpreter in an empty project.
struct Python {
    folder: tempfile::TempDir,
    environment: PythonEnvironment,
}

impl Python {
    fn new() -> Python {
        Python::with(&[])
    }

    fn with(more: &[(&str, &str)]) -> Python {
        Python::at(tempfile::tempdir().unwrap(), more)
    }

    fn at(folder: tempfile::TempDir, more: &[(&str, &str)]) -> Python {
        let mut env: Vec<(OsString, OsString)> = vec![("PYTHONUNBUFFERED".into(), "1".into())];
        env.extend(
            ["PATH", "HOME"].map(|name| (name.into(), std::env::var_os(name).unwrap_or_default())),
        );
        env.extend(
            more.iter()
                .map(|(name, value)| (OsString::from(name), OsString::from(value))),
        );
        let launcher = Launcher::open(Path::new(env!("CARGO_BIN_EXE_orchestrator")));
        let project = folder.path().canonicalize().unwrap();
        Python {
            folder,
            environment: PythonEnvironment::new(launcher, project, env),
        }
    }

    fn project(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// Waits for the end of the running command.
    fn end(&mut self) -> Response {
        let (never, _open) = pipe().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        match self.environment.wait(WaitLimit {
            deadline: Some(deadline),
            wake: never.as_fd(),
        }) {
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

    /// Runs a command that fails, and returns its output.
    fn fails(&mut self, command: &str) -> String {
        let response = self.run(command);
        assert!(!response.success, "{command}: {}", response.output);
        response.output
    }

    /// Starts a command that makes the file `up`, and waits until it is there.
    fn begin(&mut self, command: &str) {
        assert_eq!(
            self.environment
                .begin(&format!("open('up', 'w').close()\n{command}")),
            None
        );
        let deadline = Instant::now() + Duration::from_secs(60);
        while !self.folder.path().join("up").exists() {
            assert!(Instant::now() < deadline, "{command}: it does not begin");
            std::thread::yield_now();
        }
        fs::remove_file(self.folder.path().join("up")).unwrap();
    }

    fn screen(&mut self) -> String {
        self.environment.screen().content
    }

    /// The names on the screen, in their order.
    fn names(&mut self) -> Vec<String> {
        let screen = self.screen();
        let (_, list) = screen
            .split_once(HEADER)
            .unwrap_or_else(|| panic!("{screen}"));
        list.lines()
            .filter_map(|line| Some(line.trim().split_once(": ")?.0.to_owned()))
            .collect()
    }
}

fn check(command: &str, expected: &str) {
    assert_eq!(Python::new().shows(command), expected, "{command}");
}

#[test]
fn expressions_are_printed_as_at_a_prompt() {
    let mut python = Python::new();
    assert_eq!(python.shows("1+1"), "2\n");
    assert_eq!(python.shows("_ + 1"), "3\n");
    assert_eq!(
        python.shows("None\nx = 5\n'a'\n\"\"\"b\"\"\""),
        "'a'\n'b'\n"
    );
    let nested = "if x:\n    x\nfor i in range(2):\n    i\nwith open('/dev/null'):\n    'w'\ntry:\n    1/0\nexcept \
                  ZeroDivisionError:\n    'caught'\nfinally:\n    'last'";
    assert_eq!(python.shows(nested), "5\n0\n1\n'w'\n'caught'\n'last'\n");
    assert_eq!(
        python.shows("def f():\n    'no'\n    return 1\nclass C:\n    'no'\n    2\nf()"),
        "1\n"
    );
    assert_eq!(python.shows(""), "");
    assert_eq!(python.shows("\n# nothing\n   "), "");
}

#[test]
fn path_arguments_and_globals_are_those_of_a_prompt() {
    let mut python = Python::with(&[("PYTHONPATH", "/nowhere:/nowhere/else:/nowhere")]);
    let seen = "import sys, os\nsys.path[:3], sys.argv, __name__, os.environ['PYTHONPATH']";
    let expected = "(['', '/nowhere', '/nowhere/else'], [''], '__main__', '/nowhere:/nowhere/else:/nowhere')\n";
    assert_eq!(python.shows(seen), expected);
    assert_eq!(
        python.shows("[name for name in globals() if name[0] != '_']"),
        "['sys', 'os']\n"
    );
    assert_eq!(
        python.shows("import pickle\nclass C: pass\ntype(pickle.loads(pickle.dumps(C()))) is C"),
        "True\n"
    );
}

#[test]
fn nothing_of_the_project_is_imported_before_the_first_command() {
    let folder = tempfile::tempdir().unwrap();
    let hostile = "open('hijacked', 'a').write(__name__)\n";
    for name in [
        "inspect",
        "re",
        "traceback",
        "fcntl",
        "select",
        "site",
        "sitecustomize",
        "posix",
        "os",
        "mine",
    ] {
        fs::write(folder.path().join(name).with_extension("py"), hostile).unwrap();
    }
    let path = folder.path().to_str().unwrap().to_owned();
    let mut python = Python::at(folder, &[("PYTHONPATH", &path)]);
    assert_eq!(python.shows("1+1"), "2\n");
    assert!(!python.project().join("hijacked").exists());
    python.shows("import mine");
    assert_eq!(
        fs::read_to_string(python.project().join("hijacked")).unwrap(),
        "mine"
    );
}

#[test]
fn a_python_inside_the_project_is_not_used() {
    let mut python = Python::new();
    let project = python.project();
    let fake = project.join("bin/python3");
    fs::create_dir(project.join("bin")).unwrap();
    fs::write(&fake, "#!/bin/sh\nexit 1\n").unwrap();
    fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let launcher = Launcher::open(Path::new(env!("CARGO_BIN_EXE_orchestrator")));
    let path = |path: &str| vec![(OsString::from("PATH"), OsString::from(path))];
    let real = std::env::var("PATH").unwrap();
    let first = path(&format!("{}:{real}", project.join("bin").display()));
    python.environment = PythonEnvironment::new(launcher.clone(), project.clone(), first);
    assert_eq!(python.shows("1+1"), "2\n");
    let alone = path(project.join("bin").to_str().unwrap());
    python.environment = PythonEnvironment::new(launcher, project, alone);
    assert!(python.fails("1+1").contains("python3 is not on PATH"));
}

#[test]
fn a_traceback_shows_only_the_users_lines() {
    let mut python = Python::new();
    let output = python.fails("def f():\n    return 1/0\nf()");
    assert!(output.starts_with(
        "Traceback (most recent call last):\n  File \"<python-input-1>\", line 3, in <module>"
    ));
    assert!(
        output.contains("    f()\n") && output.contains("    return 1/0\n"),
        "{output}"
    );
    assert!(!output.contains("driver"), "{output}");
    let output = python.fails("x = 2\nprint('ran')\nthis was wrong");
    assert!(
        output.starts_with("  File \"<python-input-2>\", line 3\n    this was wrong\n"),
        "{output}"
    );
    assert!(
        output.contains("SyntaxError") && !output.contains("ran"),
        "{output}"
    );
    let twice = "try:\n    f()\nexcept Exception as e:\n    raise ValueError('second') from e";
    let output = python.fails(twice);
    assert!(
        output.contains("ZeroDivisionError") && output.contains("ValueError: second"),
        "{output}"
    );
    assert!(!output.contains("driver"), "{output}");
}

#[test]
fn source_can_be_inspected() {
    let mut python = Python::new();
    let (function, class) = ("def f():\n    return 1\n", "class C:\n    size = 3\n");
    python.shows(function);
    python.shows(class);
    let output =
        python.shows("import inspect\nprint(inspect.getsource(f) + inspect.getsource(C), end='')");
    assert_eq!(output, format!("{function}{class}"));
}

#[test]
fn exit_ends_the_command_and_keeps_the_state() {
    let mut python = Python::new();
    python.shows("kept = 1\nimport sys");
    for command in [
        "sys.exit()",
        "sys.exit(0)",
        "exit()",
        "raise SystemExit(None)",
    ] {
        assert_eq!(python.shows(command), "", "{command}");
    }
    assert_eq!(python.fails("sys.exit(3)\nkept = 2"), "SystemExit: 3\n");
    assert_eq!(python.fails("sys.exit('bye')"), "bye\n");
    assert!(!python.run("sys.exit(256)").success);
    assert_eq!(python.shows("kept"), "1\n");
}

#[test]
fn a_death_is_reported_and_the_next_command_gets_a_new_interpreter() {
    let mut python = Python::new();
    python.shows("kept = 1");
    let output = python.fails("import os\nprint('before')\nos._exit(7)");
    assert!(
        output.starts_with("before\n[python ended: exit status 7; "),
        "{output}"
    );
    assert_eq!(
        python.screen(),
        "Python REPL (ready) (ended: exit status 7)"
    );
    assert_eq!(python.shows("'kept' in globals()"), "False\n");
    let output = python.fails("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)");
    assert!(output.contains("SIGSEGV"), "{output}");
}

#[test]
fn a_death_between_commands_is_reported_before_the_next_output() {
    let mut python = Python::new();
    let late = "import os, threading, time\ndef die():\n    while not os.path.exists('go'): time.sleep(0.01)\n    \
                os._exit(5)\nthreading.Thread(target=die).start()\nprint('begun')";
    assert_eq!(python.shows(late), "begun\n");
    fs::write(python.folder.path().join("go"), "").unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !python.screen().contains("(ended: exit status 5)") {
        assert!(Instant::now() < deadline, "{}", python.screen());
        std::thread::yield_now();
    }
    let output = python.shows("'fresh'");
    assert!(
        output.starts_with("[python ended: exit status 5; ") && output.ends_with("\n'fresh'\n"),
        "{output}"
    );
    assert_eq!(python.shows("1"), "1\n");
}

#[test]
fn stdin_is_empty() {
    let mut python = Python::new();
    assert!(python.fails("input('name? ')").contains("EOFError"));
    assert_eq!(
        python.shows("import sys, subprocess\nsys.stdin.read()"),
        "''\n"
    );
    assert_eq!(python.shows("subprocess.run(['cat']).returncode"), "0\n");
}

#[test]
fn all_output_streams_are_captured_in_order() {
    let command = "import os, sys\nprint('a', end='')\n_ = os.write(1, b'b')\n_ = sys.stderr.write('c')\n_ = \
                   os.system('echo d')\n_ = os.write(2, b'e')\nprint('f')";
    check(command, "abcd\nef\n");
}

#[test]
fn streams_are_restored_before_the_next_command() {
    let mut python = Python::new();
    let output = python.fails("import sys, io, os\nsys.stdout.close(); sys.stderr.close()\n1/0");
    assert!(output.contains("ZeroDivisionError"), "{output}");
    for harm in [
        "exit()",
        "sys.stdout = io.StringIO()",
        "sys.stdout = sys.stderr = None",
        "del sys.stdout, sys.stderr",
    ] {
        python.shows(harm);
        assert_eq!(
            python.shows("print('back'); sys.stdin.read()"),
            "back\n''\n",
            "{harm}"
        );
    }
    python.shows("os.close(0); os.close(1); os.close(2)");
    assert_eq!(python.shows("os.system('echo child; cat')"), "child\n0\n");
}

#[test]
fn redefined_builtins_do_not_affect_the_driver() {
    let mut python = Python::new();
    let harm = "import builtins, os, sys, io\nfor place in builtins, os, io:\n    for name in dir(place):\n        if \
                name[0] != '_': setattr(place, name, None)\nsys.excepthook = sys.displayhook = None";
    python.run(harm);
    assert!(python.fails("1/0").contains("ZeroDivisionError"));
    python.shows("kept = 1");
    assert_eq!(python.names().first().map(String::as_str), Some("kept"));
    let mut python = Python::new();
    python.shows("import sys\nsys.setrecursionlimit(60)\nglobals().clear()");
    assert_eq!(python.shows("6 * 7\n_ + 1"), "42\n43\n");
    assert!(python.fails("def f(): f()\nf()").contains("RecursionError"));
}

#[test]
fn data_written_to_the_channel_does_not_end_a_command() {
    let mut python = Python::new();
    let babble = "import os\nfor number in os.listdir('/proc/self/fd'):\n    if 2 < int(number):\n        try:\n            \
                  _ = os.write(int(number), b'\\nend\\x00999\\x000\\0/nowhere\\nready\\nx')\n        except OSError: \
                  pass\nprint('done')";
    assert!(python.shows(babble).ends_with("done\n"));
    assert_eq!(python.shows("1+1"), "2\n");
    let output = python.fails("os.closerange(3, 2000)");
    assert!(output.contains("[python ended: "), "{output}");
    assert_eq!(python.shows("1+1"), "2\n");
}

#[test]
fn forked_children_do_not_return_to_the_driver() {
    let mut python = Python::new();
    let fork =
        "import os, sys\npid = os.fork()\nif pid == 0: sys.exit(9)\nos.waitpid(pid, 0)[1] >> 8";
    assert_eq!(python.shows(fork), "9\n");
    let both = "pid = os.fork()\nif pid: _ = os.waitpid(pid, 0)\nprint(pid > 0)";
    assert_eq!(python.shows(both), "False\nTrue\n");
    let pool = "import multiprocessing\ndef square(x): return x * x\nwith multiprocessing.get_context('fork').Pool(2) as \
                pool:\n    pool.map(square, [1, 2, 3])";
    assert_eq!(python.shows(pool), "[1, 4, 9]\n");
    check(
        "import asyncio\nasync def f(): return 5\nasyncio.run(f())",
        "5\n",
    );
}

#[test]
fn an_interrupt_ends_the_command_and_its_children() {
    let mut python = Python::new();
    python.shows("kept = 1\nimport subprocess, signal, time");
    for command in [
        "while True: pass",
        "time.sleep(1000)",
        "subprocess.run(['sleep', '1000'])",
    ] {
        python.begin(command);
        python.environment.interrupt();
        let response = python.end();
        assert!(
            !response.success && response.output.contains("KeyboardInterrupt"),
            "{command}: {}",
            response.output
        );
        assert!(!response.output.contains("driver"), "{}", response.output);
        assert_eq!(python.shows("kept"), "1\n");
    }
    python.shows("signal.signal(signal.SIGINT, lambda *_: hits.append(1)) and None\nhits = []");
    python.begin("while not hits: pass");
    python.environment.interrupt();
    assert!(python.end().success);
    python.environment.interrupt();
    assert_eq!(python.shows("hits"), "[1]\n");
}

#[test]
fn an_interrupt_hits_only_its_command() {
    let mut python = Python::new();
    // At once: the interpreter has not even started.
    assert_eq!(python.environment.begin("while True: pass"), None);
    python.environment.interrupt();
    assert!(python.end().output.ends_with("KeyboardInterrupt\n"));
    for round in 0..100 {
        assert_eq!(python.environment.begin("while True: pass"), None);
        python.environment.interrupt();
        let output = python.end().output;
        assert!(output.ends_with("KeyboardInterrupt\n"), "{output}");
        // This may be before or after its end.
        assert_eq!(python.environment.begin("pass"), None);
        python.environment.interrupt();
        python.end();
        assert_eq!(
            python.shows(&format!("sum(range(1000)) + {round}")),
            format!("{}\n", 499_500 + round)
        );
    }
}

#[test]
fn a_timeout_returns_partial_output_and_the_rest_follows() {
    let mut python = Python::new();
    let wait = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('second')\n7";
    python.begin(wait);
    let (never, _open) = pipe().unwrap();
    let waited = python.environment.wait(WaitLimit {
        deadline: Some(Instant::now()),
        wake: never.as_fd(),
    });
    assert_eq!(waited, WaitResult::Late);
    assert!(python.environment.is_running());
    let mut output = String::new();
    while !output.ends_with("first\n") {
        output += &python.environment.take_output();
    }
    assert_eq!(output, "first\n");
    assert_eq!(python.screen(), "Python REPL (ready)");
    fs::write(python.folder.path().join("go"), "").unwrap();
    assert_eq!(python.end(), Response::done("second\n7\n"));
    assert!(!python.environment.is_running());
}

#[test]
fn a_restart_ends_everything() {
    let mut python = Python::new();
    python.begin("import subprocess\nsubprocess.run(['setsid', 'sleep', '1000'])");
    python.environment.restart();
    assert!(!python.environment.is_running());
    assert_eq!(python.screen(), "Python REPL (ready)");
    assert_eq!(python.shows("'subprocess' in globals()"), "False\n");
}

#[test]
fn commands_of_any_length_and_script() {
    let mut python = Python::new();
    assert_eq!(
        python.shows(&format!("len('{}')", "z".repeat(3_000_000))),
        "3000000\n"
    );
    let many: String = (0..9000)
        .map(|number| format!("v{number} = {number}\n"))
        .collect();
    assert_eq!(python.shows(&(many + "v0 + v8999")), "8999\n");
    assert_eq!(python.names().len(), 100);
    assert_eq!(
        python.shows("wört = 'é 世界 🙂'\nprint(wört)"),
        "é 世界 🙂\n"
    );
    assert_eq!(python.names()[0], "wört");
}

#[test]
fn the_screen_shows_the_variables_by_recent_use() {
    let mut python = Python::new();
    assert_eq!(python.screen(), "Python REPL (ready)");
    python.shows(
        "import os\n_private = 1\nfrom math import sqrt\nclass Box: pass\ndef f(): pass\nb = Box()",
    );
    let place = format!(
        "Working directory: {}\n\n{HEADER}",
        python.project().display()
    );
    assert_eq!(
        python.screen(),
        format!("{place}\n  Box: Box\n  f: function\n  b: Box")
    );
    python.shows("one = 1\ntwo = 2");
    assert_eq!(python.names(), ["one", "two", "Box", "f", "b"]);
    python.shows("'f' # two");
    assert_eq!(python.names(), ["two", "f", "one", "Box", "b"]);
    python.shows("three = Box.__name__\nones = 5\ndel one");
    assert_eq!(python.names(), ["Box", "three", "ones", "two", "f", "b"]);
    python.fails("b; syntax error");
    assert_eq!(python.names()[0], "b");
}

#[test]
fn a_variable_with_a_hostile_repr_shows_only_its_name() {
    let mut python = Python::new();
    let hostile = "class Meta(type):\n    def __getattribute__(cls, name): raise SystemExit(name)\nclass H(metaclass=Meta):\n    \
                   @property\n    def __class__(self): raise SystemExit('class')\nh = H()\nn = type('a\\nb', (), {})()\n\
                   globals()['x: y'] = globals()[5] = 1";
    assert_eq!(python.shows(hostile), "");
    assert!(
        python
            .screen()
            .ends_with("  Meta: Meta\n  H: H\n  h: H\n  n: a b"),
        "{}",
        python.screen()
    );
}

#[test]
fn a_deleted_directory_is_shown_as_such() {
    let mut python = Python::new();
    python.shows("import os\nos.mkdir('sub'); os.chdir('sub')");
    let below = python.project().join("sub");
    assert!(
        python
            .screen()
            .starts_with(&format!("Working directory: {}\n", below.display()))
    );
    python.shows("os.rmdir('../sub')");
    assert!(python.screen().starts_with(&format!(
        "Working directory: {} (deleted)\n",
        below.display()
    )));
    assert!(!Path::new(&below).exists());
}
