//! Real processes under the real supervisor: exit status, captured output, leftovers, environment.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by failing"
)]

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use orchestrator::internals::cancel::{CancelToken, Signal};
use orchestrator::internals::error::Error;
use orchestrator::internals::process::{
    self, Finished, Job, JobChannels, JobEnd, KEPT_AT_EACH_END, Launcher,
};
use rustix::process::{Pid, kill_process};

use crate::support::needs;
use crate::support::project::{BINARY, Project, RUN, answer_spec};
use crate::support::reply;
use crate::support::server::Server;
use crate::support::terminal::Terminal;

const LONG: Duration = Duration::from_secs(100);
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Set in a process that runs one job and reports how it ended; the value is the shell script to run.
const SCRIPT: &str = "ORCHESTRATOR_TEST_SCRIPT";
const MARK: &str = "ORCHESTRATOR_TEST_MARK";

/// A job whose process tree is recognised by an inherited variable.
pub(crate) struct Marked {
    pub(crate) job: Job,
    mark: String,
}

impl Marked {
    fn command(words: &[&str]) -> Marked {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mark = format!(
            "{}-{}-",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::SeqCst)
        );
        let env = vec![
            ("PATH".into(), PATH.into()),
            (MARK.into(), OsString::from(&mark)),
        ];
        let command = words.iter().map(OsString::from).collect();
        Marked {
            job: Job {
                command,
                cwd: "/dev".into(),
                env,
                timeout: LONG,
            },
            mark,
        }
    }

    pub(crate) fn shell(script: &str) -> Marked {
        Marked::command(&["sh", "-c", script])
    }

    pub(crate) fn within(mut self, path: &Path) -> Marked {
        self.job.cwd = path.to_owned();
        self
    }

    /// Sets a timeout that expires as soon as the process tree exists.
    fn timing_out(mut self) -> Marked {
        self.job.timeout = Duration::from_millis(700);
        self
    }

    fn run(&self) -> Finished {
        let finished = process::run(
            &launcher(),
            &self.job,
            JobChannels::NONE,
            &CancelToken::never().unwrap(),
        )
        .unwrap();
        self.assert_gone();
        finished
    }

    #[track_caller]
    pub(crate) fn assert_gone(&self) {
        let command = &self.job.command;
        assert_eq!(
            self.survivors(),
            Vec::<String>::new(),
            "left by {command:?}"
        );
    }

    /// The processes of this job's tree that are alive.
    fn survivors(&self) -> Vec<String> {
        let mark = format!("{MARK}={}", self.mark);
        let is_marked = |pid: &String| {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment
                .windows(mark.len())
                .any(|window| window == mark.as_bytes())
        };
        let names = fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        names
            .filter(|name| name.parse::<u32>().is_ok())
            .filter(is_marked)
            .collect()
    }
}

pub(crate) fn launcher() -> Launcher {
    Launcher::open(Path::new(env!("CARGO_BIN_EXE_orchestrator")))
}

fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

#[track_caller]
fn ends(script: &str, expected: JobEnd) {
    assert_eq!(Marked::shell(script).run().ended, expected, "{script}");
}

