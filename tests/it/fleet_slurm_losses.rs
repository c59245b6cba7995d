//! `fleet` on a real Slurm that is broken meanwhile: machines and the controller are killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::fleet_slurm::{fleet_id, object, queued, results, templates};
use crate::support::project::{Project, answer_spec};
use crate::support::reply;
use crate::support::running::{Running, until};
use crate::support::server::Server;
use crate::support::slurm::{Machines, Slurm};

/// What an answer of the scripted model costs: 100 tokens in and 20 out.
const ANSWER_USD: f64 = 0.0004;

/// In what time Slurm notices that tasks have ended whose end a killed controller has forgotten; until then they keep
/// their cpus. It takes half a minute here.
const SLURM_NOTICES: Duration = Duration::from_secs(180);

/// Specs `m00`, `m01`, ... that ask a model once.
fn models(project: &Project, count: usize) {
    for number in 0..count {
        let spec = answer_spec().replace("name: answer\n", &format!("name: m{number:02}\n"));
        let spec = spec.replace(
            "Write the answer",
            &format!("Spec m{number:02}, write the answer"),
        );
        project.write(
            &format!("specs/m{number:02}.yaml"),
            spec + "generator: {max_tokens: 200}\n",
        );
    }
}

/// How many requests the server has got for each spec of `models`.
fn requests_per_spec(server: &Server) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for request in server.requests() {
        let text = request.text();
        let (_, rest) = text
            .split_once("Spec m")
            .expect("the request names its spec");
        *counts.entry(format!("m{}", &rest[..2])).or_default() += 1;
    }
    counts
}

/// Waits until so many entries have a result, and meanwhile resumes machines that Slurm has taken out.
fn until_results(driver: &mut Running, slurm: &Slurm, project: &Project, count: usize) {
    let mut resumed = Instant::now();
    let what = format!("{count} entries have a result");
    driver.until_within(SLURM_NOTICES, &what, || {
        if Duration::from_secs(1) < resumed.elapsed() {
            slurm.resume_machines();
            resumed = Instant::now();
        }
        count <= results(project)
    });
}

#[test]
fn every_spec_ends_once_whatever_is_killed() {
    let Some(slurm) = Slurm::start(Machines::Whole) else {
        return;
    };
    // The first answers come only when a machine has been killed.
    let mut requests = 0;
    let server = Server::answering(move |_| {
        requests += 1;
        let answer = reply::answer("42");
        if requests <= 8 { answer.held() } else { answer }
    });
    let project = slurm.project().model(&server);
    templates(&project, 170, "grep -q made made.txt");
    models(&project, 30);
    let budget = "0.05";
    let line = [
        "fleet", "run", "specs", "--engine", "slurm", "--budget", budget, "--json",
    ];
    let mut driver = project.start(&line);
    server.wait_for(8);
    slurm.kill_machine("n1");
    server.release();
    slurm.start_machine("n1");
    until_results(&mut driver, &slurm, &project, 80);
    slurm.kill_machine("n2");
    slurm.kill_controller();
    slurm.start_controller();
    slurm.start_machine("n2");
    until_results(&mut driver, &slurm, &project, 200);
    let ran = driver.wait().exits(0);
    let result = object(&ran);
    assert_eq!(result["counts"]["success"], 200, "{}", ran.transcript());
    let requests = requests_per_spec(&server);
    for entry in result["entries"].as_array().unwrap() {
        let name = entry["name"].as_str().unwrap();
        let asked = requests.get(&name[..3]).copied().unwrap_or_default();
        let usage = &entry["usage"];
        let recorded = usage["llm_calls"].as_u64().unwrap();
        let was_lost = 0.0 < usage["lost_usd"].as_f64().unwrap();
        assert_eq!(recorded, u64::from(name.starts_with('m')), "{entry}");
        assert_eq!(recorded < asked, was_lost, "{asked} requests: {entry}");
        assert!(
            asked <= entry["starts"].as_u64().unwrap(),
            "{asked} requests: {entry}"
        );
    }
    let billed = ANSWER_USD * server.count() as f64;
    let amount = |field: &str| result[field].as_f64().unwrap();
    assert!(
        billed <= amount("spent_usd") && amount("spent_usd") <= 0.05,
        "{billed} {result}"
    );
    assert!(
        (amount("spent_usd") - amount("reserved_usd")).abs() < 1e-3,
        "{result}"
    );
    eprintln!("starts: {}", starts(&result));
    until("nothing is queued", || queued(&slurm, &project).is_empty());
}

