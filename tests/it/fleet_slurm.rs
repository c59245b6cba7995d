//! `fleet` on a real Slurm that stays whole: placing, stopping and finding tasks. `fleet_slurm_losses.rs` breaks it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::Value;

use crate::support::project::{ANTHROPIC_KEY, BINARY, OPENAI_KEY, Project};
use crate::support::reply;
use crate::support::running::{Ran, Running, until};
use crate::support::server::Server;
use crate::support::slurm::Slurm;

/// Specs `t000`, `t001`, ... that need no model; each is checked by a line for `sh`.
pub(crate) fn templates(project: &Project, count: usize, check: &str) {
    project.write("template/0/made.txt", "made\n");
    for number in 0..count {
        let spec = serde_json::json!({
            "name": format!("t{number:03}"),
            "description": "Make it.",
            "generator": {"provider": "template", "template": "../template/"},
            "checks": [{"name": "made", "command": ["sh", "-c", check]}],
        });
        project.write(&format!("specs/t{number:03}.yaml"), spec.to_string());
    }
}

/// The object of `--json`.
pub(crate) fn object(ran: &Ran) -> Value {
    let parsed = serde_json::from_str(&ran.stdout);
    parsed.unwrap_or_else(|error| panic!("{error}\n{}", ran.transcript()))
}

/// The id of a fleet in the directory `fleet`.
pub(crate) fn fleet_id(project: &Project) -> String {
    let plan: Value = serde_json::from_str(&project.read("fleet/fleet.json")).unwrap();
    plan["fleet_id"].as_str().unwrap().to_owned()
}

/// `7_12|R|None` for each task of that fleet which is queued or runs; none while the controller does not answer.
pub(crate) fn queued(slurm: &Slurm, project: &Project) -> Vec<String> {
    match project.exists("fleet/fleet.json") {
        true => slurm.tasks(&fleet_id(project)).unwrap_or_default(),
        false => Vec::new(),
    }
}

/// How many entries of the fleet in `fleet` have a result.
pub(crate) fn results(project: &Project) -> usize {
    let files = fs::read_dir(project.path("fleet/results"));
    let names = files.into_iter().flatten().flatten();
    names
        .filter(|file| file.file_name().to_string_lossy().ends_with(".json"))
        .count()
}

/// The object of `fleet status --json` of the directory `fleet`.
pub(crate) fn status(project: &Project) -> Value {
    object(
        &project
            .run(&["fleet", "status", "fleet", "--json"])
            .exits(0),
    )
}

/// A line for `sh` that waits for ever when it runs for the first time below this root, and else passes.
fn stuck_at_first(project: &Project) -> String {
    let (begun, marker) = (project.outside("begun"), project.marker().to_owned());
    format!(
        "if mkdir {} 2> {}; then exec sleep {marker}; fi",
        begun.display(),
        project.outside("mkdir").display()
    )
}

/// The project with a `squeue` that notes each of its calls before it is the real one.
fn with_noted_readings(project: Project) -> Project {
    let programs = project.outside("programs");
    fs::create_dir(&programs).unwrap();
    let notes = project.outside("readings");
    let script = format!(
        "#!/bin/sh\necho >> {}\nexec /usr/bin/squeue \"$@\"\n",
        notes.display()
    );
    fs::write(programs.join("squeue"), script).unwrap();
    let executable = fs::Permissions::from_mode(0o755);
    fs::set_permissions(programs.join("squeue"), executable).unwrap();
    project.env("PATH", &format!("{}:/usr/bin:/bin", programs.display()))
}

/// Waits until a driver has begun to read the queue so many times more.
fn until_readings(driver: &mut Running, project: &Project, more: usize) {
    let readings = || fs::read(project.outside("readings")).map_or(0, |notes| notes.len());
    let before = readings();
    driver.until("it has read the queue", || before + more <= readings());
}

const RUN: &[&str] = &["fleet", "run", "specs", "--engine", "slurm"];

fn run_with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [RUN, more].concat()
}

#[test]
fn specs_run_as_an_array_in_any_directory() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let server = Server::start([reply::answer("42")]);
    let project = slurm.project().model(&server);
    templates(&project, 3, "grep -q made made.txt");
    project.write("specs/asks.yaml", crate::support::project::answer_spec());
    let directory = "it's a \"fleet\" for $HOME;* ä";
    let ran = project.run(&run_with(&["--out", directory, "--json", "--jobs", "2"]));
    let ran = ran.exits(0);
    let result = object(&ran);
    assert_eq!(result["outcome"], "SUCCESS", "{}", ran.transcript());
    assert_eq!(result["counts"]["success"], 4, "{}", ran.transcript());
    // Tasks say nothing as long as they can start.
    assert_eq!(project.read(&format!("{directory}/slurm.log")), "");
    // They get the key of the provider that is asked, and no other.
    assert_eq!(server.requests()[0].headers["x-api-key"], ANTHROPIC_KEY);
    let stored = slurm.stored();
    assert!(stored.contains(ANTHROPIC_KEY) && !stored.contains(OPENAI_KEY));
    // It is over: nothing is started again.
    let again = project
        .run(&run_with(&["--out", directory, "--json"]))
        .exits(0);
    let starts = |ran: &Ran| -> Vec<Value> {
        let entries = object(ran)["entries"].as_array().unwrap().clone();
        entries
            .into_iter()
            .map(|entry| entry["starts"].clone())
            .collect()
    };
    assert_eq!(starts(&again), starts(&ran));
    project.nothing_left();
}