#[track_caller]
fn cannot_start(job: &Marked, reason: &str) {
    match job.run().ended {
        JobEnd::CannotStart(why) => assert!(why.contains(reason), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn exit_codes_and_signals_are_distinguished() {
    ends("exit 0", JobEnd::Exited(0));
    ends("exit 1", JobEnd::Exited(1));
    ends("exit 255", JobEnd::Exited(255));
    ends("kill -SEGV $$", JobEnd::Signalled(11));
    ends("kill -KILL $$", JobEnd::Signalled(9));
    ends("kill -ABRT $$", JobEnd::Signalled(6));
    ends("kill -TERM $$", JobEnd::Signalled(15));
}

#[test]
fn both_streams_are_kept_apart() {
    let finished = Marked::shell("echo out; echo err >&2; exit 3").run();
    assert_eq!(finished.ended, JobEnd::Exited(3));
    assert_eq!(
        (
            text(finished.stdout.joined()),
            text(finished.stderr.joined())
        ),
        ("out\n".into(), "err\n".into())
    );
}

#[test]
fn arguments_environment_and_folder_arrive_as_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let odd = folder.path().join(OsString::from_vec(b"od\xFFd".to_vec()));
    fs::create_dir(&odd).unwrap();
    let mut job = Marked::shell("printf '%s|' \"$1\" \"$2\" \"$ODD\"; pwd").within(&odd);
    job.job.command.extend([
        "name".into(),
        OsString::from_vec(b"a\xFE b".to_vec()),
        "".into(),
    ]);
    job.job
        .env
        .push(("ODD".into(), OsString::from_vec(b"\xFD\n=".to_vec())));
    let mut expected = b"a\xFE b||\xFD\n=|".to_vec();
    expected.extend(odd.into_os_string().into_vec());
    expected.push(b'\n');
    assert_eq!(job.run().stdout.joined(), expected);
}

#[test]
fn nothing_is_inherited_implicitly() {
    let finished =
        Marked::shell("env; echo --; cat; ps -o tty= -p $$; cat /proc/$PPID/environ").run();
    let output = text(finished.stdout.joined());
    let (environment, rest) = output.split_once("--\n").unwrap();
    let names: Vec<_> = environment
        .lines()
        .filter_map(|line| line.split('=').next())
        .collect();
    assert!(
        names
            .iter()
            .all(|name| ["PATH", MARK, "PWD", "_", "SHLVL", "OLDPWD"].contains(name)),
        "{names:?}"
    );
    assert_eq!(
        rest.trim(),
        "?",
        "no input, no terminal, and the supervisor has nothing to show"
    );
}

#[test]
fn a_child_has_three_descriptors() {
    let held = fs::File::open("/dev/zero").unwrap();
    rustix::io::fcntl_setfd(&held, rustix::io::FdFlags::empty()).unwrap();
    let output = text(Marked::shell("ls -l /proc/self/fd").run().stdout.joined());
    let links: Vec<_> = output
        .lines()
        .filter_map(|line| line.split_once(" -> "))
        .map(|(_, to)| to)
        .collect();
    // The fourth is the folder itself, which `ls` holds open to list it.
    assert_eq!(links.len(), 4, "{output}");
    assert_eq!(links[0], "/dev/null");
    assert!(links[3].ends_with("/fd"), "{output}");
}

#[test]
fn a_failed_start_reports_its_cause() {
    let folder = tempfile::tempdir().unwrap();
    let script = |name: &str, content: &str, mode| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    };
    script("plain", "#!/bin/sh\n", 0o644);
    script("orphan", "#!/no/such/interpreter\n", 0o755);
    script("noise", "noise", 0o755);
    cannot_start(&Marked::command(&[]), "empty");
    cannot_start(&Marked::command(&[""]), "empty");
    cannot_start(&Marked::command(&["no-such-program"]), "not on PATH");
    cannot_start(&Marked::command(&["echo", "a\0b"]), "NUL");
    cannot_start(
        &Marked::command(&["true"]).within(&folder.path().join("gone")),
        "cannot enter",
    );
    for (name, reason) in [
        ("./missing", "does not exist"),
        ("./plain", "not executable"),
        ("./orphan", "interpreter"),
        ("./noise", "no #! line"),
        ("/usr", "folder"),
        ("plain", "not on PATH"),
    ] {
        cannot_start(&Marked::command(&[name]).within(folder.path()), reason);
    }
}

#[test]
fn a_program_of_the_workspace_runs_only_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let tool = folder.path().join("tool");
    fs::write(&tool, "#!/bin/sh\necho \"$0\"\n").unwrap();
    fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(
        Marked::command(&["./tool"])
            .within(folder.path())
            .run()
            .stdout
            .joined(),
        b"./tool\n"
    );
    for path in [folder.path().as_os_str(), ".".as_ref(), "".as_ref()] {
        let mut job = Marked::command(&["tool"]).within(folder.path());
        job.job.env[0].1 = path.to_owned();
        cannot_start(&job, "not on PATH");
    }
}