fn starts(result: &Value) -> u64 {
    let entries = result["entries"].as_array().unwrap().iter();
    entries.map(|entry| entry["starts"].as_u64().unwrap()).sum()
}

#[test]
fn a_submission_that_the_controller_forgets_is_repeated() {
    let Some(slurm) = Slurm::start(Machines::Whole) else {
        return;
    };
    let project = slurm.project();
    templates(&project, 2, "true");
    let line = [
        "fleet",
        "run",
        "specs",
        "--engine",
        "slurm",
        "--json",
        "--sbatch=--begin=now+3",
    ];
    let before = slurm.copy_stored();
    let mut driver = project.start(&line);
    driver.until("the tasks are queued", || {
        queued(&slurm, &project).len() == 2
    });
    slurm.kill_controller();
    slurm.restore_stored(&before);
    driver.until_stderr_has("the queue is not known: ");
    let other = slurm.project();
    templates(&other, 1, "true");
    let ran = other
        .run(&line)
        .exits(64)
        .says("cannot ask Slurm for its queue: ");
    ran.says("help: `scontrol ping`");
    assert!(!other.exists("fleet"));
    slurm.start_controller();
    let ran = driver.wait().exits(0);
    let ran = ran.says("lost (1 of 3 in a row); started again");
    let result = object(&ran);
    assert_eq!(
        (&result["counts"]["success"], starts(&result)),
        (&2.into(), 2),
        "{}",
        ran.transcript()
    );
}

#[test]
fn two_copies_of_a_task_ask_once() {
    let Some(slurm) = Slurm::start(Machines::Daemons) else {
        return;
    };
    let server = Server::start([reply::answer("42").held()]);
    let project = slurm.project().model(&server);
    models(&project, 1);
    let mut driver = project.start(&["fleet", "run", "specs", "--engine", "slurm", "--json"]);
    server.wait_for(1);
    let name = format!("fleet-{}-0", fleet_id(&project));
    let machine = slurm
        .ask("squeue", &["-h", "-n", &name, "-o", "%N"])
        .unwrap();
    let machine = machine.trim();
    slurm.kill_machine(machine);
    let update = [
        "update",
        &format!("nodename={machine}"),
        "state=down",
        "reason=gone",
    ];
    slurm.ask("scontrol", &update).unwrap();
    driver.until("another copy waits for the first one", || {
        has_waiting_task(&project)
    });
    server.release();
    let ran = driver.wait().exits(0);
    let entry = &object(&ran)["entries"][0];
    let counts = (&entry["starts"], &entry["usage"]["llm_calls"]);
    assert_eq!(counts, (&1.into(), &1.into()), "{}", ran.transcript());
    assert_eq!(server.count(), 1);
}

/// Whether a process waits for the lock of a root of the fleet.
fn has_waiting_task(project: &Project) -> bool {
    let roots = fs::read_dir(project.path("fleet/roots"))
        .into_iter()
        .flatten()
        .flatten();
    let locks = roots.filter_map(|root| fs::metadata(root.path().join(".orchestrator.lock")).ok());
    let inodes: Vec<String> = locks.map(|lock| format!(":{} ", lock.ino())).collect();
    let list = fs::read_to_string("/proc/locks").unwrap();
    let mut waiting = list.lines().filter(|line| line.contains("->"));
    waiting.any(|line| inodes.iter().any(|inode| line.contains(inode)))
}
