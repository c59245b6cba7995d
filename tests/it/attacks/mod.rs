//! A hostile program in the sandbox, in every mode and as root and as an unprivileged user: nothing outside changes.
//!
//! `hostile.py` makes all attempts and records the result of each; here each result is evaluated, and then the
//! outside (`outside.rs`) is compared with its earlier state. `tests/ATTACKS.md` names the tests of every attack.

mod outside;
mod sandbox_faults;
mod single;

use crate::attacks::outside::Outside;
use crate::support::needs;
use crate::support::project::{Project, RUN};
use crate::support::reply;
use crate::support::restrictions::Restrictions;
use crate::support::serve_client::Serving;
use crate::support::server::Server;

const HOSTILE: &str = include_str!("hostile.py");
/// What reduced mode does not protect, as the first line of a run must name it.
const LOST: [&str; 4] = [
    "modes and times of your own files outside can be changed",
    "other processes can be seen",
    "there are no unix sockets, no loopback and no shared memory",
    "there are no terminals but for environments of env/, which can open yours",
];
/// What ordinary programs cannot do in reduced mode.
const NOT_IN_REDUCED: [&str; 5] = [
    "loopback by TCP",
    "loopback by UDP",
    "sockets with a name",
    "shared memory",
    "a terminal of one's own",
];

#[test]
fn hostile_check_in_full_mode() {
    check(Restrictions::default());
}

#[test]
fn hostile_check_in_full_mode_as_unprivileged_user() {
    check(Restrictions::unprivileged());
}

#[test]
fn hostile_check_in_full_mode_without_landlock() {
    check(Restrictions::default().without_landlock());
}

#[test]
fn hostile_check_in_full_mode_without_landlock_as_unprivileged_user() {
    check(Restrictions::unprivileged().without_landlock());
}

#[test]
fn hostile_check_in_reduced_mode() {
    check(Restrictions::default().without_namespaces());
}

#[test]
fn hostile_check_in_reduced_mode_as_unprivileged_user() {
    check(Restrictions::unprivileged().without_namespaces());
}

#[test]
fn hostile_shell_in_full_mode() {
    shell(Restrictions::default());
}

#[test]
fn hostile_shell_in_full_mode_as_unprivileged_user() {
    shell(Restrictions::unprivileged());
}

#[test]
fn hostile_shell_in_reduced_mode() {
    shell(Restrictions::default().without_namespaces());
}

#[test]
fn hostile_shell_in_reduced_mode_as_unprivileged_user() {
    shell(Restrictions::unprivileged().without_namespaces());
}

/// The hostile program as a check; the next check finds no trace of it, and the run ends.
fn check(restrictions: Restrictions) {
    let server = Server::start([reply::answer("42")]);
    let mut outside = Outside::new(restrictions, &server);
    let marker = outside.project.marker().to_owned();
    let clean = format!(
        "! ls -a /tmp /dev/shm /run \"$HOME\" \"$TMPDIR\" | grep {marker} && test ! -e \"$HOME/x\""
    );
    let spec = serde_json::json!({
        "name": "hostile", "description": "Get out.",
        "workspace": {"copy": ["../../hostile/hostile.py", "../../hostile/facts.json"]},
        "checks": [
            {"name": "hostile", "command": ["python3", "hostile.py"]},
            {"name": "clean", "command": ["sh", "-c", clean]},
        ],
        "sandbox": {"read": ["../../open"]},
        "max_retries": 1,
        "baseline": false,
    });
    let mode = mode_of(restrictions);
    outside.project.write("specs/spec.yaml", spec.to_string());
    outside.project.write("../hostile/hostile.py", HOSTILE);
    outside.project.write(
        "../hostile/facts.json",
        outside.facts(mode, &server).to_string(),
    );
    outside.record_state();
    let ran = outside.project.run(RUN).exits(0);
    if !is_in_mode(mode, &ran.stderr) {
        return;
    }
    evaluate(restrictions, &outside.project, "workspace/results.json");
    assert_eq!(server.count(), 1);
    outside.project.run(&["status"]).exits(0);
    outside.project.run(&["reset"]).exits(0);
    outside.is_unchanged(gap(restrictions));
}

/// The hostile program in a shell of `serve`; the other environments find no trace of it.
fn shell(restrictions: Restrictions) {
    let server = Server::start([]);
    let mut outside = Outside::new(restrictions, &server);
    let mode = mode_of(restrictions);
    outside.project.write(
        "workspace/facts.json",
        outside.facts(mode, &server).to_string(),
    );
    outside.project.write("workspace/hostile.py", HOSTILE);
    outside.record_state();
    let open = outside.project.outside("open").display().to_string();
    let mut serving = Serving::at(&outside.project, "workspace", &["--read", &open]);
    let answer = serving.bash("python3 hostile.py");
    assert_eq!(answer.shows(), "");
    let seen = "import os; [p for p in os.listdir('/proc') if p.isdigit() and b'hostile' in open(f'/proc/{p}/cmdline','rb').read()]";
    serving.bash("exec -a hostile sleep 1000 &");
    if mode == "full" {
        assert_eq!(serving.python(seen).shows(), "[]\n");
    }
    let said = serving.end().stderr;
    if is_in_mode(mode, &said) {
        evaluate(restrictions, &outside.project, "workspace/results.json");
        outside.is_unchanged(gap(restrictions));
    }
}

fn mode_of(restrictions: Restrictions) -> &'static str {
    if restrictions.refuses_namespaces {
        "reduced"
    } else {
        "full"
    }
}

/// The one file whose mode and times can be changed in reduced mode.
fn gap(restrictions: Restrictions) -> &'static [&'static str] {
    if restrictions.refuses_namespaces {
        &["home/metadata", "open", "open/file"]
    } else {
        &[]
    }
}

/// Whether the run was in the mode under test, with all losses named; the test is skipped where the system does not
/// offer it.
fn is_in_mode(mode: &str, said: &str) -> bool {
    let Some(line) = said.lines().find(|line| line.contains("sandbox: ")) else {
        panic!("no line about the sandbox: {said}")
    };
    let is_reduced = line.contains("sandbox: reduced");
    if is_reduced {
        LOST.iter()
            .for_each(|lost| assert!(line.contains(lost), "{lost:?} is not said: {line}"));
    }
    if is_reduced && mode == "full" {
        needs::skip(line);
    }
    is_reduced == (mode == "reduced")
}

/// Evaluates every attempt; `worked` is an escape unless reduced mode is known to allow it.
fn evaluate(restrictions: Restrictions, project: &Project, results: &str) {
    let results: Vec<(String, String, String)> =
        serde_json::from_str(&project.read(results)).unwrap();
    assert!(150 < results.len(), "only {} attempts", results.len());
    let wrong: Vec<_> = results
        .iter()
        .filter(|(row, name, outcome)| !is_right(restrictions, row, name, outcome))
        .collect();
    assert!(wrong.is_empty(), "{restrictions:?}: {wrong:#?}");
}

fn is_right(restrictions: Restrictions, row: &str, name: &str, outcome: &str) -> bool {
    let worked = outcome.starts_with("worked");
    match row {
        "ordinary" => worked != (restrictions.refuses_namespaces && NOT_IN_REDUCED.contains(&name)),
        "A24" if restrictions.refuses_namespaces => true,
        // A packet into the private network arrives nowhere; the listener and the decoy outside show whether one escaped.
        "A32" if name.starts_with("send to") => true,
        "A34" if name == "signal everybody" => true,
        _ => !worked,
    }
}