#[test]
fn a_timeout_keeps_the_output_so_far() {
    let finished = Marked::shell("echo before; sleep 1000; echo after")
        .timing_out()
        .run();
    assert_eq!(
        (finished.ended, finished.stdout.joined()),
        (JobEnd::TimedOut, b"before\n".to_vec())
    );
}

#[test]
fn a_timeout_ends_the_whole_process_tree() {
    for script in [
        "sleep 1000 & sleep 1000",
        "trap '' TERM INT HUP; while :; do sleep 1000; done",
        "while :; do :; done",
        "setsid sleep 1000 & wait",
        "(setsid sh -c 'sleep 1000 & sleep 1000' <&- >&- 2>&- &) ; sleep 1000",
        "sleep 1000 & kill -STOP $!; kill -STOP $$",
        "exec >&- 2>&-; sleep 1000",
        "kill -STOP $PPID; sleep 1000",
    ] {
        assert_eq!(
            Marked::shell(script).timing_out().run().ended,
            JobEnd::TimedOut,
            "{script}"
        );
    }
}

/// Three daemons outside of every process group that ignore signals, hold the output and fork all the time.
const HOSTILE: &str = r#"
    f() { trap '' HUP INT QUIT TERM; sleep 0.05; (f) & exit; }
    case "$1" in again) f;; esac
    for i in 1 2 3; do (setsid sh "$0" again &); done
"#;

#[test]
fn a_hostile_process_tree_is_ended_with_its_command_or_timeout() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("hostile.sh"), HOSTILE).unwrap();
    let exits = Marked::shell("sh hostile.sh; sleep 0.2; exit 4").within(folder.path());
    assert_eq!(exits.run().ended, JobEnd::Exited(4));
    let stays = Marked::shell("sh hostile.sh; sleep 1000")
        .within(folder.path())
        .timing_out();
    assert_eq!(stays.run().ended, JobEnd::TimedOut);
}

#[test]
fn a_child_that_holds_the_output_delays_nothing() {
    let finished = Marked::shell("sleep 1000 & (setsid sleep 1000 &); echo done").run();
    assert_eq!(
        (finished.ended, finished.stdout.joined()),
        (JobEnd::Exited(0), b"done\n".to_vec())
    );
}

#[test]
fn a_flood_of_output_is_counted_and_its_ends_are_kept() {
    let finished = Marked::shell("echo first; yes | head -c 1000000000; printf last >&1").run();
    assert_eq!(finished.ended, JobEnd::Exited(0));
    assert_eq!(finished.stdout.total(), 1_000_000_010);
    assert_eq!(
        [finished.stdout.head.len(), finished.stdout.tail.len()],
        [KEPT_AT_EACH_END; 2]
    );
    let kept = text(finished.stdout.joined());
    assert!(kept.starts_with("first\ny\n") && kept.ends_with("y\nlast"));
    assert!(kept.contains("\n[... 995000010 bytes dropped ...]\n"));
}