#[test]
fn resources_and_further_arguments_reach_sbatch_and_tasks_that_the_user_holds_wait() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = with_noted_readings(slurm.project()).env("SBATCH_ACCOUNT", "the lab");
    templates(&project, 2, "true");
    let line = run_with(&[
        "--cpus",
        "2",
        "--mem",
        "300M",
        "--time-limit",
        "61",
        "--sbatch",
        "--nodelist=n2",
        "--sbatch=--hold",
    ]);
    let mut driver = project.start(&line);
    driver.until("the tasks are held", || {
        let tasks = queued(&slurm, &project);
        tasks.len() == 2 && tasks.iter().all(|task| task.ends_with("|PD|JobHeldUser"))
    });
    let name = format!("fleet-{}-0", fleet_id(&project));
    let format = "%C|%m|%l|%a|%n";
    let listed = slurm.ask("squeue", &["-h", "-r", "-n", &name, "-o", format]);
    assert_eq!(listed.unwrap(), "2|300M|2:00|the lab|n2\n".repeat(2));
    // The second one begins after the first has been dealt with.
    until_readings(&mut driver, &project, 2);
    assert_eq!(queued(&slurm, &project).len(), 2);
    // When the driver reads the queue again, the tasks are gone.
    let children = format!("/proc/{0}/task/{0}/children", driver.id());
    driver.until("it waits", || {
        fs::read_to_string(&children).unwrap().is_empty()
    });
    driver.signal(Signal::STOP);
    let cancelled = project.run(&["fleet", "cancel", "fleet"]).exits(0);
    assert_eq!(cancelled.stdout, "cancelled 2 entries\n");
    driver.signal(Signal::CONT);
    let ran = driver.wait().exits(4);
    assert!(!ran.stderr.contains("lost"), "{}", ran.transcript());
    assert_eq!(queued(&slurm, &project), [""; 0]);
    assert_eq!(status(&project)["counts"]["cancelled"], 2);
}

#[test]
fn a_fleet_goes_on_without_its_driver_and_another_one_ends_it() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 3, "true");
    project.run(&run_with(&["--detach", "--json"])).exits(0);
    until("all have a result", || results(&project) == 3);
    assert_eq!(status(&project)["outcome"], "SUCCESS");
    let resumed = project
        .run(&["fleet", "resume", "fleet", "--json"])
        .exits(0);
    let result = object(&resumed);
    let starts = |entry: &Value| entry["starts"] == 1;
    assert!(
        result["entries"].as_array().unwrap().iter().all(starts),
        "{}",
        resumed.transcript()
    );
}

#[test]
fn a_driver_that_is_killed_loses_nothing() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 6, "true");
    let driver = project.start(&run_with(&["--jobs", "1"]));
    until("a task has ended", || 0 < results(&project));
    driver.signal(Signal::KILL);
    drop(driver);
    let resumed = project
        .run(&["fleet", "resume", "fleet", "--json"])
        .exits(0);
    let result = object(&resumed);
    assert_eq!(result["counts"]["success"], 6, "{}", resumed.transcript());
    let starts = |entry: &Value| entry["starts"] == 1;
    assert!(
        result["entries"].as_array().unwrap().iter().all(starts),
        "{}",
        resumed.transcript()
    );
}

#[test]
fn a_task_that_an_administrator_holds_is_submitted_again() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 1, "true");
    // It waits for some seconds at every submission, so that it can be held.
    let mut driver = project.start(&run_with(&["--sbatch=--begin=now+3", "--json"]));
    driver.until("the task is queued", || queued(&slurm, &project).len() == 1);
    let task = queued(&slurm, &project).remove(0);
    slurm
        .ask("scontrol", &["hold", task.split('_').next().unwrap()])
        .unwrap();
    let ran = driver.wait().exits(0).says("lost (1 of 3 in a row)");
    let result = object(&ran);
    assert_eq!(result["entries"][0]["starts"], 1, "{}", ran.transcript());
}

#[test]
fn a_check_that_scancel_interrupts_does_not_count() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 1, &stuck_at_first(&project));
    let mut driver = project.start(&run_with(&["--json", "--no-sandbox"]));
    driver.until("the check runs", || project.outside("begun").exists());
    let name = format!("fleet-{}-0", fleet_id(&project));
    slurm.ask("scancel", &["-n", &name]).unwrap();
    let ran = driver.wait().exits(0).says("lost (1 of 3 in a row)");
    let entry = &object(&ran)["entries"][0];
    assert_eq!(entry["outcome"], "SUCCESS", "{}", ran.transcript());
    assert_eq!(entry["starts"], 2, "{}", ran.transcript());
    let result = format!("fleet/results/{}.json", entry["name"].as_str().unwrap());
    let result: Value = serde_json::from_str(&project.read(&result)).unwrap();
    assert_eq!(result["retry_count"], 0, "{result}");
    project.nothing_left();
}

