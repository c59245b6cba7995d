//! A hostile program behind the walls, in every mode and as every kind of user: nothing outside changes.
//!
//! `hostile.py` makes all attempts of a run at once and writes down what each came to; here each is judged, and then the
//! outside (`outside.rs`) is compared with what it was. `tests/ATTACKS.md` names for every attack the tests that hold it.

mod outside;
mod sandbox_faults;
mod single;

use crate::attacks::outside::World;
use crate::support::project::{Project, RUN};
use crate::support::reply;
use crate::support::restrictions::Guise;
use crate::support::serve_client::Serving;
use crate::support::server::Server;

const HOSTILE: &str = include_str!("hostile.py");
/// What reduced walls lose, as the first line of a run has to say it.
const LOST: [&str; 4] = [
    "modes and times of your own files outside can be changed",
    "other processes can be seen",
    "there are no unix sockets, no loopback and no shared memory",
    "there are no terminals but for environments of env/, which can open yours",
];
/// What is lost in reduced mode of what ordinary programs have.
const NOT_IN_REDUCED: [&str; 5] = [
    "loopback by TCP",
    "loopback by UDP",
    "sockets with a name",
    "shared memory",
    "a terminal of one's own",
];

#[test]
fn hostile_check_in_full_mode() {
    check(Guise::default());
}

#[test]
fn hostile_check_in_full_mode_as_unprivileged_user() {
    Guise::nobody().into_iter().for_each(check);
}

#[test]
fn hostile_check_in_full_mode_without_landlock() {
    check(Guise::default().without_landlock());
}

#[test]
fn hostile_check_in_full_mode_without_landlock_as_unprivileged_user() {
    Guise::nobody()
        .map(Guise::without_landlock)
        .into_iter()
        .for_each(check);
}

#[test]
fn hostile_check_in_reduced_mode() {
    check(Guise::default().without_namespaces());
}

#[test]
fn hostile_check_in_reduced_mode_as_unprivileged_user() {
    Guise::nobody()
        .map(Guise::without_namespaces)
        .into_iter()
        .for_each(check);
}

#[test]
fn hostile_shell_in_full_mode() {
    shell(Guise::default());
}

#[test]
fn hostile_shell_in_full_mode_as_unprivileged_user() {
    Guise::nobody().into_iter().for_each(shell);
}

#[test]
fn hostile_shell_in_reduced_mode() {
    shell(Guise::default().without_namespaces());
}

#[test]
fn hostile_shell_in_reduced_mode_as_unprivileged_user() {
    Guise::nobody()
        .map(Guise::without_namespaces)
        .into_iter()
        .for_each(shell);
}

/// The hostile program as a check; the next check finds nothing of it, and the run comes to its end.
fn check(guise: Guise) {
    let server = Server::start([reply::answer("42")]);
    let mut world = World::new(guise, &server);
    let marker = world.project.marker().to_owned();
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
    });
    let mode = mode_of(guise);
    world.project.write("specs/spec.yaml", spec.to_string());
    world.project.write("../hostile/hostile.py", HOSTILE);
    world.project.write(
        "../hostile/facts.json",
        world.facts(mode, &server).to_string(),
    );
    world.settle();
    let ran = world.project.run(RUN).exits(0);
    if !is_as_wished(mode, &ran.stderr) {
        return;
    }
    judge(guise, &world.project, "workspace/results.json");
    assert_eq!(server.count(), 1);
    world.project.run(&["status"]).exits(0);
    world.project.run(&["reset"]).exits(0);
    world.is_unchanged(gap(guise));
}

/// The hostile program in a shell of `serve`, whose other environments see nothing of it.
fn shell(guise: Guise) {
    let server = Server::start([]);
    let mut world = World::new(guise, &server);
    let mode = mode_of(guise);
    world.project.write(
        "workspace/facts.json",
        world.facts(mode, &server).to_string(),
    );
    world.project.write("workspace/hostile.py", HOSTILE);
    world.settle();
    let open = world.project.outside("open").display().to_string();
    let mut serving = Serving::at(&world.project, "workspace", &["--read", &open]);
    let answer = serving.bash("python3 hostile.py");
    assert_eq!(answer.shows(), "");
    let seen = "import os; [p for p in os.listdir('/proc') if p.isdigit() and b'hostile' in open(f'/proc/{p}/cmdline','rb').read()]";
    serving.bash("exec -a hostile sleep 1000 &");
    if mode == "full" {
        assert_eq!(serving.python(seen).shows(), "[]\n");
    }
    let said = serving.end().stderr;
    if is_as_wished(mode, &said) {
        judge(guise, &world.project, "workspace/results.json");
        world.is_unchanged(gap(guise));
    }
}

fn mode_of(guise: Guise) -> &'static str {
    if guise.refuses_namespaces {
        "reduced"
    } else {
        "full"
    }
}

/// The one file whose mode and times can be changed in reduced mode.
fn gap(guise: Guise) -> &'static [&'static str] {
    if guise.refuses_namespaces {
        &["home/metadata", "open", "open/file"]
    } else {
        &[]
    }
}

/// Whether the run was in the mode that the test is about; a system that does not give it is said, and all that is
/// lost was.
fn is_as_wished(mode: &str, said: &str) -> bool {
    let Some(line) = said.lines().find(|line| line.contains("sandbox: ")) else {
        panic!("no word of a sandbox: {said}")
    };
    let is_reduced = line.contains("sandbox: reduced");
    if is_reduced {
        LOST.iter()
            .for_each(|lost| assert!(line.contains(lost), "{lost:?} is not said: {line}"));
    }
    if is_reduced && mode == "full" {
        eprintln!("skipped in full mode: {line}");
    }
    is_reduced == (mode == "reduced")
}

/// Judges every attempt; `worked` is an escape but for what reduced mode is known to lose.
fn judge(guise: Guise, project: &Project, results: &str) {
    let results: Vec<(String, String, String)> =
        serde_json::from_str(&project.read(results)).unwrap();
    assert!(150 < results.len(), "only {} attempts", results.len());
    let wrong: Vec<_> = results
        .iter()
        .filter(|(row, name, outcome)| !is_right(guise, row, name, outcome))
        .collect();
    assert!(wrong.is_empty(), "{guise:?}: {wrong:#?}");
}

fn is_right(guise: Guise, row: &str, name: &str, outcome: &str) -> bool {
    let worked = outcome.starts_with("worked");
    match row {
        "ordinary" => worked != (guise.refuses_namespaces && NOT_IN_REDUCED.contains(&name)),
        "A24" if guise.refuses_namespaces => true,
        // What is sent into a network of one's own arrives nowhere; the listener outside decides, and the decoy.
        "A32" if name.starts_with("send to") => true,
        "A34" if name == "signal everybody" => true,
        _ => !worked,
    }
}
