//! Jobs whose output is watched while they run: pieces as they arrive, silence, too much output. With the sandbox and
//! without.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use orchestrator::internals::cancel::CancelToken;
use orchestrator::internals::process::sandbox::{
    PolicyPlan, ResourceLimits, SandboxMode, sandbox_policy,
};
use orchestrator::internals::process::{
    CallerEnv, Finished, JobEnd, Launcher, OutputWatch, run_watched,
};
use tempfile::TempDir;

use crate::process::{Marked, launcher};

const LIMIT: usize = 10_000_000;
/// Longer than any pause of a job that is not silent.
const IDLE: Duration = Duration::from_millis(1500);

/// A folder for jobs, and launchers without a sandbox and with each kind of it.
struct Place {
    folder: TempDir,
    private: TempDir,
}

impl Place {
    fn new() -> Place {
        Place {
            folder: tempfile::tempdir().unwrap(),
            private: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    fn sandboxed(&self, mode: SandboxMode) -> Launcher {
        let private = (mode == SandboxMode::Reduced).then_some(self.private.path());
        launcher().with_policy(sandbox_policy(&PolicyPlan {
            mode,
            workspace: &self.path(),
            root: None,
            base: &CallerEnv::new(env::vars_os()),
            read: &[],
            originals: &[],
            freeze: &[],
            private,
            devices: &[],
            network: false,
            limits: ResourceLimits::default(),
        }))
    }

    fn launchers(&self) -> [Launcher; 3] {
        [
            launcher(),
            self.sandboxed(SandboxMode::Full),
            self.sandboxed(SandboxMode::Reduced),
        ]
    }
}

fn watch(on_stdout: &mut dyn FnMut(&[u8])) -> OutputWatch<'_> {
    OutputWatch {
        idle_timeout: Some(IDLE),
        stdout_limit: LIMIT,
        on_stdout,
    }
}

fn run(launcher: &Launcher, folder: &Path, script: &str, watch: OutputWatch<'_>) -> Finished {
    let marked = Marked::shell(script).within(folder);
    let never = CancelToken::never().unwrap();
    let finished = run_watched(launcher, &marked.job, watch, &never).unwrap();
    marked.assert_gone();
    finished
}

/// Runs a script in each kind of sandbox, and checks how it ends.
#[track_caller]
fn ends(script: &str, expected: &JobEnd, check: impl Fn(&Finished)) {
    let place = Place::new();
    for launcher in place.launchers() {
        let mut seen = Vec::new();
        let mut on_stdout = |piece: &[u8]| seen.extend_from_slice(piece);
        let finished = run(&launcher, &place.path(), script, watch(&mut on_stdout));
        assert_eq!(finished.ended, *expected, "{script}");
        assert!(seen == finished.stdout.head, "{script}");
        check(&finished);
    }
}

#[test]
fn pieces_of_stdout_arrive_while_the_job_runs() {
    let script =
        "echo first; echo other >&2; until [ -e seen ]; do sleep 0.01; done; rm seen; echo last";
    let place = Place::new();
    for launcher in place.launchers() {
        let mut pieces = Vec::new();
        let mut on_stdout = |piece: &[u8]| {
            if pieces.is_empty() {
                fs::write(place.folder.path().join("seen"), "").unwrap();
            }
            pieces.push(String::from_utf8(piece.to_vec()).unwrap());
        };
        let finished = run(&launcher, &place.path(), script, watch(&mut on_stdout));
        assert_eq!(finished.ended, JobEnd::Exited(0));
        assert_eq!(pieces, ["first\n", "last\n"]);
        assert_eq!(finished.stderr.joined(), b"other\n");
    }
}

#[test]
fn stdout_up_to_the_limit_is_kept_whole() {
    let script = format!("head -c {LIMIT} /dev/zero; exit 3");
    ends(&script, &JobEnd::Exited(3), |finished| {
        assert!(finished.stdout.head == vec![0; LIMIT]);
        assert_eq!(
            (finished.stdout.dropped, finished.stdout.tail.len()),
            (0, 0)
        );
    });
}

#[test]
fn one_byte_more_than_the_limit_ends_the_job() {
    for then in ["exit 0", "sleep 1000"] {
        let script = format!("head -c {} /dev/zero; {then}", LIMIT + 1);
        ends(&script, &JobEnd::OutputLimit, |finished| {
            assert_eq!(
                (finished.stdout.head.len(), finished.stdout.total()),
                (LIMIT, LIMIT as u64 + 1)
            );
        });
    }
}

#[test]
fn endless_output_is_ended_in_bounded_memory() {
    ends(
        "(setsid sleep 1000 &); yes & yes",
        &JobEnd::OutputLimit,
        |finished| {
            assert_eq!(
                (finished.stdout.head.len(), finished.stdout.tail.len()),
                (LIMIT, 0)
            );
            // What one read returns, and the pipe.
            assert!(
                finished.stdout.dropped < 2 << 20,
                "{}",
                finished.stdout.dropped
            );
        },
    );
}

#[test]
fn stderr_is_not_limited() {
    let script = "head -c 30000000 /dev/zero >&2; echo done";
    ends(script, &JobEnd::Exited(0), |finished| {
        assert_eq!(finished.stderr.total(), 30_000_000);
        assert_eq!(finished.stdout.joined(), b"done\n");
    });
}

#[test]
fn a_silent_job_is_ended_with_its_process_tree() {
    for script in [
        "echo said; sleep 1000",
        "echo said; sleep 1000 & (setsid sleep 1000 &); wait",
        "echo said; exec >&- 2>&-; sleep 1000",
        "echo said; while :; do :; done",
    ] {
        ends(script, &JobEnd::Idle, |finished| {
            assert_eq!(finished.stdout.joined(), b"said\n");
        });
    }
}

#[test]
fn output_on_either_stream_is_not_silence() {
    let script = "for i in 1 2 3 4 5; do echo; sleep 0.2; echo >&2; sleep 0.2; done";
    ends(script, &JobEnd::Exited(0), |finished| {
        assert_eq!((finished.stdout.total(), finished.stderr.total()), (5, 5));
        assert!(IDLE < finished.took, "{:?}", finished.took);
    });
}

#[test]
fn without_an_idle_timeout_the_time_of_the_job_counts() {
    let place = Place::new();
    let mut marked = Marked::shell("echo said; sleep 1000").within(&place.path());
    marked.job.timeout = Duration::from_millis(700);
    let watch = OutputWatch {
        idle_timeout: None,
        stdout_limit: LIMIT,
        on_stdout: &mut |_| {},
    };
    let never = CancelToken::never().unwrap();
    let finished = run_watched(&launcher(), &marked.job, watch, &never).unwrap();
    assert_eq!(finished.ended, JobEnd::TimedOut);
    marked.assert_gone();
}