#[test]
fn a_wrong_supervisor_is_an_internal_error() {
    let launcher = Launcher::open(Path::new("/bin/true"));
    let error = process::run(
        &launcher,
        &Marked::shell("").job,
        JobChannels::NONE,
        &CancelToken::never().unwrap(),
    )
    .unwrap_err();
    assert!(matches!(error, Error::Bug(_)), "{error}");
    let launcher = Launcher::open(Path::new("/no/such/binary"));
    let error = process::run(
        &launcher,
        &Marked::shell("").job,
        JobChannels::NONE,
        &CancelToken::never().unwrap(),
    )
    .unwrap_err();
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

/// Does nothing as a test: with the variable set, this process acts as an orchestrator with one job.
#[test]
fn orchestrator_process() {
    let Ok(script) = std::env::var(SCRIPT) else {
        return;
    };
    process::adopt_orphans().unwrap();
    let mut job = Marked::shell(&script);
    job.job.env[1].1 = std::env::var_os(MARK).unwrap();
    let ended = process::run(
        &launcher(),
        &job.job,
        JobChannels::NONE,
        &CancelToken::on_signals().unwrap(),
    )
    .map(|finished| finished.ended);
    println!("ended: {ended:?}");
}

/// Starts a separate orchestrator for a script; `marked` finds its process tree, without that process.
fn orchestrator(script: &str, marked: &Marked) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "process::orchestrator_process", "--nocapture"]);
    command
        .env(SCRIPT, script)
        .env(MARK, format!("{} ", marked.mark))
        .stdout(Stdio::piped());
    command
}

#[test]
fn nothing_outlives_a_killed_orchestrator() {
    let marked = Marked::shell("");
    let folder = tempfile::tempdir().unwrap();
    let (hostile, ready) = (
        folder.path().join("hostile.sh"),
        folder.path().join("ready"),
    );
    fs::write(&hostile, HOSTILE).unwrap();
    let script = format!(
        "sh {}; kill -STOP $PPID; touch {}; sleep 1000",
        hostile.display(),
        ready.display()
    );
    let mut child = orchestrator(&script, &marked).spawn().unwrap();
    eventually("the job is under way", || ready.exists());
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("the tree is gone", || marked.survivors().is_empty());
}

#[test]
fn a_signal_ends_the_process_tree_and_is_reported() {
    let marked = Marked::shell("");
    let folder = tempfile::tempdir().unwrap();
    let ready = folder.path().join("ready");
    let script = format!(
        "(setsid sleep 1000 &); touch {}; sleep 1000",
        ready.display()
    );
    let child = orchestrator(&script, &marked).spawn().unwrap();
    eventually("the job is under way", || ready.exists());
    kill_process(Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    let output = text(child.wait_with_output().unwrap().stdout);
    assert!(
        output.contains(&format!(
            "ended: Err({:?})",
            Error::Stopped(Signal::Terminate)
        )),
        "{output}"
    );
    assert_eq!(marked.survivors(), Vec::<String>::new());
}

#[test]
fn a_job_that_kills_its_supervisor_is_ended() {
    let marked = Marked::shell("");
    let folder = tempfile::tempdir().unwrap();
    let hostile = folder.path().join("hostile.sh");
    fs::write(&hostile, HOSTILE).unwrap();
    let script = format!(
        "sh {}; sleep 1000 & kill -9 $PPID; sleep 1000",
        hostile.display()
    );
    let output = text(orchestrator(&script, &marked).output().unwrap().stdout);
    assert!(output.contains("ended: Ok(Signalled(9))"), "{output}");
    assert_eq!(marked.survivors(), Vec::<String>::new());
}

#[test]
fn at_a_terminal_no_child_is_started_by_vfork() {
    if !needs::may_trace() {
        return;
    }
    let server = Server::start([reply::answer("42")]);
    let project = Project::with(answer_spec(), &server);
    let mut arguments = vec!["-f", "--detach-on=execve", "-qq", "-o", "calls"];
    arguments.extend(["-e", "trace=clone,clone3,vfork", BINARY]);
    arguments.extend(RUN);
    let (code, seen) = Terminal::start(project.command("strace", &arguments)).wait();
    assert_eq!(code, 0, "{seen}");
    let calls = project.read("calls");
    let is_process = |line: &&str| line.contains("clone") && !line.contains("CLONE_THREAD");
    assert!(calls.lines().any(|line| is_process(&line)), "{calls}");
    assert!(!calls.to_lowercase().contains("vfork"), "{calls}");
}