#[test]
fn a_task_that_cannot_start_is_given_up_with_what_was_printed() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 1, "true");
    let program = project.outside("orchestrator");
    fs::copy(BINARY, &program).unwrap();
    let line = run_with(&["--sbatch=--begin=now+1", "--json"]);
    let command = project.command(program.to_str().unwrap(), &line);
    let mut driver = Running::start(command, project.root());
    driver.until("the task is queued", || queued(&slurm, &project).len() == 1);
    fs::remove_file(&program).unwrap();
    let ran = driver.wait().exits(1).says("lost (2 of 3 in a row)");
    let entry = &object(&ran)["entries"][0];
    assert_eq!(entry["reason"], "lost", "{}", ran.transcript());
    let message = entry["message"].as_str().unwrap();
    assert!(message.contains("orchestrator: not found"), "{message}");
}

#[test]
fn one_entry_is_cancelled_while_others_go_on() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 1, "true");
    let spec = project.read("specs/t000.yaml");
    let stuck = spec.replace(
        "\"true\"",
        &format!(
            "\"touch {}; exec sleep {}\"",
            project.outside("begun").display(),
            project.marker()
        ),
    );
    assert_ne!(spec, stuck);
    project.write("specs/stuck.yaml", stuck.replace("t000", "stuck"));
    let mut driver = project.start(&run_with(&["--json", "--no-sandbox"]));
    driver.until("the check runs", || project.outside("begun").exists());
    let name = status(&project)["entries"][0]["name"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(name.starts_with("stuck-"), "{name}");
    project.run(&["fleet", "cancel", "fleet", &name]).exits(0);
    let ran = driver.wait().exits(4);
    let counts = &object(&ran)["counts"];
    assert_eq!(
        (&counts["success"], &counts["cancelled"]),
        (&Value::from(1), &Value::from(1)),
        "{}",
        ran.transcript()
    );
    project.nothing_left();
}

#[test]
fn an_interrupted_driver_leaves_its_tasks_and_a_second_interrupt_cancels_them() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = with_noted_readings(slurm.project());
    templates(&project, 2, "true");
    let mut driver = project.start(&run_with(&["--sbatch=--begin=now+1hour", "--json"]));
    driver.until("the tasks are queued", || {
        queued(&slurm, &project).len() == 2
    });
    driver.signal(Signal::INT);
    let directory = project.path("fleet").display().to_string();
    let ran = driver.wait().exits(130);
    let ran = ran.says("2 queued and 0 running tasks go on, with $0.0000 reserved");
    let ran = ran.says(&format!("`orchestrator fleet resume {directory}`"));
    let ran = ran.says(&format!("`orchestrator fleet cancel {directory}`"));
    assert_eq!(object(&ran)["outcome"], "INTERRUPTED");
    assert_eq!(queued(&slurm, &project).len(), 2);
    let mut driver = project.start(&["fleet", "resume", "fleet"]);
    until_readings(&mut driver, &project, 2);
    driver.signal(Signal::INT);
    driver.until_stderr_has("go on");
    driver.signal(Signal::INT);
    driver.wait().exits(130).says("cancelled");
    until("nothing is queued", || queued(&slurm, &project).is_empty());
    assert_eq!(status(&project)["counts"]["cancelled"], 2);
}

#[test]
fn what_sbatch_says_is_shown() {
    let Some(slurm) = Slurm::shared() else {
        return;
    };
    let project = slurm.project();
    templates(&project, 1, "true");
    let ran = project.run(&run_with(&["--sbatch=--partition=none"]));
    ran.exits(74).says("invalid partition specified: none");
    let ran = project.run(&run_with(&["--sbatch=--job-name=mine"]));
    ran.exits(64).says("invalid --sbatch --job-name=mine");
}

#[test]
fn without_slurm_nothing_is_written() {
    let project = Project::new();
    templates(&project, 1, "true");
    let empty = project.outside("empty").display().to_string();
    let project = project.env("PATH", &empty);
    let ran = project.run(RUN).exits(64);
    let ran = ran.says("cannot find sbatch, squeue, scancel on PATH");
    ran.says("help: on Debian: `apt-get install slurm-client`")
        .says("--engine local");
    for directory in ["100%", "a\\b"] {
        let ran = project.run(&run_with(&["--out", directory])).exits(64);
        ran.says("--engine slurm: Slurm replaces").says("--out DIR");
        let plan = ["fleet", "plan", "specs", "--engine", "slurm", "--out"];
        project.run(&[&plan[..], &[directory]].concat()).exits(64);
        assert!(!project.exists(directory));
    }
    assert!(!project.exists("fleet"));
}
