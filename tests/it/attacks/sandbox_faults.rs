//! Every step of the sandbox set-up fails in turn: the announced protection holds, or nothing is run.
//!
//! `strace` fails the first, second, … such call of each process, in the probe at the start and in the check. The
//! check tries to escape and records what it can see.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use crate::support::needs;
use crate::support::needs::may_trace;
use crate::support::project::{Project, RUN};
use crate::support::restrictions::Restrictions;
use crate::support::running::{Ran, Running};

/// With very many calls of one kind, only this many of the first and of the last are failed.
const ENDS: u32 = 4;
const OF_NAMESPACES: [(&str, &str); 7] = [
    ("clone", "EPERM"),
    ("mount", "EPERM"),
    ("mount_setattr", "ENOSYS"),
    ("pivot_root", "EPERM"),
    ("umount2", "EPERM"),
    ("socket", "EPERM"),
    // The uid and gid maps, as on a system that allows user namespaces without any rights in them.
    ("write", "EPERM"),
];
const OF_THE_REST: [(&str, &str); 9] = [
    ("landlock_create_ruleset", "ENOSYS"),
    ("landlock_create_ruleset", "EINVAL"),
    ("landlock_add_rule", "EINVAL"),
    ("landlock_restrict_self", "E2BIG"),
    ("seccomp", "EINVAL"),
    ("prctl", "EINVAL"),
    ("capset", "EPERM"),
    ("prlimit64", "EPERM"),
    ("setsid", "EPERM"),
];

#[test]
fn no_namespace_step_fails_silently() {
    each_fails(Restrictions::default(), &OF_NAMESPACES);
}

#[test]
fn no_other_sandbox_step_fails_silently() {
    each_fails(Restrictions::default(), &OF_THE_REST);
}

#[test]
fn no_step_of_reduced_mode_fails_silently() {
    each_fails(Restrictions::default().without_namespaces(), &OF_THE_REST);
}

fn each_fails(restrictions: Restrictions, calls: &[(&str, &str)]) {
    if !may_trace() {
        return;
    }
    let project = project().restricted(restrictions);
    let counts = counts(&project, calls);
    for (call, error) in calls {
        let count = counts.get(*call).copied().unwrap_or(0);
        assert!(
            0 < count || restrictions.refuses_namespaces,
            "{call} is not called at all"
        );
        for number in (1..=count).filter(|number| *number <= ENDS || count < number + ENDS) {
            let fault = format!("inject={call}:error={error}:when={number}");
            let ran = traced(
                &project,
                &[
                    "-o",
                    "/dev/null",
                    "-e",
                    &format!("trace={call}"),
                    "-e",
                    &fault,
                ],
            );
            assert!(!ran.stderr.contains("strace: "), "{}", ran.transcript());
            check_run(&project, &ran, &fault);
        }
    }
    project.nothing_left();
}

/// A system without namespaces: a user namespace whose limit of nested ones is 0.
#[test]
fn a_namespace_limit_is_detected() {
    let setting = "/proc/sys/user/max_user_namespaces";
    let project = project();
    let at_once = format!("unshare -Ur sh -c 'echo 0 > {setting}; exec \"$@\"' sh \"$@\"");
    let ran = project.run_in_shell(&at_once, RUN);
    if ran.stderr.contains("unshare") {
        needs::skip(&ran.stderr);
        return;
    }
    let ran = ran.says("sandbox: reduced").says("No space left on device");
    check_run(&project, &ran, "no namespaces");
}

/// Neither namespaces nor Landlock: nothing is run or changed without `--no-sandbox`.
#[test]
fn without_any_sandbox_layer_nothing_is_run() {
    if !may_trace() {
        return;
    }
    let project = project().restricted(Restrictions::default().without_namespaces());
    let none = "inject=landlock_create_ruleset:error=EOPNOTSUPP";
    let options = [
        "-o",
        "/dev/null",
        "-e",
        "trace=landlock_create_ruleset",
        "-e",
        none,
    ];
    let before = project.files();
    traced(&project, &options)
        .exits(2)
        .says("no sandbox available")
        .says("Fix: ");
    assert_eq!(project.files(), before);
    let arguments = [
        &["-f", "--seccomp-bpf", "-qq"],
        &options[..],
        &[&project.binary(), "serve", "--project-dir", "."],
    ];
    let served = Running::start(
        project.command("strace", &arguments.concat()),
        project.root(),
    )
    .wait();
    served.exits(2).says("no sandbox available");
    let open = [RUN, &["--no-sandbox"]].concat();
    project.run(&open).exits(0).says("--no-sandbox");
    assert!(
        project.outside("marker").exists(),
        "without a sandbox the check can write outside"
    );
}

fn spec() -> String {
    // Each line is one attempt at something that is announced as prevented.
    let check = "echo hostile > ../../marker; cat ../../home/secret > stolen; chmod 751 ../../home/secret && echo > changed; \
                 grep -E 'NoNewPrivs|Seccomp:|CapEff' /proc/self/status > status; ls /proc | grep -c '^[0-9]' > processes; \
                 exit 0";
    crate::support::project::checked_by(check)
        + "generator: {provider: template, template: template/}\n"
}

fn project() -> Project {
    let project = Project::below(Path::new("/var/tmp"))
        .spec(spec())
        .file("specs/template/0/answer.txt", "42\n");
    fs::write(project.outside("home/secret"), "secret\n").unwrap();
    project
}

fn traced(project: &Project, options: &[&str]) -> Ran {
    let binary = project.binary();
    let arguments = [
        &["-f", "--seccomp-bpf", "-qq"],
        options,
        &[&binary],
        RUN,
        &["--no-resume"],
    ]
    .concat();
    Running::start(project.command("strace", &arguments), project.root()).wait()
}

/// How many of these calls the busiest process makes where nothing fails.
fn counts(project: &Project, calls: &[(&str, &str)]) -> BTreeMap<String, u32> {
    let file = project.outside("calls");
    let names: Vec<&str> = calls.iter().map(|(call, _)| *call).collect();
    let trace = format!("trace={}", names.join(","));
    traced(project, &["-o", &file.display().to_string(), "-e", &trace]).exits(0);
    let mut of_processes: BTreeMap<(String, String), u32> = BTreeMap::new();
    for line in fs::read_to_string(file).unwrap().lines() {
        let mut words = line
            .split([' ', '('])
            .filter(|word| !word.is_empty())
            .map(str::to_owned);
        if let (Some(process), Some(call)) = (words.next(), words.next()) {
            *of_processes.entry((call, process)).or_default() += 1;
        }
    }
    let mut counts = BTreeMap::new();
    for ((call, _), count) in of_processes {
        let most = counts.entry(call).or_insert(0);
        *most = count.max(*most);
    }
    counts
}

/// The announced protection held, or nothing was run and this was reported.
fn check_run(project: &Project, ran: &Ran, fault: &str) {
    let transcript = || format!("{fault}\n{}", ran.transcript());
    assert!(
        !project.outside("marker").exists(),
        "written outside: {}",
        transcript()
    );
    let secret = project.outside("home/secret");
    let is_changed = fs::metadata(&secret).unwrap().permissions().mode() & 0o777 == 0o751;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o644)).unwrap();
    let is_reduced = ran.stderr.contains("sandbox: reduced");
    assert!(
        !is_changed || is_reduced,
        "changed outside: {}",
        transcript()
    );
    match ran.code {
        Some(2) => {
            assert!(
                ran.stderr.contains("no sandbox") || ran.stderr.contains("the sandbox cannot"),
                "{}",
                transcript()
            )
        }
        // A call that the binary itself needs may fail as well; then no check runs.
        Some(70 | 74) => assert!(
            ran.stderr.contains("cannot") || ran.stderr.contains("bug"),
            "{}",
            transcript()
        ),
        // If the shell of the check was hit itself, its record is incomplete.
        Some(1) => assert!(
            is_reduced || ran.stderr.contains("sandbox: full"),
            "not a word: {}",
            transcript()
        ),
        Some(0) => {
            assert!(
                is_reduced || ran.stderr.contains("sandbox: full"),
                "not a word: {}",
                transcript()
            );
            let status: Vec<String> = project
                .workspace("status")
                .split_whitespace()
                .map(str::to_owned)
                .collect();
            assert_eq!(
                status,
                [
                    "CapEff:",
                    "0000000000000000",
                    "NoNewPrivs:",
                    "1",
                    "Seccomp:",
                    "2"
                ],
                "{}",
                transcript()
            );
            assert_eq!(project.workspace("stolen"), "", "{}", transcript());
            let processes: u32 = project.workspace("processes").trim().parse().unwrap();
            assert!(
                is_reduced || processes < 10,
                "{processes} processes: {}",
                transcript()
            );
        }
        _ => panic!("{}", transcript()),
    }
}
